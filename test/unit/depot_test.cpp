#include <atomic>
#include <functional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "fakes/scale.h"
#include "fakes/self.h"
#include "fakes/threads.h"
#include "fault.h"

extern "C" {
#include "base/lock.h"
#include "base/meta.h"
#include "cache/depot.h"
#include "system/os.h"
}

namespace {

struct User {
    uint32_t number;
    bool is_contended, is_known; // known: it has a magazine of its own
    uint16_t needed;             // as in umf_depot_user_t
};

// `limit`: so many depots on any number of CPUs.
umf_depots_t *create_depots(size_t capacity, uint32_t limit) {
    umf_depots_t *depots = umf_depots_create(capacity);
    if (depots) {
        depots->limit = limit;
    }
    return depots;
}

void objects_of(void **objects, const std::vector<umf_item_t> &items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        objects[i] = items[i].object;
    }
}

size_t take_objects(umf_depots_t *depots, User *thread, void **objects, size_t n) {
    std::vector<umf_item_t> items(n);
    umf_depot_user_t user = {thread->needed, thread->is_contended, false};
    size_t taken = umf_depots_take(depots, thread->number, thread->is_known ? &user : nullptr,
                                   items.data(), n);
    thread->is_contended = user.is_contended;
    objects_of(objects, items, taken);
    return taken;
}

std::vector<umf_item_t> items_of(void *const *objects, size_t n) {
    std::vector<umf_item_t> items(n);
    for (size_t i = 0; i < n; i++) {
        items[i].object = objects[i];
    }
    return items;
}

bool give_objects(umf_depots_t *depots, User *thread, void *const *objects, size_t n) {
    const std::vector<umf_item_t> items = items_of(objects, n);
    umf_depot_user_t user = {thread->needed, thread->is_contended, false};
    bool is_given = umf_depots_give(depots, thread->number, thread->is_known ? &user : nullptr,
                                    items.data(), n);
    thread->is_contended = user.is_contended;
    thread->needed = user.needed;
    return is_given;
}

bool return_objects(umf_depots_t *depots, uint32_t owner, const std::vector<void *> &objects) {
    const std::vector<umf_item_t> items = items_of(objects.data(), objects.size());
    return umf_depots_return(depots, owner, items.data(), items.size());
}

// The lock is a depot's first member.
umf_lock_t *lock_of(const umf_depots_t *depots, uint32_t index) {
    return reinterpret_cast<umf_lock_t *>(depots->at[index].load());
}

void set_locked(umf_depots_t *depots, uint32_t index, bool is_locked) {
    if (is_locked) {
        umf_lock(lock_of(depots, index));
    } else {
        umf_unlock(lock_of(depots, index));
    }
}

bool is_awaited(const umf_depots_t *depots, uint32_t index) { // does one sleep?
    return __atomic_load_n(&lock_of(depots, index)->state, __ATOMIC_RELAXED) == UMF_LOCK_AWAITED;
}

size_t take_idle(umf_depots_t *depots, void **objects, size_t n) {
    std::vector<umf_item_t> items(n);
    size_t taken = umf_depots_take_idle(depots, items.data(), n);
    objects_of(objects, items, taken);
    return taken;
}

// Bytes of a depot's memory that are resident; a large depot is a mapping of its own.
size_t resident_of(umf_depots_t *depots, uint32_t index, size_t page_size) {
    size_t pages = depots->capacity * sizeof(umf_item_t) / page_size;
    std::vector<unsigned char> state(pages);
    EXPECT_EQ(mincore(depots->at[index].load(), pages * page_size, state.data()), 0);
    size_t count = 0;
    for (unsigned char one : state) {
        count += one & 1;
    }
    return count * page_size;
}

constexpr uint32_t LIMIT = 4;

void *object(size_t number) {
    return reinterpret_cast<void *>(number * 64);
}

std::vector<void *> objects(size_t first, size_t n) {
    std::vector<void *> list;
    for (size_t i = 0; i < n; i++) {
        list.push_back(object(first + i));
    }
    return list;
}

class Thread {
  public:
    Thread(umf_depots_t *of, uint32_t number, bool is_known = true)
        : depots(of), thread{number, false, is_known, 0} {}

    bool give(std::vector<void *> list) {
        return give_objects(depots, &thread, list.data(), list.size());
    }
    std::vector<void *> take(size_t n) {
        std::vector<void *> list(n);
        list.resize(take_objects(depots, &thread, list.data(), n));
        return list;
    }
    void needs(uint16_t objects) {
        thread.needed = objects;
    }
    bool is_contended() const {
        return thread.is_contended;
    }

  private:
    umf_depots_t *depots;
    User thread;
};

// The kernel below an emulator has pages of 4 KiB.
size_t kernel_page() {
    return is_emulated() ? 4096 : umf_os_page_size();
}

// As if another thread were at it.
class Locked {
  public:
    Locked(umf_depots_t *of, uint32_t at) : depots(of), index(at) {
        set_locked(depots, index, true);
    }
    ~Locked() {
        set_locked(depots, index, false);
    }

  private:
    umf_depots_t *depots;
    uint32_t index;
};

class Depots : public testing::Test {
  protected:
    const size_t used = umf_meta_used();
    umf_depots_t *depots = nullptr;

    void create(size_t capacity) {
        depots = create_depots(capacity, LIMIT);
        ASSERT_NE(depots, nullptr);
    }
    void TearDown() override {
        umf_depots_destroy(depots);
        EXPECT_EQ(umf_meta_used(), used);
    }
    size_t count() {
        return umf_depots_count(depots);
    }
    // The depots have the objects 1 to 8, and leave them to an owner that does nothing.
    void expect_half_after_a_pass() {
        Thread other(depots, 1);
        EXPECT_TRUE(other.take(8).empty());
        umf_depots_count_idle(depots);
        EXPECT_EQ(other.take(8), objects(5, 4));
        for (int pass = 0; pass < 3; pass++) {
            umf_depots_count_idle(depots);
        }
        EXPECT_EQ(other.take(8), objects(1, 4));
    }
};

TEST_F(Depots, TheLastGivenComesFirst) {
    create(16);
    Thread thread(depots, 0);
    EXPECT_TRUE(thread.take(4).empty());
    ASSERT_TRUE(thread.give(objects(1, 3)));
    ASSERT_TRUE(thread.give(objects(4, 2)));
    EXPECT_EQ(count(), 5u);
    EXPECT_EQ(thread.take(2), objects(4, 2));
    EXPECT_EQ(thread.take(10), objects(1, 3));
    EXPECT_EQ(count(), 0u);
}

TEST_F(Depots, AllOrNothingIsGiven) {
    create(8);
    Thread thread(depots, 0);
    ASSERT_TRUE(thread.give(objects(1, 5)));
    EXPECT_FALSE(thread.give(objects(6, 4)));
    EXPECT_EQ(count(), 5u);
    EXPECT_TRUE(thread.give(objects(6, 3)));
    EXPECT_FALSE(thread.give(objects(9, 1)));
    EXPECT_EQ(thread.take(20), objects(1, 8));
}

TEST_F(Depots, AThreadTakesWhatOthersGave) {
    create(8);
    for (uint32_t i = 0; i < LIMIT; i++) {
        ASSERT_TRUE(Thread(depots, i).give(objects(1 + 2 * i, 2)));
    }
    Thread taker(depots, 1), unknown(depots, 0, false);
    std::set<void *> seen;
    for (uint32_t i = 0; i < LIMIT * 2; i++) {
        for (void *one : (i % 2 ? taker : unknown).take(1)) {
            EXPECT_TRUE(seen.insert(one).second);
        }
    }
    EXPECT_EQ(seen.size(), LIMIT * 2);
    EXPECT_EQ(count(), 0u);
}

TEST_F(Depots, AThreadGetsItsOwnBack) {
    create(8);
    std::vector<Thread> threads;
    for (uint32_t i = 0; i < LIMIT; i++) {
        threads.emplace_back(depots, i);
        ASSERT_TRUE(threads[i].give(objects(1 + 8 * i, 7)));
    }
    for (uint32_t i : {2u, 0u, 3u, 1u}) {
        EXPECT_EQ(threads[i].take(7), objects(1 + 8 * i, 7)) << i;
    }
}

TEST_F(Depots, WhatItsOwnerNeedsIsLeftByOthers) {
    create(16);
    Thread owner(depots, 0), other(depots, 1), all(depots, 1, false);
    owner.needs(6);
    ASSERT_TRUE(owner.give(objects(1, 8)));
    EXPECT_EQ(other.take(8), objects(7, 2)) << "the remaining objects";
    EXPECT_TRUE(other.take(8).empty());
    EXPECT_EQ(owner.take(2), objects(5, 2));
    EXPECT_TRUE(other.take(8).empty());
    EXPECT_EQ(all.take(1), objects(4, 1)) << "who has no memory takes any";
    EXPECT_EQ(owner.take(8), objects(1, 3));
}

TEST_F(Depots, WhoGivesMoreThanItTookNeedsLess) {
    create(32);
    Thread owner(depots, 0), other(depots, 1);
    owner.needs(8);
    ASSERT_TRUE(owner.give(objects(1, 4)));
    ASSERT_TRUE(owner.give(objects(5, 4)));
    EXPECT_TRUE(other.take(8).empty()) << "it gave what it had taken";
    ASSERT_TRUE(owner.give(objects(9, 4)));
    EXPECT_EQ(other.take(16), objects(5, 8)) << "these 4, and 4 of the 8";
    ASSERT_TRUE(owner.give(objects(13, 4)));
    EXPECT_EQ(other.take(16).size(), 8u);
}

TEST_F(Depots, AnOwnerThatIsSilentKeepsLessAfterEachPass) {
    create(16);
    Thread owner(depots, 0);
    owner.needs(8);
    ASSERT_TRUE(owner.give(objects(1, 8)));
    expect_half_after_a_pass();
}

TEST_F(Depots, ReturnedObjectsAreLeftToTheirOwner) {
    create(16);
    Thread owner(depots, 0), other(depots, 1), all(depots, 1, false);
    ASSERT_TRUE(owner.give(objects(1, 2)));
    ASSERT_TRUE(return_objects(depots, 0, objects(11, 4)));
    EXPECT_EQ(other.take(8), objects(13, 2)) << "as many as the owner gave itself";
    EXPECT_TRUE(other.take(8).empty());
    EXPECT_EQ(owner.take(1), objects(12, 1));
    EXPECT_TRUE(other.take(8).empty());
    EXPECT_EQ(all.take(1), objects(11, 1)) << "who has no memory takes any";
    EXPECT_EQ(owner.take(8), objects(1, 2));
    ASSERT_TRUE(owner.give(objects(21, 2)));
    EXPECT_EQ(other.take(8), objects(21, 2)) << "the owner has taken those that came back";
}

TEST_F(Depots, ASilentOwnerLosesReturnedObjectsToOthers) {
    create(16);
    ASSERT_TRUE(return_objects(depots, 0, objects(1, 8)));
    expect_half_after_a_pass();
}

TEST_F(Depots, ReturnedObjectsThatDoNotFitGoToOthers) {
    create(8);
    Thread second(depots, 1);
    ASSERT_TRUE(second.give(objects(11, 2)));
    ASSERT_TRUE(return_objects(depots, 0, objects(1, 8)));
    EXPECT_TRUE(return_objects(depots, 0, objects(21, 6)));
    EXPECT_FALSE(return_objects(depots, 0, objects(31, 1)));
    EXPECT_EQ(second.take(6), objects(21, 6));
    EXPECT_EQ(second.take(8), objects(11, 2));
}

TEST_F(Depots, ThreadsBeyondTheLimitShare) {
    create(8);
    for (uint32_t i = 0; i < LIMIT; i++) {
        ASSERT_TRUE(Thread(depots, i).give(objects(1 + i, 1)));
    }
    EXPECT_EQ(Thread(depots, LIMIT + 2).take(8), objects(3, 1));
    EXPECT_TRUE(Thread(depots, LIMIT + 2).give(objects(9, 1)));
    EXPECT_EQ(Thread(depots, 2).take(8), objects(9, 1));
}

TEST_F(Depots, WhatDoesNotFitGoesToOthers) {
    create(8);
    Thread first(depots, 0), second(depots, 1);
    ASSERT_TRUE(first.give(objects(1, 8)));
    ASSERT_TRUE(second.give(objects(11, 2)));
    EXPECT_TRUE(first.give(objects(21, 6)));
    EXPECT_FALSE(first.give(objects(31, 1)));
    EXPECT_EQ(second.take(6), objects(21, 6));
    EXPECT_EQ(second.take(6), objects(11, 2));
}

TEST_F(Depots, TheNextDepotIsAskedFirst) {
    create(64);
    Thread taker(depots, 0), second(depots, 1), third(depots, 2), unknown(depots, 0, false);
    ASSERT_TRUE(Thread(depots, 0).give(objects(1, 1)));
    EXPECT_EQ(taker.take(1), objects(1, 1));
    ASSERT_TRUE(second.give(objects(11, 1)));
    ASSERT_TRUE(third.give(objects(21, 2)));
    EXPECT_EQ(taker.take(1), objects(11, 1));
    EXPECT_EQ(taker.take(1), objects(22, 1)) << "the second has none";
    ASSERT_TRUE(second.give(objects(12, 1)));
    EXPECT_EQ(taker.take(1), objects(12, 1)) << "the second's again";
    EXPECT_EQ(taker.take(1), objects(21, 1));
    ASSERT_TRUE(third.give(objects(23, 1)));
    ASSERT_TRUE(second.give(objects(13, 1)));
    ASSERT_TRUE(Thread(depots, 0).give(objects(2, 1)));
    EXPECT_EQ(taker.take(1), objects(2, 1)) << "its own come first";
    EXPECT_EQ(taker.take(1), objects(13, 1));
    EXPECT_EQ(unknown.take(1), objects(23, 1));
    EXPECT_EQ(count(), 0u);
}

TEST_F(Depots, WhoFindsOneLockedHasMetAnother) {
    create(64);
    Thread first(depots, 0), second(depots, 1), third(depots, 2);
    ASSERT_TRUE(first.give(objects(1, 8)));
    ASSERT_TRUE(second.give(objects(11, 8)));
    ASSERT_TRUE(third.give(objects(21, 8)));
    ASSERT_EQ(third.take(8).size(), 8u);
    EXPECT_EQ(third.take(1), objects(8, 1)) << "the first's";
    Locked locked(depots, 0);
    EXPECT_EQ(second.take(1), objects(18, 1));
    EXPECT_FALSE(second.is_contended()) << "it did not look there";
    EXPECT_EQ(third.take(1), objects(17, 1)) << "the second's";
    EXPECT_TRUE(third.is_contended());
}

// Idle stacks of other threads lie next to their used ones.
TEST_F(Depots, WhoFindsItsOwnLockedWaits) {
    create(64);
    Thread first(depots, 0), second(depots, 1), giver(depots, 0);
    ASSERT_TRUE(first.give(objects(1, 8)));
    ASSERT_TRUE(second.give(objects(11, 8)));
    std::vector<void *> taken;
    const auto while_locked = [&](const std::function<void()> &work) {
        std::thread waiting;
        {
            Locked locked(depots, 0);
            waiting = std::thread(work);
            while (!is_awaited(depots, 0)) {
                std::this_thread::yield();
            }
        }
        waiting.join();
    };
    while_locked([&] { taken = first.take(2); });
    EXPECT_EQ(taken, objects(7, 2));
    EXPECT_TRUE(first.is_contended());
    while_locked([&] { EXPECT_TRUE(giver.give(objects(21, 2))); });
    EXPECT_TRUE(giver.is_contended());
    EXPECT_EQ(first.take(2), objects(21, 2)) << "where the giver has its own";
    EXPECT_EQ(second.take(8), objects(11, 8));
}

TEST_F(Depots, WhoOnlyTakesIsServed) {
    create(1024);
    Thread producer(depots, 0), consumer(depots, 1), unknown(depots, 2, false);
    ASSERT_TRUE(producer.give(objects(1, 1)));
    ASSERT_TRUE(unknown.give(objects(2, 100)));
    EXPECT_EQ(unknown.take(101).size(), 100u);
    EXPECT_EQ(unknown.take(101).size(), 1u) << "the producer's";
    for (size_t i = 0; i < 100; i++) {
        ASSERT_TRUE(producer.give(objects(1, 20)));
        EXPECT_EQ(consumer.take(10).size(), 10u);
        EXPECT_EQ(unknown.take(10).size(), 10u);
    }
}

// Others filled it while they waited for its lock.
TEST_F(Depots, WhoHasWaitedLooksAgainForRoom) {
    constexpr size_t CAPACITY = 8, EACH = 3, GIVERS = 6;
    for (size_t round = 0; round < 50; round++) {
        depots = create_depots(CAPACITY, 1);
        ASSERT_TRUE(Thread(depots, 0).give(objects(100, EACH)));
        std::atomic<size_t> begun{0}, given{0};
        std::vector<std::thread> givers;
        {
            Locked locked(depots, 0);
            for (size_t i = 0; i < GIVERS; i++) {
                givers.emplace_back([&, i] {
                    begun++;
                    given += Thread(depots, 0).give(objects(1 + i * EACH, EACH));
                });
            }
            while (begun < GIVERS || !is_awaited(depots, 0)) {
                std::this_thread::yield();
            }
        }
        for (auto &giver : givers) {
            giver.join();
        }
        EXPECT_EQ(given, 1u);
        EXPECT_EQ(count(), 2 * EACH);
        umf_depots_destroy(depots);
        depots = nullptr;
    }
}

// --- counts ---

TEST_F(Depots, IdleIsWhatNobodyHasNeeded) {
    create(64);
    Thread first(depots, 0), second(depots, 1);
    EXPECT_EQ(umf_depots_count_idle(depots), 0u);
    ASSERT_TRUE(first.give(objects(1, 10)));
    ASSERT_TRUE(second.give(objects(11, 10)));
    EXPECT_EQ(umf_depots_count_idle(depots), 0u) << "they were not there all the time";
    EXPECT_EQ(umf_depots_count_idle(depots), 20u);
    EXPECT_EQ(first.take(4).size(), 4u);
    EXPECT_EQ(second.take(1).size(), 1u);
    ASSERT_TRUE(first.give(objects(21, 6)));
    EXPECT_EQ(umf_depots_count_idle(depots), 15u);
    EXPECT_EQ(umf_depots_count_idle(depots), 21u);
    EXPECT_EQ(count(), 21u) << "only counted";
}

TEST_F(Depots, IdleObjectsAreTakenOnce) {
    create(64);
    Thread first(depots, 0), second(depots, 1);
    void *taken[32];
    ASSERT_TRUE(first.give(objects(1, 10)));
    ASSERT_TRUE(second.give(objects(11, 10)));
    EXPECT_EQ(take_idle(depots, taken, 32), 0u) << "no thread has requested them";
    umf_depots_count_idle(depots);
    EXPECT_EQ(umf_depots_count_idle(depots), 20u);
    EXPECT_EQ(take_idle(depots, taken, 15), 15u);
    EXPECT_EQ(take_idle(depots, taken + 15, 15), 5u);
    EXPECT_EQ(take_idle(depots, taken + 20, 1), 0u);
    EXPECT_EQ(std::set<void *>(taken, taken + 20).size(), 20u);
    EXPECT_EQ(count(), 0u);
}

TEST_F(Depots, WhatIsNeededAfterAllIsIdleNoMore) {
    create(64);
    Thread thread(depots, 0);
    void *taken[32];
    ASSERT_TRUE(thread.give(objects(1, 10)));
    umf_depots_count_idle(depots);
    EXPECT_EQ(umf_depots_count_idle(depots), 10u);
    EXPECT_EQ(thread.take(4).size(), 4u);
    ASSERT_TRUE(thread.give(objects(11, 10)));
    EXPECT_EQ(take_idle(depots, taken, 32), 6u);
    EXPECT_EQ(count(), 10u);
}

TEST_F(Depots, IdleOnesAreNoMoreForThoseGivenLater) {
    create(64);
    Thread thread(depots, 0);
    void *taken[32];
    ASSERT_TRUE(thread.give(objects(1, 10)));
    umf_depots_count_idle(depots);
    ASSERT_TRUE(thread.give(objects(11, 10)));
    EXPECT_EQ(umf_depots_count_idle(depots), 10u);
    EXPECT_EQ(take_idle(depots, taken, 4), 4u);
    EXPECT_EQ(take_idle(depots, taken, 32), 6u);
    EXPECT_EQ(take_idle(depots, taken, 32), 0u);
    EXPECT_EQ(count(), 10u);
}

// --- no memory ---

TEST_F(Depots, ATrimDropsThePagesOfEmptyOnes) {
    constexpr size_t CAPACITY = 65536; // 1 MiB
    create(CAPACITY);
    Thread one(depots, 0);
    ASSERT_TRUE(one.give(objects(0, CAPACITY)));
    const size_t full = resident_of(depots, 0, kernel_page());
    EXPECT_GE(full, CAPACITY * 16);
    EXPECT_EQ(one.take(CAPACITY - 1).size(), CAPACITY - 1);
    umf_depots_trim(depots);
    EXPECT_EQ(resident_of(depots, 0, kernel_page()), full) << "it is not empty";
    EXPECT_EQ(one.take(1), objects(0, 1));
    umf_depots_trim(depots);
    EXPECT_LE(resident_of(depots, 0, kernel_page()), umf_os_page_size() * 2);
    ASSERT_TRUE(one.give(objects(5, CAPACITY)));
    EXPECT_EQ(one.take(CAPACITY), objects(5, CAPACITY));
}

TEST_F(Depots, WithoutMemoryNothingIsLost) {
    size_t failed = 0;
    for (fault::Nth nth("meta_alloc"); nth.next();) {
        depots = create_depots(8, LIMIT);
        size_t given = 0;
        for (uint32_t i = 0; depots && i < LIMIT; i++) {
            bool is_given = Thread(depots, i).give(objects(1 + 2 * i, 2));
            given += is_given ? 2 : 0;
            failed += !is_given;
            EXPECT_EQ(count(), given);
        }
        nth.off();
        std::set<void *> seen;
        for (size_t i = 0; i < given; i++) {
            for (void *one : Thread(depots, 3).take(1)) {
                seen.insert(one);
            }
        }
        EXPECT_EQ(seen.size(), given);
        failed += !depots;
        umf_depots_destroy(depots);
        depots = nullptr;
    }
    EXPECT_EQ(failed, 2u) << "the set, and the first depot: without another, others are used";
}

// --- threads ---

TEST_F(Depots, ThreadsExchangeObjects) {
    constexpr size_t THREADS = 6, EACH = 100, ROOM = 60; // which is often full
    create(ROOM);
    std::vector<std::atomic<int>> holders(THREADS * EACH + 1);
    std::atomic<size_t> mistakes{0}, held{0};
    auto held_by = [&](void *one) -> std::atomic<int> & {
        return holders[reinterpret_cast<uintptr_t>(one) / 64];
    };
    run_threads<uint32_t>(THREADS, [&](uint32_t t) {
        Thread self(depots, t, t != 0);
        std::mt19937 random(t);
        auto list = objects(1 + t * EACH, EACH);
        for (void *one : list) {
            held_by(one) = 1;
        }
        for (size_t i = 0; i < scaled(20000); i++) {
            size_t n = 1 + random() % 20;
            if (random() % 2) {
                for (void *one : self.take(n)) {
                    mistakes += held_by(one).exchange(1) != 0;
                    list.push_back(one);
                }
            } else if (n <= list.size()) {
                std::vector<void *> batch(list.end() - static_cast<long>(n), list.end());
                for (void *one : batch) {
                    mistakes += held_by(one).exchange(0) != 1;
                }
                bool is_given = self.give(batch);
                mistakes += count() > LIMIT * ROOM;
                if (is_given) {
                    list.resize(list.size() - n);
                    continue;
                }
                for (void *one : batch) {
                    mistakes += held_by(one).exchange(1) != 0;
                }
            }
        }
        held += list.size();
    });
    EXPECT_EQ(held + count(), THREADS * EACH);
    for (Thread self(depots, 0, false); count() > 0;) {
        for (void *one : self.take(7)) {
            mistakes += held_by(one).exchange(1) != 0;
        }
    }
    EXPECT_EQ(mistakes, 0u) << "one object was in two hands";
    for (size_t i = 1; i < holders.size(); i++) {
        EXPECT_EQ(holders[i], 1) << "lost";
    }
}

} // namespace
