/* Opening a vault. A service that does not answer holds the call for its whole timeout, so the main
 * thread makes it in a thread, and handlers of signals run meanwhile. If one raises, the call goes
 * on there, and what it has opened is closed. */
#include "core.h"

#include <umf/vault.h>

#include <stdlib.h>
#include <string.h>

typedef enum state_t { OPENING, OPENED, LEFT } state_t;

typedef struct opening_t {
    char *name, *folder;
    umf_vault_params_t params;
    umf_vault_handle_t vault;
    umf_result_t result;
    umf_py_failure_t failure;
    unsigned process;
    int state; /* atomic: who comes second frees it */
} opening_t;

static void opening_free(opening_t *opening) {
    if (opening) {
        free(opening->name);
        free(opening->folder);
        free(opening);
    }
}

static opening_t *opening_new(const char *name, const umf_vault_params_t *params) {
    opening_t *made = calloc(1, sizeof(*made));
    if (made) {
        made->params = *params;
        made->name = strdup(name);
        made->folder = params->folder ? strdup(params->folder) : NULL;
        made->params.folder = made->folder;
        made->process = umf_py_process();
    }
    if (!made || !made->name || (params->folder && !made->folder)) {
        opening_free(made);
        PyErr_NoMemory();
        return NULL;
    }
    return made;
}

static void open_now(opening_t *opening) {
    umfLastErrorClear();
    opening->result = umfVaultOpen(opening->name, &opening->params, &opening->vault);
    if (opening->result != UMF_RESULT_SUCCESS) {
        umf_py_why_take(&opening->failure); /* it is of this thread */
    }
}

static void opening_drop(opening_t *opening) {
    if (opening->result == UMF_RESULT_SUCCESS) {
        umfVaultClose(opening->vault);
    }
    opening_free(opening);
}

static void *open_thread(void *arg) {
    opening_t *opening = arg;
    open_now(opening);
    if (__atomic_exchange_n(&opening->state, OPENED, __ATOMIC_ACQ_REL) == LEFT) {
        opening_drop(opening);
    }
    return NULL;
}

/* Also in a child of fork, which has no such thread. */
static bool is_over(void *arg) {
    const opening_t *opening = arg;
    return opening->process != umf_py_process() ||
           __atomic_load_n(&opening->state, __ATOMIC_ACQUIRE) == OPENED;
}

/* False and an exception if there is nothing to read in it; then it is no longer the caller's. */
static bool open_patiently(opening_t *opening) {
    bool is_of_folder = strncmp(opening->name, "file:", 5) == 0;
    if (is_of_folder || !umf_py_is_main_thread() || !umf_py_thread_start(open_thread, opening)) {
        Py_BEGIN_ALLOW_THREADS;
        open_now(opening);
        Py_END_ALLOW_THREADS;
        return true;
    }
    int state = umf_py_wait(is_over, opening, -1);
    if (opening->process != umf_py_process()) {
        if (state == 0) {
            PyErr_SetString(PyExc_ValueError, "the parent process opens the vault");
        }
        opening_free(opening);
        return false;
    }
    if (state < 0) {
        if (__atomic_exchange_n(&opening->state, LEFT, __ATOMIC_ACQ_REL) == OPENED) {
            Py_BEGIN_ALLOW_THREADS;
            opening_drop(opening);
            Py_END_ALLOW_THREADS;
        }
        return false;
    }
    return true;
}

/* vault_open(name, folder or None, start, timeout in ms, limit, keep) -> vault */
PyObject *umf_py_vault_open(PyObject *module, PyObject *args) {
    (void)module;
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    const char *name;
    if (!PyArg_ParseTuple(args, "szpO&O&O&:vault_open", &name, &params.folder, &params.start,
                          umf_py_u64, &params.timeout_ms, umf_py_u64, &params.limit, umf_py_u32,
                          &params.keep)) {
        return NULL;
    }
    opening_t *opening = opening_new(name, &params);
    if (!opening || !open_patiently(opening)) {
        return NULL;
    }
    PyObject *number = opening->result == UMF_RESULT_SUCCESS
                           ? umf_py_number(opening->vault)
                           : umf_py_raise_as(opening->result, "the vault cannot be opened",
                                             opening->failure.text, opening->failure.reason, 0);
    opening_free(opening);
    return number;
}
