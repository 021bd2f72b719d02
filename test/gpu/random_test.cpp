// Random programs of pools and streams: on the software driver its oracle looks at each step, on a
// GPU kernels check what they read.

#include <functional>
#include <thread>
#include <vector>

#include "fakes/scale.h"
#include "fakes/vmm_kinds.h"
#include "program.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t MiB = size_t{1} << 20;

struct Seed {
    const char *pool;
    unsigned seed;
};

std::ostream &operator<<(std::ostream &out, const Seed &seed) {
    return out << seed.pool << ", seed " << seed.seed;
}

class Random : public testing::TestWithParam<Seed> {
  protected:
    umf_memory_pool_handle_t pool = nullptr;
    Kernels kernels;

    void SetUp() override {
        start_cuda_vmm();
        if (!driver().is_real) {
            driver().control()->late = GetParam().seed % 4; // every fourth is not late
        }
        kernels.load();
        ASSERT_EQ(umfPoolCreateFromText(GetParam().pool, &pool), OK) << umfTextError();
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->illegal_accesses, 0);
            EXPECT_EQ(driver().control()->dead_uses, 0);
        }
        stop_cuda_vmm();
    }
    // In all programs of all pools: 100,000 on the software driver, 10,000 on a GPU.
    static size_t steps() {
        return driver().is_real ? 10000 / 28 : scaled(100000) / 28;
    }
};

std::vector<Seed> seeds() {
    std::vector<const char *> pools = {"coalescing:arena=yes over cuda_vmm:device=0",
                                       "coalescing over cuda_vmm:device=0",
                                       "disjoint over cuda_vmm:device=0",
                                       "proxy over cuda_vmm:device=0",
                                       "coalescing over cuda:device=0",
                                       "disjoint over cuda:device=0",
                                       "proxy over cuda:device=0"};
#if UMF_WITH_JEMALLOC
    pools.push_back("jemalloc over cuda_vmm:device=0");
#endif
    std::vector<Seed> list;
    for (const char *pool : pools) {
        for (unsigned seed = 0; seed < 4; seed++) {
            list.push_back({pool, seed + 1});
        }
    }
    return list;
}

} // namespace

TEST_P(Random, ProgramKeepsItsOrder) {
    ONE_THREAD_ONLY()
    Program program(GetParam().pool, pool, kernels, GetParam().seed, true);
    program.run(steps());
}

TEST_P(Random, ProgramKeepsItsOrderWhereMemoryIsShort) {
    NEEDS_FAKE()
    ONE_THREAD_ONLY()
    limit_cuda(24 * MiB);
    Program program(GetParam().pool, pool, kernels, 100 + GetParam().seed, true);
    program.run(steps() / 4);
    limit_cuda(SIZE_MAX);
}

// Each thread has streams of its own, and all share the pool.
TEST_P(Random, ProgramsKeepTheirOrderSideBySide) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; i++) {
        threads.emplace_back([&, i] {
            CU(cuCtxSetCurrent(cuda_vmm_context()));
            Program program(GetParam().pool, pool, kernels, 1000 * i + GetParam().seed, false);
            program.run(steps() / 4);
            CU(cuCtxSetCurrent(nullptr));
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

INSTANTIATE_TEST_SUITE_P(Each, Random, testing::ValuesIn(seeds()), [](const auto &each) {
    std::string name = each.param.pool;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
    return name + "_" + std::to_string(each.param.seed);
});
