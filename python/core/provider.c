/* umf._core.Provider */
#include "core.h"

#include <umf/text.h>

PyTypeObject *umf_py_provider_type;

umf_memory_provider_handle_t umf_py_provider_open(umf_py_provider_t *provider) {
    if (!provider->handle) {
        PyErr_SetString(PyExc_ValueError, "the provider is closed");
    }
    return provider->handle;
}

static PyObject *provider_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs; /* the constructor of a subclass takes them */
    const char *utf8;
    if (!PyArg_ParseTuple(args, "s:Provider", &utf8)) {
        return NULL;
    }
    PyObject *text = PyTuple_GetItem(args, 0);
    umf_memory_provider_handle_t handle;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfMemoryProviderCreateFromText(utf8, &handle);
    Py_END_ALLOW_THREADS;
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise(result, "a provider cannot be created", umfTextError(), 0);
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    umf_py_provider_t *self = (umf_py_provider_t *)alloc(type, 0);
    if (!self) {
        umfMemoryProviderDestroy(handle);
        return NULL;
    }
    Py_INCREF(text);
    self->handle = handle;
    self->text = text;
    return (PyObject *)self;
}

static umf_result_t provider_end(umf_py_provider_t *self) {
    umf_memory_provider_handle_t handle = self->handle;
    self->handle = NULL;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfMemoryProviderDestroy(handle);
    Py_END_ALLOW_THREADS;
    return result;
}

static PyObject *provider_close(PyObject *object, PyObject *unused) {
    (void)unused;
    umf_py_provider_t *self = (umf_py_provider_t *)object;
    if (!self->handle) {
        Py_RETURN_NONE;
    }
    if (self->pools > 0) {
        PyErr_Format(PyExc_ValueError, "the provider has %zd open pools: close them first",
                     self->pools);
        return NULL;
    }
    return umf_py_none_or_raise(provider_end(self), "a provider cannot be destroyed");
}

static void provider_dealloc(PyObject *object) {
    umf_py_provider_t *self = (umf_py_provider_t *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->handle) {
        provider_end(self);
    }
    Py_XDECREF(self->text);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *provider_handle(PyObject *object, void *unused) {
    (void)unused;
    umf_memory_provider_handle_t handle = umf_py_provider_open((umf_py_provider_t *)object);
    return handle ? PyLong_FromVoidPtr(handle) : NULL;
}

static PyObject *provider_text(PyObject *object, void *unused) {
    (void)unused;
    PyObject *text = ((umf_py_provider_t *)object)->text;
    Py_INCREF(text);
    return text;
}

static PyObject *provider_closed(PyObject *object, void *unused) {
    (void)unused;
    return PyBool_FromLong(!((umf_py_provider_t *)object)->handle);
}

static PyMethodDef provider_methods[] = {
    {"close", provider_close, METH_NOARGS,
     "Destroys the provider. Does nothing if it is closed.\n\nRaises ValueError while pools that "
     "were made on it are open."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef provider_members[] = {
    {"handle", provider_handle, NULL, "Address of the umf_memory_provider_handle_t.", NULL},
    {"text", provider_text, NULL, "The text that it was created from.", NULL},
    {"closed", provider_closed, NULL, "Whether it is closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

bool umf_py_add_provider(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)provider_new},     {Py_tp_dealloc, (void *)provider_dealloc},
        {Py_tp_methods, provider_methods},     {Py_tp_getset, provider_members},
        {Py_tp_doc, "A provider, from text."}, {0, NULL}};
    static PyType_Spec spec = {"umf._core.Provider", sizeof(umf_py_provider_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    return umf_py_add_type(module, &spec, "Provider", &umf_py_provider_type);
}
