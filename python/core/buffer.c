/* umf._core.Buffer: memory, and its views. */
#include "core.h"
#include "view.h"

#include <umf/experimental/memory_properties.h>
#include <umf/ipc.h>
#include <umf/memory_pool_ext.h>
#include <umf/memory_provider_gpu.h>
#include <umf/queue.h>

PyTypeObject *umf_py_buffer_type;

bool umf_py_is_buffer_type(PyObject *object) {
    return PyType_Check(object) && PyType_IsSubtype((PyTypeObject *)object, umf_py_buffer_type);
}

bool umf_py_buffer_open(umf_py_buffer_t *buffer) {
    if (!buffer->ptr) {
        PyErr_SetString(PyExc_ValueError, "the memory was freed");
        return false;
    }
    return !buffer->pool || umf_py_pool_open(buffer->pool);
}

bool umf_py_buffer_use(umf_py_buffer_t *buffer) {
    if (!umf_py_buffer_open(buffer)) {
        return false;
    }
    umf_py_uses_begin(&buffer->uses);
    if (buffer->pool) {
        umf_py_uses_begin(&buffer->pool->uses);
    }
    return true;
}

void umf_py_buffer_unuse(umf_py_buffer_t *buffer) {
    umf_py_uses_end(&buffer->uses);
    if (buffer->pool) {
        umf_py_uses_end(&buffer->pool->uses);
    }
}

umf_py_buffer_t *umf_py_buffer_new(PyTypeObject *type, umf_py_pool_t *pool, void *ptr, size_t size,
                                   umf_py_origin_t origin) {
    umf_py_buffer_t *made = umf_py_alloc(type);
    if (made) {
        Py_XINCREF((PyObject *)pool);
        made->pool = pool;
        made->ptr = ptr;
        made->size = size;
        made->origin = origin;
    }
    return made;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* A close of the pool that waits lets this through: it is a use of memory that is still there. */
static umf_result_t buffer_give_back(umf_py_buffer_t *self, void *ptr) {
    umf_memory_pool_handle_t pool = self->pool->handle;
    umf_result_t result;
    if (self->origin == ORIGIN_POOL && !self->ipc && !self->has_queue &&
        umfPoolTryFree(pool, ptr)) {
        return UMF_RESULT_SUCCESS;
    }
    umf_py_uses_begin(&self->pool->uses);
    Py_BEGIN_ALLOW_THREADS;
    if (self->origin == ORIGIN_IPC) {
        result = umfCloseIPCHandle(ptr);
    } else {
        result = self->has_queue ? umfFreeOn(ptr, self->queue) : umfPoolFree(pool, ptr);
        if (self->ipc) {
            umfPutIPCHandle(self->ipc);
        }
    }
    Py_END_ALLOW_THREADS;
    umf_py_uses_end(&self->pool->uses);
    self->ipc = NULL;
    return result;
}

/* A hook may close the pool. */
static umf_result_t buffer_free_counted(umf_py_buffer_t *self, void *ptr) {
    if (self->pool->handle) {
        umf_py_free_begins(self->pool, self->size, ptr);
    }
    if (!self->pool->handle) { /* the memory went with its pool */
        umf_py_free_lost(self->pool, self->size);
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = buffer_give_back(self, ptr);
    if (result == UMF_RESULT_SUCCESS) {
        umf_py_free_done(self->pool, self->size, ptr);
    }
    return result;
}

umf_result_t umf_py_buffer_end(umf_py_buffer_t *self) {
    void *ptr = self->ptr;
    self->ptr = NULL;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    if (self->origin == ORIGIN_FOREIGN) {
        umf_py_dlpack_end(self);
        return UMF_RESULT_SUCCESS;
    }
    return self->origin == ORIGIN_POOL ? buffer_free_counted(self, ptr)
           : self->pool->handle        ? buffer_give_back(self, ptr)
                                       : UMF_RESULT_SUCCESS;
}

/* BufferError unless nothing uses the memory. */
static bool buffer_is_idle(umf_py_buffer_t *self, const char *what) {
    if (self->exports > 0) {
        PyErr_Format(PyExc_BufferError,
                     "the memory has %zd views in use: release them before it is %s", self->exports,
                     what);
        return false;
    }
    if (umf_py_uses_any(&self->uses)) {
        PyErr_Format(PyExc_BufferError,
                     "another thread copies, fills or shares the memory: wait for it before it is "
                     "%s",
                     what);
        return false;
    }
    return true;
}

static PyObject *buffer_free(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream", NULL};
    umf_py_buffer_t *self = (umf_py_buffer_t *)object;
    PyObject *stream = NULL;
    bool has_arguments = PyTuple_Size(args) > 0 || kwargs;
    if (has_arguments && !PyArg_ParseTupleAndKeywords(args, kwargs, "|O:free", names, &stream)) {
        return NULL;
    }
    bool has_queue;
    void *queue = NULL;
    if (!umf_py_queue_or_none(stream, &has_queue, &queue) || !buffer_is_idle(self, "freed")) {
        return NULL;
    }
    umf_py_buffer_t before = *self;
    self->has_queue = self->has_queue || has_queue;
    self->queue = has_queue ? queue : self->queue;
    umf_result_t result = umf_py_buffer_end(self);
    if (result != UMF_RESULT_SUCCESS && self->has_queue) { /* that stream cannot free it */
        self->ptr = before.ptr;
        self->queue = before.queue;
        self->has_queue = before.has_queue;
    }
    return umf_py_none_or_raise(result, "memory cannot be freed");
}

/* _exchange(other): each has the memory of the other. */
static PyObject *buffer_exchange(PyObject *object, PyObject *with) {
    umf_py_buffer_t *self = (umf_py_buffer_t *)object, *other = (umf_py_buffer_t *)with;
    if (!PyObject_TypeCheck(with, umf_py_buffer_type) || self->origin != ORIGIN_POOL ||
        other->origin != ORIGIN_POOL || self->pool != other->pool) {
        PyErr_SetString(PyExc_TypeError, "it must be another Buffer of the same pool");
        return NULL;
    }
    if (!umf_py_buffer_open(self) || !umf_py_buffer_open(other) ||
        !buffer_is_idle(self, "resized") || !buffer_is_idle(other, "resized")) {
        return NULL;
    }
    umf_py_buffer_t mine = *self, theirs = *other;
#define TAKE(member) self->member = theirs.member, other->member = mine.member
    TAKE(ptr), TAKE(size), TAKE(queue), TAKE(has_queue), TAKE(ipc), TAKE(ipc_size);
#undef TAKE
    Py_RETURN_NONE;
}

static int buffer_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((umf_py_buffer_t *)object)->pool);
    return 0;
}

static void buffer_dealloc(PyObject *object) {
    umf_py_buffer_t *self = (umf_py_buffer_t *)object;
    PyObject_GC_UnTrack(object);
    umf_py_buffer_end(self);
    Py_XDECREF((PyObject *)self->pool);
    umf_py_dealloc(object);
}

/* --- exports ---------------------------------------------------------------------------------- */

bool umf_py_buffer_export(umf_py_buffer_t *self) {
    if (!umf_py_buffer_open(self)) {
        return false;
    }
    if (self->origin == ORIGIN_POOL && !self->pool->cannot_suspend) {
        umf_result_t result = umfPoolForbidSuspend(self->pool->handle);
        self->pool->cannot_suspend = result == UMF_RESULT_ERROR_NOT_SUPPORTED;
        if (result != UMF_RESULT_SUCCESS && result != UMF_RESULT_ERROR_NOT_SUPPORTED) {
            PyErr_Format(PyExc_BufferError, "the memory cannot be viewed: %s",
                         result == UMF_RESULT_ERROR_OUT_OF_RESOURCES
                             ? "its pool is suspended; resume it before"
                             : "no memory for bookkeeping");
            return false;
        }
    }
    self->exports++;
    if (self->pool) {
        self->pool->exports++;
    }
    Py_INCREF((PyObject *)self);
    return true;
}

void umf_py_buffer_unexport(umf_py_buffer_t *self) {
    self->exports--;
    if (self->pool) {
        self->pool->exports--;
    }
    if (self->origin == ORIGIN_POOL && !self->pool->cannot_suspend) {
        umfPoolAllowSuspend(self->pool->handle);
    }
    Py_DECREF((PyObject *)self);
}

/* Memory of no driver is the host's. */
static umf_py_reach_t reach_of(const void *ptr) {
    umf_memory_properties_handle_t properties;
    umf_usm_memory_type_t type = UMF_MEMORY_TYPE_UNKNOWN;
    if (umfGetMemoryPropertiesHandle(ptr, &properties) == UMF_RESULT_SUCCESS) {
        umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_POINTER_TYPE, &type, sizeof(type));
    }
    return type == UMF_MEMORY_TYPE_DEVICE ? REACH_DEVICE : REACH_HOST;
}

static bool buffer_is_host(umf_py_buffer_t *self) {
    if (self->origin == ORIGIN_FOREIGN) {
        return self->device_type == 1 || self->device_type == 3;
    }
    if (self->pool->reach == REACH_UNKNOWN) {
        self->pool->reach = reach_of(self->ptr);
    }
    return self->pool->reach == REACH_HOST;
}

static void view_fill(view_t *view, umf_py_buffer_t *self, int flags) {
    *view = (view_t){.buf = self->ptr,
                     .obj = (PyObject *)self,
                     .len = (Py_ssize_t)self->size,
                     .itemsize = 1,
                     .readonly = self->is_read_only,
                     .ndim = 1,
                     .format = flags & VIEW_FORMAT ? "B" : NULL};
    view->shape = flags & VIEW_ND ? &view->len : NULL;
    view->strides = flags & VIEW_STRIDES ? &view->itemsize : NULL;
}

static int buffer_get_view(PyObject *object, void *view, int flags) {
    umf_py_buffer_t *self = (umf_py_buffer_t *)object;
    ((view_t *)view)->obj = NULL;
    if (!umf_py_buffer_open(self)) {
        return -1;
    }
    if (!buffer_is_host(self)) {
        PyErr_SetString(PyExc_BufferError,
                        "the CPU does not reach memory of a device: copy it to the host before");
        return -1;
    }
    if (self->is_read_only && flags & VIEW_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "the memory is read-only");
        return -1;
    }
    if (!umf_py_buffer_export(self)) {
        return -1;
    }
    view_fill(view, self, flags);
    return 0;
}

/* The caller drops the reference of `obj`, which is that of the export. */
static void buffer_release_view(PyObject *object, void *view) {
    (void)view;
    Py_INCREF(object);
    umf_py_buffer_unexport((umf_py_buffer_t *)object);
}

/* --- the type --------------------------------------------------------------------------------- */

static PyObject *buffer_ptr(PyObject *object, void *unused) {
    (void)unused;
    umf_py_buffer_t *self = (umf_py_buffer_t *)object;
    return umf_py_buffer_open(self) ? PyLong_FromVoidPtr(self->ptr) : NULL;
}

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)type, (void)args, (void)kwargs;
    PyErr_SetString(PyExc_TypeError, "a Buffer comes from Pool.allocate, IPCHandle.open, "
                                     "umf.from_bytes or umf.from_dlpack");
    return NULL;
}

static PyObject *buffer_pool(PyObject *object, void *unused) {
    (void)unused;
    umf_py_pool_t *pool = ((umf_py_buffer_t *)object)->pool;
    PyObject *known = pool ? (PyObject *)pool : Py_None;
    Py_INCREF(known);
    return known;
}

static PyObject *buffer_freed(PyObject *object, void *unused) {
    (void)unused;
    umf_py_buffer_t *self = (umf_py_buffer_t *)object;
    return PyBool_FromLong(!self->ptr || (self->pool && !self->pool->handle));
}

static PyObject *buffer_origin(PyObject *object, void *unused) {
    (void)unused;
    static const char *const names[] = {"pool", "ipc", "foreign"};
    return PyUnicode_FromString(names[((umf_py_buffer_t *)object)->origin]);
}

static PyObject *buffer_read_only(PyObject *object, void *unused) {
    (void)unused;
    return PyBool_FromLong(((umf_py_buffer_t *)object)->is_read_only);
}

static PyObject *buffer_foreign_device(PyObject *object, void *unused) {
    (void)unused;
    umf_py_buffer_t *self = (umf_py_buffer_t *)object;
    return Py_BuildValue("ii", self->device_type, self->device);
}

static PyObject *buffer_stream(PyObject *object, void *unused) {
    (void)unused;
    umf_py_buffer_t *self = (umf_py_buffer_t *)object;
    if (!self->has_queue) {
        Py_RETURN_NONE;
    }
    return PyLong_FromVoidPtr(self->queue);
}

static Py_ssize_t buffer_length(PyObject *object) {
    return (Py_ssize_t)((umf_py_buffer_t *)object)->size;
}

static PyObject *buffer_nbytes(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(((umf_py_buffer_t *)object)->size);
}

static PyMethodDef buffer_methods[] = {
    {"free", (PyCFunction)(void (*)(void))buffer_free, METH_VARARGS | METH_KEYWORDS,
     "free($self, /, stream=None)\n--\n\n"
     "Gives the memory back: to its pool, to the process or to the library that it came from. Does "
     "nothing if that was done.\n\nWith a stream (its address, or an object that has "
     "cuda_stream or __cuda_stream__) the memory is free for others when the work that is queued "
     "there has passed; the same for memory that was allocated with one. Without, the caller says "
     "that no work uses it.\n\nRaises BufferError while views of it (memoryview, NumPy, "
     "DLPack) are in use, or another thread copies, fills or shares it. Runs without the GIL."},
    {"_exchange", buffer_exchange, METH_O, "_exchange($self, other, /)\n--\n\nFor the package."},
    {"tobytes", umf_py_buffer_tobytes, METH_NOARGS,
     "tobytes($self, /)\n--\n\nA copy of the bytes, wherever the memory is. Runs without the "
     "GIL."},
    {"use_on", umf_py_buffer_use_on, METH_O,
     "use_on($self, stream, /)\n--\n\nNames one more stream whose work uses the memory: its free "
     "waits "
     "for that, too."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef buffer_members[] = {
    {"ptr", buffer_ptr, NULL, "Address of the first byte; ValueError if it was freed.", NULL},
    {"nbytes", buffer_nbytes, NULL, "Requested size in bytes.", NULL},
    {"pool", buffer_pool, NULL, "The Pool; None for memory of another library.", NULL},
    {"freed", buffer_freed, NULL, "Whether it was freed, or its pool closed.", NULL},
    {"origin", buffer_origin, NULL, "'pool', 'ipc' or 'foreign'.", NULL},
    {"stream", buffer_stream, NULL,
     "Address of the stream that it is freed on; None: the host has waited then.", NULL},
    {"read_only", buffer_read_only, NULL, "Whether views of it are read-only.", NULL},
    {"_foreign_device", buffer_foreign_device, NULL, "DLPack's device of foreign memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

bool umf_py_add_buffer(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_new, (void *)buffer_new},
                                  {Py_tp_dealloc, (void *)buffer_dealloc},
                                  {Py_tp_traverse, (void *)buffer_traverse},
                                  {Py_tp_iter, (void *)umf_py_buffer_iter},
                                  {Py_tp_methods, buffer_methods},
                                  {Py_tp_getset, buffer_members},
                                  {Py_sq_length, (void *)buffer_length},
                                  {Py_mp_length, (void *)buffer_length},
                                  {Py_mp_subscript, (void *)umf_py_buffer_item},
                                  {Py_mp_ass_subscript, (void *)umf_py_buffer_set_item},
                                  {SLOT_GET_BUFFER, (void *)buffer_get_view},
                                  {SLOT_RELEASE_BUFFER, (void *)buffer_release_view},
                                  {Py_tp_doc, "Memory."},
                                  {0, NULL}};
    static PyType_Spec spec = {"umf._core.Buffer", sizeof(umf_py_buffer_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               slots};
    return umf_py_add_type(module, &spec, "Buffer", &umf_py_buffer_type);
}
