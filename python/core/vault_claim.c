/* Claims of vaults: writable memory with a key. */
#include "core.h"

#include <umf/vault.h>

/* --- keys: a dict of those that a vault has ---
 *
 * It has each once: the next claim, or the end of the memory, would take the memory of the first
 * one away. A key comes and goes inside of one call of C, in which no handler of a signal runs:
 * none stays without a claim (uses.c). */

/* false: there is an exception. */
static bool keys_add(PyObject *keys, PyObject *key) {
    int has = PyDict_Contains(keys, key);
    if (has == 0) {
        return PyDict_SetItem(keys, key, Py_None) == 0;
    }
    PyObject *text =
        has < 0 ? NULL
                : PyUnicode_DecodeUTF8(PyBytes_AsString(key), PyBytes_Size(key), "surrogateescape");
    if (text) {
        PyErr_Format(PyExc_BufferError,
                     "%R is claimed by this vault already: close that claim before", text);
        Py_DECREF(text);
    }
    return false;
}

/* Keeps an exception. */
static void keys_remove(PyObject *keys, PyObject *key) {
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    if (PyDict_DelItem(keys, key) < 0) {
        PyErr_Clear();
    }
    PyErr_Restore(kind, value, trace);
}

/* NULL and ValueError: a zero would end it. */
static const char *key_text(PyObject *key) {
    char *text;
    return PyBytes_AsStringAndSize(key, &text, NULL) == 0 ? text : NULL;
}

/* --- a claim --- */

typedef struct claiming_t {
    const char *key;
    umf_vault_claim_params_t params;
} claiming_t;

static umf_result_t claim_step(void *vault, void *claiming, void *out) {
    const claiming_t *of = claiming;
    return umfVaultClaim(vault, of->key, &of->params, out);
}

/* With a fence that kills, each call waits for as long as the service may take. */
static bool claim_now(void *vault, claiming_t *claiming, umf_vault_claim_t *claim,
                      umf_result_t *result) {
    if (claiming->params.fence != UMF_VAULT_FENCE_KILL) {
        return umf_py_vault_patiently(result, claim_step, vault, claiming,
                                      &claiming->params.timeout_ms, claim, UMF_REASON_BUSY);
    }
    Py_BEGIN_ALLOW_THREADS;
    *result = claim_step(vault, claiming, claim);
    Py_END_ALLOW_THREADS;
    return true;
}

static PyObject *claim_made(void *vault, PyObject *number, claiming_t *claiming) {
    umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
    umf_result_t result;
    umfLastErrorClear();
    if (!claim_now(vault, claiming, &claim, &result)) {
        return NULL;
    }
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_last(result, "the memory cannot be claimed");
    }
    return Py_BuildValue("O(NnKNNy#i)", number, umf_py_number(claim.ptr), (Py_ssize_t)claim.size,
                         (unsigned long long)claim.epoch, umf_py_number((const void *)claim.now),
                         PyBool_FromLong(claim.is_new), claim.note ? claim.note : "",
                         (Py_ssize_t)claim.note_size, claim.device);
}

/* vault_claim(vault, keys or None: it has the key, key, size, shared, fence, timeout in ms, text of
 * a provider for devices or None) -> vault, (address, size, epoch, address of the last epoch, is it
 * new?, note, device) */
static PyObject *vault_claim(PyObject *module, PyObject *args) {
    (void)module;
    claiming_t claiming = {.params = UMF_VAULT_CLAIM_PARAMS_INIT};
    PyObject *number, *keys, *key;
    uint64_t size;
    int fence;
    void *vault;
    if (!PyArg_ParseTuple(args, "OOSO&piO&z:vault_claim", &number, &keys, &key, umf_py_u64, &size,
                          &claiming.params.shared, &fence, umf_py_u64, &claiming.params.timeout_ms,
                          &claiming.params.devices) ||
        !(claiming.key = key_text(key)) || !umf_py_address(number, &vault) ||
        (keys != Py_None && !keys_add(keys, key))) {
        return NULL;
    }
    claiming.params.size = (size_t)size;
    claiming.params.fence = (umf_vault_fence_t)fence;
    PyObject *made = claim_made(vault, number, &claiming);
    if (!made && keys != Py_None) {
        keys_remove(keys, key);
    }
    return made;
}

/* vault_epoch(address of the last epoch, of memory that is mapped) -> epoch */
static PyObject *vault_epoch(PyObject *module, PyObject *number) {
    (void)module;
    void *now;
    return umf_py_address(number, &now)
               ? PyLong_FromUnsignedLongLong(__atomic_load_n((uint64_t *)now, __ATOMIC_ACQUIRE))
               : NULL;
}

/* vault_claim_note(vault, key, epoch, note) */
static PyObject *vault_claim_note(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number;
    const char *key, *note;
    Py_ssize_t size;
    uint64_t epoch;
    void *vault;
    if (!PyArg_ParseTuple(args, "OyO&y#:vault_claim_note", &number, &key, umf_py_u64, &epoch, &note,
                          &size) ||
        !umf_py_address(number, &vault)) {
        return NULL;
    }
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = umfVaultClaimNote(vault, key, epoch, size ? note : NULL, (size_t)size);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_last(result, "the note is not stored");
}

static PyObject *call_with_key(PyObject *number, PyObject *key,
                               umf_result_t (*function)(umf_vault_handle_t, const char *),
                               const char *what) {
    void *vault;
    const char *text = key_text(key);
    if (!text || !umf_py_address(number, &vault)) {
        return NULL;
    }
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = function(vault, text);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_last(result, what);
}

/* vault_unclaim(keys, key, vault): its memory is unmapped, also after a failure */
static PyObject *vault_unclaim(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number, *keys, *key;
    if (!PyArg_ParseTuple(args, "O!SO:vault_unclaim", &PyDict_Type, &keys, &key, &number)) {
        return NULL;
    }
    PyObject *none = call_with_key(number, key, umfVaultUnclaim, "the claim is not given back");
    keys_remove(keys, key);
    return none;
}

/* vault_forget(vault, keys, key) */
static PyObject *vault_forget(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number, *keys, *key;
    if (!PyArg_ParseTuple(args, "OO!S:vault_forget", &number, &PyDict_Type, &keys, &key) ||
        !keys_add(keys, key)) {
        return NULL;
    }
    PyObject *none = call_with_key(number, key, umfVaultForget, "the memory stays");
    keys_remove(keys, key);
    return none;
}

typedef struct listing_t {
    PyThreadState *thread;
    PyObject *list;
} listing_t;

static int add_claim(const umf_vault_claim_stat_t *stat, void *arg) {
    listing_t *listing = arg;
    PyEval_RestoreThread(listing->thread);
    PyObject *tuple =
        Py_BuildValue("ynnKIINs", stat->key, (Py_ssize_t)stat->size, (Py_ssize_t)stat->note_size,
                      (unsigned long long)stat->epoch, (unsigned)stat->holders,
                      (unsigned)stat->process, PyBool_FromLong(stat->shared), stat->device);
    int status = tuple ? PyList_Append(listing->list, tuple) : -1;
    Py_XDECREF(tuple);
    listing->thread = PyEval_SaveThread();
    return status;
}

/* vault_claims(vault) -> [(key, size, size of the note, epoch, holders, process, is it shared?,
 * device)] */
static PyObject *vault_claims(PyObject *module, PyObject *number) {
    (void)module;
    listing_t listing = {.list = PyList_New(0)};
    void *vault;
    if (!listing.list || !umf_py_address(number, &vault)) {
        Py_XDECREF(listing.list);
        return NULL;
    }
    umfLastErrorClear();
    listing.thread = PyEval_SaveThread();
    umf_result_t result = umfVaultEachClaim(vault, add_claim, &listing);
    PyEval_RestoreThread(listing.thread);
    if (result == UMF_RESULT_SUCCESS) {
        return listing.list;
    }
    Py_DECREF(listing.list);
    return PyErr_Occurred() ? NULL : umf_py_raise_last(result, "the claims cannot be listed");
}

PyMethodDef umf_py_vault_claim_functions[] = {
    {"vault_claim", vault_claim, METH_VARARGS,
     "vault_claim(vault, keys, key, size, shared, fence, timeout_ms, devices, /)\n--\n\n"},
    {"vault_epoch", vault_epoch, METH_O, "vault_epoch(now, /)\n--\n\n"},
    {"vault_claim_note", vault_claim_note, METH_VARARGS,
     "vault_claim_note(vault, key, epoch, note, /)\n--\n\n"},
    {"vault_unclaim", vault_unclaim, METH_VARARGS, "vault_unclaim(keys, key, vault, /)\n--\n\n"},
    {"vault_forget", vault_forget, METH_VARARGS, "vault_forget(vault, keys, key, /)\n--\n\n"},
    {"vault_claims", vault_claims, METH_O, "vault_claims(vault, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
