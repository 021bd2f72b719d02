/* Start and stop of the library. */
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/experimental/memspace.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/text.h>

#include "fakes/child.h"
#include "fakes/fake_provider.h"
#include "fakes/one_tbb.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t UNKNOWN = UMF_RESULT_ERROR_UNKNOWN;

// The library started itself once when the program was loaded. Each of these tests runs in a
// process of its own, because it stops it for good.
class Teardown : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();

    void TearDown() override {
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
};

std::vector<const umf_memory_pool_ops_t *> pool_tables() {
    std::vector<const umf_memory_pool_ops_t *> list = {umfProxyPoolOps(), umfDisjointPoolOps(),
                                                       umfCoalescingPoolOps()};
    if (has_one_tbb()) {
        list.push_back(umfScalablePoolOps());
    }
    if (umfJemallocPoolOps()) {
        list.push_back(umfJemallocPoolOps());
    }
    return list;
}

TEST(Init, Version) {
    EXPECT_EQ(umfGetCurrentVersion(), int{UMF_VERSION_CURRENT});
    EXPECT_EQ(umfGetCurrentVersion(), 0x10000);
}

TEST(Init, LoggingIsOffUnlessAskedFor) {
    if (getenv("UMF_LOG") || getenv("UMF_CONF") || getenv("UMF_CONF_FILE")) {
        GTEST_SKIP() << "the environment requests it";
    }
    char output[16] = "";
    EXPECT_EQ(umfCtlGet("umf.logger.output", output, sizeof(output)), OK);
    EXPECT_STREQ(output, "disabled");
    EXPECT_EQ(umfCtlGet("umf.logger.output", output, sizeof("disabled")), OK);
    EXPECT_EQ(umfCtlGet("umf.logger.output", output, sizeof("disabled") - 1), BAD);
    bool truth = true;
    int level = -1;
    EXPECT_EQ(umfCtlGet("umf.logger.timestamp", &truth, sizeof(truth)), OK);
    EXPECT_FALSE(truth);
    EXPECT_EQ(umfCtlGet("umf.logger.level", &level, sizeof(level)), OK);
    EXPECT_EQ(level, 3);
    EXPECT_EQ(umfCtlGet("umf.logger.flush_level", &level, sizeof(level)), OK);
    EXPECT_EQ(level, 3);
}

TEST(Init, PairsNest) {
    for (int i = 0; i < 100; i++) {
        EXPECT_EQ(umfInit(), OK);
    }
    for (int i = 0; i < 100; i++) {
        EXPECT_EQ(umfTearDown(), OK);
    }
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK)
        << "still started once";
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST(Init, PairsInThreads) {
    run_threads(8, [](int) {
        for (int i = 0; i < 200; i++) {
            EXPECT_EQ(umfInit(), OK);
            EXPECT_EQ(umfTearDown(), OK);
        }
    });
}

TEST_F(Teardown, TooManyAreFine) {
    expect_in_child([] {
        for (int i = 0; i < 10; i++) {
            EXPECT_EQ(umfTearDown(), OK);
        }
    });
}

// Destructors of static objects may call this late.
TEST_F(Teardown, LateCallsAnswerAndDoNotTouchTheHandle) {
    expect_in_child([&] {
        std::vector<umf_memory_pool_handle_t> pools;
        std::vector<void *> live;
        for (auto ops : pool_tables()) {
            umf_memory_pool_handle_t pool = nullptr;
            EXPECT_EQ(umfPoolCreate(ops, provider, nullptr, 0, &pool), OK);
            pools.push_back(pool);
            live.push_back(umfPoolMalloc(pool, 100));
        }
        umf_disjoint_pool_params_handle_t params = nullptr;
        EXPECT_EQ(umfDisjointPoolParamsCreate(&params), OK);
        size_t finalizes = fake.finalizes, frees = fake.frees;

        EXPECT_EQ(umfTearDown(), OK);
        for (size_t i = 0; i < pools.size(); i++) {
            umf_memory_pool_handle_t found = pools[i], more = nullptr;
            umf_memory_properties_handle_t properties = nullptr;
            EXPECT_EQ(umfPoolByPtr(live[i], &found), BAD);
            EXPECT_EQ(found, nullptr);
            // What fits on the thread's own stack is still taken, anything else refused.
            umf_result_t freed = umfFree(live[i]);
            EXPECT_TRUE(freed == OK || freed == BAD) << freed;
            EXPECT_EQ(umfGetMemoryPropertiesHandle(live[i], &properties),
                      UMF_RESULT_ERROR_NOT_SUPPORTED);
            EXPECT_EQ(umfPoolCreate(pool_tables()[i], provider, nullptr, 0, &more), UNKNOWN);
            EXPECT_EQ(more, nullptr);
            static_cast<char *>(live[i])[0] = 1; // the memory is still there
            EXPECT_EQ(umfPoolDestroy(pools[i]), UNKNOWN);
            EXPECT_EQ(umfPoolDestroy(pools[i]), UNKNOWN) << "again: the handle was not touched";
        }
        umf_memory_pool_handle_t from_text = nullptr;
        umf_memory_provider_handle_t source = nullptr;
        EXPECT_EQ(umfPoolCreateFromText("disjoint over os", &from_text), UNKNOWN);
        EXPECT_STREQ(umfTextError(), "the library has been torn down; call umfInit first");
        EXPECT_EQ(umfMemoryProviderCreateFromText("os", &source), UNKNOWN);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), UNKNOWN);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), UNKNOWN);
        EXPECT_EQ(umfDisjointPoolParamsDestroy(params), OK);
        EXPECT_EQ(umfPoolDestroy(nullptr), BAD);
        EXPECT_EQ(fake.finalizes, finalizes);
        EXPECT_EQ(fake.frees, frees);
    });
}

TEST_F(Teardown, BlocksCanBeUsedAndFreedLate) {
    expect_in_child([&] {
        for (auto ops : pool_tables()) {
            umf_memory_pool_handle_t pool = nullptr;
            EXPECT_EQ(umfPoolCreate(ops, provider, nullptr, 0, &pool), OK);
            void *p = umfPoolMalloc(pool, 100);
            EXPECT_EQ(umfTearDown(), OK);
            umfPoolFree(pool, p); // any answer, no crash
            void *q = umfPoolMalloc(pool, 100);
            umfPoolFree(pool, q);
            size_t count = 0;
            umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool);
            EXPECT_EQ(umfInit(), OK);
        }
    });
}

// The predefined ones go with the teardown: nothing may be read through their handles then.
TEST_F(Teardown, MemspacesOfTheLibraryAreRefusedLate) {
    expect_in_child([] {
        umf_const_memspace_handle_t all = umfMemspaceHostAllGet();
        if (!all) {
            return; // a build without hwloc
        }
        umf_const_memtarget_handle_t first = umfMemspaceMemtargetGet(all, 0);
        umfTearDown();
        unsigned id;
        umf_memspace_handle_t clone = nullptr;
        EXPECT_EQ(umfMemspaceMemtargetNum(all), 0u);
        EXPECT_EQ(umfMemspaceMemtargetGet(all, 0), nullptr);
        EXPECT_EQ(umfMemspaceClone(all, &clone), BAD);
        EXPECT_EQ(umfMemtargetGetId(first, &id), BAD);
    });
}

TEST_F(Teardown, StartsAgain) {
    expect_in_child([&] {
        size_t value = 8;
        EXPECT_EQ(umfCtlSet("umf.pool.default.disjoint.params.capacity", &value, sizeof(value)),
                  OK);
        for (int i = 0; i < 20; i++) {
            EXPECT_EQ(umfTearDown(), OK);
            EXPECT_EQ(umfInit(), OK);
            for (auto ops : pool_tables()) {
                umf_memory_pool_handle_t pool = nullptr, found = nullptr;
                EXPECT_EQ(umfPoolCreate(ops, provider, nullptr, 0, &pool), OK);
                void *p = umfPoolMalloc(pool, 100);
                EXPECT_EQ(umfPoolByPtr(p, &found), OK);
                EXPECT_EQ(found, pool);
                EXPECT_EQ(umfFree(p), OK);
                EXPECT_EQ(umfPoolDestroy(pool), OK);
            }
        }
        EXPECT_EQ(umfCtlGet("umf.pool.default.disjoint.params.capacity", &value, sizeof(value)),
                  UMF_RESULT_ERROR_INVALID_CTL_PATH)
            << "stored defaults are forgotten";
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    });
}

TEST_F(Teardown, PoolsThatOutliveItGoAfterTheNextStart) {
    expect_in_child([&] {
        umf_memory_pool_handle_t pool = nullptr;
        EXPECT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &pool), OK);
        void *p = umfPoolMalloc(pool, 100);
        EXPECT_EQ(umfTearDown(), OK);
        EXPECT_EQ(umfInit(), OK);
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.live(), 0u);
    });
}

// Destructors that run after ours, and threads that end then.
TEST_F(Teardown, AtExitWithEverythingAlive) {
    expect_in_child([&] {
        static umf_memory_pool_handle_t pool;
        static void *p;
        EXPECT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &pool), OK);
        p = umfPoolMalloc(pool, 100);
        struct Late {
            ~Late() {
                umfFree(p);
                umfPoolFree(pool, p);
                umfPoolDestroy(pool);
                umfTearDown();
            }
        };
        static Late late;
        std::thread([] { umfPoolFree(pool, umfPoolMalloc(pool, 50)); }).join();
        umfTearDown();
        if (!HasFailure()) {
            exit(0);
        }
    });
}

} // namespace
