/*
 * The arena: pages that move to where blocks need them. Over linux_vmm, whose memory the CPU
 * reads: a page at two live addresses shows as a block that changes. With queues:
 * gpu/arena_test.cpp.
 */
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/providers/provider_linux_vmm.h>
#include <umf/queue.h>
#include <umf/reclaim.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/log_file.h"
#include "fakes/ranged_vmm.h"
#include "fakes/scale.h"
#include "fakes/training.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr size_t KiB = 1024, MiB = 1024 * KiB, PAGE = 64 * KiB;

size_t counter(umf_memory_pool_handle_t pool, const char *name) {
    size_t value = SIZE_MAX;
    const std::string path = std::string("umf.pool.by_handle.{}.stats.") + name;
    EXPECT_EQ(umfCtlGet(path.c_str(), &value, sizeof(value), pool), OK) << name;
    return value;
}

class Arena : public testing::Test {
  protected:
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        RangedVmm::reset();
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        EXPECT_EQ(RangedVmm::pages(), 0U) << "all pages were released";
        EXPECT_EQ(RangedVmm::mapped(), 0U) << "all pages were unmapped";
        EXPECT_EQ(RangedVmm::faults(), "");
    }
    void make(const std::string &settings = "") {
        provider = RangedVmm::create();
        const std::string text = "coalescing:arena=yes,arena_page=64K,arena_size=1G" + settings;
        ASSERT_EQ(umfPoolCreateFromTextOver(text.c_str(), provider, &pool), OK) << umfTextError();
    }
    char *take(size_t size, size_t alignment = 0) {
        void *ptr =
            alignment ? umfPoolAlignedMalloc(pool, size, alignment) : umfPoolMalloc(pool, size);
        return static_cast<char *>(ptr);
    }
    size_t held() {
        return counter(pool, "reserved_memory");
    }
    // Blocks of 1 MiB, of which every second one is free.
    std::vector<char *> comb(size_t count) {
        std::vector<char *> blocks, kept;
        for (size_t i = 0; i < count; i++) {
            blocks.push_back(take(MiB));
            memset(blocks.back(), static_cast<int>(i), MiB);
        }
        for (size_t i = 0; i < count; i++) {
            if (i % 2) {
                kept.push_back(blocks[i]);
            } else {
                EXPECT_EQ(umfFree(blocks[i]), OK);
            }
        }
        return kept;
    }
    static void is_comb(const std::vector<char *> &kept) {
        for (size_t i = 0; i < kept.size(); i++) {
            const char value = static_cast<char>(2 * i + 1);
            EXPECT_TRUE(std::all_of(kept[i], kept[i] + MiB, [&](char c) { return c == value; }));
        }
    }
    void free_all(const std::vector<char *> &blocks) {
        for (char *block : blocks) {
            EXPECT_EQ(umfFree(block), OK);
        }
    }
};

} // namespace

// --- pages move ----------------------------------------------------------------------------------

TEST_F(Arena, TakesPagesFromFreePlacesForALargeBlock) {
    make();
    const std::vector<char *> kept = comb(16);
    const size_t before = held();
    char *large = take(8 * MiB - PAGE);
    ASSERT_NE(large, nullptr);
    memset(large, 0x55, 8 * MiB - PAGE);
    EXPECT_LE(held(), before + before / 50) << "no more memory, though no place was large enough";
    EXPECT_GT(counter(pool, "donated_memory"), 6 * MiB);
    is_comb(kept);
    EXPECT_EQ(umfFree(large), OK);
    free_all(kept);
}

TEST_F(Arena, KeepsItsPagesWhereItMustNotMoveThem) {
    make(",donate=off");
    const std::vector<char *> kept = comb(16);
    const size_t before = held();
    char *large = take(8 * MiB - PAGE);
    ASSERT_NE(large, nullptr);
    EXPECT_GE(held(), before + 6 * MiB);
    EXPECT_EQ(counter(pool, "donated_memory"), 0U);
    EXPECT_EQ(umfFree(large), OK);
    free_all(kept);
}

TEST_F(Arena, LeavesOldAddressesMappedUntilATrim) {
    make(",donate=trim");
    const std::vector<char *> kept = comb(16);
    free_all({take(8 * MiB - PAGE)});
    EXPECT_GT(counter(pool, "stale_memory"), 6 * MiB);
    free_all({take(15 * MiB)});
    EXPECT_EQ(RangedVmm::calls("page_unmap"), 0U);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK) << "no work uses them";
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(counter(pool, "stale_memory"), 0U);
    EXPECT_GT(RangedVmm::calls("page_unmap"), 0U);
    is_comb(kept);
    free_all(kept);
}

TEST_F(Arena, GivesFreePagesBackOnATrim) {
    make();
    const std::vector<char *> kept = comb(16);
    EXPECT_EQ(umfPoolTrimMemory(pool, 4 * MiB), OK);
    EXPECT_GE(held(), 12 * MiB);
    EXPECT_LE(held(), 12 * MiB + 4 * PAGE);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_LE(held(), 8 * MiB + 18 * PAGE);
    EXPECT_EQ(RangedVmm::bytes(), held());
    is_comb(kept);
    free_all(kept);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(held(), 0U);
}

TEST_F(Arena, CountsPagesAndNoAddresses) {
    make();
    size_t allocated = SIZE_MAX;
    free_all({take(MiB)});
    ASSERT_EQ(umfCtlGet("umf.provider.by_handle.{}.stats.allocated_memory", &allocated,
                        sizeof(allocated), provider),
              OK);
    EXPECT_EQ(allocated, held());
    EXPECT_EQ(allocated, RangedVmm::bytes());
    EXPECT_EQ(counter(pool, "used_memory"), 0U);
    EXPECT_EQ(counter(pool, "used_peak"), MiB);
}

TEST_F(Arena, AlignsAndRefusesAsOtherPoolsDo) {
    make();
    for (size_t alignment = 1; alignment <= 4 * MiB; alignment *= 2) {
        char *block = take(100, alignment);
        ASSERT_NE(block, nullptr) << alignment;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0U);
        EXPECT_EQ(umfPoolFree(pool, block + 512), BAD);
        EXPECT_EQ(umfPoolFree(pool, block), OK);
        EXPECT_EQ(umfPoolFree(pool, block), BAD) << "freed twice";
    }
    EXPECT_EQ(take(100, 3), nullptr);
    EXPECT_EQ(take(size_t{2} << 30), nullptr) << "more than there are addresses";
    EXPECT_EQ(take(SIZE_MAX), nullptr);
}

// --- what an arena is not
// -------------------------------------------------------------------------

TEST_F(Arena, NeedsAProviderWithRanges) {
    LogFile log;
    EXPECT_EQ(umfPoolCreateFromText("coalescing:arena=yes over os", &pool), NONE);
    pool = nullptr;
    EXPECT_EQ(log.count("cuda_vmm and linux_vmm"), 1U) << log.text();
}

TEST_F(Arena, RefusesWrongParameters) {
    for (const char *text :
         {"watermark=1001", "arena_page=3", "arena_page=4K", "donate=no", "arena=perhaps"}) {
        const std::string whole = std::string("coalescing:arena=yes,") + text + " over linux_vmm";
        EXPECT_EQ(umfPoolCreateFromText(whole.c_str(), &pool), BAD) << text;
    }
    // Addresses for less than a page of each area, or more than there are.
    EXPECT_EQ(umfPoolCreateFromText("coalescing:arena=yes,arena_size=2M over linux_vmm", &pool),
              BAD);
    EXPECT_NE(umfPoolCreateFromText(
                  "coalescing:arena=yes,arena_size=18446744073709551615 over linux_vmm", &pool),
              OK);
    pool = nullptr;
}

TEST_F(Arena, IsChosenAtCreationOnly) {
    bool yes = true;
    ASSERT_EQ(umfCtlSet("umf.pool.default.coalescing.params.arena", &yes, sizeof(yes)), OK);
    EXPECT_EQ(umfPoolCreateFromText("coalescing over linux_vmm", &pool), NONE);
    pool = nullptr;
    yes = false;
    EXPECT_EQ(umfCtlSet("umf.pool.default.coalescing.params.arena", &yes, sizeof(yes)), OK);
}

TEST_F(Arena, RefusesToBeSuspendedOrShared) {
    make();
    char *block = take(MiB);
    umf_ipc_handle_t handle = nullptr;
    size_t size;
    EXPECT_EQ(umfGetIPCHandle(block, &handle, &size), NONE);
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), NONE);
    memset(block, 1, MiB);
    EXPECT_EQ(umfFree(block), OK);
}

TEST_F(Arena, WorksInAPoolThatIsNotTracked) {
    umf_coalescing_pool_params_handle_t params = nullptr;
    ASSERT_EQ(umfCoalescingPoolParamsCreate(&params), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetArena(params, 1), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetArenaPage(params, PAGE), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetArenaSize(params, 64 * MiB), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetWatermark(params, 0), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetDonate(params, UMF_COALESCING_DONATE_YES), OK);
    provider = RangedVmm::create();
    ASSERT_EQ(umfPoolCreate(umfCoalescingPoolOps(), provider, params,
                            UMF_POOL_CREATE_FLAG_DISABLE_TRACKING, &pool),
              OK);
    umfCoalescingPoolParamsDestroy(params);
    char *block = take(300 * KiB);
    memset(block, 1, 300 * KiB);
    EXPECT_EQ(umfPoolFree(pool, block), OK);
}

// --- memory is short -----------------------------------------------------------------------------

TEST_F(Arena, UsesAllThatIsFreeBeforeItFails) {
    make();
    const std::vector<char *> kept = comb(16);
    RangedVmm::limit(RangedVmm::bytes());
    char *large = take(7 * MiB);
    EXPECT_NE(large, nullptr) << "8 MiB were free";
    EXPECT_EQ(take(2 * MiB), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    is_comb(kept);
    EXPECT_EQ(umfFree(large), OK);
    large = take(7 * MiB);
    EXPECT_NE(large, nullptr);
    free_all(kept);
    EXPECT_EQ(umfFree(large), OK);
}

TEST_F(Arena, CountsItsPagesInAGroup) {
    make();
    umf_pool_group_handle_t group = nullptr;
    ASSERT_EQ(umfPoolGroupCreate(4 * MiB, &group), OK);
    ASSERT_EQ(umfPoolGroupAdd(group, pool), OK);
    char *block = take(3 * MiB);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(take(3 * MiB), nullptr) << "more than the group may hold";
    EXPECT_EQ(umfFree(block), OK);
    block = take(3 * MiB);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(umfPoolGroupRemove(group, pool), OK);
    EXPECT_EQ(umfPoolGroupDestroy(group), OK);
}

// --- random programs -----------------------------------------------------------------------------

namespace {

// Blocks with a value in their first and last words, in each page between, and where they end.
struct Program {
    umf_memory_pool_handle_t pool;
    std::minstd_rand random;
    struct Block {
        char *ptr;
        size_t size;
        uint32_t value;
    };
    std::vector<Block> blocks{};

    Program(umf_memory_pool_handle_t of, unsigned seed) : pool(of), random(seed) {}

    template <typename F> static void each(const Block &block, F &&does) {
        for (size_t at = 0; at + 4 <= block.size; at += 16 * KiB) {
            does(block.ptr + at);
        }
        does(block.ptr + block.size - 4);
    }
    void write(Block &block) {
        block.value = static_cast<uint32_t>(random());
        each(block, [&](char *at) { memcpy(at, &block.value, 4); });
    }
    static void check(const Block &block) {
        bool is_right = true;
        each(block, [&](const char *at) { is_right &= memcmp(at, &block.value, 4) == 0; });
        EXPECT_TRUE(is_right) << "a block of " << block.size << " bytes has changed";
    }
    size_t some_size() {
        const size_t top = size_t{1} << (random() % 20);
        return 4 + random() % (top < 16 ? 16 : top) / 4 * 4 * (random() % 16 == 0 ? 4 : 1);
    }
    void take() {
        const size_t size = some_size();
        void *ptr = random() % 4 ? umfPoolMalloc(pool, size)
                                 : umfPoolAlignedMalloc(pool, size, size_t{1} << random() % 18);
        if (ptr) {
            blocks.push_back({static_cast<char *>(ptr), size, 0});
            write(blocks.back());
        }
    }
    void resize(Block &block) {
        const size_t size = some_size();
        void *ptr = umfPoolRealloc(pool, block.ptr, size);
        if (ptr) {
            const size_t kept = std::min(size, block.size);
            check(
                {static_cast<char *>(ptr), 4 + (kept - 4) / (16 * KiB) * (16 * KiB), block.value});
            block = {static_cast<char *>(ptr), size, 0};
            write(block);
        }
    }
    void drop(size_t at) {
        check(blocks[at]);
        EXPECT_EQ(umfFree(blocks[at].ptr), OK);
        blocks[at] = blocks.back();
        blocks.pop_back();
    }
    void step() {
        const unsigned what = static_cast<unsigned>(random() % 100);
        const size_t at = blocks.empty() ? 0 : random() % blocks.size();
        if (what < 45 && blocks.size() < 64) {
            take();
        } else if (what < 90 && !blocks.empty()) {
            drop(at);
        } else if (what < 96 && !blocks.empty()) {
            resize(blocks[at]);
        } else {
            umfPoolTrimMemory(pool, random() % (4 * MiB));
        }
    }
    void end() {
        while (!blocks.empty()) {
            drop(blocks.size() - 1);
        }
    }
};

} // namespace

TEST_F(Arena, KeepsContentInRandomPrograms) {
    ONE_THREAD_ONLY()
    for (size_t seed = 0; seed < scaled(1000); seed++) {
        SCOPED_TRACE(seed);
        make(seed % 4 == 3 ? ",donate=trim" : seed % 4 == 2 ? ",watermark=0" : "");
        Program program(pool, static_cast<unsigned>(seed));
        for (int i = 0; i < 400; i++) {
            program.step();
        }
        program.end();
        EXPECT_EQ(counter(pool, "used_memory"), 0U);
        ASSERT_EQ(umfPoolDestroy(pool), OK);
        ASSERT_EQ(umfMemoryProviderDestroy(provider), OK);
        pool = nullptr, provider = nullptr;
        ASSERT_EQ(RangedVmm::faults(), "");
    }
}

TEST_F(Arena, LosesNothingWhenACallOfTheProviderFails) {
    ONE_THREAD_ONLY()
    for (const char *operation : {"page_create", "page_map", "page_unmap"}) {
        for (size_t n = 1; n <= scaled(400); n++) {
            SCOPED_TRACE(std::string(operation) + " " + std::to_string(n));
            make(n % 2 ? ",watermark=0" : "");
            Program program(pool, static_cast<unsigned>(n));
            RangedVmm::fail(operation, n);
            for (int i = 0; i < 120; i++) {
                program.step();
            }
            RangedVmm::fail("", 0);
            program.end();
            ASSERT_EQ(umfPoolDestroy(pool), OK);
            ASSERT_EQ(umfMemoryProviderDestroy(provider), OK);
            pool = nullptr, provider = nullptr;
            ASSERT_EQ(RangedVmm::pages(), 0U);
            ASSERT_EQ(RangedVmm::faults(), "");
        }
    }
}

TEST_F(Arena, ServesThreadsThatMeet) {
    make(",watermark=0");
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; i++) {
        threads.emplace_back([&, i] {
            Program program(pool, i);
            for (size_t step = 0; step < scaled(5000); step++) {
                program.step();
            }
            program.end();
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(counter(pool, "used_memory"), 0U);
}

// A child has the pages of its parent in common with it, and pages of its own for what is new.
TEST_F(Arena, AChildOfForkLeavesThePagesOfItsParent) {
    make();
    char *block = take(MiB);
    memset(block, 7, MiB);
    const pid_t child = fork();
    if (child == 0) {
        char *own = take(2 * MiB);
        bool is_right = own != nullptr;
        if (own) {
            memset(own, 9, 2 * MiB);
        }
        is_right &= umfFree(block) == OK && umfPoolTrimMemory(pool, 0) == OK;
        is_right &= umfFree(own) == OK && umfPoolDestroy(pool) == OK;
        _exit(is_right ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    char *more = take(2 * MiB);
    memset(more, 8, 2 * MiB);
    EXPECT_TRUE(std::all_of(block, block + MiB, [](char c) { return c == 7; }));
    free_all({block, more});
}

// --- peaks ---------------------------------------------------------------------------------------

// Training with sequences of random length; fakes/training.h says how it is made.
TEST_F(Arena, HoldsLittleMoreThanATrainingUses) {
    for (const Training::Kind kind :
         {Training::VARIABLE, Training::CHECKPOINTED, Training::FIXED}) {
        double ratio[2];
        for (int donates = 0; donates < 2; donates++) {
            make(donates ? "" : ",donate=off");
            Training training(kind);
            ASSERT_TRUE(training.run([&](size_t size) { return umfPoolMalloc(pool, size); },
                                     [](void *ptr) { EXPECT_EQ(umfFree(ptr), OK); }));
            ratio[donates] = static_cast<double>(counter(pool, "reserved_peak")) /
                             static_cast<double>(counter(pool, "used_peak"));
            ASSERT_EQ(umfPoolDestroy(pool), OK);
            ASSERT_EQ(umfMemoryProviderDestroy(provider), OK);
            pool = nullptr, provider = nullptr;
        }
        EXPECT_LE(ratio[1], 1.016) << "kind " << kind;
        if (kind != Training::FIXED) {
            EXPECT_GT(ratio[0], 1.03) << "a trace that shows nothing, kind " << kind;
        }
        RecordProperty("reserved_of_live_" + std::to_string(kind), std::to_string(ratio[1]));
    }
}
