// Suspend and resume: every statement of umf/suspend.h, on every provider of virtual memory.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/content.h"
#include "fakes/scale.h"
#include "fakes/vmm_kinds.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr umf_result_t BUSY = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t MiB = size_t{1} << 20;

const umf_suspend_keep_t keeps[] = {UMF_SUSPEND_KEEP_PINNED, UMF_SUSPEND_KEEP_HOST,
                                    UMF_SUSPEND_KEEP_FILE,   UMF_SUSPEND_KEEP_PEER,
                                    UMF_SUSPEND_ZERO,        UMF_SUSPEND_DISCARD};

bool is_kept(umf_suspend_keep_t keep) {
    return keep != UMF_SUSPEND_ZERO && keep != UMF_SUSPEND_DISCARD;
}

class Suspend : public ::testing::TestWithParam<const VmmKind *> {
  protected:
    const VmmKind &kind = *GetParam();
    bool is_started = false;
    std::vector<umf_memory_provider_handle_t> providers;
    std::vector<umf_memory_pool_handle_t> pools;

    void SetUp() override {
        std::string why = kind.start();
        is_started = why.empty();
        if (!is_started) {
            GTEST_SKIP() << why;
        }
    }

    void TearDown() override {
        for (umf_memory_pool_handle_t pool : pools) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        for (umf_memory_provider_handle_t provider : providers) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        if (is_started) {
            kind.stop();
        }
    }

    umf_memory_provider_handle_t make_provider(size_t piece_size = 0) {
        umf_memory_provider_handle_t provider = kind.create(piece_size);
        EXPECT_NE(provider, nullptr);
        providers.push_back(provider);
        return provider;
    }

    umf_memory_pool_handle_t make_pool(umf_memory_provider_handle_t provider,
                                       const umf_memory_pool_ops_t *ops = umfProxyPoolOps()) {
        umf_memory_pool_handle_t pool = nullptr;
        EXPECT_EQ(umfPoolCreate(ops, provider, nullptr, 0, &pool), OK);
        pools.push_back(pool);
        return pool;
    }

    void drop_pool(umf_memory_pool_handle_t pool) {
        pools.erase(std::find(pools.begin(), pools.end(), pool));
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }

    static umf_suspend_policy_t policy_of(umf_suspend_keep_t keep) {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = keep;
        policy.folder = "/tmp";
        policy.device = 1;
        return policy;
    }

    bool set(umf_memory_pool_handle_t pool, umf_suspend_keep_t keep) {
        umf_suspend_policy_t policy = policy_of(keep);
        umf_result_t result = umfPoolSetSuspendPolicy(pool, &policy);
        if (keep == UMF_SUSPEND_KEEP_PEER && !kind.has_peer) {
            EXPECT_EQ(result, NONE);
            return false;
        }
        EXPECT_EQ(result, OK) << keep;
        return true;
    }

    static umf_residency_t residency(umf_memory_pool_handle_t pool) {
        umf_residency_t now = UMF_RESIDENCY_INIT;
        EXPECT_EQ(umfPoolGetResidency(pool, &now), OK);
        return now;
    }

    // A page that differs from one seed to the next, with its number in front, again and again.
    template <typename Use> static void each_page(size_t size, unsigned seed, Use use) {
        uint64_t page[512];
        std::mt19937_64 random(seed);
        std::generate(std::begin(page), std::end(page), random);
        for (size_t at = 0; at < size; at += sizeof(page)) {
            page[0] = at ^ seed;
            use(at, page, std::min(sizeof(page), size - at));
        }
    }

    // The same memory each time: fresh pages cost more than the copies.
    static char *buffer_of(size_t size) {
        thread_local std::vector<char> buffer;
        if (buffer.size() < size) {
            buffer.resize(size);
        }
        return buffer.data();
    }

    void write(void *ptr, size_t size, unsigned seed) {
        char *content = buffer_of(size);
        each_page(size, seed, [&](size_t at, const void *page, size_t length) {
            memcpy(content + at, page, length);
        });
        kind.write(ptr, content, size);
    }

    bool holds(const void *ptr, size_t size, unsigned seed) {
        char *now = buffer_of(size);
        kind.read(now, ptr, size);
        bool is_same = true;
        each_page(size, seed, [&](size_t at, const void *page, size_t length) {
            is_same &= memcmp(now + at, page, length) == 0;
        });
        return is_same;
    }

    bool is_zero(const void *ptr, size_t size) {
        char *now = buffer_of(size);
        kind.read(now, ptr, size);
        return are_all(now, size, 0);
    }
};

umf_suspend_report_t report() {
    return UMF_SUSPEND_REPORT_INIT;
}

} // namespace

TEST_P(Suspend, EachPolicy) {
    umf_memory_provider_handle_t provider = make_provider();
    for (umf_suspend_keep_t keep : keeps) {
        umf_memory_pool_handle_t pool = make_pool(provider);
        if (!set(pool, keep)) {
            drop_pool(pool);
            continue;
        }
        // More than one unit of a store, and not a multiple of it.
        std::vector<std::pair<void *, size_t>> blocks;
        size_t before = kind.held();
        for (size_t size : {2 * MiB, 34 * MiB, 4 * MiB}) {
            void *ptr = umfPoolMalloc(pool, size);
            ASSERT_NE(ptr, nullptr);
            write(ptr, size, static_cast<unsigned>(size));
            blocks.push_back({ptr, size});
        }
        size_t with = kind.held();
        EXPECT_GT(with, before);
        umf_residency_t now = residency(pool);
        EXPECT_EQ(now.state, UMF_SUSPEND_STATE_RESIDENT);
        EXPECT_EQ(now.reserved, 40 * MiB);
        EXPECT_EQ(now.resident, 40 * MiB);

        umf_suspend_report_t done = report();
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, &done), OK) << keep;
        EXPECT_GE(done.bytes, 40 * MiB);
        EXPECT_EQ(done.kept, is_kept(keep) ? 40 * MiB : 0);
        EXPECT_EQ(done.shared, 0u);
        EXPECT_EQ(kind.held(), before) << keep;
        now = residency(pool);
        EXPECT_EQ(now.state, UMF_SUSPEND_STATE_SUSPENDED);
        EXPECT_EQ(now.reserved, 40 * MiB);
        EXPECT_EQ(now.resident, 0u);
        EXPECT_EQ(now.pinned, keep == UMF_SUSPEND_KEEP_PINNED ? done.kept : 0);
        EXPECT_EQ(now.host, keep == UMF_SUSPEND_KEEP_HOST ? done.kept : 0);
        EXPECT_EQ(now.file, keep == UMF_SUSPEND_KEEP_FILE ? done.kept : 0);
        EXPECT_EQ(now.peer, keep == UMF_SUSPEND_KEEP_PEER ? done.kept : 0);

        umf_suspend_report_t back = report();
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, &back), OK);
        EXPECT_EQ(back.bytes, done.bytes);
        EXPECT_EQ(back.kept, done.kept);
        EXPECT_EQ(kind.held(), with);
        now = residency(pool);
        EXPECT_EQ(now.state, UMF_SUSPEND_STATE_RESIDENT);
        EXPECT_EQ(now.resident, 40 * MiB);
        EXPECT_EQ(now.pinned + now.host + now.file + now.peer, 0u);
        for (auto [ptr, size] : blocks) {
            if (is_kept(keep)) {
                EXPECT_TRUE(holds(ptr, size, static_cast<unsigned>(size))) << keep;
            } else if (keep == UMF_SUSPEND_ZERO) {
                EXPECT_TRUE(is_zero(ptr, size));
            }
            EXPECT_EQ(umfFree(ptr), OK);
        }
        drop_pool(pool);
        EXPECT_EQ(kind.held(), before);
    }
}

TEST_P(Suspend, Arguments) {
    umf_memory_pool_handle_t pool = make_pool(make_provider());
    umf_suspend_policy_t policy = policy_of(UMF_SUSPEND_KEEP_HOST);
    EXPECT_EQ(umfPoolSetSuspendPolicy(nullptr, &policy), BAD);
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, nullptr), BAD);
    policy.struct_size--;
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), BAD);
    const int beyond = UMF_SUSPEND_DISCARD + 1;
    policy = policy_of(UMF_SUSPEND_KEEP_HOST);
    memcpy(&policy.keep, &beyond, sizeof(beyond));
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), BAD);
    policy = policy_of(UMF_SUSPEND_KEEP_FILE);
    policy.folder = nullptr;
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), BAD);
    policy.folder = "";
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), BAD);
    policy = policy_of(UMF_SUSPEND_KEEP_PEER);
    policy.device = -1;
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), BAD);

    umf_memory_pool_handle_t with_null[] = {pool, nullptr};
    umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
    umf_suspend_report_t done = report();
    for (auto call : {umfPoolsSuspend, umfPoolsResume}) {
        EXPECT_EQ(call(nullptr, 1, &params, &done), BAD);
        EXPECT_EQ(call(&pool, 0, &params, &done), BAD);
        EXPECT_EQ(call(with_null, 2, &params, &done), BAD);
        params.num_queues = 1;
        EXPECT_EQ(call(&pool, 1, &params, &done), BAD);
        params.num_queues = 0;
        params.num_events = 1;
        EXPECT_EQ(call(&pool, 1, &params, &done), BAD);
        params.num_events = 0;
        params.struct_size--;
        EXPECT_EQ(call(&pool, 1, &params, &done), BAD);
        params.struct_size++;
        done.struct_size--;
        EXPECT_EQ(call(&pool, 1, &params, &done), BAD);
        done.struct_size++;
    }
    EXPECT_EQ(residency(pool).state, UMF_SUSPEND_STATE_RESIDENT);
    umf_residency_t now = UMF_RESIDENCY_INIT;
    EXPECT_EQ(umfPoolGetResidency(nullptr, &now), BAD);
    EXPECT_EQ(umfPoolGetResidency(pool, nullptr), BAD);
    now.struct_size--;
    EXPECT_EQ(umfPoolGetResidency(pool, &now), BAD);
    int flag;
    EXPECT_EQ(umfSuspendJobQuery(nullptr, &flag), BAD);
    EXPECT_EQ(umfSuspendJobWait(nullptr, nullptr), BAD);
    umf_suspend_job_handle_t job;
    EXPECT_EQ(umfPoolsSuspendAsync(nullptr, 1, nullptr, &job), BAD);
    EXPECT_EQ(umfPoolsResumeAsync(&pool, 1, nullptr, nullptr), BAD);
}

TEST_P(Suspend, WhatCannotBeSuspended) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_memory_provider_handle_t provider = make_provider();
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr,
                            UMF_POOL_CREATE_FLAG_DISABLE_TRACKING, &pool),
              OK);
    umf_residency_t now = UMF_RESIDENCY_INIT;
    EXPECT_EQ(umfPoolGetResidency(pool, &now), NONE);
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), NONE);
    EXPECT_EQ(umfPoolDestroy(pool), OK);

    ASSERT_EQ(umfPoolCreateFromText("proxy over os", &pool), OK);
    umf_suspend_policy_t policy = policy_of(UMF_SUSPEND_DISCARD);
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), NONE);
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), NONE);
    EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), NONE);
    void *ptr = umfPoolMalloc(pool, MiB);
    EXPECT_EQ(residency(pool).resident, MiB);
    EXPECT_EQ(umfFree(ptr), OK);

    // One that cannot keeps all others awake.
    umf_memory_pool_handle_t both[] = {make_pool(provider), pool};
    ptr = umfPoolMalloc(both[0], MiB);
    EXPECT_EQ(umfPoolsSuspend(both, 2, nullptr, nullptr), NONE);
    EXPECT_EQ(residency(both[0]).state, UMF_SUSPEND_STATE_RESIDENT);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_P(Suspend, TwiceIsNothing) {
    umf_memory_pool_handle_t pool = make_pool(make_provider());
    void *ptr = umfPoolMalloc(pool, 4 * MiB);
    write(ptr, 4 * MiB, 1);
    umf_suspend_report_t done = report();
    EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, &done), OK);
    EXPECT_EQ(done.bytes, 0u);
    umf_memory_pool_handle_t named_twice[] = {pool, pool};
    EXPECT_EQ(umfPoolsSuspend(named_twice, 2, nullptr, &done), OK);
    size_t bytes = done.bytes;
    EXPECT_GE(bytes, 4 * MiB);
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, &done), OK);
    EXPECT_EQ(done.bytes, 0u);
    umf_suspend_policy_t policy = policy_of(UMF_SUSPEND_DISCARD);
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), BUSY); // not while it is suspended
    EXPECT_EQ(umfPoolsResume(named_twice, 2, nullptr, &done), OK);
    EXPECT_EQ(done.bytes, bytes);
    EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, &done), OK);
    EXPECT_EQ(done.bytes, 0u);
    EXPECT_TRUE(holds(ptr, 4 * MiB, 1));
    EXPECT_EQ(umfFree(ptr), OK);
}

TEST_P(Suspend, AnEmptyPool) {
    umf_memory_pool_handle_t pool = make_pool(make_provider());
    umf_suspend_report_t done = report();
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, &done), OK);
    EXPECT_EQ(done.bytes, 0u);
    EXPECT_EQ(residency(pool).state, UMF_SUSPEND_STATE_SUSPENDED);
    EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, &done), OK);
    void *ptr = umfPoolMalloc(pool, MiB);
    EXPECT_NE(ptr, nullptr);
    EXPECT_EQ(umfFree(ptr), OK);
}

TEST_P(Suspend, DividedAndJoinedMemoryIsOneAllocation) {
    umf_memory_provider_handle_t provider = make_provider();
    size_t page = 0, before = kind.held();
    ASSERT_EQ(umfMemoryProviderGetMinPageSize(provider, nullptr, &page), OK);
    for (int i = 0; i < 3; i++) {
        void *ptr = nullptr;
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 2 * page, 0, &ptr), OK);
        char *high = static_cast<char *>(ptr) + page;
        ASSERT_EQ(umfMemoryProviderAllocationSplit(provider, ptr, 2 * page, page), OK);
        ASSERT_EQ(umfMemoryProviderAllocationMerge(provider, ptr, high, 2 * page), OK);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 2 * page), OK);
        EXPECT_EQ(kind.held(), before) << "with its end the memory goes";
    }
}

TEST_P(Suspend, ASuspendedPoolAllocatesNothing) {
    umf_memory_provider_handle_t provider = make_provider();
    for (const umf_memory_pool_ops_t *ops : {umfProxyPoolOps(), umfDisjointPoolOps()}) {
        umf_memory_pool_handle_t pool = make_pool(provider, ops);
        void *ptr = umfPoolMalloc(pool, 1024);
        ASSERT_NE(ptr, nullptr);
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(umfPoolMalloc(pool, 1024), nullptr);
        EXPECT_EQ(umfPoolGetLastAllocationError(pool), BUSY);
        EXPECT_EQ(umfPoolAlignedMalloc(pool, 1024, 64), nullptr);
        EXPECT_EQ(umfPoolCalloc(pool, 1, 1024), nullptr);
        EXPECT_EQ(umfPoolRealloc(pool, ptr, 2048), nullptr);
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        void *more = umfPoolMalloc(pool, 1024);
        EXPECT_NE(more, nullptr);
        EXPECT_EQ(umfFree(more), OK);
        EXPECT_EQ(umfFree(ptr), OK);
    }
}

// Memory freed meanwhile is gone, also from the store; the rest is restored.
TEST_P(Suspend, FreeingFromASuspendedPool) {
    umf_memory_provider_handle_t provider = make_provider(2 * MiB);
    umf_memory_pool_handle_t pool = make_pool(provider);
    size_t before = kind.held();
    void *blocks[6];
    for (unsigned i = 0; i < 6; i++) {
        blocks[i] = umfPoolMalloc(pool, 2 * MiB);
        write(blocks[i], 2 * MiB, i);
    }
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    for (unsigned i = 0; i < 6; i += 2) {
        EXPECT_EQ(umfFree(blocks[i]), OK);
        EXPECT_EQ(umfFree(blocks[i]), BAD);
    }
    umf_residency_t now = residency(pool);
    EXPECT_EQ(now.reserved, 6 * MiB);
    EXPECT_EQ(now.pinned, 6 * MiB);
    // Its addresses may be another pool's by now.
    umf_memory_pool_handle_t other = make_pool(provider);
    void *fresh = umfPoolMalloc(other, 2 * MiB);
    write(fresh, 2 * MiB, 77);
    umf_suspend_report_t back = report();
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, &back), OK);
    EXPECT_EQ(back.bytes, 6 * MiB);
    for (unsigned i = 1; i < 6; i += 2) {
        EXPECT_TRUE(holds(blocks[i], 2 * MiB, i)) << i;
        EXPECT_EQ(umfFree(blocks[i]), OK);
    }
    EXPECT_TRUE(holds(fresh, 2 * MiB, 77));
    EXPECT_EQ(umfFree(fresh), OK);
    EXPECT_EQ(kind.held(), before);
}

TEST_P(Suspend, DestroyingASuspendedPool) {
    umf_memory_provider_handle_t provider = make_provider();
    size_t before = kind.held();
    for (const umf_memory_pool_ops_t *ops :
         {umfProxyPoolOps(), umfDisjointPoolOps(), umfJemallocPoolOps()}) {
        if (!ops) {
            continue;
        }
        umf_memory_pool_handle_t pool = make_pool(provider, ops);
        for (size_t size : {1024 * 1024, 100, 5000000}) {
            ASSERT_NE(umfPoolMalloc(pool, size), nullptr);
        }
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        drop_pool(pool);
    }
    EXPECT_EQ(kind.held(), before);
    umfSuspendTrim();
    EXPECT_EQ(kind.pinned(), 0u);
}

// Pinned memory comes in blocks: several are made at once, held ready, used by others, given back.
TEST_P(Suspend, PinnedMemoryIsHeldReady) {
    umfSuspendTrim();
    umf_memory_provider_handle_t provider = make_provider();
    umf_memory_pool_handle_t large = make_pool(provider), small = make_pool(provider);
    // More than two units of a store, which ThreadSanitizer takes long to look at.
    const size_t part = (UMF_TEST_TSAN && !does_all() ? 20 : 60) * MiB, size = 5 * part;
    char *ptr = static_cast<char *>(umfPoolMalloc(large, size));
    void *other = umfPoolMalloc(small, part);
    for (unsigned i = 0; i < size / part; i++) {
        write(ptr + i * part, part, i);
    }
    write(other, part, 99);
    ASSERT_EQ(umfPoolsSuspend(&large, 1, nullptr, nullptr), OK);
    const size_t pinned = kind.pinned();
    ASSERT_EQ(umfPoolsResume(&large, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfPoolsSuspend(&small, 1, nullptr, nullptr), OK);
    EXPECT_EQ(kind.pinned(), pinned);
    ASSERT_EQ(umfPoolsSuspend(&large, 1, nullptr, nullptr), OK); // some ready, some fresh
    EXPECT_GE(kind.pinned(), pinned);
    umfSuspendTrim();
    ASSERT_EQ(umfPoolsResume(&small, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfPoolsResume(&large, 1, nullptr, nullptr), OK);
    umfSuspendTrim();
    EXPECT_EQ(kind.pinned(), 0u);
    for (unsigned i = 0; i < size / part; i++) {
        EXPECT_TRUE(holds(ptr + i * part, part, i)) << i;
    }
    EXPECT_TRUE(holds(other, part, 99));
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfFree(other), OK);
}

// Two pools over one provider: what both have in one piece stays, and nothing is lost.
TEST_P(Suspend, PiecesSharedByPoolsStay) {
    umf_memory_provider_handle_t provider = make_provider(64 * MiB);
    umf_memory_pool_handle_t one = make_pool(provider), two = make_pool(provider);
    void *a = umfPoolMalloc(one, 2 * MiB), *b = umfPoolMalloc(two, 2 * MiB);
    write(a, 2 * MiB, 1);
    write(b, 2 * MiB, 2);
    umf_suspend_report_t done = report();
    ASSERT_EQ(umfPoolsSuspend(&one, 1, nullptr, &done), OK);
    EXPECT_EQ(done.bytes, 0u);
    EXPECT_EQ(done.shared, 64 * MiB);
    EXPECT_TRUE(holds(b, 2 * MiB, 2));
    ASSERT_EQ(umfPoolsResume(&one, 1, nullptr, nullptr), OK);
    EXPECT_TRUE(holds(a, 2 * MiB, 1));
    EXPECT_EQ(umfFree(a), OK);
    EXPECT_EQ(umfFree(b), OK);
}

// Nobody gets memory that is not there.
TEST_P(Suspend, FreePartsOfASuspendedPieceAreNotAllocated) {
    umf_memory_provider_handle_t provider = make_provider(64 * MiB);
    umf_memory_pool_handle_t one = make_pool(provider), two = make_pool(provider);
    void *a = umfPoolMalloc(one, 4 * MiB), *hole = umfPoolMalloc(one, 4 * MiB);
    void *c = umfPoolMalloc(one, 4 * MiB);
    write(a, 4 * MiB, 1);
    write(c, 4 * MiB, 3);
    ASSERT_EQ(umfPoolsSuspend(&one, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfFree(hole), OK);
    void *b = umfPoolMalloc(two, 4 * MiB);
    ASSERT_NE(b, nullptr);
    EXPECT_TRUE(b < a || static_cast<char *>(b) >= static_cast<char *>(a) + 64 * MiB);
    write(b, 4 * MiB, 2);
    ASSERT_EQ(umfPoolsResume(&one, 1, nullptr, nullptr), OK);
    EXPECT_TRUE(holds(a, 4 * MiB, 1));
    EXPECT_TRUE(holds(b, 4 * MiB, 2));
    EXPECT_TRUE(holds(c, 4 * MiB, 3));
    // Afterwards the hole is used again.
    void *again = umfPoolMalloc(one, 4 * MiB);
    EXPECT_EQ(again, hole);
    for (void *ptr : {a, b, c, again}) {
        EXPECT_EQ(umfFree(ptr), OK);
    }
}

TEST_P(Suspend, InTheBackground) {
    umf_memory_pool_handle_t pool = make_pool(make_provider());
    void *ptr = umfPoolMalloc(pool, 40 * MiB);
    write(ptr, 40 * MiB, 9);
    umf_suspend_job_handle_t job = nullptr;
    ASSERT_EQ(umfPoolsSuspendAsync(&pool, 1, nullptr, &job), OK);
    int finished = 0;
    while (!finished) {
        ASSERT_EQ(umfSuspendJobQuery(job, &finished), OK);
    }
    umf_suspend_report_t done = report();
    EXPECT_EQ(umfSuspendJobWait(job, &done), OK);
    EXPECT_GE(done.bytes, 40 * MiB);
    EXPECT_EQ(residency(pool).resident, 0u);
    ASSERT_EQ(umfPoolsResumeAsync(&pool, 1, nullptr, &job), OK);
    EXPECT_EQ(umfSuspendJobWait(job, nullptr), OK);
    EXPECT_TRUE(holds(ptr, 40 * MiB, 9));
    EXPECT_EQ(umfFree(ptr), OK);
}

TEST_P(Suspend, AFileLeavesNothingBehind) {
    char folder[] = "/tmp/umf_suspend_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    umf_memory_pool_handle_t pool = make_pool(make_provider());
    umf_suspend_policy_t policy = policy_of(UMF_SUSPEND_KEEP_FILE);
    policy.folder = folder;
    ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
    void *ptr = umfPoolMalloc(pool, 4 * MiB);
    write(ptr, 4 * MiB, 4);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(rmdir(folder), 0); // it is empty already now
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_TRUE(holds(ptr, 4 * MiB, 4));

    // The folder is gone: nothing happens.
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), BAD);
    EXPECT_EQ(residency(pool).state, UMF_SUSPEND_STATE_RESIDENT);
    EXPECT_TRUE(holds(ptr, 4 * MiB, 4));
    void *more = umfPoolMalloc(pool, 4096);
    EXPECT_NE(more, nullptr);
    EXPECT_EQ(umfFree(more), OK);
    EXPECT_EQ(umfFree(ptr), OK);
}

// Allocate, write, suspend some, allocate in others, resume, check, free: in any order, and with
// failures of the driver where they can be had on demand.
TEST_P(Suspend, RandomSchedules) {
    struct Block {
        void *ptr;
        size_t size;
        unsigned seed;
    };
    umf_memory_provider_handle_t provider = make_provider(8 * MiB);
    size_t before = kind.held();
    size_t failures = 0;
    for (unsigned schedule = 0; schedule < scaled(50); schedule++) {
        std::mt19937 random(schedule);
        constexpr size_t count = 4;
        umf_memory_pool_handle_t pool[count];
        umf_suspend_keep_t keep[count];
        std::vector<Block> blocks[count];
        bool suspended[count] = {};
        for (size_t i = 0; i < count; i++) {
            const umf_memory_pool_ops_t *ops = i % 2 ? umfDisjointPoolOps() : umfProxyPoolOps();
            // Each has a provider of its own in half of the schedules.
            pool[i] = make_pool(schedule % 2 ? provider : make_provider(4 * MiB), ops);
            keep[i] = keeps[random() % 6];
            if (!set(pool[i], keep[i])) {
                keep[i] = UMF_SUSPEND_KEEP_PINNED;
            }
        }
        unsigned seed = schedule * 1000;
        for (int step = 0; step < 30; step++) {
            size_t i = random() % count;
            switch (random() % 4) {
            case 0:
            case 1: {
                size_t size = 4096 * (1 + random() % 700);
                void *ptr = umfPoolMalloc(pool[i], size);
                ASSERT_EQ(ptr == nullptr, suspended[i]);
                if (ptr) {
                    write(ptr, size, ++seed);
                    blocks[i].push_back({ptr, size, seed});
                }
                break;
            }
            case 2:
                if (!blocks[i].empty()) {
                    size_t at = random() % blocks[i].size();
                    ASSERT_EQ(umfFree(blocks[i][at].ptr), OK);
                    blocks[i].erase(blocks[i].begin() + static_cast<ptrdiff_t>(at));
                }
                break;
            default: {
                umf_memory_pool_handle_t some[] = {pool[i], pool[random() % count]};
                bool wake = random() % 2;
                bool may_fail = kind.fail && random() % 2;
                if (may_fail) {
                    kind.fail(1 + random() % 60);
                }
                umf_result_t result = wake ? umfPoolsResume(some, 2, nullptr, nullptr)
                                           : umfPoolsSuspend(some, 2, nullptr, nullptr);
                if (may_fail) {
                    kind.fail(0);
                }
                if (may_fail && result != OK) { // all are as they were
                    failures++;
                    for (umf_memory_pool_handle_t one : some) {
                        ptrdiff_t k = std::find(pool, pool + count, one) - pool;
                        ASSERT_EQ(residency(one).state, suspended[k] ? UMF_SUSPEND_STATE_SUSPENDED
                                                                     : UMF_SUSPEND_STATE_RESIDENT);
                        if (!suspended[k] && !is_kept(keep[k])) {
                            for (Block &block : blocks[k]) { // may be lost already
                                write(block.ptr, block.size, block.seed);
                            }
                        }
                    }
                    break;
                }
                ASSERT_EQ(result, OK);
                for (size_t k = 0; k < count; k++) {
                    if (pool[k] != some[0] && pool[k] != some[1]) {
                        continue;
                    }
                    if (wake && suspended[k] && !is_kept(keep[k])) {
                        for (Block &block : blocks[k]) { // lost or zero: written anew
                            write(block.ptr, block.size, block.seed);
                        }
                    }
                    suspended[k] = !wake;
                }
            }
            }
            for (size_t k = 0; k < count; k++) {
                if (!suspended[k] && !blocks[k].empty()) {
                    const Block &block = blocks[k][random() % blocks[k].size()];
                    ASSERT_TRUE(holds(block.ptr, block.size, block.seed))
                        << "schedule " << schedule << " step " << step;
                }
            }
        }
        ASSERT_EQ(umfPoolsResume(pool, count, nullptr, nullptr), OK);
        for (size_t k = 0; k < count; k++) {
            for (const Block &block : blocks[k]) {
                if (is_kept(keep[k]) || !suspended[k]) {
                    ASSERT_TRUE(holds(block.ptr, block.size, block.seed)) << schedule;
                }
                ASSERT_EQ(umfFree(block.ptr), OK);
            }
            drop_pool(pool[k]);
        }
        ASSERT_EQ(kind.held(), before) << schedule;
        while (providers.size() > 1) {
            ASSERT_EQ(umfMemoryProviderDestroy(providers.back()), OK);
            providers.pop_back();
        }
    }
    EXPECT_EQ(failures > 0, static_cast<bool>(kind.fail));
}

// Whichever call of the driver fails: all pools are as before, and the same call works afterwards.
TEST_P(Suspend, EveryCallMayFail) {
    if (!kind.fail) {
        GTEST_SKIP() << "failures on demand need the software driver";
    }
    const size_t size = MiB / 4;
    for (umf_suspend_keep_t keep : keeps) {
        umf_memory_pool_handle_t both[] = {make_pool(make_provider(size)),
                                           make_pool(make_provider(size))};
        std::vector<void *> blocks;
        for (unsigned i = 0; i < 4; i++) {
            ASSERT_TRUE(set(both[i % 2], keep));
            blocks.push_back(umfPoolMalloc(both[i % 2], size));
            write(blocks.back(), size, i);
        }
        auto all_hold = [&] {
            for (unsigned i = 0; i < 4; i++) {
                if (is_kept(keep) && !holds(blocks[i], size, i)) {
                    return false;
                }
            }
            return true;
        };
        auto all_are = [&](umf_suspend_state_t state) {
            return residency(both[0]).state == state && residency(both[1]).state == state;
        };
        size_t resident = kind.held();
        int failures = 0;
        for (long n = 1;; n++) {
            ASSERT_LT(n, 500);
            kind.fail(n);
            umf_result_t result = umfPoolsSuspend(both, 2, nullptr, nullptr);
            bool was_reached = kind.fail(0);
            if (result != OK) {
                failures++;
                ASSERT_TRUE(all_are(UMF_SUSPEND_STATE_RESIDENT)) << keep << " " << n;
                ASSERT_TRUE(all_hold()) << keep << " " << n;
                ASSERT_EQ(umfPoolsSuspend(both, 2, nullptr, nullptr), OK);
            }
            ASSERT_TRUE(all_are(UMF_SUSPEND_STATE_SUSPENDED));
            size_t away = kind.held();
            ASSERT_LT(away, resident);

            kind.fail(n);
            umf_suspend_report_t back = report();
            result = umfPoolsResume(both, 2, nullptr, &back);
            was_reached = kind.fail(0) || was_reached;
            if (result != OK) {
                failures++;
                ASSERT_TRUE(all_are(UMF_SUSPEND_STATE_SUSPENDED)) << keep << " " << n;
                ASSERT_EQ(kind.held(), away) << keep << " " << n;
                ASSERT_EQ(umfPoolsResume(both, 2, nullptr, nullptr), OK);
            }
            ASSERT_TRUE(all_are(UMF_SUSPEND_STATE_RESIDENT));
            ASSERT_EQ(kind.held(), resident) << keep << " " << n;
            ASSERT_TRUE(all_hold()) << keep << " " << n;
            if (!was_reached) {
                break;
            }
        }
        EXPECT_GT(failures, 10) << keep;
        for (void *ptr : blocks) {
            EXPECT_EQ(umfFree(ptr), OK);
        }
        drop_pool(both[0]);
        drop_pool(both[1]);
        umfSuspendTrim();
    }
}

// From one call on the driver fails, so that steps cannot be undone, either. Nothing is
// lost: when the driver works again, the pools can be resumed.
TEST_P(Suspend, EveryCallMayFailForGood) {
    if (!kind.fail_from) {
        GTEST_SKIP() << "failures on demand need the software driver";
    }
    const size_t size = 64 << 10; // a piece each
    const long step = does_all() ? 1 : UMF_TEST_TSAN ? 6 : UMF_TEST_ASAN ? 2 : 1;
    for (umf_suspend_keep_t keep : keeps) {
        umf_memory_pool_handle_t both[] = {make_pool(make_provider(size)),
                                           make_pool(make_provider(size))};
        std::vector<void *> blocks;
        for (unsigned i = 0; i < 6; i++) { // three pieces each
            ASSERT_TRUE(set(both[i % 2], keep));
            blocks.push_back(umfPoolMalloc(both[i % 2], size));
        }
        size_t resident = kind.held();
        int stayed = 0, failures = 0;
        auto is_whole = [&](long n) {
            for (unsigned i = 0; i < 6; i++) {
                if (is_kept(keep) && !holds(blocks[i], size, i)) {
                    ADD_FAILURE() << "policy " << keep << ", block " << i << ", call " << n;
                    return false;
                }
                EXPECT_EQ(residency(both[i % 2]).state, UMF_SUSPEND_STATE_RESIDENT);
                EXPECT_EQ(residency(both[i % 2]).resident, 3 * size);
            }
            return kind.held() == resident;
        };
        bool was_reached = true;
        for (long n = 1; was_reached; n += step) {
            for (unsigned i = 0; i < 6; i++) {
                write(blocks[i], size, i);
            }
            kind.fail_from(n);
            umf_result_t result = umfPoolsSuspend(both, 2, nullptr, nullptr);
            was_reached = kind.fail_from(0);
            failures += result != OK;
            for (umf_memory_pool_handle_t pool : both) {
                umf_residency_t now = residency(pool);
                stayed += result != OK && now.state == UMF_SUSPEND_STATE_SUSPENDED;
                ASSERT_EQ(now.reserved, 3 * size);
                ASSERT_LE(now.resident, 3 * size);
                // Content without memory is somewhere else.
                ASSERT_TRUE(!is_kept(keep) ||
                            now.resident + now.pinned + now.host + now.file + now.peer >= 3 * size);
            }
            ASSERT_EQ(umfPoolsResume(both, 2, nullptr, nullptr), OK) << keep << " " << n;
            ASSERT_TRUE(is_whole(n));

            ASSERT_EQ(umfPoolsSuspend(both, 2, nullptr, nullptr), OK);
            kind.fail_from(n);
            result = umfPoolsResume(both, 2, nullptr, nullptr);
            was_reached = kind.fail_from(0) || was_reached;
            failures += result != OK;
            ASSERT_EQ(umfPoolsResume(both, 2, nullptr, nullptr), OK) << keep << " " << n;
            ASSERT_TRUE(is_whole(n));
            ASSERT_LT(n, 500);
        }
        EXPECT_GT(failures, 10 / step) << keep;
        EXPECT_TRUE(stayed > 0 || step > 1) << keep;
        for (void *ptr : blocks) {
            EXPECT_EQ(umfFree(ptr), OK);
        }
        drop_pool(both[0]);
        drop_pool(both[1]);
        umfSuspendTrim();
    }
}

// Queries meanwhile return numbers of some moment.
TEST_P(Suspend, ResidencyIsAskedMeanwhile) {
    constexpr size_t count = 300;
    const size_t piece = kind.fail ? 64 << 10 : 2 * MiB;
    umf_memory_pool_handle_t pool = make_pool(make_provider(piece));
    ASSERT_TRUE(set(pool, UMF_SUSPEND_DISCARD));
    std::vector<void *> blocks;
    for (size_t i = 0; i < count; i++) {
        blocks.push_back(umfPoolMalloc(pool, piece));
        ASSERT_NE(blocks.back(), nullptr);
    }
    std::atomic<bool> is_over{false};
    std::atomic<size_t> queries{0};
    std::thread other([&] {
        while (!is_over) {
            umf_residency_t now = residency(pool);
            EXPECT_EQ(now.reserved, count * piece);
            EXPECT_TRUE(now.resident == 0 || now.resident == now.reserved) << now.resident;
            EXPECT_TRUE(now.state != UMF_SUSPEND_STATE_RESIDENT || now.resident == now.reserved);
            EXPECT_TRUE(now.state != UMF_SUSPEND_STATE_SUSPENDED || now.resident == 0);
            queries++;
        }
    });
    for (size_t i = 0; i < scaled(30); i++) {
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        size_t before = queries;
        while (queries < before + 2) {
            std::this_thread::yield();
        }
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    }
    is_over = true;
    other.join();
    for (void *ptr : blocks) {
        EXPECT_EQ(umfFree(ptr), OK);
    }
}

TEST_P(Suspend, TheReportTellsWhatIsMissing) {
    if (!kind.limit) {
        GTEST_SKIP() << "a limit of memory needs the software driver";
    }
    umf_memory_pool_handle_t both[] = {make_pool(make_provider()), make_pool(make_provider())};
    void *blocks[] = {umfPoolMalloc(both[0], 64 * MiB), umfPoolMalloc(both[1], 32 * MiB)};
    write(blocks[0], 64 * MiB, 1);
    write(blocks[1], 32 * MiB, 2);
    ASSERT_EQ(umfPoolsSuspend(both, 2, nullptr, nullptr), OK);
    kind.limit(kind.held() + 70 * MiB);
    umf_suspend_report_t back = report();
    EXPECT_EQ(umfPoolsResume(both, 2, nullptr, &back), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(back.missing, 32 * MiB);
    EXPECT_EQ(back.bytes, 0u);
    EXPECT_EQ(residency(both[0]).resident, 0u); // of all or of none
    kind.limit(kind.held() + 10 * MiB);
    EXPECT_EQ(umfPoolsResume(both, 2, nullptr, &back), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(back.missing, 96 * MiB); // the second pool's, too, which was not tried
    kind.limit(SIZE_MAX);
    EXPECT_EQ(umfPoolsResume(both, 2, nullptr, &back), OK);
    EXPECT_TRUE(holds(blocks[0], 64 * MiB, 1));
    EXPECT_TRUE(holds(blocks[1], 32 * MiB, 2));
    EXPECT_EQ(umfFree(blocks[0]), OK);
    EXPECT_EQ(umfFree(blocks[1]), OK);
}

TEST_P(Suspend, ManyCyclesDoNotDrift) {
    umf_memory_pool_handle_t pool = make_pool(make_provider(), umfDisjointPoolOps());
    std::vector<void *> blocks;
    for (unsigned i = 0; i < 20; i++) {
        blocks.push_back(umfPoolMalloc(pool, 100000 + i * 1000));
        write(blocks.back(), 100000, i);
    }
    size_t with = 0;
    for (int cycle = 0; cycle < static_cast<int>(scaled(200)); cycle++) {
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        if (cycle == 0) {
            with = kind.held() + kind.pinned();
        }
        ASSERT_EQ(kind.held() + kind.pinned(), with) << cycle;
    }
    for (unsigned i = 0; i < 20; i++) {
        EXPECT_TRUE(holds(blocks[i], 100000, i));
        EXPECT_EQ(umfFree(blocks[i]), OK);
    }
}

INSTANTIATE_TEST_SUITE_P(Each, Suspend, ::testing::ValuesIn(vmm_kinds()),
                         [](const auto &param) { return std::string(param.param->name); });
