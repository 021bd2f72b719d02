/* Copies and fills, of addresses and of what has the buffer protocol. */
#include "core.h"
#include "view.h"

#include <umf/copy.h>

/* One side of a copy: an address, or an object that is held for as long as the copy takes. */
typedef struct side_t {
    char *ptr;
    size_t size; /* SIZE_MAX for an address: its caller knows */
    view_t view;
} side_t;

static bool side_begin(side_t *side, PyObject *object, bool is_written) {
    *side = (side_t){.size = SIZE_MAX};
    if (PyLong_Check(object)) {
        side->ptr = PyLong_AsVoidPtr(object);
        return side->ptr || !PyErr_Occurred();
    }
    if (PyObject_GetBuffer(object, &side->view, is_written ? VIEW_WRITABLE : 0) < 0) {
        return false;
    }
    side->ptr = side->view.buf;
    side->size = (size_t)side->view.len;
    return true;
}

static void side_end(side_t *side) {
    if (side->view.obj) {
        PyBuffer_Release(&side->view);
    }
}

static bool side_has(const side_t *side, Py_ssize_t size, const char *name) {
    if (size < 0 || (size_t)size > side->size) {
        PyErr_Format(PyExc_ValueError, "%s has %zu bytes, not %zd", name, side->size, size);
        return false;
    }
    return true;
}

static const umf_py_why_t no_copy[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES, "a pool of the memory is suspended: resume it before"},
    {UMF_RESULT_ERROR_INVALID_ARGUMENT,
     "an address is not known or reaches too far, or the pattern has a size of 0"},
    {UMF_RESULT_SUCCESS, NULL}};

static PyObject *result_of(umf_result_t result, size_t done) {
    if (result != UMF_RESULT_SUCCESS) {
        char what[96];
        PyOS_snprintf(what, sizeof(what), "the copy failed, %zu bytes are right", done);
        return umf_py_raise_why(result, what, no_copy, 0);
    }
    Py_RETURN_NONE;
}

/* copy(to, from, size, queue) */
static PyObject *copy_bytes(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *to, *from, *queue;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "OOnO", &to, &from, &size, &queue)) {
        return NULL;
    }
    size_t done = 0;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.queue = PyLong_AsVoidPtr(queue);
    params.done = &done;
    side_t target, source;
    if (PyErr_Occurred() || !side_begin(&target, to, true)) {
        return NULL;
    }
    PyObject *answer = NULL;
    if (side_begin(&source, from, false)) {
        if (side_has(&target, size, "the destination") && side_has(&source, size, "the source")) {
            umf_result_t result;
            Py_BEGIN_ALLOW_THREADS;
            result = umfCopy(target.ptr, source.ptr, (size_t)size, &params);
            Py_END_ALLOW_THREADS;
            answer = result_of(result, done);
        }
        side_end(&source);
    }
    side_end(&target);
    return answer;
}

/* fill(to, pattern, size, queue) */
static PyObject *fill_bytes(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *to, *queue;
    const char *pattern;
    Py_ssize_t pattern_size, size;
    if (!PyArg_ParseTuple(args, "Oy#nO", &to, &pattern, &pattern_size, &size, &queue)) {
        return NULL;
    }
    size_t done = 0;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.queue = PyLong_AsVoidPtr(queue);
    params.done = &done;
    side_t target;
    if (PyErr_Occurred() || !side_begin(&target, to, true)) {
        return NULL;
    }
    PyObject *answer = NULL;
    if (side_has(&target, size, "the destination")) {
        umf_result_t result;
        Py_BEGIN_ALLOW_THREADS;
        result = umfFill(target.ptr, pattern, (size_t)pattern_size, (size_t)size, &params);
        Py_END_ALLOW_THREADS;
        answer = result_of(result, done);
    }
    side_end(&target);
    return answer;
}

PyMethodDef umf_py_copy_functions[] = {
    {"copy", copy_bytes, METH_VARARGS, "Copies bytes."},
    {"fill", fill_bytes, METH_VARARGS, "Fills bytes with a pattern."},
    {NULL, NULL, 0, NULL}};
