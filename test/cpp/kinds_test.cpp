// Classes as tables of operations.
#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <umf/experimental/ctl.h>
#include <umf/plugin.h>
#include <umf/reclaim.h>

#include "cpp/heap.h"

TEST(MakeProvider, ServesAnyPool) {
    Counters counters;
    for (auto *ops : {umfDisjointPoolOps(), umfCoalescingPoolOps(), umfProxyPoolOps()}) {
        umf::pool pool(umf::make_provider<Heap>(counters), ops);
        EXPECT_STREQ(pool.provider().name(), "HEAP");
        void *ptr = pool.allocate(5000);
        std::memset(ptr, 1, 5000);
        EXPECT_GE(counters.bytes, 5000u);
        EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(counters.objects, 0);
    EXPECT_EQ(counters.blocks, 0);
    EXPECT_EQ(counters.bytes, 0u);
}

TEST(MakeProvider, WithoutAnOperationDoesNotOfferIt) {
    Counters counters;
    umf::provider provider = umf::make_provider<Heap>(counters);
    void *ptr = provider.allocate(8192);
    EXPECT_EQ(provider.purge_lazy(ptr, 4096).code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(provider.purge_force(ptr, 4096).code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider.get(), ptr, 8192, 4096),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    size_t size = 1;
    EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider.get(), &size),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfMemoryProviderGetCacheLineSize(provider.get(), &size), UMF_RESULT_SUCCESS);
    EXPECT_EQ(size, 64u);
    EXPECT_EQ(provider.min_page_size(), 0u);
    EXPECT_EQ(provider.recommended_page_size(1), 0u);
    provider.deallocate(ptr, 8192);
}

// Every operation there is; the last one that was called is remembered.
struct Whole {
    std::string &last;

    explicit Whole(std::string &remembered) : last(remembered) {}
    void *allocate(size_t, size_t) {
        return this;
    }
    umf_result_t deallocate(void *, size_t size) {
        return size == 7 ? UMF_RESULT_ERROR_INVALID_ARGUMENT : UMF_RESULT_SUCCESS;
    }
    size_t min_page_size(const void *) {
        return 16384;
    }
    size_t recommended_page_size(size_t size) {
        return 2 * size;
    }
    size_t cache_line_size() {
        return 128;
    }
    void purge_lazy(void *, size_t) {
        last = "purge_lazy";
    }
    umf::result<void> purge_force(void *, size_t) {
        last = "purge_force";
        return umf::error(UMF_RESULT_ERROR_OUT_OF_RESOURCES, "not today");
    }
    void split(void *, size_t, size_t) {
        last = "split";
    }
    void merge(void *, void *, size_t) {
        last = "merge";
    }
    size_t ipc_handle_size() {
        return 24;
    }
    void get_ipc_handle(const void *, size_t, void *) {
        last = "get_ipc_handle";
    }
    void put_ipc_handle(void *) {
        last = "put_ipc_handle";
    }
    void *open_ipc_handle(void *data) {
        return data;
    }
    void close_ipc_handle(void *, size_t) {
        last = "close_ipc_handle";
    }
    void property(const void *, umf_memory_property_id_t, void *) {}
    size_t property_size(umf_memory_property_id_t) {
        return 8;
    }
    umf_result_t ctl(umf_ctl_query_source_t, const char *path, void *, size_t, umf_ctl_query_type_t,
                     va_list) {
        return path == std::string("post_initialize") ? UMF_RESULT_SUCCESS
                                                      : UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
};

TEST(MakeProvider, PassesEveryOperationOn) {
    std::string last;
    umf::provider provider = umf::make_provider<Whole>(last);
    EXPECT_STREQ(provider.name(), "CPP");
    char *ptr = static_cast<char *>(provider.allocate(1));
    EXPECT_EQ(provider.min_page_size(), 16384u);
    EXPECT_EQ(provider.recommended_page_size(100), 200u);
    size_t size = 0;
    umfMemoryProviderGetCacheLineSize(provider.get(), &size);
    EXPECT_EQ(size, 128u);
    EXPECT_TRUE(provider.purge_lazy(ptr, 1));
    EXPECT_EQ(last, "purge_lazy");
    EXPECT_EQ(provider.purge_force(ptr, 1).code(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(last, "purge_force");
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider.get(), ptr, 2, 1), UMF_RESULT_SUCCESS);
    EXPECT_EQ(last, "split");
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider.get(), ptr, ptr + 1, 2),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(last, "merge");
    EXPECT_EQ(provider.deallocate(ptr, 7), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.deallocate(ptr, 1), UMF_RESULT_SUCCESS);
}

TEST(MakeProvider, PassesEveryOperationOfIpcOn) {
    std::string last;
    umf::provider provider = umf::make_provider<Whole>(last);
    char data[24] = {};
    size_t size = 0;
    void *opened = nullptr;
    EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider.get(), &size), UMF_RESULT_SUCCESS);
    EXPECT_EQ(size, sizeof(data));
    umfMemoryProviderGetIPCHandle(provider.get(), data, 1, data);
    EXPECT_EQ(last, "get_ipc_handle");
    umfMemoryProviderPutIPCHandle(provider.get(), data);
    EXPECT_EQ(last, "put_ipc_handle");
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider.get(), data, &opened), UMF_RESULT_SUCCESS);
    EXPECT_EQ(opened, data);
    umfMemoryProviderCloseIPCHandle(provider.get(), opened, 1);
    EXPECT_EQ(last, "close_ipc_handle");
}

// Throws an exception of the test.
struct Thrower {
    int what;

    explicit Thrower(int given) : what(given) {
        if (what < 0) {
            throw std::runtime_error("no such device");
        }
    }
    void *allocate(size_t size, size_t) {
        switch (what) {
        case 0:
            throw umf::exception({UMF_RESULT_ERROR_OUT_OF_RESOURCES, "too many"});
        case 1:
            throw umf::bad_alloc(UMF_RESULT_ERROR_NOT_SUPPORTED, size, "x", "");
        case 2:
            throw std::bad_alloc();
        case 3:
            throw std::logic_error("the card is on fire");
        case 4:
            throw 4;
        default:
            return nullptr;
        }
    }
    void deallocate(void *, size_t) {}
};

TEST(MakeProvider, TurnsExceptionsIntoResults) {
    const umf_result_t expected[] = {UMF_RESULT_ERROR_OUT_OF_RESOURCES,
                                     UMF_RESULT_ERROR_NOT_SUPPORTED,
                                     UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY,
                                     UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC,
                                     UMF_RESULT_ERROR_UNKNOWN,
                                     UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY};
    for (int what = 0; what < 6; what++) {
        umf::provider provider = umf::make_provider<Thrower>(what);
        void *ptr = nullptr;
        EXPECT_EQ(umfMemoryProviderAlloc(provider.get(), 1, 0, &ptr), expected[what]) << what;
        EXPECT_EQ(ptr, nullptr);
    }
    umf::provider provider = umf::make_provider<Thrower>(3);
    EXPECT_NE(provider.try_allocate(1).error().text().find("the card is on fire"),
              std::string::npos);
}

// Pools keep a result code only, and some of them their own.
TEST(MakeProvider, ItsTextPassesThroughEveryPool) {
    for (auto *ops : {umfDisjointPoolOps(), umfCoalescingPoolOps(), umfProxyPoolOps(),
                      umfJemallocPoolOps(), umfScalablePoolOps()}) {
        auto pool = umf::pool::create(umf::make_provider<Thrower>(3), ops);
        if (!pool) {
            continue; // not in this build, or it needs operations that the class lacks
        }
        for (size_t size : {size_t{100}, size_t{100000}, size_t{5} << 20}) {
            EXPECT_EQ(umfPoolMalloc(pool->get(), size), nullptr);
            EXPECT_NE(std::string(umfLastErrorText()).find("the card is on fire"),
                      std::string::npos)
                << pool->name() << " " << size << ": " << umfLastErrorText();
            umfLastErrorClear();
            try {
                static_cast<void>(pool->allocate(size));
                ADD_FAILURE() << "allocated";
            } catch (const umf::bad_alloc &thrown) {
                EXPECT_NE(std::string(thrown.what()).find("the card is on fire"), std::string::npos)
                    << thrown.what();
            }
        }
    }
}

// A failure that has nothing to do with the provider does not have its text.
TEST(MakeProvider, ItsTextIsNotThatOfALaterFailure) {
    umf::pool pool(umf::make_provider<Thrower>(3), umfDisjointPoolOps());
    EXPECT_EQ(umfPoolMalloc(pool.get(), 100), nullptr);
    EXPECT_EQ(umfPoolMalloc(pool.get(), 0), nullptr);
    EXPECT_STREQ(umfLastErrorText(), "a disjoint pool refuses 0 bytes");
}

TEST(MakeProvider, ALimitOfAGroupIsTheReason) {
    Counters counters;
    umf::pool pool(umf::make_provider<Heap>(counters), umfProxyPoolOps());
    umf_pool_group_handle_t group = nullptr;
    ASSERT_EQ(umfPoolGroupCreate(1 << 20, &group), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfPoolGroupAdd(group, pool.get()), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPoolMalloc(pool.get(), 2 << 20), nullptr);
    EXPECT_EQ(umfLastReason(), UMF_REASON_LIMIT) << umfLastErrorText();
    pool.reset();
    EXPECT_EQ(umfPoolGroupDestroy(group), UMF_RESULT_SUCCESS);
}

TEST(MakeProvider, SaysWhyTheConstructorFailed) {
    auto made = umf::try_make_provider<Thrower>(-1);
    EXPECT_EQ(made.code(), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_NE(made.error().text().find("no such device"), std::string::npos);
    EXPECT_THROW(umf::make_provider<Thrower>(-1), umf::exception);
}

// Parameters by text, for a descriptor.
struct Sized : Heap {
    static inline Counters counted;
    static inline size_t wanted;
    explicit Sized(const size_t &size) : Heap(counted) {
        wanted = size;
    }
};

TEST(ProviderOps, MakeAKindThatTextNames) {
    static umf_memory_provider_descriptor_t descriptor = UMF_MEMORY_PROVIDER_DESCRIPTOR_INIT;
    descriptor.name = "sized";
    descriptor.ops = umf::provider_ops<Sized, size_t>();
    descriptor.params_from_text = [](const char *text, void **params) {
        *params = new size_t(std::strtoul(text + std::strlen("size="), nullptr, 10));
        return UMF_RESULT_SUCCESS;
    };
    descriptor.params_destroy = [](void *params) { delete static_cast<size_t *>(params); };
    ASSERT_EQ(umfRegisterProvider(&descriptor), UMF_RESULT_SUCCESS);
    umf::pool pool("disjoint over sized:size=77");
    EXPECT_EQ(Sized::wanted, 77u);
    pool.deallocate(pool.allocate(100));
}

// Counts up in one allocation of its provider.
class Bump {
  public:
    static constexpr size_t room = 1 << 16;

    explicit Bump(umf::provider_ref provider, size_t start = 0)
        : provider_(provider), base_(static_cast<char *>(provider.allocate(room))), used_(start) {}
    ~Bump() {
        provider_.deallocate(base_, room);
    }
    static const char *name() {
        return "bump";
    }
    void *allocate(size_t size, size_t alignment) {
        size_t begin = (used_ + alignment - 1) / alignment * alignment;
        if (size > room || begin > room - size) {
            return nullptr;
        }
        used_ = begin + size;
        return base_ + begin;
    }
    void deallocate(void *) {}

  protected:
    umf::provider_ref provider_;
    char *base_;
    size_t used_;
};

class Resizes : public Bump {
  public:
    using Bump::Bump;
    void *allocate_zeroed(size_t size) {
        void *ptr = allocate(size, 16);
        return ptr ? std::memset(ptr, 0, size) : nullptr;
    }
    void *reallocate(void *, size_t size) {
        return allocate(size, 16);
    }
    size_t usable_size(const void *) {
        return 32;
    }
    umf_result_t trim(size_t keep) {
        return keep == 7 ? UMF_RESULT_ERROR_USER_SPECIFIC : UMF_RESULT_SUCCESS;
    }
};

TEST(MakePool, ServesAndReturnsItsMemory) {
    Counters counters;
    {
        umf::pool pool = umf::make_pool<Bump>(umf::make_provider<Heap>(counters), 1000u);
        void *ptr = pool.allocate(100, 64);
        EXPECT_EQ(umf::pool_ref::of(ptr), pool);
        EXPECT_STREQ(pool.name(), "bump");
        EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
        EXPECT_EQ(counters.blocks, 1);
    }
    EXPECT_EQ(counters.blocks, 0);
    EXPECT_EQ(counters.objects, 0);
}

TEST(MakePool, WithoutAnOperationDoesNotOfferIt) {
    umf::provider os("os");
    umf::pool pool = umf::make_pool<Bump>(os);
    EXPECT_EQ(pool.try_allocate(Bump::room + 1), nullptr);
    EXPECT_EQ(pool.allocation_error().code(), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(pool.try_allocate(8, 24), nullptr);
    EXPECT_EQ(pool.allocation_error().code(), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    EXPECT_EQ(pool.try_allocate_zeroed(8), nullptr);
    EXPECT_EQ(pool.allocation_error().code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    void *ptr = umfPoolRealloc(pool.get(), nullptr, 8);
    EXPECT_NE(ptr, nullptr);
    EXPECT_EQ(pool.usable_size(ptr), 0u);
    EXPECT_EQ(umfPoolRealloc(pool.get(), ptr, 80), nullptr);
    EXPECT_EQ(pool.allocation_error().code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfPoolRealloc(pool.get(), ptr, 0), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool.get()), UMF_RESULT_SUCCESS);
    EXPECT_EQ(pool.trim().code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
}

TEST(MakePool, PassesEveryOperationOn) {
    umf::pool pool = umf::make_pool<Resizes>(umf::provider("os"));
    auto *bytes = static_cast<char *>(umfPoolCalloc(pool.get(), 10, 10));
    EXPECT_EQ(bytes[99], 0);
    EXPECT_EQ(umfPoolCalloc(pool.get(), SIZE_MAX / 2, 3), nullptr);
    EXPECT_NE(umfPoolRealloc(pool.get(), bytes, 200), nullptr);
    EXPECT_EQ(pool.usable_size(bytes), 32u);
    EXPECT_EQ(umfPoolMallocUsableSize(pool.get(), bytes, nullptr),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(pool.trim(1));
    EXPECT_EQ(pool.trim(7).code(), UMF_RESULT_ERROR_USER_SPECIFIC);
}

TEST(MakePool, SaysWhyTheConstructorFailed) {
    umf::provider provider = umf::make_provider<Thrower>(3);
    auto made = umf::try_make_pool<Bump>(provider);
    EXPECT_EQ(made.code(), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_NE(made.error().text().find("the card is on fire"), std::string::npos);
    EXPECT_THROW(umf::make_pool<Bump>(provider), umf::exception);
}
