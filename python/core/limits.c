/* Limits of pools. Each pool is from its creation, before a thread can use it, in a group of its
 * own (umf/reclaim.h), so a limit may be set at any time. */
#include "core.h"

#include <umf/cuda_device.h>

#define NO_LIMIT SIZE_MAX

umf_result_t umf_py_limit_begin(umf_py_pool_t *pool) {
    umf_result_t result = umfPoolGroupCreate(NO_LIMIT, &pool->group);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfPoolGroupAdd(pool->group, pool->handle);
        if (result != UMF_RESULT_SUCCESS) {
            umf_py_limit_end(pool);
        }
    }
    return result;
}

void umf_py_limit_end(umf_py_pool_t *pool) {
    umfPoolGroupDestroy(pool->group);
    pool->group = NULL;
}

umf_pool_group_stats_t umf_py_limit_stats(const umf_py_pool_t *pool) {
    umf_pool_group_stats_t stats = UMF_POOL_GROUP_STATS_INIT;
    umfPoolGroupGetStats(pool->group, &stats);
    return stats;
}

bool umf_py_limit_text(const umf_pool_group_stats_t *stats, size_t size, char *text, size_t room) {
    if (stats->limit == NO_LIMIT) {
        return false;
    }
    bool is_by_pieces = size <= stats->limit && stats->held <= stats->limit - size;
    PyOS_snprintf(text, room,
                  "the limit of the pool is %zu bytes, it holds %zu, and %zu were requested%s",
                  stats->limit, stats->held, size,
                  is_by_pieces ? ", which the pool takes in larger pieces" : "");
    return true;
}

/* limit_set(pool, bytes or None) */
static PyObject *limit_set(PyObject *module, PyObject *args) {
    (void)module;
    umf_py_pool_t *pool;
    PyObject *bytes;
    if (!PyArg_ParseTuple(args, "O!O", umf_py_pool_type, &pool, &bytes)) {
        return NULL;
    }
    Py_ssize_t limit = bytes == Py_None ? 0 : umf_py_size(bytes, "size", 1);
    if (limit < 0 || !umf_py_pool_use(pool)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfPoolGroupSetLimit(pool->group, limit ? (size_t)limit : NO_LIMIT);
    Py_END_ALLOW_THREADS;
    umf_py_pool_unuse(pool);
    return umf_py_none_or_raise(result, "a limit cannot be set");
}

/* limit_get(pool) -> (limit or None, held, peak) */
static PyObject *limit_get(PyObject *module, PyObject *object) {
    (void)module;
    umf_py_pool_t *pool = umf_py_check(object, umf_py_pool_type, "a Pool");
    if (!pool || !umf_py_pool_open(pool)) {
        return NULL;
    }
    umf_pool_group_stats_t stats = umf_py_limit_stats(pool);
    return stats.limit == NO_LIMIT
               ? Py_BuildValue("Onn", Py_None, (Py_ssize_t)stats.held, (Py_ssize_t)stats.peak)
               : Py_BuildValue("nnn", (Py_ssize_t)stats.limit, (Py_ssize_t)stats.held,
                               (Py_ssize_t)stats.peak);
}

/* device_memory(number of a GPU by NVIDIA) -> its bytes */
static PyObject *limit_device_memory(PyObject *module, PyObject *number) {
    (void)module;
    long device = PyLong_AsLong(number);
    if (device == -1 && PyErr_Occurred()) {
        return NULL;
    }
    size_t left, total;
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = umfCUDADeviceMemory((int)device, &left, &total);
    Py_END_ALLOW_THREADS;
    return result == UMF_RESULT_SUCCESS
               ? PyLong_FromSize_t(total)
               : umf_py_raise(result, "the memory of a GPU is not known", NULL, 0);
}

PyMethodDef umf_py_limit_functions[] = {
    {"limit_set", limit_set, METH_VARARGS, "limit_set(pool, size, /)\n--\n\nSets or removes it."},
    {"limit_get", limit_get, METH_O, "limit_get(pool, /)\n--\n\nThe limit, held and peak bytes."},
    {"device_memory", limit_device_memory, METH_O,
     "device_memory(device, /)\n--\n\nBytes of a GPU by NVIDIA."},
    {NULL, NULL, 0, NULL}};
