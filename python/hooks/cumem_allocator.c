/*
 * The module cumem_allocator: functions for PyTorch, which allocates for vLLM's memory pools, and
 * for Python, which releases their memory. Limited API of CPython 3.9.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>

#include "cuda.h"
#include "cumem.h"
#include "lease.h"

#define EXPORTED __attribute__((visibility("default")))

/* Sync: the GIL */
static PyObject *malloc_callback, *free_callback;
/* Those that do no more than the notes of cumem.h. While they are the callbacks notes are taken,
 * and PyTorch, which holds the lock of its allocator, does not wait for the GIL: another thread may
 * hold the GIL and wait for that lock. */
static PyObject *noted_malloc, *noted_free;
static atomic_bool takes_notes;
/* Tags of allocations: that of the thread, or CUMEM_UNNOTED; and that of threads without one. */
static _Thread_local int thread_tag = CUMEM_UNNOTED;
static atomic_int process_tag;
/* Set when the interpreter is about to end: nothing calls into it from then on. */
static atomic_bool has_ended;

/* --- called by PyTorch, without the GIL ------------------------------------------------------- */

static bool may_call(void) {
    return !atomic_load(&has_ended) && Py_IsInitialized();
}

/* Where Python is called an exception of the program may be pending: it is kept. */
typedef struct call_t {
    PyGILState_STATE state;
    PyObject *kind, *value, *trace;
} call_t;

static call_t call_begin(void) {
    call_t call = {.state = PyGILState_Ensure()};
    PyErr_Fetch(&call.kind, &call.value, &call.trace);
    return call;
}

static void call_end(call_t call) {
    PyErr_Restore(call.kind, call.value, call.trace);
    PyGILState_Release(call.state);
}

/* Calls Python for a new allocation. An exception is printed and has no other effect. */
static bool announce(const block_t *block, size_t size) {
    call_t call = call_begin();
    PyObject *result = NULL;
    if (malloc_callback) {
        result = PyObject_CallFunction(malloc_callback, "((inKK))", block->group->device,
                                       (Py_ssize_t)size, (unsigned long long)(uintptr_t)block->ptr,
                                       (unsigned long long)(uintptr_t)block);
    } else {
        PyErr_SetString(PyExc_RuntimeError, "init_module was not called");
    }
    if (!result) {
        PyErr_WriteUnraisable(malloc_callback);
    }
    Py_XDECREF(result);
    call_end(call);
    return result;
}

EXPORTED void *my_malloc(ssize_t size, int device, CUstream stream);
EXPORTED void *my_malloc(ssize_t size, int device, CUstream stream) {
    (void)stream;
    failure_t error = {.text = ""};
    size_t bytes = (size_t)size;
    if (size <= 0 || !may_call()) {
        return NULL;
    }
    bool is_noted = atomic_load(&takes_notes);
    int tag = thread_tag != CUMEM_UNNOTED ? thread_tag : atomic_load(&process_tag);
    block_t *block = cumem_malloc(&bytes, device, is_noted ? tag : CUMEM_UNNOTED, &error);
    if (!block) {
        return NULL;
    }
    void *ptr = block->ptr;
    if (!is_noted && !announce(block, bytes)) {
        cumem_free(ptr, false);
        return NULL;
    }
    return ptr;
}

static bool is_handle(PyObject *result, const void *ptr) {
    if (!PyTuple_Check(result) || PyTuple_Size(result) != 4) {
        return false;
    }
    void *address = PyLong_AsVoidPtr(PyTuple_GetItem(result, 2));
    return !PyErr_Occurred() && address == ptr;
}

/* Calls Python for the end of an allocation, which ends whatever the result is. */
static void withdraw(const void *ptr) {
    call_t call = call_begin();
    PyObject *result = NULL;
    if (free_callback) {
        result = PyObject_CallFunction(free_callback, "K", (unsigned long long)(uintptr_t)ptr);
        if (result && !is_handle(result, ptr) && !PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError,
                         "the callback for %p must return (device, size, address, handle), not %R",
                         ptr, result);
        }
    }
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable(free_callback);
    }
    Py_XDECREF(result);
    call_end(call);
}

EXPORTED void my_free(void *ptr, ssize_t size, int device, CUstream stream);
EXPORTED void my_free(void *ptr, ssize_t size, int device, CUstream stream) {
    (void)size;
    (void)device;
    (void)stream;
    if (!ptr) {
        return;
    }
    bool is_noted = atomic_load(&takes_notes);
    if (!is_noted && may_call()) {
        withdraw(ptr);
    }
    cumem_free(ptr, is_noted);
}

/* --- called by Python ------------------------------------------------------------------------- */

/* Replaces a pair of callbacks by those of the arguments. */
static bool callbacks_set(PyObject *args, PyObject **malloc_place, PyObject **free_place) {
    PyObject *on_malloc, *on_free;
    if (!PyArg_ParseTuple(args, "OO", &on_malloc, &on_free)) {
        return false;
    }
    if (!PyCallable_Check(on_malloc) || !PyCallable_Check(on_free)) {
        PyErr_SetString(PyExc_TypeError, "Both arguments must be callables");
        return false;
    }
    PyObject *old_malloc = *malloc_place, *old_free = *free_place;
    Py_INCREF(on_malloc);
    Py_INCREF(on_free);
    *malloc_place = on_malloc;
    *free_place = on_free;
    Py_XDECREF(old_malloc);
    Py_XDECREF(old_free);
    return true;
}

static PyObject *init_module(PyObject *module, PyObject *args) {
    (void)module;
    if (!callbacks_set(args, &malloc_callback, &free_callback)) {
        return NULL;
    }
    atomic_store(&takes_notes, malloc_callback == noted_malloc && free_callback == noted_free);
    Py_RETURN_NONE;
}

/* (malloc_callback, free_callback): the callbacks that notes replace from the next init_module on.
 */
static PyObject *note_for(PyObject *module, PyObject *args) {
    (void)module;
    if (!callbacks_set(args, &noted_malloc, &noted_free)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *set_tags(PyObject *module, PyObject *args) {
    (void)module;
    int of_thread, of_process;
    if (!PyArg_ParseTuple(args, "ii", &of_thread, &of_process)) {
        return NULL;
    }
    thread_tag = of_thread;
    atomic_store(&process_tag, of_process);
    Py_RETURN_NONE;
}

static PyObject *take_notes(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    note_t *notes;
    size_t count;
    if (!cumem_take_notes(&notes, &count)) {
        return PyErr_NoMemory();
    }
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *one =
            Py_BuildValue("(iiinKK)", notes[i].is_gone, notes[i].tag, notes[i].device,
                          (Py_ssize_t)notes[i].size, (unsigned long long)(uintptr_t)notes[i].ptr,
                          (unsigned long long)(uintptr_t)notes[i].handle);
        if (one) {
            PyList_SetItem(list, (Py_ssize_t)i, one);
        } else {
            Py_CLEAR(list);
        }
    }
    free(notes);
    return list;
}

/* (device, size, address, handle): the address says all. */
static PyObject *move_one(PyObject *args, bool is_asleep) {
    if (!args || PyTuple_Size(args) != 4) {
        PyErr_SetString(PyExc_TypeError, "Expected a tuple of size 4");
        return NULL;
    }
    unsigned long long device, size, address, handle;
    if (!PyArg_ParseTuple(args, "KKKK", &device, &size, &address, &handle)) {
        return NULL;
    }
    void *ptr = (void *)(uintptr_t)address;
    failure_t error = {.text = ""};
    bool is_done;
    Py_BEGIN_ALLOW_THREADS;
    is_done = cumem_move(&ptr, 1, is_asleep, &error);
    Py_END_ALLOW_THREADS;
    if (!is_done) {
        PyErr_Format(PyExc_RuntimeError, "CUDA Error: %s", error.text);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *create_and_map(PyObject *module, PyObject *args) {
    (void)module;
    return move_one(args, false);
}

static PyObject *unmap_and_release(PyObject *module, PyObject *args) {
    (void)module;
    return move_one(args, true);
}

/* --- many at once, for umf.vllm --------------------------------------------------------------- */

/* (addresses of device memory), (addresses of host memory), (sizes): as many as the call has. */
typedef struct lists_t {
    void **ptrs, **hosts;
    size_t *sizes, count;
} lists_t;

static void lists_end(lists_t *lists) {
    PyMem_Free((void *)lists->ptrs);
    PyMem_Free((void *)lists->hosts);
    PyMem_Free(lists->sizes);
}

static bool lists_begin(lists_t *lists, size_t count) {
    *lists = (lists_t){.ptrs = PyMem_Calloc(count + 1, sizeof(void *)),
                       .hosts = PyMem_Calloc(count + 1, sizeof(void *)),
                       .sizes = PyMem_Calloc(count + 1, sizeof(size_t)),
                       .count = count};
    if (!lists->ptrs || !lists->hosts || !lists->sizes) {
        lists_end(lists);
        PyErr_NoMemory();
        return false;
    }
    return true;
}

/* A tuple of (address[, host, size]). */
static bool lists_of(lists_t *lists, PyObject *items) {
    Py_ssize_t count = PyTuple_Size(items);
    if (count < 0 || !lists_begin(lists, (size_t)count)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long ptr, host = 0, size = 0;
        if (!PyArg_ParseTuple(PyTuple_GetItem(items, i), "K|KK", &ptr, &host, &size)) {
            lists_end(lists);
            return false;
        }
        lists->ptrs[i] = (void *)(uintptr_t)ptr;
        lists->hosts[i] = (void *)(uintptr_t)host;
        lists->sizes[i] = (size_t)size;
    }
    return true;
}

static PyObject *raise_failure(const failure_t *error) {
    PyObject *errors = PyImport_ImportModule("umf._errors");
    PyObject *made =
        errors ? PyObject_CallMethod(errors, "make", "issssn", (int)error->result, "CUDA Error", "",
                                     error->text, error->text, (Py_ssize_t)error->missing)
               : NULL;
    Py_XDECREF(errors);
    if (made) {
        PyErr_SetObject((PyObject *)Py_TYPE(made), made);
        Py_DECREF(made);
    }
    return NULL;
}

typedef bool work_t(lists_t *lists, failure_t *error);

/* Does the work without the GIL; false and an exception if it fails. The lists are to be
 * ended only after a success. */
static bool lists_work(lists_t *lists, PyObject *items, work_t *work) {
    failure_t error = {.text = ""};
    bool is_done;
    if (!lists_of(lists, items)) {
        return false;
    }
    Py_BEGIN_ALLOW_THREADS;
    is_done = work(lists, &error);
    Py_END_ALLOW_THREADS;
    if (!is_done) {
        lists_end(lists);
        raise_failure(&error);
    }
    return is_done;
}

static PyObject *work_many(PyObject *items, work_t *work) {
    lists_t lists;
    if (!lists_work(&lists, items, work)) {
        return NULL;
    }
    lists_end(&lists);
    Py_RETURN_NONE;
}

static bool sleep_lists(lists_t *lists, failure_t *error) {
    return cumem_move(lists->ptrs, lists->count, true, error);
}

static PyObject *sleep_many(PyObject *module, PyObject *items) {
    (void)module;
    return work_many(items, sleep_lists);
}

static bool wake_lists(lists_t *lists, failure_t *error) {
    return cumem_move(lists->ptrs, lists->count, false, error);
}

static PyObject *wake_many(PyObject *module, PyObject *items) {
    (void)module;
    return work_many(items, wake_lists);
}

static bool load_lists(lists_t *lists, failure_t *error) {
    return cumem_load(lists->ptrs, lists->hosts, lists->sizes, lists->count, error);
}

static PyObject *load_many(PyObject *module, PyObject *items) {
    (void)module;
    return work_many(items, load_lists);
}

static bool save_lists(lists_t *lists, failure_t *error) {
    return cumem_save(lists->ptrs, lists->count, lists->hosts, error);
}

static PyObject *save_many(PyObject *module, PyObject *items) {
    (void)module;
    lists_t lists;
    if (!lists_work(&lists, items, save_lists)) {
        return NULL;
    }
    PyObject *hosts = PyTuple_New((Py_ssize_t)lists.count);
    for (size_t i = 0; hosts && i < lists.count; i++) {
        PyTuple_SetItem(hosts, (Py_ssize_t)i, PyLong_FromVoidPtr(lists.hosts[i]));
    }
    lists_end(&lists);
    return hosts;
}

static PyObject *drop_host(PyObject *module, PyObject *address) {
    (void)module;
    void *host = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    cumem_drop(host);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *retain(PyObject *module, PyObject *is_on) {
    (void)module;
    int truth = PyObject_IsTrue(is_on);
    if (truth < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    lease_retain(truth == 1);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *lease(PyObject *module, PyObject *args) {
    (void)module;
    double seconds = -1;
    if (!PyArg_ParseTuple(args, "|d:_lease", &seconds)) {
        return NULL;
    }
    if (PyTuple_Size(args) > 0) {
        if (!(seconds >= 0 && seconds <= LEASE_MAX_SECONDS)) {
            PyErr_Format(PyExc_ValueError, "backup_lease must be 0 to %d seconds, it is %S",
                         LEASE_MAX_SECONDS, PyTuple_GetItem(args, 0));
            return NULL;
        }
        Py_BEGIN_ALLOW_THREADS;
        lease_set_seconds(seconds);
        Py_END_ALLOW_THREADS;
    }
    return PyFloat_FromDouble(lease_seconds());
}

static PyObject *end(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    atomic_store(&takes_notes, false);
    atomic_store(&has_ended, true);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"init_module", init_module, METH_VARARGS,
     "init_module(malloc_callback, free_callback): the last call holds."},
    {"python_create_and_map", create_and_map, METH_VARARGS,
     "python_create_and_map(device, size, address, handle): gives the address memory."},
    {"python_unmap_and_release", unmap_and_release, METH_VARARGS,
     "python_unmap_and_release(device, size, address, handle): takes the memory, not the address."},
    {"_note_for", note_for, METH_VARARGS, "Callbacks that notes replace."},
    {"_tags", set_tags, METH_VARARGS,
     "Numbers of the tag of this thread, -1: none, and of others."},
    {"_notes", take_notes, METH_NOARGS,
     "[(is_gone, tag, device, size, address, handle)] since the last call."},
    {"_sleep", sleep_many, METH_O, "Takes the memory of all of the addresses, or of none."},
    {"_wake", wake_many, METH_O, "Gives all of the addresses memory, or none."},
    {"_save", save_many, METH_O, "Copies of contents in pinned memory: their addresses."},
    {"_load", load_many, METH_O, "Copies (address, host, size) back."},
    {"_drop", drop_host, METH_O, "Gives memory of _save back."},
    {"_retain", retain, METH_O, "Whether memory of _save stays pinned for the next one."},
    {"_lease", lease, METH_VARARGS, "Seconds for which it stays pinned otherwise; sets them."},
    {"_end", end, METH_NOARGS, "The interpreter is about to end."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "cumem_allocator",
                                    .m_doc = "Memory of vLLM's pools over libumf.",
                                    .m_size = -1,
                                    .m_methods = functions};

PyMODINIT_FUNC PyInit_cumem_allocator(void);
PyMODINIT_FUNC PyInit_cumem_allocator(void) {
    return PyModule_Create(&module);
}
