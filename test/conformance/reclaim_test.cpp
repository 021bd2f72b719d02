// Callbacks before a request fails, and reclaim on request: the statements of umf/reclaim.h, for
// every kind of pool.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <umf/reclaim.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/child.h"
#include "fakes/kinds.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"
#include "fakes/threads.h"
#include "fakes/viewing_pool.h"

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB, SIZE = 32 * MiB, BLOCK = 256 * KiB;
constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

struct Request {
    umf_memory_pool_handle_t pool;
    size_t bytes;
    unsigned attempt;
};

// A callback that notes its arguments and runs a given function.
class Callback {
  public:
    using Body = std::function<bool(const Request &)>;
    explicit Callback(Body does) : body(std::move(does)) {
        EXPECT_EQ(umfAddReclaimCallback(entry, this), OK);
    }
    Callback(const Callback &) = delete;
    Callback &operator=(const Callback &) = delete;
    ~Callback() {
        if (!is_removed) {
            EXPECT_EQ(remove(), OK);
        }
    }
    umf_result_t remove() {
        is_removed = true;
        return umfRemoveReclaimCallback(entry, this);
    }
    size_t calls() const {
        return count;
    }

  private:
    static bool entry(umf_memory_pool_handle_t pool, size_t bytes, unsigned attempt, void *self) {
        auto *callback = static_cast<Callback *>(self);
        callback->count++;
        return callback->body({pool, bytes, attempt});
    }
    Body body;
    std::atomic<size_t> count{0};
    std::atomic<bool> is_removed{false};
};

class Reclaim : public testing::TestWithParam<PoolKind> {
  protected:
    std::unique_ptr<Source> source = make_fixed(SIZE);
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        pool = create();
        ASSERT_NE(pool, nullptr);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    umf_memory_pool_handle_t create() {
        umf_memory_pool_handle_t created = nullptr;
        EXPECT_EQ(umfPoolCreate(GetParam().ops(), source->handle, nullptr, 0, &created), OK);
        return created;
    }
    // All that a pool gives in blocks of this size.
    static std::vector<void *> take_all(umf_memory_pool_handle_t from, size_t size) {
        std::vector<void *> blocks;
        while (void *ptr = umfPoolMalloc(from, size)) {
            blocks.push_back(ptr);
        }
        return blocks;
    }
    static void free_some(std::vector<void *> &blocks, size_t n) {
        for (; n && !blocks.empty(); n--) {
            EXPECT_EQ(umfFree(blocks.back()), OK);
            blocks.pop_back();
        }
    }
    static void free_all(std::vector<void *> &blocks) {
        free_some(blocks, SIZE_MAX);
    }
};

TEST_P(Reclaim, CallbackGivesBackWhatTheRequestNeeds) {
    std::vector<void *> blocks = take_all(pool, BLOCK);
    ASSERT_GT(blocks.size(), 16u);
    Callback callback([&](const Request &request) {
        EXPECT_EQ(request.pool, pool);
        EXPECT_GE(request.bytes, BLOCK);
        EXPECT_EQ(request.attempt, 0u);
        free_some(blocks, blocks.size()); // in an order that lets neighbours merge
        return true;
    });
    void *ptr = umfPoolMalloc(pool, BLOCK);
    EXPECT_NE(ptr, nullptr);
    EXPECT_EQ(callback.calls(), 1u);
    EXPECT_EQ(umfFree(ptr), OK);
}

// The stack that the request refills is the one that the callback frees into.
TEST_P(Reclaim, ObjectsThatACallbackFreesInTheSamePoolAreNotLost) {
    constexpr size_t size = 4 * KiB, n = 100;
    std::vector<void *> blocks = take_all(pool, size), again;
    Callback callback([&](const Request &) {
        size_t before = blocks.size();
        free_some(blocks, n);
        return blocks.size() < before;
    });
    again.push_back(umfPoolMalloc(pool, size));
    ASSERT_NE(again[0], nullptr);
    ASSERT_EQ(callback.remove(), OK);
    for (size_t i = 1; i < n; i++) {
        again.push_back(umfPoolMalloc(pool, size));
        ASSERT_NE(again.back(), nullptr) << "object " << i;
    }
    EXPECT_EQ(umfPoolMalloc(pool, size), nullptr);
    std::set<void *> all(blocks.begin(), blocks.end());
    all.insert(again.begin(), again.end());
    EXPECT_EQ(all.size(), blocks.size() + again.size()) << "an object is handed out twice";
    free_all(again);
    free_all(blocks);
    EXPECT_EQ(alloc_count(pool), 0u);
}

TEST_P(Reclaim, RequestsOfACallbackFailAtOnce) {
    std::vector<void *> blocks = take_all(pool, BLOCK);
    Callback callback([&](const Request &) {
        EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr);
        return false;
    });
    EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr);
    EXPECT_EQ(callback.calls(), 1u);
    free_all(blocks);
}

// For example to move data there. That pool has free memory of another size only.
TEST_P(Reclaim, CallbackAllocatesWhatAnotherPoolKeepsFree) {
    std::unique_ptr<Source> side = make_fixed(SIZE);
    umf_memory_pool_handle_t other = nullptr;
    ASSERT_EQ(umfPoolCreate(GetParam().ops(), side->handle, nullptr, 0, &other), OK);
    std::vector<void *> blocks = take_all(other, 4 * KiB);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1)); // cached blocks lie everywhere
    free_all(blocks);
    blocks = take_all(pool, BLOCK);
    Callback callback([&](const Request &) {
        void *moved = umfPoolMalloc(other, SIZE / 4);
        EXPECT_NE(moved, nullptr);
        EXPECT_EQ(umfFree(moved), OK);
        return false;
    });
    EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr);
    EXPECT_EQ(callback.calls(), 1u);
    free_all(blocks);
    EXPECT_EQ(umfPoolDestroy(other), OK);
}

// What cannot be served even by an empty machine costs other pools nothing.
TEST_P(Reclaim, AbsurdSizesReclaimNothing) {
    umf_memory_pool_handle_t other = create();
    for (size_t size : {64 * KiB, MiB}) {
        std::vector<void *> blocks = {umfPoolMalloc(other, size), umfPoolMalloc(other, size)};
        free_all(blocks);
    }
    const size_t held = allocated_of(source->handle);
    Callback callback([](const Request &) { return true; });
    for (size_t size : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4, size_t{1} << 58}) {
        EXPECT_EQ(umfPoolMalloc(pool, size), nullptr);
        EXPECT_EQ(umfPoolAlignedMalloc(pool, size, 4096), nullptr);
    }
    EXPECT_EQ(callback.calls(), 0u);
    EXPECT_EQ(allocated_of(source->handle), held);
    EXPECT_EQ(umfPoolMalloc(pool, 2 * SIZE), nullptr);
    EXPECT_GT(callback.calls(), 0u) << "a size that is only too large";
    EXPECT_EQ(umfPoolDestroy(other), OK);
}

TEST_P(Reclaim, RoundsAreBounded) {
    std::vector<void *> blocks = take_all(pool, BLOCK);
    std::vector<unsigned> attempts;
    Callback callback([&](const Request &request) {
        attempts.push_back(request.attempt);
        return true;
    });
    errno = 4711;
    EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr);
    EXPECT_EQ(attempts, (std::vector<unsigned>{0, 1, 2, 3, 4, 5, 6, 7}));
    free_all(blocks);
}

TEST_P(Reclaim, CallbackDestroysAndTrimsOtherPools) {
    umf_memory_pool_handle_t other = create(), third = create();
    ASSERT_NE(other, nullptr);
    ASSERT_NE(third, nullptr);
    std::vector<void *> few = {umfPoolMalloc(third, 64)};
    std::vector<void *> blocks = take_all(other, BLOCK);
    Callback callback([&](const Request &request) {
        EXPECT_EQ(request.pool, pool);
        free_some(few, 1);
        umfPoolTrimMemory(third, 0);
        EXPECT_EQ(umfPoolDestroy(other), OK);
        return true;
    });
    void *ptr = umfPoolMalloc(pool, BLOCK);
    EXPECT_NE(ptr, nullptr);
    EXPECT_EQ(callback.calls(), 1u);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfPoolDestroy(third), OK);
}

TEST_P(Reclaim, CallbackSuspendsAnotherPool) {
    umf_memory_pool_handle_t sleeper = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("disjoint over linux_vmm", &sleeper), OK);
    void *kept = umfPoolMalloc(sleeper, MiB);
    std::vector<void *> blocks = take_all(pool, BLOCK);
    Callback callback([&](const Request &) {
        EXPECT_EQ(umfPoolsSuspend(&sleeper, 1, nullptr, nullptr), OK);
        return false;
    });
    EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr);
    EXPECT_EQ(umfPoolsResume(&sleeper, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfFree(kept), OK);
    EXPECT_EQ(umfPoolDestroy(sleeper), OK);
    free_all(blocks);
}

TEST_P(Reclaim, TwoThreadsAreInOneCallback) {
    std::vector<void *> blocks = take_all(pool, BLOCK);
    std::atomic<int> inside{0};
    Callback callback([&](const Request &) {
        inside++;
        while (inside < 2) {
            std::this_thread::yield();
        }
        return false;
    });
    run_threads(2, [&](int) { EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr); });
    EXPECT_EQ(callback.calls(), 2u);
    free_all(blocks);
}

TEST_P(Reclaim, RemovalWaitsUntilNoThreadIsInside) {
    std::vector<void *> blocks = take_all(pool, BLOCK);
    std::atomic<bool> is_inside{false}, is_removing{false}, is_left{false};
    Callback callback([&](const Request &) {
        is_inside = true;
        while (!is_removing) {
            std::this_thread::yield();
        }
        for (int i = 0; i < 1000; i++) {
            std::this_thread::yield();
        }
        is_left = true;
        return true;
    });
    std::thread thread([&] { EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr); });
    while (!is_inside) {
        std::this_thread::yield();
    }
    is_removing = true;
    EXPECT_EQ(callback.remove(), OK);
    EXPECT_TRUE(is_left);
    thread.join();
    EXPECT_EQ(callback.calls(), 1u);
    free_all(blocks);
}

TEST_P(Reclaim, CallbackRemovesItself) {
    std::vector<void *> blocks = take_all(pool, BLOCK);
    Callback *self = nullptr;
    Callback callback([&](const Request &) {
        EXPECT_EQ(self->remove(), OK);
        return true;
    });
    self = &callback;
    EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr);
    EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr);
    EXPECT_EQ(callback.calls(), 1u);
    free_all(blocks);
}

// Of the thread that is inside in the parent nothing is left in the child.
TEST_P(Reclaim, ChildOfForkHasTheCallbacksAndNoThreadInside) {
    std::vector<void *> blocks = take_all(pool, BLOCK);
    std::atomic<bool> is_inside{false}, is_over{false};
    Callback callback([&](const Request &) {
        is_inside = true;
        while (!is_over) {
            std::this_thread::yield();
        }
        return false;
    });
    std::thread thread([&] { EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr); });
    while (!is_inside) {
        std::this_thread::yield();
    }
    int status = exit_of_child([&] {
        is_over = true;
        size_t before = callback.calls();
        bool is_served = umfPoolMalloc(pool, BLOCK) != nullptr;
        bool is_called = callback.calls() == before + 1;
        return !is_served && is_called && callback.remove() == OK ? 0 : 1;
    });
    EXPECT_EQ(status, 0);
    is_over = true;
    thread.join();
    EXPECT_EQ(callback.remove(), OK);
    free_all(blocks);
}

// The child goes on inside of the callback, returns from it and removes it.
TEST_P(Reclaim, ForkInsideACallback) {
    std::vector<void *> blocks = take_all(pool, BLOCK);
    pid_t child = -1;
    Callback callback([&](const Request &) {
        child = fork();
        return false;
    });
    EXPECT_EQ(umfPoolMalloc(pool, BLOCK), nullptr);
    umf_result_t removed = callback.remove();
    if (child == 0) {
        _exit(removed == OK && callback.calls() == 1 ? 0 : 1);
    }
    ASSERT_GT(child, 0);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(removed, OK);
    free_all(blocks);
}

TEST_P(Reclaim, OnRequestPoolsGiveBackWhatTheyKeep) {
    umf_memory_pool_handle_t other = create();
    ASSERT_NE(other, nullptr);
    std::vector<void *> blocks = take_all(other, BLOCK);
    size_t given = 4711, most = blocks.size() * BLOCK;
    free_all(blocks);
    size_t held = allocated_of(source->handle);
    EXPECT_EQ(umfReclaim(source->handle, SIZE_MAX, &given), OK);
    size_t left = allocated_of(source->handle);
    EXPECT_LE(given, SIZE);
    EXPECT_GE(given, held > left ? held - left : 0);
    EXPECT_LE(left, most / 4);
    EXPECT_EQ(umfReclaim(source->handle, SIZE_MAX, nullptr), OK);
    EXPECT_EQ(umfPoolDestroy(other), OK);
}

// Threads that run out of memory, callbacks that come and go, trims and pools that end.
TEST_P(Reclaim, CallbacksComeAndGoWhileThreadsRunOutOfMemory) {
    std::vector<void *> blocks = take_all(pool, BLOCK);
    std::atomic<bool> is_over{false};
    std::atomic<size_t> calls{0};
    run_threads<unsigned>(4, [&](unsigned t) {
        for (size_t i = 0; t == 0 && i < scaled(300); i++) {
            Callback callback([&](const Request &) {
                calls++;
                return i % 2 == 0;
            });
            std::this_thread::yield();
        }
        for (size_t i = 0; t == 1 && i < scaled(300); i++) {
            umf_memory_pool_handle_t other = create();
            umfReclaim(nullptr, SIZE_MAX, nullptr);
            EXPECT_EQ(umfPoolDestroy(other), OK);
        }
        is_over = is_over || t == 0;
        while (t > 1 && !is_over) {
            umfFree(umfPoolMalloc(pool, BLOCK));
        }
    });
    free_all(blocks);
}

INSTANTIATE_TEST_SUITE_P(pools, Reclaim, testing::ValuesIn(pool_kinds()),
                         [](const auto &test) { return std::string(test.param.id); });

TEST(ReclaimCallback, WrongArguments) {
    auto callback = [](umf_memory_pool_handle_t, size_t, unsigned, void *) { return false; };
    int here;
    EXPECT_EQ(umfAddReclaimCallback(nullptr, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfRemoveReclaimCallback(nullptr, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfRemoveReclaimCallback(callback, &here), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfReclaim(reinterpret_cast<umf_memory_provider_handle_t>(&here), 1, nullptr),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < 32; i++) {
        EXPECT_EQ(umfAddReclaimCallback(callback, &here), OK);
    }
    EXPECT_EQ(umfAddReclaimCallback(callback, &here), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    for (int i = 0; i < 32; i++) {
        EXPECT_EQ(umfRemoveReclaimCallback(callback, &here), OK);
    }
    EXPECT_EQ(umfRemoveReclaimCallback(callback, &here), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

// A pool, all of whose requests for this size fail.
struct SmallPool {
    static constexpr size_t TOO_MUCH = 2 * MiB;
    std::unique_ptr<Source> source = make_fixed(MiB);
    umf_memory_pool_handle_t handle = nullptr;

    SmallPool() {
        EXPECT_EQ(umfPoolCreate(umfDisjointPoolOps(), source->handle, nullptr, 0, &handle), OK);
    }
    SmallPool(const SmallPool &) = delete;
    SmallPool &operator=(const SmallPool &) = delete;
    ~SmallPool() {
        EXPECT_EQ(umfPoolDestroy(handle), OK);
    }
};

TEST(ReclaimCallback, EachRoundCallsAllThoughTheFirstHasGiven) {
    SmallPool pool;
    const auto gives = [](const Request &) { return true; };
    Callback first(gives), second(gives);
    EXPECT_EQ(umfPoolMalloc(pool.handle, SmallPool::TOO_MUCH), nullptr);
    EXPECT_EQ(first.calls(), 8u);
    EXPECT_EQ(second.calls(), 8u);
}

// Also not for one in a callback that was removed before the other was added.
TEST(ReclaimCallback, RemovalWaitsForNoThreadInAnotherCallback) {
    SmallPool pool;
    Callback *self = nullptr;
    std::unique_ptr<Callback> next;
    std::future<umf_result_t> removal;
    Callback callback([&](const Request &) {
        EXPECT_EQ(self->remove(), OK);
        next = std::make_unique<Callback>([](const Request &) { return false; });
        removal = std::async(std::launch::async, [&] { return next->remove(); });
        EXPECT_EQ(removal.wait_for(std::chrono::seconds(30)), std::future_status::ready);
        return false;
    });
    self = &callback;
    EXPECT_EQ(umfPoolMalloc(pool.handle, SmallPool::TOO_MUCH), nullptr);
    EXPECT_EQ(callback.calls(), 1u);
    ASSERT_TRUE(removal.valid());
    EXPECT_EQ(removal.get(), OK);
}

// In a child: no other test runs without the library.
TEST(ReclaimCallback, TeardownRemovesAll) {
    EXPECT_EQ(exit_of_child([] {
                  static size_t calls;
                  auto callback = [](umf_memory_pool_handle_t, size_t, unsigned, void *) {
                      calls++;
                      return false;
                  };
                  if (umfAddReclaimCallback(callback, nullptr) != OK || umfTearDown() != OK ||
                      umfInit() != OK) {
                      return 1;
                  }
                  auto source = make_fixed(MiB);
                  umf_memory_pool_handle_t pool = nullptr;
                  umfPoolCreate(umfDisjointPoolOps(), source->handle, nullptr, 0, &pool);
                  bool is_served = umfPoolMalloc(pool, 2 * MiB) != nullptr;
                  umf_result_t removed = umfRemoveReclaimCallback(callback, nullptr);
                  umfPoolDestroy(pool);
                  return is_served || calls || removed == OK ? 2 : 0;
              }),
              0);
}

TEST(ReclaimOnRequest, EndsWhenEnoughWasGiven) {
    std::vector<std::unique_ptr<Source>> sources;
    std::vector<umf_memory_pool_handle_t> pools(2);
    for (umf_memory_pool_handle_t &pool : pools) {
        sources.push_back(make_fixed(SIZE));
        ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), sources.back()->handle, nullptr, 0, &pool),
                  OK);
        ASSERT_EQ(umfFree(umfPoolMalloc(pool, 64)), OK);
    }
    size_t held = allocated_of(sources[0]->handle), given = 0;
    ASSERT_GT(held, 0u);
    EXPECT_EQ(umfReclaim(nullptr, 1, &given), OK);
    EXPECT_EQ(given, held);
    EXPECT_EQ(allocated_of(sources[0]->handle) + allocated_of(sources[1]->handle), held);
    EXPECT_EQ(umfReclaim(nullptr, SIZE_MAX, &given), OK);
    EXPECT_EQ(given, held);
    for (umf_memory_pool_handle_t pool : pools) {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
}

TEST(ReclaimOnRequest, APoolThatGrowsWhileItIsTrimmedHasGivenNothing) {
    static void *grown;
    std::unique_ptr<Source> growing_source = make_fixed(SIZE), source = make_fixed(SIZE);
    umf_memory_pool_handle_t growing = nullptr, pool = nullptr;
    umf_memory_pool_ops_t ops = viewing_pool_ops();
    ops.ext_trim_memory = [](void *, size_t) {
        return umfMemoryProviderAlloc(viewed_provider, BLOCK, 0, &grown);
    };
    ASSERT_EQ(umfPoolCreate(&ops, growing_source->handle, nullptr, 0, &growing), OK);
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), source->handle, nullptr, 0, &pool), OK);
    ASSERT_EQ(umfFree(umfPoolMalloc(pool, 64)), OK);
    size_t held = allocated_of(source->handle), given = 0;
    EXPECT_GT(held, 0u);
    EXPECT_EQ(umfReclaim(nullptr, MiB + held, &given), OK);
    EXPECT_NE(grown, nullptr);
    EXPECT_EQ(given, held);
    EXPECT_EQ(allocated_of(source->handle), 0u);
    EXPECT_EQ(umfMemoryProviderFree(viewed_provider, grown, BLOCK), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfPoolDestroy(growing), OK);
}

} // namespace
