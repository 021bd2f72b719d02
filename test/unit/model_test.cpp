// Random programs next to a model of live blocks. A request may fail only if the model says
// that nothing fits, even after everything that is free is joined.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>
#include <umf/reclaim.h>
#include <umf/suspend.h>

#include "fakes/child.h"
#include "fakes/decay_period.h"
#include "fakes/kinds.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB, ROOM = 16 * MiB;
constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
const size_t PAGE = static_cast<size_t>(sysconf(_SC_PAGESIZE));
const size_t SLAB = std::max(64 * KiB, 8 * PAGE); // slabs of jemalloc have up to eight pages

// Memory in use, for a pool: a live block occupies all bytes that the pool cannot hand out
// while it lives.
class Model {
  public:
    // `slab`: bytes on each side that a block may keep. `part`: by 1 / part a size may be rounded.
    Model(const Source &source, size_t slab, size_t part)
        : base(reinterpret_cast<uintptr_t>(source.region)), end(base + source.region_size),
          around(slab), share(part) {}

    void add(const void *ptr, size_t size) {
        const uintptr_t from = reinterpret_cast<uintptr_t>(ptr);
        for (auto next = live.lower_bound(from); next != live.end(); ++next) {
            ASSERT_GE(next->first, from + size) << "a live block was handed out";
            break;
        }
        auto before = live.lower_bound(from);
        if (before != live.begin()) {
            --before;
            ASSERT_LE(before->first + before->second, from) << "a live block was handed out";
        }
        live[from] = size;
    }
    void remove(const void *ptr) {
        live.erase(reinterpret_cast<uintptr_t>(ptr));
    }
    // The largest range that no live block keeps from any use.
    size_t largest_gap() const {
        size_t largest = 0;
        uintptr_t at = base;
        for (const auto &block : live) {
            const uintptr_t from = block.first - std::min(around, block.first - base);
            largest = from > at ? std::max(largest, static_cast<size_t>(from - at)) : largest;
            at = std::max(at, block.first + block.second + std::max(around, block.second / share));
        }
        return end > at ? std::max(largest, static_cast<size_t>(end - at)) : largest;
    }

  private:
    uintptr_t base, end;
    size_t around, share;
    std::map<uintptr_t, size_t> live;
};

class Programs : public testing::TestWithParam<PoolKind> {
  protected:
    std::unique_ptr<Source> source = make_fixed(ROOM);
    umf_memory_pool_handle_t pool = nullptr;

    static bool is(const char *id) {
        return std::string(GetParam().id) == id;
    }
    void SetUp() override {
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), source->handle, nullptr, 0, &pool), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(source->live_bytes(), 0u);
    }
    // A gap may be the end of a span in use, free memory of the provider, and the beginning of
    // another span in use: a request that fits in none of them may fail. Sizes are rounded by up to
    // a half, and aligned to their slab.
    static size_t gap_for(size_t size) {
        return is("proxy") ? (size + PAGE - 1) / PAGE * PAGE : 3 * (size + size / 2 + SLAB);
    }
};

// One thread. Others have ended, or sleep with full caches.
TEST_P(Programs, RequestsFailOnlyIfNothingFits) {
    if (is("scalable")) {
        GTEST_SKIP() << "oneTBB cannot give back a part of what it took";
    }
    for (unsigned seed = 1; seed <= scaled(200); seed++) {
        SCOPED_TRACE(seed);
        DecayPeriod period(seed % 2 ? DecayPeriod::NONE : DecayPeriod::ENDLESS);
        std::mt19937 random(seed);
        Model model(*source, is("proxy") ? PAGE : SLAB, is("proxy") ? SIZE_MAX : 2);
        std::vector<void *> blocks;
        OtherThread other;
        size_t failures = 0;
        const auto run = [&](const std::function<void()> &step) {
            random() % 4 ? step() : other(step);
        };
        for (int i = 0; i < 2000; i++) {
            const size_t what = random() % 100;
            if (what < (i / 500 % 2 ? 40u : 60u)) {
                const size_t size = 1 + random() % (size_t{1} << (4 + random() % 19));
                void *ptr = nullptr;
                run([&] { ptr = umfPoolMalloc(pool, size); });
                if (ptr) {
                    model.add(ptr, size);
                    blocks.push_back(ptr);
                } else {
                    failures++;
                    ASSERT_LT(model.largest_gap(), gap_for(size)) << size << " bytes, step " << i;
                }
            } else if (what < 99 && !blocks.empty()) {
                std::swap(blocks[random() % blocks.size()], blocks.back());
                model.remove(blocks.back());
                run([&] { EXPECT_EQ(umfFree(blocks.back()), OK); });
                blocks.pop_back();
            } else if (what == 99) {
                umfPoolTrimMemory(pool, random() % 2 ? 0 : MiB);
            }
        }
        EXPECT_GT(failures, 0u) << "the program must come to the limit";
        for (void *ptr : blocks) {
            EXPECT_EQ(umfFree(ptr), OK);
        }
    }
}

bool reserve(std::atomic<size_t> &live, size_t most) {
    const bool is_done = live.fetch_add(1) < most;
    live -= !is_done;
    return is_done;
}

// Threads that work and have at most half of the memory that the pool can serve, while others trim,
// let memory decay, end, fork, and suspend a pool that everybody visits.
class Storm {
  public:
    static constexpr size_t BLOCK = 64 * KiB;
    Storm(umf_memory_pool_handle_t used, size_t limit) : pool(used), most(limit) {}

    void run() {
        umf_memory_pool_handle_t sleeper = nullptr;
        ASSERT_EQ(umfPoolCreateFromText("disjoint over linux_vmm", &sleeper), OK);
        void *kept = umfPoolMalloc(sleeper, MiB);
        std::vector<std::thread> others;
        others.emplace_back([&] { until_over([&] { umfPoolTrimMemory(pool, 0); }); });
        others.emplace_back([&] { until_over([] { umfReclaim(nullptr, SIZE_MAX, nullptr); }); });
        others.emplace_back([&] { until_over([&] { std::thread([&] { work(9, 50); }).join(); }); });
        others.emplace_back([&] { until_over([&] { fork_once(); }); });
        others.emplace_back([&] {
            until_over([&] {
                EXPECT_EQ(umfPoolsSuspend(&sleeper, 1, nullptr, nullptr), OK);
                EXPECT_EQ(umfPoolsResume(&sleeper, 1, nullptr, nullptr), OK);
            });
        });
        run_threads<unsigned>(3,
                              [&](unsigned t) { work(t, scaled(UMF_TEST_TSAN ? 50000 : 400000)); });
        is_over = true;
        for (std::thread &thread : others) {
            thread.join();
        }
        EXPECT_EQ(failures, 0u) << "requests failed while memory was free";
        EXPECT_EQ(umfFree(kept), OK);
        EXPECT_EQ(umfPoolDestroy(sleeper), OK);
    }

  private:
    void until_over(const std::function<void()> &step) const {
        while (!is_over) {
            step();
        }
    }
    void work(unsigned seed, size_t rounds) {
        std::mt19937 random(seed);
        std::vector<void *> mine;
        for (size_t i = 0; i < rounds; i++) {
            if (random() % 2 && reserve(live, most)) {
                void *ptr = umfPoolMalloc(pool, BLOCK - random() % 1024);
                failures += ptr == nullptr;
                ptr ? mine.push_back(ptr) : (void)live.fetch_sub(1);
            } else if (!mine.empty()) {
                EXPECT_EQ(umfFree(mine.back()), OK);
                mine.pop_back();
                live--;
            }
        }
        for (void *ptr : mine) {
            EXPECT_EQ(umfFree(ptr), OK);
            live--;
        }
    }
    // The child uses, trims and leaves what its parent's threads were doing at that moment.
    void fork_once() const {
        EXPECT_TRUE(in_child([&] {
            for (int i = 0; i < 100; i++) {
                umfFree(umfPoolMalloc(pool, BLOCK));
            }
            umfPoolTrimMemory(pool, 0);
            return true;
        }));
    }
    umf_memory_pool_handle_t pool;
    size_t most;
    std::atomic<size_t> live{0}, failures{0};
    std::atomic<bool> is_over{false};
};

TEST_P(Programs, NoRequestFailsInAStorm) {
    DecayPeriod short_one(1000 * 1000);
    Storm(pool, ROOM / Storm::BLOCK / (is("scalable") ? 8 : 2)).run();
}

INSTANTIATE_TEST_SUITE_P(pools, Programs, testing::ValuesIn(pool_kinds()),
                         [](const auto &test) { return std::string(test.param.id); });

} // namespace
