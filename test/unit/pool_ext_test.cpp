/* The calls that use the cache of the calling thread alone: umf/memory_pool_ext.h. */
#include <atomic>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/memory_pool_ext.h>

#include "fakes/fake_provider.h"
#include "fakes/kinds.h"

extern "C" {
#include "system/annotate.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

// The address sanitizer's builds keep nothing.
TEST(AtHand, OnlyWhatTheThreadHas) {
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    for (const PoolKind &kind : pool_kinds()) {
        umf_memory_pool_handle_t pool = nullptr, other = nullptr;
        ASSERT_EQ(umfPoolCreate(kind.ops(), provider, nullptr, 0, &pool), OK);
        ASSERT_EQ(umfPoolCreate(kind.ops(), provider, nullptr, 0, &other), OK);
        EXPECT_EQ(umfPoolTryMalloc(pool, 64), nullptr) << kind;
        EXPECT_EQ(fake.live(), 0u) << kind << ": the provider was called";
        char *p = static_cast<char *>(umfPoolMalloc(pool, 64));
        ASSERT_NE(p, nullptr) << kind;
        EXPECT_FALSE(umfPoolTryFree(other, p)) << kind;
        EXPECT_FALSE(umfPoolTryFree(pool, p + 1)) << kind;
        EXPECT_FALSE(umfPoolTryFree(pool, &fake)) << kind;
        EXPECT_FALSE(umfPoolTryFree(pool, nullptr)) << kind;
        EXPECT_FALSE(umfPoolTryFree(nullptr, p)) << kind;
        const std::string id = kind.id;
        const bool keeps =
            !UMF_IS_ASAN && (id == "disjoint" || id == "jemalloc" || id == "scalable");
        EXPECT_EQ(umfPoolTryFree(pool, p), keeps) << kind;
        if (keeps) {
            EXPECT_EQ(umfPoolTryMalloc(pool, 0), nullptr) << kind;
            EXPECT_EQ(umfPoolTryMalloc(pool, SIZE_MAX), nullptr) << kind;
            EXPECT_EQ(umfPoolTryMalloc(pool, 64), p) << kind;
        }
        EXPECT_EQ(umfPoolTryMalloc(nullptr, 64), nullptr) << kind;
        EXPECT_EQ(umfPoolFree(pool, p), OK) << kind;
        EXPECT_EQ(umfPoolDestroy(other), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// The body of a malloc, over the current pool of the thread: umf/memory_pool_ext.h.
struct Current : testing::TestWithParam<PoolKind> {
    static std::atomic<size_t> mallocs, frees; // by `otherwise`
    static umf_memory_pool_handle_t pool;
    static void *malloc_otherwise(size_t size) {
        mallocs++;
        return size == 64 ? umfPoolMalloc(pool, size) : nullptr;
    }
    static void free_otherwise(void *ptr) {
        frees++;
        refused = umfPoolFree(pool, ptr) != OK;
    }
    static bool refused;
    static bool is_refused(void *ptr) {
        refused = false;
        umfCurrentPoolFree(ptr, free_otherwise);
        return refused;
    }
    static void *get(size_t size = 64) {
        return umfCurrentPoolMalloc(size, malloc_otherwise);
    }
    void SetUp() override {
        provider = fake.create();
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &pool), OK);
        const std::string id = GetParam().id;
        keeps = !UMF_IS_ASAN && (id == "disjoint" || id == "jemalloc" || id == "scalable");
        mallocs = frees = 0;
    }
    void TearDown() override {
        umfCurrentPoolSet(nullptr);
        EXPECT_EQ(alloc_count(pool), 0u);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    bool keeps = false;
};
std::atomic<size_t> Current::mallocs, Current::frees;
umf_memory_pool_handle_t Current::pool;
bool Current::refused;

TEST_P(Current, NoneServesNothing) {
    EXPECT_EQ(get(0), nullptr);
    EXPECT_EQ(get(SIZE_MAX), nullptr);
    void *p = get();
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(mallocs, 3u);
    EXPECT_FALSE(is_refused(p));
    EXPECT_TRUE(is_refused(&fake));
    EXPECT_EQ(frees, 2u);
}

TEST_P(Current, ServesItsThreadAlone) {
    umfCurrentPoolSet(pool);
    void *p = get();
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(mallocs, 1u) << "the thread had no cache";
    EXPECT_FALSE(is_refused(p));
    EXPECT_EQ(frees, keeps ? 0u : 1u);
    std::thread([&] {
        EXPECT_FALSE(is_refused(get()));
        EXPECT_EQ(mallocs, 2u);
        EXPECT_EQ(frees, keeps ? 1u : 2u);
    }).join();
    if (keeps) {
        EXPECT_EQ(get(), p);
        EXPECT_EQ(mallocs, 2u);
        umfCurrentPoolSet(nullptr);
        EXPECT_FALSE(is_refused(p));
        EXPECT_EQ(frees, 2u);
    }
}

TEST_P(Current, RefusesAsThePoolDoes) {
    umf_memory_pool_handle_t other = nullptr;
    ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &other), OK);
    char *of_other = static_cast<char *>(umfPoolMalloc(other, 64));
    umfCurrentPoolSet(pool);
    char *p = static_cast<char *>(get());
    ASSERT_TRUE(p && of_other);
    EXPECT_TRUE(is_refused(of_other));
    EXPECT_TRUE(is_refused(p + 1));
    EXPECT_TRUE(is_refused(p + 16));
    EXPECT_TRUE(is_refused(&fake));
    EXPECT_FALSE(is_refused(p));
    EXPECT_TRUE(is_refused(p)) << "freed";
    std::thread([&] {
        umfCurrentPoolSet(pool);
        EXPECT_TRUE(is_refused(p)) << "freed by another thread";
    }).join();
    frees = 0;
    for (int i = 0; i < 10000; i++) { // periodic work, too, is left to the frees of objects
        umfCurrentPoolFree(nullptr, free_otherwise);
    }
    EXPECT_EQ(frees, 0u);
    EXPECT_EQ(umfPoolFree(other, of_other), OK);
    EXPECT_EQ(umfPoolDestroy(other), OK);
}

// Pools do their periodic work in umfPoolFree.
TEST_P(Current, SomeFreesAreTicks) {
    umfCurrentPoolSet(pool);
    for (int i = 0; i < 10000; i++) {
        EXPECT_FALSE(is_refused(get()));
    }
    EXPECT_GE(frees, 2u);
    if (keeps) {
        EXPECT_LE(frees, 3u);
        EXPECT_EQ(mallocs, 1u);
    }
}

TEST_P(Current, TryFreeLeavesThatWorkToPoolFree) {
    int left = 0;
    for (int i = 0; i < 10000; i++) {
        void *p = umfPoolMalloc(pool, 64);
        if (!umfPoolTryFree(pool, p)) {
            left++;
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
    }
    EXPECT_GE(left, 2);
    EXPECT_TRUE(!keeps || left <= 4) << left;
}

INSTANTIATE_TEST_SUITE_P(Each, Current, testing::ValuesIn(pool_kinds()),
                         [](const auto &kind) { return std::string(kind.param.id); });

} // namespace
