/*
 * The inside of core/provider.c: views, which record the memory of a pool. Public behaviour of
 * providers is in conformance/provider_test.cpp.
 */
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>

#include "fakes/fake_provider.h"
#include "fakes/scale.h"

extern "C" {
#include "base/meta.h"
#include "object/object.h"
#include "system/os.h"
}

namespace {

bool is_global(umf_memory_provider_handle_t view) {
    return umf_tracked_spans(view)->map == &umf_map_global;
}

size_t visit(umf_memory_provider_handle_t view) {
    size_t count = 0;
    auto count_one = [](umf_span_t *, void *sum) { return ++*static_cast<size_t *>(sum) != 0; };
    umf_tracked_each_span(view, count_one, &count);
    return count;
}

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

class View : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    umf_memory_provider_handle_t view = nullptr;

    void SetUp() override {
        ASSERT_EQ(umf_tracked_create(provider, 0, &view), OK);
    }
    void TearDown() override {
        umf_os_set_fault(nullptr);
        if (view) {
            umf_tracked_destroy(view);
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.mistakes, 0u);
    }
    char *alloc(size_t size, void *cookie = nullptr) {
        void *ptr = nullptr;
        EXPECT_EQ(umf_tracked_alloc(view, size, 0, 0, cookie, &ptr), OK);
        return static_cast<char *>(ptr);
    }
};

TEST_F(View, RecordsWhatItObtains) {
    int cookie;
    char *p = alloc(5000, &cookie);
    umf_span_t *span = umf_tracked_find(view, p + 4999);
    ASSERT_NE(span, nullptr);
    EXPECT_EQ(reinterpret_cast<char *>(span->base), p);
    EXPECT_EQ(span->cookie, &cookie);
    EXPECT_EQ(umf_tracked_find(view, p + 5000), nullptr);
    EXPECT_EQ(umf_tracked_span_count(view), 1u);
    EXPECT_EQ(visit(view), 1u);
    EXPECT_EQ(umf_tracked_free(view, span), OK);
    EXPECT_EQ(umf_tracked_find(view, p), nullptr);
    EXPECT_EQ(fake.last_free_size, 5000u);
    EXPECT_EQ(fake.live(), 0u);
}

TEST_F(View, SeesItsOwnOnly) {
    umf_memory_provider_handle_t other = nullptr;
    ASSERT_EQ(umf_tracked_create(provider, 0, &other), OK);
    char *p = alloc(100);
    EXPECT_EQ(umf_tracked_find(other, p), nullptr);
    EXPECT_EQ(umf_tracked_span_count(other), 0u);
    EXPECT_EQ(umf_tracked_free(view, umf_tracked_find(view, p)), OK);
    umf_tracked_destroy(other);
}

TEST_F(View, APoolsViewIsTakenAsItIs) {
    umf_memory_provider_handle_t same = nullptr;
    ASSERT_EQ(umf_tracked_acquire(view, &same), OK);
    EXPECT_EQ(same, view);
    umf_tracked_release(same);
    EXPECT_EQ(umf_tracked_span_count(view), 0u) << "still there";
}

TEST_F(View, APlainProviderGetsAPrivateMap) {
    umf_memory_provider_handle_t own = nullptr;
    size_t used = umf_meta_used();
    ASSERT_EQ(umf_tracked_acquire(provider, &own), OK);
    EXPECT_NE(own, provider);
    EXPECT_FALSE(is_global(own));
    EXPECT_TRUE(is_global(view));
    void *p = nullptr;
    ASSERT_EQ(umf_tracked_alloc(own, 100, 0, 0, nullptr, &p), OK);
    EXPECT_NE(umf_tracked_find(own, p), nullptr);
    EXPECT_EQ(umf_tracked_find(view, p), nullptr);
    EXPECT_EQ(umf_tracked_free(own, umf_tracked_find(own, p)), OK);
    umf_tracked_release(own);
    EXPECT_LE(umf_meta_used(), used + (100u << 10)) << "only descriptors stay";
    size_t before = umf_meta_used();
    ASSERT_EQ(umf_tracked_acquire(provider, &own), OK);
    umf_tracked_release(own);
    EXPECT_EQ(umf_meta_used(), before);
}

TEST_F(View, WhatCannotBeRecordedGoesBack) {
    char *warm = alloc(100);
    EXPECT_EQ(umf_tracked_free(view, umf_tracked_find(view, warm)), OK);
    static std::atomic<int> left;
    for (int n = 0; n < 3; n++) {
        // The fake provider maps on its own, so only our metadata fails.
        left = n;
        umf_os_set_fault([](const char *) { return left-- == 0 ? 12 : 0; });
        void *p = nullptr;
        umf_result_t result = umf_tracked_alloc(view, 3000, 0, 0, nullptr, &p);
        umf_os_set_fault(nullptr);
        if (result == OK) {
            EXPECT_EQ(umf_tracked_free(view, umf_tracked_find(view, p)), OK);
        } else {
            EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
            EXPECT_EQ(p, nullptr);
        }
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(umf_tracked_span_count(view), 0u);
    }
}

TEST_F(View, FailedFreeKeepsTheRecord) {
    char *p = alloc(100);
    fake.free_fails = true;
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    EXPECT_EQ(umf_tracked_free(view, umf_tracked_find(view, p)), UMF_RESULT_ERROR_USER_SPECIFIC);
    ASSERT_NE(umf_tracked_find(view, p), nullptr);
    EXPECT_EQ(umf_tracked_span_count(view), 1u);
    umf_memory_provider_handle_t failed = nullptr;
    EXPECT_EQ(umfGetLastFailedMemoryProvider(&failed), OK);
    EXPECT_EQ(failed, provider) << "the user's handle";
    fake.free_fails = false;
    EXPECT_EQ(umf_tracked_free(view, umf_tracked_find(view, p)), OK);
}

TEST_F(View, ARefusedSplitOrMergeKeepsTheRecords) {
    char *p = alloc(8192);
    umf_span_t *whole = umf_tracked_find(view, p);
    fake.split_fails = fake.merge_fails = true;
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    EXPECT_EQ(umfMemoryProviderAllocationSplit(view, p, 8192, 4096),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umf_tracked_find(view, p + 4096), whole);
    EXPECT_EQ(umf_tracked_span_count(view), 1u);
    fake.split_fails = false;
    ASSERT_EQ(umfMemoryProviderAllocationSplit(view, p, 8192, 4096), OK);
    EXPECT_NE(umf_tracked_find(view, p + 4096), whole);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(view, p, p + 4096, 8192),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    umf_span_t *high = umf_tracked_find(view, p + 4096);
    ASSERT_NE(high, nullptr);
    EXPECT_EQ(reinterpret_cast<char *>(high->base), p + 4096);
    EXPECT_EQ(umf_tracked_span_count(view), 2u);
    EXPECT_EQ(umf_tracked_free(view, high), OK);
    EXPECT_EQ(fake.last_free_size, 4096u);
    EXPECT_EQ(umf_tracked_free(view, umf_tracked_find(view, p)), OK);
    EXPECT_EQ(fake.last_free_size, 4096u);
}

TEST_F(View, DestroyWithdrawsWhatIsLeft) {
    char *p = alloc(100), *q = alloc(200);
    umf_tracked_destroy(view);
    view = nullptr;
    umf_memory_pool_handle_t found = nullptr;
    EXPECT_NE(umfPoolByPtr(p, &found), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, p, 100), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, q, 200), OK);
}

// Two threads free the same memory: one of them is refused, and the provider gets one free.
TEST_F(View, RacingFrees) {
    for (size_t round = 0; round < scaled(500); round++) {
        char *p = alloc(100);
        std::atomic<int> succeeded{0}, refused{0}, waiting{2};
        auto race = [&] {
            waiting--;
            while (waiting > 0) {
                std::this_thread::yield();
            }
            umf_span_t *span = umf_tracked_find(view, p);
            if (span && reinterpret_cast<char *>(span->base) == p &&
                umf_tracked_free(view, span) == OK) {
                succeeded++;
            } else {
                refused++;
            }
        };
        std::thread a(race), b(race);
        a.join();
        b.join();
        ASSERT_EQ(succeeded, 1);
        ASSERT_EQ(refused, 1);
        ASSERT_EQ(fake.live(), 0u);
    }
}

TEST(Provider, CreateLeavesNothingOnFailure) {
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    ASSERT_EQ(umfMemoryProviderDestroy(provider), OK);
    size_t used = umf_meta_used();
    umf_memory_provider_ops_t ops = FakeProvider::table();
    fake.initialize_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    EXPECT_NE(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    fake.initialize_result = OK;
    fake.get_name_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    EXPECT_NE(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    fake.get_name_result = OK;
    fake.post_initialize_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    EXPECT_NE(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    ops.alloc = nullptr;
    EXPECT_NE(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    EXPECT_EQ(umf_meta_used(), used);
    umf_os_set_fault([](const char *) { return 12; });
    ops = FakeProvider::table();
    EXPECT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    umf_os_set_fault(nullptr);
}

} // namespace
