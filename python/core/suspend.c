/* Suspend and resume, and jobs that do so in the background. */
#include "core.h"

PyTypeObject *umf_py_job_type;

/* Pools by handle, and what is waited for. */
typedef struct call_t {
    umf_memory_pool_handle_t *pools;
    size_t count;
    umf_suspend_params_t params;
    bool is_resume;
} call_t;

/* --- arguments -------------------------------------------------------------------------------- */

/* An array of the addresses in a tuple; NULL and no exception if it is empty. */
static bool addresses(PyObject *tuple, void ***made, size_t *count) {
    Py_ssize_t length = PyTuple_Size(tuple);
    *made = NULL;
    if (length <= 0) {
        return length == 0;
    }
    *made = PyMem_Calloc((size_t)length, sizeof(void *));
    if (!*made) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        (*made)[i] = PyLong_AsVoidPtr(PyTuple_GetItem(tuple, i));
        if (!(*made)[i] && PyErr_Occurred()) {
            PyMem_Free(*made);
            *made = NULL;
            return false;
        }
    }
    *count = (size_t)length;
    return true;
}

static void call_end(call_t *call) {
    PyMem_Free(call->pools);
    PyMem_Free((void *)call->params.queues);
    PyMem_Free((void *)call->params.events);
}

/* (handles of pools, queues, events, is_resume) */
static bool call_begin(call_t *call, PyObject *args) {
    PyObject *pools, *queues, *events;
    int is_resume;
    *call = (call_t){.params = UMF_SUSPEND_PARAMS_INIT};
    if (!PyArg_ParseTuple(args, "O!O!O!p", &PyTuple_Type, &pools, &PyTuple_Type, &queues,
                          &PyTuple_Type, &events, &is_resume)) {
        return false;
    }
    call->is_resume = is_resume;
    if (addresses(pools, (void ***)&call->pools, &call->count) &&
        addresses(queues, (void ***)&call->params.queues, &call->params.num_queues) &&
        addresses(events, (void ***)&call->params.events, &call->params.num_events)) {
        return true;
    }
    call_end(call);
    return false;
}

/* Without queues and events everything is waited for. */
static const umf_suspend_params_t *call_params(const call_t *call) {
    return call->params.queues || call->params.events ? &call->params : NULL;
}

#define NO_VIRTUAL_MEMORY                                                                          \
    {                                                                                              \
        UMF_RESULT_ERROR_NOT_SUPPORTED, "the provider of a pool has no virtual memory, as "        \
                                        "linux_vmm, cuda_vmm and level_zero_vmm "                  \
                                        "have"                                                     \
    }

static const umf_py_why_t no_suspend[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES,
     "views of a pool's memory are in use (memoryview, NumPy, DLPack), forbid_suspend forbids it, "
     "a "
     "stream is captured, or another call is at work: end that before"},
    {UMF_RESULT_ERROR_INVALID_ARGUMENT,
     "there is no pool, or the folder of its policy cannot be written to"},
    NO_VIRTUAL_MEMORY,
    {UMF_RESULT_SUCCESS, NULL}};
static const umf_py_why_t no_resume[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES,
     "a stream is captured, or another call is at work: try again after it"},
    {UMF_RESULT_ERROR_INVALID_ARGUMENT, "there is no pool"},
    NO_VIRTUAL_MEMORY,
    {UMF_RESULT_SUCCESS, NULL}};

static PyObject *report_or_raise(umf_result_t result, const umf_suspend_report_t *report,
                                 bool is_resume) {
    if (result != UMF_RESULT_SUCCESS) {
        return is_resume
                   ? umf_py_raise_why(result, "pools cannot be resumed", no_resume, report->missing)
                   : umf_py_raise_why(result, "pools cannot be suspended", no_suspend,
                                      report->missing);
    }
    return Py_BuildValue("nnnnn", (Py_ssize_t)report->bytes, (Py_ssize_t)report->kept,
                         (Py_ssize_t)report->shared, (Py_ssize_t)report->exported,
                         (Py_ssize_t)report->missing);
}

/* --- now -------------------------------------------------------------------------------------- */

static PyObject *suspend_move(PyObject *module, PyObject *args) {
    (void)module;
    call_t call;
    if (!call_begin(&call, args)) {
        return NULL;
    }
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = call.is_resume ? umfPoolsResume(call.pools, call.count, call_params(&call), &report)
                            : umfPoolsSuspend(call.pools, call.count, call_params(&call), &report);
    Py_END_ALLOW_THREADS;
    call_end(&call);
    return report_or_raise(result, &report, call.is_resume);
}

/* --- in the background ------------------------------------------------------------------------ */

typedef struct job_t {
    PyObject ob_base;
    umf_suspend_job_handle_t handle; /* NULL once somebody waits for it, or has */
    bool is_resume;
    PyObject *pools; /* kept alive until it is done */
} job_t;

/* Job(handles, queues, events, is_resume, the pools) */
static PyObject *job_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs; /* the constructor of a subclass takes them */
    call_t call;
    PyObject *first = PyTuple_GetSlice(args, 0, 4), *pools = PyTuple_GetItem(args, 4);
    bool is_right = first && pools && call_begin(&call, first);
    Py_XDECREF(first);
    if (!is_right) {
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    job_t *self = (job_t *)alloc(type, 0);
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (self) {
        self->is_resume = call.is_resume;
        Py_INCREF(pools);
        self->pools = pools;
        result =
            call.is_resume
                ? umfPoolsResumeAsync(call.pools, call.count, call_params(&call), &self->handle)
                : umfPoolsSuspendAsync(call.pools, call.count, call_params(&call), &self->handle);
    }
    call_end(&call);
    if (self && result != UMF_RESULT_SUCCESS) {
        Py_DECREF((PyObject *)self);
        return umf_py_raise(result, "a job cannot be started", NULL, 0);
    }
    return (PyObject *)self;
}

static PyObject *job_done(PyObject *object, PyObject *unused) {
    (void)unused;
    job_t *self = (job_t *)object;
    int is_done = 1;
    if (self->handle) {
        umfSuspendJobQuery(self->handle, &is_done);
    }
    return PyBool_FromLong(is_done);
}

/* Of several threads that wait, one gets the report: the package hands it to all. */
static PyObject *job_wait(PyObject *object, PyObject *unused) {
    (void)unused;
    job_t *self = (job_t *)object;
    umf_suspend_job_handle_t handle = self->handle;
    self->handle = NULL;
    if (!handle) {
        PyErr_SetString(PyExc_ValueError, "the job was waited for before");
        return NULL;
    }
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfSuspendJobWait(handle, &report);
    Py_END_ALLOW_THREADS;
    return report_or_raise(result, &report, self->is_resume);
}

static void job_dealloc(PyObject *object) {
    job_t *self = (job_t *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->handle) {
        Py_BEGIN_ALLOW_THREADS;
        umfSuspendJobWait(self->handle, NULL);
        Py_END_ALLOW_THREADS;
    }
    Py_XDECREF(self->pools);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef job_methods[] = {
    {"done", job_done, METH_NOARGS, "Whether it is done, well or not. Does not wait."},
    {"_wait", job_wait, METH_NOARGS, "Waits once."},
    {NULL, NULL, 0, NULL}};

bool umf_py_add_job(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_new, (void *)job_new},
                                  {Py_tp_dealloc, (void *)job_dealloc},
                                  {Py_tp_methods, job_methods},
                                  {Py_tp_doc, "A suspend or resume in the background."},
                                  {0, NULL}};
    static PyType_Spec spec = {"umf._core.Job", sizeof(job_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    return umf_py_add_type(module, &spec, "Job", &umf_py_job_type);
}

/* --- of one pool ------------------------------------------------------------------------------ */

static const umf_py_why_t no_policy[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES, "the pool is suspended: resume it before"},
    {UMF_RESULT_ERROR_INVALID_ARGUMENT, "'file' needs a folder, and 'peer' a device"},
    {UMF_RESULT_ERROR_NOT_SUPPORTED,
     "the provider of the pool has no virtual memory, or cannot keep content so"},
    {UMF_RESULT_SUCCESS, NULL}};

/* (pool, keep, folder or None, device) */
static PyObject *suspend_set_policy(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pool;
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    int keep;
    if (!PyArg_ParseTuple(args, "O!izi", umf_py_pool_type, &pool, &keep, &policy.folder,
                          &policy.device)) {
        return NULL;
    }
    policy.keep = (umf_suspend_keep_t)keep;
    umf_memory_pool_handle_t handle = umf_py_pool_open((umf_py_pool_t *)pool);
    return handle ? umf_py_none_or_why(umfPoolSetSuspendPolicy(handle, &policy),
                                       "the policy cannot be set", no_policy)
                  : NULL;
}

static PyObject *suspend_residency(PyObject *module, PyObject *pool) {
    (void)module;
    umf_residency_t now = UMF_RESIDENCY_INIT;
    umf_memory_pool_handle_t handle = umf_py_pool_open((umf_py_pool_t *)pool);
    if (!handle) {
        return NULL;
    }
    umf_result_t result = umfPoolGetResidency(handle, &now);
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise(result, "the residency is not known", NULL, 0);
    }
    return Py_BuildValue("innnnnn", (int)now.state, (Py_ssize_t)now.reserved,
                         (Py_ssize_t)now.resident, (Py_ssize_t)now.pinned, (Py_ssize_t)now.host,
                         (Py_ssize_t)now.file, (Py_ssize_t)now.peer);
}

static PyObject *suspend_trim(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfSuspendTrim();
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_raise(result, "pinned memory cannot be given back");
}

PyMethodDef umf_py_suspend_functions[] = {
    {"move", suspend_move, METH_VARARGS, "Suspends or resumes."},
    {"set_policy", suspend_set_policy, METH_VARARGS, "What becomes of the content of a pool."},
    {"residency", suspend_residency, METH_O, "Where the memory of a pool is."},
    {"suspend_trim", suspend_trim, METH_NOARGS,
     "Gives back pinned memory of the host that is held ready for the next suspend."},
    {NULL, NULL, 0, NULL}};
