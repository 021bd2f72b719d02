/* What the library has, settings and counters, and where an address is. */
#include "core.h"

#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/memory_provider_gpu.h>
#include <umf/text.h>

/* --- kinds ------------------------------------------------------------------------------------ */

static int kind_add(const char *name, int available, const char *why, void *dict) {
    PyObject *value = available ? Py_None : PyUnicode_FromString(why);
    if (available) {
        Py_INCREF(value);
    }
    int failed = !value || PyDict_SetItemString(dict, name, value) < 0;
    Py_XDECREF(value);
    return failed;
}

/* kinds(of pools?) -> {name: None, or what is missing} */
static PyObject *info_kinds(PyObject *module, PyObject *of_pools) {
    (void)module;
    PyObject *dict = PyDict_New();
    if (!dict) {
        return NULL;
    }
    umf_result_t result =
        PyObject_IsTrue(of_pools) ? umfPoolKinds(kind_add, dict) : umfProviderKinds(kind_add, dict);
    if (result != UMF_RESULT_SUCCESS) {
        Py_DECREF(dict);
        return PyErr_Occurred() ? NULL : umf_py_raise(result, "kinds cannot be listed", NULL, 0);
    }
    return dict;
}

/* --- settings and counters -------------------------------------------------------------------- */

/* ctl_get(path, handle) -> int, or None if it is not counted; "{}" in the path is the handle. */
static PyObject *info_ctl_get(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    PyObject *address;
    if (!PyArg_ParseTuple(args, "sO", &path, &address)) {
        return NULL;
    }
    void *handle = PyLong_AsVoidPtr(address);
    if (!handle && PyErr_Occurred()) {
        return NULL;
    }
    size_t value;
    umf_result_t result = umfCtlGet(path, &value, sizeof(value), handle);
    if (result == UMF_RESULT_ERROR_INVALID_CTL_PATH || result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        Py_RETURN_NONE;
    }
    return result == UMF_RESULT_SUCCESS ? PyLong_FromSize_t(value)
                                        : umf_py_raise(result, path, NULL, 0);
}

/* ctl_run(path, handle) */
static PyObject *info_ctl_run(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    PyObject *address;
    if (!PyArg_ParseTuple(args, "sO", &path, &address)) {
        return NULL;
    }
    void *handle = PyLong_AsVoidPtr(address);
    if (!handle && PyErr_Occurred()) {
        return NULL;
    }
    return umf_py_none_or_raise(umfCtlExec(path, NULL, 0, handle), path);
}

/* --- addresses -------------------------------------------------------------------------------- */

/* memory_of(address) -> (kind of memory, device); (0, -1) if no driver knows it. */
static PyObject *info_memory_of(PyObject *module, PyObject *address) {
    (void)module;
    umf_memory_properties_handle_t properties;
    umf_usm_memory_type_t type = UMF_MEMORY_TYPE_UNKNOWN;
    int device = -1;
    void *ptr = PyLong_AsVoidPtr(address);
    if (!ptr && PyErr_Occurred()) {
        return NULL;
    }
    if (umfGetMemoryPropertiesHandle(ptr, &properties) == UMF_RESULT_SUCCESS) {
        umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_POINTER_TYPE, &type, sizeof(type));
        size_t size = 0;
        bool is_number = umfGetMemoryPropertySize(properties, UMF_MEMORY_PROPERTY_DEVICE, &size) ==
                             UMF_RESULT_SUCCESS &&
                         size == sizeof(device);
        if (is_number) {
            umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_DEVICE, &device, sizeof(device));
        }
    }
    return Py_BuildValue("ii", (int)type, device);
}

PyMethodDef umf_py_info_functions[] = {
    {"kinds", info_kinds, METH_O, "Kinds of providers, or of pools."},
    {"ctl_get", info_ctl_get, METH_VARARGS, "Reads a number by path."},
    {"ctl_run", info_ctl_run, METH_VARARGS, "Runs a node by path."},
    {"memory_of", info_memory_of, METH_O, "Where an address is."},
    {NULL, NULL, 0, NULL}};
