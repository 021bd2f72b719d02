/* umf._core.Region and Hold: memory that can go, and a count of its views. */
#include "core.h"
#include "view.h"

typedef struct hold_t {
    PyObject_HEAD struct hold_t *outer; /* of the vault; NULL: it is that */
    PyObject *uses; /* of the object that has the memory: open until the last region */
    Py_ssize_t exports;
    bool is_over;
} hold_t;

typedef struct region_t {
    PyObject_HEAD hold_t *hold;
    void *ptr;
    Py_ssize_t size;
    int is_writable;
} region_t;

static PyTypeObject *hold_type, *region_type;

static bool hold_is_over(const hold_t *hold) {
    return hold->is_over || (hold->outer && hold->outer->is_over);
}

/* Hold(outer or None, Uses) */
static PyObject *hold_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *outer, *uses;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OO:Hold", &outer, &uses) ||
        (outer != Py_None && !umf_py_check(outer, hold_type, "Hold or None"))) {
        return NULL;
    }
    hold_t *self = umf_py_alloc(type);
    if (!self) {
        return NULL;
    }
    Py_INCREF(uses);
    self->uses = uses;
    if (outer != Py_None) {
        Py_INCREF(outer);
        self->outer = (hold_t *)outer;
    }
    return (PyObject *)self;
}

static void hold_dealloc(PyObject *object) {
    Py_XDECREF((PyObject *)((hold_t *)object)->outer);
    Py_XDECREF(((hold_t *)object)->uses);
    umf_py_dealloc(object);
}

/* end(what): no view can be taken any more. BufferError if there are some. */
static PyObject *hold_end(PyObject *object, PyObject *what) {
    hold_t *self = (hold_t *)object;
    if (self->exports > 0) {
        return PyErr_Format(PyExc_BufferError,
                            "the memory has %zd views in use: release them before it is %U",
                            self->exports, what);
    }
    self->is_over = true;
    Py_RETURN_NONE;
}

/* Region(hold, address, size, is it writable?) */
static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *hold, *number;
    Py_ssize_t size;
    int is_writable;
    void *ptr;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!Onp:Region", hold_type, &hold, &number, &size, &is_writable) ||
        !umf_py_address(number, &ptr)) {
        return NULL;
    }
    region_t *self = umf_py_alloc(type);
    if (self) {
        Py_INCREF(hold);
        self->hold = (hold_t *)hold;
        self->ptr = ptr;
        self->size = size;
        self->is_writable = is_writable;
    }
    return (PyObject *)self;
}

static void region_dealloc(PyObject *object) {
    Py_XDECREF((PyObject *)((region_t *)object)->hold);
    umf_py_dealloc(object);
}

static bool region_is_open(const region_t *self) {
    if (hold_is_over(self->hold)) {
        PyErr_SetString(PyExc_ValueError, "the draft or view of this memory has ended");
        return false;
    }
    return true;
}

static void exports_add(hold_t *hold, Py_ssize_t count) {
    hold->exports += count;
    if (hold->outer) {
        hold->outer->exports += count;
    }
}

static int region_get_view(PyObject *object, void *view, int flags) {
    region_t *self = (region_t *)object;
    ((view_t *)view)->obj = NULL;
    if (!region_is_open(self) ||
        PyBuffer_FillInfo(view, object, self->ptr, self->size, !self->is_writable, flags) < 0) {
        return -1;
    }
    exports_add(self->hold, 1);
    return 0;
}

static void region_release_view(PyObject *object, void *view) {
    (void)view;
    exports_add(((region_t *)object)->hold, -1);
}

bool umf_py_region_export(PyObject *object, umf_py_region_view_t *view) {
    if (!PyObject_TypeCheck(object, region_type)) {
        PyErr_SetString(PyExc_TypeError, "not a Region");
        return false;
    }
    region_t *self = (region_t *)object;
    if (!region_is_open(self)) {
        return false;
    }
    *view = (umf_py_region_view_t){self->ptr, self->size, !self->is_writable};
    exports_add(self->hold, 1);
    Py_INCREF(object);
    return true;
}

void umf_py_region_unexport(PyObject *object) {
    exports_add(((region_t *)object)->hold, -1);
    Py_DECREF(object);
}

static Py_ssize_t region_length(PyObject *object) {
    return ((region_t *)object)->size;
}

static PyObject *region_ptr(PyObject *object, void *unused) {
    region_t *self = (region_t *)object;
    (void)unused;
    return region_is_open(self) ? PyLong_FromVoidPtr(self->ptr) : NULL;
}

static PyObject *region_nbytes(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromSsize_t(((region_t *)object)->size);
}

bool umf_py_add_region(PyObject *module) {
    static PyMethodDef hold_methods[] = {{"end", hold_end, METH_O, NULL}, {NULL, NULL, 0, NULL}};
    static PyType_Slot hold_slots[] = {{Py_tp_new, (void *)hold_new},
                                       {Py_tp_dealloc, (void *)hold_dealloc},
                                       {Py_tp_methods, hold_methods},
                                       {0, NULL}};
    static PyType_Spec hold_spec = {"umf._core.Hold", sizeof(hold_t), 0, Py_TPFLAGS_DEFAULT,
                                    hold_slots};
    static PyGetSetDef region_members[] = {{"ptr", region_ptr, NULL, "The address.", NULL},
                                           {"nbytes", region_nbytes, NULL, "Bytes.", NULL},
                                           {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot region_slots[] = {{Py_tp_new, (void *)region_new},
                                         {Py_tp_dealloc, (void *)region_dealloc},
                                         {Py_tp_getset, region_members},
                                         {Py_sq_length, (void *)region_length},
                                         {SLOT_GET_BUFFER, (void *)region_get_view},
                                         {SLOT_RELEASE_BUFFER, (void *)region_release_view},
                                         {0, NULL}};
    static PyType_Spec region_spec = {"umf._core.Region", sizeof(region_t), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, region_slots};
    return umf_py_add_type(module, &hold_spec, "Hold", &hold_type) &&
           umf_py_add_type(module, &region_spec, "Region", &region_type);
}
