/* A provider used through its ops table, as C++ object. */
#ifndef UMF_TEST_PROVIDER_H
#define UMF_TEST_PROVIDER_H

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf/memory_provider_ops.h>

extern "C" {
#include "system/os.h"
}

class Provider {
  public:
    const umf_memory_provider_ops_t *ops;
    void *self = nullptr;

    Provider(const umf_memory_provider_ops_t *table, const void *params) : ops(table) {
        EXPECT_EQ(ops->initialize(params, &self), UMF_RESULT_SUCCESS);
    }
    ~Provider() {
        EXPECT_EQ(ops->finalize(self), UMF_RESULT_SUCCESS);
    }
    Provider(const Provider &) = delete;
    Provider &operator=(const Provider &) = delete;

    umf_result_t alloc(size_t size, size_t alignment, void **ptr) const {
        return ops->alloc(self, size, alignment, ptr);
    }
    char *must_alloc(size_t size, size_t alignment = 0) const {
        void *ptr = nullptr;
        EXPECT_EQ(ops->alloc(self, size, alignment, &ptr), UMF_RESULT_SUCCESS);
        return static_cast<char *>(ptr);
    }
    umf_result_t free(void *ptr, size_t size) const {
        return ops->free(self, ptr, size);
    }
    umf_result_t split(void *ptr, size_t total, size_t first) const {
        return ops->ext_allocation_split(self, ptr, total, first);
    }
    umf_result_t merge(void *low, void *high, size_t total) const {
        return ops->ext_allocation_merge(self, low, high, total);
    }
    int32_t native() const {
        const char *message;
        int32_t code = -1;
        EXPECT_EQ(ops->get_last_native_error(self, &message, &code), UMF_RESULT_SUCCESS);
        return code;
    }
    std::string native_text() const {
        const char *message = "";
        int32_t code;
        EXPECT_EQ(ops->get_last_native_error(self, &message, &code), UMF_RESULT_SUCCESS);
        return message;
    }
    umf_result_t ctl(const char *path, void *arg, size_t size, umf_ctl_query_type_t type) const {
        return ctl_with(this, path, arg, size, int{type});
    }
    size_t stat(const char *path) const {
        size_t value = SIZE_MAX;
        EXPECT_EQ(ctl(path, &value, sizeof(value), CTL_QUERY_READ), UMF_RESULT_SUCCESS);
        return value;
    }
    size_t allocated() const {
        return stat("stats.allocated_memory");
    }
    size_t peak() const {
        return stat("stats.peak_memory");
    }

    /* --- IPC --- */

    using Handle = std::vector<char>;

    size_t handle_size() const {
        size_t size = 0;
        EXPECT_EQ(ops->ext_get_ipc_handle_size(self, &size), UMF_RESULT_SUCCESS);
        return size;
    }
    Handle get(const void *ptr, size_t size) const {
        Handle handle(handle_size(), 'x');
        EXPECT_EQ(ops->ext_get_ipc_handle(self, ptr, size, handle.data()), UMF_RESULT_SUCCESS);
        return handle;
    }
    umf_result_t put(Handle handle) const {
        return ops->ext_put_ipc_handle(self, handle.data());
    }
    umf_result_t open(Handle handle, void **ptr) const {
        return ops->ext_open_ipc_handle(self, handle.data(), ptr);
    }
    char *must_open(const Handle &handle) const {
        void *ptr = nullptr;
        EXPECT_EQ(open(handle, &ptr), UMF_RESULT_SUCCESS);
        return static_cast<char *>(ptr);
    }
    umf_result_t close(void *ptr, size_t size) const {
        return ops->ext_close_ipc_handle(self, ptr, size);
    }

  private:
    /* The last named parameter of a variadic function must be of a promoted type. */
    static umf_result_t ctl_with(const Provider *provider, const char *path, void *arg, size_t size,
                                 int type, ...) {
        va_list args;
        va_start(args, type);
        umf_result_t result =
            provider->ops->ext_ctl(provider->self, CTL_QUERY_PROGRAMMATIC, path, arg, size,
                                   static_cast<umf_ctl_query_type_t>(type), args);
        va_end(args);
        return result;
    }
};

/* Whether a provider can be made of `params`; it is destroyed at once. */
inline umf_result_t try_provider(const umf_memory_provider_ops_t *ops, const void *params) {
    void *provider = nullptr;
    umf_result_t result = ops->initialize(params, &provider);
    if (result == UMF_RESULT_SUCCESS) {
        ops->finalize(provider);
    } else {
        EXPECT_EQ(provider, nullptr);
    }
    return result;
}

#endif
