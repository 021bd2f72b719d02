/*
 * What most providers for tests answer alike: pages of 4096 bytes, cache lines of 64, no native
 * error. The rest of the table is theirs.
 */
#ifndef UMF_TEST_FAKES_PLAIN_OPS_H
#define UMF_TEST_FAKES_PLAIN_OPS_H

#include <cstddef>
#include <cstdint>

#include <umf/memory_provider_ops.h>
#include <umf/plugin.h>

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

// A kind to register: its name, its table, and what it has more.
inline umf_memory_provider_descriptor_t plain_kind(const char *name,
                                                   const umf_memory_provider_ops_t *ops,
                                                   const umf_memory_provider_ext_ops_t *ext) {
    umf_memory_provider_descriptor_t kind = UMF_MEMORY_PROVIDER_DESCRIPTOR_INIT;
    kind.name = name;
    kind.ops = ops;
    kind.ext = ext;
    return kind;
}

#endif
