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
#include "base/thread_slot.h"
#include "system/os.h"
}

namespace {

struct Owner;
bool add_value(Owner *owner, int value);

// An owner of per-thread blocks that hold one number.
struct Block {
    umf_thread_slot_t head;
    std::atomic<int> value;
    int filler[10];
};

struct Owner {
    umf_thread_slot_owner_t owner;
    Owner *other; /* used by thread_exit */
    std::atomic<int> exits;
    std::atomic<int> sum;
    int delay_us;
    std::atomic<bool> is_held, is_inside; /* thread_exit waits; it has begun */
    int *watched;                         /* written by thread_exit: gone when the owner is */
};

void thread_exit(umf_thread_slot_owner_t *base, umf_thread_slot_t *head) {
    Owner *owner = reinterpret_cast<Owner *>(base);
    Block *block = reinterpret_cast<Block *>(head);
    owner->is_inside = true;
    while (owner->is_held) {
        std::this_thread::yield();
    }
    if (owner->other) {
        add_value(owner->other, 1);
    }
    if (owner->delay_us) {
        std::this_thread::sleep_for(std::chrono::microseconds(owner->delay_us));
    }
    if (owner->watched) {
        ++*owner->watched;
    }
    atomic_fetch_add(&owner->sum, atomic_load(&block->value));
    atomic_fetch_add(&owner->exits, 1);
}

Owner *create_owner(bool with_exit) {
    auto owner = new Owner{};
    if (umf_thread_slot_owner_init(&owner->owner, 0, sizeof(Block),
                                   with_exit ? thread_exit : nullptr) != UMF_RESULT_SUCCESS) {
        delete owner;
        return nullptr;
    }
    return owner;
}

void close_owner(Owner *owner) {
    umf_thread_slot_owner_close(&owner->owner);
}

void destroy_owner(Owner *owner) {
    umf_thread_slot_owner_fini(&owner->owner);
    delete owner;
}

void watch(Owner *owner, int *watched, int delay_us) {
    owner->watched = watched;
    owner->delay_us = delay_us;
}

void use_other(Owner *owner, Owner *other) {
    owner->other = other;
}

uint32_t index_of(const Owner *owner) {
    return owner->owner.index;
}

bool has_block(const Owner *owner) {
    return umf_thread_slot_get(owner->owner.index)->owner != nullptr;
}

bool add_value(Owner *owner, int value) {
    umf_thread_slot_t *block = umf_thread_slot_get(owner->owner.index);
    if (!block->owner) {
        block = umf_thread_slot_make(&owner->owner);
    }
    if (!block) {
        return false;
    }
    atomic_fetch_add(&reinterpret_cast<Block *>(block)->value, value);
    return true;
}

void *make_block(Owner *owner) {
    return umf_thread_slot_make(&owner->owner);
}

int value_of(const Owner *owner) {
    return atomic_load(&reinterpret_cast<Block *>(umf_thread_slot_get(owner->owner.index))->value);
}

int exits_of(Owner *owner) {
    return atomic_load(&owner->exits);
}

int exit_sum(Owner *owner) {
    return atomic_load(&owner->sum);
}

struct Totals {
    int blocks, sum;
};

void count_block(umf_thread_slot_t *block, void *arg) {
    auto totals = static_cast<Totals *>(arg);
    totals->blocks++;
    totals->sum += atomic_load(&reinterpret_cast<Block *>(block)->value);
}

int count_blocks(Owner *owner) {
    Totals totals = {0, 0};
    umf_thread_slot_each(&owner->owner, count_block, &totals);
    return totals.blocks;
}

int sum_of_blocks(Owner *owner) {
    Totals totals = {0, 0};
    umf_thread_slot_each(&owner->owner, count_block, &totals);
    return totals.sum;
}

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
    Owner *owner = create_owner(false);
    add_value(owner, 1);
    destroy_owner(owner);
    return umf_meta_used();
}

int fail_map(const char *call) {
    return std::strcmp(call, "map") == 0 ? ENOMEM : 0;
}

} // namespace

TEST(local, absent_block_reads_as_zero) {
    Owner *owner = create_owner(true);
    EXPECT_FALSE(has_block(owner));
    EXPECT_EQ(value_of(owner), 0);
    EXPECT_EQ(count_blocks(owner), 0);
    destroy_owner(owner);
}

TEST(local, make_gives_the_same_block_again) {
    Owner *owner = create_owner(true);
    void *block = make_block(owner);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(make_block(owner), block);
    EXPECT_TRUE(has_block(owner));
    EXPECT_EQ(count_blocks(owner), 1);
    destroy_owner(owner);
}

TEST(local, every_thread_has_its_own) {
    Owner *owner = create_owner(true);
    add_value(owner, 1);
    worker_t worker;
    worker.run([&] {
        EXPECT_FALSE(has_block(owner));
        add_value(owner, 10);
        EXPECT_EQ(value_of(owner), 10);
    });
    EXPECT_EQ(value_of(owner), 1);
    EXPECT_EQ(count_blocks(owner), 2);
    EXPECT_EQ(sum_of_blocks(owner), 11);
    destroy_owner(owner);
}

TEST(local, thread_exit_gets_the_block_once_and_frees_it) {
    size_t used = used_with_table();
    Owner *owner = create_owner(true);
    std::thread([&] { add_value(owner, 5); }).join();
    EXPECT_EQ(exits_of(owner), 1);
    EXPECT_EQ(exit_sum(owner), 5);
    EXPECT_EQ(count_blocks(owner), 0);
    EXPECT_EQ(umf_meta_used(), used);
    destroy_owner(owner);
}

TEST(local, owner_without_thread_exit) {
    size_t used = used_with_table();
    Owner *owner = create_owner(false);
    std::thread([&] { add_value(owner, 5); }).join();
    EXPECT_EQ(count_blocks(owner), 0);
    EXPECT_EQ(umf_meta_used(), used);
    destroy_owner(owner);
}

TEST(local, fini_frees_the_blocks_of_living_threads) {
    size_t used = used_with_table();
    {
        worker_t worker;
        Owner *owner = create_owner(true);
        add_value(owner, 1);
        worker.run([&] { add_value(owner, 2); });
        uint32_t index = index_of(owner);
        destroy_owner(owner);

        /* The next owner gets the same index and must not find the old blocks. */
        owner = create_owner(true);
        EXPECT_EQ(index_of(owner), index);
        EXPECT_FALSE(has_block(owner));
        worker.run([&] {
            EXPECT_FALSE(has_block(owner));
            add_value(owner, 3);
        });
        worker.finish();
        EXPECT_EQ(exits_of(owner), 1);
        EXPECT_EQ(exit_sum(owner), 3);
        destroy_owner(owner);
    }
    EXPECT_EQ(umf_meta_used(), used);
}

TEST(local, closed_owner_still_lists_its_blocks) {
    Owner *owner = create_owner(true);
    worker_t worker;
    worker.run([&] { add_value(owner, 2); });
    add_value(owner, 1);
    close_owner(owner);
    EXPECT_FALSE(has_block(owner));
    EXPECT_EQ(sum_of_blocks(owner), 3);
    worker.finish();
    EXPECT_EQ(exits_of(owner), 0);
    EXPECT_EQ(sum_of_blocks(owner), 3);
    close_owner(owner);
    destroy_owner(owner);
}

TEST(local, threads_have_numbers) {
    uint64_t own = umf_thread_slot_number(), one = 0, two = 0;
    EXPECT_GT(own, 0u);
    std::thread([&] { one = umf_thread_slot_number(); }).join();
    std::thread([&] { two = umf_thread_slot_number(); }).join();
    EXPECT_GT(one, own);
    EXPECT_EQ(two, one + 1);
    EXPECT_EQ(umf_thread_slot_number(), own);
}

TEST(local, lowest_free_index_is_given) {
    std::vector<Owner *> owners;
    for (int i = 0; i < 200; i++) {
        owners.push_back(create_owner(false));
        EXPECT_EQ(index_of(owners.back()), static_cast<uint32_t>(i + 1)) << "0 stands for none";
    }
    for (int i : {150, 70, 3}) {
        destroy_owner(owners[static_cast<size_t>(i)]);
    }
    for (uint32_t expected : {3u, 70u, 150u, 200u}) {
        Owner *owner = create_owner(false);
        EXPECT_EQ(index_of(owner), expected + 1);
        if (expected < 200) {
            owners[expected] = owner;
        } else {
            owners.push_back(owner);
        }
    }
    for (Owner *owner : owners) {
        destroy_owner(owner);
    }
}

TEST(local, ten_thousand_owners) {
    size_t used = used_with_table();
    std::thread([] {
        std::vector<Owner *> owners;
        for (int i = 0; i < 10000; i++) {
            owners.push_back(create_owner(true));
            ASSERT_TRUE(add_value(owners.back(), i));
        }
        for (int i = 0; i < 10000; i++) {
            EXPECT_EQ(value_of(owners[static_cast<size_t>(i)]), i);
            destroy_owner(owners[static_cast<size_t>(i)]);
        }
    }).join();
    EXPECT_EQ(umf_meta_used(), used);
}

TEST(local, indices_run_out_at_a_million) {
    std::vector<Owner *> owners;
    owners.reserve((1 << 20) - 1);
    for (int i = 0; i < (1 << 20) - 1; i++) {
        owners.push_back(create_owner(false));
        ASSERT_NE(owners.back(), nullptr) << i;
    }
    EXPECT_EQ(create_owner(false), nullptr);
    for (Owner *owner : owners) {
        destroy_owner(owner);
    }
    Owner *owner = create_owner(false);
    ASSERT_NE(owner, nullptr);
    EXPECT_EQ(index_of(owner), 1u);
    destroy_owner(owner);
}

TEST(local, exit_may_use_another_owner) {
    size_t used = used_with_table();
    Owner *low = create_owner(true);
    Owner *high = create_owner(true);
    use_other(high, low); /* it has a block there until its own exit, which comes first */
    std::thread([&] {
        add_value(low, 1);
        add_value(high, 1);
    }).join();
    EXPECT_EQ(exits_of(high), 1);
    EXPECT_EQ(exits_of(low), 1);
    EXPECT_EQ(exit_sum(low), 1);
    EXPECT_EQ(count_blocks(low), 0);
    EXPECT_EQ(umf_meta_used(), used);
    destroy_owner(low);
    destroy_owner(high);
}

/* Whoever frees memory in a thread's last destructor, or the C library after it, must not make the
 * thread leave a block behind. */
TEST(local, ending_thread_gets_no_new_block) {
    static Owner *owner;
    static pthread_key_t key;
    static bool is_given;
    size_t used = used_with_table();
    owner = create_owner(true);
    add_value(owner, 1); /* our key exists, so theirs comes after it */
    ASSERT_EQ(pthread_key_create(&key, [](void *) { is_given = add_value(owner, 10); }), 0);
    is_given = true;
    std::thread([] {
        pthread_setspecific(key, &key);
        add_value(owner, 1);
    }).join();
    EXPECT_FALSE(is_given);
    EXPECT_EQ(exits_of(owner), 1);
    EXPECT_EQ(exit_sum(owner), 1);
    EXPECT_EQ(count_blocks(owner), 1) << "only the main thread's";
    pthread_key_delete(key);
    destroy_owner(owner);
    EXPECT_EQ(umf_meta_used(), used);
}

/* Whatever is kept by the number of a thread is never another thread's. */
TEST(local, numbers_of_threads_do_not_come_again) {
    uint64_t own = umf_thread_slot_number();
    std::set<uint64_t> seen{own};
    std::thread([&] {
        for (int i = 0; i < 70000; i++) {
            EXPECT_TRUE(seen.insert(umf_thread_slot_number_slow()).second);
        }
    }).join();
    EXPECT_EQ(umf_thread_slot_number(), own);
}

/* A thread may undo its counts in its last destructor. */
TEST(local, ending_thread_keeps_its_number) {
    static Owner *owner;
    static pthread_key_t key;
    static uint64_t first, last;
    owner = create_owner(false);
    add_value(owner, 1); /* our key exists, so theirs comes after it */
    ASSERT_EQ(pthread_key_create(&key, [](void *) { last = umf_thread_slot_number(); }), 0);
    std::thread([] {
        pthread_setspecific(key, &key);
        add_value(owner, 1);
        first = umf_thread_slot_number();
    }).join();
    EXPECT_NE(first, 0u);
    EXPECT_EQ(last, first);
    pthread_key_delete(key);
    destroy_owner(owner);
}

TEST(local, out_of_memory_is_told_and_harmless) {
    Owner *owner = create_owner(true);
    std::vector<void *> blocks;
    umf_os_set_fault(fail_map);
    /* The last room of the arena, then that of a block's class. */
    for (size_t size : {size_t{32768}, size_t{128}}) {
        for (void *ptr = umf_meta_alloc(size); ptr; ptr = umf_meta_alloc(size)) {
            blocks.push_back(ptr);
            *static_cast<size_t *>(ptr) = size;
        }
    }
    EXPECT_EQ(make_block(owner), nullptr);
    EXPECT_FALSE(has_block(owner));
    umf_os_set_fault(nullptr);
    EXPECT_NE(make_block(owner), nullptr);
    for (void *ptr : blocks) {
        umf_meta_free(ptr, *static_cast<size_t *>(ptr));
    }
    destroy_owner(owner);
}

/* The owner is gone, with all that thread_exit writes to, as soon as destroy returns. */
TEST(local, fini_waits_for_an_exit_under_way) {
    for (int i = 0; i < 50; i++) {
        Owner *owner = create_owner(true);
        auto watched = std::make_unique<int>(0);
        watch(owner, watched.get(), 2000);
        std::thread thread([&] { add_value(owner, 1); });
        while (count_blocks(owner) == 0 && exits_of(owner) == 0) {
            std::this_thread::yield();
        }
        usleep(static_cast<unsigned>(i) * 60);
        destroy_owner(owner);
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
        std::vector<Owner *> owners;
        for (size_t i = 0; i < count; i++) {
            owners.push_back(create_owner(true));
            if (i % 2) {
                watch(owners[i], nullptr, 20);
            }
        }
        std::atomic<int> ready(0);
        std::atomic<bool> go(false);
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++) {
            threads.emplace_back([&] {
                for (Owner *owner : owners) {
                    add_value(owner, 1);
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
                count_blocks(owners[i]);
                destroy_owner(owners[i]);
            }
        });
        for (size_t i = 1; i < count; i += 2) {
            sum_of_blocks(owners[i]);
            destroy_owner(owners[i]);
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
            Owner *owner = create_owner(true);
            worker.run([&] { add_value(owner, 1); });
            destroy_owner(owner);
        }
    });
    for (int round = 0; round < 100; round++) {
        std::vector<Owner *> owners;
        for (int i = 0; i < 300; i++) {
            owners.push_back(create_owner(true));
        }
        std::thread([&] {
            for (Owner *owner : owners) {
                add_value(owner, 1);
                EXPECT_EQ(value_of(owner), 1);
            }
        }).join();
        for (Owner *owner : owners) {
            EXPECT_EQ(exits_of(owner), 1);
            destroy_owner(owner);
        }
    }
    stop = true;
    churner.join();
    EXPECT_EQ(umf_meta_used(), used);
}

TEST(local, child_of_fork_keeps_what_it_needs) {
    umf_fork_register_inner();
    umf_fork_register_outer();
    Owner *owner = create_owner(true);
    Owner *slow = create_owner(true);
    slow->is_held = true;
    add_value(owner, 1);
    worker_t worker;
    worker.run([&] { add_value(owner, 10); });
    std::thread ending([&] { add_value(slow, 1); });
    while (!slow->is_inside) {
        std::this_thread::yield();
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        bool is_good =
            value_of(owner) == 1 && sum_of_blocks(owner) == 11 && count_blocks(slow) == 1;
        add_value(owner, 100);
        destroy_owner(slow); /* its exit will never end here */
        destroy_owner(owner);
        Owner *next = create_owner(true);
        is_good = is_good && !has_block(next) && add_value(next, 1);
        destroy_owner(next);
        _exit(is_good ? 0 : 1);
    }
    slow->is_held = false;
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ending.join();
    EXPECT_EQ(exits_of(slow), 1);
    worker.finish();
    EXPECT_EQ(exits_of(owner), 1);
    destroy_owner(slow);
    destroy_owner(owner);
}
