/*
 * The arena: pages that move to where blocks need them. Over linux_vmm, whose memory the CPU
 * reads: a page at two live addresses shows as a block that changes. With queues:
 * gpu/arena_test.cpp.
 */
#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf/ipc.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/providers/provider_linux_vmm.h>
#include <umf/queue.h>
#include <umf/reclaim.h>

#include "fakes/log_file.h"
#include "fakes/training.h"
#include "unit/arena.h"

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

TEST_F(Arena, LeavesUnmappingToTheBackgroundThread) {
    bool background = true;
    ASSERT_EQ(umfCtlSet("umf.reclaim.background", &background, sizeof(background)), OK);
    make();
    const std::vector<char *> kept = comb(16);
    char *first = take(4 * MiB), *second = take(3 * MiB);
    EXPECT_GT(counter(pool, "donated_memory"), 5 * MiB);
    while (counter(pool, "stale_memory") > 0) {
        std::this_thread::yield();
    }
    EXPECT_FALSE(RangedVmm::has_unmapped());
    EXPECT_GT(RangedVmm::calls("page_unmap"), 0U);
    background = false;
    ASSERT_EQ(umfCtlSet("umf.reclaim.background", &background, sizeof(background)), OK);
    is_comb(kept);
    free_all({first, second});
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

TEST_F(Arena, RefusesToBeShared) {
    make();
    char *block = take(MiB);
    umf_ipc_handle_t handle = nullptr;
    size_t size;
    EXPECT_EQ(umfGetIPCHandle(block, &handle, &size), NONE);
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

// A child shares the pages of its parent, and has pages of its own for new blocks.
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
