// Suspend beside everything else that goes on at the same provider: pools that are in use, calls of
// the provider itself, other suspends, and questions where the memory is. Random schedules, of
// which each is run again by its number: --gtest_random_seed=<number>.

#include <atomic>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>

#include "fakes/scale.h"
#include "fakes/vmm_kinds.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t KiB = 1024;

struct Block {
    char *ptr;
    size_t size;
    char content;
};

// Blocks of one thread: no other thread accesses them.
class Blocks {
  public:
    Blocks(const VmmKind &of, unsigned seed) : random(seed), kind(of) {}

    template <class Alloc> void add(Alloc alloc) {
        Block block = {nullptr, 64 + random() % (random() % 8 ? 20 * KiB : 300 * KiB),
                       static_cast<char>(random())};
        block.ptr = static_cast<char *>(alloc(block.size));
        if (block.ptr) { // a device may be full
            fill(block);
            list.push_back(block);
        }
    }
    template <class Free> void remove(Free free) {
        if (!list.empty()) {
            size_t at = random() % list.size();
            free(list[at]);
            list[at] = list.back();
            list.pop_back();
        }
    }
    void check_one() {
        if (!list.empty()) {
            check(list[random() % list.size()]);
        }
    }
    void check_all() {
        for (const Block &block : list) {
            check(block);
        }
    }
    void fill_all() {
        for (const Block &block : list) {
            fill(block);
        }
    }
    size_t count() const {
        return list.size();
    }
    std::mt19937 random;

  private:
    const VmmKind &kind;
    std::vector<Block> list;

    void fill(const Block &block) {
        std::vector<char> content(block.size, block.content);
        kind.write(block.ptr, content.data(), block.size);
    }
    void check(const Block &block) {
        std::vector<char> now(block.size);
        kind.read(now.data(), block.ptr, block.size);
        EXPECT_EQ(now[0], block.content);
        EXPECT_EQ(memcmp(now.data(), now.data() + 1, block.size - 1), 0) << block.size;
    }
};

class Schedule {
  public:
    Schedule(const VmmKind &of, unsigned number) : kind(of), seed(number), random(number) {
        const size_t piece = (64 * KiB) << random() % 5;
        for (umf_memory_provider_handle_t &provider : providers) {
            provider = kind.create(piece);
        }
        for (umf_memory_pool_handle_t &pool : sleepers) {
            pool = make_pool();
        }
        for (umf_memory_pool_handle_t &pool : busy) {
            pool = make_pool();
        }
    }
    ~Schedule() {
        for (umf_memory_pool_handle_t pool : sleepers) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        for (umf_memory_pool_handle_t pool : busy) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        for (umf_memory_provider_handle_t provider : providers) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
    }
    void run() {
        std::vector<std::thread> beside;
        for (unsigned i = 0; i < 2; i++) {
            beside.emplace_back([this, i] { use(busy[i], seed * 10 + i); });
        }
        beside.emplace_back([this] { use_provider(seed * 10 + 2); });
        beside.emplace_back([this] { query(); });
        std::thread second([this] { suspend_and_resume(2, seed * 10 + 3); });
        suspend_and_resume(0, seed * 10 + 4);
        second.join();
        is_over = true;
        for (std::thread &thread : beside) {
            thread.join();
        }
    }

  private:
    const VmmKind &kind;
    const unsigned seed;
    std::mt19937 random;
    umf_memory_provider_handle_t providers[2] = {};
    umf_memory_pool_handle_t sleepers[4] = {}; // two for each thread that suspends
    umf_memory_pool_handle_t busy[2] = {};
    std::atomic<bool> is_over{false};

    umf_memory_pool_handle_t make_pool() {
        const umf_memory_pool_ops_t *all[] = {umfProxyPoolOps(), umfDisjointPoolOps(),
                                              umfCoalescingPoolOps(), umfJemallocPoolOps()};
        const umf_memory_pool_ops_t *ops = all[random() % 4];
        umf_memory_pool_handle_t pool = nullptr;
        // One provider has most of them.
        EXPECT_EQ(
            umfPoolCreate(ops ? ops : all[0], providers[random() % 4 == 0], nullptr, 0, &pool), OK);
        return pool;
    }

    static void free(const Block &block) {
        EXPECT_EQ(umfFree(block.ptr), OK);
    }

    // A pool that is never suspended.
    void use(umf_memory_pool_handle_t pool, unsigned number) {
        kind.enter();
        Blocks blocks(kind, number);
        while (!is_over) {
            if (blocks.count() < 12 && blocks.random() % 2) {
                blocks.add([&](size_t size) { return umfPoolMalloc(pool, size); });
            } else if (blocks.random() % 2) {
                blocks.remove(free);
            }
            blocks.check_one();
            std::this_thread::yield();
        }
        blocks.check_all();
        while (blocks.count()) {
            blocks.remove(free);
        }
    }

    void use_provider(unsigned number) {
        kind.enter();
        Blocks blocks(kind, number);
        auto free_one = [this](const Block &block) {
            EXPECT_EQ(umfMemoryProviderFree(providers[0], block.ptr, block.size), OK);
        };
        while (!is_over) {
            if (blocks.count() < 6 && blocks.random() % 2) {
                blocks.add([&](size_t size) {
                    void *ptr = nullptr;
                    umfMemoryProviderAlloc(providers[0], size, 0, &ptr);
                    return ptr;
                });
            } else if (blocks.random() % 2) {
                blocks.remove(free_one);
            }
            blocks.check_one();
            std::this_thread::yield();
        }
        blocks.check_all();
        while (blocks.count()) {
            blocks.remove(free_one);
        }
    }

    void query() {
        while (!is_over) {
            for (umf_memory_pool_handle_t pool : sleepers) {
                umf_residency_t now = UMF_RESIDENCY_INIT;
                EXPECT_EQ(umfPoolGetResidency(pool, &now), OK);
                EXPECT_LE(now.resident, now.reserved);
            }
            std::this_thread::yield();
        }
    }

    // The pools `first` and the next, which are this thread's alone.
    void suspend_and_resume(size_t first, unsigned number) {
        kind.enter();
        std::vector<Blocks> of = {{kind, number}, {kind, number + 5}};
        bool suspended[2] = {}, is_kept[2] = {};
        std::mt19937 &choose = of[0].random;
        for (size_t k = 0; k < 2; k++) {
            umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
            const umf_suspend_keep_t keeps[] = {UMF_SUSPEND_KEEP_PINNED, UMF_SUSPEND_KEEP_HOST,
                                                UMF_SUSPEND_DISCARD};
            policy.keep = keeps[choose() % 3];
            is_kept[k] = policy.keep != UMF_SUSPEND_DISCARD;
            EXPECT_EQ(umfPoolSetSuspendPolicy(sleepers[first + k], &policy), OK);
        }
        for (int step = 0; step < 40; step++) {
            size_t k = choose() % 2;
            umf_memory_pool_handle_t pool = sleepers[first + k];
            switch (choose() % 5) {
            case 0:
            case 1:
                of[k].add([&](size_t size) { return umfPoolMalloc(pool, size); });
                break;
            case 2:
                of[k].remove(free); // suspended or not
                break;
            default:
                change(&sleepers[first], k, choose() % 2 ? 2 : 1, of, suspended, is_kept);
            }
            if (!suspended[k]) {
                of[k].check_one();
            }
        }
        change(&sleepers[first], 0, 2, of, (suspended[0] = suspended[1] = true, suspended),
               is_kept);
        for (Blocks &blocks : of) {
            blocks.check_all();
            while (blocks.count()) {
                blocks.remove(free);
            }
        }
    }

    // Resumes what sleeps and suspends what does not: one pool or both.
    void change(umf_memory_pool_handle_t *two, size_t k, size_t count, std::vector<Blocks> &of,
                bool *suspended, const bool *is_kept) {
        bool wake = suspended[k];
        umf_memory_pool_handle_t which[] = {two[k], two[1 - k]};
        umf_result_t result = wake ? umfPoolsResume(which, count, nullptr, nullptr)
                                   : umfPoolsSuspend(which, count, nullptr, nullptr);
        ASSERT_EQ(result, OK);
        for (size_t i = 0; i < 2; i++) {
            if (i == k || count == 2) {
                if (wake && !is_kept[i]) { // its content may be lost
                    of[i].fill_all();
                }
                suspended[i] = !wake;
            }
        }
    }
};

class SuspendStress : public ::testing::TestWithParam<const VmmKind *> {};

} // namespace

TEST_P(SuspendStress, RandomSchedulesBesideOthers) {
    const VmmKind &kind = *GetParam();
    std::string why = kind.start();
    if (!why.empty()) {
        GTEST_SKIP() << why;
    }
    const unsigned first = static_cast<unsigned>(GTEST_FLAG_GET(random_seed));
    const unsigned count = static_cast<unsigned>(scaled(20));
    printf("schedules %u to %u\n", first, first + count - 1);
    size_t before = 0;
    for (unsigned number = first; number < first + count; number++) {
        Schedule(kind, number).run();
        umfSuspendTrim();
        ASSERT_FALSE(::testing::Test::HasFailure()) << "schedule " << number;
        before = number == first ? kind.held() : before; // the driver's own memory
        ASSERT_EQ(kind.held(), before) << "schedule " << number;
        ASSERT_EQ(kind.pinned(), 0u) << "schedule " << number;
    }
    kind.stop();
}

INSTANTIATE_TEST_SUITE_P(Each, SuspendStress, ::testing::ValuesIn(vmm_kinds()),
                         [](const auto &param) { return std::string(param.param->name); });
