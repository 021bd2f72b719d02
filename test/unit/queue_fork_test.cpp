// A fork while threads allocate and free on queues: the child goes on alone.

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/plugin.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/queue.h>

#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

// Memory of the system, and queues whose work has completed at the second query of a mark.
// It takes no lock, which a child would find taken.
umf_memory_provider_ops_t mapping_table() {
    umf_memory_provider_ops_t ops = {};
    ops.version = UMF_PROVIDER_OPS_VERSION_CURRENT;
    ops.initialize = [](const void *, void **self) {
        static char one;
        *self = &one;
        return OK;
    };
    ops.finalize = [](void *) { return OK; };
    ops.alloc = [](void *, size_t size, size_t alignment, void **ptr) {
        // Every alignment that pools request, by skipping bytes.
        size_t whole = size + alignment;
        void *all =
            mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        auto begin = reinterpret_cast<uintptr_t>(all);
        uintptr_t first = alignment ? (begin + alignment - 1) / alignment * alignment : begin;
        if (first > begin) {
            munmap(all, first - begin);
        }
        if (first + size < begin + whole) {
            munmap(reinterpret_cast<void *>(first + size), begin + whole - first - size);
        }
        *ptr = reinterpret_cast<void *>(first);
        return OK;
    };
    ops.free = [](void *, void *ptr, size_t size) {
        return munmap(ptr, size) == 0 ? OK : UMF_RESULT_ERROR_UNKNOWN;
    };
    ops.get_last_native_error = [](void *, const char **, int32_t *) { return OK; };
    ops.get_recommended_page_size = [](void *, size_t, size_t *size) {
        *size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        return OK;
    };
    ops.get_min_page_size = [](void *, const void *, size_t *size) {
        *size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        return OK;
    };
    ops.get_cache_line_size = [](void *, size_t *size) {
        *size = 64;
        return OK;
    };
    ops.get_name = [](void *, const char **name) {
        *name = "mapping";
        return OK;
    };
    return ops;
}

// A query of a mark in which a thread stays until the test has forked.
struct Query {
    std::atomic<void *> mark{nullptr};
    std::atomic<bool> may_stay{false}, is_over{false}, is_child{false};

    void ask(void *asked) {
        if (is_child && asked == mark) {
            _exit(2); // the thread of the parent may have ended it
        }
        if (may_stay.exchange(false)) {
            mark = asked;
            while (!is_over) {
                std::this_thread::yield();
            }
        }
    }
};
Query query;

const umf_memory_provider_ops_t &mapping_ops() {
    static const umf_memory_provider_ops_t ops = mapping_table();
    static const umf_memory_provider_ext_ops_t ext = [] {
        umf_memory_provider_ext_ops_t made = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
        made.queue_mark = [](void *, void *, void **mark) {
            *mark = new std::atomic<int>{0};
            return OK;
        };
        made.mark_wait = [](void *, void *mark, int may_block) {
            query.ask(mark);
            auto queries = static_cast<std::atomic<int> *>(mark);
            int has_completed = may_block || ++*queries > 1;
            if (has_completed) {
                delete queries;
            }
            return has_completed;
        };
        return made;
    }();
    static const umf_memory_provider_descriptor_t kind = {sizeof(kind), "mapping", &ops,   &ext,
                                                          nullptr,      nullptr,   nullptr};
    static const umf_result_t registered = umfRegisterProvider(&kind);
    EXPECT_EQ(registered, OK);
    return ops;
}

class QueueFork : public testing::TestWithParam<const umf_memory_pool_ops_t *(*)()> {};

void use(umf_memory_pool_handle_t pool, void *own, void *other, int rounds) {
    for (int i = 0; i < rounds; i++) {
        void *ptr = umfPoolMallocOn(pool, size_t{64} << (i % 16), 0, own);
        if (!ptr || umfFreeOn(ptr, i % 3 ? own : other) != OK) {
            ADD_FAILURE() << "of round " << i;
            return;
        }
    }
}

TEST_P(QueueFork, AChildAllocatesFreesTrimsAndDestroys) {
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&mapping_ops(), nullptr, &provider), OK);
    ASSERT_EQ(umfPoolCreate(GetParam()(), provider, nullptr, 0, &pool), OK);
    char queues[4];
    std::atomic<bool> is_over{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([&, i] {
            while (!is_over) {
                use(pool, &queues[i], &queues[i + 1], 100);
                if (i == 0) {
                    umfPoolTrimOn(pool, 0, &queues[i]);
                }
            }
        });
    }
    auto join = [&](void *) {
        is_over = true;
        for (std::thread &each : threads) {
            each.join();
        }
    };
    std::unique_ptr<void, decltype(join)> joiner(&is_over, join); // also where an assertion fails
    for (size_t round = 0; round < 5 + scaled(50); round++) {
        void *inherited = umfPoolMallocOn(pool, 5000, 0, &queues[3]);
        ASSERT_NE(inherited, nullptr);
        pid_t child = fork();
        if (child == 0) {
            alarm(60); // instead of a wait for ever
            use(pool, &queues[0], &queues[3], 200);
            bool is_good = !testing::Test::HasFailure() && umfFreeOn(inherited, &queues[1]) == OK;
            umfPoolTrimMemory(pool, 0);
            is_good = umfPoolWaitPending(pool, UINT64_MAX, nullptr) == OK && is_good;
            is_good = umfPoolDestroy(pool) == OK && is_good;
            _exit(is_good ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0) << round;
        ASSERT_EQ(umfFreeOn(inherited, &queues[3]), OK);
    }
    joiner.reset();
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST_P(QueueFork, AChildLeavesAMarkThatAThreadOfItsParentQueries) {
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&mapping_ops(), nullptr, &provider), OK);
    ASSERT_EQ(umfPoolCreate(GetParam()(), provider, nullptr, 0, &pool), OK);
    char queue;
    void *ptr = umfPoolMallocOn(pool, 5000, 0, &queue);
    ASSERT_NE(ptr, nullptr);
    ASSERT_EQ(umfFreeOn(ptr, &queue), OK);
    query.mark = nullptr;
    query.is_over = false;
    query.may_stay = true;
    std::thread asks([&] { umfPoolWaitPending(pool, 0, nullptr); });
    while (!query.mark) {
        std::this_thread::yield();
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(60); // instead of a wait for ever
        query.is_child = true;
        bool is_good = umfPoolWaitPending(pool, UINT64_MAX, nullptr) == OK;
        is_good = umfPoolDestroy(pool) == OK && is_good;
        _exit(is_good ? 0 : 1);
    }
    query.is_over = true;
    asks.join();
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

INSTANTIATE_TEST_SUITE_P(All, QueueFork,
                         testing::Values(umfProxyPoolOps, umfDisjointPoolOps,
                                         umfCoalescingPoolOps));

} // namespace
