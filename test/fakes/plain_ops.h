/*
 * What most providers for tests answer alike: pages of 4096 bytes, cache lines of 64, no native
 * error. The rest of the table is theirs.
 */
#ifndef UMF_TEST_FAKES_PLAIN_OPS_H
#define UMF_TEST_FAKES_PLAIN_OPS_H

#include <cstddef>
#include <cstdint>

#include <umf/memory_provider_ops.h>

inline umf_memory_provider_ops_t plain_provider_ops() {
    umf_memory_provider_ops_t ops = {};
    ops.version = UMF_PROVIDER_OPS_VERSION_CURRENT;
    ops.get_last_native_error = [](void *, const char **message, int32_t *error) {
        *message = "";
        *error = 0;
        return UMF_RESULT_SUCCESS;
    };
    ops.get_recommended_page_size = [](void *, size_t, size_t *size) {
        *size = 4096;
        return UMF_RESULT_SUCCESS;
    };
    ops.get_min_page_size = [](void *, const void *, size_t *size) {
        *size = 4096;
        return UMF_RESULT_SUCCESS;
    };
    ops.get_cache_line_size = [](void *, size_t *size) {
        *size = 64;
        return UMF_RESULT_SUCCESS;
    };
    return ops;
}

#endif
