/* Memory of other processes. */
#include "core.h"

#include <umf/ipc.h>
#include <umf/ipc_ext.h>

static const umf_py_why_t no_share[] = {
    {UMF_RESULT_ERROR_INVALID_ARGUMENT, "it is of no pool, or of a provider that does not share",
     "os:visibility=shared and cuda_vmm:share=fd make providers that share"},
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES, "its memory is not there",
     "a suspended pool shares nothing, resume it before"},
    {UMF_RESULT_SUCCESS, NULL, NULL}};
static const umf_py_why_t no_open[] = {
    {UMF_RESULT_ERROR_INVALID_ARGUMENT,
     "the handle is damaged, its memory is gone or was suspended since, or the provider is of "
     "another kind",
     NULL},
    {UMF_RESULT_SUCCESS, NULL, NULL}};

/* Calls of two threads may get handles at once: the later one is kept. */
static void handle_keep(umf_py_buffer_t *buffer, umf_ipc_handle_t made, size_t size) {
    umf_ipc_handle_t before = buffer->ipc;
    buffer->ipc = made;
    buffer->ipc_size = size;
    if (before) {
        umfPutIPCHandle(before);
    }
}

/* ipc_handle(buffer) -> bytes. The handle is out until the buffer is freed. */
static PyObject *ipc_handle(PyObject *module, PyObject *object) {
    (void)module;
    umf_py_buffer_t *buffer = umf_py_check(object, umf_py_buffer_type, "a umf.Buffer");
    if (!buffer || !umf_py_buffer_open(buffer)) {
        return NULL;
    }
    if (buffer->origin != ORIGIN_POOL) {
        PyErr_SetString(PyExc_ValueError,
                        "memory that came from elsewhere cannot be shared further");
        return NULL;
    }
    /* Asked for at each call: after a suspend an older one is stale. */
    umf_ipc_handle_t made = NULL;
    size_t size;
    umf_result_t result;
    umf_py_buffer_use(buffer);
    Py_BEGIN_ALLOW_THREADS;
    result = umfGetIPCHandle(buffer->ptr, &made, &size);
    Py_END_ALLOW_THREADS;
    umf_py_buffer_unuse(buffer);
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_why(result, "memory cannot be shared", no_share);
    }
    handle_keep(buffer, made, size);
    return PyBytes_FromStringAndSize((const char *)made, (Py_ssize_t)size);
}

/* ipc_get(address) -> (bytes, what ipc_put takes). The handle is out until then. */
static PyObject *ipc_get(PyObject *module, PyObject *address) {
    (void)module;
    void *ptr;
    if (!umf_py_address(address, &ptr)) {
        return NULL;
    }
    umf_ipc_handle_t made;
    size_t size;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfGetIPCHandle(ptr, &made, &size);
    Py_END_ALLOW_THREADS;
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_why(result, "memory cannot be shared", no_share);
    }
    return Py_BuildValue("y#K", (const char *)made, (Py_ssize_t)size,
                         (unsigned long long)(uintptr_t)made);
}

static PyObject *ipc_put(PyObject *module, PyObject *handle) {
    (void)module;
    void *made;
    return umf_py_address(handle, &made)
               ? umf_py_none_or_raise(umfPutIPCHandle(made), "a handle is stale")
               : NULL;
}

/* ipc_open(class of the buffer, pool, bytes of the handle, size) -> buffer */
static PyObject *ipc_open(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *type, *pool;
    const char *bytes;
    Py_ssize_t length, size;
    if (!PyArg_ParseTuple(args, "OO!y#n:ipc_open", &type, umf_py_pool_type, &pool, &bytes, &length,
                          &size)) {
        return NULL;
    }
    if (!umf_py_is_buffer_type(type)) {
        PyErr_SetString(PyExc_TypeError, "the class must be a subclass of Buffer");
        return NULL;
    }
    umf_py_pool_t *opener = (umf_py_pool_t *)pool;
    umf_memory_pool_handle_t handle = umf_py_pool_use(opener);
    umf_ipc_handler_handle_t handler;
    if (!handle) {
        return NULL;
    }
    void *ptr = NULL;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfPoolGetIPCHandler(handle, &handler);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfOpenIPCHandleSized(handler, bytes, (size_t)length, &ptr);
    }
    Py_END_ALLOW_THREADS;
    umf_py_pool_unuse(opener);
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_why(result, "memory of another process cannot be opened", no_open);
    }
    PyObject *made =
        (PyObject *)umf_py_buffer_new((PyTypeObject *)type, opener, ptr, (size_t)size, ORIGIN_IPC);
    if (!made && opener->handle) {
        umfCloseIPCHandle(ptr);
    }
    return made;
}

PyMethodDef umf_py_ipc_functions[] = {
    {"ipc_handle", ipc_handle, METH_O,
     "ipc_handle(buffer, /)\n--\n\nThe bytes that another process opens."},
    {"ipc_get", ipc_get, METH_O,
     "ipc_get(address, /)\n--\n\nThe bytes that another process opens, of an address."},
    {"ipc_put", ipc_put, METH_O, "ipc_put(handle, /)\n--\n\nEnds the use of a handle of ipc_get."},
    {"ipc_open", ipc_open, METH_VARARGS,
     "ipc_open(kind, pool, handle, size, /)\n--\n\nMemory of another process."},
    {NULL, NULL, 0, NULL}};
