/* Recording: start, stop, marks, copies and snapshots. */
#include "core.h"

#include <stdlib.h>

#include <umf/record.h>

/* The handles of a tuple of pools, to be freed; NULL with `*count` 0 for an empty one. False: an
 * exception. */
static bool pools_of(PyObject *pools, umf_memory_pool_handle_t **handles, size_t *count) {
    *count = (size_t)PyTuple_Size(pools);
    *handles = *count ? malloc(*count * sizeof(**handles)) : NULL;
    if (*count && !*handles) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < *count; i++) {
        PyObject *pool = PyTuple_GetItem(pools, (Py_ssize_t)i);
        bool is_pool = PyObject_TypeCheck(pool, umf_py_pool_type);
        (*handles)[i] = is_pool ? umf_py_pool_open((umf_py_pool_t *)pool) : NULL;
        if (!is_pool) {
            PyErr_SetString(PyExc_TypeError, "pools must be umf.Pool objects");
        }
        if (!(*handles)[i]) {
            free(*handles);
            return false;
        }
    }
    return true;
}

static const umf_py_why_t no_start[] = {
    {UMF_RESULT_ERROR_OUT_OF_RESOURCES,
     "the file cannot be written, or a recording is at work: end that before"},
    {UMF_RESULT_SUCCESS, NULL}};

/* record_start(path, size, stack_depth, leaks, min_size, max_size, rate, pools) */
static PyObject *record_start(PyObject *module, PyObject *args) {
    (void)module;
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    umf_memory_pool_handle_t *handles;
    Py_ssize_t size, min_size, max_size, rate;
    PyObject *pools;
    if (!PyArg_ParseTuple(args, "snIpnnnO!", &params.path, &size, &params.stack_depth,
                          &params.leaks, &min_size, &max_size, &rate, &PyTuple_Type, &pools) ||
        !pools_of(pools, &handles, &params.pool_count)) {
        return NULL;
    }
    params.size = (size_t)size;
    params.min_size = (size_t)min_size;
    params.max_size = (size_t)max_size;
    params.rate = (size_t)rate;
    params.pools = handles;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS result = umfRecordStart(&params);
    Py_END_ALLOW_THREADS free(handles);
    return umf_py_none_or_why(result, "the recording cannot be started", no_start);
}

static PyObject *record_stop(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS result = umfRecordStop();
    Py_END_ALLOW_THREADS return umf_py_none_or_raise(result, "the recording cannot be stopped");
}

static PyObject *record_mark(PyObject *module, PyObject *args) {
    (void)module;
    const char *name;
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
    Py_BEGIN_ALLOW_THREADS result = write(path);
    Py_END_ALLOW_THREADS return umf_py_none_or_raise(result, what);
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
    umf_result_t result = umfRecordGetState(&report);
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise(result, "the recording has no state", NULL, 0);
    }
    return Py_BuildValue("NKKKKn", PyBool_FromLong(report.is_running), report.events,
                         report.dropped, report.live_count, report.live_bytes,
                         (Py_ssize_t)report.used);
}

PyMethodDef umf_py_record_functions[] = {
    {"record_start", record_start, METH_VARARGS, "Starts to record into a file."},
    {"record_stop", record_stop, METH_NOARGS, "Ends the recording."},
    {"record_mark", record_mark, METH_VARARGS, "Records a mark."},
    {"record_save", record_save, METH_VARARGS, "Writes a copy of the recording."},
    {"record_snapshot", record_snapshot, METH_VARARGS, "Writes a snapshot."},
    {"record_state", record_state, METH_NOARGS, "How the recording does."},
    {NULL, NULL, 0, NULL}};
