/* umf._core.Region and Hold: memory that can go, and a count of its views. */
#include "core.h"
#include "view.h"

typedef struct hold_t {
    PyObject_HEAD struct hold_t *outer; /* of the vault; NULL: it is that */
    PyObject *uses; /* of the object that has the memory: open until the last region */
    Py_ssize_t exports;
    bool is_over;
    bool is_away;     /* the memory is suspended */
    bool is_own;      /* a child of fork does not have it */
    unsigned process; /* that has it */
} hold_t;

typedef struct region_t {
    PyObject_HEAD hold_t *hold;
    void *ptr;
    Py_ssize_t size;
    int is_writable;
    int device;     /* number of the GPU; -1: memory of the host */
    bool is_pinned; /* it counts as a view of itself */
} region_t;

static PyTypeObject *hold_type, *region_type;

static bool hold_is_over(const hold_t *hold) {
    return hold->is_over || (hold->outer && hold->outer->is_over);
}

/* Hold(outer or None, Uses, is it kept from children of fork?) */
static PyObject *hold_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *outer, *uses;
    int is_own = 0;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OO|p:Hold", &outer, &uses, &is_own) ||
        (outer != Py_None && !umf_py_check(outer, hold_type, "Hold or None"))) {
        return NULL;
    }
    hold_t *self = umf_py_alloc(type);
    if (!self) {
        return NULL;
    }
    Py_INCREF(uses);
    self->uses = uses;
    self->is_own = is_own;
    self->process = umf_py_process();
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

/* leave(is it allowed while there are views?): the memory goes, and comes back by `back`. */
static PyObject *hold_leave(PyObject *object, PyObject *is_allowed) {
    hold_t *self = (hold_t *)object;
    int allowed = PyObject_IsTrue(is_allowed);
    if (allowed < 0) {
        return NULL;
    }
    if (self->exports > 0 && !allowed) {
        return PyErr_Format(PyExc_BufferError,
                            "the memory has %zd views in use: release them, or call it with "
                            "in_use=True and do not touch them meanwhile",
                            self->exports);
    }
    self->is_away = true;
    Py_RETURN_NONE;
}

/* back(function, *args): the function brings the memory back, and its result is that of this call.
 * No handler of a signal runs between the two. */
static PyObject *hold_back(PyObject *object, PyObject *args) {
    PyObject *function = PyTuple_GetItem(args, 0);
    PyObject *rest = function ? PyTuple_GetSlice(args, 1, PyTuple_Size(args)) : NULL;
    PyObject *result = rest ? PyObject_CallObject(function, rest) : NULL;
    Py_XDECREF(rest);
    if (result) {
        ((hold_t *)object)->is_away = false;
    }
    return result;
}

/* The end has failed. */
static PyObject *hold_reopen(PyObject *object, PyObject *unused) {
    (void)unused;
    ((hold_t *)object)->is_over = false;
    Py_RETURN_NONE;
}

static PyObject *hold_is_away(PyObject *object, void *unused) {
    (void)unused;
    return PyBool_FromLong(((hold_t *)object)->is_away);
}

/* Region(hold, address, size, is it writable?, device or -1) */
static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *hold, *number;
    Py_ssize_t size;
    int is_writable, device;
    void *ptr;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!Onpi:Region", hold_type, &hold, &number, &size, &is_writable,
                          &device) ||
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
        self->device = device;
    }
    return (PyObject *)self;
}

static void exports_add(hold_t *hold, Py_ssize_t count) {
    hold->exports += count;
    if (hold->outer) {
        hold->outer->exports += count;
    }
}

static void region_dealloc(PyObject *object) {
    region_t *self = (region_t *)object;
    if (self->is_pinned) {
        exports_add(self->hold, -1);
    }
    Py_XDECREF((PyObject *)((region_t *)object)->hold);
    umf_py_dealloc(object);
}

static bool region_is_open(const region_t *self) {
    if (hold_is_over(self->hold)) {
        PyErr_SetString(PyExc_ValueError, "the draft, view or claim of this memory has ended");
        return false;
    }
    if (self->hold->is_own && self->hold->process != umf_py_process()) {
        PyErr_SetString(PyExc_ValueError, "the memory is that of the parent process");
        return false;
    }
    return true;
}

/* Whether a view of it can be taken. */
static bool region_is_there(const region_t *self) {
    if (!region_is_open(self)) {
        return false;
    }
    if (!self->ptr || self->hold->is_away) {
        PyErr_SetString(PyExc_BufferError,
                        self->ptr ? "the view is suspended: resume it before"
                                  : "the memory is not mapped: attach with devices=\"cuda\"");
        return false;
    }
    return true;
}

/* For those to whom the address is given: the region is a view from here on. */
static PyObject *region_pin(PyObject *object, PyObject *unused) {
    region_t *self = (region_t *)object;
    (void)unused;
    if (!region_is_there(self)) {
        return NULL;
    }
    exports_add(self->hold, self->is_pinned ? 0 : 1);
    self->is_pinned = true;
    Py_RETURN_NONE;
}

static int region_get_view(PyObject *object, void *view, int flags) {
    region_t *self = (region_t *)object;
    ((view_t *)view)->obj = NULL;
    if (!region_is_there(self)) {
        return -1;
    }
    if (self->device >= 0) {
        PyErr_Format(PyExc_BufferError,
                     "the memory is of GPU %d, which the CPU does not reach: use umf.copy, torch() "
                     "or DLPack",
                     self->device);
        return -1;
    }
    if (PyBuffer_FillInfo(view, object, self->ptr, self->size, !self->is_writable, flags) < 0) {
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
    if (!region_is_there(self)) {
        return false;
    }
    *view = (umf_py_region_view_t){self->ptr, self->size, self->device, !self->is_writable};
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

static PyObject *region_device(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromLong(((region_t *)object)->device);
}

bool umf_py_add_region(PyObject *module) {
    static PyMethodDef hold_methods[] = {{"end", hold_end, METH_O, NULL},
                                         {"leave", hold_leave, METH_O, NULL},
                                         {"back", hold_back, METH_VARARGS, NULL},
                                         {"reopen", hold_reopen, METH_NOARGS, NULL},
                                         {NULL, NULL, 0, NULL}};
    static PyGetSetDef hold_members[] = {{"is_away", hold_is_away, NULL, NULL, NULL},
                                         {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot hold_slots[] = {{Py_tp_new, (void *)hold_new},
                                       {Py_tp_dealloc, (void *)hold_dealloc},
                                       {Py_tp_methods, hold_methods},
                                       {Py_tp_getset, hold_members},
                                       {0, NULL}};
    static PyType_Spec hold_spec = {"umf._core.Hold", sizeof(hold_t), 0, Py_TPFLAGS_DEFAULT,
                                    hold_slots};
    static PyMethodDef region_methods[] = {{"pin", region_pin, METH_NOARGS, NULL},
                                           {NULL, NULL, 0, NULL}};
    static PyGetSetDef region_members[] = {
        {"ptr", region_ptr, NULL, "The address.", NULL},
        {"nbytes", region_nbytes, NULL, "Bytes.", NULL},
        {"device", region_device, NULL, "Number of the GPU; -1: memory of the host.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot region_slots[] = {{Py_tp_new, (void *)region_new},
                                         {Py_tp_dealloc, (void *)region_dealloc},
                                         {Py_tp_methods, region_methods},
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
