/* Spans of the proxy pool that rest: statistics, and effects of threads on each other. */
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/content.h"
#include "fakes/fork_at_rest.h"
#include "fakes/other_thread.h"
#include "fakes/resting_provider.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "ctl/field.h"
}

namespace {

constexpr size_t KiB = 1024, MiB = KiB * KiB;
constexpr size_t PAGE = 4096;
constexpr size_t MOST = 256 * KiB; // of a span that rests
constexpr size_t CREDIT = UMF_STATS_CREDIT;

class ProxyRestThreads : public testing::Test, protected PoolThatRests {
  protected:
    void SetUp() override {
        open(RestingProvider::OS);
    }
    void TearDown() override {
        close();
    }
    void expect_live(size_t bytes, size_t pieces) {
        EXPECT_EQ(allocated(), bytes);
        EXPECT_EQ(source->requested, bytes);
        EXPECT_EQ(count(), pieces);
    }
};

// --- statistics ---

TEST_F(ProxyRestThreads, WhatRestsIsNotAllocated) {
    warm_up();
    reset_peak();
    EXPECT_EQ(peak(), 0u);
    void *p = alloc(4 * KiB);
    expect_live(4 * KiB, 1);
    free(p);
    expect_live(0, 0);
    p = alloc(8 * KiB);
    EXPECT_EQ(peak(), 8 * KiB);
    free(p);
    p = alloc(4000);
    expect_live(4000, 1);
    EXPECT_EQ(peak(), 8 * KiB);
    reset_peak();
    EXPECT_EQ(peak(), 4000u);
    void *q = alloc(8000);
    EXPECT_EQ(peak(), 12000u);
    free(p), free(q);
    expect_live(0, 0);
    reset_peak();
    EXPECT_EQ(peak(), 0u);
    free(alloc(1));
    EXPECT_EQ(peak(), 1u);
}

// One thread, any sizes: all is exact.
TEST_F(ProxyRestThreads, StatisticsAgainstAModel) {
    std::mt19937 random(11);
    std::vector<std::pair<void *, size_t>> list;
    size_t live = 0, most = 0;
    warm_up();
    reset_peak();
    for (size_t i = 0; i < scaled(8000); i++) {
        if (list.size() > 60 || (!list.empty() && random() % 2)) {
            std::swap(list[random() % list.size()], list.back());
            free(list.back().first);
            live -= list.back().second;
            list.pop_back();
        } else {
            size_t size = 1 + random() % (random() % 3 ? 16 * KiB : 300 * KiB);
            list.push_back({alloc(size), size});
            live += size;
        }
        if (random() % 500 == 0) {
            reset_peak();
            most = live;
        }
        most = std::max(most, live);
        ASSERT_EQ(allocated(), live);
        ASSERT_EQ(peak(), most);
    }
    expect_live(live, list.size());
    EXPECT_GT(source->wakes, 100u);
    for (auto &one : list) {
        free(one.first);
    }
    expect_live(0, 0);
}

TEST_F(ProxyRestThreads, StatisticsOfThreads) {
    constexpr size_t THREADS = 4, PIECES = 20;
    std::atomic<size_t> full{0};
    std::vector<void *> left[THREADS];
    warm_up();
    run_threads<size_t>(THREADS, [&](size_t t) {
        std::mt19937 random(static_cast<unsigned>(t));
        for (size_t i = 0; i < scaled(2000); i++) {
            free(alloc(1 + random() % MOST));
        }
        std::vector<void *> list = alloc_all(PIECES, MOST);
        for (full++; full < THREADS;) { // all at once
            std::this_thread::yield();
        }
        left[t] = {list.begin(), list.begin() + 3};
        free_all({list.begin() + 3, list.end()});
        for (size_t i = 0; i < scaled(2000); i++) {
            free(alloc(1 + random() % MOST));
        }
    });
    expect_live(3 * THREADS * MOST, 3 * THREADS);
    EXPECT_GE(peak(), THREADS * PIECES * MOST);
    EXPECT_LE(peak(), THREADS * PIECES * MOST + THREADS * CREDIT);
    reset_peak();
    EXPECT_EQ(peak(), 3 * THREADS * MOST);
    for (auto &list : left) {
        free_all(list);
    }
    expect_live(0, 0);
}

// Also when what rests goes back.
TEST_F(ProxyRestThreads, PeaksStayWhenSpansGoBack) {
    warm_up();
    for (size_t size : {PAGE, 64 * KiB, MOST}) {
        void *live = alloc(PAGE);
        free_all(alloc_all(5, size));
        reset_peak();
        EXPECT_EQ(peak(), PAGE);
        size_t frees = source->frees;
        source->alloc_fails = true;
        EXPECT_EQ(umfPoolMalloc(pool, MiB), nullptr);
        source->alloc_fails = false;
        EXPECT_GT(source->frees, frees);
        EXPECT_EQ(peak(), PAGE);
        expect_live(PAGE, 1);
        free(live);
    }
}

// --- between threads ---

TEST_F(ProxyRestThreads, AnEndedThreadLeavesItsSpans) {
    std::thread([&] {
        warm_up();
        for (size_t size : {PAGE, 64 * KiB, MOST}) {
            free_all(alloc_all(50, size));
        }
    }).join();
    expect_live(0, 0);
    size_t calls = source->calls();
    for (size_t size : {PAGE, 64 * KiB, MOST}) {
        auto list = alloc_all(50, size);
        EXPECT_EQ(allocated(), 50 * size);
        free_all(list);
    }
    EXPECT_EQ(source->calls(), calls);
    EXPECT_EQ(source->held(), 150u);
}

TEST_F(ProxyRestThreads, WhatOneFreesAnotherAllocates) {
    OtherThread other;
    warm_up();
    for (size_t size : {PAGE, MOST}) {
        size_t before = source->held();
        auto round = [&] {
            auto list = alloc_all(100, size);
            other([&] { free_all(list); });
            expect_live(0, 0);
        };
        for (int i = 0; i < 5; i++) {
            round();
        }
        size_t calls = source->calls();
        for (int i = 0; i < 50; i++) {
            round();
        }
        EXPECT_LE(source->calls(), calls + 100) << "of 5000";
        EXPECT_LE(source->held() - before, 400u) << "no more than a few rounds";
    }
}

TEST_F(ProxyRestThreads, SpansThatRestDecay) {
    OtherThread other;
    warm_up();
    free_all(alloc_all(300, 64 * KiB));
    auto list = alloc_all(100, MOST);
    other([&] { free_all(list); });
    EXPECT_GE(source->held(), 390u);
    DecayPeriod short_one(100 * UINT64_C(1000000)); // only now: a slow machine takes longer so far
    constexpr size_t KEPT = 700; // of those that are used all the time, and in stacks
    for (int i = 0; i < 1000 && source->held_bytes() > KEPT * PAGE + MiB; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        free_all(alloc_all(600, PAGE));
    }
    EXPECT_LE(source->held_bytes(), KEPT * PAGE + MiB);
    EXPECT_GT(source->drops, 0u) << "the provider gives back what it keeps of it";
    expect_live(0, 0);
}

// Before the provider is called, as bins of the disjoint pool do.
TEST_F(ProxyRestThreads, SizesThatRestAddUp) {
    constexpr size_t WAITING_MAX = 64 * MiB, EACH = 16 * MiB;
    warm_up();
    for (size_t pages = 1; pages <= 64; pages++) {
        free_all(alloc_all(EACH / (pages * PAGE), pages * PAGE));
        ASSERT_LE(source->held_bytes(), WAITING_MAX + 2 * EACH);
    }
    free(alloc(MiB));
    EXPECT_LE(source->held_bytes(), WAITING_MAX);
}

TEST_F(ProxyRestThreads, OfTwoFreesAtOnceOneSucceeds) {
    const size_t rounds = scaled(20000);
    std::atomic<void *> next{nullptr};
    std::atomic<size_t> begun{0}, done{0}, freed{0};
    auto wait = [](const std::atomic<size_t> &value, size_t least) {
        for (size_t i = 1; value.load(std::memory_order_acquire) < least; i++) {
            if (i % 1000 == 0) {
                std::this_thread::yield();
            }
        }
    };
    warm_up();
    std::thread other([&] {
        for (size_t i = 1; i <= rounds; i++) {
            wait(begun, i);
            freed += umfFree(next) == UMF_RESULT_SUCCESS;
            done++;
        }
    });
    for (size_t i = 1; i <= rounds; i++) {
        void *p = alloc(1000);
        next = p;
        begun++;
        freed += umfFree(p) == UMF_RESULT_SUCCESS;
        wait(done, i);
    }
    other.join();
    EXPECT_EQ(freed, rounds);
    EXPECT_EQ(source->rests, rounds);
    expect_live(0, 0);
}

TEST_F(ProxyRestThreads, AForkedChildGoesOn) {
    OtherThread other;
    warm_up();
    auto list = alloc_all(1000, PAGE);
    other([&] { free_all({list.begin(), list.begin() + 700}); });
    free_all({list.begin() + 700, list.begin() + 990});
    expect_live(10 * PAGE, 10);
    pid_t child = fork_at_rest();
    ASSERT_GE(child, 0);
    if (child == 0) {
        expect_live(10 * PAGE, 10);
        size_t wakes = source->wakes;
        auto more = alloc_all(500, 4000);
        EXPECT_GE(source->wakes, wakes + 200);
        expect_live(10 * PAGE + 500 * 4000, 510);
        free_all(more);
        for (size_t i = 990; i < 1000; i++) {
            EXPECT_EQ(umfFree(list[i]), UMF_RESULT_SUCCESS);
        }
        expect_live(0, 0);
        alloc(100);
        close();
        _exit(HasFailure() ? 1 : 0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    expect_live(10 * PAGE, 10);
}

TEST_F(ProxyRestThreads, NoSpanIsHandedOutTwice) {
    constexpr size_t THREADS = 4;
    struct Piece {
        unsigned char *at;
        size_t size, seed;
    };
    DecayPeriod short_one(20 * UINT64_C(1000000));
    std::mutex lock;
    std::vector<Piece> shared;
    std::atomic<size_t> mistakes{0};
    std::vector<std::thread> threads;
    auto drop = [&](const Piece &piece) {
        size_t ends = std::min<size_t>(piece.size, 64);
        mistakes += !is_filled(piece.at, ends, piece.seed);
        mistakes += piece.size > 128 && !is_filled(piece.at + piece.size - 64, 64, piece.seed);
        mistakes += pool_of(piece.at + piece.size - 1) != pool;
        mistakes += umfFree(piece.at) != UMF_RESULT_SUCCESS;
    };
    for (size_t t = 0; t < THREADS; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            std::vector<Piece> own;
            for (size_t i = 0; i < scaled(6000); i++) {
                size_t size = 1 + random() % (random() % 4 ? 20 * KiB : 300 * KiB);
                auto p = static_cast<unsigned char *>(umfPoolMalloc(pool, size));
                if (!p) {
                    mistakes++;
                    continue;
                }
                Piece piece = {p, size, t * 1000000 + i};
                fill(p, std::min<size_t>(size, 64), piece.seed);
                if (size > 128) {
                    fill(p + size - 64, 64, piece.seed);
                }
                own.push_back(piece);
                std::swap(own[random() % own.size()], own.back());
                if (random() % 2) { // half of them are another thread's to free
                    std::lock_guard<std::mutex> guard(lock);
                    shared.push_back(own.back());
                    std::swap(shared[random() % shared.size()], shared.back());
                    own.back() = shared.back();
                    shared.pop_back();
                    if (shared.size() < 20) {
                        shared.push_back(own.back());
                        own.pop_back();
                    }
                }
                if (own.size() > 30) {
                    drop(own.back());
                    own.pop_back();
                }
            }
            std::lock_guard<std::mutex> guard(lock);
            shared.insert(shared.end(), own.begin(), own.end());
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    size_t bytes = 0;
    for (const Piece &piece : shared) {
        bytes += piece.size;
    }
    expect_live(bytes, shared.size());
    for (const Piece &piece : shared) {
        drop(piece);
    }
    expect_live(0, 0);
    EXPECT_EQ(mistakes, 0u);
    EXPECT_GT(source->wakes, 100u);
}

} // namespace
