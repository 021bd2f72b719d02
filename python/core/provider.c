/* umf._core.Provider */
#include "core.h"

#include <umf/text.h>

PyTypeObject *umf_py_provider_type;

umf_memory_provider_handle_t umf_py_provider_open(umf_py_provider_t *provider) {
    if (provider->handle && !provider->uses.closing) {
        umfLastErrorClear();
        return provider->handle;
    }
    PyErr_SetString(PyExc_ValueError, "the provider is closed");
    return NULL;
}

umf_memory_provider_handle_t umf_py_provider_use(umf_py_provider_t *provider) {
    umf_memory_provider_handle_t handle = umf_py_provider_open(provider);
    if (handle) {
        umf_py_uses_begin(&provider->uses);
    }
    return handle;
}

void umf_py_provider_unuse(umf_py_provider_t *provider) {
    umf_py_uses_end(&provider->uses);
}

static PyObject *provider_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs; /* the constructor of a subclass takes them */
    const char *utf8;
    if (!PyArg_ParseTuple(args, "s:Provider", &utf8)) {
        return NULL;
    }
    umf_py_provider_t *self = umf_py_alloc(type);
    if (!self) {
        return NULL;
    }
    self->text = PyTuple_GetItem(args, 0);
    Py_INCREF(self->text);
    umf_memory_provider_handle_t handle;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfMemoryProviderCreateFromText(utf8, &handle);
    Py_END_ALLOW_THREADS;
    if (result != UMF_RESULT_SUCCESS) {
        Py_DECREF((PyObject *)self);
        return umf_py_raise(result, "a provider cannot be created", umfTextError(), 0);
    }
    self->handle = handle;
    return (PyObject *)self;
}

/* Until the provider is destroyed the object has it: a failure may leave it as it was. */
static umf_result_t provider_end(umf_py_provider_t *self) {
    umf_memory_provider_handle_t handle = self->handle;
    umf_result_t result;
    self->handle = NULL;
    umf_py_uses_begin(&self->uses);
    Py_BEGIN_ALLOW_THREADS;
    result = umfMemoryProviderDestroy(handle);
    Py_END_ALLOW_THREADS;
    umf_py_uses_end(&self->uses);
    if (result == UMF_RESULT_ERROR_INVALID_ARGUMENT || result == UMF_RESULT_ERROR_UNKNOWN) {
        self->handle = handle; /* refused */
    }
    return result;
}

static bool provider_is_idle(void *arg) {
    return !umf_py_uses_any(&((umf_py_provider_t *)arg)->uses);
}

static PyObject *provider_close(PyObject *object, PyObject *unused) {
    (void)unused;
    umf_py_provider_t *self = (umf_py_provider_t *)object;
    if ((self->pools > 0 &&
         !umf_py_works_wait()) || /* they may hold the last references of pools */
        !umf_py_close_wait(&self->uses, provider_is_idle, self)) {
        return NULL;
    }
    if (!self->handle) { /* already, or another thread was faster */
        Py_RETURN_NONE;
    }
    if (self->pools > 0) {
        PyErr_Format(PyExc_ValueError, "the provider has %zd open pools: close them first",
                     self->pools);
        return NULL;
    }
    return umf_py_none_or_raise(provider_end(self), "a provider cannot be destroyed");
}

static int provider_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static void provider_dealloc(PyObject *object) {
    umf_py_provider_t *self = (umf_py_provider_t *)object;
    PyObject_GC_UnTrack(object);
    if (self->handle) {
        provider_end(self);
    }
    Py_XDECREF(self->text);
    umf_py_dealloc(object);
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
     "close($self, /)\n--\n\nDestroys the provider. Does nothing if it is closed.\n\nWaits for "
     "calls of other threads that use it; calls that begin meanwhile, and all later ones, raise "
     "ValueError. Signals are answered while it waits: if a handler raises, the provider stays "
     "open.\n\nRaises ValueError while pools that were made on it are open."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef provider_members[] = {
    {"handle", provider_handle, NULL, "Address of the umf_memory_provider_handle_t.", NULL},
    {"text", provider_text, NULL, "The text that it was created from.", NULL},
    {"closed", provider_closed, NULL, "Whether it is closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

bool umf_py_add_provider(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_new, (void *)provider_new},
                                  {Py_tp_dealloc, (void *)provider_dealloc},
                                  {Py_tp_traverse, (void *)provider_traverse},
                                  {Py_tp_methods, provider_methods},
                                  {Py_tp_getset, provider_members},
                                  {Py_tp_doc, "A provider, from text."},
                                  {0, NULL}};
    static PyType_Spec spec = {"umf._core.Provider", sizeof(umf_py_provider_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               slots};
    return umf_py_add_type(module, &spec, "Provider", &umf_py_provider_type);
}
