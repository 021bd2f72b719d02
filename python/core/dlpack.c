/* DLPack: memory to and from other libraries. Buffers are rows of bytes, entries of a vault are
 * tensors. */
#include "core.h"

#include <string.h>

/* As DLPack 1.0 lays them out. */
typedef struct dl_tensor_t {
    void *data;
    struct {
        int32_t type;
        int32_t id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code;
        uint8_t bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} dl_tensor_t;

typedef struct dl_managed_t {
    dl_tensor_t tensor;
    void *context;
    void (*deleter)(struct dl_managed_t *self);
} dl_managed_t;

typedef struct dl_versioned_t {
    struct {
        uint32_t major;
        uint32_t minor;
    } version;
    void *context;
    void (*deleter)(struct dl_versioned_t *self);
    uint64_t flags;
    dl_tensor_t tensor;
} dl_versioned_t;

enum {
    DL_CPU = 1,
    DL_CUDA = 2,
    DL_UINT = 1,
    DL_READ_ONLY = 1,
    DL_MAJOR = 1,
    DL_MINOR = 0,
    DL_DIMENSIONS = 64
};

#define NAME "dltensor"
#define NAME_VERSIONED "dltensor_versioned"

/* --- export ----------------------------------------------------------------------------------- */

/* Target of a capsule; `context` of the managed tensor leads back here. */
typedef struct exported_t {
    union {
        dl_managed_t plain;
        dl_versioned_t versioned;
    } as;
    PyObject *owner; /* its export, which `release` ends */
    void (*release)(PyObject *owner);
    int64_t numbers[]; /* lengths, then strides */
} exported_t;

/* Any thread of the consumer may call it, also after the interpreter has ended. */
static void exported_delete(exported_t *exported) {
    if (!Py_IsInitialized()) {
        return;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    exported->release(exported->owner);
    PyMem_Free(exported);
    PyGILState_Release(state);
}

static void plain_deleter(dl_managed_t *self) {
    exported_delete(self->context);
}

static void versioned_deleter(dl_versioned_t *self) {
    exported_delete(self->context);
}

/* A consumer has renamed the capsule, and calls the deleter itself. */
static void capsule_destructor(PyObject *capsule) {
    exported_t *exported = NULL;
    if (PyCapsule_IsValid(capsule, NAME)) {
        exported = PyCapsule_GetPointer(capsule, NAME);
    } else if (PyCapsule_IsValid(capsule, NAME_VERSIONED)) {
        exported = PyCapsule_GetPointer(capsule, NAME_VERSIONED);
    }
    if (exported) {
        exported_delete(exported);
    }
}

/* A capsule of a tensor whose lengths are set. The owner's export is the capsule's, also after a
 * failure. */
static PyObject *capsule_of(exported_t *exported, dl_tensor_t tensor, bool is_versioned,
                            bool is_read_only) {
    int64_t stride = 1;
    tensor.shape = exported->numbers;
    tensor.strides = exported->numbers + tensor.ndim;
    for (int32_t i = tensor.ndim; i-- > 0;) {
        tensor.strides[i] = stride;
        stride *= tensor.shape[i] ? tensor.shape[i] : 1;
    }
    if (is_versioned) {
        exported->as.versioned = (dl_versioned_t){.version = {DL_MAJOR, DL_MINOR},
                                                  .context = exported,
                                                  .deleter = versioned_deleter,
                                                  .flags = is_read_only ? DL_READ_ONLY : 0,
                                                  .tensor = tensor};
    } else {
        exported->as.plain =
            (dl_managed_t){.context = exported, .deleter = plain_deleter, .tensor = tensor};
    }
    PyObject *capsule =
        PyCapsule_New(exported, is_versioned ? NAME_VERSIONED : NAME, capsule_destructor);
    if (!capsule) {
        exported_delete(exported);
    }
    return capsule;
}

static void release_buffer(PyObject *buffer) {
    umf_py_buffer_unexport((umf_py_buffer_t *)buffer);
}

/* dlpack_export(buffer, device type, device, versioned) -> capsule */
static PyObject *dlpack_export(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *object;
    int type, id, is_versioned;
    if (!PyArg_ParseTuple(args, "O!iip:dlpack_export", umf_py_buffer_type, &object, &type, &id,
                          &is_versioned)) {
        return NULL;
    }
    umf_py_buffer_t *buffer = (umf_py_buffer_t *)object;
    if (buffer->is_read_only && !is_versioned) {
        PyErr_SetString(PyExc_BufferError,
                        "the memory is read-only, which only versioned DLPack can say");
        return NULL;
    }
    exported_t *exported = PyMem_Calloc(1, sizeof(*exported) + 2 * sizeof(int64_t));
    if (!exported) {
        return PyErr_NoMemory();
    }
    if (!umf_py_buffer_export(buffer)) {
        PyMem_Free(exported);
        return NULL;
    }
    exported->owner = object;
    exported->release = release_buffer;
    exported->numbers[0] = (int64_t)buffer->size;
    return capsule_of(
        exported,
        (dl_tensor_t){
            .data = buffer->ptr, .device = {type, id}, .ndim = 1, .dtype = {DL_UINT, 8, 1}},
        is_versioned, buffer->is_read_only);
}

/* The lengths of a shape, whose elements have `bytes`. false: an exception is set. */
static bool read_shape(PyObject *shape, Py_ssize_t bytes, Py_ssize_t room, int64_t *lengths) {
    Py_ssize_t needed = bytes;
    bool fits = true, is_empty = false;
    for (Py_ssize_t i = 0; i < PyTuple_Size(shape) && fits; i++) {
        lengths[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (PyErr_Occurred()) {
            return false;
        }
        is_empty = is_empty || lengths[i] == 0;
        Py_ssize_t length = lengths[i] ? (Py_ssize_t)lengths[i] : 1; /* strides must fit, too */
        fits = length > 0 && !__builtin_mul_overflow(needed, length, &needed);
    }
    if (!fits || (needed > room && !is_empty)) {
        PyErr_SetString(PyExc_BufferError, "the tensor is larger than its memory");
        return false;
    }
    return true;
}

/* dlpack_region(region, type code, bytes of an element, shape, versioned) -> capsule */
static PyObject *dlpack_region(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *region, *shape;
    umf_py_region_view_t view;
    int code, bytes, is_versioned;
    if (!PyArg_ParseTuple(args, "OiiO!p:dlpack_region", &region, &code, &bytes, &PyTuple_Type,
                          &shape, &is_versioned)) {
        return NULL;
    }
    Py_ssize_t dimensions = PyTuple_Size(shape);
    if (code < 0 || code > UINT8_MAX || bytes < 1 || bytes > 31 || dimensions > DL_DIMENSIONS) {
        PyErr_SetString(PyExc_ValueError, "no type and shape of a tensor");
        return NULL;
    }
    exported_t *exported =
        PyMem_Calloc(1, sizeof(*exported) + 2 * (size_t)dimensions * sizeof(int64_t));
    if (!exported) {
        return PyErr_NoMemory();
    }
    if (!umf_py_region_export(region, &view)) {
        PyMem_Free(exported);
        return NULL;
    }
    exported->owner = region;
    exported->release = umf_py_region_unexport;
    if (!read_shape(shape, bytes, view.size, exported->numbers)) {
        umf_py_region_unexport(region);
        PyMem_Free(exported);
        return NULL;
    }
    return capsule_of(exported,
                      (dl_tensor_t){.data = view.ptr,
                                    .device = {view.device < 0 ? DL_CPU : DL_CUDA,
                                               view.device < 0 ? 0 : view.device},
                                    .ndim = (int32_t)dimensions,
                                    .dtype = {(uint8_t)code, (uint8_t)(bytes * 8), 1}},
                      is_versioned, view.is_read_only);
}

/* --- import ----------------------------------------------------------------------------------- */

static bool tensor_is_contiguous(const dl_tensor_t *tensor) {
    int64_t expected = 1;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->strides && tensor->shape[i] != 1 && tensor->strides[i] != expected) {
            return false;
        }
        expected *= tensor->shape[i];
    }
    return true;
}

/* -1: the lengths are none, or too many bytes. */
static Py_ssize_t tensor_bytes(const dl_tensor_t *tensor) {
    Py_ssize_t bytes = (tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0 ||
            __builtin_mul_overflow(bytes, (Py_ssize_t)tensor->shape[i], &bytes)) {
            return -1;
        }
    }
    return bytes;
}

static umf_py_buffer_t *import_tensor(PyTypeObject *type, const dl_tensor_t *tensor) {
    Py_ssize_t size = tensor_bytes(tensor);
    if (size <= 0) {
        PyErr_SetString(PyExc_BufferError, size ? "the shape of the tensor is no shape"
                                                : "an empty tensor has no memory");
        return NULL;
    }
    if (!tensor_is_contiguous(tensor)) {
        PyErr_SetString(PyExc_BufferError, "only contiguous tensors are rows of bytes");
        return NULL;
    }
    umf_py_buffer_t *made = umf_py_buffer_new(
        type, NULL, (char *)tensor->data + tensor->byte_offset, (size_t)size, ORIGIN_FOREIGN);
    if (made) {
        made->device_type = tensor->device.type;
        made->device = tensor->device.id;
    }
    return made;
}

static umf_py_buffer_t *import_versioned(PyTypeObject *type, PyObject *capsule) {
    dl_versioned_t *managed = PyCapsule_GetPointer(capsule, NAME_VERSIONED);
    if (managed->version.major != DL_MAJOR) {
        PyErr_Format(PyExc_BufferError, "DLPack version %u is not known, %d is",
                     managed->version.major, DL_MAJOR);
        return NULL;
    }
    umf_py_buffer_t *made = import_tensor(type, &managed->tensor);
    if (made) {
        made->managed = managed;
        made->is_versioned = true;
        made->is_read_only = managed->flags & DL_READ_ONLY;
        PyCapsule_SetName(capsule, "used_" NAME_VERSIONED);
    }
    return made;
}

static umf_py_buffer_t *import_plain(PyTypeObject *type, PyObject *capsule) {
    dl_managed_t *managed = PyCapsule_GetPointer(capsule, NAME);
    umf_py_buffer_t *made = import_tensor(type, &managed->tensor);
    if (made) {
        made->managed = managed;
        PyCapsule_SetName(capsule, "used_" NAME);
    }
    return made;
}

/* dlpack_import(class of the buffer, capsule) -> buffer */
static PyObject *dlpack_import(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *type, *capsule;
    if (!PyArg_ParseTuple(args, "OO:dlpack_import", &type, &capsule)) {
        return NULL;
    }
    if (!umf_py_is_buffer_type(type)) {
        PyErr_SetString(PyExc_TypeError, "the class must be a subclass of Buffer");
        return NULL;
    }
    if (!PyCapsule_IsValid(capsule, NAME_VERSIONED) && !PyCapsule_IsValid(capsule, NAME)) {
        PyErr_Format(PyExc_TypeError,
                     "__dlpack__ must return a capsule '" NAME "' or '" NAME_VERSIONED
                     "' that nobody has used, not %R",
                     capsule);
        return NULL;
    }
    umf_py_buffer_t *made = PyCapsule_IsValid(capsule, NAME_VERSIONED)
                                ? import_versioned((PyTypeObject *)type, capsule)
                                : import_plain((PyTypeObject *)type, capsule);
    return (PyObject *)made;
}

/* dlpack_about(capsule) -> (type code, bits of an element, lanes, shape); the capsule stays unused
 */
static PyObject *dlpack_about(PyObject *module, PyObject *capsule) {
    (void)module;
    const dl_tensor_t *tensor = NULL;
    if (PyCapsule_IsValid(capsule, NAME_VERSIONED)) {
        const dl_versioned_t *managed = PyCapsule_GetPointer(capsule, NAME_VERSIONED);
        tensor = managed->version.major == DL_MAJOR ? &managed->tensor : NULL;
    } else if (PyCapsule_IsValid(capsule, NAME)) {
        tensor = &((dl_managed_t *)PyCapsule_GetPointer(capsule, NAME))->tensor;
    }
    if (!tensor || tensor->ndim < 0 || tensor->ndim > DL_DIMENSIONS) {
        PyErr_SetString(PyExc_BufferError, "__dlpack__ returns no tensor of DLPack 1");
        return NULL;
    }
    PyObject *shape = PyTuple_New(tensor->ndim);
    for (int32_t i = 0; shape && i < tensor->ndim; i++) {
        PyObject *length = PyLong_FromLongLong(tensor->shape[i]);
        if (!length) {
            Py_DECREF(shape);
            return NULL;
        }
        PyTuple_SetItem(shape, i, length);
    }
    return shape ? Py_BuildValue("iiiN", (int)tensor->dtype.code, (int)tensor->dtype.bits,
                                 (int)tensor->dtype.lanes, shape)
                 : NULL;
}

void umf_py_dlpack_end(umf_py_buffer_t *buffer) {
    if (buffer->is_versioned) {
        dl_versioned_t *managed = buffer->managed;
        if (managed->deleter) {
            managed->deleter(managed);
        }
    } else {
        dl_managed_t *managed = buffer->managed;
        if (managed->deleter) {
            managed->deleter(managed);
        }
    }
}

PyMethodDef umf_py_dlpack_functions[] = {
    {"dlpack_export", dlpack_export, METH_VARARGS,
     "dlpack_export(buffer, type, device, versioned, /)\n--\n\nA capsule of a buffer."},
    {"dlpack_region", dlpack_region, METH_VARARGS,
     "dlpack_region(region, code, itemsize, shape, versioned, /)\n--\n\nA capsule of a region."},
    {"dlpack_about", dlpack_about, METH_O,
     "dlpack_about(capsule, /)\n--\n\nType and shape of a tensor."},
    {"dlpack_import", dlpack_import, METH_VARARGS,
     "dlpack_import(kind, capsule, /)\n--\n\nA buffer of a capsule."},
    {NULL, NULL, 0, NULL}};
