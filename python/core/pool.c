/* umf._core.Pool */
#include "core.h"

#include <umf/memory_pool_ext.h>
#include <umf/queue.h>
#include <umf/text.h>

PyTypeObject *umf_py_pool_type;

umf_memory_pool_handle_t umf_py_pool_open(umf_py_pool_t *pool) {
    if (pool->handle && !pool->uses.closing) {
        umfLastErrorClear();
        return pool->handle;
    }
    PyErr_SetString(PyExc_ValueError, "the pool is closed");
    return NULL;
}

umf_memory_pool_handle_t umf_py_pool_use(umf_py_pool_t *pool) {
    umf_memory_pool_handle_t handle = umf_py_pool_open(pool);
    if (handle) {
        umf_py_uses_begin(&pool->uses);
    }
    return handle;
}

void umf_py_pool_unuse(umf_py_pool_t *pool) {
    umf_py_uses_end(&pool->uses);
}

/* --- creation and end ------------------------------------------------------------------------- */

static umf_memory_pool_handle_t pool_create(const char *text, umf_py_provider_t *provider) {
    umf_memory_pool_handle_t handle;
    umf_memory_provider_handle_t below = provider ? umf_py_provider_use(provider) : NULL;
    umf_result_t result;
    if (provider && !below) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    result = below ? umfPoolCreateFromTextOver(text, below, &handle)
                   : umfPoolCreateFromText(text, &handle);
    Py_END_ALLOW_THREADS;
    if (provider) {
        provider->pools += result == UMF_RESULT_SUCCESS;
        umf_py_provider_unuse(provider);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_py_raise(result, "a pool cannot be created", umfTextError(), 0);
        return NULL;
    }
    return handle;
}

/* Pool(text, provider or None, class of its buffers) */
static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs; /* the constructor of a subclass takes them */
    const char *utf8;
    PyObject *provider, *buffer_type;
    if (!PyArg_ParseTuple(args, "sOO:Pool", &utf8, &provider, &buffer_type)) {
        return NULL;
    }
    if ((provider != Py_None && !PyObject_TypeCheck(provider, umf_py_provider_type)) ||
        !umf_py_is_buffer_type(buffer_type)) {
        PyErr_SetString(PyExc_TypeError, "Pool(text, Provider or None, subclass of Buffer)");
        return NULL;
    }
    umf_py_pool_t *self = umf_py_alloc(type);
    if (!self) {
        return NULL;
    }
    Py_INCREF(buffer_type);
    self->buffer_type = (PyTypeObject *)buffer_type;
    self->text = PyTuple_GetItem(args, 0);
    Py_INCREF(self->text);
    if (provider != Py_None) {
        Py_INCREF(provider);
        self->provider = (umf_py_provider_t *)provider;
    }
    self->handle = pool_create(utf8, self->provider);
    if (!self->handle) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    umf_result_t result = umf_py_limit_begin(self);
    if (result != UMF_RESULT_SUCCESS) {
        umf_py_raise(result, "a pool cannot be counted", NULL, 0);
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static umf_result_t pool_end(umf_py_pool_t *self) {
    umf_memory_pool_handle_t handle = self->handle;
    self->handle = NULL;
    umf_result_t result;
    umf_py_uses_begin(&self->uses);
    Py_BEGIN_ALLOW_THREADS;
    result = umfPoolDestroy(handle);
    Py_END_ALLOW_THREADS;
    umf_py_uses_end(&self->uses);
    umf_py_limit_end(self);
    if (self->provider) {
        self->provider->pools--;
    }
    return result;
}

static bool pool_is_idle(void *arg) {
    umf_py_pool_t *self = arg;
    umf_py_works_look();
    return !umf_py_uses_any(&self->uses) && !umf_py_uses_any(&self->moving);
}

static bool pool_has_no_views(const umf_py_pool_t *self) {
    if (self->exports > 0) {
        PyErr_Format(PyExc_BufferError,
                     "memory of the pool has %zd views in use: release them before it is closed",
                     self->exports);
    }
    return self->exports == 0;
}

static PyObject *pool_close(PyObject *object, PyObject *unused) {
    (void)unused;
    umf_py_pool_t *self = (umf_py_pool_t *)object;
    if (!pool_has_no_views(self) || !umf_py_request_allows(self, "closed") ||
        !umf_py_close_wait(&self->uses, pool_is_idle, self)) {
        return NULL;
    }
    if (!self->handle) { /* already, or another thread was faster */
        Py_RETURN_NONE;
    }
    return pool_has_no_views(self)
               ? umf_py_none_or_raise(pool_end(self), "a pool cannot be destroyed")
               : NULL;
}

/* There is no tp_clear: pools, providers, buffers and jobs refer to each other in one direction, so
 * a cycle has a dictionary or another container in it, which clears. A pool that lost its provider
 * could not be destroyed. */
static int pool_traverse(PyObject *object, visitproc visit, void *arg) {
    umf_py_pool_t *self = (umf_py_pool_t *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->buffer_type);
    Py_VISIT(self->provider);
    return 0;
}

/* Calls, jobs, buffers and views in use have references: there are none. */
static void pool_dealloc(PyObject *object) {
    umf_py_pool_t *self = (umf_py_pool_t *)object;
    PyObject_GC_UnTrack(object);
    if (self->handle) {
        pool_end(self);
    }
    Py_XDECREF((PyObject *)self->provider);
    Py_XDECREF((PyObject *)self->buffer_type);
    Py_XDECREF(self->text);
    umf_py_dealloc(object);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Facts of an attempt to allocate. */
typedef struct attempt_t {
    size_t moves;
    bool is_moving; /* a suspend or resume was at work when it began */
    umf_result_t result;
    umf_py_failure_t failure;
    umf_residency_t residency;
    umf_pool_group_stats_t limit;
} attempt_t;

static attempt_t attempt_begin(umf_py_pool_t *self) {
    umf_py_works_look();
    return (attempt_t){.moves = self->moves, .is_moving = umf_py_uses_any(&self->moving)};
}

/* In the thread that has failed, before anything else can fail there. */
static void attempt_failed(attempt_t *attempt, const umf_py_pool_t *self) {
    umf_memory_pool_handle_t pool = self->handle;
    umf_py_why_take(&attempt->failure);
    attempt->result = umfPoolGetLastAllocationError(pool);
    attempt->limit = umf_py_limit_stats(self);
    attempt->residency = (umf_residency_t)UMF_RESIDENCY_INIT;
    if (umfPoolGetResidency(pool, &attempt->residency) != UMF_RESULT_SUCCESS) {
        attempt->residency.state = UMF_SUSPEND_STATE_RESIDENT; /* it cannot be suspended */
    }
}

static PyObject *raise_no_memory(const umf_py_pool_t *self, const attempt_t *attempt, size_t size) {
    umf_result_t result = attempt->result;
    const char *text = attempt->failure.text;
    char limit[160];
    if (attempt->residency.state != UMF_SUSPEND_STATE_RESIDENT) {
        text = "the pool is suspended: resume it before";
        result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    } else if (attempt->is_moving || attempt->moves != self->moves) {
        text = "the pool was suspended meanwhile: try again";
        result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    } else if (result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC ||
               result == UMF_RESULT_SUCCESS) {
        /* Whatever the system said: no memory is a MemoryError. */
        const char *native = umf_py_native_text();
        text = native ? native : text;
        result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    } else if (result == UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY &&
               umf_py_limit_text(&attempt->limit, size, limit, sizeof(limit))) {
        text = limit;
    }
    char what[64];
    PyOS_snprintf(what, sizeof(what), "%zu bytes cannot be allocated", size);
    return umf_py_raise_as(result, what, text, attempt->failure.reason, 0);
}

static bool is_alignment(size_t size, size_t alignment) {
    if ((alignment & (alignment - 1)) == 0) { /* 0: the pool's own */
        return true;
    }
    char what[64], text[80];
    PyOS_snprintf(what, sizeof(what), "%zu bytes cannot be allocated", size);
    PyOS_snprintf(text, sizeof(text), "alignment must be a power of two, it is %zu", alignment);
    umf_py_raise_as(UMF_RESULT_ERROR_INVALID_ALIGNMENT, what, text, "", 0);
    return false;
}

/* The arguments of allocate. */
typedef struct request_t {
    size_t size, alignment; /* 0: the pool's own */
    bool has_queue;
    void *queue;
} request_t;

static bool request_words(request_t *request, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"size", "alignment", "stream", NULL};
    PyObject *size, *alignment = NULL, *stream = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:allocate", names, &size, &alignment,
                                     &stream)) {
        return false;
    }
    Py_ssize_t bytes = umf_py_size(size, "size", 1);
    Py_ssize_t multiple = bytes > 0 && alignment ? umf_py_size(alignment, "alignment", 0) : 0;
    if (bytes < 0 || multiple < 0) {
        return false;
    }
    request->size = (size_t)bytes;
    request->alignment = (size_t)multiple;
    return is_alignment(request->size, request->alignment) &&
           umf_py_queue_or_none(stream, &request->has_queue, &request->queue);
}

static bool request_begin(request_t *request, PyObject *args, PyObject *kwargs) {
    *request = (request_t){.size = 0};
    if (PyTuple_Size(args) != 1 || kwargs) {
        return request_words(request, args, kwargs);
    }
    Py_ssize_t size = umf_py_size(PyTuple_GetItem(args, 0), "size", 1); /* the usual call */
    request->size = (size_t)size;
    return size > 0;
}

static const umf_py_why_t no_trim[] = {
    {UMF_RESULT_ERROR_NOT_SUPPORTED, "this kind of pool keeps no free memory", NULL},
    {UMF_RESULT_SUCCESS, NULL, NULL}};

/* Memory of a request that fails after all. Work that was queued before may still use it. */
static void request_undo(const request_t *request, umf_memory_pool_handle_t pool, void *ptr) {
    if (!request->has_queue || umfFreeOn(ptr, request->queue) != UMF_RESULT_SUCCESS) {
        umfPoolFree(pool, ptr);
    }
}

/* NULL and an exception on failure. The use ends before the buffer is made, since that may collect
 * garbage, which may close the pool: its memory is gone then, and the buffer is a freed one. */
static void *request_serve(const request_t *request, umf_py_pool_t *self) {
    bool is_plain = !request->alignment && !request->has_queue;
    if (!umf_py_pool_open(self)) {
        return NULL;
    }
    /* A hit in the thread cache takes less time than the release of the GIL. */
    void *ptr = is_plain ? umfPoolTryMalloc(self->handle, request->size) : NULL;
    if (ptr) {
        return ptr;
    }
    attempt_t attempt = attempt_begin(self);
    umf_memory_pool_handle_t pool = umf_py_pool_use(self); /* the look may have closed it */
    if (!pool) {
        return NULL;
    }
    umf_py_request_t served;
    umf_py_request_begin(&served, self, request->size);
    ptr = request->has_queue
              ? umfPoolMallocOn(pool, request->size, request->alignment, request->queue)
          : is_plain ? umfPoolMalloc(pool, request->size)
                     : umfPoolAlignedMalloc(pool, request->size, request->alignment);
    if (!ptr) {
        attempt_failed(&attempt, self);
    }
    bool is_refused = !umf_py_request_end(&served);
    if (is_refused && ptr) {
        request_undo(request, pool, ptr);
    }
    umf_py_pool_unuse(self);
    if (is_refused) {
        return NULL;
    }
    return ptr ? ptr : raise_no_memory(self, &attempt, request->size);
}

static PyObject *pool_allocate(PyObject *object, PyObject *args, PyObject *kwargs) {
    umf_py_pool_t *self = (umf_py_pool_t *)object;
    request_t request;
    void *ptr = NULL;
    if (request_begin(&request, args, kwargs) && umf_py_malloc_begins(self, request.size)) {
        ptr = request_serve(&request, self);
    }
    if (!ptr) {
        return NULL;
    }
    umf_py_buffer_t *made =
        umf_py_buffer_new(self->buffer_type, self, ptr, request.size, ORIGIN_POOL);
    if (!made) {
        if (self->handle) {
            request_undo(&request, self->handle, ptr);
        }
        return NULL;
    }
    made->has_queue = request.has_queue;
    made->queue = request.queue;
    if (!umf_py_malloc_done(self, request.size, ptr)) {
        Py_DECREF((PyObject *)made);
        return NULL;
    }
    return (PyObject *)made;
}

static PyObject *pool_trim(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"keep", "stream", NULL};
    umf_py_pool_t *self = (umf_py_pool_t *)object;
    PyObject *number = NULL, *stream = NULL;
    bool has_queue;
    void *queue;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:trim", names, &number, &stream)) {
        return NULL;
    }
    Py_ssize_t keep = number ? umf_py_size(number, "keep", 0) : 0;
    umf_memory_pool_handle_t pool = keep >= 0 && umf_py_queue_or_none(stream, &has_queue, &queue)
                                        ? umf_py_pool_use(self)
                                        : NULL;
    if (!pool) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = has_queue ? umfPoolTrimOn(pool, (size_t)keep, queue)
                       : umfPoolTrimMemory(pool, (size_t)keep);
    Py_END_ALLOW_THREADS;
    umf_py_pool_unuse(self);
    return umf_py_none_or_why(result, "a pool cannot be trimmed", no_trim);
}

static const umf_py_why_t no_forbid[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES, "the pool is suspended", "resume it before"},
    {UMF_RESULT_ERROR_INVALID_ARGUMENT, "it was allowed as often as it was forbidden", NULL},
    {UMF_RESULT_SUCCESS, NULL, NULL}};

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
     "allocate($self, /, size, alignment=0, stream=None)\n--\n\n"
     "Allocates `size` bytes at an address that is a multiple of `alignment` (a power of two; 0: "
     "the pool's own).\n\nWith a stream (its address, or an object that has cuda_stream or "
     "__cuda_stream__) the memory is for work that is queued there from now on, and the buffer is "
     "freed on that stream: memory freed on it is used on it again at once.\n\nThe content is "
     "not defined. Returns a Buffer, which is freed with its "
     "last reference. Raises ValueError for a size below 1, OutOfMemoryError if there is no "
     "memory, OutOfResourcesError while the pool is suspended. Runs without the GIL."},
    {"trim", (PyCFunction)(void (*)(void))pool_trim, METH_VARARGS | METH_KEYWORDS,
     "trim($self, /, keep=0, stream=None)\n--\n\nGives unused memory beyond `keep` bytes back to "
     "the provider; with a stream also memory freed on it, as soon as its work has completed."},
    {"wait_pending", (PyCFunction)(void (*)(void))umf_py_pool_wait_pending,
     METH_VARARGS | METH_KEYWORDS,
     "wait_pending($self, /, timeout=None)\n--\n\nWaits until queued work on freed memory has "
     "completed, at most `timeout` seconds; 0 only polls. Returns the bytes still in use by such "
     "work.\n\nSignals are answered meanwhile. Without a timeout the main thread leaves the "
     "driver's "
     "wait to a thread: if a handler raises, it goes on there, and close waits for it."},
    {"forbid_suspend", pool_forbid_suspend, METH_NOARGS,
     "forbid_suspend($self, /)\n--\n\nForbids to suspend the pool until allow_suspend was called "
     "as often."},
    {"allow_suspend", pool_allow_suspend, METH_NOARGS,
     "allow_suspend($self, /)\n--\n\nUndoes one forbid_suspend."},
    {"close", pool_close, METH_NOARGS,
     "close($self, /)\n--\n\nDestroys the pool; its memory is invalid then. Does nothing if it is "
     "closed.\n\nWaits for calls of other threads that use the pool, and for suspends and resumes "
     "in the background; calls that begin meanwhile, and all later ones, raise ValueError. "
     "Signals are answered while it waits: if a handler raises, the pool stays open.\n\nRaises "
     "BufferError while views of its memory (memoryview, NumPy, DLPack) are in use."},
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
                                  {Py_tp_traverse, (void *)pool_traverse},
                                  {Py_tp_methods, pool_methods},
                                  {Py_tp_getset, pool_members},
                                  {Py_tp_doc, "A pool, from text, or of a kind over a provider."},
                                  {0, NULL}};
    static PyType_Spec spec = {"umf._core.Pool", sizeof(umf_py_pool_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               slots};
    return umf_py_add_type(module, &spec, "Pool", &umf_py_pool_type);
}
