/* Memory of vaults that goes and comes back: of views, which may become those of another generation
 * (umf/vault.py refuses other calls of the view meanwhile), and of devices. */
#include "core.h"

#include <umf/vault.h>

/* What to wait for: queues and events. */
static bool params_of(PyObject *queues, PyObject *events, umf_suspend_params_t *params) {
    *params = (umf_suspend_params_t)UMF_SUSPEND_PARAMS_INIT;
    return umf_py_queues(queues, (void ***)&params->queues, &params->num_queues) &&
           umf_py_queues(events, (void ***)&params->events, &params->num_events);
}

static void params_end(const umf_suspend_params_t *params) {
    PyMem_Free((void *)params->queues);
    PyMem_Free((void *)params->events);
}

/* vault_suspend(view, queues, events) */
static PyObject *vault_suspend(PyObject *module, PyObject *args) {
    (void)module;
    umf_suspend_params_t params;
    PyObject *number, *queues, *events;
    void *view;
    if (!PyArg_ParseTuple(args, "OO!O!:vault_suspend", &number, &PyTuple_Type, &queues,
                          &PyTuple_Type, &events) ||
        !umf_py_address(number, &view)) {
        return NULL;
    }
    PyObject *done = NULL;
    if (params_of(queues, events, &params)) {
        umf_result_t result;
        umfLastErrorClear();
        Py_BEGIN_ALLOW_THREADS;
        result = umfVaultSuspend(view, &params);
        Py_END_ALLOW_THREADS;
        done = umf_py_none_or_last(result, "the view cannot be suspended");
    }
    params_end(&params);
    return done;
}

UMF_PY_CALL(vault_resume, umfVaultResume, "the view cannot be resumed")

/* vault_move(view, generation, queues, events) -> generation */
static PyObject *vault_move(PyObject *module, PyObject *args) {
    (void)module;
    umf_suspend_params_t params;
    PyObject *number, *queues, *events;
    uint64_t generation;
    void *view;
    if (!PyArg_ParseTuple(args, "OO&O!O!:vault_move", &number, umf_py_u64, &generation,
                          &PyTuple_Type, &queues, &PyTuple_Type, &events) ||
        !umf_py_address(number, &view)) {
        return NULL;
    }
    PyObject *done = NULL;
    if (params_of(queues, events, &params)) {
        umf_result_t result;
        umfLastErrorClear();
        Py_BEGIN_ALLOW_THREADS;
        result = umfVaultMove(view, generation, &params);
        if (result == UMF_RESULT_SUCCESS) {
            result = umfVaultViewGeneration(view, &generation);
        }
        Py_END_ALLOW_THREADS;
        done = result == UMF_RESULT_SUCCESS ? PyLong_FromUnsignedLongLong(generation)
                                            : umf_py_raise_last(result, "the view cannot be moved");
    }
    params_end(&params);
    return done;
}

/* vault_generation(view) -> number of its generation */
static PyObject *vault_generation(PyObject *module, PyObject *number) {
    (void)module;
    uint64_t generation = 0;
    void *view;
    if (!umf_py_address(number, &view)) {
        return NULL;
    }
    umfLastErrorClear();
    umf_result_t result = umfVaultViewGeneration(view, &generation);
    return result == UMF_RESULT_SUCCESS ? PyLong_FromUnsignedLongLong(generation)
                                        : umf_py_raise_last(result, "the view has no generation");
}

/* vault_snapshot(vault, generation, timeout in ms, digest, folder or None) */
static PyObject *vault_snapshot(PyObject *module, PyObject *args) {
    (void)module;
    umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
    PyObject *number;
    uint64_t generation;
    void *vault;
    if (!PyArg_ParseTuple(args, "OO&O&pz:vault_snapshot", &number, umf_py_u64, &generation,
                          umf_py_u64, &params.timeout_ms, &params.digest, &params.folder) ||
        !umf_py_address(number, &vault)) {
        return NULL;
    }
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = umfVaultSnapshot(vault, generation, &params);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_last(result, "there is no copy of its memory");
}

/* vault_evict(vault, generation) */
static PyObject *vault_evict(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number;
    uint64_t generation;
    void *vault;
    if (!PyArg_ParseTuple(args, "OO&:vault_evict", &number, umf_py_u64, &generation) ||
        !umf_py_address(number, &vault)) {
        return NULL;
    }
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = umfVaultEvict(vault, generation);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_last(result, "its memory is not evicted");
}

PyMethodDef umf_py_vault_move_functions[] = {
    {"vault_suspend", vault_suspend, METH_VARARGS,
     "vault_suspend(view, queues, events, /)\n--\n\n"},
    {"vault_snapshot", vault_snapshot, METH_VARARGS,
     "vault_snapshot(vault, generation, timeout_ms, digest, folder, /)\n--\n\n"},
    {"vault_evict", vault_evict, METH_VARARGS, "vault_evict(vault, generation, /)\n--\n\n"},
    {"vault_generation", vault_generation, METH_O, "vault_generation(view, /)\n--\n\n"},
    {"vault_resume", vault_resume, METH_O, "vault_resume(view, /)\n--\n\n"},
    {"vault_move", vault_move, METH_VARARGS,
     "vault_move(view, generation, queues, events, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
