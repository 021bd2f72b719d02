// Two threads at one block or at one pool with queues: no use is lost, no wait stops another queue,
// and a queue of one thread is never taken for that of another.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/memory_pool_ops.h>
#include <umf/plugin.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/queue.h>
#include <umf/text.h>

#include "fakes/child.h"
#include "fakes/ipc_provider.h"
#include "fakes/threads.h"
#include "fakes/waiting_provider.h"

extern "C" {
#include "base/meta.h"
#include "system/os.h"
uint64_t umf_thread_slot_number_slow(void); // base/thread_slot.h
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS, BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t SIZE = 8192;

char queues[4];
void *const FIRST = &queues[0], *const SECOND = &queues[1], *const THIRD = &queues[2],
            *const OWN = &queues[3];

class QueueRace : public testing::Test {
  protected:
    WaitingProvider source;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void begin(const umf_memory_pool_ops_t *ops, const void *params = nullptr) {
        provider = source.create();
        ASSERT_EQ(umfPoolCreate(ops, provider, params, 0, &pool), OK);
    }
    void end() {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(source.marks, 0) << "each mark was ended";
    }
};

// --- a pool of the user's, in whose size operation two threads meet

std::atomic<int> in_size{0};
std::atomic<bool> meets{false};

umf_memory_pool_ops_t meeting_table() {
    umf_memory_pool_ops_t ops = {};
    ops.version = UMF_POOL_OPS_VERSION_CURRENT;
    ops.initialize = [](umf_memory_provider_handle_t below, const void *, void **self) {
        *self = below;
        return OK;
    };
    ops.finalize = [](void *) { return OK; };
    ops.aligned_malloc = [](void *self, size_t, size_t) -> void * {
        void *ptr = nullptr;
        umfMemoryProviderAlloc(static_cast<umf_memory_provider_handle_t>(self), SIZE, 0, &ptr);
        return ptr;
    };
    ops.malloc = [](void *self, size_t) -> void * {
        void *ptr = nullptr;
        umfMemoryProviderAlloc(static_cast<umf_memory_provider_handle_t>(self), SIZE, 0, &ptr);
        return ptr;
    };
    ops.calloc = [](void *, size_t, size_t) -> void * { return nullptr; };
    ops.realloc = [](void *, void *, size_t) -> void * { return nullptr; };
    ops.malloc_usable_size = [](void *, const void *, size_t *size) {
        *size = SIZE;
        if (meets) {
            in_size++;
            wait_until([] { return in_size >= 2; });
        }
        return OK;
    };
    ops.free = [](void *self, void *ptr) {
        return umfMemoryProviderFree(static_cast<umf_memory_provider_handle_t>(self), ptr, SIZE);
    };
    ops.get_last_allocation_error = [](void *) { return OK; };
    ops.get_name = [](void *, const char **name) {
        *name = "meeting";
        return OK;
    };
    return ops;
}

// Runs both while neither has found a record of the block.
template <typename A, typename B> void at_once(const A &a, const B &b) {
    in_size = 0;
    meets = true;
    run_threads(2, [&](int number) { number == 0 ? a() : b(); });
    meets = false;
}

TEST_F(QueueRace, TwoUsesAtOnceAreBothKept) {
    static const umf_memory_pool_ops_t ops = meeting_table();
    begin(&ops);
    std::vector<void *> blocks;
    for (void *passing : {FIRST, SECOND}) { // the other one must still be waited for
        void *ptr = umfPoolMalloc(pool, SIZE);
        source.waits.is_closed = true;
        at_once([&] { EXPECT_EQ(umfUseOn(ptr, FIRST), OK); },
                [&] { EXPECT_EQ(umfUseOn(ptr, SECOND), OK); });
        EXPECT_EQ(umfFreeOn(ptr, THIRD), OK);
        source.passing = passing;
        EXPECT_EQ(umfPoolWaitPending(pool, 0, nullptr), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        void *other = umfPoolMallocOn(pool, SIZE, 0, THIRD);
        EXPECT_NE(other, ptr);
        source.passing = nullptr;
        source.waits.is_closed = false;
        EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
        EXPECT_EQ(umfPoolMallocOn(pool, SIZE, 0, THIRD), ptr);
        blocks.insert(blocks.end(), {ptr, other}); // the next round has another block
    }
    for (void *block : blocks) {
        EXPECT_EQ(umfFree(block), OK);
    }
    end();
}

// The use comes first, and the free waits for it; or it is refused.
TEST_F(QueueRace, AUseBesideAFreeIsKeptOrRefused) {
    static const umf_memory_pool_ops_t ops = meeting_table();
    begin(&ops);
    for (int round = 0; round < 50; round++) {
        void *ptr = umfPoolMalloc(pool, SIZE);
        umf_result_t used = UMF_RESULT_ERROR_UNKNOWN;
        source.waits.is_closed = true;
        at_once([&] { used = umfUseOn(ptr, FIRST); },
                [&] { EXPECT_EQ(umfFreeOn(ptr, SECOND), OK); });
        void *again = umfPoolMallocOn(pool, SIZE, 0, SECOND);
        EXPECT_EQ(again == ptr, used != OK) << round;
        EXPECT_TRUE(used == OK || used == BAD);
        source.waits.is_closed = false;
        EXPECT_EQ(umfFree(again), OK);
        EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
        umfPoolTrimMemory(pool, 0);
    }
    end();
}

// --- no memory for bookkeeping

// Takes all that the metadata arena can give.
class NoMemory {
  public:
    NoMemory() {
        umf_os_set_fault([](const char *call) { return strcmp(call, "map") == 0 ? ENOMEM : 0; });
        for (size_t size : {32768, 1024, 512, 256}) {
            while (void *ptr = umf_meta_alloc(size)) {
                taken.emplace_back(ptr, size);
            }
        }
    }
    ~NoMemory() {
        umf_os_set_fault(nullptr);
        for (auto &each : taken) {
            umf_meta_free(each.first, each.second);
        }
    }

  private:
    std::vector<std::pair<void *, size_t>> taken;
};

TEST_F(QueueRace, AFreeThatFindsNoMemoryLeavesTheUsesOfItsBlock) {
    begin(umfDisjointPoolOps());
    std::vector<void *> blocks(40);
    for (void *&block : blocks) {
        block = umfPoolMallocOn(pool, SIZE, 0, FIRST);
        EXPECT_EQ(umfUseOn(block, SECOND), OK);
    }
    EXPECT_EQ(umfFree(umfPoolMallocOn(pool, SIZE, 0, THIRD)), OK);
    source.waits.is_closed = true;
    umf_result_t result = OK;
    size_t freed = 0;
    {
        NoMemory none;
        while (result == OK && freed < blocks.size()) { // until the records need more room
            result = umfFreeOn(blocks[freed++], THIRD);
        }
    }
    EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(umfFreeOn(blocks[freed - 1], THIRD), OK) << "it is freed now";
    void *other = umfPoolMallocOn(pool, SIZE, 0, THIRD);
    EXPECT_EQ(std::count(blocks.begin(), blocks.end(), other), 0) << "all wait for the use";
    source.waits.is_closed = false;
    EXPECT_EQ(umfFree(other), OK);
    end();
}

// --- waits

TEST_F(QueueRace, AWaitForOneQueueStopsNoOther) {
    EXPECT_EQ(exit_of_child([&] {
                  alarm(60); // instead of a wait for ever
                  begin(umfDisjointPoolOps());
                  void *ptr = umfPoolMallocOn(pool, SIZE, 0, FIRST);
                  source.waits.is_closed = true;
                  EXPECT_EQ(umfFreeOn(ptr, FIRST), OK);
                  std::vector<std::thread> waiting;
                  for (int i = 0; i < 3; i++) {
                      waiting.emplace_back(
                          [&] { EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK); });
                  }
                  source.waits.wait_for(1);
                  void *other = umfPoolMallocOn(pool, 512, 0, SECOND);
                  EXPECT_NE(other, nullptr);
                  EXPECT_EQ(umfFreeOn(other, SECOND), OK);
                  EXPECT_EQ(umfPoolWaitPending(pool, 0, nullptr),
                            UMF_RESULT_ERROR_OUT_OF_RESOURCES);
                  EXPECT_EQ(umfPoolTrimOn(pool, 0, SECOND), OK);
                  EXPECT_EQ(umfQueueEnds(SECOND), OK);
                  EXPECT_EQ(umfQueueEnds(FIRST), OK);
                  EXPECT_EQ(source.waits.inside, 1) << "one thread waits for the mark";
                  source.waits.is_closed = false;
                  for (std::thread &each : waiting) {
                      each.join();
                  }
                  end();
                  return HasFailure() ? 1 : 0;
              }),
              0);
}

// --- queues of threads

TEST_F(QueueRace, AQueueOfAThreadIsNeverThatOfALaterThread) {
    begin(umfDisjointPoolOps());
    source.of_thread = reinterpret_cast<uintptr_t>(OWN);
    source.waits.is_closed = true;
    void *ptr = nullptr;
    std::atomic<uint64_t> number{0};
    std::atomic<bool> may_end{false};
    std::thread first([&] {
        uint64_t own = umf_thread_slot_number_slow();
        ptr = umfPoolMallocOn(pool, SIZE, 0, OWN);
        EXPECT_EQ(umfFreeOn(ptr, OWN), OK);
        number = own;
        wait_until([&] { return may_end.load(); });
    });
    wait_until([&] { return number != 0; });
    std::thread([&] { // as after so many threads that numbers of 16 bits begin again
        while ((umf_thread_slot_number_slow() - number) % UINT16_MAX != 0) {
        }
        void *other = umfPoolMallocOn(pool, SIZE, 0, OWN);
        EXPECT_NE(other, ptr);
        EXPECT_EQ(umfFree(other), OK);
    })
        .join();
    EXPECT_EQ(source.marks, 0) << "the queue of the first thread can be marked by it only";
    may_end = true;
    first.join();
    source.waits.is_closed = false;
    end();
}

// The thread of the queue may see its later work pass while another thread still waits for all.
TEST_F(QueueRace, WorkThatHasPassedIsNotWaitedForAgain) {
    begin(umfDisjointPoolOps());
    source.of_thread = reinterpret_cast<uintptr_t>(OWN);
    source.waits.is_closed = true;
    source.waits_for_all.is_closed = true;
    void *first = umfPoolMallocOn(pool, SIZE, 0, OWN), *later = umfPoolMallocOn(pool, SIZE, 0, OWN);
    EXPECT_EQ(umfFreeOn(first, OWN), OK);
    std::thread waiting([&] { EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK); });
    source.waits_for_all.wait_for(1);
    EXPECT_EQ(umfFreeOn(later, OWN), OK);
    source.waits.is_closed = false;
    EXPECT_EQ(umfPoolWaitPending(pool, 0, nullptr), OK);
    source.waits_for_all.is_closed = false;
    waiting.join();
    EXPECT_EQ(source.all_waits, 1);
    end();
}

// --- second frees

struct SecondFree {
    const char *name;
    umf_result_t (*first)(void *ptr), (*second)(void *ptr);
};

const SecondFree second_frees[] = {
    {"umfFree, umfFreeOn", umfFree, [](void *ptr) { return umfFreeOn(ptr, FIRST); }},
    {"umfFree, umfUseOn", umfFree, [](void *ptr) { return umfUseOn(ptr, FIRST); }},
    {"umfFreeOn twice", [](void *ptr) { return umfFreeOn(ptr, FIRST); },
     [](void *ptr) { return umfFreeOn(ptr, FIRST); }},
    {"umfFreeOn on two queues", [](void *ptr) { return umfFreeOn(ptr, FIRST); },
     [](void *ptr) { return umfFreeOn(ptr, SECOND); }},
    {"umfFreeOn, umfFree", [](void *ptr) { return umfFreeOn(ptr, FIRST); }, umfFree},
    {"umfFreeOn, umfUseOn", [](void *ptr) { return umfFreeOn(ptr, FIRST); },
     [](void *ptr) { return umfUseOn(ptr, SECOND); }},
};

// oneTBB may be absent.
bool is_here(const char *kind) {
    umf_memory_pool_handle_t pool = nullptr;
    return umfPoolCreateFromText((std::string(kind) + " over os").c_str(), &pool) == OK &&
           umfPoolDestroy(pool) == OK;
}

TEST_F(QueueRace, ASecondFreeIsRefusedInEveryOrder) {
    for (auto kind : {umfProxyPoolOps, umfDisjointPoolOps, umfCoalescingPoolOps, umfJemallocPoolOps,
                      umfScalablePoolOps}) {
        if (!kind()) {
            continue; // not built
        }
        if (kind == umfScalablePoolOps && !is_here("scalable")) {
            continue;
        }
        begin(kind());
        const char *name = "?";
        umfPoolGetName(pool, &name);
        for (size_t size : {16, 64, 1000, 4096, 40000, 100000, 1 << 20, 5 << 20}) {
            for (bool is_of_queue : {false, true}) {
                for (const SecondFree &each : second_frees) {
                    SCOPED_TRACE(std::string(name) + ": " + each.name + ", " +
                                 std::to_string(size));
                    void *keep = umfPoolMalloc(pool, size); // its slab stays
                    void *ptr = is_of_queue ? umfPoolMallocOn(pool, size, 0, SECOND)
                                            : umfPoolMalloc(pool, size);
                    ASSERT_NE(ptr, nullptr);
                    EXPECT_EQ(each.first(ptr), OK);
                    EXPECT_EQ(each.second(ptr), BAD);
                    void *a = umfPoolMalloc(pool, size), *b = umfPoolMallocOn(pool, size, 0, FIRST);
                    EXPECT_NE(a, b);
                    EXPECT_EQ(umfFree(a), OK);
                    EXPECT_EQ(umfFree(b), OK);
                    EXPECT_EQ(umfFree(keep), OK);
                    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
                }
            }
        }
        end();
    }
}

// --- a block with a record and an IPC handle

umf_memory_provider_ext_ops_t passing_queues() {
    umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
    ext.queue_mark = [](void *provider, void *, void **mark) {
        *mark = provider;
        return OK;
    };
    ext.mark_wait = [](void *, void *, int) { return 1; };
    return ext;
}

TEST(QueueHold, ABlockWithAHandleComesBackWhenTheQueueHasPassedAndTheHandleIsPut) {
    static const umf_memory_provider_ops_t ops = *FakeIpc::ops();
    static const umf_memory_provider_ext_ops_t ext = passing_queues();
    static const umf_memory_provider_descriptor_t kind = plain_kind("ipc_queues", &ops, &ext);
    FakeIpc source;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handle_t handle = nullptr;
    size_t handle_size = 0;
    ASSERT_EQ(umfRegisterProvider(&kind), OK);
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &source, &provider), OK);
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &pool), OK);
    void *ptr = umfPoolMallocOn(pool, SIZE, 0, FIRST);
    ASSERT_EQ(umfGetIPCHandle(ptr, &handle, &handle_size), OK);
    EXPECT_EQ(umfFreeOn(ptr, FIRST), OK);
    std::vector<void *> others;
    const auto expect_kept = [&] {
        EXPECT_EQ(umfFreeOn(ptr, FIRST), BAD);
        EXPECT_EQ(umfFreeOn(ptr, SECOND), BAD);
        EXPECT_EQ(umfUseOn(ptr, SECOND), BAD);
        EXPECT_EQ(umfFree(ptr), BAD);
        others.push_back(umfPoolMallocOn(pool, SIZE, 0, FIRST));
        others.push_back(umfPoolMalloc(pool, SIZE));
        EXPECT_EQ(std::count(others.begin(), others.end(), ptr), 0);
    };
    expect_kept(); // it is the queue's
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
    umfPoolTrimMemory(pool, 0);
    expect_kept(); // it is set aside
    EXPECT_EQ(umfPutIPCHandle(handle), OK);
    EXPECT_EQ(umfFree(ptr), BAD);
    EXPECT_EQ(umfFreeOn(ptr, FIRST), BAD);
    others.push_back(umfPoolMalloc(pool, SIZE));
    EXPECT_EQ(others.back(), ptr) << "the pool has it again";
    for (void *other : others) {
        EXPECT_EQ(umfFree(other), OK);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

} // namespace
