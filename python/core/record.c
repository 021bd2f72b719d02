/* Recording: start, stop, marks, copies and snapshots. */
#include "core.h"

#include <umf/record.h>

/* Ends the use of the first `count` pools of a tuple. */
static void pools_unuse(PyObject *pools, size_t count) {
    for (size_t i = 0; i < count; i++) {
        umf_py_pool_unuse((umf_py_pool_t *)PyTuple_GetItem(pools, (Py_ssize_t)i));
    }
}

/* Uses the pools of a tuple. */
static bool pools_use(PyObject *pools, umf_memory_pool_handle_t *handles, size_t count) {
    for (size_t i = 0; i < count; i++) {
        umf_py_pool_t *pool = umf_py_check(PyTuple_GetItem(pools, (Py_ssize_t)i), umf_py_pool_type,
                                           "a umf.Pool, or several");
        handles[i] = pool ? umf_py_pool_use(pool) : NULL;
        if (!handles[i]) {
            pools_unuse(pools, i);
            return false;
        }
    }
    return true;
}

static const umf_py_why_t no_start[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES,
     "the file cannot be written, or a recording is at work: end that before", NULL},
    {UMF_RESULT_SUCCESS, NULL, NULL}};

/* Records these pools. */
static PyObject *start_of_pools(umf_record_params_t *params, PyObject *pools) {
    size_t count = (size_t)PyTuple_Size(pools);
    umf_memory_pool_handle_t *handles = PyMem_Calloc(count + 1, sizeof(*handles));
    if (!handles) {
        return PyErr_NoMemory();
    }
    bool is_used = pools_use(pools, handles, count);
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (is_used) {
        params->pool_count = count;
        params->pools = count ? handles : NULL;
        umfLastErrorClear();
        Py_BEGIN_ALLOW_THREADS;
        result = umfRecordStart(params);
        Py_END_ALLOW_THREADS;
        pools_unuse(pools, count);
    }
    PyMem_Free(handles);
    return is_used ? umf_py_none_or_why(result, "the recording cannot be started", no_start) : NULL;
}

/* record_start(path, size, stack_depth, leaks, min_size, max_size, rate, pools) */
static PyObject *record_start(PyObject *module, PyObject *args) {
    (void)module;
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    Py_ssize_t size, min_size, max_size, rate;
    PyObject *pools;
    if (!PyArg_ParseTuple(args, "snIpnnnO!", &params.path, &size, &params.stack_depth,
                          &params.leaks, &min_size, &max_size, &rate, &PyTuple_Type, &pools)) {
        return NULL;
    }
    params.size = (size_t)size;
    params.min_size = (size_t)min_size;
    params.max_size = (size_t)max_size;
    params.rate = (size_t)rate;
    return start_of_pools(&params, pools);
}

static PyObject *record_stop(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = umfRecordStop();
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_raise(result, "the recording cannot be stopped");
}

static PyObject *record_mark(PyObject *module, PyObject *args) {
    (void)module;
    const char *name;
    umfLastErrorClear();
    return PyArg_ParseTuple(args, "s", &name)
               ? umf_py_none_or_raise(umfRecordMark(name), "the mark cannot be recorded")
               : NULL;
}

/* Calls a function that writes a file. */
static PyObject *write_to(PyObject *args, umf_result_t (*write)(const char *path),
                          const char *what) {
    const char *path;
    umf_result_t result;
    if (!PyArg_ParseTuple(args, "s", &path)) {
        return NULL;
    }
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = write(path);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_raise(result, what);
}

static PyObject *record_save(PyObject *module, PyObject *args) {
    (void)module;
    return write_to(args, umfRecordSave, "the recording cannot be saved");
}

static PyObject *record_snapshot(PyObject *module, PyObject *args) {
    (void)module;
    return write_to(args, umfRecordSnapshot, "the snapshot cannot be written");
}

/* record_state() -> (is running, events, dropped, live count, live bytes, used bytes) */
static PyObject *record_state(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    umf_record_state_report_t report = UMF_RECORD_STATE_REPORT_INIT;
    umfLastErrorClear();
    umf_result_t result = umfRecordGetState(&report);
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise(result, "the recording has no state", NULL, 0);
    }
    return Py_BuildValue("NKKKKn", PyBool_FromLong(report.is_running), report.events,
                         report.dropped, report.live_count, report.live_bytes,
                         (Py_ssize_t)report.used);
}

PyMethodDef umf_py_record_functions[] = {
    {"record_start", record_start, METH_VARARGS,
     "record_start(path, size, stack_depth, leaks, min_size, max_size, rate, pools, "
     "/)\n--\n\nStarts to record into a file."},
    {"record_stop", record_stop, METH_NOARGS, "record_stop()\n--\n\nEnds the recording."},
    {"record_mark", record_mark, METH_VARARGS, "record_mark(name, /)\n--\n\nRecords a mark."},
    {"record_save", record_save, METH_VARARGS,
     "record_save(path, /)\n--\n\nWrites a copy of the recording."},
    {"record_snapshot", record_snapshot, METH_VARARGS,
     "record_snapshot(path, /)\n--\n\nWrites a snapshot."},
    {"record_state", record_state, METH_NOARGS, "record_state()\n--\n\nHow the recording does."},
    {NULL, NULL, 0, NULL}};
