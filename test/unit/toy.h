/* A provider and a pool for tests of settings and kinds: they record every query they get. */
#ifndef UMF_TEST_UNIT_TOY_H
#define UMF_TEST_UNIT_TOY_H

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#include "fakes/plain_ops.h"

namespace toy {

struct Query {
    umf_ctl_query_source_t source;
    std::string path;
    void *arg;
    std::string bytes; /* of a write */
    size_t size;
    umf_ctl_query_type_t type;
};

/* A provider or a pool: its name, its queries and its answers. */
struct Object {
    std::string name = "toy";
    std::vector<Query> queries;
    umf_result_t answer = UMF_RESULT_SUCCESS;
    void (*take)(va_list args) = nullptr;
};

inline Object next;       /* the parts of the next one created */
inline int alive;         /* initialized and not finalized */
inline Object *last_made; /* the last one initialized */

inline umf_result_t ctl(void *self, umf_ctl_query_source_t source, const char *name, void *arg,
                        size_t size, umf_ctl_query_type_t type, va_list args) {
    Object *object = static_cast<Object *>(self);
    std::string bytes =
        type == CTL_QUERY_WRITE && arg ? std::string(static_cast<char *>(arg), size) : "";
    object->queries.push_back({source, name, arg, bytes, size, type});
    if (strcmp(name, "post_initialize") == 0) {
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    if (object->take) {
        object->take(args);
    }
    return object->answer;
}

inline umf_result_t make(void **self) {
    *self = last_made = new Object(next);
    alive++;
    return UMF_RESULT_SUCCESS;
}

inline umf_result_t finalize(void *self) {
    delete static_cast<Object *>(self);
    alive--;
    return UMF_RESULT_SUCCESS;
}

inline umf_result_t name(void *self, const char **out) {
    *out = self ? static_cast<Object *>(self)->name.c_str() : "toy";
    return UMF_RESULT_SUCCESS;
}

inline umf_memory_provider_ops_t providerOps() {
    umf_memory_provider_ops_t ops = plain_provider_ops();
    ops.initialize = [](const void *, void **self) { return make(self); };
    ops.finalize = finalize;
    ops.alloc = [](void *, size_t size, size_t, void **ptr) {
        *ptr = malloc(size);
        return *ptr ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    };
    ops.free = [](void *, void *ptr, size_t) {
        free(ptr);
        return UMF_RESULT_SUCCESS;
    };
    ops.get_last_native_error = [](void *, const char **, int32_t *) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    };
    ops.get_name = name;
    ops.ext_ctl = ctl;
    return ops;
}

inline umf_memory_pool_ops_t poolOps() {
    umf_memory_pool_ops_t ops = {};
    ops.version = UMF_POOL_OPS_VERSION_CURRENT;
    ops.initialize = [](umf_memory_provider_handle_t, const void *, void **self) {
        return make(self);
    };
    ops.finalize = finalize;
    ops.malloc = [](void *, size_t size) { return malloc(size); };
    ops.calloc = [](void *, size_t count, size_t size) { return calloc(count, size); };
    ops.realloc = [](void *, void *ptr, size_t size) { return realloc(ptr, size); };
    ops.aligned_malloc = [](void *, size_t size, size_t) { return malloc(size); };
    ops.malloc_usable_size = [](void *, const void *, size_t *) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    };
    ops.free = [](void *, void *ptr) {
        free(ptr);
        return UMF_RESULT_SUCCESS;
    };
    ops.get_last_allocation_error = [](void *) { return UMF_RESULT_SUCCESS; };
    ops.get_name = name;
    ops.ext_ctl = ctl;
    return ops;
}

inline const umf_memory_provider_ops_t provider_ops = providerOps();
inline const umf_memory_pool_ops_t pool_ops = poolOps();

/* A provider and a pool with their own end. */
struct Provider {
    Provider() {
        if (umfMemoryProviderCreate(&provider_ops, nullptr, &handle) != UMF_RESULT_SUCCESS) {
            abort();
        }
        object = last_made;
    }
    ~Provider() {
        umfMemoryProviderDestroy(handle);
    }
    Provider(const Provider &) = delete;

    umf_memory_provider_handle_t handle = nullptr;
    Object *object = nullptr;
};

struct Pool {
    explicit Pool(const std::string &name = "toy") {
        next.name = name;
        umf_result_t result = umfPoolCreate(&pool_ops, provider.handle, nullptr, 0, &handle);
        next = Object();
        if (result != UMF_RESULT_SUCCESS) {
            abort();
        }
        object = last_made;
        object->queries.clear();
    }
    ~Pool() {
        if (handle) {
            umfPoolDestroy(handle);
        }
    }
    Pool(const Pool &) = delete;

    Provider provider;
    umf_memory_pool_handle_t handle = nullptr;
    Object *object = nullptr;
};

} // namespace toy

#endif
