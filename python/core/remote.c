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

/* remote_create(devices, key file, deadline in ms, bytes in flight) -> context */
static PyObject *remote_create(PyObject *module, PyObject *args) {
    (void)module;
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    umf_remote_handle_t remote = NULL;
    unsigned long long deadline;
    Py_ssize_t limit;
    if (!PyArg_ParseTuple(args, "zzKn:remote_create", &params.devices, &params.key_file, &deadline,
                          &limit)) {
        return NULL;
    }
    params.deadline_ms = deadline;
    params.limit_in_flight = (size_t)limit;
    umf_result_t result;
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
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfRemoteOpen(remote, bytes, (size_t)length, &memory);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfRemoteGetSize(memory, &size);
    }
    Py_END_ALLOW_THREADS;
    return result == UMF_RESULT_SUCCESS
               ? Py_BuildValue("Nn", umf_py_number(memory), (Py_ssize_t)size)
               : umf_py_raise_last(result, "the range of another process cannot be opened");
}

/* --- transfers: capsules, which hold the view of the buffer ------------------------------------
 */

#define TRANSFER "umf.remote.transfer"

typedef struct transfer_t {
    umf_remote_op_handle_t op; /* NULL: it has ended */
    bool is_waited;            /* by a thread, which ends it */
    unsigned process;          /* of that thread (umf_py_process): a child of fork has it not */
    view_t view;
} transfer_t;

static bool is_waited(const transfer_t *transfer) {
    return transfer->is_waited && transfer->process == umf_py_process();
}

static void set_waited(transfer_t *transfer, bool is) {
    transfer->is_waited = is;
    transfer->process = umf_py_process();
}

static void transfer_release(transfer_t *transfer) {
    if (transfer->view.obj) {
        PyBuffer_Release(&transfer->view);
        transfer->view = (view_t){0};
    }
}

/* The memory must not go before the transfer has ended, which its deadline bounds. */
static void transfer_cancel(transfer_t *transfer) {
    umf_remote_op_handle_t op = transfer->op;
    if (op) {
        set_waited(transfer, true);
        Py_BEGIN_ALLOW_THREADS;
        umfRemoteCancel(op);
        umfRemoteWait(op, UINT64_MAX);
        Py_END_ALLOW_THREADS;
        transfer->op = NULL;
        set_waited(transfer, false);
    }
    transfer_release(transfer);
}

static void transfer_destroy(PyObject *capsule) {
    transfer_t *transfer = PyCapsule_GetPointer(capsule, TRANSFER);
    transfer_cancel(transfer);
    PyMem_Free(transfer);
}

/* remote_begin(opened range, is it a put?, offset, object with a buffer) -> transfer */
static PyObject *remote_begin(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number, *object;
    int is_put;
    Py_ssize_t offset;
    void *memory;
    if (!PyArg_ParseTuple(args, "OpnO:remote_begin", &number, &is_put, &offset, &object) ||
        !umf_py_address(number, &memory)) {
        return NULL;
    }
    transfer_t *made = PyMem_Calloc(1, sizeof(*made));
    if (!made) {
        return PyErr_NoMemory();
    }
    if (PyObject_GetBuffer(object, &made->view, is_put ? 0 : VIEW_WRITABLE) < 0) {
        PyMem_Free(made);
        return NULL;
    }
    size_t size = (size_t)made->view.len;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = is_put ? umfRemotePut(memory, (size_t)offset, made->view.buf, size, &made->op)
                    : umfRemoteGet(memory, (size_t)offset, made->view.buf, size, &made->op);
    Py_END_ALLOW_THREADS;
    PyObject *capsule = NULL;
    if (result != UMF_RESULT_SUCCESS) {
        umf_py_raise_last(result, "the transfer cannot begin");
    } else {
        capsule = PyCapsule_New(made, TRANSFER, transfer_destroy);
    }
    if (!capsule) {
        transfer_cancel(made);
        PyMem_Free(made);
    }
    return capsule;
}

/* remote_wait(transfer, ms) -> whether it has ended, well; another end is raised */
static PyObject *remote_wait(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule;
    unsigned long long timeout;
    if (!PyArg_ParseTuple(args, "OK:remote_wait", &capsule, &timeout)) {
        return NULL;
    }
    transfer_t *transfer = PyCapsule_GetPointer(capsule, TRANSFER);
    if (!transfer) {
        return NULL;
    }
    umf_remote_op_handle_t op = transfer->op;
    if (!op || is_waited(transfer)) {
        PyErr_SetString(PyExc_ValueError, "the transfer has ended, or another thread waits for it");
        return NULL;
    }
    set_waited(transfer, true);
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfRemoteWait(op, timeout);
    Py_END_ALLOW_THREADS;
    set_waited(transfer, false);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        Py_RETURN_FALSE;
    }
    transfer->op = NULL;
    transfer_release(transfer);
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_last(result, "the transfer failed");
    }
    Py_RETURN_TRUE;
}

/* remote_cancel(transfer) -> whether it has ended; False if another thread waits for it */
static PyObject *remote_cancel(PyObject *module, PyObject *capsule) {
    (void)module;
    transfer_t *transfer = PyCapsule_GetPointer(capsule, TRANSFER);
    if (!transfer) {
        return NULL;
    }
    if (is_waited(transfer)) {
        Py_RETURN_FALSE;
    }
    transfer_cancel(transfer);
    Py_RETURN_TRUE;
}

PyMethodDef umf_py_remote_functions[] = {
    {"remote_probe", remote_probe, METH_NOARGS, "remote_probe()\n--\n\n"},
    {"remote_create", remote_create, METH_VARARGS,
     "remote_create(devices, key_file, deadline_ms, limit, /)\n--\n\n"},
    {"remote_destroy", remote_destroy, METH_O, "remote_destroy(remote, /)\n--\n\n"},
    {"remote_publish", remote_publish, METH_VARARGS,
     "remote_publish(remote, buffer, rights, /)\n--\n\n"},
    {"remote_handle", remote_handle, METH_O, "remote_handle(published, /)\n--\n\n"},
    {"remote_withdraw", remote_withdraw, METH_O, "remote_withdraw(published, /)\n--\n\n"},
    {"remote_open", remote_open, METH_VARARGS, "remote_open(remote, handle, /)\n--\n\n"},
    {"remote_close", remote_close, METH_O, "remote_close(memory, /)\n--\n\n"},
    {"remote_begin", remote_begin, METH_VARARGS,
     "remote_begin(memory, is_put, offset, data, /)\n--\n\n"},
    {"remote_wait", remote_wait, METH_VARARGS, "remote_wait(transfer, timeout_ms, /)\n--\n\n"},
    {"remote_cancel", remote_cancel, METH_O, "remote_cancel(transfer, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
