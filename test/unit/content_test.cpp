/*
 * calloc and realloc on memory that the CPU cannot touch. The provider here hands out
 * addresses without access; the same memory is mapped a second time for its fill and copy, which
 * happen only when their queue is waited for.
 */
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/memory_provider_gpu.h>
#include <umf/plugin.h>
#include <umf/providers/provider_fixed_memory.h>

#include "fakes/kinds.h"
#include "fakes/plain_ops.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t FAILED = UMF_RESULT_ERROR_USER_SPECIFIC;
constexpr size_t ROOM = size_t{64} << 20, PAGE = 4096;

struct Device {
    char *far = nullptr;  // no access
    char *near = nullptr; // the same memory
    std::mutex mutex;
    size_t used = 0;
    umf_usm_memory_type_t type = UMF_MEMORY_TYPE_DEVICE;
    std::atomic<bool> fails_queue{false}, fails_work{false}, fails_wait{false};
    std::atomic<size_t> queues{0}, queues_made{0}, works{0}, queries{0};

    Device() {
        int fd = memfd_create("device", MFD_CLOEXEC);
        EXPECT_EQ(ftruncate(fd, ROOM), 0);
        far = static_cast<char *>(mmap(nullptr, ROOM, PROT_NONE, MAP_SHARED, fd, 0));
        near = static_cast<char *>(mmap(nullptr, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        close(fd);
    }
    ~Device() {
        munmap(far, ROOM);
        munmap(near, ROOM);
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    char *near_of(const void *ptr) {
        return near + (static_cast<const char *>(ptr) - far);
    }
};

using Queue = std::vector<std::function<void()>>;

Device *device_of(void *provider) {
    return static_cast<Device *>(provider);
}

umf_memory_provider_ops_t make_table() {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.ext_ctl = nullptr;
    ops.ext_purge_lazy = nullptr;
    ops.ext_purge_force = nullptr;
    ops.initialize = [](const void *params, void **provider) {
        *provider = const_cast<void *>(params);
        return OK;
    };
    ops.finalize = [](void *) { return OK; };
    ops.alloc = [](void *provider, size_t size, size_t alignment, void **ptr) {
        Device *device = device_of(provider);
        std::lock_guard<std::mutex> guard(device->mutex);
        size_t step = alignment > PAGE ? alignment : PAGE;
        size_t at = (device->used + step - 1) / step * step;
        if (size > ROOM || at > ROOM - size) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        device->used = at + size;
        *ptr = device->far + at;
        return OK;
    };
    ops.free = [](void *, void *, size_t) { return OK; };
    ops.get_min_page_size = [](void *, const void *, size_t *size) {
        *size = PAGE;
        return OK;
    };
    ops.get_recommended_page_size = [](void *, size_t, size_t *size) {
        *size = PAGE;
        return OK;
    };
    ops.get_cache_line_size = [](void *, size_t *size) {
        *size = 128;
        return OK;
    };
    ops.get_name = [](void *, const char **name) {
        *name = "far";
        return OK;
    };
    ops.ext_allocation_split = [](void *, void *, size_t, size_t) { return OK; };
    ops.ext_allocation_merge = [](void *, void *, void *, size_t) { return OK; };
    ops.ext_get_allocation_properties = [](void *provider, const void *,
                                           umf_memory_property_id_t id, void *value) {
        if (id != UMF_MEMORY_PROPERTY_POINTER_TYPE) {
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        device_of(provider)->queries++;
        *static_cast<umf_usm_memory_type_t *>(value) = device_of(provider)->type;
        return OK;
    };
    ops.ext_get_allocation_properties_size = [](void *, umf_memory_property_id_t, size_t *size) {
        *size = sizeof(umf_usm_memory_type_t);
        return OK;
    };
    return ops;
}

const umf_memory_provider_ops_t with_data = make_table(), without_data = make_table();

umf_memory_provider_ext_ops_t make_ext() {
    umf_memory_provider_ext_ops_t ext = {};
    ext.struct_size = sizeof(ext);
    ext.queue_create = [](void *provider, void **queue) {
        if (device_of(provider)->fails_queue) {
            return FAILED;
        }
        device_of(provider)->queues++;
        device_of(provider)->queues_made++;
        *queue = new Queue;
        return OK;
    };
    ext.queue_destroy = [](void *provider, void *queue) {
        device_of(provider)->queues--;
        delete static_cast<Queue *>(queue);
        return OK;
    };
    ext.queue_wait = [](void *provider, void *queue) {
        for (auto &work : *static_cast<Queue *>(queue)) {
            work();
        }
        static_cast<Queue *>(queue)->clear();
        return device_of(provider)->fails_wait ? FAILED : OK;
    };
    ext.copy = [](void *provider, void *queue, void *dst, const void *src, size_t size) {
        Device *device = device_of(provider);
        if (device->fails_work) {
            return FAILED;
        }
        device->works++;
        static_cast<Queue *>(queue)->push_back(
            [=] { memcpy(device->near_of(dst), device->near_of(src), size); });
        return OK;
    };
    ext.fill = [](void *provider, void *queue, void *dst, uint8_t value, size_t size) {
        Device *device = device_of(provider);
        if (device->fails_work) {
            return FAILED;
        }
        device->works++;
        static_cast<Queue *>(queue)->push_back([=] { memset(device->near_of(dst), value, size); });
        return OK;
    };
    return ext;
}

void register_kind() {
    static const umf_memory_provider_ext_ops_t ext = make_ext();
    static const umf_memory_provider_descriptor_t descriptor = plain_kind("far", &with_data, &ext);
    static const umf_result_t result = umfRegisterProvider(&descriptor);
    ASSERT_EQ(result, OK);
}

class Content : public testing::TestWithParam<PoolKind> {
  protected:
    Device device;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        register_kind();
        memset(device.near, 0xA5, ROOM);
    }
    void TearDown() override {
        destroy();
        EXPECT_EQ(device.queues, 0u) << "every queue is destroyed";
    }
    void create(const umf_memory_provider_ops_t *ops) {
        ASSERT_EQ(umfMemoryProviderCreate(ops, &device, &provider), OK);
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &pool), OK);
    }
    void destroy() {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        pool = nullptr;
    }
    umf_result_t last_error() {
        return umfPoolGetLastAllocationError(pool);
    }
    bool is_all(const void *ptr, char value, size_t size) {
        const char *near = device.near_of(ptr);
        return std::all_of(near, near + size, [=](char c) { return c == value; });
    }
};

const size_t sizes[] = {1, 100, 5000, 20000, 100000, 3 << 20};

} // namespace

TEST_P(Content, CallocFills) {
    create(&with_data);
    for (size_t size : sizes) {
        void *p = umfPoolCalloc(pool, size, 3);
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(is_all(p, 0, size * 3));
        EXPECT_EQ(umfPoolFree(pool, p), OK);
    }
    EXPECT_EQ(device.queues_made, 1u) << "one is kept for the next time";
    EXPECT_EQ(device.queries, 1u);
}

TEST_P(Content, ReallocCopies) {
    create(&with_data);
    void *p = umfPoolRealloc(pool, nullptr, 10);
    memset(device.near_of(p), 0x3C, 10);
    size_t kept = 10;
    for (size_t size : {1000, 40, 30000, 4 << 20, 200000, 100}) {
        p = umfPoolRealloc(pool, p, size);
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(is_all(p, 0x3C, std::min(kept, size)));
        memset(device.near_of(p), 0x3C, size);
        kept = size;
    }
    EXPECT_GT(device.works, 0u);
    EXPECT_EQ(umfPoolRealloc(pool, p, 0), nullptr);
    EXPECT_EQ(alloc_count(pool), 0u);
}

TEST_P(Content, FailureLeavesEverythingAsItWas) {
    create(&with_data);
    void *p = umfPoolMalloc(pool, 1000);
    memset(device.near_of(p), 0x3C, 1000);
    for (std::atomic<bool> *fails : {&device.fails_queue, &device.fails_work, &device.fails_wait}) {
        *fails = true;
        EXPECT_EQ(umfPoolCalloc(pool, 100, 7), nullptr);
        EXPECT_EQ(last_error(), FAILED);
        EXPECT_EQ(umfPoolRealloc(pool, p, 1 << 20), nullptr);
        EXPECT_EQ(last_error(), FAILED);
        umf_memory_provider_handle_t who = nullptr;
        EXPECT_EQ(umfGetLastFailedMemoryProvider(&who), OK);
        EXPECT_EQ(who, provider);
        *fails = false;
        EXPECT_TRUE(is_all(p, 0x3C, 1000));
        EXPECT_EQ(alloc_count(pool), 1u);
        // The kept queue must not hide the failure to make one.
        destroy();
        create(&with_data);
        p = umfPoolMalloc(pool, 1000);
        memset(device.near_of(p), 0x3C, 1000);
    }
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_P(Content, NobodyCan) {
    create(&without_data);
    EXPECT_EQ(umfPoolCalloc(pool, 100, 7), nullptr);
    EXPECT_EQ(last_error(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    void *p = umfPoolMalloc(pool, 1000);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(umfPoolRealloc(pool, p, 1 << 20), nullptr);
    EXPECT_EQ(last_error(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfPoolRealloc(pool, p, 1000), p) << "nothing need be copied";
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(alloc_count(pool), 0u);
}

// Memory of the host costs nothing extra, also where the provider could copy.
TEST_P(Content, TheCpuDoesWhatItCan) {
    device.type = UMF_MEMORY_TYPE_HOST;
    ASSERT_EQ(mprotect(device.far, ROOM, PROT_READ | PROT_WRITE), 0);
    create(&with_data);
    void *p = umfPoolCalloc(pool, 1000, 10);
    EXPECT_TRUE(is_all(p, 0, 10000));
    p = umfPoolRealloc(pool, p, 1 << 20);
    EXPECT_TRUE(is_all(p, 0, 10000));
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(device.queues_made, 0u);
    EXPECT_EQ(device.works, 0u);
    EXPECT_EQ(device.queries, 1u);
}

// A provider without a memory type: the kernel decides whether the CPU can access it.
TEST_P(Content, MemoryThatNobodyDescribes) {
    for (int protection : {PROT_NONE, PROT_READ | PROT_WRITE}) {
        FakeProvider fake;
        fake.protection = protection;
        provider = fake.create();
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &pool), OK);
        for (size_t size : sizes) {
            errno = 4711;
            char *zero = static_cast<char *>(umfPoolCalloc(pool, size, 3));
            EXPECT_EQ(errno, 4711);
            char *p = static_cast<char *>(umfPoolMalloc(pool, size));
            ASSERT_NE(p, nullptr);
            if (protection == PROT_NONE) {
                EXPECT_EQ(zero, nullptr);
                EXPECT_EQ(last_error(), UMF_RESULT_ERROR_NOT_SUPPORTED);
                // It may grow where it is; elsewhere it would have to be copied.
                void *larger = umfPoolRealloc(pool, p, size + (4 << 20));
                EXPECT_TRUE(larger == nullptr || (larger == p && size > (64 << 10))) << size;
                EXPECT_EQ(last_error(), UMF_RESULT_ERROR_NOT_SUPPORTED);
            } else {
                ASSERT_NE(zero, nullptr);
                EXPECT_TRUE(std::all_of(zero, zero + size * 3, [](char c) { return c == 0; }));
                EXPECT_EQ(umfPoolFree(pool, zero), OK);
                memset(p, 0x3C, size);
                p = static_cast<char *>(umfPoolRealloc(pool, p, size + (4 << 20)));
                ASSERT_NE(p, nullptr);
                EXPECT_TRUE(std::all_of(p, p + size, [](char c) { return c == 0x3C; }));
            }
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
        EXPECT_EQ(alloc_count(pool), 0u);
        destroy();
    }
}

// Memory that could be read may still not be written.
TEST_P(Content, ReadingTellsNothingOfWriting) {
    FakeProvider fake;
    fake.protection = PROT_READ;
    provider = fake.create();
    ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &pool), OK);
    void *p = umfPoolMalloc(pool, 100000);
    ASSERT_NE(p, nullptr);
    fake.protection = PROT_READ | PROT_WRITE;
    void *moved = umfPoolRealloc(pool, p, 64 << 20);
    ASSERT_NE(moved, nullptr) << "it was read";
    auto zero = static_cast<char *>(umfPoolCalloc(pool, 1, 100000));
    EXPECT_EQ(zero, nullptr) << "the same memory again";
    EXPECT_EQ(last_error(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfPoolFree(pool, zero), OK);
    EXPECT_EQ(umfPoolFree(pool, moved), OK);
    destroy();
}

TEST_P(Content, FixedRangeOutOfTheCpusReach) {
    for (int protection : {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE}) {
        ASSERT_EQ(mprotect(device.far, ROOM, protection), 0);
        umf_fixed_memory_provider_params_handle_t params = nullptr;
        ASSERT_EQ(umfFixedMemoryProviderParamsCreate(device.far, ROOM, &params), OK);
        ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &provider), OK);
        EXPECT_EQ(umfFixedMemoryProviderParamsDestroy(params), OK);
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &pool), OK);
        bool is_reached = (protection & PROT_WRITE) != 0;
        void *zero = umfPoolCalloc(pool, 1000, 10);
        EXPECT_EQ(zero != nullptr, is_reached);
        void *p = umfPoolMalloc(pool, 1000);
        ASSERT_NE(p, nullptr);
        memset(device.near_of(p), 0x3C, 1000);
        void *moved = umfPoolRealloc(pool, p, 1 << 20);
        EXPECT_EQ(moved != nullptr, is_reached);
        if (is_reached) {
            EXPECT_TRUE(is_all(zero, 0, 10000));
            EXPECT_TRUE(is_all(moved, 0x3C, 1000));
        } else {
            EXPECT_EQ(last_error(), UMF_RESULT_ERROR_NOT_SUPPORTED);
            EXPECT_TRUE(is_all(p, 0x3C, 1000)) << "it stays as it was";
        }
        destroy();
    }
}

// An unknown type counts as no type.
TEST_P(Content, UnknownTypeIsTried) {
    device.type = UMF_MEMORY_TYPE_UNKNOWN;
    create(&without_data);
    EXPECT_EQ(umfPoolCalloc(pool, 100, 7), nullptr);
    EXPECT_EQ(last_error(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    destroy();
    ASSERT_EQ(mprotect(device.far, ROOM, PROT_READ | PROT_WRITE), 0);
    create(&without_data);
    void *p = umfPoolCalloc(pool, 100, 7);
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(is_all(p, 0, 700));
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_P(Content, Threads) {
    create(&with_data);
    std::vector<std::thread> threads;
    for (char t = 1; t <= 4; t++) {
        threads.emplace_back([this, t] {
            void *p = nullptr;
            for (size_t size = 64; size < 40000; size += size / 2) {
                p = umfPoolRealloc(pool, p, size);
                ASSERT_NE(p, nullptr);
                if (size > 64) {
                    EXPECT_TRUE(is_all(p, t, 64));
                }
                memset(device.near_of(p), t, size);
                void *zero = umfPoolCalloc(pool, size, 1);
                ASSERT_NE(zero, nullptr);
                EXPECT_TRUE(is_all(zero, 0, size));
                EXPECT_EQ(umfPoolFree(pool, zero), OK);
            }
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(alloc_count(pool), 0u);
}

// Every kind that offers them and keeps its own data elsewhere.
static std::vector<PoolKind> kinds_that_copy() {
    std::vector<PoolKind> list;
    for (const PoolKind &kind : pool_kinds()) {
        if (kind.callocs && !kind.touches_memory) {
            list.push_back(kind);
        }
    }
    return list;
}

INSTANTIATE_TEST_SUITE_P(Each, Content, testing::ValuesIn(kinds_that_copy()),
                         [](const auto &kind) { return std::string(kind.param.id); });
