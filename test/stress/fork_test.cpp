/*
 * A process forks at any moment while its threads allocate, and the child can use the
 * pools it inherited and make new ones. A child that hangs is ended by its own alarm.
 */
#include <atomic>
#include <chrono>
#include <iostream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakes/kinds.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

struct Pools {
    std::vector<std::unique_ptr<Source>> sources;
    std::vector<umf_memory_pool_handle_t> pools;

    Pools() {
        for (const PoolKind &kind : pool_kinds()) {
            for (auto visibility : {UMF_MEM_MAP_PRIVATE, UMF_MEM_MAP_SHARED}) {
                // State of a pool in memory shared by parent and child would belong to both.
                sources.push_back(make_os(kind.touches_memory ? UMF_MEM_MAP_PRIVATE : visibility));
                umf_memory_pool_handle_t pool = nullptr;
                umf_result_t result =
                    umfPoolCreate(kind.ops(), sources.back()->handle, nullptr, 0, &pool);
                EXPECT_EQ(result, OK);
                pools.push_back(pool);
            }
        }
    }
    ~Pools() {
        for (auto pool : pools) {
            umfPoolDestroy(pool);
        }
    }
};

constexpr size_t SIZES[] = {32, 700, 9000, 50000, 300000, 3u << 20};

bool use(umf_memory_pool_handle_t pool) {
    bool good = true;
    for (size_t size : SIZES) {
        auto p = static_cast<char *>(umfPoolMalloc(pool, size));
        good = good && p;
        if (p) {
            p[0] = p[size - 1] = 1;
            umf_memory_pool_handle_t found = nullptr;
            good = good && umfPoolByPtr(p, &found) == OK && found == pool && umfFree(p) == OK;
        }
    }
    return good;
}

// Exit status: which step went wrong, 0 for none.
int child(const Pools &all, void *from_parent) {
    for (auto pool : all.pools) {
        if (!use(pool)) {
            return 1;
        }
    }
    if (umfFree(from_parent) != OK) {
        return 2;
    }
    for (size_t i = 0; i < all.pools.size(); i++) {
        umf_memory_pool_handle_t fresh = nullptr;
        if (umfPoolCreate(pool_kinds()[i / 2].ops(), all.sources[i]->handle, nullptr, 0, &fresh) !=
                OK ||
            !use(fresh) || umfPoolDestroy(fresh) != OK) {
            return 3;
        }
    }
    size_t value = 0;
    if (umfCtlGet("umf.pool.by_name.disjoint.count", &value, sizeof(value)) != OK || value < 2) {
        return 4;
    }
    // The runtimes of the sanitizers do not survive a fork in the middle of their own work: a new
    // thread in the child waits for ever for a lock of theirs.
    if (!UMF_TEST_TSAN && !UMF_TEST_ASAN) {
        std::atomic<bool> good{true};
        std::thread([&] { good = use(all.pools[2]); }).join();
        if (!good) {
            return 5;
        }
    }
    if (umfPoolTrimMemory(all.pools[2], 0) != OK) {
        return 6;
    }
    return umfInit() == OK && umfTearDown() == OK ? 0 : 7;
}

void fork_and_wait(const Pools &all, size_t n) {
    void *memory = umfPoolMalloc(all.pools[n % all.pools.size()], 100 + n % 5000);
    ASSERT_NE(memory, nullptr);
    pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        alarm(60);
        _exit(child(all, memory));
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status))
        << "fork " << n << ": "
        << (WTERMSIG(status) == SIGALRM ? "the child hung" : "the child crashed") << ", signal "
        << WTERMSIG(status);
    ASSERT_EQ(WEXITSTATUS(status), 0) << "fork " << n;
    ASSERT_EQ(umfFree(memory), OK) << "the parent still has its own copy";
}

TEST(Fork, WhileThreadsAllocate) {
    Pools all;
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            for (size_t i = t; !stop; i++) {
                void *p =
                    umfPoolMalloc(all.pools[i % all.pools.size()], SIZES[i / 3 % std::size(SIZES)]);
                umfFree(p);
                if (i % 50 == 0) {
                    umf_memory_pool_handle_t fresh = nullptr;
                    size_t k = i / 50 % all.pools.size();
                    umfPoolCreate(pool_kinds()[k / 2].ops(), all.sources[k]->handle, nullptr, 0,
                                  &fresh);
                    umfPoolFree(fresh, umfPoolMalloc(fresh, 100));
                    umfPoolDestroy(fresh);
                }
            }
        });
    }
    // On a busy machine it is as many as fit into the time.
    size_t forks = scaled(1000), done = 0;
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (done < forks && !testing::Test::HasFailure() &&
           (done < forks / 10 || std::chrono::steady_clock::now() < end)) {
        fork_and_wait(all, done++);
    }
    std::cout << done << " forks" << std::endl;
    stop = true;
    for (auto &thread : threads) {
        thread.join();
    }
}

// Each allocation of this provider lies in a GiB of its own, so that a tree of
// addresses makes it grow all the time.
umf_result_t spread_alloc(void *, size_t size, size_t, void **ptr) {
    static std::atomic<uintptr_t> next{uintptr_t{1} << 44};
    void *wish = reinterpret_cast<void *>(next.fetch_add(uintptr_t{1} << 30));
    *ptr = mmap(wish, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
    return *ptr == MAP_FAILED ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY : OK;
}
umf_result_t spread_free(void *, void *ptr, size_t size) {
    return munmap(ptr, size) == 0 ? OK : UMF_RESULT_ERROR_UNKNOWN;
}

TEST(Fork, WhileAddressesAreNew) {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    FakeProvider fake; // for the operations that are not replaced
    ops.alloc = spread_alloc;
    ops.free = spread_free;
    // Those of the fake take a mutex, which no fork may meet.
    ops.ext_allocation_split = [](void *, void *, size_t, size_t) { return OK; };
    ops.ext_allocation_merge = [](void *, void *, void *, size_t) { return OK; };
    ops.ext_purge_force = ops.ext_purge_lazy = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    for (const PoolKind &kind : pool_kinds()) {
        auto use_fresh = [&] {
            umf_memory_pool_handle_t pool = nullptr;
            bool good = umfPoolCreate(kind.ops(), provider, nullptr, 0, &pool) == OK &&
                        umfPoolFree(pool, umfPoolMalloc(pool, 100)) == OK;
            return umfPoolDestroy(pool) == OK && good;
        };
        std::atomic<bool> stop{false};
        std::atomic<size_t> made{0};
        std::thread thread([&] {
            while (!stop && made < 6000) {
                EXPECT_TRUE(use_fresh());
                made++;
            }
        });
        for (size_t i = 0; i < scaled(100) && !HasFailure(); i++) {
            pid_t pid = fork();
            ASSERT_GE(pid, 0);
            if (pid == 0) {
                alarm(60);
                _exit(use_fresh() ? 0 : 1);
            }
            int status = 0;
            ASSERT_EQ(waitpid(pid, &status, 0), pid);
            EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
                << kind << ", fork " << i << ": status " << status;
        }
        stop = true;
        thread.join();
    }
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST(Fork, ChildOfAChild) {
    Pools all;
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        ASSERT_GE(pid, 0);
        if (pid == 0) {
            alarm(60);
            for (int depth = 0; depth < 3; depth++) {
                pid_t inner = fork();
                if (inner != 0) {
                    int status = 0;
                    waitpid(inner, &status, 0);
                    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
                }
                alarm(60);
                if (int step = child(all, umfPoolMalloc(all.pools[2], 64))) {
                    _exit(step);
                }
            }
            _exit(0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        ASSERT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
        ASSERT_EQ(WEXITSTATUS(status), 0);
    }
}

// The child ends the usual way: destructors, handlers of exit, our own teardown.
TEST(Fork, ChildExitsInFull) {
    Pools all;
    std::cout.flush();
    fflush(stdout); // else each child would print it again
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        ASSERT_GE(pid, 0);
        if (pid == 0) {
            alarm(60);
            exit(use(all.pools[0]) && use(all.pools[2]) ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        ASSERT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
        ASSERT_EQ(WEXITSTATUS(status), 0);
    }
}

} // namespace
