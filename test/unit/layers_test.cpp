// The order in which a call meets the layers of a pool.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/memory_pool_ext.h>
#include <umf/text.h>

#include "fakes/scale.h"

extern "C" {
#include "object/object.h"
}

namespace {

// Layers that write down which call they meet.
char trace[128];

void note(char letter) {
    size_t length = strlen(trace);
    if (length + 1 < sizeof(trace)) {
        trace[length] = letter;
        trace[length + 1] = '\0';
    }
}

constexpr char letter(int rank) {
    return static_cast<char>('A' + rank);
}

template <umf_layer_rank_t RANK> struct Fake {
    static void *malloc(umf_memory_pool_handle_t pool, size_t size) {
        note(letter(RANK));
        return UMF_PASS_ON(pool, RANK, malloc)(pool, size);
    }
    static void *aligned_malloc(umf_memory_pool_handle_t pool, size_t size, size_t alignment) {
        note(letter(RANK));
        return UMF_PASS_ON(pool, RANK, aligned_malloc)(pool, size, alignment);
    }
    static void *calloc(umf_memory_pool_handle_t pool, size_t num, size_t size) {
        note(letter(RANK));
        return UMF_PASS_ON(pool, RANK, calloc)(pool, num, size);
    }
    static void *realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
        note(letter(RANK));
        return UMF_PASS_ON(pool, RANK, realloc)(pool, ptr, size);
    }
    static umf_result_t free_at(void *self, void *ptr, umf_map_entry_t entry) {
        note(letter(RANK));
        return UMF_PASS_ON(umf_layer_pool(entry), RANK, free_at)(self, ptr, entry);
    }
    static bool try_free(void *self, void *ptr, umf_map_entry_t entry) {
        note(letter(RANK));
        return UMF_PASS_ON(umf_layer_pool(entry), RANK, try_free)(self, ptr, entry);
    }
    static umf_result_t last_error(umf_memory_pool_handle_t pool) {
        note(letter(RANK));
        return UMF_PASS_ON(pool, RANK, last_error)(pool);
    }
    static umf_layer_t layer() {
        umf_layer_t made = {};
        made.rank = RANK;
        made.sees_malloc = made.sees_free = true;
        made.calls = {malloc, aligned_malloc, calloc, realloc, free_at, try_free, last_error};
        return made;
    }
};

template <int... RANKS>
std::array<umf_layer_t, UMF_LAYERS> layer_of_each(std::integer_sequence<int, RANKS...>) {
    return {Fake<static_cast<umf_layer_rank_t>(RANKS)>::layer()...};
}

const auto fakes = layer_of_each(std::make_integer_sequence<int, UMF_LAYERS>());

void *got(void *ptr) {
    note('/');
    return ptr;
}

// Makes each call that goes through layers once. The letters of the layers that a call met, a
// slash, those of the next call, and so on.
const char *trace_of(umf_memory_pool_handle_t pool) {
    void *other = umfPoolMalloc(pool, 64);
    umf_map_entry_t entry = umf_map_find(&umf_map_global, reinterpret_cast<uintptr_t>(other));
    trace[0] = '\0';
    void *one = got(umfPoolMalloc(pool, 64)), *two = got(umfPoolAlignedMalloc(pool, 64, 64));
    void *calloced = got(umfPoolCalloc(pool, 1, 64));
    void *moved = got(umfPoolRealloc(pool, nullptr, 64));
    umfFree(one);
    note('/');
    umfPoolFree(pool, two);
    note('/');
    bool is_freed = pool->calls[0].try_free(pool->free_self, other, entry);
    note('/');
    umfPoolGetLastAllocationError(pool);
    size_t length = strlen(trace);
    for (void *left : {is_freed ? nullptr : other, calloced, moved}) {
        umfPoolFree(pool, left);
    }
    trace[length] = '\0';
    return trace;
}

using Order = std::array<int, UMF_LAYERS>;

std::string expected(const std::set<int> &there) {
    std::string met, all;
    for (int rank : there) {
        met += letter(rank);
    }
    for (int call = 0; call < 8; call++) {
        all += (call ? "/" : "") + met;
    }
    return all;
}

Order by_rank() {
    Order order;
    std::iota(order.begin(), order.end(), 0);
    return order;
}

void each_order(const std::function<void(const Order &)> &run) {
    Order order = by_rank();
    do {
        run(order);
    } while (std::next_permutation(order.begin(), order.end()));
}

// A child of fork runs it. true: it returned true there.
bool in_child(const std::function<bool()> &run) {
    pid_t child = fork();
    if (child == 0) {
        _exit(run() ? 0 : 1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

class Layers : public testing::TestWithParam<const char *> {
  protected:
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        ASSERT_EQ(umfPoolCreateFromText(GetParam(), &pool), UMF_RESULT_SUCCESS);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    }
    // true: each step left the layers in order.
    bool push_all(const Order &order) {
        std::set<int> there;
        return std::all_of(order.begin(), order.end(), [&](int rank) {
            umf_layer_push(pool, &fakes[static_cast<size_t>(rank)]);
            there.insert(rank);
            return trace_of(pool) == expected(there);
        });
    }
    bool remove_all(const Order &order) {
        std::set<int> there(order.begin(), order.end());
        return std::all_of(order.begin(), order.end(), [&](int rank) {
            umf_layer_remove(pool, static_cast<umf_layer_rank_t>(rank));
            there.erase(rank);
            return trace_of(pool) == expected(there);
        });
    }
};

INSTANTIATE_TEST_SUITE_P(All, Layers, testing::Values("disjoint over os", "proxy over os"));

} // namespace

TEST_P(Layers, AreMetInTheOrderOfTheirRanksHoweverTheyComeAndGo) {
    ONE_THREAD_ONLY();
    each_order([&](const Order &come) {
        each_order([&](const Order &go) {
            ASSERT_TRUE(push_all(come)) << trace_of(pool);
            ASSERT_TRUE(remove_all(go)) << trace_of(pool);
        });
    });
}

TEST_P(Layers, AreThereInAChildOfFork) {
    each_order([&](const Order &order) {
        ASSERT_TRUE(push_all(order)) << trace_of(pool);
        EXPECT_TRUE(in_child([&] { return remove_all(order) && push_all(order); }));
        ASSERT_TRUE(remove_all(order)) << trace_of(pool);
    });
}

// The child gets each push and each remove whole: all calls meet the same layers there.
TEST_P(Layers, AreWholeInAChildOfAForkDuringAPush) {
    std::atomic<bool> ends{false};
    Order mixed = by_rank();
    std::rotate(mixed.begin(), mixed.begin() + 3, mixed.end());
    std::thread other([&] {
        for (int i = 0; !ends; i++) {
            umf_layer_push(pool, &fakes[static_cast<size_t>(i % UMF_LAYERS)]);
            umf_layer_remove(pool, static_cast<umf_layer_rank_t>((i + 2) % UMF_LAYERS));
        }
    });
    for (size_t i = 0; i < scaled(200); i++) {
        EXPECT_TRUE(in_child([&] {
            std::string seen = trace_of(pool), first = seen.substr(0, seen.find('/'));
            std::set<int> there;
            for (int rank = 0; rank < UMF_LAYERS; rank++) {
                if (first.find(letter(rank)) != std::string::npos) {
                    there.insert(rank);
                }
            }
            for (int rank = 0; rank < UMF_LAYERS; rank++) {
                umf_layer_remove(pool, static_cast<umf_layer_rank_t>(rank));
            }
            return seen == expected(there) && push_all(mixed) && remove_all(by_rank());
        }));
    }
    ends = true;
    other.join();
    for (int rank = 0; rank < UMF_LAYERS; rank++) {
        umf_layer_remove(pool, static_cast<umf_layer_rank_t>(rank));
    }
    EXPECT_EQ(trace_of(pool), expected({}));
}

// Requests are served inline only while no layer must see them.
TEST_P(Layers, SeeAllRequestsUntilTheLastOfThemHasGone) {
    umfFree(umfPoolMalloc(pool, 64));
    umfFree(umfPoolMalloc(pool, 64));
    void *ptr = umfPoolTryMalloc(pool, 64);
    if (!ptr) {
        GTEST_SKIP() << "nothing is served inline here";
    }
    umfFree(ptr);
    umf_layer_push(pool, &fakes[0]);
    umf_layer_push(pool, &fakes[0]);
    umf_layer_push(pool, &fakes[2]);
    EXPECT_EQ(umfPoolTryMalloc(pool, 64), nullptr);
    umf_layer_remove(pool, static_cast<umf_layer_rank_t>(2));
    EXPECT_EQ(umfPoolTryMalloc(pool, 64), nullptr);
    umf_layer_remove(pool, static_cast<umf_layer_rank_t>(0));
    umfFree(umfPoolMalloc(pool, 64));
    ptr = umfPoolTryMalloc(pool, 64);
    EXPECT_NE(ptr, nullptr);
    umfFree(ptr);
}
