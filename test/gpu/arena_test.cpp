// Arenas with streams: pages that queued work uses are mapped elsewhere, and the oracle of the
// software driver looks whether the next use comes after that work.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "fakes/scale.h"
#include "fakes/vmm_kinds.h"
#include "program.h"

#include <umf/experimental/ctl.h>
#include <umf/ipc_ext.h>
#include <umf/registration.h>
#include <umf/suspend.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t MiB = size_t{1} << 20;

class GpuArena : public testing::Test {
  protected:
    umf_memory_pool_handle_t pool = nullptr;
    Kernels kernels;

    void SetUp() override {
        start_cuda_vmm();
        kernels.load();
    }
    void TearDown() override {
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->illegal_accesses, 0);
            EXPECT_EQ(driver().control()->unordered_unmaps, 0);
            EXPECT_STREQ(driver().faults(), "");
        }
        stop_cuda_vmm();
    }
    void make(const std::string &settings) {
        const std::string text = "coalescing:arena=yes" + settings + " over cuda_vmm:device=0";
        ASSERT_EQ(umfPoolCreateFromText(text.c_str(), &pool), OK) << umfTextError();
    }
    size_t counter(const char *name) {
        size_t value = SIZE_MAX;
        const std::string path = std::string("umf.pool.by_handle.{}.stats.") + name;
        EXPECT_EQ(umfCtlGet(path.c_str(), &value, sizeof(value), pool), OK) << name;
        return value;
    }
    void *take(size_t size, CUstream stream) {
        void *ptr = umfPoolMallocOn(pool, size, 0, stream);
        EXPECT_NE(ptr, nullptr);
        if (!driver().is_real) {
            driver().handed_out(ptr, size, stream);
        }
        CU_work(ptr, size, stream);
        return ptr;
    }
    static void CU_work(void *ptr, size_t size, CUstream stream) {
        EXPECT_EQ(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(ptr), 1, size, stream),
                  CUDA_SUCCESS);
    }
    static void drop(void *ptr, size_t size, CUstream stream) {
        if (!driver().is_real) {
            driver().given_back(ptr, size);
        }
        EXPECT_EQ(umfFreeOn(ptr, stream), OK);
    }
};

} // namespace

// Pages of one stream, with work on them, serve the other one.
TEST_F(GpuArena, DonatesPagesThatQueuedWorkUses) {
    CUstream streams[2] = {};
    for (CUstream &stream : streams) {
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    make(",watermark=0");
    std::vector<void *> blocks;
    for (int i = 0; i < 8; i++) {
        blocks.push_back(take(4 * MiB, streams[0]));
    }
    const size_t held = counter("reserved_memory");
    for (size_t i = 0; i < blocks.size(); i += 2) {
        drop(blocks[i], 4 * MiB, streams[0]);
    }
    void *large = take(12 * MiB, streams[1]);
    EXPECT_GT(counter("donated_memory"), 8 * MiB);
    EXPECT_LE(counter("reserved_memory"), held + 2 * MiB);
    drop(large, 12 * MiB, streams[1]);
    for (size_t i = 1; i < blocks.size(); i += 2) {
        drop(blocks[i], 4 * MiB, streams[0]);
    }
    size_t bytes = 0;
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, &bytes), OK);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(counter("stale_memory"), 0U);
    EXPECT_EQ(counter("reserved_memory"), 0U);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    for (CUstream stream : streams) {
        CU(cuStreamDestroy(stream));
    }
}

// A callback refuses donated pages, which queued work still uses, in one place. In the next place
// they serve behind that work.
TEST_F(GpuArena, PagesThatACallbackRefusesStayBehindTheirWork) {
    NEEDS_FAKE()
    CUstream streams[2] = {};
    for (CUstream &stream : streams) {
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    make(",watermark=0");
    static bool refuses;
    refuses = false;
    umf_memory_callbacks_t callbacks = UMF_MEMORY_CALLBACKS_INIT;
    callbacks.mapped = [](void *, umf_memory_pool_handle_t, const umf_memory_run_t *) {
        return std::exchange(refuses, false) ? UMF_RESULT_ERROR_OUT_OF_RESOURCES : OK;
    };
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &callbacks), OK);
    const size_t sizes[] = {2 * MiB, 4 * MiB, 2 * MiB, 2 * MiB, 4 * MiB, 2 * MiB};
    std::vector<void *> blocks;
    for (size_t size : sizes) {
        blocks.push_back(take(size, streams[0]));
    }
    drop(blocks[1], sizes[1], streams[0]); // its addresses become a hole
    void *large = take(6 * MiB, streams[0]);
    drop(blocks[2], sizes[2], streams[0]); // free behind it, and idle
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
    EXPECT_EQ(counter("stale_memory"), 0U);
    CU_work(blocks[4], sizes[4], streams[0]);
    drop(blocks[4], sizes[4], streams[0]); // its pages serve
    refuses = true;
    void *next = take(6 * MiB, streams[1]);
    EXPECT_FALSE(refuses);
    EXPECT_GT(next, large) << "not in the hole";
    drop(next, 6 * MiB, streams[1]);
    drop(large, 6 * MiB, streams[0]);
    for (size_t i : {0, 3, 5}) {
        drop(blocks[i], sizes[i], streams[0]);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    for (CUstream stream : streams) {
        CU(cuStreamDestroy(stream));
    }
}

// A block of donated pages in another mapping. It is freed on a queue while its handle is out: its
// pages serve after the put, and in order behind that queue.
TEST_F(GpuArena, SharesBlocksAndKeepsTheQueueOfAFree) {
    NEEDS_FAKE()
    CUstream streams[2] = {};
    for (CUstream &stream : streams) {
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    ASSERT_EQ(umfPoolCreateFromText("coalescing:arena=yes,watermark=0 over "
                                    "cuda_vmm:device=0,share=fd",
                                    &pool),
              OK)
        << umfTextError();
    void *blocks[4];
    for (void *&block : blocks) {
        block = take(4 * MiB, streams[0]);
    }
    drop(blocks[0], 4 * MiB, streams[0]);
    drop(blocks[2], 4 * MiB, streams[0]);
    char *shared = static_cast<char *>(take(6 * MiB, streams[0]));
    EXPECT_GT(counter("donated_memory"), 4 * MiB);
    CU(cuStreamSynchronize(streams[0]));
    umf_ipc_handler_handle_t handler = nullptr;
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    void *view = nullptr;
    ASSERT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
    ASSERT_EQ(umfGetIPCHandle(shared + MiB, &handle, &size), OK);
    const std::string bytes(reinterpret_cast<const char *>(handle), size);
    ASSERT_EQ(umfOpenIPCHandleSized(handler, bytes.data(), size, &view), OK);
    EXPECT_NE(view, shared + MiB);
    std::vector<unsigned char> host(5 * MiB);
    CU(cuMemcpyDtoH(host.data(), reinterpret_cast<CUdeviceptr>(view), host.size()));
    EXPECT_TRUE(std::all_of(host.begin(), host.end(), [](unsigned char c) { return c == 1; }));
    EXPECT_EQ(umfCloseIPCHandle(view), OK);
    CU_work(shared, 6 * MiB, streams[0]);
    EXPECT_EQ(umfFreeOn(shared, streams[0]), OK);
    EXPECT_NE(umfFreeOn(shared, streams[0]), OK) << "freed before";
    void *other = take(6 * MiB, streams[1]);
    EXPECT_NE(other, shared);
    ASSERT_EQ(umfOpenIPCHandleSized(handler, bytes.data(), size, &view), OK);
    EXPECT_EQ(umfCloseIPCHandle(view), OK);
    driver().given_back(shared, 6 * MiB);
    EXPECT_EQ(umfPutIPCHandle(handle), OK);
    EXPECT_EQ(take(6 * MiB, streams[1]), shared) << "behind the work of the other stream";
    EXPECT_NE(umfOpenIPCHandleSized(handler, bytes.data(), size, &view), OK);
    drop(shared, 6 * MiB, streams[1]);
    drop(other, 6 * MiB, streams[1]);
    drop(blocks[1], 4 * MiB, streams[0]);
    drop(blocks[3], 4 * MiB, streams[0]);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    for (CUstream stream : streams) {
        CU(cuStreamDestroy(stream));
    }
}

// What a queue has used before it ended is waited for, though another queue has its number by then.
TEST_F(GpuArena, WaitsForUsesOfAQueueThatHasEnded) {
    NEEDS_FAKE()
    for (bool is_shared : {false, true}) {
        SCOPED_TRACE(is_shared);
        CUstream old = nullptr, next = nullptr;
        umf_ipc_handle_t handle = nullptr;
        size_t size = 0;
        CU(cuStreamCreate(&old, CU_STREAM_NON_BLOCKING));
        ASSERT_EQ(
            umfPoolCreateFromText("coalescing:arena=yes over cuda_vmm:device=0,share=fd", &pool),
            OK)
            << umfTextError();
        void *block = take(4 * MiB, old);
        if (is_shared) {
            ASSERT_EQ(umfGetIPCHandle(block, &handle, &size), OK);
            EXPECT_EQ(umfFreeOn(block, old), OK);
        } else {
            EXPECT_EQ(umfUseOn(block, old), OK);
        }
        EXPECT_EQ(umfQueueEnds(old), OK);
        CU(cuStreamDestroy(old));
        CU(cuStreamCreate(&next, CU_STREAM_NON_BLOCKING));
        void *other = take(4 * MiB, next);
        driver().given_back(block, 4 * MiB);
        EXPECT_EQ(is_shared ? umfPutIPCHandle(handle) : umfFreeOn(block, next), OK);
        void *again = take(4 * MiB, next); // the driver's oracle knows the work of the old one
        drop(again, 4 * MiB, next);
        drop(other, 4 * MiB, next);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        CU(cuStreamDestroy(next));
    }
}

// An arena has numbers for 62 queues. That of a queue which a live block names is given to no other
// one; where blocks name them all, the block waits for all work of the device.
TEST_F(GpuArena, KeepsTheNumberOfAQueueThatABlockNames) {
    NEEDS_FAKE()
    constexpr size_t size = MiB / 2;
    for (bool names_all : {false, true}) {
        SCOPED_TRACE(names_all);
        std::vector<CUstream> streams(64);
        std::vector<void *> blocks;
        make("");
        for (CUstream &stream : streams) {
            CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            blocks.push_back(take(size, stream));
            if (names_all || blocks.size() == 1) {
                ASSERT_EQ(umfUseOn(blocks.back(), stream), OK);
            }
        }
        for (size_t i = 0; i < streams.size(); i++) {
            CU_work(blocks[i], size, streams[i]);
        }
        driver().given_back(blocks[0], size);
        EXPECT_EQ(umfFreeOn(blocks[0], streams.back()), OK);
        void *again = take(size, streams.back()); // the driver's oracle knows the work of the first
        EXPECT_EQ(again, blocks[0]);
        drop(again, size, streams.back());
        for (size_t i = 1; i < streams.size(); i++) {
            drop(blocks[i], size, streams[i]);
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        for (CUstream stream : streams) {
            CU(cuStreamDestroy(stream));
        }
    }
}

// A queue may get work after its last mark has passed, and end.
TEST_F(GpuArena, KeepsTheNumberOfAnEndedQueueThatABlockNames) {
    NEEDS_FAKE()
    CUstream old = nullptr, next = nullptr;
    size_t bytes = 0;
    make("");
    CU(cuStreamCreate(&old, CU_STREAM_NON_BLOCKING));
    void *block = take(MiB, old), *freed = take(MiB, old);
    EXPECT_EQ(umfUseOn(block, old), OK);
    drop(freed, MiB, old);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, &bytes), OK);
    CU_work(block, MiB, old);
    EXPECT_EQ(umfQueueEnds(old), OK);
    CU(cuStreamDestroy(old));
    CU(cuStreamCreate(&next, CU_STREAM_NON_BLOCKING));
    void *other = take(MiB, next); // the queue has a number from now on
    driver().given_back(block, MiB);
    EXPECT_EQ(umfFreeOn(block, next), OK);
    void *again = take(MiB, next); // the driver's oracle knows the work of the old one
    drop(again, MiB, next);
    drop(other, MiB, next);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    CU(cuStreamDestroy(next));
}

// Each round needs the numbers of all queues of the round before, whose blocks have named them.
TEST_F(GpuArena, GivesNumbersToOtherQueuesAfterBlocksThatNameThemAreFreed) {
    NEEDS_FAKE()
    constexpr size_t size = MiB / 2;
    enum { TWICE, SEVERAL, HOST_WAITS, SMALLER, STILL_LIVE, ROUNDS };
    std::vector<CUstream> all;
    std::vector<void *> kept;
    make("");
    for (int round = 0; round <= ROUNDS; round++) {
        SCOPED_TRACE(round);
        std::vector<CUstream> streams(62);
        for (CUstream &stream : streams) {
            CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            void *block = take(size, stream);
            ASSERT_NE(block, nullptr);
            EXPECT_EQ(umfUseOn(block, stream), OK);
            EXPECT_EQ(umfUseOn(block, round == SEVERAL ? streams[0] : stream), OK);
            if (round == SMALLER) {
                CU(cuStreamSynchronize(stream));
                driver().given_back(block, size);
                EXPECT_EQ(umfPoolRealloc(pool, block, size / 2), block);
                driver().handed_out(block, size / 2, stream);
                EXPECT_EQ(umfUseOn(block, stream), OK);
            }
            if (round == STILL_LIVE) {
                kept.push_back(block);
            } else if (round == HOST_WAITS) {
                CU(cuStreamSynchronize(stream));
                driver().given_back(block, size);
                EXPECT_EQ(umfFree(block), OK);
            } else {
                drop(block, round == SMALLER ? size / 2 : size, stream);
            }
        }
        all.insert(all.end(), streams.begin(), streams.end());
    }
    for (size_t i = 0; i < kept.size(); i++) {
        drop(kept[i], size, all[STILL_LIVE * 62 + i]);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    for (CUstream stream : all) {
        CU(cuStreamDestroy(stream));
    }
}

// However far the host is ahead: each block that the second stream takes needs a mark of its own.
TEST_F(GpuArena, IsFarAheadOfTheDeviceWithoutAWait) {
    NEEDS_FAKE()
    CUstream streams[2] = {};
    for (CUstream &stream : streams) {
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    make("");
    std::vector<void *> blocks(100);
    for (void *&block : blocks) {
        block = take(MiB, streams[0]);
    }
    const long before = driver().control()->calls[FAKE_cuEventSynchronize];
    for (void *block : blocks) {
        drop(block, MiB, streams[0]);
        EXPECT_EQ(take(MiB, streams[1]), block) << "all else is in use";
    }
    EXPECT_EQ(driver().control()->calls[FAKE_cuEventSynchronize], before);
    for (void *block : blocks) {
        drop(block, MiB, streams[1]);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    for (CUstream stream : streams) {
        CU(cuStreamDestroy(stream));
    }
}

// Pages that have moved and that queued work uses are away after a suspend, and back at their
// addresses after the resume, also those of a graph.
TEST_F(GpuArena, IsSuspendedAfterItsWork) {
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    make(",watermark=0");
    void *blocks[4];
    for (void *&block : blocks) {
        block = take(4 * MiB, stream);
    }
    drop(blocks[0], 4 * MiB, stream);
    drop(blocks[2], 4 * MiB, stream);
    void *large = take(6 * MiB, stream); // of donated pages
    EXPECT_GT(counter("donated_memory"), 4 * MiB);
    CUgraph graph = nullptr;
    CUgraphExec ready = nullptr;
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    void *captured = take(2 * MiB, stream);
    drop(captured, 2 * MiB, stream); // the graph uses it all the same
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphInstantiateWithFlags(&ready, graph, 0));
    const size_t held = counter("reserved_memory");
    size_t before = 0, away = 0, total;
    CU(cuMemGetInfo(&before, &total));
    Program::takes_away(true);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    CU(cuMemGetInfo(&away, &total));
    EXPECT_GE(away, before + 16 * MiB);
    EXPECT_EQ(umfPoolMallocOn(pool, 1, 0, stream), nullptr);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    Program::takes_away(false);
    EXPECT_LE(counter("reserved_memory"), held);
    unsigned char *host = static_cast<unsigned char *>(malloc(6 * MiB));
    CU(cuMemcpyDtoH(host, reinterpret_cast<CUdeviceptr>(large), 6 * MiB));
    EXPECT_TRUE(std::all_of(host, host + 6 * MiB, [](unsigned char c) { return c == 1; }));
    free(host);
    CU(cuGraphLaunch(ready, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuGraphExecDestroy(ready));
    CU(cuGraphDestroy(graph));
    for (void *block : {blocks[1], blocks[3]}) {
        drop(block, 4 * MiB, stream);
    }
    drop(large, 6 * MiB, stream);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    CU(cuStreamDestroy(stream));
}

// A graph that is captured while the memory is away uses it after the resume: its pages never move.
TEST_F(GpuArena, WhatACaptureUsesInASuspendIsFixed) {
    CUstream stream = nullptr, other = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    make(",watermark=0");
    void *block = take(8 * MiB, stream), *behind = take(8 * MiB, stream);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    CUgraph graph = nullptr;
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_EQ(umfUseOn(block, stream), OK);
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphDestroy(graph));
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    drop(block, 8 * MiB, stream);
    void *large = take(16 * MiB, other);
    EXPECT_EQ(counter("donated_memory"), 0U);
    drop(large, 16 * MiB, other);
    drop(behind, 8 * MiB, stream);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    CU(cuStreamDestroy(stream));
    CU(cuStreamDestroy(other));
}

// From some call of the driver on all fail, also those that take back. A block that is freed then
// takes its addresses along, with a page or without. Where a mapping could neither be given access
// nor be unmapped, its addresses are lost.
TEST_F(GpuArena, NoAddressIsLeftWithoutAPage) {
    NEEDS_FAKE()
    bool is_resumed = false;
    int served = 0;
    for (long n = 1; !is_resumed; n++) {
        SCOPED_TRACE(n);
        make("");
        void *kept = umfPoolMalloc(pool, 8 * MiB), *freed = umfPoolMalloc(pool, 8 * MiB);
        ASSERT_TRUE(kept && freed);
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        fail_call(driver().control(), FAKE_CUDA_ANY, CUDA_ERROR_UNKNOWN, n);
        driver().control()->fail_on = 1;
        is_resumed = umfPoolsResume(&pool, 1, nullptr, nullptr) == OK;
        driver().control()->fail_at = 0;
        driver().control()->fail_on = 0;
        EXPECT_EQ(umfFree(freed), OK);
        if (is_resumed || umfPoolsResume(&pool, 1, nullptr, nullptr) == OK) {
            CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(kept), 4, 8 * MiB));
            void *again = umfPoolMalloc(pool, 8 * MiB);
            if (again) {
                CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(again), 3, 8 * MiB));
                EXPECT_EQ(umfFree(again), OK);
                served++;
            }
            EXPECT_EQ(umfFree(kept), OK);
        }
        umfPoolDestroy(pool); // what is lost is its error
    }
    EXPECT_GT(served, 5);
}

// From some call of the driver on all fail, for a while. What it has not taken back then, old
// mappings, mappings of a call that failed in the middle, and memory, it takes back later: at the
// end nothing is left.
TEST_F(GpuArena, WhatTheDriverRefusedToTakeBackIsReleasedLater) {
    NEEDS_FAKE()
    bool is_over = false;
    for (long n = 1; !is_over; n++) {
        SCOPED_TRACE(n);
        size_t before = 0, after = 0, total;
        CU(cuMemGetInfo(&before, &total));
        make(",watermark=0");
        std::vector<void *> blocks(6), more;
        for (void *&block : blocks) {
            block = umfPoolMalloc(pool, 4 * MiB);
        }
        for (size_t i = 0; i < blocks.size(); i += 2) {
            EXPECT_EQ(umfFree(blocks[i]), OK);
        }
        fail_call(driver().control(), FAKE_CUDA_ANY, CUDA_ERROR_UNKNOWN, n);
        driver().control()->fail_on = 1;
        for (size_t size : {10 * MiB, 3 * MiB, 12 * MiB}) { // donated pages, and new ones
            more.push_back(umfPoolMalloc(pool, size));
        }
        umfPoolTrimMemory(pool, 0);
        is_over = driver().control()->fail_at > 0;
        driver().control()->fail_at = 0;
        driver().control()->fail_on = 0;
        for (size_t size : {10 * MiB, 3 * MiB, 20 * MiB}) {
            more.push_back(umfPoolMalloc(pool, size));
            ASSERT_NE(more.back(), nullptr);
            CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(more.back()) + size - 16, 3, 16));
        }
        for (void *block : more) {
            EXPECT_TRUE(!block || umfFree(block) == OK);
        }
        for (size_t i = 1; i < blocks.size(); i += 2) {
            CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(blocks[i]), 4, 16));
            EXPECT_EQ(umfFree(blocks[i]), OK);
        }
        ASSERT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(counter("reserved_memory"), 0U);
        EXPECT_EQ(counter("stale_memory"), 0U);
        ASSERT_EQ(umfPoolDestroy(pool), OK) << "no address is mapped";
        CU(cuMemGetInfo(&after, &total));
        ASSERT_EQ(after, before);
    }
}

TEST_F(GpuArena, KeepsItsOrderInManyPrograms) {
    NEEDS_FAKE()
    ONE_THREAD_ONLY()
    size_t sleeps = 0, shared = 0;
    const char *settings[] = {"", ",watermark=0", ",donate=trim", ",watermark=0"};
    for (unsigned seed = 0; seed < (does_all() ? 1000U : 100U); seed++) {
        SCOPED_TRACE(seed);
        const std::string provider = seed % 2 ? "cuda_vmm:device=0,share=fd" : "cuda_vmm:device=0";
        const std::string text =
            std::string("coalescing:arena=yes") + settings[seed % 4] + " over " + provider;
        ASSERT_EQ(umfPoolCreateFromText(text.c_str(), &pool), OK) << umfTextError();
        if (seed % 4 == 3) {
            limit_cuda(24 * MiB);
        }
        Program program(text, pool, kernels, 7000 + seed, true);
        program.run(60);
        sleeps += program.sleeps;
        shared += program.shared;
        limit_cuda(SIZE_MAX);
        ASSERT_EQ(umfPoolDestroy(pool), OK);
        ASSERT_STREQ(driver().faults(), "");
        stop_cuda_vmm(); // each program has a driver of its own
        start_cuda_vmm();
        kernels.load();
    }
    EXPECT_GT(sleeps, 20U);
    EXPECT_GT(shared, 20U);
}
