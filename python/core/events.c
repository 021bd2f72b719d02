/* Allocations and frees of Python: counters, and a hook that is called. Under the GIL. */
#include "core.h"

/* --- counters --------------------------------------------------------------------------------- */

/* Bytes or allocations. Frees of older memory make `now` negative. */
typedef struct tally_t {
    long long now, peak, total;
} tally_t;

typedef struct counters_t {
    PyObject ob_base;
    umf_py_pool_t *pool; /* NULL: all */
    tally_t bytes, count;
    struct counters_t *next, **link; /* of those that count; link: NULL if this one does not */
} counters_t;

static counters_t *counting;

static void tally_add(tally_t *tally, long long value) {
    tally->now += value;
    tally->total += value > 0 ? value : 0;
    tally->peak = tally->now > tally->peak ? tally->now : tally->peak;
}

static void count(const umf_py_pool_t *pool, long long bytes, int number) {
    for (counters_t *each = counting; each; each = each->next) {
        if (!each->pool || each->pool == pool) {
            tally_add(&each->bytes, bytes);
            tally_add(&each->count, number);
        }
    }
}

static void counters_leave(counters_t *self) {
    if (self->link) {
        *self->link = self->next;
        if (self->next) {
            self->next->link = self->link;
        }
        self->link = NULL;
    }
}

/* Counters(pool or None) */
static PyObject *counters_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs; /* the constructor of a subclass takes them */
    PyObject *pool;
    if (!PyArg_ParseTuple(args, "O:Counters", &pool) ||
        (pool != Py_None && !umf_py_check(pool, umf_py_pool_type, "a Pool or None"))) {
        return NULL;
    }
    counters_t *self = umf_py_alloc(type);
    if (self && pool != Py_None) {
        Py_INCREF(pool);
        self->pool = (umf_py_pool_t *)pool;
    }
    return (PyObject *)self;
}

static PyObject *counters_begin(PyObject *object, PyObject *unused) {
    (void)unused;
    counters_t *self = (counters_t *)object;
    if (self->link) {
        PyErr_SetString(PyExc_ValueError, "the counters are in use: make others");
        return NULL;
    }
    self->bytes = self->count = (tally_t){0, 0, 0};
    self->next = counting;
    self->link = &counting;
    if (counting) {
        counting->link = &self->next;
    }
    counting = self;
    Py_RETURN_NONE;
}

static PyObject *counters_end(PyObject *object, PyObject *unused) {
    (void)unused;
    counters_leave((counters_t *)object);
    Py_RETURN_NONE;
}

static PyObject *counters_read(PyObject *object, PyObject *unused) {
    (void)unused;
    const tally_t *bytes = &((counters_t *)object)->bytes, *count = &((counters_t *)object)->count;
    return Py_BuildValue("LLLLLL", bytes->now, bytes->peak, bytes->total, count->now, count->peak,
                         count->total);
}

static int counters_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((counters_t *)object)->pool);
    return 0;
}

static void counters_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    counters_leave((counters_t *)object);
    Py_XDECREF((PyObject *)((counters_t *)object)->pool);
    umf_py_dealloc(object);
}

static PyMethodDef counters_methods[] = {
    {"_begin", counters_begin, METH_NOARGS, "_begin($self, /)\n--\n\nCounts from zero on."},
    {"_end", counters_end, METH_NOARGS, "_end($self, /)\n--\n\nCounts no more."},
    {"_read", counters_read, METH_NOARGS,
     "_read($self, /)\n--\n\nBytes now, at most, in total; the same of allocations."},
    {NULL, NULL, 0, NULL}};

bool umf_py_add_counters(PyObject *module) {
    static PyTypeObject *type;
    static PyType_Slot slots[] = {{Py_tp_new, (void *)counters_new},
                                  {Py_tp_dealloc, (void *)counters_dealloc},
                                  {Py_tp_traverse, (void *)counters_traverse},
                                  {Py_tp_methods, counters_methods},
                                  {Py_tp_doc, "Counts allocations and frees of Python."},
                                  {0, NULL}};
    static PyType_Spec spec = {"umf._core.Counters", sizeof(counters_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               slots};
    return umf_py_add_type(module, &spec, "Counters", &type);
}

/* --- the hook --------------------------------------------------------------------------------- */

enum { MALLOC_PRE, MALLOC_POST, FREE_PRE, FREE_POST }; /* umf._hooks has the same order */

static PyObject *hook; /* (event, pool, bytes, address); NULL: there is none */
static _Thread_local bool is_in_hook;

static bool hook_call(int event, umf_py_pool_t *pool, size_t size, void *ptr) {
    if (!hook || is_in_hook || umf_py_is_ending()) {
        return true;
    }
    PyObject *function = hook;
    Py_INCREF(function); /* it may remove itself */
    is_in_hook = true;
    PyObject *answer = PyObject_CallFunction(function, "iOnN", event, (PyObject *)pool,
                                             (Py_ssize_t)size, PyLong_FromVoidPtr(ptr));
    is_in_hook = false;
    Py_DECREF(function);
    Py_XDECREF(answer);
    return answer;
}

/* A free cannot fail by its hook, and may be part of the handling of an exception. */
static void hook_call_free(int event, umf_py_pool_t *pool, size_t size, void *ptr) {
    PyObject *error, *value, *trace;
    if (hook) {
        PyErr_Fetch(&error, &value, &trace);
        if (!hook_call(event, pool, size, ptr)) {
            PyErr_WriteUnraisable(hook);
        }
        PyErr_Restore(error, value, trace);
    }
}

bool umf_py_malloc_begins(umf_py_pool_t *pool, size_t size) {
    return hook_call(MALLOC_PRE, pool, size, NULL);
}

bool umf_py_malloc_done(umf_py_pool_t *pool, size_t size, void *ptr) {
    count(pool, (long long)size, 1);
    return hook_call(MALLOC_POST, pool, size, ptr);
}

void umf_py_free_begins(umf_py_pool_t *pool, size_t size, void *ptr) {
    hook_call_free(FREE_PRE, pool, size, ptr);
}

void umf_py_free_done(umf_py_pool_t *pool, size_t size, void *ptr) {
    count(pool, -(long long)size, -1);
    hook_call_free(FREE_POST, pool, size, ptr);
}

void umf_py_free_lost(umf_py_pool_t *pool, size_t size) {
    count(pool, -(long long)size, -1);
}

/* hook_set(function or None) */
static PyObject *hook_set(PyObject *module, PyObject *function) {
    (void)module;
    PyObject *before = hook;
    hook = function == Py_None ? NULL : function;
    Py_XINCREF(hook);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

PyMethodDef umf_py_event_functions[] = {
    {"hook_set", hook_set, METH_O,
     "hook_set(function, /)\n--\n\nIs called for each allocation and free of Python."},
    {NULL, NULL, 0, NULL}};
