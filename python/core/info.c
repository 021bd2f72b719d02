/* Kinds of the library, settings and counters, and the memory of an address. */
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

/* kinds(of pools?) -> {name: None, or the reason why it cannot work} */
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

/* Whose counter is meant: a Pool or Provider, which the call uses, or an address. */
typedef struct subject_t {
    umf_py_pool_t *pool;
    umf_py_provider_t *provider;
    void *handle;
} subject_t;

static bool subject_use(subject_t *subject, PyObject *object) {
    *subject = (subject_t){NULL, NULL, NULL};
    if (PyObject_TypeCheck(object, umf_py_pool_type)) {
        subject->pool = (umf_py_pool_t *)object;
        subject->handle = umf_py_pool_use(subject->pool);
        return subject->handle;
    }
    if (PyObject_TypeCheck(object, umf_py_provider_type)) {
        subject->provider = (umf_py_provider_t *)object;
        subject->handle = umf_py_provider_use(subject->provider);
        return subject->handle;
    }
    umfLastErrorClear();
    return umf_py_address(object, &subject->handle);
}

static void subject_unuse(const subject_t *subject) {
    if (subject->pool) {
        umf_py_pool_unuse(subject->pool);
    } else if (subject->provider) {
        umf_py_provider_unuse(subject->provider);
    }
}

/* ctl_get(path, pool, provider or address) -> int, or None if it is not counted; "{}" in the path
 * is the handle. */
static PyObject *info_ctl_get(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    PyObject *object;
    subject_t subject;
    if (!PyArg_ParseTuple(args, "sO", &path, &object) || !subject_use(&subject, object)) {
        return NULL;
    }
    size_t value;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfCtlGet(path, &value, sizeof(value), subject.handle);
    Py_END_ALLOW_THREADS;
    subject_unuse(&subject);
    if (result == UMF_RESULT_ERROR_INVALID_CTL_PATH || result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        Py_RETURN_NONE;
    }
    return result == UMF_RESULT_SUCCESS ? PyLong_FromSize_t(value)
                                        : umf_py_raise(result, path, NULL, 0);
}

/* ctl_run(path, pool, provider or address) */
static PyObject *info_ctl_run(PyObject *module, PyObject *args) {
    (void)module;
    const char *path;
    PyObject *object;
    subject_t subject;
    if (!PyArg_ParseTuple(args, "sO", &path, &object) || !subject_use(&subject, object)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfCtlExec(path, NULL, 0, subject.handle);
    Py_END_ALLOW_THREADS;
    subject_unuse(&subject);
    return umf_py_none_or_raise(result, path);
}

/* --- addresses -------------------------------------------------------------------------------- */

/* memory_of(address) -> (kind of memory, device); (0, -1) for memory of no driver. */
static PyObject *info_memory_of(PyObject *module, PyObject *address) {
    (void)module;
    umf_memory_properties_handle_t properties;
    umf_usm_memory_type_t type = UMF_MEMORY_TYPE_UNKNOWN;
    int device = -1;
    void *ptr;
    if (!umf_py_address(address, &ptr)) {
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
    {"kinds", info_kinds, METH_O, "kinds(of_pools, /)\n--\n\nKinds of providers, or of pools."},
    {"ctl_get", info_ctl_get, METH_VARARGS, "ctl_get(path, of, /)\n--\n\nReads a number by path."},
    {"ctl_run", info_ctl_run, METH_VARARGS, "ctl_run(path, of, /)\n--\n\nRuns a node by path."},
    {"memory_of", info_memory_of, METH_O, "memory_of(address, /)\n--\n\nWhere an address is."},
    {NULL, NULL, 0, NULL}};
