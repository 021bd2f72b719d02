// A free may run while the memory is away: no pool may touch it. Over linux_vmm, where addresses
// without memory cannot be read or written: an access ends the test.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/memory_pool_ext.h>
#include <umf/plugin.h>
#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/current_free.h"
#include "fakes/other_thread.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;

struct Setting {
    const char *name, *text; // before " over linux_vmm"
};

std::ostream &operator<<(std::ostream &out, const Setting &setting) {
    return out << setting.name;
}

// Small and large ones, of slabs, of pages and of the provider.
const size_t sizes[] = {1, 8, 64, 100, 1024, 4096, 5000, 40000, 70000, 200000, 1 << 20, 5 << 20};

class FreeSuspended : public ::testing::TestWithParam<Setting> {
  protected:
    umf_memory_pool_handle_t pool = nullptr;
    std::vector<void *> blocks;

    void SetUp() override {
        std::string text = std::string(GetParam().text) + " over linux_vmm:piece_size=1M";
        umf_result_t made = umfPoolCreateFromText(text.c_str(), &pool);
        if (made == NONE || made == UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE) {
            GTEST_SKIP() << "no " << GetParam().name << " here";
        }
        ASSERT_EQ(made, OK) << text;
        for (int i = 0; i < 10; i++) {
            for (size_t size : sizes) {
                for (size_t n = 0; n < 1 + 4096 / size % 8; n++) {
                    char *block = static_cast<char *>(umfPoolMalloc(pool, size));
                    ASSERT_NE(block, nullptr) << size;
                    *block = 1;
                    blocks.push_back(block);
                }
            }
        }
        // Some are at hand in this thread, and in one that ends while the pool sleeps.
        free_some(blocks.size() / 4, umfFree);
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
    }

    template <class Free> void free_some(size_t count, Free free) {
        for (size_t i = 0; i < count && !blocks.empty(); i++) {
            size_t at = i * 7 % blocks.size();
            EXPECT_EQ(free(blocks[at]), OK) << "block " << at;
            blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(at));
        }
    }
    void sleep() {
        umf_suspend_report_t done = UMF_SUSPEND_REPORT_INIT;
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = UMF_SUSPEND_KEEP_HOST;
        ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, &done), OK);
        EXPECT_GT(done.bytes, 0u);
        EXPECT_EQ(done.shared, 0u);
    }
    size_t count() {
        size_t value = SIZE_MAX;
        EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &value, sizeof(value), pool),
                  OK);
        return value;
    }
};

const Setting settings[] = {
    {"proxy", "proxy"},
    {"disjoint", "disjoint"},
    {"disjoint_check", "disjoint:check=yes"},
    {"disjoint_trace", "disjoint:pool_trace=3"},
    {"disjoint_large", "disjoint:slab_min_size=1M,max_poolable_size=2M,capacity=16"},
    {"disjoint_small", "disjoint:min_bucket_size=64,capacity=0"},
    {"coalescing", "coalescing"},
    {"coalescing_gives_back", "coalescing:retain=0"},
    {"coalescing_granule", "coalescing:granule=4096,span_size=1M"},
    {"jemalloc", "jemalloc"},
    {"jemalloc_arenas", "jemalloc:num_arenas=4"},
};

INSTANTIATE_TEST_SUITE_P(Pools, FreeSuspended, ::testing::ValuesIn(settings),
                         [](const auto &setting) { return setting.param.name; });

using DataInside = FreeSuspended;

const Setting with_data_inside[] = {
    {"scalable", "scalable"},
    {"scalable_gives_back", "scalable:keep_all_memory=no"},
};

INSTANTIATE_TEST_SUITE_P(Pools, DataInside, ::testing::ValuesIn(with_data_inside),
                         [](const auto &setting) { return setting.param.name; });

} // namespace

// Who keeps data of its own in the memory is not suspended; nothing has happened to it.
TEST_P(DataInside, IsRefused) {
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    policy.keep = UMF_SUSPEND_DISCARD;
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), NONE);
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), NONE);
    free_some(blocks.size(), umfFree);
}

TEST_P(FreeSuspended, EachWay) {
    size_t part = blocks.size() / 7, live = blocks.size();
    OtherThread other;
    other([&] { // which then has some at hand
        for (int i = 0; i < 100; i++) {
            EXPECT_EQ(umfFree(umfPoolMalloc(pool, 64)), OK);
        }
    });
    sleep();
    free_some(part, umfFree);
    free_some(part, [&](void *ptr) { return umfPoolFree(pool, ptr); });
    free_some(part,
              [&](void *ptr) { return umfPoolTryFree(pool, ptr) ? OK : umfPoolFree(pool, ptr); });
    free_some(part,
              [&](void *ptr) { return current_free(pool, ptr) ? OK : umfPoolFree(pool, ptr); });
    other([&] { free_some(part, umfFree); });
    other([&] { free_some(part, [&](void *ptr) { return umfPoolFree(pool, ptr); }); });
    EXPECT_EQ(count(), live - 6 * part);
    umfPoolTrimMemory(pool, 0);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    for (void *ptr : blocks) {
        EXPECT_EQ(*static_cast<char *>(ptr), 1);
    }
    free_some(blocks.size(), umfFree);
    EXPECT_EQ(count(), 0u);
}

// A thread that ends gives back what it has at hand.
TEST_P(FreeSuspended, AThreadEnds) {
    {
        OtherThread other;
        other([&] { free_some(blocks.size() / 2, umfFree); });
        sleep();
        other([&] { free_some(blocks.size() / 2, umfFree); });
    }
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    free_some(blocks.size(), umfFree);
    EXPECT_EQ(count(), 0u);
}

// Objects whose handles are out are set aside by a free: without touching them. Handles may be
// given back at any time.
TEST_P(FreeSuspended, WhatWasExported) {
    std::vector<umf_ipc_handle_t> handles(blocks.size() / 2);
    for (size_t i = 0; i < handles.size(); i++) {
        size_t size = 0;
        ASSERT_EQ(umfGetIPCHandle(blocks[i], &handles[i], &size), OK) << i;
    }
    sleep();
    for (size_t i = 0; i < handles.size(); i++) {
        if (i % 3) {
            EXPECT_EQ(umfFree(blocks[i]), OK) << i;
        }
        if (i % 2) {
            EXPECT_EQ(umfPutIPCHandle(handles[i]), OK) << i;
        }
    }
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    for (size_t i = 0; i < blocks.size(); i++) {
        if (i >= handles.size() || i % 3 == 0) {
            EXPECT_EQ(*static_cast<char *>(blocks[i]), 1);
            EXPECT_EQ(umfFree(blocks[i]), OK) << i;
        }
    }
    for (size_t i = 0; i < handles.size(); i += 2) {
        EXPECT_EQ(umfPutIPCHandle(handles[i]), OK) << i;
    }
    EXPECT_EQ(count(), 0u);
}

// A kind of one's own says so; another is suspended.
TEST(FreeSuspendedOfUsers, KindsThatTouchMemoryAreRefused) {
    static const umf_memory_pool_ops_t ops[] = {*umfProxyPoolOps(), *umfProxyPoolOps()};
    static umf_memory_pool_descriptor_t kinds[] = {UMF_MEMORY_POOL_DESCRIPTOR_INIT,
                                                   UMF_MEMORY_POOL_DESCRIPTOR_INIT};
    for (int touches : {0, 1}) {
        kinds[touches].name = touches ? "touching" : "not_touching";
        kinds[touches].ops = &ops[touches];
        kinds[touches].touches_memory = touches;
        ASSERT_EQ(umfRegisterPool(&kinds[touches]), OK);
        umf_memory_provider_handle_t provider = nullptr;
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfMemoryProviderCreateFromText("linux_vmm", &provider), OK);
        ASSERT_EQ(umfPoolCreate(&ops[touches], provider, nullptr, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                                &pool),
                  OK);
        EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), touches ? NONE : OK);
        EXPECT_EQ(umfPoolForbidSuspend(pool), touches ? NONE : UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
}

// Everything goes, then the pool.
TEST_P(FreeSuspended, AllAndThePool) {
    sleep();
    free_some(blocks.size(), umfFree);
    umfPoolTrimMemory(pool, 0);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
}

// Questions and mistakes do not touch it, either.
TEST_P(FreeSuspended, QuestionsAndMistakes) {
    sleep();
    for (void *ptr : blocks) {
        size_t size = 0;
        umf_memory_pool_handle_t owner = nullptr;
        EXPECT_EQ(umfPoolByPtr(ptr, &owner), OK);
        EXPECT_EQ(owner, pool);
        umf_result_t result_of_size = umfPoolMallocUsableSize(pool, ptr, &size);
        EXPECT_TRUE(result_of_size == OK || result_of_size == NONE);
        EXPECT_EQ(umfPoolRealloc(pool, ptr, 2 * size + 1), nullptr);
        EXPECT_EQ(umfPoolFree(pool, static_cast<char *>(ptr) + 1), BAD);
    }
    for (size_t i = 0; i < blocks.size() / 2; i++) { // a second free
        EXPECT_EQ(umfFree(blocks.back()), OK);
        EXPECT_EQ(umfFree(blocks.back()), BAD);
        EXPECT_EQ(umfPoolFree(pool, blocks.back()), BAD);
        blocks.pop_back();
    }
    EXPECT_EQ(umfPoolMalloc(pool, 8), nullptr);
    EXPECT_EQ(umfPoolTryMalloc(pool, 8), nullptr);
    EXPECT_EQ(umfPoolCalloc(pool, 1, 8), nullptr);
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 8, 64), nullptr);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    free_some(blocks.size(), umfFree);
}
