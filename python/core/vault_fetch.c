/* umfVaultFetch, with progress as a function of Python. */
#include "core.h"

#include <umf/vault.h>

typedef struct fetching_t {
    PyThreadState *thread;
    PyObject *progress; /* or None */
} fetching_t;

/* In the thread of the fetch. An exception, also that of a handler of a signal, ends it. */
static int report(uint64_t done, uint64_t size, void *arg) {
    fetching_t *fetching = arg;
    PyEval_RestoreThread(fetching->thread);
    bool goes_on = PyErr_CheckSignals() == 0;
    if (goes_on && fetching->progress != Py_None) {
        PyObject *answer = PyObject_CallFunction(fetching->progress, "KK", (unsigned long long)done,
                                                 (unsigned long long)size);
        goes_on = answer != NULL;
        Py_XDECREF(answer);
    }
    fetching->thread = PyEval_SaveThread();
    return !goes_on;
}

/* vault_fetch(vault, context, addresses, keep, digest, limit, in flight, timeout in ms, progress or
 * None) -> generation */
static PyObject *vault_fetch(PyObject *module, PyObject *args) {
    (void)module;
    umf_vault_fetch_params_t params = UMF_VAULT_FETCH_PARAMS_INIT;
    fetching_t fetching;
    PyObject *to, *by;
    const char *from;
    uint64_t in_flight, generation = 0;
    void *vault, *remote;
    if (!PyArg_ParseTuple(args, "OOsppO&O&O&O:vault_fetch", &to, &by, &from, &params.keep,
                          &params.digest, umf_py_u64, &params.limit, umf_py_u64, &in_flight,
                          umf_py_u64, &params.timeout_ms, &fetching.progress) ||
        !umf_py_address(to, &vault) || !umf_py_address(by, &remote)) {
        return NULL;
    }
    params.in_flight = (size_t)in_flight;
    params.progress = report;
    params.progress_arg = &fetching;
    umfLastErrorClear();
    fetching.thread = PyEval_SaveThread();
    umf_result_t result = umfVaultFetch(vault, remote, from, &params, &generation);
    PyEval_RestoreThread(fetching.thread);
    if (result == UMF_RESULT_SUCCESS) {
        return PyLong_FromUnsignedLongLong(generation);
    }
    return PyErr_Occurred() ? NULL : umf_py_raise_last(result, "the generation is not fetched");
}

PyMethodDef umf_py_vault_fetch_functions[] = {
    {"vault_fetch", vault_fetch, METH_VARARGS,
     "vault_fetch(vault, context, addresses, keep, digest, limit, in_flight, timeout_ms, progress, "
     "/)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
