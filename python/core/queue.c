/* Queues of devices: memory that is allocated and freed while work is queued (umf/queue.h). */
#include "core.h"

#include <umf/queue.h>

/* The number that `name` of a stream of another library gives; false without an exception if there
 * is none. */
static bool queue_attribute(PyObject *stream, const char *name, void **queue) {
    PyObject *value = PyObject_GetAttrString(stream, name);
    if (!value) {
        PyErr_Clear();
        return false;
    }
    *queue = PyLong_AsVoidPtr(value);
    Py_DECREF(value);
    return true;
}

/* __cuda_stream__() -> (version, address) */
static bool queue_protocol(PyObject *stream, void **queue) {
    PyObject *about = PyObject_CallMethod(stream, "__cuda_stream__", NULL);
    PyObject *value = about ? PySequence_GetItem(about, 1) : NULL;
    Py_XDECREF(about);
    if (!value) {
        PyErr_Clear();
        return false;
    }
    *queue = PyLong_AsVoidPtr(value);
    Py_DECREF(value);
    return true;
}

bool umf_py_queue(PyObject *stream, void **queue) {
    if (PyLong_Check(stream)) {
        *queue = PyLong_AsVoidPtr(stream);
    } else if (!queue_attribute(stream, "cuda_stream", queue) && !queue_protocol(stream, queue)) {
        PyErr_Format(PyExc_TypeError,
                     "stream must be the address of a queue, or have cuda_stream or "
                     "__cuda_stream__, not %R",
                     stream);
        return false;
    }
    return !PyErr_Occurred();
}

bool umf_py_queue_or_none(PyObject *stream, bool *has_queue, void **queue) {
    *has_queue = stream && stream != Py_None;
    return !*has_queue || umf_py_queue(stream, queue);
}

/* --- of a buffer ------------------------------------------------------------------------------ */

PyObject *umf_py_buffer_use_on(PyObject *object, PyObject *stream) {
    umf_py_buffer_t *self = (umf_py_buffer_t *)object;
    void *queue;
    if (!umf_py_buffer_open(self) || !umf_py_queue(stream, &queue)) {
        return NULL;
    }
    if (self->origin != ORIGIN_POOL) {
        PyErr_SetString(PyExc_ValueError,
                        "only memory of a pool of this process waits for streams");
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfUseOn(self->ptr, queue);
    Py_END_ALLOW_THREADS;
    if (result == UMF_RESULT_SUCCESS && !self->has_queue) {
        self->has_queue = true; /* so that the free waits; the host is in order with itself */
        self->queue = queue;
    }
    return umf_py_none_or_raise(result, "the stream cannot use the memory");
}

/* --- of a pool -------------------------------------------------------------------------------- */

PyObject *umf_py_pool_wait_pending(PyObject *object, PyObject *args) {
    double seconds = -1;
    umf_memory_pool_handle_t pool = umf_py_pool_open((umf_py_pool_t *)object);
    if (!pool || !PyArg_ParseTuple(args, "|d:wait_pending", &seconds)) {
        return NULL;
    }
    bool has_limit = PyTuple_Size(args) == 1;
    if (has_limit && !(seconds >= 0 && seconds < 1e9)) {
        PyErr_SetString(PyExc_ValueError, "timeout must be from 0 to 1e9 seconds");
        return NULL;
    }
    size_t bytes = 0;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfPoolWaitPending(pool, has_limit ? (uint64_t)(seconds * 1e9) : UINT64_MAX, &bytes);
    Py_END_ALLOW_THREADS;
    return result == UMF_RESULT_SUCCESS || result == UMF_RESULT_ERROR_OUT_OF_RESOURCES
               ? PyLong_FromSize_t(bytes)
               : umf_py_raise(result, "what is queued cannot be waited for", NULL, 0);
}

/* --- of the module ---------------------------------------------------------------------------- */

/* queue_ends(stream) */
static PyObject *queue_ends(PyObject *module, PyObject *stream) {
    (void)module;
    void *queue;
    if (!umf_py_queue(stream, &queue)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfQueueEnds(queue);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_raise(result, "the end of a stream cannot be told");
}

PyMethodDef umf_py_queue_functions[] = {
    {"queue_ends", queue_ends, METH_O,
     "Tells that a stream is about to be destroyed.\n\nAll pools forget it; what was freed on it "
     "goes back to its pool when its work has passed."},
    {NULL, NULL, 0, NULL}};
