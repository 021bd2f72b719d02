/* Contexts: start and stop, and the calls of peers. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/remote/own.h"
#include "system/checksum.h"
#include "system/os.h"

#define DEADLINE_MS 10000
#define LIMIT ((size_t)64 << 20)

static const umf_handle_kind_t remote_handle = {"a context of umfRemoteCreate"};
static const umf_handle_kind_t memory_handle = {"a range of umfRemoteOpen"};
static const umf_handle_kind_t op_handle = {"an operation of umfRemoteGet or umfRemotePut"};

/* All contexts of the process, for the end of the library. */
UMF_LOCK_STATIC(all_lock, UMF_RANK_REMOTE);
static umf_list_t all = {&all, &all}; /* Sync: all_lock */

UMF_API_EXT_1 umf_result_t umfRemoteProbe(char *text, size_t size) {
    umf_ucx_t ucx;
    if (!text || !size) {
        UMF_LOG_ERROR("text is NULL, or its size 0");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_ucx_load(NULL, &ucx, text, size);
}

static bool is_of_this_process(umf_remote_handle_t remote, const char *function) {
    if (remote->forks != umf_fork_count()) {
        UMF_LOG_ERROR("%s: a child of fork cannot use the context of its parent", function);
        return false;
    }
    return true;
}

bool umf_remote_check(umf_remote_handle_t remote, const char *function) {
    return umf_handle_check(remote, &remote_handle, function) &&
           is_of_this_process(remote, function);
}

/* --- start ------------------------------------------------------------------------------------ */

static umf_result_t ucx_fail(umf_remote_handle_t remote, const char *what,
                             umf_ucs_status_t status) {
    UMF_LOG_ERROR("UCX refuses %s: %s", what, remote->ucx.ucs_status_string(status));
    return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

/* Transports whose peers' ends are noticed, on these devices: the program's settings do not count.
 */
static umf_ucs_status_t configure(umf_remote_handle_t remote, const char *devices, void **config) {
    umf_ucs_status_t status = remote->ucx.ucp_config_read(NULL, NULL, config);
    if (status == UMF_UCS_OK) {
        status = remote->ucx.ucp_config_modify(*config, "NET_DEVICES", devices);
    }
    return status == UMF_UCS_OK ? remote->ucx.ucp_config_modify(*config, "TLS", "tcp") : status;
}

static umf_result_t context_make(umf_remote_handle_t remote, const char *devices) {
    void *config = NULL;
    umf_ucx_context_params_t params = {.mask = UMF_UCX_PARAM_FEATURES,
                                       .features = UMF_UCX_FEATURE_AM | UMF_UCX_FEATURE_WAKEUP};
    umf_ucx_worker_params_t worker = {.mask = UMF_UCX_WORKER_THREAD_MODE,
                                      .thread_mode = UMF_UCX_THREAD_SINGLE};
    umf_ucs_status_t status = configure(remote, devices, &config);
    if (status == UMF_UCS_OK) {
        status = remote->ucx.ucp_init_version(1, 13, &params, config, &remote->context);
    }
    if (config) {
        remote->ucx.ucp_config_release(config);
    }
    if (status != UMF_UCS_OK) {
        remote->context = NULL;
        return ucx_fail(remote, devices, status);
    }
    status = remote->ucx.ucp_worker_create(remote->context, &worker, &remote->worker);
    if (status != UMF_UCS_OK) {
        remote->worker = NULL;
        return ucx_fail(remote, "a worker", status);
    }
    status = remote->ucx.ucp_worker_get_efd(remote->worker, &remote->efd);
    return status == UMF_UCS_OK ? UMF_RESULT_SUCCESS : ucx_fail(remote, "a descriptor", status);
}

static umf_result_t address_take(umf_remote_handle_t remote) {
    void *address = NULL;
    size_t length = 0;
    umf_ucs_status_t status = remote->ucx.ucp_worker_get_address(remote->worker, &address, &length);
    if (status != UMF_UCS_OK) {
        return ucx_fail(remote, "an address", status);
    }
    if (length <= REMOTE_ADDRESS_MAX) {
        memcpy(remote->address, address, length);
        remote->address_length = length;
    }
    remote->ucx.ucp_worker_release_address(remote->worker, address);
    if (length > REMOTE_ADDRESS_MAX) {
        UMF_LOG_ERROR("the address has %zu bytes: name fewer devices", length);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return UMF_RESULT_SUCCESS;
}

static void remote_delete(umf_remote_handle_t remote) {
    if (remote->worker) {
        remote->ucx.ucp_worker_destroy(remote->worker);
    }
    if (remote->context) {
        remote->ucx.ucp_cleanup(remote->context);
    }
    umf_kept_fd_close(&remote->page);
    umf_kept_fd_close(&remote->wakes[0]);
    umf_kept_fd_close(&remote->wakes[1]);
    umf_lock_destroy(&remote->lock);
    umf_meta_free(remote, sizeof(*remote));
}

static umf_result_t remote_check(const umf_remote_params_t *params, umf_remote_handle_t *out) {
    if (!out || params->struct_size < sizeof(*params)) {
        UMF_LOG_ERROR("umfRemoteCreate needs a place for the handle, and the size of the "
                      "parameters");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->devices && strcmp(params->devices, "lo") != 0 && !params->key_file) {
        UMF_LOG_ERROR("devices \"%s\" need a key_file: without one anybody on these networks could "
                      "connect",
                      params->devices);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* A pipe has a file of its own, by which it is told from one that the program opens later under the
 * same number; event descriptors share one file. */
static bool wakes_open(umf_remote_handle_t remote) {
    int pair[2];
    if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) != 0) {
        return false;
    }
    int error = umf_kept_fd_take(&remote->wakes[0], pair[0]);
    int other = umf_kept_fd_take(&remote->wakes[1], pair[1]);
    errno = error ? error : other;
    return errno == 0;
}

static umf_result_t remote_fill(umf_remote_handle_t remote, const umf_remote_params_t *params) {
    char why[256];
    remote->deadline = params->deadline_ms ? params->deadline_ms : DEADLINE_MS;
    remote->limit = params->limit_in_flight ? params->limit_in_flight : LIMIT;
    remote->has_key = params->key_file != NULL;
    umf_result_t result =
        remote->has_key ? umf_remote_key_read(&remote->key, params->key_file) : UMF_RESULT_SUCCESS;
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_ucx_load(params->library, &remote->ucx, why, sizeof(why));
        if (result != UMF_RESULT_SUCCESS) {
            UMF_LOG_ERROR("%s", why);
        }
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!wakes_open(remote) || umf_os_random(remote->id, REMOTE_ID) != 0) {
        UMF_LOG_PERROR("no descriptor, or no random numbers");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    result = context_make(remote, params->devices ? params->devices : "lo");
    return result == UMF_RESULT_SUCCESS ? address_take(remote) : result;
}

/* Threads must not call UCX after its own destructors, which run before those of this library. */
static void end_at_exit(void) {
    static atomic_bool is_done;
    if (!atomic_exchange(&is_done, true)) {
        atexit(umf_remote_teardown);
    }
}

UMF_API_EXT_1 umf_result_t umfRemoteCreate(const umf_remote_params_t *params,
                                           umf_remote_handle_t *out) {
    static const umf_remote_params_t defaults = UMF_REMOTE_PARAMS_INIT;
    params = params ? params : &defaults;
    umf_result_t result = remote_check(params, out);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_remote_handle_t remote = umf_meta_alloc(sizeof(*remote));
    if (!remote) {
        UMF_LOG_ERROR("no memory for a context");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_lock_init(&remote->lock, UMF_RANK_REMOTE);
    remote->forks = umf_fork_count();
    umf_list_t *lists[] = {&remote->commands,  &remote->exports,     &remote->ops,
                           &remote->parts,     &remote->connections, &remote->sessions,
                           &remote->transfers, &remote->all,         &remote->memories};
    for (size_t i = 0; i < UMF_COUNT_OF(lists); i++) {
        umf_list_init(lists[i]);
    }
    result = remote_fill(remote, params);
    if (result == UMF_RESULT_SUCCESS) {
        umf_remote_page_open(remote, params->devices ? params->devices : "lo");
        result = umf_handle_begin(remote, &remote_handle);
    }
    if (result == UMF_RESULT_SUCCESS && umf_remote_start(remote) != 0) {
        UMF_LOG_ERROR("no thread for a context");
        umf_handle_end(remote, &remote_handle, __func__);
        result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (result != UMF_RESULT_SUCCESS) {
        remote_delete(remote);
        return result;
    }
    umf_lock(&all_lock);
    umf_list_add(&all, &remote->all);
    umf_unlock(&all_lock);
    end_at_exit();
    *out = remote;
    return UMF_RESULT_SUCCESS;
}

static void memories_end(umf_remote_handle_t remote) {
    while (!umf_list_is_empty(&remote->memories)) {
        umf_remote_memory_handle_t memory =
            UMF_CONTAINER_OF(remote->memories.next, struct umf_remote_memory_t, link);
        umf_list_remove(&memory->link);
        umf_handle_delete(memory, sizeof(*memory), &memory_handle, __func__);
    }
}

/* The thread of a parent is none of a child, and what UCX has belongs to the parent. */
static void remote_end(umf_remote_handle_t remote) {
    if (remote->forks != umf_fork_count()) {
        return;
    }
    umf_remote_stop(remote);
    memories_end(remote);
    umf_remote_withdraw_all(remote);
    remote_delete(remote);
}

UMF_API_EXT_1 umf_result_t umfRemoteDestroy(umf_remote_handle_t remote) {
    if (!remote) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_handle_end(remote, &remote_handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_lock(&all_lock);
    umf_list_remove(&remote->all);
    umf_unlock(&all_lock);
    remote_end(remote);
    return UMF_RESULT_SUCCESS;
}

void umf_remote_teardown(void) {
    for (;;) {
        umf_lock(&all_lock);
        umf_remote_handle_t remote =
            umf_list_is_empty(&all) ? NULL : UMF_CONTAINER_OF(all.next, struct umf_remote_t, all);
        if (remote) {
            umf_list_remove(&remote->all);
        }
        umf_unlock(&all_lock);
        if (!remote) {
            return;
        }
        umf_handle_end(remote, &remote_handle, __func__);
        remote_end(remote);
    }
}

/* --- operations ------------------------------------------------------------------------------- */

typedef struct reason_t {
    umf_reason_t reason;
    const char *text;
} reason_t;

static const reason_t *reason_of(const struct umf_remote_op_t *op) {
    static const reason_t reasons[] = {
        [REMOTE_FINE] = {UMF_REASON_NONE, "there is no memory for bookkeeping"},
        [REMOTE_STALE] = {UMF_REASON_STALE, "the range was withdrawn, freed or suspended, or its "
                                            "owner has ended"},
        [REMOTE_DENIED] =
            {UMF_REASON_DENIED,
             "the owner refuses the secret or the right, or one side has another key"},
        [REMOTE_BEYOND] = {UMF_REASON_NONE, "it lies beyond the end of the range"},
        [REMOTE_BUSY] = {UMF_REASON_BUSY, "the owner has too much in flight, or no memory"},
        [REMOTE_FAILED] = {UMF_REASON_BROKEN, "the owner answers something else, or a transfer was "
                                              "broken off"},
        [REMOTE_GONE] = {UMF_REASON_GONE, "the owner has ended or was reset: open the range again"},
        [REMOTE_CANCELED] = {UMF_REASON_NONE, "it was canceled"},
    };
    static const reason_t late = {UMF_REASON_DEADLINE,
                                  "nothing came within the deadline, so the connection was closed: "
                                  "open the range again"};
    if (op->is_late) {
        return &late;
    }
    return &reasons[(size_t)op->answer < UMF_COUNT_OF(reasons) ? op->answer : REMOTE_FAILED];
}

/* false: the context has ended. */
static bool submit(umf_remote_op_handle_t op) {
    umf_remote_handle_t remote = op->memory->remote;
    umf_lock(&remote->lock);
    bool is_taken = !remote->is_over;
    if (is_taken) {
        umf_list_add_tail(&remote->commands, &op->link);
    }
    umf_unlock(&remote->lock);
    umf_remote_wake(remote);
    return is_taken;
}

/* true: it is done. */
static bool await(umf_remote_op_handle_t op, uint64_t timeout_ms) {
    umf_remote_handle_t remote = op->memory->remote;
    uint64_t begin = umf_remote_now();
    for (;;) {
        uint32_t seen = umf_event_count_read(&remote->changes);
        if (atomic_load_explicit(&op->is_done, memory_order_acquire)) {
            return true;
        }
        uint64_t passed = umf_remote_now() - begin;
        if (passed >= timeout_ms) {
            return false;
        }
        uint64_t left = timeout_ms - passed;
        umf_event_count_wait_for(&remote->changes, seen, (left < 1000 ? left : 1000) * 1000000);
    }
}

/* Runs a task of the thread and waits for it. */
static umf_result_t run_task(umf_remote_memory_handle_t memory, remote_task_t task) {
    struct umf_remote_op_t op = {.memory = memory, .task = task};
    umf_list_init(&op.link);
    if (!submit(&op)) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    await(&op, UINT64_MAX);
    if (op.result != UMF_RESULT_SUCCESS) {
        return UMF_FAIL(reason_of(&op)->reason, op.result, "a remote range cannot be opened: %s",
                        reason_of(&op)->text);
    }
    return op.result;
}

bool umf_remote_handle_read(const void *bytes, size_t size, remote_handle_bytes_t *handle,
                            unsigned char *address) {
    unsigned char copy[UMF_REMOTE_HANDLE_MAX];
    if (!bytes || size <= sizeof(*handle) || size > sizeof(copy)) {
        return false;
    }
    memcpy(copy, bytes, size);
    memcpy(handle, copy, sizeof(*handle));
    uint64_t check = handle->check;
    handle->check = 0;
    memcpy(copy, handle, sizeof(*handle));
    if (handle->magic != REMOTE_MAGIC || handle->version != REMOTE_VERSION ||
        handle->length != size || umf_sum(copy, size) != check ||
        handle->address_length != size - sizeof(*handle) ||
        handle->address_length > REMOTE_ADDRESS_MAX) {
        return false;
    }
    memcpy(address, copy + sizeof(*handle), handle->address_length);
    return true;
}

UMF_API_EXT_1 umf_result_t umfRemoteOpen(umf_remote_handle_t remote, const void *bytes, size_t size,
                                         umf_remote_memory_handle_t *memory) {
    if (!umf_remote_check(remote, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    remote_handle_bytes_t handle;
    unsigned char address[REMOTE_ADDRESS_MAX] = {0};
    if (!memory || !umf_remote_handle_read(bytes, size, &handle, address)) {
        return UMF_FAIL(memory ? UMF_REASON_BROKEN : UMF_REASON_NONE,
                        UMF_RESULT_ERROR_INVALID_ARGUMENT, "%s",
                        memory ? "the bytes are no handle of umfRemoteGetHandle of this version, "
                                 "or they are damaged"
                               : "memory is NULL");
    }
    umf_remote_memory_handle_t made = umf_handle_new(sizeof(*made), &memory_handle);
    if (!made) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made->remote = remote;
    made->handle = handle;
    made->export_number = handle.export_number;
    made->generation = handle.generation;
    made->must_renew = true; /* so the owner is asked whether it is still there */
    memcpy(made->secret, handle.secret, REMOTE_ID);
    memcpy(made->address, address, sizeof(address));
    umf_result_t result = run_task(made, REMOTE_TASK_OPEN);
    if (result != UMF_RESULT_SUCCESS) {
        run_task(made, REMOTE_TASK_CLOSE);
        umf_handle_delete(made, sizeof(*made), &memory_handle, __func__);
        return result;
    }
    umf_lock(&remote->lock);
    umf_list_add(&remote->memories, &made->link);
    umf_unlock(&remote->lock);
    *memory = made;
    return UMF_RESULT_SUCCESS;
}

static bool memory_check(umf_remote_memory_handle_t memory, const char *function) {
    return umf_handle_check(memory, &memory_handle, function) &&
           is_of_this_process(memory->remote, function);
}

UMF_API_EXT_1 umf_result_t umfRemoteGetSize(umf_remote_memory_handle_t memory, size_t *size) {
    if (!memory_check(memory, __func__) || !size) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = atomic_load(&memory->size);
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfRemoteClose(umf_remote_memory_handle_t memory) {
    if (!memory_check(memory, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_remote_handle_t remote = memory->remote;
    run_task(memory, REMOTE_TASK_CLOSE);
    umf_lock(&remote->lock);
    umf_list_remove(&memory->link);
    umf_unlock(&remote->lock);
    return umf_handle_delete(memory, sizeof(*memory), &memory_handle, __func__);
}

UMF_API_EXT_1 umf_result_t umfRemoteWait(umf_remote_op_handle_t op, uint64_t timeout_ms) {
    if (!umf_handle_check(op, &op_handle, __func__) ||
        !is_of_this_process(op->memory->remote, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!await(op, timeout_ms)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result = op->result;
    if (result != UMF_RESULT_SUCCESS) {
        result =
            UMF_FAIL(reason_of(op)->reason, result, "a %s of %zu bytes failed: %s",
                     op->task == REMOTE_TASK_GET ? "get" : "put", op->size, reason_of(op)->text);
    }
    umf_handle_delete(op, sizeof(*op), &op_handle, __func__);
    return result;
}

UMF_API_EXT_1 umf_result_t umfRemoteCancel(umf_remote_op_handle_t op) {
    if (!umf_handle_check(op, &op_handle, __func__) ||
        !is_of_this_process(op->memory->remote, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    atomic_store(&op->is_canceled, true);
    umf_remote_wake(op->memory->remote);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t begin(umf_remote_memory_handle_t memory, remote_task_t task, size_t offset,
                          void *data, size_t size, umf_remote_op_handle_t *op) {
    size_t room = atomic_load(&memory->size);
    if ((!data && size) || offset > room || size > room - offset) {
        UMF_LOG_ERROR("%zu bytes at offset %zu are not in the %zu bytes of the range, or there is "
                      "no buffer for them",
                      size, offset, room);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_remote_op_handle_t made = umf_handle_new(sizeof(*made), &op_handle);
    if (!made) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made->memory = memory;
    made->task = task;
    made->offset = offset;
    made->data = data;
    made->size = size;
    umf_list_init(&made->link);
    if (!submit(made)) {
        UMF_LOG_ERROR("the context has ended");
        umf_handle_delete(made, sizeof(*made), &op_handle, __func__);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (!op) {
        return umfRemoteWait(made, UINT64_MAX);
    }
    *op = made;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfRemoteGet(umf_remote_memory_handle_t memory, size_t offset, void *to,
                                        size_t size, umf_remote_op_handle_t *op) {
    return memory_check(memory, __func__) ? begin(memory, REMOTE_TASK_GET, offset, to, size, op)
                                          : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1 umf_result_t umfRemotePut(umf_remote_memory_handle_t memory, size_t offset,
                                        const void *from, size_t size, umf_remote_op_handle_t *op) {
    return memory_check(memory, __func__)
               ? begin(memory, REMOTE_TASK_PUT, offset, (void *)(uintptr_t)from, size, op)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}
