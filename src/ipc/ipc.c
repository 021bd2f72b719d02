/*
 * IPC: the few questions it asks of the core.
 */
#include "ipc/ipc.h"

#include "base/log.h"
#include "core/object.h"
#include "ipc/export.h"
#include "ipc/import.h"
#include "ipc/wire.h"

void umf_ipc_init(void) {
    umf_export_init();
    umf_import_init();
    umf_core_export_drop = umf_export_drop;
    umf_core_import_drop = umf_import_drop;
    umf_core_import_provider = umf_import_provider;
}

umf_result_t umf_ipc_provider(umf_memory_pool_handle_t pool,
                              umf_memory_provider_handle_t *provider) {
    if (pool->flags & UMF_POOL_CREATE_FLAG_DISABLE_TRACKING) {
        UMF_LOG_ERROR(
            "a pool created with UMF_POOL_CREATE_FLAG_DISABLE_TRACKING cannot share memory");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *provider = pool->provider;
    return UMF_RESULT_SUCCESS;
}

uint64_t umf_ipc_kind(umf_memory_provider_handle_t provider) {
    return provider->kind ? umf_wire_name_hash(provider->kind->name) : 0;
}

umf_result_t umf_ipc_check(umf_memory_provider_handle_t provider, const void *data, size_t size) {
    return provider->ext->ipc_check ? provider->ext->ipc_check(provider->self, data, size)
                                    : UMF_RESULT_SUCCESS;
}

umf_ipc_watch_t umf_ipc_watch(umf_memory_provider_handle_t provider, const void *data) {
    umf_ipc_watch_t watch = {0};
    if (provider->ext->ipc_watch == NULL ||
        provider->ext->ipc_watch(provider->self, data, &watch.word, &watch.expected) !=
            UMF_RESULT_SUCCESS) {
        return (umf_ipc_watch_t){0};
    }
    return watch;
}
