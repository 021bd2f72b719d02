// Pools that overwrite memory when it is freed.

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/memory_pool_ext.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/content.h"
#include "fakes/current_free.h"
#include "fakes/fake_provider.h"
#include "fakes/log_file.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t WRONG = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr size_t KiB = 1024, MiB = KiB * KiB;

class ZeroOnFree : public testing::TestWithParam<const char *> {
  protected:
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        std::string text = std::string("disjoint:zero_on_free=yes over ") + GetParam();
        ASSERT_EQ(umfPoolCreateFromText(text.c_str(), &pool), OK) << umfTextError();
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    // Blocks that are allocated next have nothing of the old content. They are as many as the pool
    // may have cached, so the freed one is among them.
    void has_no_content(size_t size) {
        std::vector<void *> all(size > MiB ? 2 : 40);
        for (void *&ptr : all) {
            ptr = umfPoolMalloc(pool, size);
            ASSERT_NE(ptr, nullptr);
            EXPECT_TRUE(are_all(static_cast<char *>(ptr), size, 0)) << size;
        }
        for (void *ptr : all) {
            EXPECT_EQ(umfPoolFree(pool, ptr), OK);
        }
    }
    void *make(size_t size) {
        void *ptr = umfPoolMalloc(pool, size);
        EXPECT_NE(ptr, nullptr);
        return memset(ptr, 0x5a, size);
    }
};

INSTANTIATE_TEST_SUITE_P(All, ZeroOnFree,
                         testing::Values("os", "linux_vmm", "os:visibility=shared"));

} // namespace

TEST_P(ZeroOnFree, EachWayOfFreeingOverwrites) {
    const std::function<void(void *)> ways[] = {
        [&](void *ptr) { EXPECT_EQ(umfFree(ptr), OK); },
        [&](void *ptr) { EXPECT_EQ(umfPoolFree(pool, ptr), OK); },
        [&](void *ptr) { EXPECT_TRUE(umfPoolTryFree(pool, ptr) || umfFree(ptr) == OK); },
        [&](void *ptr) { EXPECT_TRUE(current_free(pool, ptr) || umfFree(ptr) == OK); },
        [&](void *ptr) { EXPECT_EQ(umfPoolRealloc(pool, ptr, 0), nullptr); },
    };
    for (size_t size : {size_t{64}, 1000 * size_t{1}, 4 * KiB, 64 * KiB, MiB, 3 * MiB}) {
        for (auto &free : ways) {
            void *first = make(size), *second = make(size);
            free(first);
            free(second);
            EXPECT_EQ(umfFree(second), WRONG) << size;
            EXPECT_EQ(umfPoolFree(pool, first), WRONG) << size;
            has_no_content(size);
        }
    }
}

TEST_P(ZeroOnFree, ABlockOfASuspendedPoolIsFreed) {
    void *small = make(64), *large = make(3 * MiB);
    if (umfPoolsSuspend(&pool, 1, nullptr, nullptr) != OK) {
        EXPECT_EQ(umfFree(small), OK);
        EXPECT_EQ(umfFree(large), OK);
        GTEST_SKIP() << "no suspend here";
    }
    EXPECT_EQ(umfFree(small), OK);
    EXPECT_EQ(umfPoolFree(pool, large), OK);
    EXPECT_EQ(umfFree(small), WRONG);
    EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
}

// A free may begin before a suspend takes the memory away. Nearly all the time of the other thread
// is that of the write.
TEST_P(ZeroOnFree, FreesWhileThePoolIsSuspended) {
    std::atomic<bool> ends{false};
    std::atomic<size_t> frees{0};
    std::thread other([&] {
        while (!ends) {
            void *ptr = umfPoolMalloc(pool, 8 * MiB);
            EXPECT_TRUE(!ptr || umfFree(ptr) == OK);
            frees += ptr != nullptr;
        }
    });
    for (size_t i = 0; i < scaled(300); i++) {
        for (size_t before = frees; frees == before;) {
            std::this_thread::yield();
        }
        if (umfPoolsSuspend(&pool, 1, nullptr, nullptr) == OK) {
            EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        }
    }
    ends = true;
    other.join();
}

TEST_P(ZeroOnFree, ABlockWithAnIpcHandleIsOverwrittenAfterIt) {
    char *ptr = static_cast<char *>(make(4 * KiB));
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    if (umfGetIPCHandle(ptr, &handle, &size) != OK) {
        EXPECT_EQ(umfFree(ptr), OK);
        GTEST_SKIP() << "no IPC here";
    }
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_TRUE(are_all(ptr, 4 * KiB, 0x5a)) << "another process may read it";
    EXPECT_EQ(umfPutIPCHandle(handle), OK);
    has_no_content(4 * KiB);
}

TEST(ZeroOnFreeRefuses, APoolThatDoesNotTrackItsMemory) {
    umf_disjoint_pool_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    FakeProvider fake;
    LogFile log;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    ASSERT_EQ(umfDisjointPoolParamsCreate(&params), OK);
    EXPECT_EQ(umfDisjointPoolParamsSetZeroOnFree(params, 1), OK);
    EXPECT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, params,
                            UMF_POOL_CREATE_FLAG_DISABLE_TRACKING, &pool),
              NONE);
    EXPECT_EQ(log.count("zero_on_free needs a pool that tracks its memory"), 1u) << log.text();
    EXPECT_EQ(umfDisjointPoolParamsSetZeroOnFree(nullptr, 1), WRONG);
    EXPECT_EQ(umfDisjointPoolParamsDestroy(params), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    EXPECT_EQ(fake.live(), 0u);
}
