/*
 * A pool as a user writes one, that does nothing but keep what it is given as its provider: a view
 * of the provider that it was created with.
 */
#ifndef UMF_TEST_FAKES_VIEWING_POOL_H
#define UMF_TEST_FAKES_VIEWING_POOL_H

#include <umf/memory_pool_ops.h>
#include <umf/pools/pool_proxy.h>

inline umf_memory_provider_handle_t viewed_provider; // of the last one created

inline umf_memory_pool_ops_t viewing_pool_ops() {
    umf_memory_pool_ops_t ops = *umfProxyPoolOps();
    ops.initialize = [](umf_memory_provider_handle_t provider, const void *, void **pool) {
        viewed_provider = provider;
        *pool = provider;
        return UMF_RESULT_SUCCESS;
    };
    ops.finalize = [](void *) { return UMF_RESULT_SUCCESS; };
    ops.get_name = [](void *, const char **name) {
        *name = "viewing";
        return UMF_RESULT_SUCCESS;
    };
    ops.ext_ctl = nullptr;
    return ops;
}

#endif
