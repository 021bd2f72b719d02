/* Vaults. umf/vault.py has the objects; a vault, a draft and a view are numbers here, which the
 * library checks. */
#include "core.h"

#include <umf/memory_pool.h>
#include <umf/reason.h>
#include <umf/vault.h>

#include <time.h>

#define SLICE_MS 100 /* so often a wait lets handlers of signals run */

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool umf_py_vault_patiently(umf_result_t *result, umf_py_vault_step_t step, void *vault,
                            void *params, uint64_t *timeout_ms, void *out, umf_reason_t reason) {
    uint64_t all = *timeout_ms, start = now_ms();
    for (uint64_t passed = 0;; passed = now_ms() - start) {
        uint64_t left = passed < all ? all - passed : 0;
        *timeout_ms = left < SLICE_MS ? left : SLICE_MS;
        Py_BEGIN_ALLOW_THREADS;
        *result = step(vault, params, out);
        Py_END_ALLOW_THREADS;
        umf_reason_t why = umfLastReason();
        if (*result != UMF_RESULT_ERROR_OUT_OF_RESOURCES ||
            (why != reason && why != UMF_REASON_BUSY) || left <= SLICE_MS) {
            return true;
        }
        if (PyErr_CheckSignals() < 0) {
            return false;
        }
    }
}

UMF_PY_CALL(vault_close, umfVaultClose, "the vault cannot be closed")
UMF_PY_CALL(vault_abort, umfVaultAbort, "the draft cannot be aborted")
UMF_PY_CALL(vault_detach, umfVaultDetach, "the view cannot be detached")
UMF_PY_CALL(vault_drop_draft, umfVaultDropDraft, "the draft cannot be dropped")

static umf_result_t begin_step(void *vault, void *params, void *out) {
    return umfVaultBegin(vault, params, out);
}

/* vault_begin(vault, timeout in ms, from, replace, identity or None, pool of copies or None) ->
 * draft */
static PyObject *vault_begin(PyObject *module, PyObject *args) {
    (void)module;
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    umf_vault_draft_handle_t draft = NULL;
    umf_result_t result;
    PyObject *number;
    Py_ssize_t size;
    void *vault;
    if (!PyArg_ParseTuple(args, "OO&O&pz#z:vault_begin", &number, umf_py_u64, &params.timeout_ms,
                          umf_py_u64, &params.from, &params.replace, &params.identity, &size,
                          &params.copy_pool) ||
        !umf_py_address(number, &vault)) {
        return NULL;
    }
    params.identity_size = (size_t)size;
    return umf_py_vault_patiently(&result, begin_step, vault, &params, &params.timeout_ms, &draft,
                                  UMF_REASON_BUSY)
               ? umf_py_number_or_last(result, draft, "a draft cannot begin")
               : NULL;
}

/* vault_pool(draft, text) -> pool */
static PyObject *vault_pool(PyObject *module, PyObject *args) {
    (void)module;
    umf_memory_pool_handle_t pool = NULL;
    PyObject *number;
    const char *text;
    void *draft;
    if (!PyArg_ParseTuple(args, "Os:vault_pool", &number, &text) ||
        !umf_py_address(number, &draft)) {
        return NULL;
    }
    umf_result_t result = umfVaultDraftPool(draft, text, &pool);
    return umf_py_number_or_last(result, pool, "the draft has no pool");
}

/* vault_allocate(pool, size, alignment) -> address */
static PyObject *vault_allocate(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number;
    Py_ssize_t size, alignment;
    void *pool, *ptr;
    if (!PyArg_ParseTuple(args, "Onn:vault_allocate", &number, &size, &alignment) ||
        !umf_py_address(number, &pool)) {
        return NULL;
    }
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    ptr = umfPoolAlignedMalloc(pool, (size_t)size, (size_t)alignment);
    Py_END_ALLOW_THREADS;
    return ptr ? umf_py_number(ptr)
               : umf_py_raise(umfPoolGetLastAllocationError(pool), "the draft has no memory", NULL,
                              0);
}

/* vault_put(draft, key, address, size, note, flags) */
static PyObject *vault_put(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number, *address;
    const char *key, *note;
    Py_ssize_t size, note_size;
    unsigned flags;
    void *draft, *ptr;
    if (!PyArg_ParseTuple(args, "OyOny#I:vault_put", &number, &key, &address, &size, &note,
                          &note_size, &flags) ||
        !umf_py_address(number, &draft) || !umf_py_address(address, &ptr)) {
        return NULL;
    }
    return umf_py_none_or_last(umfVaultPut(draft, key, ptr, (size_t)size, note_size ? note : NULL,
                                           (size_t)note_size, flags),
                               "the entry cannot be put");
}

/* A call with a handle and a key, without the GIL. */
static PyObject *call_with_key(PyObject *args, umf_result_t (*function)(void *, const char *),
                               const char *what) {
    PyObject *number;
    const char *key;
    void *handle;
    if (!PyArg_ParseTuple(args, "Oy", &number, &key) || !umf_py_address(number, &handle)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = function(handle, key);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_last(result, what);
}

static umf_result_t keep(void *draft, const char *prefix) {
    return umfVaultKeep(draft, prefix);
}

/* vault_keep(draft, prefix) */
static PyObject *vault_keep(PyObject *module, PyObject *args) {
    (void)module;
    return call_with_key(args, keep, "entries cannot be kept");
}

/* vault_copy(draft, view, prefix): a use of the view keeps it meanwhile */
static PyObject *vault_copy(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *to, *from;
    const char *prefix;
    void *draft, *view;
    if (!PyArg_ParseTuple(args, "OOy:vault_copy", &to, &from, &prefix) ||
        !umf_py_address(to, &draft) || !umf_py_address(from, &view)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfVaultCopy(draft, view, prefix);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_last(result, "entries cannot be copied");
}

static umf_result_t verify(void *view, const char *key) {
    return umfVaultVerify(view, key);
}

/* vault_verify(view, key): a view of the entry's memory keeps it meanwhile */
static PyObject *vault_verify(PyObject *module, PyObject *args) {
    (void)module;
    return call_with_key(args, verify, "the content is not verified");
}

/* vault_commit(draft, group or None, count, timeout in ms, digest) -> generation */
static PyObject *vault_commit(PyObject *module, PyObject *args) {
    (void)module;
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    PyObject *number;
    uint64_t generation = 0;
    void *draft;
    if (!PyArg_ParseTuple(args, "OzO&O&p:vault_commit", &number, &params.group, umf_py_u32,
                          &params.group_count, umf_py_u64, &params.timeout_ms, &params.digest) ||
        !umf_py_address(number, &draft)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfVaultCommit(draft, &params, &generation);
    Py_END_ALLOW_THREADS;
    return result == UMF_RESULT_SUCCESS ? PyLong_FromUnsignedLongLong(generation)
                                        : umf_py_raise_last(result, "the draft is not committed");
}

static umf_result_t attach_step(void *vault, void *params, void *out) {
    return umfVaultAttach(vault, params, out);
}

/* vault_attach(vault, generation, timeout in ms, identity or None, devices or None) -> view,
 * generation */
static PyObject *vault_attach(PyObject *module, PyObject *args) {
    (void)module;
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    umf_vault_view_handle_t view = NULL;
    PyObject *number;
    Py_ssize_t identity_size;
    uint64_t generation = 0;
    void *vault;
    if (!PyArg_ParseTuple(args, "OO&O&z#z:vault_attach", &number, umf_py_u64, &params.generation,
                          umf_py_u64, &params.timeout_ms, &params.identity, &identity_size,
                          &params.devices) ||
        !umf_py_address(number, &vault)) {
        return NULL;
    }
    params.identity_size = (size_t)identity_size;
    umf_result_t result;
    if (!umf_py_vault_patiently(&result, attach_step, vault, &params, &params.timeout_ms, &view,
                                UMF_REASON_TIMEOUT)) {
        return NULL;
    }
    if (result != UMF_RESULT_SUCCESS) {
        return umf_py_raise_last(result, "there is no generation to attach");
    }
    umfVaultViewGeneration(view, &generation);
    return Py_BuildValue("NK", umf_py_number(view), (unsigned long long)generation);
}

static PyObject *entry_tuple(const umf_vault_entry_t *entry) {
    return Py_BuildValue("yNny#Ii", entry->key, umf_py_number(entry->ptr), (Py_ssize_t)entry->size,
                         entry->note ? entry->note : "", (Py_ssize_t)entry->note_size, entry->flags,
                         entry->device);
}

/* vault_find(view, key) -> (key, address, size, note, flags, device), or None */
static PyObject *vault_find(PyObject *module, PyObject *args) {
    (void)module;
    umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
    PyObject *number;
    const char *key;
    void *view;
    if (!PyArg_ParseTuple(args, "Oy:vault_find", &number, &key) || !umf_py_address(number, &view)) {
        return NULL;
    }
    umfLastErrorClear();
    umf_result_t result = umfVaultFind(view, key, &entry);
    if (result == UMF_RESULT_SUCCESS) {
        return entry_tuple(&entry);
    }
    if (*umfLastErrorText()) { /* in a child of fork, whatever the key */
        return umf_py_raise_last(result, "the view cannot be read");
    }
    Py_RETURN_NONE;
}

static int add_entry(const umf_vault_entry_t *entry, void *list) {
    PyObject *tuple = entry_tuple(entry);
    int status = tuple ? PyList_Append(list, tuple) : -1;
    Py_XDECREF(tuple);
    return status;
}

/* A list that a visitor has filled; the result of the visit. */
static PyObject *list_or_raise(PyObject *list, umf_result_t result, const char *what) {
    if (result == UMF_RESULT_SUCCESS) {
        return list;
    }
    Py_DECREF(list);
    return PyErr_Occurred() ? NULL : umf_py_raise_last(result, what);
}

/* vault_each(view, prefix) -> entries as of vault_find */
static PyObject *vault_each(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number;
    const char *prefix;
    void *view;
    if (!PyArg_ParseTuple(args, "Oy:vault_each", &number, &prefix) ||
        !umf_py_address(number, &view)) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    return list ? list_or_raise(list, umfVaultEach(view, prefix, add_entry, list),
                                "the view cannot be read")
                : NULL;
}

static PyObject *stat_tuple(const umf_vault_stat_t *stat) {
    return Py_BuildValue(
        "KKKKKKKIIKsKKI", (unsigned long long)stat->current, (unsigned long long)stat->generations,
        (unsigned long long)stat->bytes, (unsigned long long)stat->readers,
        (unsigned long long)stat->limit, (unsigned long long)stat->restarts,
        (unsigned long long)stat->event, (unsigned)stat->writer, (unsigned)stat->devices,
        (unsigned long long)stat->device_bytes, stat->device, (unsigned long long)stat->copy_bytes,
        (unsigned long long)stat->evicted, (unsigned)stat->claims);
}

/* vault_stat(vault) -> members in the order of umf_vault_stat_t */
static PyObject *vault_stat(PyObject *module, PyObject *number) {
    (void)module;
    umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
    void *vault;
    if (!umf_py_address(number, &vault)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfVaultStat(vault, &stat);
    Py_END_ALLOW_THREADS;
    return result == UMF_RESULT_SUCCESS ? stat_tuple(&stat)
                                        : umf_py_raise_last(result, "the vault has no state");
}

typedef struct event_wait_t {
    uint64_t after, ms;
} event_wait_t;

static umf_result_t wait_step(void *vault, void *params, void *out) {
    const event_wait_t *wait = params;
    return umfVaultWait(vault, wait->after, wait->ms, out);
}

/* vault_wait(vault, after, timeout in ms) -> (number, type, generation), or None */
static PyObject *vault_wait(PyObject *module, PyObject *args) {
    (void)module;
    umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    event_wait_t wait;
    umf_result_t result;
    PyObject *number;
    void *vault;
    if (!PyArg_ParseTuple(args, "OO&O&:vault_wait", &number, umf_py_u64, &wait.after, umf_py_u64,
                          &wait.ms) ||
        !umf_py_address(number, &vault) ||
        !umf_py_vault_patiently(&result, wait_step, vault, &wait, &wait.ms, &event,
                                UMF_REASON_TIMEOUT)) {
        return NULL;
    }
    if (result == UMF_RESULT_SUCCESS) {
        return Py_BuildValue("KiK", (unsigned long long)event.number, (int)event.type,
                             (unsigned long long)event.generation);
    }
    if (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES && umfLastReason() == UMF_REASON_TIMEOUT) {
        Py_RETURN_NONE;
    }
    return umf_py_raise_last(result, "there are no events");
}

/* vault_drop(vault, generation) */
static PyObject *vault_drop(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *number;
    uint64_t generation;
    void *vault;
    if (!PyArg_ParseTuple(args, "OO&:vault_drop", &number, umf_py_u64, &generation) ||
        !umf_py_address(number, &vault)) {
        return NULL;
    }
    umf_result_t result;
    Py_BEGIN_ALLOW_THREADS;
    result = umfVaultDrop(vault, generation);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_last(result, "it cannot be dropped");
}

static int add_vault(const char *name, const umf_vault_stat_t *stat, void *list) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *tuple = Py_BuildValue("yN", name, stat_tuple(stat));
    int status = tuple ? PyList_Append(list, tuple) : -1;
    Py_XDECREF(tuple);
    PyGILState_Release(state);
    return status;
}

/* vault_list(folder or None) -> [(name, state)]; no service: none */
static PyObject *vault_list(PyObject *module, PyObject *args) {
    (void)module;
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    if (!PyArg_ParseTuple(args, "z:vault_list", &params.folder)) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    if (!list) {
        return NULL;
    }
    params.start = 0;
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = umfVaultList(&params, add_vault, list);
    Py_END_ALLOW_THREADS;
    bool is_absent =
        result != UMF_RESULT_SUCCESS && !PyErr_Occurred() && umfLastReason() == UMF_REASON_ABSENT;
    return list_or_raise(list, is_absent ? UMF_RESULT_SUCCESS : result,
                         "the vaults cannot be listed");
}

/* vault_stop(folder or None, drop) */
static PyObject *vault_stop(PyObject *module, PyObject *args) {
    (void)module;
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    int drop;
    if (!PyArg_ParseTuple(args, "zp:vault_stop", &params.folder, &drop)) {
        return NULL;
    }
    params.start = 0;
    umf_result_t result;
    umfLastErrorClear();
    Py_BEGIN_ALLOW_THREADS;
    result = umfVaultStop(&params, drop);
    Py_END_ALLOW_THREADS;
    return umf_py_none_or_last(result, "the service goes on");
}

PyMethodDef umf_py_vault_functions[] = {
    {"vault_open", umf_py_vault_open, METH_VARARGS,
     "vault_open(name, folder, start, timeout_ms, limit, keep, /)\n--\n\n"},
    {"vault_close", vault_close, METH_O, "vault_close(vault, /)\n--\n\n"},
    {"vault_begin", vault_begin, METH_VARARGS,
     "vault_begin(vault, timeout_ms, from_, replace, identity, copy_pool, /)\n--\n\n"},
    {"vault_pool", vault_pool, METH_VARARGS, "vault_pool(draft, text, /)\n--\n\n"},
    {"vault_allocate", vault_allocate, METH_VARARGS,
     "vault_allocate(pool, size, alignment, /)\n--\n\n"},
    {"vault_put", vault_put, METH_VARARGS,
     "vault_put(draft, key, ptr, size, note, flags, /)\n--\n\n"},
    {"vault_keep", vault_keep, METH_VARARGS, "vault_keep(draft, prefix, /)\n--\n\n"},
    {"vault_copy", vault_copy, METH_VARARGS, "vault_copy(draft, view, prefix, /)\n--\n\n"},
    {"vault_commit", vault_commit, METH_VARARGS,
     "vault_commit(draft, group, count, timeout_ms, digest, /)\n--\n\n"},
    {"vault_abort", vault_abort, METH_O, "vault_abort(draft, /)\n--\n\n"},
    {"vault_attach", vault_attach, METH_VARARGS,
     "vault_attach(vault, generation, timeout_ms, identity, devices, /)\n--\n\n"},
    {"vault_detach", vault_detach, METH_O, "vault_detach(view, /)\n--\n\n"},
    {"vault_verify", vault_verify, METH_VARARGS, "vault_verify(view, key, /)\n--\n\n"},
    {"vault_find", vault_find, METH_VARARGS, "vault_find(view, key, /)\n--\n\n"},
    {"vault_each", vault_each, METH_VARARGS, "vault_each(view, prefix, /)\n--\n\n"},
    {"vault_stat", vault_stat, METH_O, "vault_stat(vault, /)\n--\n\n"},
    {"vault_wait", vault_wait, METH_VARARGS, "vault_wait(vault, after, timeout_ms, /)\n--\n\n"},
    {"vault_drop", vault_drop, METH_VARARGS, "vault_drop(vault, generation, /)\n--\n\n"},
    {"vault_drop_draft", vault_drop_draft, METH_O, "vault_drop_draft(vault, /)\n--\n\n"},
    {"vault_list", vault_list, METH_VARARGS, "vault_list(folder, /)\n--\n\n"},
    {"vault_stop", vault_stop, METH_VARARGS, "vault_stop(folder, drop, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
