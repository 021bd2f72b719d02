// Snapshots (src/record/snapshot*.c), and spans as pools report them.
#include <atomic>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/memory_pool_ext.h>
#include <umf/record.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include <gtest/gtest.h>

#include "fakes/kinds.h"
#include "fakes/scale.h"
#include "fakes/snapshot.h"

namespace {

// A path that goes with the test.
struct File {
    std::string path = fresh_path();
    ~File() {
        unlink(path.c_str());
    }
};

Snapshot take() {
    File file;
    EXPECT_EQ(umfRecordSnapshot(file.path.c_str()), UMF_RESULT_SUCCESS);
    return Snapshot(file.path);
}

struct Pool {
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t handle = nullptr;

    Pool(const std::string &kind, const char *below = "os") {
        EXPECT_EQ(umfPoolCreateFromText((kind + " over " + below).c_str(), &handle),
                  UMF_RESULT_SUCCESS)
            << umfTextError();
        umfPoolGetMemoryProvider(handle, &provider);
    }
    ~Pool() {
        if (handle) {
            umfPoolDestroy(handle);
        }
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;
};

class Walk : public ::testing::TestWithParam<const char *> {
  protected:
    bool is(const char *kind) const {
        return strcmp(GetParam(), kind) == 0;
    }
};

bool has_kind(const char *kind) {
    for (const Listed &pool : listed_pools()) {
        if (strcmp(pool.id, kind) == 0) {
            return pool.available && (strcmp(kind, "scalable") != 0 || has_one_tbb());
        }
    }
    return false;
}

TEST_P(Walk, EveryBlockIsThereAndHasItsState) {
    if (!has_kind(GetParam())) {
        GTEST_SKIP() << "this build or machine has no such pool";
    }
    Pool pool(GetParam());
    std::mt19937 random(25);
    std::vector<std::pair<char *, size_t>> live, freed;
    for (int i = 0; i < 4000; i++) {
        size_t size = 1 + random() % (i % 50 ? 2000 : 60000);
        char *ptr = (char *)umfPoolMalloc(pool.handle, size);
        ASSERT_NE(ptr, nullptr);
        live.push_back({ptr, size});
    }
    for (size_t i = live.size(); i-- > 0;) {
        if (random() % 2) {
            EXPECT_EQ(umfPoolFree(pool.handle, live[i].first), UMF_RESULT_SUCCESS);
            freed.push_back(live[i]);
            live.erase(live.begin() + (ptrdiff_t)i);
        }
    }
    Snapshot snapshot = take();
    const umf_record_object_t &object = snapshot.of(pool.handle);
    EXPECT_EQ(object.kind, (uint32_t)UMF_RECORD_OBJECT_POOL);
    EXPECT_STREQ(object.name, GetParam());
    EXPECT_EQ(object.live_count, live.size());
    EXPECT_EQ(object.flags, 0u);
    uint64_t bytes = 0;
    for (const auto &block : live) {
        uint64_t size = 0;
        ASSERT_EQ(snapshot.state_at(block.first, &size), (uint32_t)UMF_RECORD_STATE_LIVE);
        ASSERT_GE(size, block.second);
        ASSERT_EQ(snapshot.span_at(block.first)->object, snapshot.number(pool.handle));
        bytes += size;
    }
    EXPECT_EQ(object.live, bytes);
    for (const auto &block : freed) {
        ASSERT_NE(snapshot.state_around(block.first), (uint32_t)UMF_RECORD_STATE_LIVE);
    }
    const umf_record_object_t &below = snapshot.objects[object.parent];
    EXPECT_EQ(below.handle, (uintptr_t)pool.provider);
    EXPECT_EQ(below.kind, (uint32_t)UMF_RECORD_OBJECT_PROVIDER);
    EXPECT_GE(below.peak, below.held);
    EXPECT_GT(below.held, 0u);
    for (const auto &block : live) {
        umfPoolFree(pool.handle, block.first);
    }
    snapshot = take();
    EXPECT_EQ(snapshot.of(pool.handle).live, 0u);
    EXPECT_EQ(snapshot.of(pool.handle).live_count, 0u);
}

TEST_P(Walk, LargeBlocks) {
    if (!has_kind(GetParam())) {
        GTEST_SKIP() << "this build or machine has no such pool";
    }
    Pool pool(GetParam());
    std::vector<void *> live;
    for (size_t size : {100u << 10, 300u << 10, 1u << 20, 5u << 20}) {
        live.push_back(umfPoolMalloc(pool.handle, size));
        void *freed = umfPoolMalloc(pool.handle, size);
        live.push_back(umfPoolMalloc(pool.handle, size));
        umfPoolFree(pool.handle, freed);
    }
    Snapshot snapshot = take();
    EXPECT_EQ(snapshot.of(pool.handle).live_count, live.size());
    for (void *ptr : live) {
        uint32_t state = snapshot.state_around(ptr);
        EXPECT_TRUE(state == UMF_RECORD_STATE_LIVE ||
                    (is("scalable") && state == UMF_RECORD_STATE_UNKNOWN));
        EXPECT_EQ(umfPoolFree(pool.handle, ptr), UMF_RESULT_SUCCESS);
    }
    if (is("scalable")) { // oneTBB has no size for a block that may be freed meanwhile
        EXPECT_EQ(snapshot.of(pool.handle).live, UMF_RECORD_UNKNOWN);
    }
}

TEST_P(Walk, OverAlignedBlocksLive) {
    if (!has_kind(GetParam())) {
        GTEST_SKIP() << "this build or machine has no such pool";
    }
    Pool pool(GetParam());
    std::vector<void *> live;
    for (size_t alignment : {64u, 512u, 4096u, 16384u, 65536u}) {
        void *ptr = umfPoolAlignedMalloc(pool.handle, 200, alignment);
        ASSERT_NE(ptr, nullptr) << alignment;
        live.push_back(ptr);
    }
    Snapshot snapshot = take();
    EXPECT_EQ(snapshot.of(pool.handle).live_count, live.size());
    for (void *ptr : live) {
        uint32_t state = snapshot.state_around(ptr);
        EXPECT_TRUE(state == UMF_RECORD_STATE_LIVE || is("scalable")) << state;
        umfPoolFree(pool.handle, ptr);
    }
}

// A region with more pieces than are looked at under one lock.
TEST_P(Walk, ManyBlocksInOneSpan) {
    if (!has_kind(GetParam())) {
        GTEST_SKIP() << "this build or machine has no such pool";
    }
    Pool pool(GetParam());
    std::vector<void *> blocks;
    // Of a coalescing pool also more runs than are written at once.
    const int count = std::string(GetParam()) == "coalescing" ? 80000 : 20000;
    for (int i = 0; i < count; i++) {
        blocks.push_back(umfPoolMalloc(pool.handle, i % 2 ? 64 : 200));
    }
    for (size_t i = 0; i < blocks.size(); i += 3) {
        umfPoolFree(pool.handle, blocks[i]);
    }
    Snapshot snapshot = take();
    std::set<uint64_t> live;
    for (const umf_record_run_t &run : snapshot.runs) {
        for (uint32_t i = 0; run.state == UMF_RECORD_STATE_LIVE && i < run.count; i++) {
            live.insert(run.base + i * run.size);
        }
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        ASSERT_EQ(live.count((uintptr_t)blocks[i]), i % 3 ? 1u : 0u);
        if (i % 3) {
            umfPoolFree(pool.handle, blocks[i]);
        }
    }
}

void work(umf_memory_pool_handle_t pool, unsigned seed, const std::atomic<bool> &ends) {
    std::mt19937 random(seed);
    std::vector<void *> mine(256);
    while (!ends) {
        void *&ptr = mine[random() % mine.size()];
        umfPoolFree(pool, ptr);
        ptr = umfPoolMalloc(pool, 1 + random() % (random() % 20 ? 3000 : 300000));
    }
    for (void *ptr : mine) {
        umfPoolFree(pool, ptr);
    }
}

// The parts of each snapshot agree (fakes/snapshot.h), whatever goes on meanwhile.
TEST_P(Walk, WhileOthersAllocateAndFree) {
    if (!has_kind(GetParam())) {
        GTEST_SKIP() << "this build or machine has no such pool";
    }
    Pool pool(GetParam());
    std::atomic<bool> ends{false};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; i++) {
        threads.emplace_back([&, i] { work(pool.handle, i, ends); });
    }
    void *mine = umfPoolMalloc(pool.handle, 1000);
    for (size_t i = 0; i < scaled(200); i++) {
        Snapshot snapshot = take();
        EXPECT_EQ(snapshot.state_at(mine), (uint32_t)UMF_RECORD_STATE_LIVE);
    }
    ends = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    umfPoolFree(pool.handle, mine);
}

TEST_P(Walk, WhileThePoolIsTrimmed) {
    if (!has_kind(GetParam())) {
        GTEST_SKIP() << "this build or machine has no such pool";
    }
    Pool pool(GetParam());
    std::atomic<bool> ends{false};
    std::thread trims([&] {
        while (!ends) {
            umfPoolTrimMemory(pool.handle, 0);
        }
    });
    std::thread works([&] { work(pool.handle, 7, ends); });
    for (size_t i = 0; i < scaled(200); i++) {
        take();
    }
    ends = true;
    trims.join();
    works.join();
}

INSTANTIATE_TEST_SUITE_P(Pools, Walk,
                         ::testing::Values("disjoint", "coalescing", "jemalloc", "scalable",
                                           "proxy"),
                         [](const auto &kind) { return std::string(kind.param); });

TEST(Snapshot, PoolsThatComeAndGo) {
    std::atomic<bool> ends{false};
    std::thread makes([&] {
        for (unsigned i = 0; !ends; i++) {
            const char *kinds[] = {"disjoint", "coalescing", "proxy"};
            Pool pool(kinds[i % 3]);
            void *ptr = umfPoolMalloc(pool.handle, 100);
            umfPoolFree(pool.handle, ptr);
        }
    });
    for (size_t i = 0; i < scaled(500); i++) {
        take();
    }
    ends = true;
    makes.join();
}

TEST(Snapshot, WithoutTrackingOnlyTheCountIsKnown) {
    umf_memory_provider_handle_t provider;
    umf_memory_pool_handle_t pool;
    ASSERT_EQ(umfMemoryProviderCreateFromText("os", &provider), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr,
                            UMF_POOL_CREATE_FLAG_DISABLE_TRACKING, &pool),
              UMF_RESULT_SUCCESS);
    void *ptr = umfPoolMalloc(pool, 100);
    Snapshot snapshot = take();
    EXPECT_EQ(snapshot.of(pool).live_count, 1u);
    EXPECT_EQ(snapshot.of(pool).live, UMF_RECORD_UNKNOWN);
    EXPECT_EQ(snapshot.of(pool).held, UMF_RECORD_UNKNOWN);
    umfPoolFree(pool, ptr);
    umfPoolDestroy(pool);
    umfMemoryProviderDestroy(provider);
}

TEST(Snapshot, ASuspendedPoolIsAway) {
    Pool pool("disjoint", "linux_vmm");
    void *ptr = umfPoolMalloc(pool.handle, 3 << 20);
    ASSERT_NE(ptr, nullptr);
    ASSERT_EQ(umfPoolsSuspend(&pool.handle, 1, nullptr, nullptr), UMF_RESULT_SUCCESS);
    Snapshot snapshot = take();
    const umf_record_object_t &object = snapshot.of(pool.handle);
    EXPECT_EQ(object.flags, (uint32_t)UMF_RECORD_OBJECT_IS_ASLEEP);
    EXPECT_GT(object.away, 0u);
    EXPECT_EQ(snapshot.span_at(ptr)->flags, (uint32_t)UMF_RECORD_SPAN_IS_AWAY);
    EXPECT_EQ(snapshot.state_at(ptr), (uint32_t)UMF_RECORD_STATE_LIVE);
    ASSERT_EQ(umfPoolsResume(&pool.handle, 1, nullptr, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(take().of(pool.handle).away, 0u);
    umfPoolFree(pool.handle, ptr);
}

TEST(Snapshot, WhatIsExportedAndImported) {
    Pool pool("proxy", "os:visibility=shared");
    void *ptr = umfPoolMalloc(pool.handle, 8192), *opened = nullptr;
    umf_ipc_handle_t ipc;
    umf_ipc_handler_handle_t handler;
    size_t size;
    ASSERT_EQ(umfGetIPCHandle(ptr, &ipc, &size), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfPoolGetIPCHandler(pool.handle, &handler), UMF_RESULT_SUCCESS);
    uint64_t before = take().of(pool.provider).held;
    ASSERT_EQ(umfOpenIPCHandle(handler, ipc, &opened), UMF_RESULT_SUCCESS);
    Snapshot snapshot = take();
    EXPECT_EQ(snapshot.span_at(ptr)->flags, (uint32_t)UMF_RECORD_SPAN_IS_EXPORTED);
    ASSERT_NE(snapshot.span_at(opened), nullptr);
    EXPECT_EQ(snapshot.span_at(opened)->flags, (uint32_t)UMF_RECORD_SPAN_IS_IMPORT);
    EXPECT_EQ(snapshot.span_at(opened)->object, snapshot.number(pool.provider));
    EXPECT_EQ(snapshot.of(pool.provider).held, before) << "memory of others is not counted";
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPutIPCHandle(ipc), UMF_RESULT_SUCCESS);
    umfPoolFree(pool.handle, ptr);
}

// The snapshot of a process that records with `leaks` has live allocations, with stacks, and its
// objects have the numbers that those name.
TEST(Snapshot, WhatLivesOfARecording) {
    Pool before("disjoint"), gone("proxy");
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    params.leaks = 1;
    params.stack_depth = 8;
    params.size = 1 << 20;
    ASSERT_EQ(umfRecordStart(&params), UMF_RESULT_SUCCESS);
    Pool after("coalescing");
    void *kept[] = {umfPoolMalloc(before.handle, 700), umfPoolMalloc(after.handle, 7000)};
    umfPoolFree(before.handle, umfPoolMalloc(before.handle, 800));
    umfPoolDestroy(gone.handle);
    gone.handle = nullptr;
    Snapshot snapshot = take();
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(snapshot.header.flags & UMF_RECORD_HAS_LIVE);
    ASSERT_EQ(snapshot.live.size(), 2u);
    for (const umf_record_event_t &event : snapshot.live) {
        bool is_first = event.address == (uintptr_t)kept[0];
        EXPECT_EQ(event.address, (uintptr_t)kept[is_first ? 0 : 1]);
        EXPECT_EQ(event.size, is_first ? 700u : 7000u);
        EXPECT_EQ(UMF_RECORD_EVENT_OBJECT(event.what),
                  snapshot.number((is_first ? before : after).handle));
        EXPECT_LT(UMF_RECORD_EVENT_STACK(event.what), snapshot.stacks.size());
        EXPECT_NE(UMF_RECORD_EVENT_STACK(event.what), 0u);
    }
    EXPECT_EQ(snapshot.state_at(kept[1]), (uint32_t)UMF_RECORD_STATE_LIVE);
    umfPoolFree(before.handle, kept[0]);
    umfPoolFree(after.handle, kept[1]);
}

TEST(Snapshot, WhatLivesOfARecordingWithoutStacks) {
    Pool pool("disjoint");
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    params.leaks = 1;
    ASSERT_EQ(umfRecordStart(&params), UMF_RESULT_SUCCESS);
    void *ptr = umfPoolMalloc(pool.handle, 700);
    Snapshot snapshot = take();
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
    ASSERT_EQ(snapshot.live.size(), 1u);
    EXPECT_EQ(snapshot.live[0].address, (uintptr_t)ptr);
    umfPoolFree(pool.handle, ptr);
}

TEST(Snapshot, OfOneNameByThreadsAtOnceIsWhole) {
    Pool pool("disjoint");
    void *ptr = umfPoolMalloc(pool.handle, 100);
    File file;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([&] {
            for (size_t round = 0; round < scaled(100); round++) {
                EXPECT_EQ(umfRecordSnapshot(file.path.c_str()), UMF_RESULT_SUCCESS);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_FALSE(Snapshot(file.path).spans.empty());
    umfPoolFree(pool.handle, ptr);
}

TEST(Snapshot, WhatCannotBeWrittenLeavesNothingBehind) {
    EXPECT_EQ(umfRecordSnapshot(nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfRecordSnapshot("/nonexistent/a"), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfRecordSnapshot(std::string(5000, 'x').c_str()), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    File folder;
    ASSERT_EQ(mkdir(folder.path.c_str(), 0700), 0);
    ASSERT_EQ(mkdir((folder.path + "/taken").c_str(), 0700), 0);
    EXPECT_EQ(umfRecordSnapshot((folder.path + "/taken").c_str()),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(rmdir((folder.path + "/taken").c_str()), 0);
    EXPECT_EQ(rmdir(folder.path.c_str()), 0) << "something is left";
}

} // namespace

// The range of an arena is addresses: what it holds is the pages that are mapped there.
TEST(Snapshot, HasThePagesOfAnArena) {
    Pool pool("coalescing:arena=yes,arena_page=64K,arena_size=1G,watermark=0", "linux_vmm");
    std::vector<void *> blocks;
    for (int i = 0; i < 8; i++) {
        blocks.push_back(umfPoolMalloc(pool.handle, 1 << 20));
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
        EXPECT_EQ(umfFree(blocks[i]), UMF_RESULT_SUCCESS);
    }
    blocks.push_back(umfPoolMalloc(pool.handle, 3 << 20)); // pages move to it
    Snapshot snapshot = take();
    const umf_record_object_t &object = snapshot.of(pool.handle);
    EXPECT_EQ(object.live, 7u << 20);
    EXPECT_EQ(object.live_count, 5u);
    EXPECT_GE(object.held, 7u << 20);
    EXPECT_LE(object.held, 9u << 20);
    for (size_t i = 1; i < blocks.size(); i += 2) {
        uint64_t size = 0;
        EXPECT_EQ(snapshot.state_at(blocks[i], &size), (uint32_t)UMF_RECORD_STATE_LIVE);
        EXPECT_EQ(umfFree(blocks[i]), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(umfFree(blocks.back()), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPoolTrimMemory(pool.handle, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(take().of(pool.handle).held, 0u);
}
