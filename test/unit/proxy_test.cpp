/* The proxy pool: each allocation is one of the provider. */
#include <gtest/gtest.h>

#include <umf.h>
#include <umf/pools/pool_proxy.h>

#include "fakes/fake_provider.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

class Proxy : public testing::TestWithParam<umf_pool_create_flags_t> {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, GetParam(), &pool), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(fake.mistakes, 0u);
    }
};

TEST_P(Proxy, EveryCallIsOneOfTheProvider) {
    size_t n = 0;
    for (size_t size : {0, 1, 100, 4096, 1 << 20}) {
        void *p = umfPoolMalloc(pool, size);
        ASSERT_NE(p, nullptr) << size;
        EXPECT_EQ(fake.allocs, ++n);
        EXPECT_EQ(fake.last_size, size);
        EXPECT_EQ(fake.last_alignment, 0u);
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        EXPECT_EQ(fake.frees, n);
        EXPECT_EQ(fake.last_free_ptr, p);
        EXPECT_EQ(fake.last_free_size, size) << "the recorded size";
    }
}

TEST_P(Proxy, AlignmentIsPassedOn) {
    for (size_t alignment : {size_t{0}, size_t{1}, size_t{64}, size_t{1} << 21}) {
        void *p = umfPoolAlignedMalloc(pool, 100, alignment);
        EXPECT_EQ(fake.last_size, 100u);
        EXPECT_EQ(fake.last_alignment, alignment);
        EXPECT_EQ(umfPoolFree(pool, p), OK);
    }
}

TEST_P(Proxy, AlignmentThatIsNoPowerOfTwoDoesNotReachTheProvider) {
    size_t before = fake.allocs;
    for (size_t alignment : {size_t{3}, size_t{12288}, SIZE_MAX}) {
        EXPECT_EQ(umfPoolAlignedMalloc(pool, 100, alignment), nullptr);
        EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    EXPECT_EQ(fake.allocs, before);
}

TEST_P(Proxy, FreeOfNullReachesTheProvider) {
    EXPECT_EQ(umfPoolFree(pool, nullptr), OK);
    EXPECT_EQ(fake.frees, 1u);
    EXPECT_EQ(fake.last_free_ptr, nullptr);
    EXPECT_EQ(fake.last_free_size, 0u);
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    fake.free_fails = true;
    EXPECT_EQ(umfPoolFree(pool, nullptr), UMF_RESULT_ERROR_USER_SPECIFIC);
    fake.free_fails = false;
}

TEST_P(Proxy, LastErrorIsTheProviders) {
    fake.failure = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    fake.alloc_fails = true;
    EXPECT_EQ(umfPoolMalloc(pool, 1), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    fake.alloc_fails = false;
    void *p = umfPoolMalloc(pool, 1);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), OK);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_P(Proxy, OnlyStartsAreFreed) {
    auto p = static_cast<char *>(umfPoolMalloc(pool, 100));
    size_t frees = fake.frees;
    EXPECT_EQ(umfPoolFree(pool, p + 1), BAD);
    EXPECT_EQ(umfPoolFree(pool, p + 99), BAD);
    EXPECT_EQ(fake.frees, frees) << "the provider was not bothered";
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(umfPoolFree(pool, p), BAD);
}

TEST_P(Proxy, FailedFreeIsReturnedAndTheMemoryStays) {
    auto p = static_cast<char *>(umfPoolMalloc(pool, 100));
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    fake.free_fails = true;
    EXPECT_EQ(umfPoolFree(pool, p), UMF_RESULT_ERROR_USER_SPECIFIC);
    fake.free_fails = false;
    p[0] = 1;
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

TEST_P(Proxy, DestroyStopsAtAProviderThatRefuses) {
    umf_memory_pool_handle_t other = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, GetParam(), &other), OK);
    void *p = umfPoolMalloc(other, 100);
    fake.free_fails = true;
    umfPoolDestroy(other); // must end
    fake.free_fails = false;
    umf_memory_pool_handle_t found = nullptr;
    EXPECT_EQ(umfPoolByPtr(p, &found), BAD) << "the record is withdrawn all the same";
    EXPECT_EQ(umfMemoryProviderFree(provider, p, 100), OK);
}

umf_result_t alloc_null(void *, size_t, size_t, void **ptr) {
    *ptr = nullptr;
    return OK;
}

TEST_P(Proxy, AProviderMayAnswerNull) {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.alloc = alloc_null;
    FakeProvider other;
    umf_memory_provider_handle_t nothing = nullptr;
    umf_memory_pool_handle_t over = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &other, &nothing), OK);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), nothing, nullptr, GetParam(), &over), OK);
    EXPECT_EQ(umfPoolMalloc(over, 0), nullptr);
    EXPECT_EQ(umfPoolDestroy(over), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(nothing), OK);
}

INSTANTIATE_TEST_SUITE_P(Each, Proxy,
                         testing::Values(umf_pool_create_flags_t{UMF_POOL_CREATE_FLAG_NONE},
                                         UMF_POOL_CREATE_FLAG_DISABLE_TRACKING),
                         [](const auto &test) { return test.param ? "untracked" : "tracked"; });

} // namespace
