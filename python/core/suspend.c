/* Suspend and resume, and jobs that do so in the background. */
#include "core.h"

PyTypeObject *umf_py_job_type;

/* The arguments of a call. */
typedef struct call_t {
    PyObject *objects; /* borrowed: a tuple of Pool, or of addresses of pools */
    umf_memory_pool_handle_t *pools;
    size_t count;
    umf_suspend_params_t params;
    bool is_resume;
} call_t;

/* --- arguments -------------------------------------------------------------------------------- */

/* An array for the items of a tuple; NULL and no exception if it is empty. */
static bool array_of(PyObject *tuple, void ***made, size_t *count) {
    Py_ssize_t length = PyTuple_Size(tuple);
    *count = (size_t)length;
    *made = length ? PyMem_Calloc((size_t)length, sizeof(void *)) : NULL;
    if (length && !*made) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

static bool addresses(PyObject *tuple, void ***made, size_t *count) {
    if (!array_of(tuple, made, count)) {
        return false;
    }
    for (size_t i = 0; i < *count; i++) {
        if (!umf_py_queue(PyTuple_GetItem(tuple, (Py_ssize_t)i), &(*made)[i])) {
            return false;
        }
    }
    return true;
}

static umf_py_pool_t *pool_at(PyObject *objects, size_t i) {
    PyObject *object = PyTuple_GetItem(objects, (Py_ssize_t)i);
    return PyObject_TypeCheck(object, umf_py_pool_type) ? (umf_py_pool_t *)object : NULL;
}

/* The handles of open pools. No code of Python runs between this and the call. */
static bool handles(PyObject *objects, umf_memory_pool_handle_t *made, size_t count) {
    for (size_t i = 0; i < count; i++) {
        umf_py_pool_t *pool = pool_at(objects, i);
        if (pool) {
            made[i] = umf_py_request_allows(pool, "suspended") ? umf_py_pool_open(pool) : NULL;
        } else if (PyLong_Check(PyTuple_GetItem(objects, (Py_ssize_t)i))) {
            made[i] = PyLong_AsVoidPtr(PyTuple_GetItem(objects, (Py_ssize_t)i));
        } else {
            PyErr_SetString(PyExc_TypeError, "pools must be umf.Pool objects");
        }
        if (PyErr_Occurred()) {
            return false;
        }
    }
    return true;
}

static void call_end(call_t *call) {
    PyMem_Free(call->pools);
    PyMem_Free((void *)call->params.queues);
    PyMem_Free((void *)call->params.events);
}

/* (pools, queues, events, is_resume) */
static bool call_begin(call_t *call, PyObject *args) {
    PyObject *queues, *events;
    int is_resume;
    *call = (call_t){.params = UMF_SUSPEND_PARAMS_INIT};
    if (!PyArg_ParseTuple(args, "O!O!O!p", &PyTuple_Type, &call->objects, &PyTuple_Type, &queues,
                          &PyTuple_Type, &events, &is_resume)) {
        return false;
    }
    call->is_resume = is_resume;
    if (PyTuple_Size(call->objects) == 0) {
        umf_py_raise(UMF_RESULT_ERROR_INVALID_ARGUMENT,
                     is_resume ? "pools cannot be resumed" : "pools cannot be suspended",
                     "there is no pool", 0);
        return false;
    }
    if (addresses(queues, (void ***)&call->params.queues, &call->params.num_queues) &&
        addresses(events, (void ***)&call->params.events, &call->params.num_events) &&
        array_of(call->objects, (void ***)&call->pools, &call->count) &&
        handles(call->objects, call->pools, call->count)) {
        return true;
    }
    call_end(call);
    return false;
}

/* A suspend or resume of pools begins, or ends. */
static void moves_begin(PyObject *objects) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(objects); i++) {
        umf_py_pool_t *pool = pool_at(objects, (size_t)i);
        if (pool) {
            umf_py_uses_begin(&pool->moving);
            pool->moves++;
        }
    }
}

static void moves_end(PyObject *objects) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(objects); i++) {
        umf_py_pool_t *pool = pool_at(objects, (size_t)i);
        if (pool) {
            umf_py_uses_end(&pool->moving);
        }
    }
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
    {UMF_RESULT_ERROR_INVALID_ARGUMENT, "the folder of a pool's policy cannot be written to"},
    NO_VIRTUAL_MEMORY,
    {UMF_RESULT_SUCCESS, NULL}};
static const umf_py_why_t no_resume[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES,
     "a stream is captured, or another call is at work: try again after it"},
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
    moves_begin(call.objects);
    Py_BEGIN_ALLOW_THREADS;
    result = call.is_resume ? umfPoolsResume(call.pools, call.count, call_params(&call), &report)
                            : umfPoolsSuspend(call.pools, call.count, call_params(&call), &report);
    Py_END_ALLOW_THREADS;
    moves_end(call.objects);
    call_end(&call);
    return report_or_raise(result, &report, call.is_resume);
}

/* --- in the background ------------------------------------------------------------------------ */

typedef struct job_t {
    PyObject ob_base;
    umf_suspend_job_handle_t handle; /* NULL once it is done, and known to be */
    bool is_resume;
    umf_result_t result;         /* of a job that is done */
    umf_suspend_report_t report; /* of a job that is done */
    PyObject *pools;             /* a tuple, kept alive as long as the job */
    unsigned process;            /* that started it */
    struct job_t *next, **link;  /* of those at work */
} job_t;

static job_t *at_work;

/* Also of a child of fork, in which the job is over: no thread works at it. */
static void job_finish(job_t *self) {
    self->result = umfSuspendJobWait(self->handle, &self->report);
    self->handle = NULL;
    moves_end(self->pools);
    *self->link = self->next;
    if (self->next) {
        self->next->link = self->link;
    }
}

static bool job_is_over(void *arg) {
    job_t *self = arg;
    int is_done = self->process != umf_py_process();
    if (self->handle && !is_done) {
        umfSuspendJobQuery(self->handle, &is_done);
    }
    if (self->handle && is_done) {
        job_finish(self);
    }
    return !self->handle;
}

void umf_py_jobs_look(void) {
    for (job_t *each = at_work, *next; each; each = next) {
        next = each->next;
        job_is_over(each);
    }
}

static void job_started(job_t *self, PyObject *pools) {
    umf_py_jobs_look(); /* those of the parent are over before one of the child begins */
    Py_INCREF(pools);
    self->pools = pools;
    self->process = umf_py_process();
    self->next = at_work;
    self->link = &at_work;
    if (at_work) {
        at_work->link = &self->next;
    }
    at_work = self;
    moves_begin(pools);
}

/* Job(pools, queues, events, is_resume) */
static PyObject *job_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs; /* the constructor of a subclass takes them */
    call_t call;
    job_t *self = umf_py_alloc(type);
    if (!self || !call_begin(&call, args)) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    self->is_resume = call.is_resume;
    self->report = (umf_suspend_report_t)UMF_SUSPEND_REPORT_INIT;
    umf_result_t result =
        call.is_resume
            ? umfPoolsResumeAsync(call.pools, call.count, call_params(&call), &self->handle)
            : umfPoolsSuspendAsync(call.pools, call.count, call_params(&call), &self->handle);
    if (result == UMF_RESULT_SUCCESS) {
        job_started(self, call.objects);
    }
    call_end(&call);
    if (result != UMF_RESULT_SUCCESS) {
        self->handle = NULL;
        Py_DECREF((PyObject *)self);
        return umf_py_raise(result, "a job cannot be started", NULL, 0);
    }
    return (PyObject *)self;
}

static PyObject *job_done(PyObject *object, PyObject *unused) {
    (void)unused;
    return PyBool_FromLong(job_is_over(object));
}

static PyObject *job_wait(PyObject *object, PyObject *args) {
    job_t *self = (job_t *)object;
    PyObject *timeout;
    if (!PyArg_ParseTuple(args, "O:_wait", &timeout)) {
        return NULL;
    }
    double seconds = timeout == Py_None ? -1 : umf_py_seconds(timeout);
    int state = PyErr_Occurred() ? -1 : umf_py_wait(job_is_over, self, seconds);
    if (state == 1) {
        PyErr_Format(PyExc_TimeoutError, "the job is not done after %S seconds", timeout);
    }
    return state == 0 ? report_or_raise(self->result, &self->report, self->is_resume) : NULL;
}

static PyObject *job_is_resume(PyObject *object, void *unused) {
    (void)unused;
    return PyBool_FromLong(((job_t *)object)->is_resume);
}

static int job_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((job_t *)object)->pools);
    return 0;
}

/* Nobody sees what becomes of it, but its pools stay in use until it is done. */
static void job_dealloc(PyObject *object) {
    job_t *self = (job_t *)object;
    PyObject_GC_UnTrack(object);
    while (!job_is_over(self)) {
        umf_py_sleep(1000 * 1000);
    }
    Py_XDECREF(self->pools);
    umf_py_dealloc(object);
}

static PyMethodDef job_methods[] = {
    {"done", job_done, METH_NOARGS,
     "done($self, /)\n--\n\nWhether it is done, well or not. Does not wait."},
    {"_wait", job_wait, METH_VARARGS, "_wait($self, timeout, /)\n--\n\nWaits for the report."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef job_members[] = {
    {"_is_resume", job_is_resume, NULL, "Whether it is a resume.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

bool umf_py_add_job(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_new, (void *)job_new},
                                  {Py_tp_dealloc, (void *)job_dealloc},
                                  {Py_tp_traverse, (void *)job_traverse},
                                  {Py_tp_methods, job_methods},
                                  {Py_tp_getset, job_members},
                                  {Py_tp_doc, "A suspend or resume in the background."},
                                  {0, NULL}};
    static PyType_Spec spec = {"umf._core.Job", sizeof(job_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               slots};
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
    PyObject *object;
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    int keep;
    if (!PyArg_ParseTuple(args, "O!izi", umf_py_pool_type, &object, &keep, &policy.folder,
                          &policy.device)) {
        return NULL;
    }
    policy.keep = (umf_suspend_keep_t)keep;
    umf_py_pool_t *pool = (umf_py_pool_t *)object;
    umf_memory_pool_handle_t handle = umf_py_pool_use(pool);
    if (!handle) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfPoolSetSuspendPolicy(handle, &policy);
    Py_END_ALLOW_THREADS;
    umf_py_pool_unuse(pool);
    return umf_py_none_or_why(result, "the policy cannot be set", no_policy);
}

static PyObject *suspend_residency(PyObject *module, PyObject *object) {
    (void)module;
    umf_residency_t now = UMF_RESIDENCY_INIT;
    umf_py_pool_t *pool = umf_py_check(object, umf_py_pool_type, "a umf.Pool");
    umf_memory_pool_handle_t handle = pool ? umf_py_pool_use(pool) : NULL;
    if (!handle) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfPoolGetResidency(handle, &now);
    Py_END_ALLOW_THREADS;
    umf_py_pool_unuse(pool);
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
    {"move", suspend_move, METH_VARARGS,
     "move(pools, queues, events, is_resume, /)\n--\n\nSuspends or resumes."},
    {"set_policy", suspend_set_policy, METH_VARARGS,
     "set_policy(pool, keep, folder, device, /)\n--\n\nWhat becomes of the content of a pool."},
    {"residency", suspend_residency, METH_O,
     "residency(pool, /)\n--\n\nWhere the memory of a pool is."},
    {"suspend_trim", suspend_trim, METH_NOARGS,
     "suspend_trim()\n--\n\nGives back pinned memory of the host that is held ready for the next "
     "suspend."},
    {NULL, NULL, 0, NULL}};
