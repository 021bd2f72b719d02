/*
 * Many threads on every pool: memory goes from hand to hand with its contents checked, threads come
 * and go, pools come and go.
 */
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/kinds.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

// What lies at the start of each block; its last byte is the low byte of the seed.
struct Head {
    uint64_t seed;
    size_t size;
};

class Work {
  public:
    explicit Work(umf_memory_pool_handle_t p, bool is_tracked, size_t largest)
        : pool(p), tracked(is_tracked), largest_shift(largest), slots(512) {}

    void run(unsigned seed, size_t rounds) {
        std::mt19937_64 random(seed);
        for (size_t i = 0; i < rounds; i++) {
            Head *fresh = random() % 3 ? make(random()) : nullptr;
            Head *old = slots[random() % slots.size()].exchange(fresh);
            if (old) {
                drop(old, random() % 2);
            }
        }
    }
    void finish() {
        for (auto &slot : slots) {
            Head *head = slot.exchange(nullptr);
            if (head) {
                drop(head, false);
            }
        }
    }
    std::atomic<int> wrong{0};

  private:
    umf_memory_pool_handle_t pool;
    bool tracked;
    size_t largest_shift;
    std::vector<std::atomic<Head *>> slots;

    Head *make(uint64_t random) {
        size_t size = sizeof(Head) + 1 + (random >> 20) % (size_t{1} << (random % largest_shift));
        void *p = random >> 10 & 1
                      ? umfPoolMalloc(pool, size)
                      : umfPoolAlignedMalloc(pool, size, size_t{1} << (random >> 12 & 7));
        if (!p) {
            wrong++;
            return nullptr;
        }
        auto head = static_cast<Head *>(p);
        *head = {random, size};
        last(head) = static_cast<unsigned char>(random);
        return head;
    }
    void drop(Head *head, bool by_pointer) {
        wrong += last(head) != static_cast<unsigned char>(head->seed);
        umf_result_t result = by_pointer && tracked ? umfFree(head) : umfPoolFree(pool, head);
        wrong += result != OK;
    }
    static unsigned char &last(Head *head) {
        return reinterpret_cast<unsigned char *>(head)[head->size - 1];
    }
};

class Threads : public testing::TestWithParam<std::tuple<PoolKind, SourceKind>> {
  protected:
    const PoolKind &kind = std::get<0>(GetParam());
    std::unique_ptr<Source> source = std::get<1>(GetParam()).make();
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        ASSERT_NE(source->handle, nullptr);
        NEEDS_TO_FIT(kind, std::get<1>(GetParam()))
        ASSERT_EQ(umfPoolCreate(kind.ops(), source->handle, nullptr, 0, &pool), OK);
    }
    void TearDown() override {
        if (!pool) {
            return;
        }
        EXPECT_EQ(alloc_count(pool), 0u);
        if (kind.trims) {
            EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
            EXPECT_EQ(source->live_bytes(), 0u);
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(source->live_bytes(), 0u);
    }
    size_t rounds(size_t n) {
        return scaled(std::string(kind.id) == "proxy" ? n / 10 : n);
    }
    size_t largest() {
        return std::string(kind.id) == "proxy" ? 14 : 18;
    }
};

// RULES 22, 26, 47.
TEST_P(Threads, MemoryGoesFromHandToHand) {
    Work work(pool, true, largest());
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 16; t++) {
        threads.emplace_back([&, t] { work.run(t, rounds(6000)); });
    }
    if (kind.trims) {
        for (int i = 0; i < 20; i++) {
            EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
            std::this_thread::yield();
        }
    }
    for (auto &thread : threads) {
        thread.join();
    }
    work.finish();
    EXPECT_EQ(work.wrong, 0);
}

TEST_P(Threads, ComeAndGo) {
    Work work(pool, true, 12);
    const size_t total = scaled(1000);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < total; t++) {
        threads.emplace_back([&, t] { work.run(static_cast<unsigned>(t), 60); });
        if (threads.size() == 8) {
            for (auto &thread : threads) {
                thread.join();
            }
            threads.clear();
        }
    }
    for (auto &thread : threads) {
        thread.join();
    }
    work.finish();
    EXPECT_EQ(work.wrong, 0);
}

TEST_P(Threads, PoolsComeAndGo) {
    std::atomic<int> wrong{0};
    run_threads<unsigned>(4, [&](unsigned t) {
        for (size_t i = 0; i < scaled(100); i++) {
            umf_memory_pool_handle_t mine = nullptr;
            const umf_pool_create_flags_t flags = i % 2 * UMF_POOL_CREATE_FLAG_DISABLE_TRACKING;
            if (umfPoolCreate(kind.ops(), source->handle, nullptr, flags, &mine) != OK) {
                wrong++;
                continue;
            }
            Work work(mine, !flags, 13);
            work.run(t, 50);
            void *shared = umfPoolMalloc(pool, 100);
            wrong += umfFree(shared) != OK;
            if (i % 3) {
                work.finish();
            }
            wrong += work.wrong;
            wrong += umfPoolDestroy(mine) != OK; // with blocks alive, every third time
        }
    });
    EXPECT_EQ(wrong, 0);
}

// Lookups of any address while spans come and go.
TEST_P(Threads, PointersAreAskedFor) {
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> askers;
    auto kept = static_cast<char *>(umfPoolMalloc(pool, 3000));
    for (int t = 0; t < 2; t++) {
        askers.emplace_back([&] {
            std::mt19937_64 random(5);
            while (!stop) {
                umf_memory_pool_handle_t found = nullptr;
                wrong += umfPoolByPtr(kept + random() % 3000, &found) != OK || found != pool;
                umfPoolByPtr(kept + random() % (64u << 20), &found);
                umfPoolByPtr(reinterpret_cast<void *>(random()), &found);
                umfPoolByPtr(&random, &found);
                wrong += found != nullptr;
            }
        });
    }
    Work work(pool, true, largest());
    std::thread worker([&] { work.run(1, rounds(20000)); });
    worker.join();
    stop = true;
    for (auto &asker : askers) {
        asker.join();
    }
    work.finish();
    EXPECT_EQ(umfFree(kept), OK);
    EXPECT_EQ(wrong + work.wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Each, Threads,
                         testing::Combine(testing::ValuesIn(pool_kinds()),
                                          testing::ValuesIn(source_kinds())),
                         [](const auto &test) {
                             return std::string(std::get<0>(test.param).id) + "_on_" +
                                    std::get<1>(test.param).label;
                         });

// Control queries meet pools that come and go.
TEST(Control, ByNameWhilePoolsComeAndGo) {
    auto source = make_os(UMF_MEM_MAP_PRIVATE);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++) {
        threads.emplace_back([&] {
            while (!stop) {
                size_t count = 0, value = 0;
                umfCtlGet("umf.pool.by_name.disjoint.count", &count, sizeof(count));
                umfCtlGet("umf.pool.by_name.disjoint.0.stats.alloc_count", &value, sizeof(value));
                umfCtlGet("umf.pool.by_name.{}.{}.params.capacity", &value, sizeof(value),
                          "disjoint", size_t{0});
                value = 8;
                umfCtlSet("umf.pool.default.disjoint.params.capacity", &value, sizeof(value));
            }
        });
    }
    for (size_t i = 0; i < scaled(1000); i++) {
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), source->handle, nullptr, 0, &pool), OK);
        EXPECT_EQ(umfPoolFree(pool, umfPoolMalloc(pool, 100)), OK);
        ASSERT_EQ(umfPoolDestroy(pool), OK);
    }
    stop = true;
    for (auto &thread : threads) {
        thread.join();
    }
}

} // namespace
