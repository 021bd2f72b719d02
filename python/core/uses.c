/* umf._core.Uses: the number of an object of the library, which calls of Python use.
 *
 * Numbers come and go inside of one call of C, in which no handler of a signal runs: none is lost,
 * and no call stays counted. */
#include "core.h"

typedef struct handle_t {
    PyObject_HEAD struct handle_t *outer; /* whose end is that of this one, too; or NULL */
    PyObject *what;                       /* in words */
    PyObject *end;                        /* a function that takes the number */
    PyObject *number;                     /* NULL: it is closed */
    umf_py_uses_t uses;
    unsigned process; /* that has opened it */
    unsigned alone;   /* process in which a call allows no others, plus 1; 0: none */
} handle_t;

static PyTypeObject *uses_type;

/* Uses(what, function that ends it, outer or None) */
static PyObject *uses_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *what, *end, *outer;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "UOO:Uses", &what, &end, &outer)) {
        return NULL;
    }
    if (outer != Py_None && !umf_py_check(outer, uses_type, "Uses or None")) {
        return NULL;
    }
    handle_t *self = umf_py_alloc(type);
    if (self) {
        Py_INCREF(what);
        Py_INCREF(end);
        self->what = what;
        self->end = end;
        if (outer != Py_None) {
            Py_INCREF(outer);
            self->outer = (handle_t *)outer;
        }
    }
    return (PyObject *)self;
}

static bool is_of_process(const handle_t *self) {
    return self->process == umf_py_process();
}

/* Also false in a child of fork, which has nothing to end. */
static bool is_to_end(const handle_t *self) {
    return self->number && is_of_process(self) && (!self->outer || self->outer->number);
}

static void begin(handle_t *self) {
    umf_py_uses_begin(&self->uses);
    if (self->outer) {
        umf_py_uses_begin(&self->outer->uses);
    }
}

static void end(handle_t *self) {
    umf_py_uses_end(&self->uses);
    if (self->outer) {
        umf_py_uses_end(&self->outer->uses);
    }
}

/* open(function, *args): the function returns the number, or a tuple that begins with it; the
 * result is the rest of that. */
static PyObject *uses_open(PyObject *object, PyObject *args) {
    handle_t *self = (handle_t *)object;
    PyObject *function = PyTuple_GetItem(args, 0);
    PyObject *rest = function ? PyTuple_GetSlice(args, 1, PyTuple_Size(args)) : NULL;
    PyObject *result = rest ? PyObject_CallObject(function, rest) : NULL;
    Py_XDECREF(rest);
    if (!result) {
        return NULL;
    }
    PyObject *number = result, *others = NULL;
    if (PyTuple_Check(result)) {
        number = PyTuple_GetItem(result, 0);
        others = number ? PyTuple_GetItem(result, 1) : NULL;
        if (!others) {
            Py_DECREF(result);
            return NULL;
        }
    }
    Py_INCREF(number);
    self->number = number;
    self->process = umf_py_process();
    others = others ? others : Py_None; /* those of a tuple are in it */
    Py_INCREF(others);
    Py_DECREF(result);
    return others;
}

static bool is_refused(handle_t *self) {
    if (self->number && self->alone == umf_py_process() + 1) {
        PyErr_Format(PyExc_BufferError, "the %U is suspended, resumed or moved by another call",
                     self->what);
        return true;
    }
    if (self->number && self->uses.closing == 0) {
        return false;
    }
    PyErr_Format(PyExc_ValueError, "the %U is closed", self->what);
    return true;
}

PyObject *umf_py_number_use(PyObject *object) {
    handle_t *self = umf_py_check(object, uses_type, "Uses");
    if (!self || is_refused(self) || (self->outer && is_refused(self->outer))) {
        return NULL;
    }
    begin(self);
    umfLastErrorClear();
    return self->number;
}

void umf_py_number_unuse(PyObject *object) {
    end((handle_t *)object);
}

bool umf_py_number_is_of(PyObject *object, void *outer) {
    return object == outer || (outer && ((handle_t *)object)->outer == outer);
}

/* The number, for a with. */
static PyObject *uses_enter(PyObject *object, PyObject *unused) {
    PyObject *number = umf_py_number_use(object);
    (void)unused;
    Py_XINCREF(number);
    return number;
}

static PyObject *uses_exit(PyObject *object, PyObject *unused) {
    (void)unused;
    end((handle_t *)object);
    Py_RETURN_NONE;
}

/* The arguments of a call: the number, and those of `args` from `from` on. */
static PyObject *arguments(const handle_t *self, PyObject *args, Py_ssize_t from) {
    Py_ssize_t count = PyTuple_Size(args);
    PyObject *all = PyTuple_New(count - from + 1);
    if (!all) {
        return NULL;
    }
    Py_INCREF(self->number);
    PyTuple_SetItem(all, 0, self->number);
    for (Py_ssize_t i = from; i < count; i++) {
        PyObject *each = PyTuple_GetItem(args, i);
        Py_INCREF(each);
        PyTuple_SetItem(all, i - from + 1, each);
    }
    return all;
}

/* alone(function, *args): calls it with the number while no other call is in progress, else
 * BufferError; others are refused meanwhile. */
static PyObject *uses_alone(PyObject *object, PyObject *args) {
    handle_t *self = (handle_t *)object;
    PyObject *function = PyTuple_GetItem(args, 0);
    if (!function || is_refused(self) || (self->outer && is_refused(self->outer))) {
        return NULL;
    }
    if (umf_py_uses_any(&self->uses)) {
        return PyErr_Format(PyExc_BufferError, "a call of the %U is in progress: try it afterwards",
                            self->what);
    }
    PyObject *all = arguments(self, args, 1);
    if (!all) {
        return NULL;
    }
    self->alone = umf_py_process() + 1;
    begin(self);
    PyObject *result = PyObject_CallObject(function, all);
    end(self);
    self->alone = 0;
    Py_DECREF(all);
    return result;
}

/* Transfers are canceled, and end as soon as they can. */
static bool is_idle(void *arg) {
    handle_t *self = arg;
    umf_py_transfers_cancel(self);
    return !umf_py_uses_any(&self->uses);
}

/* Whether no call is in progress. False and BufferError, or the exception of a handler. The
 * deadline of transfers bounds the wait for them. */
static bool wait_idle(handle_t *self, double seconds) {
    if (is_idle(self)) {
        return true;
    }
    umf_py_uses_begin_close(&self->uses);
    int state = umf_py_is_ending() ? 1 : umf_py_wait(is_idle, self, seconds);
    while (state > 0 && seconds > 0 && umf_py_transfers_any(self) && !umf_py_is_ending()) {
        state = umf_py_wait(is_idle, self, seconds);
    }
    umf_py_uses_end_close(&self->uses);
    if (state > 0) {
        PyErr_Format(PyExc_BufferError, "a call of the %U is in progress: close it afterwards",
                     self->what);
    }
    return state == 0;
}

/* The call that ends it. The number comes back if that fails and `is_kept`. */
static PyObject *call_end(handle_t *self, PyObject *function, PyObject *rest, bool is_kept) {
    PyObject *args = arguments(self, rest, 0);
    if (!args) {
        return NULL;
    }
    PyObject *number = self->number;
    self->number = NULL;
    begin(self); /* the outer one must not go meanwhile */
    PyObject *result = PyObject_CallObject(function, args);
    end(self);
    Py_DECREF(args);
    if (!result && is_kept) {
        self->number = number;
    } else {
        Py_DECREF(number);
    }
    return result;
}

/* end(seconds to wait for other threads, Hold or None, word for it, function or None, *args): ends
 * it by the function, which may fail: then it is as it was; None: by that of its creation. None:
 * it has ended already, or is the parent's. */
static PyObject *uses_end(PyObject *object, PyObject *args) {
    handle_t *self = (handle_t *)object;
    PyObject *hold, *word, *function;
    double seconds;
    PyObject *first = PyTuple_GetSlice(args, 0, 4);
    bool is_right = first && PyArg_ParseTuple(first, "dOUO:end", &seconds, &hold, &word, &function);
    Py_XDECREF(first); /* `args` has the references */
    if (!is_right || (is_to_end(self) && !wait_idle(self, seconds))) {
        return NULL;
    }
    if (!is_to_end(self)) {
        Py_CLEAR(self->number);
        Py_RETURN_NONE;
    }
    PyObject *ended = hold == Py_None ? hold : PyObject_CallMethod(hold, "end", "O", word);
    if (!ended) {
        return NULL;
    }
    if (hold != Py_None) {
        Py_DECREF(ended);
    }
    PyObject *rest = PyTuple_GetSlice(args, 4, PyTuple_Size(args));
    bool is_given = function != Py_None;
    PyObject *result =
        rest ? call_end(self, is_given ? function : self->end, rest, is_given) : NULL;
    Py_XDECREF(rest);
    return result;
}

/* The last reference ends it: memory of it has one (region.c). */
static void uses_dealloc(PyObject *object) {
    handle_t *self = (handle_t *)object;
    if (is_to_end(self)) {
        PyObject *kind, *value, *trace, *none = PyTuple_New(0);
        PyErr_Fetch(&kind, &value, &trace);
        PyObject *result = none ? call_end(self, self->end, none, false) : NULL;
        PyErr_Clear();
        Py_XDECREF(result);
        Py_XDECREF(none);
        PyErr_Restore(kind, value, trace);
    }
    Py_XDECREF(self->number);
    Py_XDECREF(self->what);
    Py_XDECREF(self->end);
    Py_XDECREF((PyObject *)self->outer);
    umf_py_dealloc(object);
}

static PyObject *uses_is_open(PyObject *object, void *unused) {
    (void)unused;
    return PyBool_FromLong(((handle_t *)object)->number != NULL);
}

static PyObject *uses_in_use(PyObject *object, void *unused) {
    (void)unused;
    return PyBool_FromLong(umf_py_uses_any(&((handle_t *)object)->uses));
}

bool umf_py_add_uses(PyObject *module) {
    static PyMethodDef methods[] = {
        {"open", uses_open, METH_VARARGS, NULL},     {"end", uses_end, METH_VARARGS, NULL},
        {"alone", uses_alone, METH_VARARGS, NULL},   {"__enter__", uses_enter, METH_NOARGS, NULL},
        {"__exit__", uses_exit, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
    static PyGetSetDef members[] = {{"is_open", uses_is_open, NULL, NULL, NULL},
                                    {"in_use", uses_in_use, NULL, NULL, NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {{Py_tp_new, (void *)uses_new},
                                  {Py_tp_dealloc, (void *)uses_dealloc},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, members},
                                  {0, NULL}};
    static PyType_Spec spec = {"umf._core.Uses", sizeof(handle_t), 0, Py_TPFLAGS_DEFAULT, slots};
    return umf_py_add_type(module, &spec, "Uses", &uses_type);
}
