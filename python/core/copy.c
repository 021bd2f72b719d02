/* Copies, fills and prefetches, of addresses and of objects with the buffer protocol. */
#include "core.h"
#include "view.h"

#include <umf/copy.h>
#include <umf/cuda_device.h>

/* One operand of a copy: an address, a Buffer, or an object whose view is held for as long as the
 * copy takes. */
typedef struct operand_t {
    PyObject *object;
    umf_py_buffer_t *buffer; /* NULL: it is none */
    char *ptr;
    size_t size; /* SIZE_MAX for an address: the size is not known */
    view_t view;
} operand_t;

static bool operand_is_writable(PyObject *object, bool is_written) {
    if (is_written && ((umf_py_buffer_t *)object)->is_read_only) {
        PyErr_SetString(PyExc_BufferError, "the memory is read-only");
        return false;
    }
    return true;
}

/* May run code of Python. */
static bool operand_begin(operand_t *operand, PyObject *object, bool is_written) {
    *operand = (operand_t){.object = object, .size = SIZE_MAX};
    if (PyLong_Check(object)) {
        return umf_py_address(object, (void **)&operand->ptr);
    }
    if (PyObject_TypeCheck(object, umf_py_buffer_type)) {
        operand->buffer = (umf_py_buffer_t *)object;
        return operand_is_writable(object, is_written);
    }
    if (PyObject_GetBuffer(object, &operand->view, is_written ? VIEW_WRITABLE : 0) < 0) {
        return false;
    }
    operand->ptr = operand->view.buf;
    operand->size = (size_t)operand->view.len;
    return true;
}

static void operand_end(operand_t *operand) {
    if (operand->view.obj) {
        PyBuffer_Release(&operand->view);
    }
}

static bool operand_has(operand_t *operand, Py_ssize_t size, const char *name) {
    if (operand->buffer) {
        operand->ptr = operand->buffer->ptr;
        operand->size = operand->buffer->size;
    }
    if (size < 0 || (size_t)size > operand->size) {
        PyErr_Format(PyExc_ValueError, "%s has %zu bytes, not %zd", name, operand->size, size);
        return false;
    }
    return true;
}

static bool operand_use(operand_t *operand, Py_ssize_t size, const char *name) {
    return operand_has(operand, size, name) &&
           (!operand->buffer || umf_py_buffer_use(operand->buffer));
}

static void operand_unuse(const operand_t *operand) {
    if (operand->buffer) {
        umf_py_buffer_unuse(operand->buffer);
    }
}

static const umf_py_why_t no_copy[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES, "a pool of the memory is suspended: resume it before",
     NULL},
    {UMF_RESULT_ERROR_INVALID_ARGUMENT,
     "an address is not known or reaches too far, or the pattern has a size of 0", NULL},
    {UMF_RESULT_SUCCESS, NULL, NULL}};

PyObject *umf_py_raise_copy(umf_result_t result, size_t done) {
    char what[96];
    PyOS_snprintf(what, sizeof(what), "the copy failed, %zu bytes are right", done);
    return umf_py_raise_why(result, what, no_copy);
}

static PyObject *none_or_raise(umf_result_t result, size_t done) {
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_copy(result, done);
    }
    Py_RETURN_NONE;
}

/* The copy itself. Of the two uses none or both are begun. */
static PyObject *copy_operands(operand_t *target, operand_t *source, Py_ssize_t size, void *queue) {
    size_t done = 0;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.queue = queue;
    params.done = &done;
    umfLastErrorClear();
    if (!operand_use(target, size, "the destination")) {
        return NULL;
    }
    umf_result_t result = UMF_RESULT_SUCCESS;
    bool is_used = operand_use(source, size, "the source");
    if (is_used) {
        Py_BEGIN_ALLOW_THREADS;
        result = umfCopy(target->ptr, source->ptr, (size_t)size, &params);
        Py_END_ALLOW_THREADS;
        operand_unuse(source);
    }
    operand_unuse(target);
    return is_used ? none_or_raise(result, done) : NULL;
}

/* copy(to, from, size, queue) */
static PyObject *copy_bytes(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *to, *from, *stream;
    Py_ssize_t size;
    void *queue;
    operand_t target, source;
    if (!PyArg_ParseTuple(args, "OOnO", &to, &from, &size, &stream) ||
        !umf_py_queue(stream, &queue) || !operand_begin(&target, to, true)) {
        return NULL;
    }
    PyObject *answer = NULL;
    if (operand_begin(&source, from, false)) {
        answer = copy_operands(&target, &source, size, queue);
        operand_end(&source);
    }
    operand_end(&target);
    return answer;
}

static PyObject *fill_operand(operand_t *target, const view_t *pattern, Py_ssize_t size,
                              void *queue) {
    size_t done = 0;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.queue = queue;
    params.done = &done;
    umfLastErrorClear();
    if (!operand_use(target, size, "the destination")) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfFill(target->ptr, pattern->buf, (size_t)pattern->len, (size_t)size, &params);
    Py_END_ALLOW_THREADS;
    operand_unuse(target);
    return none_or_raise(result, done);
}

/* fill(to, pattern, size, queue) */
static PyObject *fill_bytes(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *to, *bytes, *stream;
    Py_ssize_t size;
    void *queue;
    operand_t target;
    view_t pattern = {.obj = NULL};
    if (!PyArg_ParseTuple(args, "OOnO", &to, &bytes, &size, &stream) ||
        !umf_py_queue(stream, &queue) || PyObject_GetBuffer(bytes, &pattern, 0) < 0) {
        return NULL;
    }
    PyObject *answer = NULL;
    if (operand_begin(&target, to, true)) {
        answer = fill_operand(&target, &pattern, size, queue);
        operand_end(&target);
    }
    PyBuffer_Release(&pattern);
    return answer;
}

static const umf_py_why_t no_prefetch[] = {
    {UMF_RESULT_ERROR_INVALID_ARGUMENT,
     "the memory is not managed (provider cuda:memory_type=managed), or there is no such device",
     NULL},
    {UMF_RESULT_ERROR_NOT_SUPPORTED, "the driver or the build of the library has no prefetch",
     NULL},
    {UMF_RESULT_SUCCESS, NULL, NULL}};

/* prefetch(buffer, device, queue) */
static PyObject *prefetch(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *object, *stream;
    int device;
    void *queue;
    if (!PyArg_ParseTuple(args, "O!iO", umf_py_buffer_type, &object, &device, &stream) ||
        !umf_py_queue(stream, &queue)) {
        return NULL;
    }
    umf_py_buffer_t *buffer = (umf_py_buffer_t *)object;
    if (!umf_py_buffer_use(buffer)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfCUDAPrefetch(buffer->ptr, buffer->size, device, queue);
    Py_END_ALLOW_THREADS;
    umf_py_buffer_unuse(buffer);
    return umf_py_none_or_why(result, "the memory cannot be prefetched", no_prefetch);
}

PyMethodDef umf_py_copy_functions[] = {
    {"copy", copy_bytes, METH_VARARGS, "copy(to, source, size, queue, /)\n--\n\nCopies bytes."},
    {"fill", fill_bytes, METH_VARARGS,
     "fill(to, pattern, size, queue, /)\n--\n\nFills bytes with a pattern."},
    {"prefetch", prefetch, METH_VARARGS,
     "prefetch(buffer, device, queue, /)\n--\n\nMoves managed memory to a device, -1: to the "
     "host."},
    {NULL, NULL, 0, NULL}};
