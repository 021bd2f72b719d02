/* Memory of other machines. umf/remote.py has the objects; a context, a published and an opened
 * range are numbers here, which the library checks. */
#include "core.h"
#include "view.h"

#include <umf/remote.h>

/* remote_probe() -> (is here, text) */
static PyObject *remote_probe(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    char text[256] = "this build of the library is without remote memory";
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfRemoteProbe(text, sizeof(text));
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("Ns", PyBool_FromLong(result == UMF_RESULT_SUCCESS), text);
}

/* remote_create(devices, key file, deadline in ms, bytes in flight, also UCX on this machine?,
 * requests) -> context */
static PyObject *remote_create(PyObject *module, PyObject *args) {
    (void)module;
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    umf_remote_handle_t remote = NULL;
    uint64_t limit, requests;
    int is_network;
    if (!PyArg_ParseTuple(args, "zzO&O&pO&:remote_create", &params.devices, &params.key_file,
                          umf_py_u64, &params.deadline_ms, umf_py_u64, &limit, &is_network,
                          umf_py_u64, &requests)) {
        return NULL;
    }
    params.limit_in_flight = (size_t)limit;
    params.limit_requests = (size_t)requests;
    params.flags = is_network ? UMF_REMOTE_NETWORK_ONLY : 0;
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = umfRemoteCreate(&params, &remote);
    Py_END_ALLOW_THREADS;
    return umf_py_number_or_last(result, remote, "a context of remote memory cannot be made");
}

UMF_PY_CALL(remote_destroy, umfRemoteDestroy, "the context cannot be closed")
UMF_PY_CALL(remote_withdraw, umfRemoteWithdraw, "the range cannot be withdrawn")
UMF_PY_CALL(remote_close, umfRemoteClose, "the range cannot be closed")

/* remote_publish(context, buffer, rights) -> published range */
static PyObject *remote_publish(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number, *object;
    unsigned rights;
    void *remote;
    if (!PyArg_ParseTuple(args, "OO!I:remote_publish", &number, umf_py_buffer_type, &object,
                          &rights) ||
        !umf_py_address(number, &remote)) {
        return NULL;
    }
    umf_py_buffer_t *buffer = (umf_py_buffer_t *)object;
    umf_remote_export_handle_t published = NULL;
    if (!umf_py_buffer_use(buffer)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfRemotePublish(remote, buffer->ptr, buffer->size, rights, &published);
    Py_END_ALLOW_THREADS;
    umf_py_buffer_unuse(buffer);
    return umf_py_number_or_last(result, published, "the buffer cannot be published");
}

/* remote_handle(published range) -> bytes */
static PyObject *remote_handle(PyObject *module, PyObject *number) {
    (void)module;
    void *published;
    char bytes[UMF_REMOTE_HANDLE_MAX];
    size_t size = sizeof(bytes);
    if (!umf_py_address(number, &published)) {
        return NULL;
    }
    umf_result_t result = umfRemoteGetHandle(published, bytes, &size);
    return result == UMF_RESULT_SUCCESS ? PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size)
                                        : umf_py_raise_last(result, "there is no handle");
}

/* An exception of a handler of a signal ends the wait. */
static int is_interrupted(void *arg) {
    PyThreadState **thread = arg;
    PyEval_RestoreThread(*thread);
    int interrupted = PyErr_CheckSignals();
    *thread = PyEval_SaveThread();
    return interrupted;
}

/* remote_open(context, bytes) -> (opened range, size) */
static PyObject *remote_open(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number;
    const char *bytes;
    Py_ssize_t length;
    void *remote;
    if (!PyArg_ParseTuple(args, "Oy#:remote_open", &number, &bytes, &length) ||
        !umf_py_address(number, &remote)) {
        return NULL;
    }
    umf_remote_memory_handle_t memory = NULL;
    size_t size = 0;
    umfLastErrorClear();
    PyThreadState *thread = PyEval_SaveThread();
    umf_result_t result =
        umfRemoteOpenUntil(remote, bytes, (size_t)length, is_interrupted, &thread, &memory);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfRemoteGetSize(memory, &size);
    }
    PyEval_RestoreThread(thread);
    if (result == UMF_RESULT_SUCCESS) {
        return Py_BuildValue("Nn", umf_py_number(memory), (Py_ssize_t)size);
    }
    return PyErr_Occurred()
               ? NULL
               : umf_py_raise_last(result, "the range of another process cannot be opened");
}

/* --- transfers: capsules, which hold the view of the buffer, and use their range ---------------
 */

#define TRANSFER "umf.remote.transfer"

enum { PATIENCE_MS = 100 };

typedef struct transfer_t {
    umf_remote_op_handle_t op; /* NULL: it has ended */
    bool is_waited;            /* by a thread, which ends it */
    bool is_canceled;
    bool is_left;     /* there is no capsule */
    unsigned process; /* that began it (umf_py_process): a child of fork has it not */
    PyObject *uses;   /* of the range */
    view_t view;
    umf_result_t result; /* of one that has ended */
    umf_py_failure_t failure;
    struct transfer_t *next, **link; /* of those under way */
} transfer_t;

static transfer_t *under_way;

static void transfer_add(transfer_t *transfer) {
    transfer->next = under_way;
    transfer->link = &under_way;
    if (under_way) {
        under_way->link = &transfer->next;
    }
    under_way = transfer;
}

/* Notes the end of the operation, if it is one; false: it goes on. */
static bool outcome_take(transfer_t *transfer, umf_result_t result) {
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return false;
    }
    transfer->result = result;
    umf_py_why_take(&transfer->failure); /* it is of this thread */
    return true;
}

static PyObject *outcome_of(const transfer_t *transfer) {
    return transfer->result == UMF_RESULT_SUCCESS
               ? PyBool_FromLong(1)
               : umf_py_raise_as(transfer->result, "the transfer failed", transfer->failure.text,
                                 transfer->failure.reason, 0);
}

/* Of one whose operation has ended. May run code of Python. */
static void transfer_end(transfer_t *transfer) {
    PyObject *uses = transfer->uses;
    view_t view = transfer->view;
    if (transfer->process == umf_py_process()) {
        umf_py_number_unuse(uses);
    }
    *transfer->link = transfer->next;
    if (transfer->next) {
        transfer->next->link = transfer->link;
    }
    transfer->op = NULL;
    if (transfer->is_left) {
        PyMem_Free(transfer);
    }
    PyBuffer_Release(&view);
    Py_DECREF(uses);
}

/* Keeps the GIL if it does not wait. */
static bool is_over(transfer_t *transfer, uint64_t patience_ms) {
    umfLastErrorClear();
    umfRemoteCancel(transfer->op);
    umf_result_t result = umfRemoteWait(transfer->op, 0);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED && patience_ms) {
        transfer->is_waited = true;
        Py_BEGIN_ALLOW_THREADS;
        result = umfRemoteWait(transfer->op, patience_ms);
        Py_END_ALLOW_THREADS;
        transfer->is_waited = false;
    }
    return outcome_take(transfer, result);
}

/* Asks for its end; true if it has ended. A thread that waits for it asks by itself, since its wait
 * may end the operation at any time. */
static bool transfer_cancel(transfer_t *transfer, uint64_t patience_ms) {
    bool is_of_process = transfer->process == umf_py_process();
    transfer->is_canceled = true;
    if (is_of_process && transfer->is_waited) {
        return false;
    }
    if (is_of_process && !is_over(transfer, patience_ms)) {
        return false;
    }
    transfer_end(transfer);
    return true;
}

void umf_py_transfers_cancel(void *uses) {
    for (transfer_t *each = under_way, *next; each; each = next) {
        bool is_meant = each->is_left || umf_py_number_is_of(each->uses, uses);
        next = is_meant && transfer_cancel(each, 0) ? under_way : each->next;
    }
}

bool umf_py_transfers_any(void *uses) {
    for (const transfer_t *each = under_way; each; each = each->next) {
        if (umf_py_number_is_of(each->uses, uses)) {
            return true;
        }
    }
    return false;
}

/* What cannot end soon goes on without a capsule; a later call of a range ends it. */
static void transfer_destroy(PyObject *capsule) {
    transfer_t *transfer = PyCapsule_GetPointer(capsule, TRANSFER);
    if (!transfer->op || transfer_cancel(transfer, PATIENCE_MS)) {
        PyMem_Free(transfer);
    } else {
        transfer->is_left = true;
    }
}

/* remote_begin(Uses of an opened range, is it a put?, offset, object with a buffer) -> transfer */
static PyObject *remote_begin(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *uses, *object;
    int is_put;
    Py_ssize_t offset;
    void *memory;
    if (!PyArg_ParseTuple(args, "OpnO:remote_begin", &uses, &is_put, &offset, &object)) {
        return NULL;
    }
    umf_py_transfers_cancel(NULL);
    transfer_t *made = PyMem_Calloc(1, sizeof(*made));
    PyObject *capsule = made ? PyCapsule_New(made, TRANSFER, transfer_destroy) : NULL;
    if (!capsule) {
        PyMem_Free(made);
        return PyErr_NoMemory();
    }
    PyObject *number = NULL;
    if (PyObject_GetBuffer(object, &made->view, is_put ? 0 : VIEW_WRITABLE) < 0 ||
        !(number = umf_py_number_use(uses)) || !umf_py_address(number, &memory)) {
        goto failed;
    }
    size_t size = (size_t)made->view.len;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = is_put ? umfRemotePut(memory, (size_t)offset, made->view.buf, size, &made->op)
                    : umfRemoteGet(memory, (size_t)offset, made->view.buf, size, &made->op);
    Py_END_ALLOW_THREADS;
    if (result == UMF_RESULT_SUCCESS) {
        Py_INCREF(uses);
        made->uses = uses;
        made->process = umf_py_process();
        transfer_add(made);
        return capsule;
    }
    umf_py_raise_last(result, "the transfer cannot begin");
failed:
    made->op = NULL;
    if (number) {
        umf_py_number_unuse(uses);
    }
    if (made->view.obj) {
        PyBuffer_Release(&made->view);
    }
    Py_DECREF(capsule);
    return NULL;
}

/* remote_wait(transfer, ms) -> whether it has ended, well; another end is raised, each time */
static PyObject *remote_wait(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule;
    uint64_t timeout;
    if (!PyArg_ParseTuple(args, "OO&:remote_wait", &capsule, umf_py_u64, &timeout)) {
        return NULL;
    }
    transfer_t *transfer = PyCapsule_GetPointer(capsule, TRANSFER);
    if (!transfer) {
        return NULL;
    }
    if (transfer->process != umf_py_process() || transfer->is_waited) {
        PyErr_SetString(PyExc_ValueError, transfer->process != umf_py_process()
                                              ? "the transfer is that of the parent process"
                                              : "another thread waits for the transfer");
        return NULL;
    }
    if (!transfer->op) {
        return outcome_of(transfer);
    }
    transfer->is_waited = true;
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = umfRemoteWait(transfer->op, timeout);
    Py_END_ALLOW_THREADS;
    transfer->is_waited = false;
    if (!outcome_take(transfer, result)) {
        if (transfer->is_canceled) {
            umfRemoteCancel(transfer->op);
        }
        Py_RETURN_FALSE;
    }
    transfer_end(transfer);
    return outcome_of(transfer);
}

PyMethodDef umf_py_remote_functions[] = {
    {"remote_probe", remote_probe, METH_NOARGS, "remote_probe()\n--\n\n"},
    {"remote_create", remote_create, METH_VARARGS,
     "remote_create(devices, key_file, deadline_ms, limit, network_only, requests, /)\n--\n\n"},
    {"remote_destroy", remote_destroy, METH_O, "remote_destroy(remote, /)\n--\n\n"},
    {"remote_publish", remote_publish, METH_VARARGS,
     "remote_publish(remote, buffer, rights, /)\n--\n\n"},
    {"remote_handle", remote_handle, METH_O, "remote_handle(published, /)\n--\n\n"},
    {"remote_withdraw", remote_withdraw, METH_O, "remote_withdraw(published, /)\n--\n\n"},
    {"remote_open", remote_open, METH_VARARGS, "remote_open(remote, handle, /)\n--\n\n"},
    {"remote_close", remote_close, METH_O, "remote_close(memory, /)\n--\n\n"},
    {"remote_begin", remote_begin, METH_VARARGS,
     "remote_begin(uses, is_put, offset, data, /)\n--\n\n"},
    {"remote_wait", remote_wait, METH_VARARGS, "remote_wait(transfer, timeout_ms, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
