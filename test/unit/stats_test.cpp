/* Memory statistics of providers: ctl/stats.c. */
#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "base/meta.h"
#include "ctl/field.h"
#include "system/os.h"
}

namespace {

constexpr umf_result_t Success = UMF_RESULT_SUCCESS;
constexpr umf_result_t InvalidArgument = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t InvalidPath = UMF_RESULT_ERROR_INVALID_CTL_PATH;

umf_result_t stats(umf_stats_t *of, umf_ctl_query_type_t type, const char *path, void *arg,
                   size_t size, ...) {
    va_list args;
    va_start(args, size);
    umf_result_t result = umf_stats_ctl(of, path, arg, size, type, args);
    va_end(args);
    return result;
}

size_t statsRead(umf_stats_t *of, const char *path) {
    size_t value = SIZE_MAX;
    EXPECT_EQ(stats(of, CTL_QUERY_READ, path, &value, sizeof(value)), Success) << path;
    return value;
}

TEST(stats, count_and_peak) {
    umf_stats_t s = {};
    umf_stats_add(&s, 100);
    umf_stats_add(&s, 50);
    umf_stats_sub(&s, 100);
    EXPECT_EQ(statsRead(&s, "stats.allocated_memory"), 50u);
    EXPECT_EQ(statsRead(&s, "stats.peak_memory"), 150u);
    EXPECT_EQ(stats(&s, CTL_QUERY_RUNNABLE, "stats.peak_memory.reset", nullptr, 0), Success);
    EXPECT_EQ(statsRead(&s, "stats.peak_memory"), 50u);
    EXPECT_EQ(statsRead(&s, "stats.allocated_memory"), 50u);
    size_t value = 0;
    EXPECT_EQ(stats(&s, CTL_QUERY_WRITE, "stats.peak_memory", &value, sizeof(value)),
              InvalidArgument);
    EXPECT_EQ(stats(&s, CTL_QUERY_READ, "stats.peak_memory", &value, 4), InvalidArgument);
    EXPECT_EQ(stats(&s, CTL_QUERY_READ, "stats", &value, sizeof(value)), InvalidPath);
    EXPECT_EQ(stats(&s, CTL_QUERY_READ, "stats.peak", &value, sizeof(value)), InvalidPath);
}

TEST(stats, threads_lose_nothing) {
    umf_stats_t s = {};
    run_threads(4, [&s](int) {
        for (int i = 0; i < 20000; i++) {
            umf_stats_add(&s, 3);
            umf_stats_sub(&s, 2);
        }
    });
    EXPECT_EQ(statsRead(&s, "stats.allocated_memory"), 80000u);
    EXPECT_GE(statsRead(&s, "stats.peak_memory"), 80000u);
    EXPECT_LE(statsRead(&s, "stats.peak_memory"), 80008u);
}

size_t statsLive(umf_stats_t *of) {
    return statsRead(of, "stats.allocated_memory");
}

size_t statsPeak(umf_stats_t *of) {
    return statsRead(of, "stats.peak_memory");
}

void statsReset(umf_stats_t *of) {
    EXPECT_EQ(stats(of, CTL_QUERY_RUNNABLE, "stats.peak_memory.reset", nullptr, 0), Success);
}

const size_t Credit = UMF_STATS_CREDIT;

TEST(stats, what_rests_is_not_live) {
    umf_stats_t s = {};
    for (size_t size : {size_t{100}, Credit, 5 * Credit}) {
        for (int i = 0; i < 3; i++) {
            umf_stats_add(&s, size);
            EXPECT_EQ(statsLive(&s), size);
            EXPECT_EQ(statsPeak(&s), size);
            umf_stats_sub_dormant(&s, size);
            EXPECT_EQ(statsLive(&s), 0u);
            EXPECT_EQ(statsPeak(&s), size);
        }
        statsReset(&s);
        EXPECT_EQ(statsPeak(&s), 0u);
        EXPECT_EQ(statsLive(&s), 0u);
    }
    umf_stats_fini(&s);
}

/* With one thread all is exact, whatever the order. */
TEST(stats, one_thread_against_a_model) {
    for (unsigned seed = 0; seed < 20; seed++) {
        std::mt19937 random(seed);
        umf_stats_t s = {};
        std::vector<size_t> list;
        size_t live = 0, most = 0;
        for (int i = 0; i < 3000; i++) {
            if (list.size() > 40 || (!list.empty() && random() % 2)) {
                std::swap(list[random() % list.size()], list.back());
                random() % 4 ? umf_stats_sub_dormant(&s, list.back())
                             : umf_stats_sub(&s, list.back());
                live -= list.back();
                list.pop_back();
            } else {
                size_t size = random() % (seed % 2 ? Credit / 4 : random() % 8 ? 9000 : 3 * Credit);
                umf_stats_add(&s, size);
                list.push_back(size);
                live += size;
            }
            if (random() % 300 == 0) {
                statsReset(&s);
                most = live;
            }
            most = std::max(most, live);
            ASSERT_EQ(statsLive(&s), live) << seed;
            ASSERT_EQ(statsPeak(&s), most) << seed;
        }
        umf_stats_fini(&s);
    }
}

/* One thread rests, another adds: the first thread's own count is included. */
TEST(stats, credit_of_others_is_bounded) {
    umf_stats_t s = {};
    for (int i = 0; i < 64; i++) {
        umf_stats_add(&s, Credit / 4);
    }
    for (int i = 0; i < 64; i++) {
        umf_stats_sub_dormant(&s, Credit / 4);
    }
    EXPECT_EQ(statsLive(&s), 0u);
    std::thread([&s] {
        umf_stats_add(&s, 20 * Credit);
        EXPECT_EQ(statsLive(&s), 20 * Credit);
        EXPECT_GE(statsPeak(&s), 20 * Credit);
        EXPECT_LE(statsPeak(&s), 22 * Credit) << "two threads";
        statsReset(&s);
        EXPECT_EQ(statsPeak(&s), 20 * Credit) << "all credit is given back";
        umf_stats_sub(&s, 20 * Credit);
    }).join();
    EXPECT_EQ(statsLive(&s), 0u);
    umf_stats_fini(&s);
}

/* Credit is taken ahead only below the peak. */
TEST(stats, credit_taken_ahead_raises_no_peak) {
    umf_stats_t s = {};
    umf_stats_add(&s, 2 * Credit);
    umf_stats_sub_dormant(&s, 2 * Credit);
    statsReset(&s);
    size_t live = 0;
    for (size_t i = 0; i < 3000; i++, live += 1000) {
        EXPECT_EQ(statsPeak(&s), live);
        umf_stats_add(&s, 1000);
    }
    umf_stats_sub(&s, live);
    for (size_t i = 0; i < live / 1000; i++) { /* below it */
        umf_stats_add(&s, 1000);
        EXPECT_EQ(statsPeak(&s), live);
        EXPECT_EQ(statsLive(&s), (i + 1) * 1000);
    }
    umf_stats_add(&s, 1);
    EXPECT_EQ(statsPeak(&s), live + 1);
    umf_stats_sub(&s, live + 1);
    umf_stats_fini(&s);
}

TEST(stats, threads_that_rest_are_exact_in_the_end) {
    constexpr size_t Threads = 4, Pieces = 32;
    umf_stats_t s = {};
    std::atomic<size_t> full{0};
    run_threads<unsigned>(Threads, [&](unsigned t) {
        std::mt19937 random(t);
        auto some = [&] {
            for (size_t i = 0; i < 5000; i++) {
                size_t size = random() % (Credit / 4);
                umf_stats_add(&s, size);
                random() % 8 ? umf_stats_sub_dormant(&s, size) : umf_stats_sub(&s, size);
            }
        };
        some();
        for (size_t i = 0; i < Pieces; i++) {
            umf_stats_add(&s, Credit / 4);
        }
        for (full++; full < Threads;) {
            std::this_thread::yield();
        }
        for (size_t i = 1; i < Pieces; i++) {
            umf_stats_sub_dormant(&s, Credit / 4);
        }
        some();
    });
    EXPECT_EQ(statsLive(&s), Threads * Credit / 4);
    EXPECT_GE(statsPeak(&s), Threads * Pieces * Credit / 4);
    EXPECT_LE(statsPeak(&s), Threads * Pieces * Credit / 4 + Threads * Credit);
    statsReset(&s);
    EXPECT_EQ(statsPeak(&s), Threads * Credit / 4);
    EXPECT_EQ(statsLive(&s), Threads * Credit / 4);
    umf_stats_fini(&s);
}

TEST(stats, more_threads_than_parts) {
    umf_stats_t s = {};
    run_threads(70, [&s](int) {
        for (int i = 0; i < 300; i++) {
            umf_stats_add(&s, 50000);
            umf_stats_sub_dormant(&s, 49999);
        }
    });
    EXPECT_EQ(statsLive(&s), 70u * 300);
    umf_stats_fini(&s);
}

TEST(stats, threads_that_share_a_part_lose_nothing) {
    constexpr int Parts = 32;
    umf_stats_t s = {};
    std::atomic<bool> has_number{false}, goes{false};
    umf_stats_add(&s, 1000);
    umf_stats_sub_dormant(&s, 1);
    auto hammer = [&] {
        umf_stats_add(&s, 7);
        for (has_number = true; !goes;) {
            std::this_thread::yield();
        }
        for (size_t i = 0; i < scaled(1000000); i++) {
            umf_stats_sub_dormant(&s, 7);
            umf_stats_add(&s, 7);
        }
    };
    std::thread first(hammer);
    while (!has_number) {
        std::this_thread::yield();
    }
    for (int t = 1; t < Parts; t++) {
        std::thread([&] { umf_stats_add(&s, 1); }).join();
    }
    std::thread second(hammer);
    goes = true;
    first.join(), second.join();
    EXPECT_EQ(statsLive(&s), 999u + 2 * 7 + Parts - 1);
    umf_stats_fini(&s);
}

TEST(stats, parts_are_given_back) {
    size_t used = umf_meta_used();
    for (int i = 0; i < 3; i++) {
        umf_stats_t s = {};
        umf_stats_fini(&s);
        umf_stats_add(&s, 10);
        umf_stats_sub_dormant(&s, 10);
        EXPECT_GT(umf_meta_used(), used);
        umf_stats_fini(&s);
        EXPECT_EQ(umf_meta_used(), used);
    }
}

/* Statistics need none. */
TEST(stats, without_memory_for_shards) {
    umf_stats_t s = {};
    umf_os_set_fault([](const char *call) { return strcmp(call, "meta_alloc") == 0 ? 12 : 0; });
    for (int i = 0; i < 10; i++) {
        umf_stats_add(&s, 100);
        EXPECT_EQ(statsLive(&s), 100u);
        umf_stats_sub_dormant(&s, 100);
        EXPECT_EQ(statsLive(&s), 0u);
    }
    umf_os_set_fault(nullptr);
    EXPECT_EQ(statsPeak(&s), 100u);
    EXPECT_EQ(s.shards, nullptr);
    umf_stats_fini(&s);
}

/* What rested goes back: it is subtracted, then added as used again. */
TEST(stats, below_zero_for_a_moment_is_nothing_and_no_peak) {
    umf_stats_t s = {};
    umf_stats_add(&s, 100);
    umf_stats_sub_dormant(&s, 100);
    EXPECT_EQ(statsLive(&s), 0u);
    umf_stats_sub(&s, 100);
    EXPECT_EQ(statsLive(&s), 0u);
    EXPECT_EQ(umf_stats_counted(&s), 0u);
    umf_stats_add(&s, 40);
    EXPECT_EQ(statsPeak(&s), 100u);
    umf_stats_add(&s, 100);
    EXPECT_EQ(statsLive(&s), 40u);
    EXPECT_EQ(statsPeak(&s), 100u);
    umf_stats_sub(&s, 40);
    umf_stats_fini(&s);
}

/* Twice UMF_STATS_CREDIT for each thread, also those that have ended. */
TEST(stats, peaks_of_many_threads_are_bounded) {
    constexpr size_t Threads = 6;
    umf_stats_t s = {};
    umf_stats_add(&s, 1);
    umf_stats_sub_dormant(&s, 1);
    for (size_t t = 1; t < Threads; t++) {
        std::thread([&s] {
            umf_stats_add(&s, 4 * Credit);
            for (int i = 0; i < 4; i++) {
                umf_stats_sub_dormant(&s, Credit);
            }
        }).join();
    }
    umf_stats_add(&s, 100 * Credit);
    EXPECT_EQ(statsLive(&s), 100 * Credit);
    EXPECT_LE(statsPeak(&s), 100 * Credit + Threads * 2 * Credit);
    umf_stats_sub(&s, 100 * Credit);
    umf_stats_fini(&s);
}

} // namespace
