/*
 * A provider as an application may write one: its memory has no access for the CPU. The same memory
 * is mapped a second time for its fill and copy, which happen only when their queue is waited for.
 */
#ifndef UMF_TEST_FAKES_FAR_PROVIDER_H
#define UMF_TEST_FAKES_FAR_PROVIDER_H

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <umf/memory_provider.h>
#include <umf/memory_provider_gpu.h>
#include <umf/plugin.h>

#include "fakes/plain_ops.h"

class FarProvider {
  public:
    static constexpr size_t ROOM = size_t{256} << 20, PAGE = 4096;

    bool tells_type = true;
    std::atomic<long> fail_copy_at{0}; // the n-th copy from now fails; 0: none
    std::atomic<bool> fails_queue{false}, fails_wait{false};
    std::atomic<long> queues{0}, copies{0}, fills{0};
    std::function<void()> during_copy; // runs inside of each copy that happens
    std::function<void()> during_wait; // runs inside of each wait for a queue

    FarProvider() {
        int fd = memfd_create("far", MFD_CLOEXEC);
        if (ftruncate(fd, ROOM) == 0) {
            far = map(PROT_NONE, fd);
            near = map(PROT_READ | PROT_WRITE, fd);
        }
        close(fd);
    }
    ~FarProvider() {
        munmap(far, ROOM);
        munmap(near, ROOM);
    }
    FarProvider(const FarProvider &) = delete;
    FarProvider &operator=(const FarProvider &) = delete;

    umf_memory_provider_handle_t create() {
        static const umf_memory_provider_ops_t teller = table(true), silent = table(false);
        static const umf_memory_provider_ext_ops_t ext = extension();
        static const umf_memory_provider_descriptor_t kinds[] = {
            plain_kind("far", &teller, &ext), plain_kind("far_silent", &silent, &ext)};
        static const bool is_known = umfRegisterProvider(&kinds[0]) == UMF_RESULT_SUCCESS &&
                                     umfRegisterProvider(&kinds[1]) == UMF_RESULT_SUCCESS;
        umf_memory_provider_handle_t provider = nullptr;
        if (is_known) {
            umfMemoryProviderCreate(tells_type ? &teller : &silent, this, &provider);
        }
        return provider;
    }

    // Where the CPU reaches an address of this provider; any other stays.
    char *near_of(const void *ptr) const {
        const char *at = static_cast<const char *>(ptr);
        return at >= far && at < far + ROOM ? near + (at - far) : const_cast<char *>(at);
    }

  private:
    using Queue = std::vector<std::function<void()>>;

    char *far = nullptr, *near = nullptr;
    std::mutex mutex;
    size_t used = 0;

    static char *map(int protection, int fd) {
        return static_cast<char *>(mmap(nullptr, ROOM, protection, MAP_SHARED, fd, 0));
    }
    static FarProvider *self(void *provider) {
        return static_cast<FarProvider *>(provider);
    }

    static umf_memory_provider_ops_t table(bool reports) {
        umf_memory_provider_ops_t ops = plain_provider_ops();
        ops.initialize = [](const void *params, void **provider) {
            *provider = const_cast<void *>(params);
            return UMF_RESULT_SUCCESS;
        };
        ops.finalize = [](void *) { return UMF_RESULT_SUCCESS; };
        ops.alloc = [](void *provider, size_t size, size_t alignment, void **ptr) {
            FarProvider *owner = self(provider);
            std::lock_guard<std::mutex> guard(owner->mutex);
            size_t step = alignment > PAGE ? alignment : PAGE;
            size_t at = (owner->used + step - 1) / step * step;
            if (size > ROOM || at > ROOM - size) {
                return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
            }
            owner->used = at + size;
            *ptr = owner->far + at;
            return UMF_RESULT_SUCCESS;
        };
        ops.free = [](void *, void *, size_t) { return UMF_RESULT_SUCCESS; };
        ops.get_name = [](void *, const char **name) {
            *name = "far";
            return UMF_RESULT_SUCCESS;
        };
        if (reports) {
            ops.ext_get_allocation_properties = [](void *, const void *,
                                                   umf_memory_property_id_t id, void *value) {
                if (id != UMF_MEMORY_PROPERTY_POINTER_TYPE) {
                    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
                }
                *static_cast<umf_usm_memory_type_t *>(value) = UMF_MEMORY_TYPE_DEVICE;
                return UMF_RESULT_SUCCESS;
            };
            ops.ext_get_allocation_properties_size = [](void *, umf_memory_property_id_t id,
                                                        size_t *size) {
                if (id != UMF_MEMORY_PROPERTY_POINTER_TYPE) {
                    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
                }
                *size = sizeof(umf_usm_memory_type_t);
                return UMF_RESULT_SUCCESS;
            };
        }
        return ops;
    }

    static umf_result_t copy(void *provider, void *queue, void *dst, const void *src, size_t size) {
        FarProvider *owner = self(provider);
        if (owner->fail_copy_at > 0 && --owner->fail_copy_at == 0) {
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
        owner->copies++;
        static_cast<Queue *>(queue)->push_back([=] {
            if (owner->during_copy) {
                owner->during_copy();
            }
            memcpy(owner->near_of(dst), owner->near_of(src), size);
        });
        return UMF_RESULT_SUCCESS;
    }

    static umf_memory_provider_ext_ops_t extension() {
        umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
        ext.queue_create = [](void *provider, void **queue) {
            if (self(provider)->fails_queue) {
                return UMF_RESULT_ERROR_USER_SPECIFIC;
            }
            self(provider)->queues++;
            *queue = new Queue;
            return UMF_RESULT_SUCCESS;
        };
        ext.queue_destroy = [](void *provider, void *queue) {
            self(provider)->queues--;
            delete static_cast<Queue *>(queue);
            return UMF_RESULT_SUCCESS;
        };
        ext.queue_wait = [](void *provider, void *queue) {
            if (self(provider)->during_wait) {
                self(provider)->during_wait();
            }
            for (auto &work : *static_cast<Queue *>(queue)) {
                work();
            }
            static_cast<Queue *>(queue)->clear();
            return self(provider)->fails_wait ? UMF_RESULT_ERROR_USER_SPECIFIC : UMF_RESULT_SUCCESS;
        };
        ext.copy = copy;
        ext.fill = [](void *provider, void *queue, void *dst, uint8_t value, size_t size) {
            FarProvider *owner = self(provider);
            owner->fills++;
            static_cast<Queue *>(queue)->push_back(
                [=] { memset(owner->near_of(dst), value, size); });
            return UMF_RESULT_SUCCESS;
        };
        return ext;
    }
};

#endif
