/* Ranges that others have published: open and close, operations on them, and the wait for these. */
#include <string.h>

#include "base/last_error.h"
#include "base/log.h"
#include "ext/remote/own.h"
#include "system/checksum.h"

#define STOP_MS 50 /* so often a wait asks whether to stop */

static const umf_handle_kind_t memory_handle = {"a range of umfRemoteOpen"};
static const umf_handle_kind_t op_handle = {"an operation of umfRemoteGet or umfRemotePut"};

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
        [REMOTE_UNREACHED] = {UMF_REASON_GONE,
                              "the owner has ended, or is out of reach of shared memory, and one "
                              "side has no UCX (umfRemoteProbe)"},
        [REMOTE_WITHOUT_UCX] = {UMF_REASON_UNSUPPORTED, "the owner is on another machine, and one "
                                                        "side has no UCX (umfRemoteProbe)"},
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
    for (bool spins = true;; spins = false) {
        uint32_t seen = umf_event_count_read(&remote->changes);
        if (atomic_load_explicit(&op->is_done, memory_order_acquire)) {
            return true;
        }
        uint64_t passed = umf_remote_now() - begin;
        if (passed >= timeout_ms) {
            return false;
        }
        if (spins && umf_remote_spin(&remote->changes, seen)) {
            continue;
        }
        uint64_t left = timeout_ms - passed;
        umf_event_count_wait_for(&remote->changes, seen, (left < 1000 ? left : 1000) * 1000000);
    }
}

/* Runs a task of the thread and waits for it, at most until `stop` returns another number than 0.
 * NULL: without a stop. */
static umf_result_t run_task(umf_remote_memory_handle_t memory, remote_task_t task,
                             umf_remote_stop_t stop, void *arg) {
    struct umf_remote_op_t op = {.memory = memory, .task = task};
    umf_list_init(&op.link);
    if (!submit(&op)) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    while (!await(&op, stop ? STOP_MS : UINT64_MAX)) {
        if (stop(arg) != 0) {
            atomic_store(&op.is_canceled, true);
            umf_remote_wake(memory->remote);
            await(&op, UINT64_MAX);
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
    }
    if (op.result != UMF_RESULT_SUCCESS) {
        return UMF_FAIL(reason_of(&op)->reason, op.result, "a remote range cannot be opened: %s",
                        reason_of(&op)->text);
    }
    return op.result;
}

bool umf_remote_handle_read(const void *bytes, size_t size, remote_handle_bytes_t *handle,
                            unsigned char *address) {
    unsigned char copy[UMF_REMOTE_HANDLE_MAX];
    if (!bytes || size < sizeof(*handle) || size > sizeof(copy)) {
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

static void close_task(umf_remote_memory_handle_t memory) {
    run_task(memory, REMOTE_TASK_CLOSE, NULL, NULL);
}

UMF_API_EXT_1_3 umf_result_t umfRemoteOpenUntil(umf_remote_handle_t remote, const void *bytes,
                                                size_t size, umf_remote_stop_t stop, void *arg,
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
    made->must_renew = true; /* so the peer checks whether the owner still has it */
    memcpy(made->secret, handle.secret, REMOTE_ID);
    memcpy(made->address, address, sizeof(address));
    umf_result_t result = run_task(made, REMOTE_TASK_OPEN, stop, arg);
    if (result != UMF_RESULT_SUCCESS) {
        close_task(made);
        umf_handle_delete(made, sizeof(*made), &memory_handle, __func__);
        return result;
    }
    umf_lock(&remote->lock);
    umf_list_add(&remote->memories, &made->link);
    umf_unlock(&remote->lock);
    *memory = made;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfRemoteOpen(umf_remote_handle_t remote, const void *bytes,
                                           size_t size, umf_remote_memory_handle_t *memory) {
    if (!umf_remote_check(remote, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umfRemoteOpenUntil(remote, bytes, size, NULL, NULL, memory);
}

static bool memory_check(umf_remote_memory_handle_t memory, const char *function) {
    return umf_handle_check(memory, &memory_handle, function) &&
           umf_remote_is_of_this_process(memory->remote, function);
}

UMF_API_EXT_1_3 umf_result_t umfRemoteGetSize(umf_remote_memory_handle_t memory, size_t *size) {
    if (!memory_check(memory, __func__) || !size) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = atomic_load(&memory->size);
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfRemoteClose(umf_remote_memory_handle_t memory) {
    if (!memory_check(memory, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_remote_handle_t remote = memory->remote;
    close_task(memory);
    umf_lock(&remote->lock);
    umf_list_remove(&memory->link);
    umf_unlock(&remote->lock);
    return umf_handle_delete(memory, sizeof(*memory), &memory_handle, __func__);
}

void umf_remote_memories_end(umf_remote_handle_t remote) {
    while (!umf_list_is_empty(&remote->memories)) {
        umf_remote_memory_handle_t memory =
            UMF_CONTAINER_OF(remote->memories.next, struct umf_remote_memory_t, link);
        umf_list_remove(&memory->link);
        umf_handle_delete(memory, sizeof(*memory), &memory_handle, __func__);
    }
}

UMF_API_EXT_1_3 umf_result_t umfRemoteWait(umf_remote_op_handle_t op, uint64_t timeout_ms) {
    if (!umf_handle_check(op, &op_handle, __func__) ||
        !umf_remote_is_of_this_process(op->memory->remote, __func__)) {
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

UMF_API_EXT_1_3 umf_result_t umfRemoteCancel(umf_remote_op_handle_t op) {
    if (!umf_handle_check(op, &op_handle, __func__) ||
        !umf_remote_is_of_this_process(op->memory->remote, __func__)) {
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

UMF_API_EXT_1_3 umf_result_t umfRemoteGet(umf_remote_memory_handle_t memory, size_t offset,
                                          void *to, size_t size, umf_remote_op_handle_t *op) {
    return memory_check(memory, __func__) ? begin(memory, REMOTE_TASK_GET, offset, to, size, op)
                                          : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1_3 umf_result_t umfRemotePut(umf_remote_memory_handle_t memory, size_t offset,
                                          const void *from, size_t size,
                                          umf_remote_op_handle_t *op) {
    return memory_check(memory, __func__)
               ? begin(memory, REMOTE_TASK_PUT, offset, (void *)(uintptr_t)from, size, op)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}
