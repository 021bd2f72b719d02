/* Providers: create, destroy, and the operations of their tables. */
#include <string.h>

#include <umf/result.h>

#include "base/meta.h"
#include "core/ctl_nodes.h"
#include "core/registry.h"
#include "ctl/ctl.h"
#include "ctl/text.h"
#include "object/event.h"
#include "object/listener.h"
#include "object/names.h"
#include "object/provider/memory_watch.h"
#include "object/provider/provider_own.h"
#include "object/refusal.h"
#include "object/tables.h"
#include "system/keep_errno.h"

const umf_handle_kind_t umf_handle_provider = {"a provider"};
const umf_handle_kind_t umf_handle_tracked = {"a pool's view of its provider"};

bool umf_provider_check(const struct umf_memory_provider_t *provider, const char *function) {
    const umf_handle_kind_t *kind = umf_handle_kind(provider);
    bool is_right = kind == &umf_handle_provider || kind == &umf_handle_tracked;
    if (umf_unlikely(!is_right)) {
        umf_handle_refuse(provider, umf_handle_provider.name, function);
    }
    return is_right;
}

static __thread umf_memory_provider_handle_t last_failed;

void umf_provider_failed(umf_memory_provider_handle_t provider) {
    last_failed = provider->root; /* users see the provider, not a pool's tracked provider */
}

/* --- create, destroy --- */

uint32_t umf_birth_next(void) {
    static _Atomic uint32_t births;
    uint32_t birth = atomic_fetch_add_explicit(&births, 1, memory_order_relaxed) + 1;
    return birth ? birth : umf_birth_next();
}

static umf_result_t provider_ctl_list(umf_memory_provider_handle_t provider,
                                      umf_ctl_query_source_t source, const char *path, void *arg,
                                      size_t size, umf_ctl_query_type_t type, ...) {
    va_list args;
    va_start(args, type);
    umf_result_t result = umf_provider_ctl(provider, source, path, arg, size, type, args);
    va_end(args);
    return result;
}

umf_result_t umf_provider_ctl(umf_memory_provider_handle_t provider, umf_ctl_query_source_t source,
                              const char *path, void *arg, size_t size, umf_ctl_query_type_t type,
                              va_list args) {
    if (!provider->ops.ext_ctl) {
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    return provider->ops.ext_ctl(provider->self, source, path, arg, size, type, args);
}

static umf_result_t write_default(void *object, umf_ctl_query_source_t source, const char *path,
                                  void *arg, size_t size) {
    return provider_ctl_list(object, source, path, arg, size, CTL_QUERY_WRITE);
}

/* Initializes a provider and applies its settings. Undoes `initialize` on failure. */
static umf_result_t provider_start(umf_memory_provider_handle_t provider, const void *params) {
    umf_result_t result = provider->ops.initialize(params, &provider->self);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    const char *name = NULL;
    result = provider->ops.get_name(provider->self, &name);
    if (result != UMF_RESULT_SUCCESS) {
        goto finalize;
    }
    if (name && !umf_name_is_valid(name)) {
        UMF_LOG_WARN(
            "provider name \"%s\" is longer than 64 characters or has others than letters, "
            "digits, '_' and '-'; settings cannot name it",
            umf_text_show(name, strlen(name)).text);
    } else if (name) {
        memcpy(provider->name, name, strlen(name) + 1);
    }
    if (name) {
        umf_ctl_defaults_apply(&umf_ctl_provider_defaults, name, write_default, provider);
    }
    /* Older tables have no post_initialize. */
    if (UMF_MINOR_VERSION(provider->ops.version) >= 1) {
        result = provider_ctl_list(provider, CTL_QUERY_PROGRAMMATIC, "post_initialize", NULL, 0,
                                   CTL_QUERY_RUNNABLE);
        if (result != UMF_RESULT_SUCCESS && result != UMF_RESULT_ERROR_INVALID_CTL_PATH) {
            goto finalize;
        }
    }
    return UMF_RESULT_SUCCESS;

finalize:
    provider->ops.finalize(provider->self);
    return result;
}

static void provider_free(umf_memory_provider_handle_t provider) {
    umf_registry_provider_unuse(provider->kind);
    umf_meta_free(provider, sizeof(*provider));
}

static umf_result_t alloc_of_destroyed(void *provider, size_t size, size_t alignment, void **ptr) {
    (void)size, (void)alignment, (void)ptr;
    umf_handle_refuse(provider, umf_handle_provider.name, "umfMemoryProviderAlloc");
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t free_of_destroyed(void *provider, void *ptr, size_t size) {
    (void)ptr, (void)size;
    umf_handle_refuse(provider, umf_handle_provider.name, "umfMemoryProviderFree");
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* The object refuses what does not look its handle up, as long as it stays. */
static void provider_retire(umf_memory_provider_handle_t provider) {
    umf_registry_provider_unuse(provider->kind);
    provider->ops.alloc = alloc_of_destroyed;
    provider->ops.free = free_of_destroyed;
    provider->self = provider;
    provider->root = NULL; /* it is not the last one that failed */
    umf_meta_free_late(provider, sizeof(*provider));
}

UMF_API_1_0 umf_result_t umfMemoryProviderCreate(const umf_memory_provider_ops_t *ops,
                                                 const void *params,
                                                 umf_memory_provider_handle_t *hProvider) {
    static const umf_memory_provider_ext_ops_t no_ext = {.struct_size = sizeof(no_ext)};
    if (!ops || !hProvider) {
        UMF_LOG_ERROR("%s is NULL", ops ? "hProvider" : "ops");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_memory_provider_handle_t provider = umf_meta_alloc(sizeof(*provider));
    if (!provider) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    provider->root = provider;
    provider->birth = umf_birth_next();
    const umf_memory_provider_descriptor_t *kind = umf_registry_provider_use(ops);
    provider->kind = kind;
    provider->ext = kind && kind->ext ? kind->ext : &no_ext;
    umf_result_t result = umf_provider_ops_copy(&provider->ops, ops);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_handle_begin(provider, &umf_handle_provider);
    }
    if (result != UMF_RESULT_SUCCESS) {
        provider_free(provider);
        return result;
    }
    result = provider_start(provider, params);
    if (result != UMF_RESULT_SUCCESS) {
        umf_handle_end(provider, &umf_handle_provider, __func__);
        provider_free(provider);
        return result;
    }
    UMF_EVENT(.kind = UMF_RECORD_CREATE, .provider = provider);
    *hProvider = provider;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfMemoryProviderDestroy(umf_memory_provider_handle_t hProvider) {
    if (!umf_is_started()) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    if (!hProvider) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_handle_check(hProvider, &umf_handle_provider, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t pools = atomic_load_explicit(&hProvider->pools, memory_order_acquire);
    if (pools) {
        UMF_LOG_ERROR("provider %p (%s) still has pools, %zu in number: destroy them first",
                      (void *)hProvider, hProvider->name, pools);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_handle_end(hProvider, &umf_handle_provider, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT; /* another thread destroyed it first */
    }
    UMF_EVENT(.kind = UMF_RECORD_DESTROY, .provider = hProvider);
    umf_core_provider_ends(hProvider); /* while its operations still work */
    umf_result_t result = hProvider->ops.finalize(hProvider->self);
    if (last_failed == hProvider) {
        last_failed = NULL;
    }
    provider_retire(hProvider);
    return result;
}

/* --- operations --- */

void umf_provider_tell_failed(umf_memory_provider_handle_t provider, const char *function,
                              umf_result_t result) {
    umf_provider_failed(provider);
    umf_refusal_by_function(provider, function, result);
    umf_log_write(UMF_LOG_LEVEL_DEBUG, 0, function, "provider %p answers: %s", (void *)provider,
                  umfResultText(result));
}

UMF_API_1_0 umf_result_t umfMemoryProviderGetLastNativeError(umf_memory_provider_handle_t hProvider,
                                                             const char **ppMessage,
                                                             int32_t *pError) {
    CHECK_PROVIDER(hProvider);
    CHECK(ppMessage != NULL);
    CHECK(pError != NULL);
    return hProvider->ops.get_last_native_error(hProvider->self, ppMessage, pError);
}

UMF_API_1_0 umf_result_t umfMemoryProviderGetRecommendedPageSize(
    umf_memory_provider_handle_t hProvider, size_t size, size_t *pageSize) {
    CHECK_PROVIDER(hProvider);
    CHECK(pageSize != NULL);
    return answer(hProvider,
                  hProvider->ops.get_recommended_page_size(hProvider->self, size, pageSize));
}

UMF_API_1_0 umf_result_t umfMemoryProviderGetMinPageSize(umf_memory_provider_handle_t hProvider,
                                                         const void *ptr, size_t *pageSize) {
    CHECK_PROVIDER(hProvider);
    CHECK(pageSize != NULL);
    return answer(hProvider, hProvider->ops.get_min_page_size(hProvider->self, ptr, pageSize));
}

UMF_API_1_2 umf_result_t umfMemoryProviderGetCacheLineSize(umf_memory_provider_handle_t hProvider,
                                                           size_t *size) {
    CHECK_PROVIDER(hProvider);
    CHECK(size != NULL);
    return answer(hProvider, hProvider->ops.get_cache_line_size(hProvider->self, size));
}

UMF_API_1_0 umf_result_t umfMemoryProviderGetName(umf_memory_provider_handle_t hProvider,
                                                  const char **name) {
    CHECK_PROVIDER(hProvider);
    CHECK(name != NULL);
    return answer(hProvider, hProvider->ops.get_name(hProvider->self, name));
}

UMF_API_1_0 umf_result_t umfMemoryProviderPurgeLazy(umf_memory_provider_handle_t hProvider,
                                                    void *ptr, size_t size) {
    UMF_KEEP_ERRNO;
    CHECK_PROVIDER(hProvider);
    CHECK(ptr != NULL);
    if (umf_memory_watch_of(hProvider)) { /* a purge replaces pages that may be registered */
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return answer_if_offered(hProvider, ext_purge_lazy, ptr, size);
}

UMF_API_1_0 umf_result_t umfMemoryProviderPurgeForce(umf_memory_provider_handle_t hProvider,
                                                     void *ptr, size_t size) {
    UMF_KEEP_ERRNO;
    CHECK_PROVIDER(hProvider);
    CHECK(ptr != NULL);
    if (umf_memory_watch_of(hProvider)) { /* a purge replaces pages that may be registered */
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return answer_if_offered(hProvider, ext_purge_force, ptr, size);
}

UMF_API_1_0 umf_result_t umfMemoryProviderGetIPCHandleSize(umf_memory_provider_handle_t hProvider,
                                                           size_t *size) {
    CHECK_PROVIDER(hProvider);
    CHECK(size != NULL);
    return answer_if_offered(hProvider, ext_get_ipc_handle_size, size);
}

UMF_API_1_0 umf_result_t umfMemoryProviderGetIPCHandle(umf_memory_provider_handle_t hProvider,
                                                       const void *ptr, size_t size,
                                                       void *providerIpcData) {
    CHECK_PROVIDER(hProvider);
    CHECK(ptr != NULL);
    CHECK(size > 0);
    CHECK(providerIpcData != NULL);
    return answer_if_offered(hProvider, ext_get_ipc_handle, ptr, size, providerIpcData);
}

UMF_API_1_0 umf_result_t umfMemoryProviderPutIPCHandle(umf_memory_provider_handle_t hProvider,
                                                       void *providerIpcData) {
    CHECK_PROVIDER(hProvider);
    CHECK(providerIpcData != NULL);
    return answer_if_offered(hProvider, ext_put_ipc_handle, providerIpcData);
}

UMF_API_1_0 umf_result_t umfMemoryProviderOpenIPCHandle(umf_memory_provider_handle_t hProvider,
                                                        void *providerIpcData, void **ptr) {
    CHECK_PROVIDER(hProvider);
    CHECK(providerIpcData != NULL);
    CHECK(ptr != NULL);
    return answer_if_offered(hProvider, ext_open_ipc_handle, providerIpcData, ptr);
}

UMF_API_1_0 umf_result_t umfMemoryProviderCloseIPCHandle(umf_memory_provider_handle_t hProvider,
                                                         void *ptr, size_t size) {
    CHECK_PROVIDER(hProvider);
    CHECK(ptr != NULL);
    CHECK(size > 0);
    return answer_if_offered(hProvider, ext_close_ipc_handle, ptr, size);
}

UMF_API_1_0 umf_result_t umfGetLastFailedMemoryProvider(umf_memory_provider_handle_t *provider) {
    CHECK(provider != NULL);
    *provider = last_failed;
    return UMF_RESULT_SUCCESS;
}
