// Memory is held while it is copied: a free, a suspend, a close and the end of a pool wait.

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/ipc_ext.h>
#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/content.h"
#include "fakes/far_provider.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BUSY = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t SIZE = 64 << 10;

// A provider that reports the free of its memory; in its memory the CPU can read and write.
struct Telling {
    std::atomic<long> freed{0};

    static umf_memory_provider_ops_t table() {
        umf_memory_provider_ops_t ops = plain_provider_ops();
        ops.initialize = [](const void *params, void **provider) {
            *provider = const_cast<void *>(params);
            return OK;
        };
        ops.finalize = [](void *) { return OK; };
        ops.alloc = [](void *, size_t size, size_t, void **ptr) {
            *ptr = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
            return OK;
        };
        ops.free = [](void *provider, void *ptr, size_t) {
            static_cast<Telling *>(provider)->freed++;
            free(ptr);
            return OK;
        };
        ops.get_name = [](void *, const char **name) {
            *name = "telling";
            return OK;
        };
        return ops;
    }
};

// A copy that stops in the middle until the test lets it continue.
class CopyHold : public ::testing::Test {
  protected:
    FarProvider far;
    Telling telling;
    umf_memory_provider_handle_t far_provider = nullptr, provider = nullptr;
    umf_memory_pool_handle_t far_pool = nullptr, pool = nullptr;
    char *device = nullptr;
    std::atomic<bool> is_in_copy{false}, may_go_on{false}, is_copied{false};
    umf_result_t copied = UMF_RESULT_ERROR_UNKNOWN;
    std::thread copier;

    void SetUp() override {
        static const umf_memory_provider_ops_t ops = Telling::table();
        far_provider = far.create();
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), far_provider, nullptr, 0, &far_pool), OK);
        device = static_cast<char *>(umfPoolMalloc(far_pool, SIZE));
        ASSERT_EQ(umfMemoryProviderCreate(&ops, &telling, &provider), OK);
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
        stop_in_copies();
    }
    void stop_in_copies() {
        far.during_copy = [this] {
            is_in_copy = true;
            while (!may_go_on) {
                std::this_thread::yield();
            }
            is_copied = true;
        };
    }
    void TearDown() override {
        far.during_copy = nullptr;
        umfPoolFree(far_pool, device);
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        EXPECT_EQ(umfPoolDestroy(far_pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(far_provider), OK);
    }

    // Begins a copy of `ptr` in another thread and returns when it is in the middle.
    void begin(void *ptr, bool is_source) {
        copier = std::thread([=] {
            copied = is_source ? umfCopy(device, ptr, SIZE, nullptr)
                               : umfCopy(ptr, device, SIZE, nullptr);
        });
        while (!is_in_copy) {
            std::this_thread::yield();
        }
    }
    // Runs `call`, which has to wait for the copy, while a thread lets the copy go on.
    void must_wait(const std::function<void()> &call) {
        std::thread opener([this] { may_go_on = true; });
        call();
        EXPECT_TRUE(is_copied) << "it did not wait";
        opener.join();
        copier.join();
        EXPECT_EQ(copied, OK);
        is_in_copy = may_go_on = is_copied = false;
    }
};

// A fill by copies whose wait fails is no success, although later waits succeed.
TEST_F(CopyHold, a_fill_whose_first_wait_fails_is_an_error) {
    far.during_copy = nullptr;
    int waits = 0;
    far.during_wait = [&] { far.fails_wait = waits++ == 0; };
    EXPECT_EQ(umfFill(device, "abc", 3, SIZE / 3 * 3, nullptr), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_GT(waits, 0);
    far.during_wait = nullptr;
}

// The provider that copies is another one than that of the queue.
TEST_F(CopyHold, a_copy_of_another_provider_follows_the_queue) {
    FarProvider second;
    umf_memory_provider_handle_t other = second.create();
    umf_memory_pool_handle_t on_other = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), other, nullptr, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                            &on_other),
              OK);
    void *block = umfPoolMalloc(on_other, SIZE);
    ASSERT_NE(block, nullptr);
    std::vector<char> host(SIZE, 'o');
    std::vector<std::function<void()>> queue{[&] { host.assign(SIZE, 'n'); }};
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.queue = &queue;
    params.provider = far_provider;
    EXPECT_EQ(umfCopy(block, host.data(), SIZE, &params), OK);
    EXPECT_EQ(*second.near_of(block), 'n');
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(umfPoolDestroy(on_other), OK);
}

// The gate stays shut until the span is on its way out, so the free has begun.
TEST_F(CopyHold, a_free_waits_for_the_copy) {
    for (bool is_source : {true, false}) {
        char *ptr = static_cast<char *>(umfPoolMalloc(pool, SIZE));
        begin(ptr, is_source);
        std::thread opener([&] {
            umf_memory_pool_handle_t owner = nullptr;
            while (umfPoolByPtr(ptr, &owner) == OK) { // until the free has begun
                std::this_thread::yield();
            }
            EXPECT_EQ(telling.freed, is_source ? 0 : 1) << "the memory went during the copy";
            may_go_on = true;
        });
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
        EXPECT_TRUE(is_copied);
        EXPECT_EQ(telling.freed, is_source ? 1 : 2);
        opener.join();
        copier.join();
        EXPECT_EQ(copied, OK);
        is_in_copy = may_go_on = is_copied = false;
    }
}

TEST_F(CopyHold, the_end_of_a_pool_waits_for_the_copy) {
    char *ptr = static_cast<char *>(umfPoolMalloc(pool, SIZE));
    begin(ptr, true);
    must_wait([&] {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        pool = nullptr;
    });
}

TEST_F(CopyHold, a_suspend_waits_for_the_copy) {
    umf_memory_pool_handle_t vmm = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over linux_vmm", &vmm), OK);
    char *ptr = static_cast<char *>(umfPoolMalloc(vmm, SIZE));
    ::fill(ptr, SIZE, 1);
    for (bool is_source : {true, false}) {
        begin(ptr, is_source);
        must_wait([&] { EXPECT_EQ(umfPoolsSuspend(&vmm, 1, nullptr, nullptr), OK); });
        far.during_copy = nullptr;
        EXPECT_EQ(umfCopy(device, ptr, SIZE, nullptr), BUSY);
        EXPECT_EQ(umfCopy(ptr, device, 1, nullptr), BUSY);
        EXPECT_EQ(umfFill(ptr, "x", 1, 1, nullptr), BUSY);
        ASSERT_EQ(umfPoolsResume(&vmm, 1, nullptr, nullptr), OK);
        EXPECT_TRUE(is_filled(ptr, SIZE, 1));
        stop_in_copies();
    }
    umfPoolFree(vmm, ptr);
    EXPECT_EQ(umfPoolDestroy(vmm), OK);
}

// A child of fork does not have the thread that copies, and does not wait for it.
TEST_F(CopyHold, a_free_in_a_child_of_fork_does_not_wait) {
    char *ptr = static_cast<char *>(umfPoolMalloc(pool, SIZE));
    begin(ptr, true);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(umfPoolFree(pool, ptr) == OK ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    must_wait([&] { EXPECT_EQ(umfPoolFree(pool, ptr), OK); });
}

// Memory of another process, and a handler to open it with. The process dies with the object.
struct Foreign {
    umf_memory_pool_handle_t pool = nullptr; // of this process
    umf_ipc_handler_handle_t handler = nullptr;
    pid_t producer = 0;
    char bytes[4096]; // the handle
    size_t size = 0;

    static umf_memory_pool_handle_t shared_pool() {
        umf_memory_pool_handle_t made = nullptr;
        EXPECT_EQ(umfPoolCreateFromText("proxy over os:visibility=shared", &made), OK);
        return made;
    }
    static void produce(int end) {
        alarm(120);
        void *ptr = umfPoolMalloc(shared_pool(), SIZE);
        ::fill(ptr, SIZE, 3);
        umf_ipc_handle_t handle = nullptr;
        size_t size = 0;
        umfGetIPCHandle(ptr, &handle, &size);
        if (write(end, handle, size) == static_cast<ssize_t>(size)) {
            pause();
        }
        _exit(1);
    }
    Foreign() {
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        producer = fork();
        if (producer == 0) {
            produce(ends[1]);
        }
        size = static_cast<size_t>(read(ends[0], bytes, sizeof(bytes)));
        close(ends[0]);
        close(ends[1]);
        pool = shared_pool();
        EXPECT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
    }
    ~Foreign() {
        end_producer();
        end_pool();
    }
    Foreign(const Foreign &) = delete;
    Foreign &operator=(const Foreign &) = delete;
    char *open() const {
        void *opened = nullptr;
        EXPECT_EQ(umfOpenIPCHandleSized(handler, bytes, size, &opened), OK);
        return static_cast<char *>(opened);
    }
    void end_producer() {
        if (producer) {
            kill(producer, SIGKILL);
            EXPECT_EQ(waitpid(producer, nullptr, 0), producer);
            producer = 0;
        }
    }
    // With what it has opened.
    void end_pool() {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
            pool = nullptr;
        }
    }
};

TEST_F(CopyHold, the_end_of_an_opened_mapping_waits_for_the_copy) {
    for (bool is_source : {true, false}) {
        Foreign foreign;
        begin(foreign.open(), is_source);
        must_wait([&] { foreign.end_pool(); });
    }
}

TEST_F(CopyHold, what_is_closed_is_refused) {
    Foreign foreign;
    char *opened = foreign.open(), seen[16];
    EXPECT_EQ(foreign.open(), opened);
    umf_place_t place = UMF_PLACE_INIT;
    EXPECT_EQ(umfCloseIPCHandle(opened), OK);
    EXPECT_EQ(umfCopy(seen, opened, sizeof(seen), nullptr), OK) << "opened twice, closed once";
    EXPECT_EQ(umfCloseIPCHandle(opened), OK);
    EXPECT_EQ(umfCopy(seen, opened, sizeof(seen), nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfCopy(opened, seen, sizeof(seen), nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfFill(opened, seen, 1, 1, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfPlaceOf(opened, &place), OK);
    EXPECT_EQ(place.is_reachable, 0);
    EXPECT_EQ(foreign.open(), opened) << "the mapping was kept";
    EXPECT_EQ(umfCopy(seen, opened, sizeof(seen), nullptr), OK);
    EXPECT_EQ(umfCloseIPCHandle(opened), OK);
}

// Memory that was opened outlives the process that made it.
TEST_F(CopyHold, memory_of_a_dead_process_is_copied) {
    Foreign foreign;
    char *opened = foreign.open();
    foreign.end_producer();
    std::vector<char> seen(SIZE);
    EXPECT_EQ(umfCopy(seen.data(), opened, SIZE, nullptr), OK);
    EXPECT_TRUE(is_filled(seen.data(), SIZE, 3));
    EXPECT_EQ(umfFill(opened, "d", 1, SIZE, nullptr), OK);
    EXPECT_EQ(umfCloseIPCHandle(opened), OK);
}

// Memory that was open the whole time is copied rightly.
TEST(CopyRace, copies_beside_closes_are_right_or_refused) {
    constexpr size_t THREADS = 3;
    Foreign foreign;
    std::atomic<char *> current{foreign.open()};
    std::atomic<size_t> closes{0};
    std::atomic<bool> ends{false};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < THREADS; t++) {
        threads.emplace_back([&] {
            std::vector<char> seen(SIZE);
            while (!ends) {
                size_t before = closes;
                char *opened = current;
                umf_result_t result = umfCopy(seen.data(), opened, SIZE, nullptr);
                if (opened && before == closes) { // no close had begun
                    EXPECT_EQ(result, OK);
                    EXPECT_TRUE(is_filled(seen.data(), SIZE, 3));
                }
            }
        });
    }
    for (size_t round = 0; round < scaled(3000); round++) {
        char *opened = current;
        current = nullptr;
        closes++;
        EXPECT_EQ(umfCloseIPCHandle(opened), OK);
        current = foreign.open();
    }
    ends = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(umfCloseIPCHandle(current), OK);
}

// Small copies are recorded in words that threads share when there are many.
TEST(CopyRace, small_copies_of_many_threads_beside_frees_are_right) {
    constexpr size_t THREADS = 80;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over os", &pool), OK);
    char *common = static_cast<char *>(umfPoolMalloc(pool, 4096));
    ::fill(common, 4096, 5);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < THREADS; t++) {
        threads.emplace_back([&] {
            for (size_t round = 0; round < scaled(1000); round++) {
                char *own = static_cast<char *>(umfPoolMalloc(pool, 4096)), seen[64];
                EXPECT_EQ(umfCopy(own, common, 4096, nullptr), OK);
                EXPECT_EQ(umfCopy(seen, own, sizeof(seen), nullptr), OK);
                EXPECT_TRUE(is_filled(seen, sizeof(seen), 5));
                EXPECT_EQ(umfPoolFree(pool, own), OK);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(umfPoolFree(pool, common), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

// Threads copy between pools while others free, trim, suspend and resume: content of calls that
// succeeded is right.
TEST(CopyRace, copies_beside_frees_suspends_and_trims_are_right_or_refused) {
    constexpr size_t THREADS = 3;
    umf_memory_pool_handle_t pools[3] = {};
    ASSERT_EQ(umfPoolCreateFromText("proxy over linux_vmm", &pools[0]), OK);
    ASSERT_EQ(umfPoolCreateFromText("disjoint over os", &pools[1]), OK);
    ASSERT_EQ(umfPoolCreateFromText("coalescing over os", &pools[2]), OK);
    constexpr size_t COUNT = 8;
    char *suspended[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        suspended[i] = static_cast<char *>(umfPoolMalloc(pools[0], SIZE));
        ::fill(suspended[i], SIZE, i);
    }
    std::atomic<bool> ends{false};
    std::atomic<size_t> refused{0}, good{0};
    std::thread sleeper([&] {
        while (!ends) {
            EXPECT_EQ(umfPoolsSuspend(&pools[0], 1, nullptr, nullptr), OK);
            EXPECT_EQ(umfPoolsResume(&pools[0], 1, nullptr, nullptr), OK);
            umfPoolTrimMemory(pools[1], 0);
        }
    });
    std::vector<std::thread> threads;
    for (size_t t = 0; t < THREADS; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            std::vector<char> seen(SIZE);
            for (size_t round = 0; round < scaled(3000); round++) {
                size_t which = random() % COUNT, size = 1 + random() % SIZE;
                umf_memory_pool_handle_t pool = pools[1 + random() % 2];
                char *own = static_cast<char *>(umfPoolMalloc(pool, size));
                umf_result_t result = umfCopy(own, suspended[which], size, nullptr);
                if (result == OK) {
                    EXPECT_EQ(umfCopy(seen.data(), own, size, nullptr), OK);
                    EXPECT_TRUE(is_filled(seen.data(), size, which));
                    good++;
                } else {
                    EXPECT_EQ(result, BUSY);
                    refused++;
                }
                EXPECT_EQ(umfPoolFree(pool, own), OK);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    ends = true;
    sleeper.join();
    EXPECT_EQ(good + refused, THREADS * scaled(3000));
    for (char *ptr : suspended) {
        EXPECT_EQ(umfPoolFree(pools[0], ptr), OK);
    }
    for (umf_memory_pool_handle_t pool : pools) {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
}

} // namespace
