// The order in which a call meets the layers of a pool.

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/memory_pool_ext.h>
#include <umf/text.h>

#include "fakes/scale.h"
#include "unit/layers_shim.h"

namespace {

using Order = std::array<int, SHIM_LAYERS>;

std::string expected(const std::set<int> &there) {
    std::string letters, all;
    for (int rank : there) {
        letters += "RQHZS"[rank];
    }
    for (int call = 0; call < 8; call++) {
        all += (call ? "/" : "") + letters;
    }
    return all;
}

void each_order(const std::function<void(const Order &)> &run) {
    Order order = {0, 1, 2, 3, 4};
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
            shim_push(pool, rank);
            there.insert(rank);
            return shim_trace(pool) == expected(there);
        });
    }
    bool remove_all(const Order &order) {
        std::set<int> there(order.begin(), order.end());
        return std::all_of(order.begin(), order.end(), [&](int rank) {
            shim_remove(pool, rank);
            there.erase(rank);
            return shim_trace(pool) == expected(there);
        });
    }
};

INSTANTIATE_TEST_SUITE_P(All, Layers, testing::Values("disjoint over os", "proxy over os"));

} // namespace

TEST_P(Layers, AreMetInTheOrderOfTheirRanksHoweverTheyComeAndGo) {
    ONE_THREAD_ONLY();
    each_order([&](const Order &come) {
        each_order([&](const Order &go) {
            ASSERT_TRUE(push_all(come)) << shim_trace(pool);
            ASSERT_TRUE(remove_all(go)) << shim_trace(pool);
        });
    });
}

TEST_P(Layers, AreThereInAChildOfFork) {
    each_order([&](const Order &order) {
        ASSERT_TRUE(push_all(order)) << shim_trace(pool);
        EXPECT_TRUE(in_child([&] { return remove_all(order) && push_all(order); }));
        ASSERT_TRUE(remove_all(order)) << shim_trace(pool);
    });
}

// The child gets each push and each remove whole: all calls meet the same layers there.
TEST_P(Layers, AreWholeInAChildOfAForkDuringAPush) {
    std::atomic<bool> ends{false};
    std::thread other([&] {
        for (int i = 0; !ends; i++) {
            shim_push(pool, i % SHIM_LAYERS);
            shim_remove(pool, (i + 2) % SHIM_LAYERS);
        }
    });
    for (size_t i = 0; i < scaled(200); i++) {
        EXPECT_TRUE(in_child([&] {
            std::string trace = shim_trace(pool), first = trace.substr(0, trace.find('/'));
            std::set<int> there;
            for (int rank = 0; rank < SHIM_LAYERS; rank++) {
                if (first.find("RQHZS"[rank]) != std::string::npos) {
                    there.insert(rank);
                }
            }
            for (int rank = 0; rank < SHIM_LAYERS; rank++) {
                shim_remove(pool, rank);
            }
            return trace == expected(there) && push_all({3, 1, 4, 0, 2}) &&
                   remove_all({0, 1, 2, 3, 4});
        }));
    }
    ends = true;
    other.join();
    for (int rank = 0; rank < SHIM_LAYERS; rank++) {
        shim_remove(pool, rank);
    }
    EXPECT_EQ(shim_trace(pool), expected({}));
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
    shim_push(pool, 0);
    shim_push(pool, 0);
    shim_push(pool, 2);
    EXPECT_EQ(umfPoolTryMalloc(pool, 64), nullptr);
    shim_remove(pool, 2);
    EXPECT_EQ(umfPoolTryMalloc(pool, 64), nullptr);
    shim_remove(pool, 0);
    umfFree(umfPoolMalloc(pool, 64));
    ptr = umfPoolTryMalloc(pool, 64);
    EXPECT_NE(ptr, nullptr);
    umfFree(ptr);
}
