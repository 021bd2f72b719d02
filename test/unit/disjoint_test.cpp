/* The disjoint pool's numbers: bucket sizes, slabs, what it keeps, its settings and statistics. */
#include <algorithm>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/pools/pool_disjoint.h>

#include "fakes/blocks.h"
#include "fakes/decay_period.h"
#include "fakes/fake_provider.h"
#include "fakes/log_file.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

#if UMF_TEST_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr umf_result_t NO_PATH = UMF_RESULT_ERROR_INVALID_CTL_PATH;

class Disjoint : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_disjoint_pool_params_handle_t params = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        ASSERT_EQ(umfDisjointPoolParamsCreate(&params), OK);
        ASSERT_EQ(umfDisjointPoolParamsSetMinBucketSize(params, 8), OK);
    }
    void create(umf_pool_create_flags_t flags = 0) {
        provider = fake.create();
        ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, params, flags, &pool), OK);
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        EXPECT_EQ(umfDisjointPoolParamsDestroy(params), OK);
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(fake.mistakes, 0u);
    }
    std::vector<void *> alloc(size_t n, size_t size) {
        return alloc_blocks(pool, n, size);
    }
    void free(const std::vector<void *> &list) {
        free_blocks(pool, list);
    }
    umf_result_t try_read(const char *path, size_t *value, size_t size = sizeof(size_t)) {
        return umfCtlGet((std::string("umf.pool.by_handle.{}.") + path).c_str(), value, size, pool);
    }
    size_t read(const char *path) {
        size_t value = SIZE_MAX;
        EXPECT_EQ(try_read(path, &value), OK) << path;
        return value;
    }
    size_t bucket(size_t id) {
        size_t value = SIZE_MAX;
        EXPECT_EQ(
            umfCtlGet("umf.pool.by_handle.{}.buckets.{}.size", &value, sizeof(value), pool, id),
            OK);
        return value;
    }
    // How far behind the start of its chunk an address lies.
    static size_t offset_in_chunk(void *ptr, size_t chunk) {
        umf_memory_properties_handle_t handle = nullptr;
        uintptr_t base = 0;
        EXPECT_EQ(umfGetMemoryPropertiesHandle(ptr, &handle), OK);
        EXPECT_EQ(
            umfGetMemoryProperty(handle, UMF_MEMORY_PROPERTY_BASE_ADDRESS, &base, sizeof(base)),
            OK);
        return (reinterpret_cast<uintptr_t>(ptr) - base) % chunk;
    }
    std::vector<size_t> buckets() {
        std::vector<size_t> list;
        for (size_t i = 0; i < read("buckets.count"); i++) {
            list.push_back(bucket(i));
        }
        return list;
    }
};

// --- parameters ---

TEST_F(Disjoint, SettersCheck) {
    umf_disjoint_pool_shared_limits_handle_t limits = nullptr;
    EXPECT_EQ(umfDisjointPoolParamsCreate(nullptr), BAD);
    EXPECT_EQ(umfDisjointPoolParamsDestroy(nullptr), OK);
    EXPECT_EQ(umfDisjointPoolParamsSetSlabMinSize(nullptr, 1), BAD);
    EXPECT_EQ(umfDisjointPoolParamsSetMaxPoolableSize(nullptr, 1), BAD);
    EXPECT_EQ(umfDisjointPoolParamsSetCapacity(nullptr, 1), BAD);
    EXPECT_EQ(umfDisjointPoolParamsSetMinBucketSize(nullptr, 1), BAD);
    EXPECT_EQ(umfDisjointPoolParamsSetTrace(nullptr, 1), BAD);
    EXPECT_EQ(umfDisjointPoolParamsSetSharedLimits(nullptr, nullptr), BAD);
    EXPECT_EQ(umfDisjointPoolParamsSetName(nullptr, "x"), BAD);
    EXPECT_EQ(umfDisjointPoolParamsSetName(params, nullptr), BAD);
    EXPECT_EQ(umfDisjointPoolSharedLimitsCreate(1, nullptr), BAD);
    EXPECT_EQ(umfDisjointPoolSharedLimitsDestroy(limits), OK);
    for (size_t size : {size_t{0}, size_t{3}, size_t{24}, SIZE_MAX}) {
        EXPECT_EQ(umfDisjointPoolParamsSetMinBucketSize(params, size), BAD) << size;
    }
    for (size_t size : {size_t{1}, size_t{8}, size_t{1} << 40}) {
        EXPECT_EQ(umfDisjointPoolParamsSetMinBucketSize(params, size), OK) << size;
    }
}

TEST_F(Disjoint, DefaultsOfNullParameters) {
    umfDisjointPoolParamsDestroy(params);
    params = nullptr;
    fake.cache_line = 128;
    create();
    EXPECT_EQ(read("params.slab_min_size"), 65536u);
    EXPECT_EQ(read("params.max_poolable_size"), 2097152u);
    EXPECT_EQ(read("params.capacity"), 4u);
    EXPECT_EQ(read("params.min_bucket_size"), 128u) << "the provider's cache line";
    int trace = -1;
    EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.params.pool_trace", &trace, sizeof(trace), pool),
              OK);
    EXPECT_EQ(trace, 0);
    const char *name = nullptr;
    EXPECT_EQ(umfPoolGetName(pool, &name), OK);
    EXPECT_STREQ(name, "disjoint");
    ASSERT_EQ(umfDisjointPoolParamsCreate(&params), OK);
}

TEST_F(Disjoint, WithoutACacheLineTheDefaultStays) {
    umf_disjoint_pool_params_handle_t fresh = nullptr;
    ASSERT_EQ(umfDisjointPoolParamsCreate(&fresh), OK);
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.get_cache_line_size = [](void *, size_t *) { return UMF_RESULT_ERROR_UNKNOWN; };
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, fresh, 0, &pool), OK);
    EXPECT_EQ(umfDisjointPoolParamsDestroy(fresh), OK);
    EXPECT_EQ(read("params.min_bucket_size"), UMF_DISJOINT_POOL_MIN_BUCKET_DEFAULT_SIZE);
}

TEST_F(Disjoint, NameIsCutTo63) {
    std::string name(100, 'd');
    ASSERT_EQ(umfDisjointPoolParamsSetName(params, name.c_str()), OK);
    ASSERT_EQ(umfDisjointPoolParamsSetName(params, "short"), OK);
    ASSERT_EQ(umfDisjointPoolParamsSetName(params, name.c_str()), OK);
    create();
    const char *got = nullptr;
    EXPECT_EQ(umfPoolGetName(pool, &got), OK);
    EXPECT_EQ(got, std::string(63, 'd'));
}

TEST_F(Disjoint, ParametersAreCopiedAtCreation) {
    ASSERT_EQ(umfDisjointPoolParamsSetName(params, "before"), OK);
    ASSERT_EQ(umfDisjointPoolParamsSetCapacity(params, 7), OK);
    create();
    ASSERT_EQ(umfDisjointPoolParamsSetName(params, "after"), OK);
    ASSERT_EQ(umfDisjointPoolParamsSetCapacity(params, 8), OK);
    ASSERT_EQ(umfDisjointPoolParamsSetMaxPoolableSize(params, 0), OK);
    ASSERT_EQ(umfDisjointPoolParamsDestroy(params), OK);
    ASSERT_EQ(umfDisjointPoolParamsCreate(&params), OK);
    const char *name = nullptr;
    EXPECT_EQ(umfPoolGetName(pool, &name), OK);
    EXPECT_STREQ(name, "before");
    EXPECT_EQ(read("params.capacity"), 7u);
    EXPECT_EQ(read("params.max_poolable_size"), 2097152u);
}

TEST_F(Disjoint, ParametersCannotChangeLater) {
    create();
    size_t value = 64;
    int trace = 1;
    for (const char *name : {"slab_min_size", "max_poolable_size", "capacity", "min_bucket_size"}) {
        EXPECT_EQ(umfCtlSet("umf.pool.by_handle.{}.params.{}", &value, sizeof(value), pool, name),
                  NONE)
            << name;
        EXPECT_EQ(umfCtlExec("umf.pool.by_handle.{}.params.{}", nullptr, 0, pool, name), BAD);
    }
    EXPECT_EQ(umfCtlSet("umf.pool.by_handle.{}.params.pool_trace", &trace, sizeof(trace), pool),
              NONE);
    EXPECT_EQ(umfCtlExec("umf.pool.by_handle.{}.stats.used_memory", nullptr, 0, pool), BAD);
    EXPECT_EQ(umfCtlSet("umf.pool.by_handle.{}.stats.used_memory", &value, sizeof(value), pool),
              BAD);
    EXPECT_EQ(read("params.slab_min_size"), 65536u);
}

TEST_F(Disjoint, DefaultsOfTheControlTreeWin) {
    size_t capacity = 11, bucket_size = 64, odd = 24;
    ASSERT_EQ(umfDisjointPoolParamsSetName(params, "with_defaults"), OK);
    EXPECT_EQ(
        umfCtlSet("umf.pool.default.with_defaults.params.capacity", &capacity, sizeof(capacity)),
        OK);
    EXPECT_EQ(umfCtlSet("umf.pool.default.with_defaults.params.min_bucket_size", &bucket_size,
                        sizeof(bucket_size)),
              OK);
    create();
    EXPECT_EQ(read("params.capacity"), 11u);
    EXPECT_EQ(read("params.min_bucket_size"), 64u);
    EXPECT_EQ(bucket(0), 64u);
    // One that does not fit is ignored.
    EXPECT_EQ(umfCtlSet("umf.pool.default.with_defaults.params.min_bucket_size", &odd, sizeof(odd)),
              OK);
    umf_memory_pool_handle_t second = nullptr;
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, params, 0, &second), OK);
    std::swap(pool, second);
    EXPECT_EQ(read("params.min_bucket_size"), 8u);
    EXPECT_EQ(read("params.capacity"), 11u);
    capacity = 12;
    EXPECT_EQ(
        umfCtlSet("umf.pool.default.with_defaults.params.capacity", &capacity, sizeof(capacity)),
        OK);
    EXPECT_EQ(read("params.capacity"), 11u) << "a pool that exists is not affected";
    EXPECT_EQ(umfPoolDestroy(second), OK);
}

TEST_F(Disjoint, EveryParameterHasADefaultInTheControlTree) {
    size_t slab = 1 << 20, poolable = 12345, capacity = 9, bucket_size = 32;
    int trace = 2;
    ASSERT_EQ(umfDisjointPoolParamsSetName(params, "all_defaults"), OK);
    const std::string node = "umf.pool.default.all_defaults.params.";
    auto set = [&](const char *name, void *value, size_t size) {
        EXPECT_EQ(umfCtlSet((node + name).c_str(), value, size), OK) << name;
    };
    set("slab_min_size", &slab, sizeof(slab));
    set("max_poolable_size", &poolable, sizeof(poolable));
    set("capacity", &capacity, sizeof(capacity));
    set("min_bucket_size", &bucket_size, sizeof(bucket_size));
    set("pool_trace", &trace, sizeof(trace));
    create();
    EXPECT_EQ(read("params.slab_min_size"), slab);
    EXPECT_EQ(read("params.max_poolable_size"), poolable);
    EXPECT_EQ(read("params.capacity"), capacity);
    EXPECT_EQ(read("params.min_bucket_size"), bucket_size);
    EXPECT_EQ(read("stats.alloc_num"), 0u) << "counted: the trace is on";
    free(alloc(1, 100));
    EXPECT_EQ(fake.last_size, slab);
}

// A stored default of another size than the setting is ignored.
TEST_F(Disjoint, DefaultsOfAnotherSizeAreIgnored) {
    ASSERT_EQ(umfDisjointPoolParamsSetName(params, "short_default"), OK);
    uint32_t four = 77;
    uint64_t eight[2] = {78, 79};
    EXPECT_EQ(umfCtlSet("umf.pool.default.short_default.params.capacity", &four, sizeof(four)), OK);
    EXPECT_EQ(
        umfCtlSet("umf.pool.default.short_default.params.slab_min_size", eight, sizeof(eight)), OK);
    EXPECT_EQ(umfCtlSet("umf.pool.default.short_default.params.pool_trace", eight, 8), OK);
    create();
    EXPECT_EQ(read("params.capacity"), 4u);
    EXPECT_EQ(read("params.slab_min_size"), 65536u);
    size_t value = 0;
    EXPECT_EQ(try_read("stats.alloc_num", &value), NONE) << "the trace is off";
}

umf_result_t call_ctl(const umf_memory_pool_ops_t *ops, void *self, const char *path, void *arg,
                      size_t size, int type, ...) {
    va_list args;
    va_start(args, type);
    umf_result_t result = ops->ext_ctl(self, CTL_QUERY_PROGRAMMATIC, path, arg, size,
                                       static_cast<umf_ctl_query_type_t>(type), args);
    va_end(args);
    return result;
}

TEST_F(Disjoint, TableCalledDirectlyTakesSettingsBeforeTheFirstAllocation) {
    const umf_memory_pool_ops_t *ops = umfDisjointPoolOps();
    provider = fake.create();
    void *self = nullptr;
    ASSERT_EQ(ops->initialize(provider, params, &self), OK);
    size_t bucket_size = 64, value = 0;
    EXPECT_EQ(call_ctl(ops, self, "params.min_bucket_size", &bucket_size, 8, CTL_QUERY_WRITE), OK);
    EXPECT_EQ(call_ctl(ops, self, "buckets.0.size", &value, 8, CTL_QUERY_READ), OK);
    EXPECT_EQ(value, 64u);
    void *p = ops->malloc(self, 100);
    bucket_size = 8;
    EXPECT_EQ(call_ctl(ops, self, "params.min_bucket_size", &bucket_size, 8, CTL_QUERY_WRITE),
              NONE);
    EXPECT_EQ(call_ctl(ops, self, "buckets.0.size", &value, 8, CTL_QUERY_READ), OK);
    EXPECT_EQ(value, 64u);
    EXPECT_EQ(ops->free(self, p), OK);
    EXPECT_EQ(ops->finalize(self), OK);
}

// --- buckets ---

TEST_F(Disjoint, BucketsFrom8) {
    create();
    std::vector<size_t> list = buckets();
    std::vector<size_t> first = {8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
    ASSERT_GE(list.size(), first.size());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), list.begin()));
    EXPECT_EQ(list.back(), size_t{1} << 31);
}

TEST_F(Disjoint, BucketsFrom64) {
    ASSERT_EQ(umfDisjointPoolParamsSetMinBucketSize(params, 64), OK);
    create();
    std::vector<size_t> list = buckets();
    std::vector<size_t> first = {64, 128, 192, 256, 384, 512, 768};
    ASSERT_GE(list.size(), first.size());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), list.begin()));
}

TEST_F(Disjoint, BucketsOfEveryMinimum) {
    for (size_t min = 1; min <= (size_t{1} << 33); min *= 2) {
        ASSERT_EQ(umfDisjointPoolParamsSetMinBucketSize(params, min), OK);
        create();
        std::vector<size_t> list = buckets();
        for (size_t i = 1; i < list.size(); i++) {
            EXPECT_GE(list[i], list[i - 1] + min) << min << " at " << i;
        }
        // The definition: s, 1.5 s, 2 s, 3 s, ... in multiples of the minimum, each once.
        const size_t end = size_t{1} << 31;
        std::vector<size_t> expected;
        for (size_t s = std::min(std::max(min, size_t{8}), end); s < end; s *= 2) {
            for (size_t size : {s, s + s / 2}) {
                size = (size + min - 1) / min * min;
                if (size < end && (expected.empty() || size != expected.back())) {
                    expected.push_back(size);
                }
            }
        }
        expected.push_back(end);
        EXPECT_EQ(list, expected) << min;
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr;
        provider = nullptr;
    }
}

// A bucket of 12 bytes is no reason to hand out addresses in steps of 12.
TEST_F(Disjoint, AddressesAreMultiplesOf8ForEveryMinimum) {
    for (size_t min : {1, 2, 4, 8, 16}) {
        for (bool check : {false, true}) {
            ASSERT_EQ(umfDisjointPoolParamsSetMinBucketSize(params, min), OK);
            create();
            if (check) {
                EXPECT_EQ(umfPoolDestroy(pool), OK);
                EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
                ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, 2), OK);
                create();
            }
            std::set<char *> live;
            for (size_t size = 1; size <= 40; size++) {
                for (int i = 0; i < 20; i++) {
                    char *p = static_cast<char *>(umfPoolMalloc(pool, size));
                    ASSERT_NE(p, nullptr);
                    ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % 8, 0u) << min << ", " << size;
                    size_t usable = 0;
                    ASSERT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
                    ASSERT_GE(usable, size);
                    auto next = live.insert(p).first;
                    ASSERT_TRUE(++next == live.end() || p + usable <= *next);
                }
            }
            for (char *p : live) {
                EXPECT_EQ(umfPoolFree(pool, p), OK);
                EXPECT_EQ(umfPoolFree(pool, p + 4), BAD);
            }
            EXPECT_EQ(umfPoolDestroy(pool), OK);
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
            pool = nullptr;
            provider = nullptr;
        }
        ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, 0), OK);
    }
}

TEST_F(Disjoint, EverySizeGetsTheSmallestBucketThatHoldsIt) {
    for (size_t min : {size_t{1}, size_t{8}, size_t{64}, size_t{4096}}) {
        ASSERT_EQ(umfDisjointPoolParamsSetMinBucketSize(params, min), OK);
        create();
        std::vector<size_t> list = buckets();
        std::vector<size_t> sizes;
        for (size_t size = 1; size <= 5000; size++) {
            sizes.push_back(size);
        }
        for (size_t b : list) {
            if (b <= (2u << 20)) {
                sizes.insert(sizes.end(), {b - 1, b, b + 1});
            }
        }
        for (size_t size : sizes) {
            if (size == 0 || size > (2u << 20)) {
                continue;
            }
            void *p = umfPoolMalloc(pool, size);
            size_t usable = 0;
            ASSERT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
            EXPECT_EQ(usable, *std::lower_bound(list.begin(), list.end(), size)) << size;
            ASSERT_EQ(umfPoolFree(pool, p), OK);
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr;
        provider = nullptr;
    }
}

// --- slabs ---

TEST_F(Disjoint, SizesOfProviderRequests) {
    create();
    struct {
        size_t size, request;
    } const cases[] = {{1, 65536},         {64, 65536},        {65535, 65536},
                       {65536, 65536},     {65537, 98304},     {98305, 131072},
                       {2097152, 2097152}, {2097153, 2097153}, {3000001, 3000001}};
    for (const auto &c : cases) {
        void *p = umfPoolMalloc(pool, c.size);
        EXPECT_EQ(fake.last_size, c.request) << c.size;
        EXPECT_EQ(fake.last_alignment, 0u);
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(fake.live(), 0u);
    }
}

TEST_F(Disjoint, ASlabHoldsAsManyChunksAsFit) {
    ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, 1), OK);
    create();
    for (size_t size : {size_t{64}, size_t{96}, size_t{1024}, size_t{24576}, size_t{32768}}) {
        size_t chunks = 65536 / size, before = fake.allocs;
        auto list = alloc(chunks, size);
        EXPECT_EQ(fake.allocs - before, 1u) << size;
        auto one_more = alloc(1, size);
        EXPECT_EQ(fake.allocs - before, 2u) << size;
        free(one_more);
        free(list);
    }
}

TEST_F(Disjoint, SizeZeroIsNull) {
    create();
    EXPECT_EQ(umfPoolMalloc(pool, 0), nullptr);
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 0, 64), nullptr);
    EXPECT_EQ(fake.allocs, 0u);
}

TEST_F(Disjoint, PoolableSizesAboveTheLargestBucketAreDirect) {
    ASSERT_EQ(umfDisjointPoolParamsSetMaxPoolableSize(params, SIZE_MAX), OK);
    create();
    size_t size = (size_t{1} << 31) + 1;
    void *p = umfPoolMalloc(pool, size);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(fake.last_size, size);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(fake.live(), 0u);
    p = umfPoolMalloc(pool, size - 1);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(fake.last_size, size - 1);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_F(Disjoint, NothingIsPoolable) {
    ASSERT_EQ(umfDisjointPoolParamsSetMaxPoolableSize(params, 0), OK);
    create();
    for (size_t size : {size_t{1}, size_t{100}, size_t{1} << 20}) {
        void *p = umfPoolMalloc(pool, size);
        EXPECT_EQ(fake.last_size, size);
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        EXPECT_EQ(fake.live(), 0u);
    }
}

TEST_F(Disjoint, SmallAndHugeSlabs) {
    for (size_t slab : {size_t{0}, size_t{1}, size_t{100}, size_t{1} << 26}) {
        ASSERT_EQ(umfDisjointPoolParamsSetSlabMinSize(params, slab), OK);
        create();
        for (size_t size : {8, 100, 70000}) {
            free(alloc(20, size));
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr;
        provider = nullptr;
    }
}

// A slab with more chunks than 32 bits count: refused or served, but nothing is lost.
TEST_F(Disjoint, AbsurdSlabs) {
    if (UMF_TEST_ASAN) {
        GTEST_SKIP() << "the shadow of 32 GiB takes long";
    }
    ASSERT_EQ(umfDisjointPoolParamsSetSlabMinSize(params, size_t{1} << 35), OK);
    create();
    for (int i = 0; i < 3; i++) {
        void *p = umfPoolMalloc(pool, 8);
        if (p) {
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        } else {
            EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        }
        EXPECT_LE(fake.live(), 1u);
    }
}

// --- cached memory ---

TEST_F(Disjoint, CapacityOfWholeSlabChunks) {
    for (size_t capacity : {size_t{0}, size_t{1}, size_t{4}, size_t{100}}) {
        ASSERT_EQ(umfDisjointPoolParamsSetCapacity(params, capacity), OK);
        create();
        auto list = alloc(5, 65536);
        size_t before = fake.frees;
        free(list);
        size_t kept = std::min(capacity, size_t{5});
        EXPECT_EQ(fake.frees - before, 5 - kept) << capacity;
        EXPECT_EQ(fake.live(), kept);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr;
        provider = nullptr;
    }
}

TEST_F(Disjoint, ChunkedBucketsKeepOneSlab) {
    ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, 1), OK); // no thread caches in between
    ASSERT_EQ(umfDisjointPoolParamsSetCapacity(params, 100), OK);
    create();
    for (size_t size : {size_t{64}, size_t{1024}, size_t{32768}}) {
        auto list = alloc(5 * (65536 / size), size);
        EXPECT_EQ(fake.live(), 5u) << size;
        free(list);
        EXPECT_EQ(fake.live(), 1u) << size;
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    }
    auto list = alloc(5, 49152); // above half a slab: unchunked
    free(list);
    EXPECT_EQ(fake.live(), 5u);
}

TEST_F(Disjoint, SharedLimits) {
    umf_disjoint_pool_shared_limits_handle_t limits = nullptr;
    ASSERT_EQ(umfDisjointPoolSharedLimitsCreate(3 * 65536, &limits), OK);
    ASSERT_EQ(umfDisjointPoolParamsSetSharedLimits(params, limits), OK);
    create();
    umf_memory_pool_handle_t first = pool, second = nullptr;
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, params, 0, &second), OK);
    auto list = alloc(4, 65536);
    pool = second;
    auto more = alloc(4, 65536);
    free(more);
    EXPECT_EQ(fake.live(), 4u + 3u) << "the second pool keeps all the limit allows";
    pool = first;
    free(list);
    EXPECT_EQ(fake.live(), 3u) << "nothing is left for the first";
    pool = second;
    more = alloc(3, 65536);
    EXPECT_EQ(fake.live(), 3u);
    pool = first;
    free(alloc(2, 65536));
    EXPECT_EQ(fake.live(), 5u) << "slabs in use do not count";
    pool = second;
    free(more);
    EXPECT_EQ(fake.live(), 3u);
    EXPECT_EQ(umfPoolDestroy(second), OK);
    pool = first;
    free(alloc(4, 65536));
    EXPECT_EQ(fake.live(), 3u) << "a destroyed pool gave its share back";
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
    EXPECT_EQ(umfDisjointPoolSharedLimitsDestroy(limits), OK);
}

// A provider that refuses frees must not confuse the account of the shared limit.
TEST_F(Disjoint, SharedLimitsAfterFailedFrees) {
    umf_disjoint_pool_shared_limits_handle_t limits = nullptr;
    ASSERT_EQ(umfDisjointPoolSharedLimitsCreate(2 * 65536, &limits), OK);
    ASSERT_EQ(umfDisjointPoolParamsSetSharedLimits(params, limits), OK);
    create();
    auto list = alloc(6, 65536);
    fake.free_fails = true;
    free(list);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    fake.free_fails = false;
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
    free(alloc(6, 65536));
    EXPECT_EQ(fake.live(), 2u) << "as if nothing had happened";
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    free(alloc(1, 65536));
    EXPECT_EQ(fake.live(), 1u);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
    EXPECT_EQ(umfDisjointPoolSharedLimitsDestroy(limits), OK);
}

TEST_F(Disjoint, TrimKeepsWhatIsAskedFor) {
    create();
    auto fill = [&] { free(alloc(4, 65536)); };
    struct {
        size_t keep, left;
    } const cases[] = {{0, 0},         {1, 1},         {65536, 1},     {65537, 2},
                       {2 * 65536, 2}, {3 * 65536, 3}, {4 * 65536, 4}, {SIZE_MAX, 4}};
    for (const auto &c : cases) {
        fill();
        EXPECT_EQ(fake.live(), 4u);
        EXPECT_EQ(umfPoolTrimMemory(pool, c.keep), OK);
        EXPECT_EQ(fake.live(), c.left) << c.keep;
        EXPECT_EQ(read("stats.reserved_memory"), c.left * 65536);
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    }
}

TEST_F(Disjoint, TrimWalksFromSmallToLarge) {
    create();
    auto small = alloc(2, 65536), large = alloc(2, 131072);
    free(small);
    free(large);
    EXPECT_EQ(umfPoolTrimMemory(pool, 2 * 65536), OK);
    EXPECT_EQ(fake.live_bytes(), 2u * 65536) << "the small ones are kept";
    auto list = alloc(3, 131072);
    free({list[0], list[1]});
    EXPECT_EQ(umfPoolTrimMemory(pool, 3 * 65536), OK);
    EXPECT_EQ(fake.live_bytes(), 2u * 65536 + 2u * 131072) << "one is in use, one fully counted";
    free({list[2]});
}

TEST_F(Disjoint, TrimLeavesWhatIsInUse) {
    create();
    auto list = alloc(1000, 100);
    memset(list[500], 0x77, 100);
    for (size_t i = 0; i < list.size(); i++) {
        if (i != 500) {
            EXPECT_EQ(umfPoolFree(pool, list[i]), OK);
        }
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(read("stats.reserved_memory"), 65536u);
    EXPECT_GT(fake.purges, 0u) << "free pages of a slab in use are dropped";
    auto bytes = static_cast<char *>(list[500]);
    EXPECT_TRUE(std::all_of(bytes, bytes + 100, [](char c) { return c == 0x77; }));
    free(alloc(1000, 100));
    free({list[500]});
}

// --- statistics ---

TEST_F(Disjoint, UsedAndReservedMemory) {
    create();
    EXPECT_EQ(read("stats.used_memory"), 0u);
    EXPECT_EQ(read("stats.reserved_memory"), 0u);
    auto list = alloc(10, 100); // of 128
    EXPECT_EQ(read("stats.used_memory"), 1280u);
    EXPECT_EQ(read("stats.reserved_memory"), 65536u);
    auto direct = alloc(2, 3u << 20);
    EXPECT_EQ(read("stats.used_memory"), 1280u) << "direct allocations are in none of them";
    EXPECT_EQ(read("stats.reserved_memory"), 65536u);
    auto large = alloc(3, 65537); // of 98304
    EXPECT_EQ(read("stats.used_memory"), 1280u + 3 * 98304);
    EXPECT_EQ(read("stats.reserved_memory"), 65536u + 3 * 98304);
    free(direct);
    free(list);
    free(large);
    EXPECT_EQ(read("stats.used_memory"), 0u);
    EXPECT_EQ(read("stats.reserved_memory"), 65536u + 3 * 98304);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(read("stats.reserved_memory"), 0u);
}

const char *const slab_counters[] = {"curr_slabs_in_use", "curr_slabs_in_pool", "max_slabs_in_use",
                                     "max_slabs_in_pool"};
const char *const chunk_counters[] = {"alloc_num", "alloc_pool_num", "free_num"};

TEST_F(Disjoint, CountersAreOffWithoutTrace) {
    create();
    size_t value = 0;
    for (const char *name : slab_counters) {
        EXPECT_EQ(try_read((std::string("stats.") + name).c_str(), &value), NONE);
        EXPECT_EQ(try_read((std::string("buckets.1.stats.") + name).c_str(), &value), NONE);
    }
    for (const char *name : chunk_counters) {
        EXPECT_EQ(try_read((std::string("stats.") + name).c_str(), &value), NONE);
        EXPECT_EQ(try_read((std::string("buckets.1.stats.") + name).c_str(), &value), NONE);
    }
    for (const char *path :
         {"stats.used_memory", "stats.reserved_memory", "buckets.count", "buckets.0.size"}) {
        EXPECT_EQ(try_read(path, &value), OK) << path << " always works";
    }
}

TEST_F(Disjoint, TraceOneCountsSlabsOnly) {
    ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, 1), OK);
    create();
    auto list = alloc(3, 65536);
    free({list[0]});
    EXPECT_EQ(read("stats.curr_slabs_in_use"), 2u);
    EXPECT_EQ(read("stats.curr_slabs_in_pool"), 1u);
    EXPECT_EQ(read("stats.max_slabs_in_use"), 3u);
    EXPECT_EQ(read("stats.max_slabs_in_pool"), 1u);
    EXPECT_EQ(read("stats.alloc_num"), 0u);
    EXPECT_EQ(read("stats.free_num"), 0u);
    free({list[1], list[2]});
    EXPECT_EQ(read("stats.curr_slabs_in_use"), 0u);
    EXPECT_EQ(read("stats.curr_slabs_in_pool"), 3u);
}

TEST_F(Disjoint, TraceTwoCountsAll) {
    for (int trace : {2, 3}) {
        ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, trace), OK);
        create();
        auto list = alloc(10, 128);
        EXPECT_EQ(read("stats.curr_slabs_in_use"), 1u);
        free(list);
        EXPECT_EQ(read("stats.alloc_num"), 10u);
        EXPECT_EQ(read("stats.alloc_pool_num"), 9u) << "the first needed a new slab";
        EXPECT_EQ(read("stats.free_num"), 10u);
        EXPECT_EQ(read("stats.curr_slabs_in_use"), 0u);
        EXPECT_EQ(read("stats.curr_slabs_in_pool"), 1u);
        EXPECT_EQ(read("stats.max_slabs_in_use"), 1u);
        free(alloc(2, 5u << 20));
        EXPECT_EQ(read("stats.alloc_num"), 10u) << "direct allocations are in none of them";
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(read("stats.curr_slabs_in_pool"), 0u);
        EXPECT_EQ(read("stats.max_slabs_in_pool"), 1u);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr;
        provider = nullptr;
    }
}

TEST_F(Disjoint, CountersOfOneBucket) {
    ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, 2), OK);
    create();
    std::vector<size_t> list = buckets();
    size_t id =
        static_cast<size_t>(std::find(list.begin(), list.end(), size_t{128}) - list.begin());
    auto live = alloc(10, 128), other = alloc(4, 512);
    size_t value = 0;
    EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.buckets.{}.stats.{}", &value, sizeof(value), pool,
                        id, "alloc_num"),
              OK);
    EXPECT_EQ(value, 10u);
    EXPECT_EQ(read(("buckets." + std::to_string(id) + ".stats.alloc_pool_num").c_str()), 9u);
    EXPECT_EQ(read(("buckets." + std::to_string(id) + ".stats.free_num").c_str()), 0u);
    EXPECT_EQ(read(("buckets." + std::to_string(id) + ".stats.curr_slabs_in_use").c_str()), 1u);
    EXPECT_EQ(read("stats.alloc_num"), 14u);
    EXPECT_EQ(read(("buckets." + std::to_string(id + 1) + ".stats.alloc_num").c_str()), 0u);
    free(live);
    free(other);
}

TEST_F(Disjoint, CountersOfAllBucketsAddUp) {
    ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, 2), OK);
    create();
    std::vector<void *> live;
    for (size_t size : {8, 100, 1000, 40000, 65536, 100000, 1 << 20}) {
        for (void *p : alloc(5, size)) {
            live.push_back(p);
        }
    }
    free({live[0], live[6], live[20], live[21], live[34]});
    for (const char *name :
         {"alloc_num", "alloc_pool_num", "free_num", "curr_slabs_in_use", "curr_slabs_in_pool"}) {
        size_t sum = 0;
        for (size_t id = 0; id < read("buckets.count"); id++) {
            size_t value = SIZE_MAX;
            EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.buckets.{}.stats.{}", &value, sizeof(value),
                                pool, id, name),
                      OK);
            sum += value;
        }
        EXPECT_EQ(sum, read((std::string("stats.") + name).c_str())) << name;
    }
    for (const char *name : {"max_slabs_in_use", "max_slabs_in_pool"}) {
        for (size_t id = 0; id < read("buckets.count"); id++) {
            size_t value = SIZE_MAX;
            EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.buckets.{}.stats.{}", &value, sizeof(value),
                                pool, id, name),
                      OK);
            EXPECT_LE(value, read((std::string("stats.") + name).c_str())) << name;
        }
    }
    EXPECT_EQ(read("stats.alloc_num"), 35u);
    EXPECT_EQ(read("stats.free_num"), 5u);
    live.erase(live.begin() + 34);
    live.erase(live.begin() + 20, live.begin() + 22);
    live.erase(live.begin() + 6);
    live.erase(live.begin());
    free(live);
}

// Trace 2 logs a summary at the end, trace 3 also a line for each operation, both for debugging.
TEST_F(Disjoint, TraceIsLogged) {
    for (int trace : {0, 1, 2, 3}) {
        ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, trace), OK);
        create();
        LogFile log;
        auto list = alloc(3, 100), direct = alloc(1, 3u << 20);
        void *aligned = umfPoolAlignedMalloc(pool, 100, 64);
        free(list);
        free(direct);
        free({aligned});
        EXPECT_EQ(log.count("[DEBUG UMF]"), trace == 3 ? 10u : 0u) << log.text();
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(log.count("4 allocations, 3 of them from the pool, 4 frees"),
                  trace >= 2 ? 1u : 0u)
            << log.text();
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr;
        provider = nullptr;
    }
}

TEST_F(Disjoint, ControlRefusesWhatIsNotThere) {
    create();
    size_t value = 0, count = read("buckets.count");
    EXPECT_EQ(
        umfCtlGet("umf.pool.by_handle.{}.buckets.{}.size", &value, sizeof(value), pool, count),
        BAD);
    EXPECT_EQ(
        umfCtlGet("umf.pool.by_handle.{}.buckets.{}.size", &value, sizeof(value), pool, SIZE_MAX),
        BAD);
    EXPECT_EQ(try_read("buckets.1.count", &value), BAD);
    EXPECT_EQ(try_read("buckets.size", &value), BAD);
    EXPECT_EQ(try_read("stats.buckets.count", &value), NO_PATH);
    EXPECT_EQ(try_read("stats.nothing", &value), NO_PATH);
    EXPECT_EQ(try_read("params.nothing", &value), NO_PATH);
    EXPECT_EQ(try_read("buckets.1.stats.nothing", &value), NO_PATH);
    // A buffer of another size than the setting is refused.
    EXPECT_EQ(try_read("stats.used_memory", &value, 4), BAD);
    EXPECT_EQ(try_read("params.capacity", &value, 4), BAD);
    EXPECT_EQ(try_read("buckets.count", &value, 1), BAD);
    EXPECT_EQ(try_read("params.pool_trace", &value, 8), BAD);
}

// --- alignment ---

// Chunks of an aligned size are aligned, for every bucket.
TEST_F(Disjoint, AlignedWithinAPage) {
    create();
    std::vector<size_t> list = buckets();
    for (size_t alignment = 1; alignment <= fake.page_size; alignment *= 2) {
        for (size_t size : {size_t{1}, size_t{8}, size_t{70}, size_t{1000}, size_t{5000}}) {
            void *p = umfPoolAlignedMalloc(pool, size, alignment);
            ASSERT_NE(p, nullptr);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u);
            size_t rounded = (size + alignment - 1) / alignment * alignment, usable = 0;
            EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
            EXPECT_EQ(usable, *std::lower_bound(list.begin(), list.end(), rounded))
                << size << " at " << alignment;
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
    }
}

// Blocks that several threads have parked serve another size before the provider is called.
TEST_F(Disjoint, EachParkedChunkIsFound) {
    create();
    OtherThread first, second, third;
    const size_t size = 256 << 10; // a slab is one chunk
    auto list = alloc(3, size);
    first([&] { free({list[0]}); });
    second([&] { free({list[1]}); });
    third([&] { free({list[2]}); });
    const size_t allocs = fake.allocs;
    auto again = alloc(3, size);
    EXPECT_EQ(fake.allocs, allocs);
    std::sort(list.begin(), list.end());
    std::sort(again.begin(), again.end());
    EXPECT_EQ(again, list);
    free(again);
}

// Where slabs are not aligned, a chunk may have to go back for one with room in front.
TEST_F(Disjoint, AlignedWhereSlabsAreNot) {
    fake.stingy = 8;
    create();
    for (size_t alignment = 16; alignment <= fake.page_size; alignment *= 2) {
        std::vector<void *> live;
        for (int i = 0; i < 100; i++) {
            live.push_back(umfPoolAlignedMalloc(pool, 100, alignment));
            ASSERT_NE(live.back(), nullptr);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(live.back()) % alignment, 0u);
        }
        EXPECT_EQ(read("stats.alloc_count"), live.size());
        free(live);
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(fake.live(), 0u) << "a chunk was lost";
    }
}

TEST_F(Disjoint, AlignedAboveAPage) {
    create();
    std::vector<size_t> list = buckets();
    std::vector<void *> live;
    for (size_t alignment : {size_t{8192}, size_t{65536}, size_t{1} << 20}) {
        for (size_t size : {size_t{1}, size_t{5000}, size_t{100000}}) {
            void *p = umfPoolAlignedMalloc(pool, size, alignment);
            ASSERT_NE(p, nullptr);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u);
            size_t usable = 0;
            EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
            size_t chunk = *std::lower_bound(list.begin(), list.end(), size + alignment - 1);
            EXPECT_GE(usable, size);
            EXPECT_EQ(usable, chunk - offset_in_chunk(p, chunk)) << "the chunk less the offset";
            EXPECT_EQ(umfPoolFree(pool, static_cast<char *>(p) + 1), BAD);
            EXPECT_EQ(umfPoolFree(pool, static_cast<char *>(p) - 8), BAD);
            memset(p, 1, usable);
            live.push_back(p);
        }
    }
    free(live);
}

TEST_F(Disjoint, AlignedAboveThePoolableSize) {
    create();
    void *p = umfPoolAlignedMalloc(pool, 2u << 20, 8192);
    EXPECT_EQ(fake.last_size, 2u << 20) << "exactly the requested size";
    EXPECT_EQ(fake.last_alignment, 8192u);
    void *q = umfPoolAlignedMalloc(pool, (2u << 20) - 4000, 8192);
    EXPECT_EQ(fake.last_size, (2u << 20) - 4000) << "size + alignment - 1 is above the limit";
    void *r = umfPoolAlignedMalloc(pool, (2u << 20) + 1, 64);
    EXPECT_EQ(fake.last_size, (2u << 20) + 1);
    EXPECT_EQ(fake.last_alignment, 64u);
    size_t usable = 0;
    EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
    EXPECT_EQ(usable, 2u << 20);
    free({p, q, r});
    EXPECT_EQ(fake.live(), 0u);
}

// The core answers for starts of chunks; the pool answers for other addresses.
TEST_F(Disjoint, UsableSizeIsOfLiveAllocationsOfThisPool) {
    for (size_t stingy : {0, 8}) { // slabs that are aligned to their size, and others
        fake.stingy = stingy;
        create();
        char *p = static_cast<char *>(alloc(1, 100).front());
        umf_memory_pool_handle_t other = nullptr;
        ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &other), OK);
        size_t usable = 77;
        for (const char *wrong : {p + 1, p + 8, p + 64, reinterpret_cast<char *>(&usable)}) {
            EXPECT_EQ(umfPoolMallocUsableSize(pool, wrong, &usable), BAD);
        }
        EXPECT_EQ(umfPoolMallocUsableSize(other, p, &usable), BAD);
        EXPECT_EQ(umfPoolMallocUsableSize(pool, p, nullptr), BAD);
        EXPECT_EQ(usable, 77u) << "not written";
        std::thread([&] { // which has no magazines
            EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
        })
            .join();
        EXPECT_EQ(usable, 128u);
        EXPECT_EQ(umfPoolMallocUsableSize(pool, nullptr, &usable), OK);
        EXPECT_EQ(usable, 0u);
        free({p});
        EXPECT_EQ(umfPoolDestroy(other), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr;
        provider = nullptr;
    }
}

// Slabs that do not begin at a page.
TEST_F(Disjoint, AlignmentOnAProviderThatGivesOddAddresses) {
    fake.stingy = 8;
    create();
    std::vector<void *> live;
    for (size_t alignment = 8; alignment <= 16384; alignment *= 2) {
        for (size_t size : {size_t{1}, size_t{100}, size_t{3000}, size_t{40000}}) {
            void *p = umfPoolAlignedMalloc(pool, size, alignment);
            ASSERT_NE(p, nullptr);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u);
            memset(p, 1, size);
            live.push_back(p);
        }
    }
    free(live);
}

// A chunk that ends where its slab ends belongs to that slab.
TEST_F(Disjoint, LastChunkOfASlab) {
    ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, 2), OK);
    create();
    auto list = alloc(3 * 16, 4096);
    std::sort(list.begin(), list.end());
    for (void *p : list) {
        umf_memory_pool_handle_t found = nullptr;
        EXPECT_EQ(umfPoolByPtr(static_cast<char *>(p) + 4095, &found), OK);
    }
    free(list);
    EXPECT_EQ(read("stats.free_num"), 48u);
    EXPECT_EQ(read("stats.curr_slabs_in_use"), 0u);
}

// --- misuse ---

// With counting or checking on, every free is checked at once.
TEST_F(Disjoint, ExactModesCatchEveryDoubleFree) {
    bool yes = true;
    ASSERT_EQ(umfDisjointPoolParamsSetName(params, "checked"), OK);
    ASSERT_EQ(umfCtlSet("umf.pool.default.checked.params.check", &yes, sizeof(yes)), OK);
    for (int trace : {0, 1, 2, 3}) {
        ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, trace), OK);
        create();
        for (size_t size : {8, 100, 5000, 40000, 100000, 3 << 20}) {
            auto list = alloc(5, size);
            free({list[2]});
            EXPECT_EQ(umfPoolFree(pool, list[2]), BAD) << size;
            EXPECT_EQ(umfFree(list[2]), BAD) << size;
            size_t usable = 0;
            EXPECT_EQ(umfPoolMallocUsableSize(pool, list[2], &usable), BAD) << size;
            EXPECT_EQ(umfPoolFree(pool, static_cast<char *>(list[3]) + 1), BAD) << size;
            free({list[0], list[1], list[3], list[4]});
            EXPECT_EQ(umfPoolFree(pool, list[4]), BAD) << size;
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr;
        provider = nullptr;
    }
}

// Objects that lie in a thread's stack are not freed again.
TEST_F(Disjoint, CachedDoubleFreesAreRefused) {
    create();
    auto list = alloc(30, 64);
    free(list);
    for (void *p : list) {
        EXPECT_EQ(umfPoolFree(pool, p), BAD);
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    auto again = alloc(60, 64);
    std::sort(again.begin(), again.end());
    EXPECT_EQ(std::unique(again.begin(), again.end()), again.end())
        << "one address was handed out twice";
    for (void *p : again) {
        umfPoolFree(pool, p);
    }
}

// The pool reports to AddressSanitizer which memory is allocated and which is free.
#if UMF_TEST_ASAN
TEST_F(Disjoint, AddressSanitizerIsTold) {
    create();
    auto p = static_cast<char *>(umfPoolMalloc(pool, 100));
    EXPECT_FALSE(__asan_address_is_poisoned(p + 99));
    EXPECT_TRUE(__asan_address_is_poisoned(p + 104)) << "after the requested size";
    size_t usable = 0;
    EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
    EXPECT_FALSE(__asan_address_is_poisoned(p + usable - 1))
        << "after the query all bytes are usable";
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_TRUE(__asan_address_is_poisoned(p));
}
#endif

// --- decay ---

void fill(void *chunk, size_t value, size_t size) {
    memset(chunk, static_cast<int>(value & 0xff), size);
}

bool is_filled(const void *chunk, size_t value, size_t size) {
    auto p = static_cast<const unsigned char *>(chunk);
    return std::all_of(p, p + size, [=](unsigned char c) { return c == (value & 0xff); });
}

// Without magazines every free is a look, but the first.
TEST_F(Disjoint, WhatStaysFreeDecays) {
    DecayPeriod none(DecayPeriod::NONE);
    ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, 1), OK);
    create();
    auto list = alloc(32, 4096);
    std::sort(list.begin(), list.end());
    for (size_t i = 0; i < list.size(); i++) {
        fill(list[i], i + 1, 4096);
    }
    free({list[1], list[2]});
    EXPECT_EQ(fake.purges, 0u);
    free({list[20]});
    EXPECT_EQ(fake.purges, 1u) << "two pages in a row";
    EXPECT_EQ(fake.purged_bytes, 2u * 4096);
    free({list[30]});
    EXPECT_EQ(fake.purges, 3u);
    EXPECT_EQ(fake.purged_bytes, 4u * 4096);
    for (size_t i = 0; i < list.size(); i++) {
        EXPECT_TRUE(i == 1 || i == 2 || i == 20 || i == 30 || is_filled(list[i], i + 1, 4096)) << i;
    }
    EXPECT_EQ(read("stats.alloc_count"), 28u);
}

TEST_F(Disjoint, MemoryFollowsWhatIsLive) {
    DecayPeriod none(DecayPeriod::NONE);
    create();
    auto list = alloc(2000, 4096);
    for (size_t i = 0; i < list.size(); i++) {
        fill(list[i], i, 4096);
    }
    for (size_t i = 0; i < list.size(); i++) {
        if (i % 10) {
            free({list[i]});
        }
    }
    for (int i = 0; i < 4; i++) {
        free(alloc(4096, 64)); // more than the caches of a thread hold
    }
    EXPECT_GE(fake.purged_bytes, (1800u - 16) * 4096) << "all but a stack";
    for (size_t i = 0; i < list.size(); i += 10) {
        ASSERT_TRUE(is_filled(list[i], i, 4096)) << i;
    }
    EXPECT_EQ(read("stats.alloc_count"), 200u);
}

// What other threads have parked is kept, without its content.
TEST_F(Disjoint, ParkedSlabsDecay) {
    DecayPeriod none(DecayPeriod::NONE);
    create();
    OtherThread other;
    auto list = alloc(1, 1 << 20);
    other([&] { free(list); });
    for (int i = 0; i < 4; i++) {
        free(alloc(1, 3 << 20));
    }
    EXPECT_EQ(fake.purges, 1u);
    EXPECT_EQ(fake.purged_bytes, 1u << 20);
    EXPECT_EQ(alloc(1, 1 << 20), list);
    free(list);
}

TEST_F(Disjoint, AProviderThatCannotPurgeIsAskedOnce) {
    DecayPeriod none(DecayPeriod::NONE);
    fake.can_purge = false;
    create();
    auto list = alloc(2000, 4096);
    for (size_t i = 0; i < list.size(); i += 2) {
        free({list[i]});
    }
    for (int i = 0; i < 4; i++) {
        free(alloc(4096, 64));
    }
    EXPECT_EQ(fake.purges, 1u);
}

// --- parked slabs ---

// A block that one thread frees serves another before the provider is called.
TEST_F(Disjoint, ParkedSlabsServeEveryThread) {
    for (size_t size : {size_t{49152}, size_t{65536}, size_t{1} << 20, size_t{2} << 20}) {
        create();
        OtherThread other;
        auto list = alloc(4, size);
        other([&] { free(list); });
        EXPECT_EQ(fake.live(), 4u);
        EXPECT_EQ(read("stats.used_memory"), 0u);
        size_t before = fake.allocs;
        auto again = alloc(4, size);
        EXPECT_EQ(fake.allocs, before) << size;
        std::sort(list.begin(), list.end());
        std::sort(again.begin(), again.end());
        EXPECT_EQ(list, again);
        EXPECT_EQ(read("stats.used_memory"), 4 * size);
        free(again);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr;
        provider = nullptr;
    }
}

// Threads that take one slab from each other again and again get one each.
TEST_F(Disjoint, ParkedSlabsAreNotTakenForEver) {
    create();
    OtherThread other;
    auto pair = [&] { free(alloc(1, size_t{1} << 20)); };
    pair();
    other(pair);
    EXPECT_EQ(fake.live(), 1u);
    for (int i = 0; i < 200; i++) {
        pair();
        other(pair);
    }
    EXPECT_EQ(fake.live(), 2u);
    size_t allocs = fake.allocs;
    for (int i = 0; i < 200; i++) {
        pair();
        other(pair);
    }
    EXPECT_EQ(fake.allocs, allocs) << "each has its own";
}

TEST_F(Disjoint, ParkedSlabsOfAnEndedThread) {
    create();
    auto list = alloc(6, 65536);
    std::thread([&] { free(list); }).join();
    EXPECT_EQ(fake.live(), 4u) << "as if there had been one thread";
    free(alloc(1, 65536));
    EXPECT_EQ(fake.live(), 4u);
    auto more = alloc(5, 65536);
    free({more[0]});
    std::thread([&] { free({more[1], more[2], more[3], more[4]}); }).join();
    EXPECT_EQ(fake.live(), 4u);
}

// Threads that are alive may each keep one slab too many; asking for the amount, or a trim, ends
// that.
TEST_F(Disjoint, ParkedSlabsBeyondTheCapacity) {
    create();
    OtherThread first, second;
    auto list = alloc(12, 65536);
    auto free_four = [&](size_t from) {
        for (size_t i = from; i < from + 4; i++) {
            EXPECT_EQ(umfPoolFree(pool, list[i]), OK);
        }
    };
    first([&] { free_four(0); });
    second([&] { free_four(4); });
    free_four(8);
    EXPECT_GE(fake.live(), 4u);
    EXPECT_LE(fake.live(), 4u + 2u);
    EXPECT_EQ(read("stats.reserved_memory"), 4u * 65536);
    EXPECT_EQ(fake.live(), 4u);
    list = alloc(2, 65536);
    first([&] { free({list[0]}); });
    second([&] { free({list[1]}); });
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
    EXPECT_EQ(read("stats.reserved_memory"), 0u);
}

// Memory kept beyond the capacity must serve other sizes.
TEST_F(Disjoint, ParkedSlabsGoBeforeAnAllocationFails) {
    ASSERT_EQ(umfDisjointPoolParamsSetCapacity(params, 1), OK);
    create();
    OtherThread first, second;
    auto list = alloc(2, 65536);
    first([&] { free({list[0]}); });
    second([&] { free({list[1]}); });
    size_t before = fake.frees;
    fake.alloc_fails = true;
    EXPECT_EQ(umfPoolMalloc(pool, 1 << 20), nullptr);
    fake.alloc_fails = false;
    EXPECT_EQ(fake.frees, before + 2) << "also the one that the capacity allows";
    EXPECT_EQ(fake.live(), 0u);
}

TEST_F(Disjoint, ParkedSlabsAreFree) {
    create();
    OtherThread other;
    auto list = alloc(2, 65536);
    size_t size = 1;
    free({list[0]});
    other([&] { free({list[1]}); });
    for (void *p : list) {
        EXPECT_EQ(umfPoolFree(pool, p), BAD);
        other([&] { EXPECT_EQ(umfFree(p), BAD); });
        EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &size), BAD);
    }
    EXPECT_EQ(umfPoolFree(pool, static_cast<char *>(alloc(1, 65536)[0]) + 64), BAD);
    auto odd = static_cast<char *>(umfPoolAlignedMalloc(pool, 65536, 1 << 17));
    ASSERT_NE(odd, nullptr);
    EXPECT_EQ(umfPoolFree(pool, odd + 64), BAD);
    EXPECT_EQ(umfPoolFree(pool, odd), OK);
    EXPECT_EQ(umfPoolFree(pool, odd), BAD);
}

TEST_F(Disjoint, ParkingThreadsLeaveNothingBehind) {
    create();
    free(exchange_blocks(pool, [](unsigned random) { return 40000 + random % 400000; }));
    EXPECT_EQ(read("stats.used_memory"), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

// --- errors ---

TEST_F(Disjoint, LastErrors) {
    create();
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    fake.alloc_fails = true;
    EXPECT_EQ(umfPoolMalloc(pool, 100), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfPoolMalloc(pool, 3u << 20), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 3u << 20, 64), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfPoolCalloc(pool, 1, 1), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), NONE);
}

TEST_F(Disjoint, ReturnedDirectFreesStayValid) {
    create();
    void *p = umfPoolMalloc(pool, 3u << 20);
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    fake.free_fails = true;
    EXPECT_EQ(umfPoolFree(pool, p), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfPoolFree(pool, p), UMF_RESULT_ERROR_USER_SPECIFIC);
    fake.free_fails = false;
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(umfPoolFree(pool, p), BAD);
    // Of slabs it is only logged.
    ASSERT_EQ(umfPoolTrimMemory(pool, 0), OK);
    auto list = alloc(6, 65536);
    fake.free_fails = true;
    free(list);
    fake.free_fails = false;
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

// --- threads ---

TEST_F(Disjoint, ThreadsLeaveNothingBehind) {
    create();
    run_threads(8, [&](int t) {
        std::mt19937 random(static_cast<unsigned>(t));
        std::vector<void *> live;
        for (size_t i = 0; i < scaled(3000); i++) {
            live.push_back(umfPoolMalloc(pool, 1 + random() % 3000));
            if (live.size() > 100) {
                umfPoolFree(pool, live[i % 100]);
                live[i % 100] = live.back();
                live.pop_back();
            }
        }
        for (void *p : live) {
            umfPoolFree(pool, p);
        }
    });
    EXPECT_EQ(read("stats.used_memory"), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u) << "ended threads gave back what they had cached";
}

TEST_F(Disjoint, CountersAreExactUnderThreads) {
    ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, 2), OK);
    create();
    const size_t rounds = scaled(2000);
    run_threads(4, [&](int) {
        for (size_t i = 0; i < rounds; i++) {
            umfPoolFree(pool, umfPoolMalloc(pool, 1 + i % 5000));
        }
    });
    EXPECT_EQ(read("stats.alloc_num"), 4 * rounds);
    EXPECT_EQ(read("stats.free_num"), 4 * rounds);
    EXPECT_EQ(read("stats.curr_slabs_in_use"), 0u);
}

// Without tracking everything works as well, on a map of the pool's own.
TEST_F(Disjoint, Untracked) {
    create(UMF_POOL_CREATE_FLAG_DISABLE_TRACKING);
    std::vector<void *> list;
    for (size_t size : {8, 100, 70000, 3 << 20}) {
        list.push_back(umfPoolMalloc(pool, size));
        size_t usable = 0;
        EXPECT_EQ(umfPoolMallocUsableSize(pool, list.back(), &usable), OK);
        EXPECT_GE(usable, size);
    }
    EXPECT_EQ(umfFree(list[0]), BAD);
    free(list);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

} // namespace
