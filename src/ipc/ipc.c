/*
 * IPC: queries of both sides to the core.
 */
#include "ipc/ipc.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include <umf/ipc_ext.h>

#include "base/log.h"
#include "ipc/export.h"
#include "ipc/import.h"
#include "ipc/mapping.h"
#include "ipc/wire.h"
#include "object/object.h"
#include "peer/named.h"

/* The number in an environment variable. 0, no limit, if its text is not a number. */
static size_t ipc_limit(const char *name, const char *text) {
    if (text == NULL) {
        return 0;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long limit = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0 || limit > SIZE_MAX) {
        UMF_LOG_IGNORED("%s=\"%s\" is not a decimal number of handles; there is no limit", name,
                        text);
        return 0;
    }
    return (size_t)limit;
}

void umf_ipc_init(void) {
    umf_export_init(
        ipc_limit("UMF_MAX_EXPORTED_IPC_HANDLES", secure_getenv("UMF_MAX_EXPORTED_IPC_HANDLES")));
    umf_import_init(
        ipc_limit("UMF_MAX_OPENED_IPC_HANDLES", secure_getenv("UMF_MAX_OPENED_IPC_HANDLES")));
    static const umf_ipc_hooks_t hooks = {.export_ends = umf_export_drop,
                                          .import_provider = umf_import_provider,
                                          .import_is_open = umf_import_is_open};
    static umf_listener_t listener = {.pool_ends = umf_import_drop};
    umf_core_set_ipc_hooks(&hooks);
    umf_core_listen(&listener);
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

UMF_API_EXT_1 umf_result_t umfIPCEvict(int pid, size_t *evicted) {
    if (pid < 0) {
        UMF_LOG_ERROR("%d is not a process id; 0 stands for all producers", pid);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t count = umf_mapping_evict((uint32_t)pid);
    if (evicted) {
        *evicted = count;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfIPCReap(size_t *removed) {
    int error;
    size_t count = umf_named_reap(&error);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "reading /dev/shm failed");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (removed) {
        *removed = count;
    }
    return UMF_RESULT_SUCCESS;
}

uint64_t umf_ipc_kind(umf_memory_provider_handle_t provider) {
    return provider->kind ? umf_wire_name_hash(provider->kind->name) : 0;
}

umf_result_t umf_ipc_check(umf_memory_provider_handle_t provider, const void *data, size_t size) {
    return provider->ext->ipc_check ? provider->ext->ipc_check(provider->self, data, size)
                                    : UMF_RESULT_SUCCESS;
}

bool umf_ipc_is_for_any_machine(umf_memory_provider_handle_t provider) {
    return provider->ext->ipc_flags & UMF_IPC_FLAG_ANY_MACHINE;
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

UMF_API_1_0 umf_result_t umfPoolGetIPCHandleSize(umf_memory_pool_handle_t hPool, size_t *size) {
    if (!umf_pool_check(hPool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (size == NULL) {
        UMF_LOG_ERROR("size is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_memory_provider_handle_t provider;
    umf_result_t result = umf_ipc_provider(hPool, &provider);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    size_t total;
    result = umf_export_size(provider, &total);
    if (result == UMF_RESULT_SUCCESS) {
        *size = total;
    }
    return result;
}
