/* Items and slices of buffers, their bytes, and numbers as arguments. */
#include "core.h"

#include <umf/copy.h>

/* --- numbers ---------------------------------------------------------------------------------- */

Py_ssize_t umf_py_size(PyObject *number, const char *name, Py_ssize_t least) {
    Py_ssize_t value = PyNumber_AsSsize_t(number, PyExc_OverflowError);
    if (value == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (value < least) {
        PyErr_Format(PyExc_ValueError,
                     least ? "%s must be at least %zd, it is %zd"
                           : "%s must not be negative: at least %zd, it is %zd",
                     name, least, value);
        return -1;
    }
    return value;
}

bool umf_py_address(PyObject *number, void **address) {
    PyObject *index = PyNumber_Index(number);
    *address = index ? PyLong_AsVoidPtr(index) : NULL;
    Py_XDECREF(index);
    return !PyErr_Occurred();
}

static int bounded(PyObject *number, unsigned long long most, unsigned long long *value) {
    PyObject *index = PyNumber_Index(number);
    *value = index ? PyLong_AsUnsignedLongLong(index) : 0;
    if (index && !PyErr_Occurred() && *value > most) {
        PyErr_Format(PyExc_OverflowError, "%R is greater than %llu", index, most);
    }
    Py_XDECREF(index);
    return !PyErr_Occurred();
}

int umf_py_u64(PyObject *number, void *value) {
    unsigned long long found;
    int is_right = bounded(number, UINT64_MAX, &found);
    *(uint64_t *)value = found;
    return is_right;
}

int umf_py_u32(PyObject *number, void *value) {
    unsigned long long found;
    int is_right = bounded(number, UINT32_MAX, &found);
    *(uint32_t *)value = (uint32_t)found;
    return is_right;
}

/* --- items ------------------------------------------------------------------------------------ */

PyObject *umf_py_buffer_item(PyObject *buffer, PyObject *key) {
    PyObject *view = PyMemoryView_FromObject(buffer);
    PyObject *item = view ? PyObject_GetItem(view, key) : NULL;
    Py_XDECREF(view);
    return item;
}

int umf_py_buffer_set_item(PyObject *buffer, PyObject *key, PyObject *value) {
    PyObject *view = PyMemoryView_FromObject(buffer);
    int failed = !view   ? -1
                 : value ? PyObject_SetItem(view, key, value)
                         : PyObject_DelItem(view, key);
    Py_XDECREF(view);
    return failed;
}

PyObject *umf_py_buffer_iter(PyObject *buffer) {
    PyObject *view = PyMemoryView_FromObject(buffer);
    PyObject *items = view ? PyObject_GetIter(view) : NULL;
    Py_XDECREF(view);
    return items;
}

/* --- bytes ------------------------------------------------------------------------------------ */

PyObject *umf_py_buffer_tobytes(PyObject *object, PyObject *unused) {
    (void)unused;
    umf_py_buffer_t *self = (umf_py_buffer_t *)object;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)self->size);
    if (!bytes || !umf_py_buffer_use(self)) {
        Py_XDECREF(bytes);
        return NULL;
    }
    size_t done = 0;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.done = &done;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfCopy(PyBytes_AsString(bytes), self->ptr, self->size, &params);
    Py_END_ALLOW_THREADS;
    umf_py_buffer_unuse(self);
    if (result != UMF_RESULT_SUCCESS) {
        Py_DECREF(bytes);
        return umf_py_raise_copy(result, done);
    }
    return bytes;
}
