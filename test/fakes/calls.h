/* Calls that tests of providers make over and over, in short; they must succeed. */
#ifndef UMF_TEST_FAKES_CALLS_H
#define UMF_TEST_FAKES_CALLS_H

#include <cstddef>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_proxy.h>

// Bytes that were taken and not given back.
inline size_t allocated_of(umf_memory_provider_handle_t provider) {
    size_t bytes = SIZE_MAX;
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.stats.allocated_memory", &bytes, sizeof(bytes),
                        provider),
              UMF_RESULT_SUCCESS);
    return bytes;
}

// The error that a kind of providers keeps for this thread.
inline std::string native_error(const umf_memory_provider_ops_t *ops, int32_t *code) {
    const char *text = nullptr;
    EXPECT_EQ(ops->get_last_native_error(nullptr, &text, code), UMF_RESULT_SUCCESS);
    return text ? text : "";
}

// A pool each of whose allocations is one of the provider.
inline umf_memory_pool_handle_t proxy_over(umf_memory_provider_handle_t provider,
                                           umf_pool_create_flags_t flags = 0) {
    umf_memory_pool_handle_t pool = nullptr;
    EXPECT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, flags, &pool),
              UMF_RESULT_SUCCESS);
    return pool;
}

#endif
