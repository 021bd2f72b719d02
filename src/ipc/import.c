/*
 * Import: the functions of the consumer, and the handlers.
 */
#include "ipc/import.h"

#include <umf/ipc.h>
#include <umf/ipc_ext.h>

#include "base/log.h"
#include "base/meta.h"
#include "ds/hash.h"
#include "ipc/ipc.h"
#include "ipc/mapping.h"
#include "ipc/wire.h"
#include "object/object.h"

/* Handlers are the owners of mappings. A handler that the user passes is looked up before it is
 * read. */
static umf_lock_t import_lock;
static umf_hash_t import_handlers; /* live handlers by address. Sync: lock */

static bool import_is_handler(const void *handler) {
    umf_lock(&import_lock);
    bool is_known = umf_hash_get(&import_handlers, (uintptr_t)handler) != NULL;
    umf_unlock(&import_lock);
    return is_known;
}

static UMF_COLD umf_result_t import_open(void *handler, const void *handle, size_t size,
                                         void **ptr) {
    if (!import_is_handler(handler)) {
        UMF_LOG_ERROR(
            "%p is not a handler from umfPoolGetIPCHandler (a pool is none), or its pool was "
            "destroyed",
            handler);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_mapping_open(handler, handle, size, ptr);
}

static UMF_COLD umf_result_t import_null(const void *handler, const void *handle, const void *ptr) {
    UMF_LOG_ERROR("NULL argument: handler %p, handle %p, ptr %p", handler, handle, ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_1_0 umf_result_t umfOpenIPCHandle(umf_ipc_handler_handle_t hIPCHandler,
                                          umf_ipc_handle_t ipcHandle, void **ptr) {
    if (umf_unlikely(hIPCHandler == NULL || ipcHandle == NULL || ptr == NULL)) {
        return import_null(hIPCHandler, ipcHandle, (void *)ptr);
    }
    if (umf_likely(umf_mapping_open_again(hIPCHandler, ipcHandle, UMF_MAPPING_OWN_SIZE, ptr))) {
        return UMF_RESULT_SUCCESS;
    }
    return import_open(hIPCHandler, ipcHandle, UMF_MAPPING_OWN_SIZE, ptr);
}

UMF_API_EXT_1 umf_result_t umfOpenIPCHandleSized(umf_ipc_handler_handle_t hIPCHandler,
                                                 const void *handle, size_t size, void **ptr) {
    if (umf_unlikely(hIPCHandler == NULL || handle == NULL || ptr == NULL)) {
        return import_null(hIPCHandler, handle, (void *)ptr);
    }
    if (umf_unlikely(size < UMF_WIRE_HEADER)) {
        UMF_LOG_ERROR("%zu bytes are no IPC handle, whose header alone has %d", size,
                      UMF_WIRE_HEADER);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (umf_likely(umf_mapping_open_again(hIPCHandler, handle, size, ptr))) {
        return UMF_RESULT_SUCCESS;
    }
    return import_open(hIPCHandler, handle, size, ptr);
}

/* The import that contains `ptr`, also if a pool was created on top of it. */
static umf_span_t *import_span(const void *ptr) {
    umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)ptr, NULL);
    while (span && umf_span_kind(span) != UMF_SPAN_IMPORT) {
        span = span->outer ? umf_span_at(span->outer) : NULL;
    }
    return span;
}

UMF_API_1_0 umf_result_t umfCloseIPCHandle(void *ptr) {
    umf_span_t *span = ptr ? import_span(ptr) : NULL;
    if (umf_unlikely(span == NULL)) {
        if (ptr && umf_mapping_close_own(ptr)) {
            return UMF_RESULT_SUCCESS;
        }
        UMF_LOG_ERROR("%p was not opened with umfOpenIPCHandle, or is closed already", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (umf_unlikely(!umf_mapping_close(span->cookie))) {
        UMF_LOG_ERROR("%p is closed already: one umfCloseIPCHandle for each umfOpenIPCHandle", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* --- handlers --- */

/* The pool's handler, or `mine` if it has none yet. NULL: no memory. */
static void *import_publish(umf_memory_pool_handle_t pool, umf_mapping_owner_t *mine) {
    umf_lock(&import_lock);
    void *handler = atomic_load_explicit(&pool->ipc_handler, memory_order_relaxed);
    if (handler == NULL && umf_hash_put(&import_handlers, (uintptr_t)mine, mine)) {
        handler = mine;
        atomic_store_explicit(&pool->ipc_handler, handler, memory_order_release);
    }
    umf_unlock(&import_lock);
    return handler;
}

static UMF_COLD umf_result_t import_make_handler(umf_memory_pool_handle_t pool, void **out) {
    umf_memory_provider_handle_t provider;
    umf_result_t result = umf_ipc_provider(pool, &provider);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_mapping_owner_t *mine = umf_meta_alloc(sizeof(*mine));
    void *handler = NULL;
    if (mine) {
        umf_mapping_owner_init(mine, provider);
        handler = import_publish(pool, mine);
        if (handler != mine) {
            umf_meta_free(mine, sizeof(*mine));
        }
    }
    if (handler == NULL) {
        UMF_LOG_ERROR("no memory for the IPC handler of a pool");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *out = handler;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfPoolGetIPCHandler(umf_memory_pool_handle_t hPool,
                                              umf_ipc_handler_handle_t *hIPCHandler) {
    if (!umf_pool_check(hPool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (hIPCHandler == NULL) {
        UMF_LOG_ERROR("hIPCHandler is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    void *handler = atomic_load_explicit(&hPool->ipc_handler, memory_order_acquire);
    if (handler == NULL) {
        return import_make_handler(hPool, hIPCHandler);
    }
    *hIPCHandler = handler;
    return UMF_RESULT_SUCCESS;
}

void umf_import_drop(umf_memory_pool_handle_t pool) {
    umf_mapping_owner_t *handler = atomic_exchange(&pool->ipc_handler, NULL);
    if (handler == NULL) {
        return;
    }
    umf_lock(&import_lock);
    umf_hash_remove(&import_handlers, (uintptr_t)handler);
    umf_unlock(&import_lock);
    umf_mapping_owner_fini(handler);
    umf_meta_free(handler, sizeof(*handler));
}

umf_memory_provider_handle_t umf_import_provider(const umf_span_t *span) {
    return umf_mapping_provider(span->cookie);
}

bool umf_import_is_open(const umf_span_t *span) {
    return umf_mapping_is_used(span->cookie);
}

/* --- start --- */

void umf_import_init(size_t limit) {
    static bool is_ready;
    if (!is_ready) {
        umf_lock_init(&import_lock, UMF_RANK_IMPORT);
        is_ready = true;
    }
    umf_mapping_init(limit);
}
