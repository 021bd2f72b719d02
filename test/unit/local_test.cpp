#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

extern "C" {
#include "base/lock.h"
#include "base/meta.h"
#include "local_shim.h"
#include "system/os.h"
}

namespace {

/* A thread that obeys orders and can be kept alive. */
class worker_t {
  public:
    worker_t() : thread_([this] { loop(); }) {}
    ~worker_t() {
        finish();
    }
    template <typename F> void run(F work) {
        std::unique_lock<std::mutex> lock(mutex_);
        work_ = work;
        condition_.notify_all();
        condition_.wait(lock, [this] { return !work_; });
    }
    void finish() {
        if (thread_.joinable()) {
            run([this] { stop_ = true; });
            thread_.join();
        }
    }

  private:
    void loop() {
        while (!stop_) {
            std::unique_lock<std::mutex> lock(mutex_);
            condition_.wait(lock, [this] { return static_cast<bool>(work_); });
            work_();
            work_ = nullptr;
            condition_.notify_all();
        }
    }
    std::mutex mutex_;
    std::condition_variable condition_;
    std::function<void()> work_;
    bool stop_ = false; /* its thread's own */
    std::thread thread_;
};

/* The main thread's table is there before memory is counted. */
size_t used_with_table() {
    shim_owner_t *owner = shim_create(false);
    shim_add(owner, 1);
    shim_destroy(owner);
    return umf_meta_used();
}

int fail_map(const char *call) {
    return std::strcmp(call, "map") == 0 ? ENOMEM : 0;
}

} // namespace

TEST(local, absent_block_reads_as_zero) {
    shim_owner_t *owner = shim_create(true);
    EXPECT_FALSE(shim_has(owner));
    EXPECT_EQ(shim_value(owner), 0);
    EXPECT_EQ(shim_blocks(owner), 0);
    shim_destroy(owner);
}

TEST(local, make_gives_the_same_block_again) {
    shim_owner_t *owner = shim_create(true);
    void *block = shim_make(owner);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(shim_make(owner), block);
    EXPECT_TRUE(shim_has(owner));
    EXPECT_EQ(shim_blocks(owner), 1);
    shim_destroy(owner);
}

TEST(local, every_thread_has_its_own) {
    shim_owner_t *owner = shim_create(true);
    shim_add(owner, 1);
    worker_t worker;
    worker.run([&] {
        EXPECT_FALSE(shim_has(owner));
        shim_add(owner, 10);
        EXPECT_EQ(shim_value(owner), 10);
    });
    EXPECT_EQ(shim_value(owner), 1);
    EXPECT_EQ(shim_blocks(owner), 2);
    EXPECT_EQ(shim_sum(owner), 11);
    shim_destroy(owner);
}

TEST(local, thread_exit_gets_the_block_once_and_frees_it) {
    size_t used = used_with_table();
    shim_owner_t *owner = shim_create(true);
    std::thread([&] { shim_add(owner, 5); }).join();
    EXPECT_EQ(shim_exits(owner), 1);
    EXPECT_EQ(shim_exit_sum(owner), 5);
    EXPECT_EQ(shim_blocks(owner), 0);
    EXPECT_EQ(umf_meta_used(), used);
    shim_destroy(owner);
}

TEST(local, owner_without_thread_exit) {
    size_t used = used_with_table();
    shim_owner_t *owner = shim_create(false);
    std::thread([&] { shim_add(owner, 5); }).join();
    EXPECT_EQ(shim_blocks(owner), 0);
    EXPECT_EQ(umf_meta_used(), used);
    shim_destroy(owner);
}

TEST(local, fini_frees_the_blocks_of_living_threads) {
    size_t used = used_with_table();
    {
        worker_t worker;
        shim_owner_t *owner = shim_create(true);
        shim_add(owner, 1);
        worker.run([&] { shim_add(owner, 2); });
        uint32_t index = shim_index(owner);
        shim_destroy(owner);

        /* The next owner gets the same index and must not find the old blocks. */
        owner = shim_create(true);
        EXPECT_EQ(shim_index(owner), index);
        EXPECT_FALSE(shim_has(owner));
        worker.run([&] {
            EXPECT_FALSE(shim_has(owner));
            shim_add(owner, 3);
        });
        worker.finish();
        EXPECT_EQ(shim_exits(owner), 1);
        EXPECT_EQ(shim_exit_sum(owner), 3);
        shim_destroy(owner);
    }
    EXPECT_EQ(umf_meta_used(), used);
}

TEST(local, closed_owner_still_lists_its_blocks) {
    shim_owner_t *owner = shim_create(true);
    worker_t worker;
    worker.run([&] { shim_add(owner, 2); });
    shim_add(owner, 1);
    shim_close(owner);
    EXPECT_FALSE(shim_has(owner));
    EXPECT_EQ(shim_sum(owner), 3);
    worker.finish();
    EXPECT_EQ(shim_exits(owner), 0);
    EXPECT_EQ(shim_sum(owner), 3);
    shim_close(owner);
    shim_destroy(owner);
}

TEST(local, threads_have_numbers) {
    uint64_t own = shim_number(), one = 0, two = 0;
    EXPECT_GT(own, 0u);
    std::thread([&] { one = shim_number(); }).join();
    std::thread([&] { two = shim_number(); }).join();
    EXPECT_GT(one, own);
    EXPECT_EQ(two, one + 1);
    EXPECT_EQ(shim_number(), own);
}

TEST(local, lowest_free_index_is_given) {
    std::vector<shim_owner_t *> owners;
    for (int i = 0; i < 200; i++) {
        owners.push_back(shim_create(false));
        EXPECT_EQ(shim_index(owners.back()), static_cast<uint32_t>(i + 1)) << "0 stands for none";
    }
    for (int i : {150, 70, 3}) {
        shim_destroy(owners[static_cast<size_t>(i)]);
    }
    for (uint32_t expected : {3u, 70u, 150u, 200u}) {
        shim_owner_t *owner = shim_create(false);
        EXPECT_EQ(shim_index(owner), expected + 1);
        if (expected < 200) {
            owners[expected] = owner;
        } else {
            owners.push_back(owner);
        }
    }
    for (shim_owner_t *owner : owners) {
        shim_destroy(owner);
    }
}

TEST(local, ten_thousand_owners) {
    size_t used = used_with_table();
    std::thread([] {
        std::vector<shim_owner_t *> owners;
        for (int i = 0; i < 10000; i++) {
            owners.push_back(shim_create(true));
            ASSERT_TRUE(shim_add(owners.back(), i));
        }
        for (int i = 0; i < 10000; i++) {
            EXPECT_EQ(shim_value(owners[static_cast<size_t>(i)]), i);
            shim_destroy(owners[static_cast<size_t>(i)]);
        }
    }).join();
    EXPECT_EQ(umf_meta_used(), used);
}

TEST(local, indices_run_out_at_a_million) {
    std::vector<shim_owner_t *> owners;
    owners.reserve((1 << 20) - 1);
    for (int i = 0; i < (1 << 20) - 1; i++) {
        owners.push_back(shim_create(false));
        ASSERT_NE(owners.back(), nullptr) << i;
    }
    EXPECT_EQ(shim_create(false), nullptr);
    for (shim_owner_t *owner : owners) {
        shim_destroy(owner);
    }
    shim_owner_t *owner = shim_create(false);
    ASSERT_NE(owner, nullptr);
    EXPECT_EQ(shim_index(owner), 1u);
    shim_destroy(owner);
}

TEST(local, exit_may_use_another_owner) {
    size_t used = used_with_table();
    shim_owner_t *low = shim_create(true);
    shim_owner_t *high = shim_create(true);
    shim_use_other(high, low); /* it has a block there until its own exit, which comes first */
    std::thread([&] {
        shim_add(low, 1);
        shim_add(high, 1);
    }).join();
    EXPECT_EQ(shim_exits(high), 1);
    EXPECT_EQ(shim_exits(low), 1);
    EXPECT_EQ(shim_exit_sum(low), 1);
    EXPECT_EQ(shim_blocks(low), 0);
    EXPECT_EQ(umf_meta_used(), used);
    shim_destroy(low);
    shim_destroy(high);
}

/* Whoever frees memory in a thread's last destructor, or the C library after it, must not make the
 * thread leave a block behind. */
TEST(local, ending_thread_gets_no_new_block) {
    static shim_owner_t *owner;
    static pthread_key_t key;
    static bool is_given;
    size_t used = used_with_table();
    owner = shim_create(true);
    shim_add(owner, 1); /* our key exists, so theirs comes after it */
    ASSERT_EQ(pthread_key_create(&key, [](void *) { is_given = shim_add(owner, 10); }), 0);
    is_given = true;
    std::thread([] {
        pthread_setspecific(key, &key);
        shim_add(owner, 1);
    }).join();
    EXPECT_FALSE(is_given);
    EXPECT_EQ(shim_exits(owner), 1);
    EXPECT_EQ(shim_exit_sum(owner), 1);
    EXPECT_EQ(shim_blocks(owner), 1) << "only the main thread's";
    pthread_key_delete(key);
    shim_destroy(owner);
    EXPECT_EQ(umf_meta_used(), used);
}

/* Whatever is kept by the number of a thread is never another thread's. */
TEST(local, numbers_of_threads_do_not_come_again) {
    uint64_t own = shim_number();
    std::set<uint64_t> seen{own};
    std::thread([&] {
        for (int i = 0; i < 70000; i++) {
            EXPECT_TRUE(seen.insert(shim_number_as_new()).second);
        }
    }).join();
    EXPECT_EQ(shim_number(), own);
}

/* A thread may undo its counts in its last destructor. */
TEST(local, ending_thread_keeps_its_number) {
    static shim_owner_t *owner;
    static pthread_key_t key;
    static uint64_t first, last;
    owner = shim_create(false);
    shim_add(owner, 1); /* our key exists, so theirs comes after it */
    ASSERT_EQ(pthread_key_create(&key, [](void *) { last = shim_number(); }), 0);
    std::thread([] {
        pthread_setspecific(key, &key);
        shim_add(owner, 1);
        first = shim_number();
    }).join();
    EXPECT_NE(first, 0u);
    EXPECT_EQ(last, first);
    pthread_key_delete(key);
    shim_destroy(owner);
}

TEST(local, out_of_memory_is_told_and_harmless) {
    shim_owner_t *owner = shim_create(true);
    std::vector<void *> blocks;
    umf_os_set_fault(fail_map);
    /* The last room of the arena, then that of a block's class. */
    for (size_t size : {size_t{32768}, size_t{128}}) {
        for (void *ptr = umf_meta_alloc(size); ptr; ptr = umf_meta_alloc(size)) {
            blocks.push_back(ptr);
            *static_cast<size_t *>(ptr) = size;
        }
    }
    EXPECT_EQ(shim_make(owner), nullptr);
    EXPECT_FALSE(shim_has(owner));
    umf_os_set_fault(nullptr);
    EXPECT_NE(shim_make(owner), nullptr);
    for (void *ptr : blocks) {
        umf_meta_free(ptr, *static_cast<size_t *>(ptr));
    }
    shim_destroy(owner);
}

/* The owner is gone, with all that thread_exit writes to, as soon as destroy returns. */
TEST(local, fini_waits_for_an_exit_under_way) {
    for (int i = 0; i < 50; i++) {
        shim_owner_t *owner = shim_create(true);
        auto watched = std::make_unique<int>(0);
        shim_watch(owner, watched.get(), 2000);
        std::thread thread([&] { shim_add(owner, 1); });
        while (shim_blocks(owner) == 0 && shim_exits(owner) == 0) {
            std::this_thread::yield();
        }
        usleep(static_cast<unsigned>(i) * 60);
        shim_destroy(owner);
        int seen = *watched;
        watched.reset();
        thread.join();
        EXPECT_LE(seen, 1);
    }
}

/* Threads that used many owners end while others destroy some of them. */
TEST(local, owners_are_destroyed_while_threads_end) {
    size_t used = used_with_table();
    std::mt19937 random(1);
    for (int round = 0; round < 150; round++) {
        const size_t count = 8;
        std::vector<shim_owner_t *> owners;
        for (size_t i = 0; i < count; i++) {
            owners.push_back(shim_create(true));
            if (i % 2) {
                shim_watch(owners[i], nullptr, 20);
            }
        }
        std::atomic<int> ready(0);
        std::atomic<bool> go(false);
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++) {
            threads.emplace_back([&] {
                for (shim_owner_t *owner : owners) {
                    shim_add(owner, 1);
                }
                ready++;
                while (!go) {
                    std::this_thread::yield();
                }
            });
        }
        while (ready < 4) {
            std::this_thread::yield();
        }
        go = true;
        usleep(static_cast<unsigned>(random() % 200));
        std::thread other([&] {
            for (size_t i = 0; i < count; i += 2) {
                shim_blocks(owners[i]);
                shim_destroy(owners[i]);
            }
        });
        for (size_t i = 1; i < count; i += 2) {
            shim_sum(owners[i]);
            shim_destroy(owners[i]);
        }
        other.join();
        for (std::thread &thread : threads) {
            thread.join();
        }
    }
    EXPECT_EQ(umf_meta_used(), used);
}

TEST(local, tables_grow_while_owners_are_destroyed) {
    size_t used = used_with_table();
    std::atomic<bool> stop(false);
    std::thread churner([&] {
        worker_t worker;
        while (!stop) {
            shim_owner_t *owner = shim_create(true);
            worker.run([&] { shim_add(owner, 1); });
            shim_destroy(owner);
        }
    });
    for (int round = 0; round < 100; round++) {
        std::vector<shim_owner_t *> owners;
        for (int i = 0; i < 300; i++) {
            owners.push_back(shim_create(true));
        }
        std::thread([&] {
            for (shim_owner_t *owner : owners) {
                shim_add(owner, 1);
                EXPECT_EQ(shim_value(owner), 1);
            }
        }).join();
        for (shim_owner_t *owner : owners) {
            EXPECT_EQ(shim_exits(owner), 1);
            shim_destroy(owner);
        }
    }
    stop = true;
    churner.join();
    EXPECT_EQ(umf_meta_used(), used);
}

TEST(local, child_of_fork_keeps_what_it_needs) {
    umf_fork_register_inner();
    umf_fork_register_outer();
    shim_owner_t *owner = shim_create(true);
    shim_owner_t *slow = shim_create(true);
    shim_watch(slow, nullptr, 500000);
    shim_add(owner, 1);
    worker_t worker;
    worker.run([&] { shim_add(owner, 10); });
    std::thread ending([&] { shim_add(slow, 1); });
    while (shim_blocks(slow) == 0) {
        std::this_thread::yield();
    }
    usleep(20000); /* it is inside thread_exit now */
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        bool is_good = shim_value(owner) == 1 && shim_sum(owner) == 11 && shim_blocks(slow) == 1;
        shim_add(owner, 100);
        shim_destroy(slow); /* its exit will never end here */
        shim_destroy(owner);
        shim_owner_t *next = shim_create(true);
        is_good = is_good && !shim_has(next) && shim_add(next, 1);
        shim_destroy(next);
        _exit(is_good ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ending.join();
    EXPECT_EQ(shim_exits(slow), 1);
    worker.finish();
    EXPECT_EQ(shim_exits(owner), 1);
    shim_destroy(slow);
    shim_destroy(owner);
}
