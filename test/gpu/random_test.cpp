// Random programs of pools and streams: on the software driver its oracle looks at each step, on a
// GPU kernels check what they read.

#include <functional>
#include <map>
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
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
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

class RandomArena : public Random {};

// Records of the memory of an arena, each of one page; some pages are refused.
struct Records {
    std::map<uintptr_t, std::pair<size_t, uint64_t>> pages; // size and generation
    std::minstd_rand random;
    bool may_refuse = true;
    size_t refused = 0;

    explicit Records(unsigned seed) : random(seed) {}

    static umf_result_t mapped(void *arg, umf_memory_pool_handle_t, const umf_memory_run_t *run) {
        auto *records = static_cast<Records *>(arg);
        const auto base = reinterpret_cast<uintptr_t>(run->base);
        auto after = records->pages.lower_bound(base);
        EXPECT_TRUE(after == records->pages.end() || base + run->size <= after->first);
        if (after != records->pages.begin()) {
            after--;
            EXPECT_LE(after->first + after->second.first, base);
        }
        if (records->may_refuse && records->random() % 3 == 0) {
            records->refused++;
            return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
        }
        records->pages[base] = {run->size, run->generation};
        return UMF_RESULT_SUCCESS;
    }
    static void unmapping(void *arg, umf_memory_pool_handle_t, const umf_memory_run_t *run) {
        auto *records = static_cast<Records *>(arg);
        auto found = records->pages.find(reinterpret_cast<uintptr_t>(run->base));
        if (found == records->pages.end()) {
            ADD_FAILURE() << "no record of " << run->base;
            return;
        }
        EXPECT_EQ(found->second.first, run->size);
        EXPECT_EQ(found->second.second, run->generation);
        records->pages.erase(found);
    }
    void have(const void *ptr, size_t size) const {
        auto at = reinterpret_cast<uintptr_t>(ptr);
        const uintptr_t end = at + size;
        auto found = pages.upper_bound(at);
        while (at < end) {
            ASSERT_NE(found, pages.begin()) << "no record of memory at " << ptr;
            const auto &page = *std::prev(found);
            ASSERT_LT(at, page.first + page.second.first) << "no record of memory at " << ptr;
            umf_memory_run_t run{};
            size_t count = 1;
            ASSERT_EQ(umfGetRuns(reinterpret_cast<void *>(at), 1, &run, &count), OK);
            ASSERT_EQ(run.generation, page.second.second);
            at = page.first + page.second.first;
            found = pages.upper_bound(at);
        }
    }
};

} // namespace

TEST_P(RandomArena, CallbacksHaveThePagesOfAllBlocks) {
    NEEDS_FAKE()
    ONE_THREAD_ONLY()
    Records records(GetParam().seed);
    umf_memory_callbacks_t callbacks = UMF_MEMORY_CALLBACKS_INIT;
    callbacks.mapped = Records::mapped;
    callbacks.unmapping = Records::unmapping;
    callbacks.arg = &records;
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &callbacks), OK);
    limit_cuda(48 * MiB);
    Program program(GetParam().pool, pool, kernels, GetParam().seed, true);
    program.refuses = [&](bool yes) { records.may_refuse = yes; };
    program.looks = [&](const void *ptr, size_t size) { records.have(ptr, size); };
    program.run(steps());
    limit_cuda(SIZE_MAX);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
    EXPECT_EQ(records.pages.size(), 0U);
    EXPECT_TRUE(records.refused || steps() < 300);
}

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

static std::string name_of(const testing::TestParamInfo<Seed> &each) {
    std::string name = each.param.pool;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
    return name + "_" + std::to_string(each.param.seed);
}

INSTANTIATE_TEST_SUITE_P(Each, Random, testing::ValuesIn(seeds()), name_of);

static constexpr Seed arenas[] = {
    {"coalescing:arena=yes over cuda_vmm:device=0", 1},
    {"coalescing:arena=yes,watermark=0 over cuda_vmm:device=0", 2},
    {"coalescing:arena=yes,donate=trim over cuda_vmm:device=0", 3},
    {"coalescing:arena=yes over cuda_vmm:device=0,share=fd", 4},
};
INSTANTIATE_TEST_SUITE_P(Each, RandomArena, testing::ValuesIn(arenas), name_of);
