/* Suspend and resume, and jobs that do so in the background. */
#include "work.h"

#include <string.h>

PyTypeObject *umf_py_job_type;

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

bool umf_py_queues(PyObject *tuple, void ***made, size_t *count) {
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

/* Without queues and events all work of the devices is waited for. */
static umf_result_t move_run(umf_py_work_t *work) {
    const umf_suspend_params_t *params =
        work->params.queues || work->params.events ? &work->params : NULL;
    return work->is_resume ? umfPoolsResume(work->handles, work->count, params, &work->report)
                           : umfPoolsSuspend(work->handles, work->count, params, &work->report);
}

/* (pools, queues, events, is_resume). Waits for abandoned work on these pools; a handler of a
 * signal may close one meanwhile. */
static umf_py_work_t *move_new(PyObject *args) {
    PyObject *pools, *queues, *events;
    int is_resume;
    if (!PyArg_ParseTuple(args, "O!O!O!p", &PyTuple_Type, &pools, &PyTuple_Type, &queues,
                          &PyTuple_Type, &events, &is_resume)) {
        return NULL;
    }
    if (PyTuple_Size(pools) == 0) {
        umf_py_raise_as(UMF_RESULT_ERROR_INVALID_ARGUMENT,
                        is_resume ? "pools cannot be resumed" : "pools cannot be suspended",
                        "there is no pool", "", 0);
        return NULL;
    }
    umf_py_work_t *work = umf_py_work_new(pools);
    if (!work) {
        return NULL;
    }
    work->run = move_run;
    work->is_move = true;
    work->is_resume = is_resume;
    if (umf_py_queues(queues, (void ***)&work->params.queues, &work->params.num_queues) &&
        umf_py_queues(events, (void ***)&work->params.events, &work->params.num_events) &&
        handles(pools, work->handles, work->count) && umf_py_work_wait_left(work) &&
        handles(pools, work->handles, work->count)) {
        return work;
    }
    umf_py_work_leave(work);
    return NULL;
}

#define NO_VIRTUAL_MEMORY                                                                          \
    {                                                                                              \
        UMF_RESULT_ERROR_NOT_SUPPORTED,                                                            \
            "the provider of a pool has no virtual memory, as linux_vmm, cuda_vmm and "            \
            "level_zero_vmm have",                                                                 \
            NULL                                                                                   \
    }

static const umf_py_why_t no_suspend[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES, "the memory is in use",
     "views of a pool's memory (memoryview, NumPy, DLPack), forbid_suspend, the capture of a "
     "stream and another "
     "call at work are in the way: end them before"},
    {UMF_RESULT_ERROR_INVALID_ARGUMENT, "the folder of a pool's policy cannot be written to", NULL},
    NO_VIRTUAL_MEMORY,
    {UMF_RESULT_SUCCESS, NULL, NULL}};
static const umf_py_why_t no_resume[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES,
     "a stream is captured, or another call is at work: try again after it", NULL},
    NO_VIRTUAL_MEMORY,
    {UMF_RESULT_SUCCESS, NULL, NULL}};

static PyObject *report_or_raise(const umf_py_work_t *work) {
    const umf_suspend_report_t *report = &work->report;
    const char *what = work->is_resume ? "pools cannot be resumed" : "pools cannot be suspended";
    if (work->is_native) {
        return umf_py_raise_as(work->result, what, work->failure.text, work->failure.reason,
                               report->missing);
    }
    if (work->result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_failure(work->result, what, work->is_resume ? no_resume : no_suspend,
                                    &work->failure, report->missing);
    }
    return Py_BuildValue("nnnnn", (Py_ssize_t)report->bytes, (Py_ssize_t)report->kept,
                         (Py_ssize_t)report->shared, (Py_ssize_t)report->exported,
                         (Py_ssize_t)report->missing);
}

/* --- now -------------------------------------------------------------------------------------- */

/* A thread for so little takes longer than the call. */
enum { SHORT_BYTES = 4 << 20 };

/* Memory of devices may have to wait for their work. */
static bool move_is_short(const umf_py_work_t *work) {
    size_t bytes = 0;
    for (size_t i = 0; i < work->count; i++) {
        umf_memory_provider_handle_t provider;
        const char *name;
        umf_residency_t now = UMF_RESIDENCY_INIT;
        if (umfPoolGetMemoryProvider(work->handles[i], &provider) != UMF_RESULT_SUCCESS ||
            umfMemoryProviderGetName(provider, &name) != UMF_RESULT_SUCCESS ||
            strcmp(name, "LINUX_VMM") != 0 ||
            umfPoolGetResidency(work->handles[i], &now) != UMF_RESULT_SUCCESS) {
            return false;
        }
        bytes += now.reserved;
    }
    return bytes <= SHORT_BYTES;
}

static PyObject *suspend_move(PyObject *module, PyObject *args) {
    (void)module;
    umf_py_work_t *work = move_new(args);
    if (!work || !umf_py_work_make(work, move_is_short(work))) {
        return NULL;
    }
    PyObject *report = report_or_raise(work);
    umf_py_work_leave(work);
    return report;
}

static PyObject *suspend_wait_all(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (!umf_py_works_wait()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* --- in the background ------------------------------------------------------------------------ */

typedef struct job_t {
    PyObject ob_base;
    umf_py_work_t *work;
} job_t;

/* Job(pools, queues, events, is_resume) */
static PyObject *job_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs; /* the constructor of a subclass takes them */
    job_t *self = umf_py_alloc(type);
    umf_py_work_t *work = self ? move_new(args) : NULL;
    if (work && umf_py_work_start(work)) {
        self->work = work;
        return (PyObject *)self;
    }
    if (work) {
        umf_py_work_leave(work);
        umf_py_raise_as(UMF_RESULT_ERROR_OUT_OF_RESOURCES, "a job cannot be started",
                        "no thread can be started", "", 0);
    }
    Py_XDECREF((PyObject *)self);
    return NULL;
}

static PyObject *job_done(PyObject *object, PyObject *unused) {
    (void)unused;
    return PyBool_FromLong(umf_py_work_is_over(((job_t *)object)->work));
}

static PyObject *job_wait(PyObject *object, PyObject *args) {
    job_t *self = (job_t *)object;
    PyObject *timeout;
    if (!PyArg_ParseTuple(args, "O:_wait", &timeout)) {
        return NULL;
    }
    double seconds = timeout == Py_None ? -1 : umf_py_seconds(timeout);
    int state = PyErr_Occurred() ? -1 : umf_py_wait(umf_py_work_is_over, self->work, seconds);
    if (state == 1) {
        PyErr_Format(PyExc_TimeoutError, "the job is not done after %S seconds", timeout);
    }
    return state == 0 ? report_or_raise(self->work) : NULL;
}

static PyObject *job_is_resume(PyObject *object, void *unused) {
    (void)unused;
    return PyBool_FromLong(((job_t *)object)->work->is_resume);
}

static int job_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    if (((job_t *)object)->work) {
        Py_VISIT(((job_t *)object)->work->pools);
    }
    return 0;
}

/* Its pools stay in use until it is done; the next call looks. */
static void job_dealloc(PyObject *object) {
    job_t *self = (job_t *)object;
    PyObject_GC_UnTrack(object);
    if (self->work) {
        umf_py_work_leave(self->work);
    }
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
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES, "the pool is suspended", "resume it before"},
    {UMF_RESULT_ERROR_INVALID_ARGUMENT, "'file' needs a folder, and 'peer' a device", NULL},
    {UMF_RESULT_ERROR_NOT_SUPPORTED,
     "the provider of the pool has no virtual memory, or cannot keep content so", NULL},
    {UMF_RESULT_SUCCESS, NULL, NULL}};

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
    {"wait_all", suspend_wait_all, METH_NOARGS,
     "wait_all()\n--\n\nWaits for all that goes on in threads."},
    {"set_policy", suspend_set_policy, METH_VARARGS,
     "set_policy(pool, keep, folder, device, /)\n--\n\nSets where a suspend keeps the content."},
    {"residency", suspend_residency, METH_O,
     "residency(pool, /)\n--\n\nWhere the memory of a pool is."},
    {"suspend_trim", suspend_trim, METH_NOARGS,
     "suspend_trim()\n--\n\nGives back pinned memory of the host that is held ready for the next "
     "suspend."},
    {NULL, NULL, 0, NULL}};
