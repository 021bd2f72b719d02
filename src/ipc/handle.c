/*
 * Handles given to the user: umfGetIPCHandle and umfPutIPCHandle.
 *
 * A handle copies the export of its span, unless the pool describes its blocks itself. It pins the
 * memory that it names until it is put.
 */
#include <stdatomic.h>

#include <umf/ipc.h>

#include "base/log.h"
#include "ipc/export.h"
#include "ipc/export_mark.h"
#include "ipc/wire.h"
#include "object/object.h"

/* The handle of a block that the pool describes itself, and that keeps its description. */
static umf_result_t handle_of_block(const umf_span_t *span, umf_memory_pool_handle_t pool,
                                    const void *ptr, umf_ipc_handle_t *handle, size_t *size) {
    umf_memory_provider_handle_t provider = umf_tracked_of(span)->root;
    umf_pool_export_t made = {.id = umf_export_new_id()};
    umf_result_t result = umf_export_size(provider, size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_export_mark_t *mark = umf_export_mark_new(*size);
    if (mark == NULL) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    char *bytes = (char *)(mark + 1);
    result = pool->fast->get_handle(pool->self, ptr, bytes + UMF_WIRE_HEADER, &made);
    if (result != UMF_RESULT_SUCCESS) {
        umf_export_mark_free(mark);
        return result;
    }
    uint64_t fixed_sum = umf_export_pack(provider, &made, *size, bytes);
    umf_wire_set_offset(bytes, fixed_sum, (uintptr_t)ptr - made.base);
    umf_export_mark_set(mark);
    *handle = (umf_ipc_handle_t)bytes;
    return result;
}

static umf_result_t handle_make(umf_span_t *span, const void *ptr, umf_ipc_handle_t *handle,
                                size_t *size) {
    umf_memory_pool_handle_t pool =
        atomic_load_explicit(&umf_pool_table[span->set->pool], memory_order_acquire);
    bool has_own = pool && pool->fast && pool->fast->get_handle;
    return umf_unlikely(has_own) ? handle_of_block(span, pool, ptr, handle, size)
                                 : umf_export_get(span, ptr, handle, size);
}

static umf_result_t handle_make_pinned(umf_span_t *span, const void *ptr, umf_ipc_handle_t *handle,
                                       size_t *size) {
    umf_ipc_handle_t made;
    size_t made_size;
    umf_result_t result = handle_make(span, ptr, &made, &made_size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_export_mark_t *mark = (umf_export_mark_t *)made - 1;
    result = umf_pin_begin(umf_export_mark_pin(mark), span, ptr);
    if (result != UMF_RESULT_SUCCESS) {
        atomic_store_explicit(&mark->cookie, 0, memory_order_relaxed);
        umf_export_mark_free(mark);
        return result;
    }
    *handle = made;
    *size = made_size;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfGetIPCHandle(const void *ptr, umf_ipc_handle_t *ipcHandle,
                                         size_t *size) {
    if (ptr == NULL || ipcHandle == NULL || size == NULL) {
        UMF_LOG_ERROR("NULL argument: ptr %p, handle %p, size %p", ptr, (void *)ipcHandle,
                      (void *)size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)ptr, NULL);
    if (span == NULL) {
        UMF_LOG_ERROR("%p is not memory of a tracked pool", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (umf_span_kind(span) == UMF_SPAN_IMPORT) {
        UMF_LOG_ERROR(
            "%p was opened from an IPC handle; only the process that allocated the memory "
            "can make handles for it",
            ptr);
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    return handle_make_pinned(span, ptr, ipcHandle, size);
}

UMF_API_1_0 umf_result_t umfPutIPCHandle(umf_ipc_handle_t ipcHandle) {
    if (ipcHandle == NULL) {
        return UMF_RESULT_SUCCESS;
    }
    umf_export_mark_t *mark = (umf_export_mark_t *)ipcHandle - 1;
    if (!umf_export_mark_remove(mark)) {
        UMF_LOG_ERROR("%p was not made by umfGetIPCHandle in this process, or was put before; a "
                      "received handle is freed by the owner of its buffer",
                      (void *)ipcHandle);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_pin_end(umf_export_mark_pin(mark));
    umf_export_mark_free(mark);
    return UMF_RESULT_SUCCESS;
}
