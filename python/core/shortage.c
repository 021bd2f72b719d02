/* Callbacks of Python before a request fails for lack of memory, over those of umf/reclaim.h. */
#include "core.h"

static PyObject *callback; /* (pool, bytes) -> whether memory was released; NULL: none is set */
static _Thread_local umf_py_request_t *innermost;

void umf_py_request_begin(umf_py_request_t *request, umf_py_pool_t *pool, size_t size) {
    *request = (umf_py_request_t){.pool = pool, .size = size, .outer = innermost};
    innermost = request;
    request->thread = PyEval_SaveThread();
}

bool umf_py_request_end(umf_py_request_t *request) {
    PyEval_RestoreThread(request->thread);
    innermost = request->outer;
    if (request->error) {
        PyErr_Restore(request->error, request->value, request->trace);
        return false;
    }
    return true;
}

bool umf_py_request_allows(const umf_py_pool_t *pool, const char *what) {
    for (const umf_py_request_t *each = innermost; each; each = each->outer) {
        if (each->pool == pool) {
            PyErr_Format(PyExc_BufferError,
                         "the pool cannot be %s: this is a callback of a request to it", what);
            return false;
        }
    }
    return true;
}

/* Other code may hold locks for which a thread with the GIL waits, so its requests do not wait for
 * the GIL here. Those of `allocate` had it and gave it up. */
static bool shortage(umf_memory_pool_handle_t pool, size_t bytes, unsigned attempt, void *arg) {
    umf_py_request_t *request = innermost;
    (void)pool, (void)attempt, (void)arg;
    if (!request || !request->thread || request->error) {
        return false;
    }
    PyEval_RestoreThread(request->thread);
    request->thread = NULL;
    PyObject *answer = PyObject_CallFunction(callback, "On", (PyObject *)request->pool,
                                             (Py_ssize_t)(bytes ? bytes : request->size));
    bool is_given = answer && PyObject_IsTrue(answer) == 1;
    Py_XDECREF(answer);
    PyErr_Fetch(&request->error, &request->value, &request->trace);
    request->thread = PyEval_SaveThread();
    return is_given;
}

/* shortage_ask(function): once. */
static PyObject *shortage_ask(PyObject *module, PyObject *function) {
    (void)module;
    if (!callback) {
        umf_result_t result = umfAddReclaimCallback(shortage, NULL);
        if (result != UMF_RESULT_SUCCESS) {
            return umf_py_raise(result, "a callback cannot be added", NULL, 0);
        }
        Py_INCREF(function);
        callback = function;
    }
    Py_RETURN_NONE;
}

PyMethodDef umf_py_shortage_functions[] = {
    {"shortage_ask", shortage_ask, METH_O,
     "shortage_ask(function, /)\n--\n\nIs called before a request of allocate fails."},
    {NULL, NULL, 0, NULL}};
