/* Queues of devices: memory that is allocated and freed while work is queued (umf/queue.h). */
#include "work.h"

#include <umf/capture.h>
#include <umf/queue.h>

/* Takes the reference to `value`, the address of a queue. False without an exception if it is NULL
 * or no address. */
static bool queue_of(PyObject *value, void **queue) {
    bool is_address = value && umf_py_address(value, queue);
    Py_XDECREF(value);
    if (!is_address) {
        PyErr_Clear();
    }
    return is_address;
}

/* __cuda_stream__() -> (version, address) */
static bool queue_protocol(PyObject *stream, void **queue) {
    PyObject *about = PyObject_CallMethod(stream, "__cuda_stream__", NULL);
    PyObject *value = about ? PySequence_GetItem(about, 1) : NULL;
    Py_XDECREF(about);
    return queue_of(value, queue);
}

bool umf_py_queue(PyObject *stream, void **queue) {
    if (PyIndex_Check(stream)) {
        return umf_py_address(stream, queue);
    }
    if (!queue_of(PyObject_GetAttrString(stream, "cuda_stream"), queue) &&
        !queue_protocol(stream, queue)) {
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
    if (!umf_py_queue(stream, &queue)) {
        return NULL;
    }
    if (self->origin != ORIGIN_POOL) {
        PyErr_SetString(PyExc_ValueError,
                        "only memory of a pool of this process waits for streams");
        return NULL;
    }
    if (!umf_py_buffer_use(self)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfUseOn(self->ptr, queue);
    Py_END_ALLOW_THREADS;
    umf_py_buffer_unuse(self);
    if (result == UMF_RESULT_SUCCESS && !self->has_queue) {
        self->has_queue = true; /* so that the free waits; the host is in order with itself */
        self->queue = queue;
    }
    return umf_py_none_or_raise(result, "the stream cannot use the memory");
}

/* --- of a pool -------------------------------------------------------------------------------- */

/* A wait with a limit looks again and again, each time as a use of its own: a handler of a signal
 * may close the pool in between. */
typedef struct pending_t {
    umf_py_pool_t *pool;
    umf_result_t result;
    size_t bytes;
} pending_t;

static bool pending_is_over(void *arg) {
    pending_t *pending = arg;
    umf_memory_pool_handle_t pool = umf_py_pool_use(pending->pool);
    if (!pool) {
        return true;
    }
    Py_BEGIN_ALLOW_THREADS;
    pending->result = umfPoolWaitPending(pool, 0, &pending->bytes);
    Py_END_ALLOW_THREADS;
    umf_py_pool_unuse(pending->pool);
    return pending->result != UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

static umf_result_t pending_run(umf_py_work_t *work) {
    return umfPoolWaitPending(work->handles[0], UINT64_MAX, &work->bytes);
}

/* One without is the driver's, in a thread: captured work never passes, and only the driver's wait
 * ends beside it. */
static bool pending_without_limit(pending_t *pending) {
    PyObject *pools = PyTuple_New(1);
    if (!pools) {
        return false;
    }
    Py_INCREF((PyObject *)pending->pool);
    PyTuple_SetItem(pools, 0, (PyObject *)pending->pool);
    umf_py_work_t *work = umf_py_work_new(pools);
    Py_DECREF(pools);
    if (!work) {
        return false;
    }
    work->run = pending_run;
    work->handles[0] = umf_py_pool_open(pending->pool);
    if (!work->handles[0] || !umf_py_work_wait_left(work) ||
        !(work->handles[0] = umf_py_pool_open(pending->pool))) {
        umf_py_work_leave(work);
        return false;
    }
    if (!umf_py_work_make(work, false)) {
        return false;
    }
    pending->result = work->result;
    pending->bytes = work->bytes;
    umf_py_work_leave(work);
    return true;
}

PyObject *umf_py_pool_wait_pending(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:wait_pending", names, &timeout)) {
        return NULL;
    }
    bool has_limit = timeout != Py_None;
    double seconds = has_limit ? umf_py_seconds(timeout) : 0;
    pending_t pending = {.pool = (umf_py_pool_t *)object};
    if (PyErr_Occurred() || umf_py_wait(pending_is_over, &pending, seconds) < 0 ||
        PyErr_Occurred()) {
        return NULL;
    }
    if (!has_limit && pending.result == UMF_RESULT_ERROR_OUT_OF_RESOURCES &&
        !pending_without_limit(&pending)) {
        return NULL;
    }
    return pending.result == UMF_RESULT_SUCCESS ||
                   pending.result == UMF_RESULT_ERROR_OUT_OF_RESOURCES
               ? PyLong_FromSize_t(pending.bytes)
               : umf_py_raise(pending.result, "queued work cannot be waited for", NULL, 0);
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
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = umfQueueEnds(queue);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_raise(result, "the end of a stream cannot be reported");
}

/* capture_changes(stream, begins): the start waits for waits of the library that are in flight. */
static PyObject *capture_changes(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *stream;
    int begins;
    void *queue;
    if (!PyArg_ParseTuple(args, "Op", &stream, &begins) || !umf_py_queue(stream, &queue)) {
        return NULL;
    }
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = begins ? umfCaptureBegins(queue) : umfCaptureEnds(queue);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_raise(result, "the capture of a stream cannot be announced");
}

PyMethodDef umf_py_queue_functions[] = {{"queue_ends", queue_ends, METH_O,
                                         "queue_ends(stream, /)\n--\n\nAnnounces the end of a "
                                         "stream, before it is destroyed.\n\nAll pools "
                                         "forget it; memory freed on it "
                                         "returns to its pool when its work has completed."},
                                        {"capture_changes", capture_changes, METH_VARARGS,
                                         "capture_changes(stream, begins, /)\n--\n\n"},
                                        {NULL, NULL, 0, NULL}};
