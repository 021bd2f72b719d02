/* umf._core.Pool */
#include "core.h"

#include <umf/memory_pool_ext.h>
#include <umf/queue.h>
#include <umf/text.h>

PyTypeObject *umf_py_pool_type;

umf_memory_pool_handle_t umf_py_pool_open(umf_py_pool_t *pool) {
    if (!pool->handle) {
        PyErr_SetString(PyExc_ValueError, "the pool is closed");
    }
    return pool->handle;
}

/* --- creation and end ------------------------------------------------------------------------- */

static umf_memory_pool_handle_t pool_from_text(const char *text) {
    umf_memory_pool_handle_t handle;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfPoolCreateFromText(text, &handle);
    Py_END_ALLOW_THREADS;
    if (result != UMF_RESULT_SUCCESS) {
        umf_py_raise(result, "a pool cannot be created", umfTextError(), 0);
        return NULL;
    }
    return handle;
}

static umf_memory_pool_handle_t pool_over(const char *kind, umf_py_provider_t *provider,
                                          PyObject *settings) {
    umf_memory_provider_handle_t below = umf_py_provider_open(provider);
    return below ? umf_py_kind_create(kind, below, settings) : NULL;
}

/* Pool(text), or Pool(kind, provider, settings) */
static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs; /* the constructor of a subclass takes them */
    const char *utf8;
    PyObject *provider = NULL, *settings = NULL;
    if (!PyArg_ParseTuple(args, "s|O!O:Pool", &utf8, umf_py_provider_type, &provider, &settings)) {
        return NULL;
    }
    umf_memory_pool_handle_t handle =
        provider ? pool_over(utf8, (umf_py_provider_t *)provider, settings) : pool_from_text(utf8);
    if (!handle) {
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    umf_py_pool_t *self = (umf_py_pool_t *)alloc(type, 0);
    if (!self) {
        umfPoolDestroy(handle);
        return NULL;
    }
    PyObject *text = PyTuple_GetItem(args, 0);
    Py_INCREF(text);
    Py_XINCREF(provider);
    self->handle = handle;
    self->text = text;
    self->provider = (umf_py_provider_t *)provider;
    if (self->provider) {
        self->provider->pools++;
    }
    return (PyObject *)self;
}

static umf_result_t pool_end(umf_py_pool_t *self) {
    umf_memory_pool_handle_t handle = self->handle;
    self->handle = NULL;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfPoolDestroy(handle);
    Py_END_ALLOW_THREADS;
    if (self->provider) {
        self->provider->pools--;
    }
    return result;
}

static PyObject *pool_close(PyObject *object, PyObject *unused) {
    (void)unused;
    umf_py_pool_t *self = (umf_py_pool_t *)object;
    if (!self->handle) {
        Py_RETURN_NONE;
    }
    if (self->exports > 0) {
        PyErr_Format(PyExc_BufferError,
                     "memory of the pool has %zd views in use: release them before it is closed",
                     self->exports);
        return NULL;
    }
    return umf_py_none_or_raise(pool_end(self), "a pool cannot be destroyed");
}

static void pool_dealloc(PyObject *object) {
    umf_py_pool_t *self = (umf_py_pool_t *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->handle) {
        pool_end(self);
    }
    Py_XDECREF((PyObject *)self->provider);
    Py_XDECREF(self->text);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* --- memory ----------------------------------------------------------------------------------- */

static PyObject *raise_no_memory(umf_memory_pool_handle_t pool, size_t size) {
    umf_result_t result = umfPoolGetLastAllocationError(pool);
    umf_residency_t residency = UMF_RESIDENCY_INIT;
    const char *text = NULL;
    if (umfPoolGetResidency(pool, &residency) == UMF_RESULT_SUCCESS &&
        residency.state != UMF_SUSPEND_STATE_RESIDENT) {
        text = "the pool is suspended: resume it before";
        result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    } else if (result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC ||
               result == UMF_RESULT_SUCCESS) {
        /* Whatever the system said: no memory is a MemoryError. */
        text = umf_py_native_text();
        result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    char what[64];
    PyOS_snprintf(what, sizeof(what), "%zu bytes cannot be allocated", size);
    return umf_py_raise(result, what, text, 0);
}

static bool is_alignment(size_t size, size_t alignment) {
    if ((alignment & (alignment - 1)) == 0) { /* 0: the pool's own */
        return true;
    }
    char what[64], text[80];
    PyOS_snprintf(what, sizeof(what), "%zu bytes cannot be allocated", size);
    PyOS_snprintf(text, sizeof(text), "alignment must be a power of two, it is %zu", alignment);
    umf_py_raise(UMF_RESULT_ERROR_INVALID_ALIGNMENT, what, text, 0);
    return false;
}

/* What allocate was asked for. */
typedef struct request_t {
    size_t size, alignment; /* 0: the pool's own */
    bool has_queue;
    void *queue;
} request_t;

static bool request_words(request_t *request, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"size", "alignment", "stream", NULL};
    Py_ssize_t size, alignment = 0;
    PyObject *stream = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n|nO:allocate", names, &size, &alignment,
                                     &stream)) {
        return false;
    }
    if (size < 0 || alignment < 0) {
        PyErr_SetString(PyExc_ValueError, "size and alignment must not be negative");
        return false;
    }
    request->size = (size_t)size;
    request->alignment = (size_t)alignment;
    return is_alignment(request->size, request->alignment) &&
           umf_py_queue_or_none(stream, &request->has_queue, &request->queue);
}

static bool request_begin(request_t *request, PyObject *args, PyObject *kwargs) {
    *request = (request_t){.size = 0};
    if (PyTuple_Size(args) == 1 && !kwargs) { /* the usual call */
        request->size = PyLong_AsSize_t(PyTuple_GetItem(args, 0));
        if (request->size == (size_t)-1 && PyErr_Occurred()) {
            return false;
        }
    } else if (!request_words(request, args, kwargs)) {
        return false;
    }
    if (request->size == 0) {
        PyErr_SetString(PyExc_ValueError, "size must be at least 1, it is 0");
    }
    return request->size > 0;
}

static void *request_serve(const request_t *request, umf_memory_pool_handle_t pool) {
    bool is_plain = !request->alignment && !request->has_queue;
    /* What the thread cache has takes less time than giving the GIL up. */
    void *ptr = is_plain ? umfPoolTryMalloc(pool, request->size) : NULL;
    if (ptr) {
        return ptr;
    }
    Py_BEGIN_ALLOW_THREADS;
    ptr = request->has_queue
              ? umfPoolMallocOn(pool, request->size, request->alignment, request->queue)
          : is_plain ? umfPoolMalloc(pool, request->size)
                     : umfPoolAlignedMalloc(pool, request->size, request->alignment);
    Py_END_ALLOW_THREADS;
    return ptr;
}

/* _allocate(type, ...) would cost a look-up: the subclass says once which type its buffers have. */
static PyTypeObject *buffer_class;

static PyObject *pool_set_buffer_class(PyObject *unused, PyObject *class) {
    (void)unused;
    Py_INCREF(class);
    buffer_class = (PyTypeObject *)class; /* for good */
    Py_RETURN_NONE;
}

static PyObject *pool_allocate(PyObject *object, PyObject *args, PyObject *kwargs) {
    umf_py_pool_t *self = (umf_py_pool_t *)object;
    request_t request;
    umf_memory_pool_handle_t pool = umf_py_pool_open(self);
    if (!pool || !request_begin(&request, args, kwargs)) {
        return NULL;
    }
    void *ptr = request_serve(&request, pool);
    if (!ptr) {
        return raise_no_memory(pool, request.size);
    }
    PyTypeObject *type = buffer_class ? buffer_class : umf_py_buffer_type;
    umf_py_buffer_t *made = umf_py_buffer_new(type, self, ptr, request.size, ORIGIN_POOL);
    if (!made) {
        umfPoolFree(pool, ptr);
        return NULL;
    }
    made->has_queue = request.has_queue;
    made->queue = request.queue;
    return (PyObject *)made;
}

static PyObject *pool_trim(PyObject *object, PyObject *args) {
    Py_ssize_t keep = 0;
    PyObject *stream = NULL;
    bool has_queue;
    void *queue;
    umf_memory_pool_handle_t pool = umf_py_pool_open((umf_py_pool_t *)object);
    if (!pool || !PyArg_ParseTuple(args, "|nO:trim", &keep, &stream) ||
        !umf_py_queue_or_none(stream, &has_queue, &queue)) {
        return NULL;
    }
    if (keep < 0) {
        PyErr_SetString(PyExc_ValueError, "keep must not be negative");
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = has_queue ? umfPoolTrimOn(pool, (size_t)keep, queue)
                       : umfPoolTrimMemory(pool, (size_t)keep);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_raise(result, "a pool cannot be trimmed");
}

static const umf_py_why_t no_forbid[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES, "the pool is suspended: resume it before"},
    {UMF_RESULT_ERROR_INVALID_ARGUMENT, "it was allowed as often as it was forbidden"},
    {UMF_RESULT_SUCCESS, NULL}};

static PyObject *pool_forbid_suspend(PyObject *object, PyObject *unused) {
    (void)unused;
    umf_memory_pool_handle_t pool = umf_py_pool_open((umf_py_pool_t *)object);
    return pool ? umf_py_none_or_why(umfPoolForbidSuspend(pool), "suspend cannot be forbidden",
                                     no_forbid)
                : NULL;
}

static PyObject *pool_allow_suspend(PyObject *object, PyObject *unused) {
    (void)unused;
    umf_memory_pool_handle_t pool = umf_py_pool_open((umf_py_pool_t *)object);
    return pool ? umf_py_none_or_why(umfPoolAllowSuspend(pool), "suspend cannot be allowed",
                                     no_forbid)
                : NULL;
}

/* --- the type --------------------------------------------------------------------------------- */

static PyObject *pool_handle(PyObject *object, void *unused) {
    (void)unused;
    umf_memory_pool_handle_t handle = umf_py_pool_open((umf_py_pool_t *)object);
    return handle ? PyLong_FromVoidPtr(handle) : NULL;
}

static PyObject *pool_text(PyObject *object, void *unused) {
    (void)unused;
    PyObject *text = ((umf_py_pool_t *)object)->text;
    Py_INCREF(text);
    return text;
}

static PyObject *pool_provider(PyObject *object, void *unused) {
    (void)unused;
    umf_py_provider_t *provider = ((umf_py_pool_t *)object)->provider;
    PyObject *known = provider ? (PyObject *)provider : Py_None;
    Py_INCREF(known);
    return known;
}

static PyObject *pool_closed(PyObject *object, void *unused) {
    (void)unused;
    return PyBool_FromLong(!((umf_py_pool_t *)object)->handle);
}

static PyMethodDef pool_methods[] = {
    {"allocate", (PyCFunction)(void (*)(void))pool_allocate, METH_VARARGS | METH_KEYWORDS,
     "allocate(size, alignment=0, stream=None)\n--\n\n"
     "Allocates `size` bytes at an address that is a multiple of `alignment` (a power of two; 0: "
     "the pool's own).\n\nWith a stream (its address, or an object that has cuda_stream or "
     "__cuda_stream__) the memory is for work that is queued there from now on, and the buffer is "
     "freed on that stream: what was freed on it is used on it again at once.\n\nThe content is "
     "not defined. Returns a Buffer, which is freed with its "
     "last reference. Raises ValueError for a size of 0, OutOfMemoryError if there is no memory, "
     "OutOfResourcesError while the pool is suspended. Runs without the GIL."},
    {"trim", pool_trim, METH_VARARGS,
     "trim(keep=0, stream=None, /)\n--\n\nGives unused memory beyond `keep` bytes back to the "
     "provider; with a stream also what was freed on it, as soon as its work has passed."},
    {"wait_pending", umf_py_pool_wait_pending, METH_VARARGS,
     "wait_pending([timeout], /)\n--\n\nWaits until the work has passed that freed memory waits "
     "for, at most `timeout` seconds; 0 only looks. Returns the bytes that still wait."},
    {"forbid_suspend", pool_forbid_suspend, METH_NOARGS,
     "Forbids to suspend the pool until allow_suspend was called as often."},
    {"allow_suspend", pool_allow_suspend, METH_NOARGS, "Undoes one forbid_suspend."},
    {"close", pool_close, METH_NOARGS,
     "Destroys the pool; its memory is invalid then. Does nothing if it is closed.\n\nRaises "
     "BufferError while views of its memory (memoryview, NumPy, DLPack) are in use."},
    {"_set_buffer_class", pool_set_buffer_class, METH_O | METH_STATIC, "For the package."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef pool_members[] = {
    {"handle", pool_handle, NULL, "Address of the umf_memory_pool_handle_t.", NULL},
    {"text", pool_text, NULL, "The text that it was created from.", NULL},
    {"provider", pool_provider, NULL, "The Provider given, or None: it has one of its own.", NULL},
    {"closed", pool_closed, NULL, "Whether it is closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

bool umf_py_add_pool(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_new, (void *)pool_new},
                                  {Py_tp_dealloc, (void *)pool_dealloc},
                                  {Py_tp_methods, pool_methods},
                                  {Py_tp_getset, pool_members},
                                  {Py_tp_doc, "A pool, from text, or of a kind over a provider."},
                                  {0, NULL}};
    static PyType_Spec spec = {"umf._core.Pool", sizeof(umf_py_pool_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    return umf_py_add_type(module, &spec, "Pool", &umf_py_pool_type);
}
