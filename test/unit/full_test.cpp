/*
 * A pool whose provider is all but full, while a thread trims and every slow path is a decay pass:
 * no allocation fails while a block is free. All blocks of a run have one size, so every free one
 * fits.
 */
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf/pools/pool_coalescing.h>

#include "fakes/decay_period.h"
#include "fakes/kinds.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

namespace {

constexpr size_t KiB = 1024;
constexpr int THREADS = 3;

struct Load {
    const char *name;
    const umf_memory_pool_ops_t *(*ops)();
    size_t block;  // its size, in whole pages
    size_t blocks; // room in the provider; a few are never in use
    size_t retain; // of a coalescing pool
};

class Full : public testing::TestWithParam<Load> {
  protected:
    DecayPeriod always{DecayPeriod::NONE};
    std::unique_ptr<Source> source = make_fixed(GetParam().block * GetParam().blocks);
    umf_memory_pool_handle_t pool = nullptr;
    std::atomic<size_t> permits{GetParam().blocks - GetParam().blocks / 25 - 1};
    std::atomic<size_t> failed{0};

    void SetUp() override {
        const umf_memory_pool_ops_t *ops = GetParam().ops();
        if (!ops) {
            GTEST_SKIP() << "built without this kind of pool";
        }
        umf_coalescing_pool_params_handle_t params = nullptr;
        ASSERT_EQ(umfCoalescingPoolParamsCreate(&params), UMF_RESULT_SUCCESS);
        umfCoalescingPoolParamsSetSpanSize(params, 16 * GetParam().block);
        umfCoalescingPoolParamsSetRetain(params, GetParam().retain);
        ASSERT_EQ(umfPoolCreate(ops, source->handle,
                                ops == umfCoalescingPoolOps() ? params : nullptr, 0, &pool),
                  UMF_RESULT_SUCCESS);
        umfCoalescingPoolParamsDestroy(params);
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
        }
    }
    bool may_take() {
        size_t seen = permits;
        while (seen > 0 && !permits.compare_exchange_weak(seen, seen - 1)) {
        }
        return seen > 0;
    }
    void take(std::vector<void *> &own) {
        void *block = umfPoolMalloc(pool, GetParam().block);
        if (block) {
            own.push_back(block);
        } else {
            failed++;
            permits++;
        }
    }
    void give(std::vector<void *> &own, size_t at) {
        EXPECT_EQ(umfPoolFree(pool, own[at]), UMF_RESULT_SUCCESS);
        own[at] = own.back();
        own.pop_back();
        permits++;
    }
    // Takes as long as it may, then gives some back.
    void work(unsigned thread, size_t allocations) {
        std::mt19937 random(thread);
        std::vector<void *> own;
        while (allocations > 0) {
            if (may_take()) {
                take(own);
                allocations--;
            } else {
                for (size_t n = random() % 16; n > 0 && !own.empty(); n--) {
                    give(own, random() % own.size());
                }
            }
        }
        while (!own.empty()) {
            give(own, own.size() - 1);
        }
    }
};

TEST_P(Full, NoAllocationFailsBesideATrim) {
    std::atomic<bool> is_over{false};
    std::thread trimmer([&] {
        while (!is_over) {
            umfPoolTrimMemory(pool, 0);
        }
    });
    run_threads<unsigned>(THREADS, [&](unsigned thread) { work(thread, scaled(300000)); });
    is_over = true;
    trimmer.join();
    EXPECT_EQ(failed, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    , Full,
    testing::Values(Load{"pages", umfCoalescingPoolOps, 4 * KiB, 1024, SIZE_MAX},
                    Load{"large", umfCoalescingPoolOps, 256 * KiB, 256, SIZE_MAX},
                    Load{"large_not_retained", umfCoalescingPoolOps, 256 * KiB, 256, 0},
                    Load{"jemalloc", umfJemallocPoolOps, 256 * KiB, 256, 0},
                    Load{"proxy", umfProxyPoolOps, 320 * KiB, 256, 0},
                    Load{"disjoint", umfDisjointPoolOps, 256 * KiB, 256, 0}),
    [](const testing::TestParamInfo<Load> &load) { return std::string(load.param.name); });

} // namespace
