// Adaptors, the current pool, and buffers that are const.
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "cpp/heap.h"

#include <umf/fwd.hpp>

namespace {

static_assert(std::is_same_v<decltype(std::declval<umf::buffer<int> &>()[0]), int &>);
static_assert(std::is_same_v<decltype(std::declval<const umf::buffer<int> &>()[0]), const int &>);
static_assert(
    std::is_same_v<decltype(std::declval<const umf::buffer<int> &>().begin()), const int *>);
static_assert(
    std::is_same_v<decltype(std::declval<const umf::buffer<int> &>().data()), const int *>);

// A proxy pool: each of its requests is one of the provider, and counted.
struct Counted {
    Counters counters;
    umf::pool pool{umf::make_provider<Heap>(counters), umf::proxy_params()};
};

std::string reason(umf::pool_ref pool, void *(*allocate)(void *), void *from) {
    static_cast<void>(pool);
    try {
        static_cast<void>(allocate(from));
    } catch (const umf::bad_alloc &refused) {
        EXPECT_EQ(refused.code(), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        return refused.what();
    }
    return "";
}

TEST(LimitAdaptor, RefusesWhatWouldExceedIt) {
    Counted counted;
    umf::limit_adaptor limit(counted.pool, 1000);
    void *most = limit.allocate(600), *rest = limit.allocate(400);
    EXPECT_EQ(limit.used(), 1000u);
    EXPECT_EQ(limit.try_allocate(1), nullptr);
    EXPECT_EQ(limit.try_allocate(SIZE_MAX), nullptr);
    EXPECT_EQ(counted.counters.blocks, 2) << "what is refused does not reach the pool";
    EXPECT_NE(reason(
                  counted.pool,
                  [](void *from) { return static_cast<decltype(limit) *>(from)->allocate(7); },
                  &limit)
                  .find("the limit of 1000 bytes would be exceeded: 1000 are in use"),
              std::string::npos);
    EXPECT_EQ(limit.deallocate(most, 600), UMF_RESULT_SUCCESS);
    EXPECT_EQ(limit.deallocate(nullptr, 600), UMF_RESULT_SUCCESS);
    EXPECT_EQ(limit.used(), 400u);
    int local = 0;
    EXPECT_NE(limit.deallocate(&local, 400), UMF_RESULT_SUCCESS);
    EXPECT_EQ(limit.used(), 400u) << "a free that is refused changes no count";
    EXPECT_EQ(limit.deallocate(rest, 400), UMF_RESULT_SUCCESS);
    EXPECT_EQ(limit.limit(), 1000u);
}

TEST(LimitAdaptor, APoolThatHasNoMemoryCostsNothingOfIt) {
    umf::pool pool("proxy over os");
    umf::limit_adaptor limit(pool, SIZE_MAX);
    EXPECT_EQ(limit.try_allocate(SIZE_MAX / 2), nullptr);
    EXPECT_EQ(limit.used(), 0u);
    EXPECT_THROW(static_cast<void>(limit.allocate(SIZE_MAX / 2)), umf::bad_alloc);
}

TEST(LimitAdaptor, HoldsForAllThreads) {
    umf::pool pool("disjoint over os");
    umf::limit_adaptor limit(pool, 1600);
    std::vector<std::thread> threads;
    std::atomic<int> served{0};
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            for (int j = 0; j < 20; j++) {
                served += limit.try_allocate(100) != nullptr;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(served, 16);
}

TEST(StatisticsAdaptor, Counts) {
    umf::pool pool("disjoint over os");
    umf::statistics_adaptor counted(umf::limit_adaptor(pool, 1000));
    void *one = counted.allocate(300), *other = counted.allocate(500);
    EXPECT_EQ(counted.try_allocate(300), nullptr);
    counted.deallocate(other, 500);
    auto seen = counted.statistics();
    EXPECT_EQ(seen.bytes, 300u);
    EXPECT_EQ(seen.peak_bytes, 800u);
    EXPECT_EQ(seen.total_bytes, 800u);
    EXPECT_EQ(seen.blocks, 1u);
    EXPECT_EQ(seen.peak_blocks, 2u);
    EXPECT_EQ(seen.total_blocks, 2u);
    EXPECT_EQ(seen.failures, 1u);
    counted.reset_peaks();
    EXPECT_EQ(counted.statistics().peak_bytes, 300u);
    EXPECT_EQ(counted.statistics().peak_blocks, 1u);
    counted.deallocate(one, 300);
    EXPECT_EQ(counted.statistics().bytes, 0u);
    EXPECT_TRUE(counted.pool() == pool);
}

TEST(LoggingAdaptor, SeesEachCall) {
    using action = umf::allocation_event::action;
    umf::pool pool("disjoint over os");
    std::vector<umf::allocation_event> events;
    umf::logging_adaptor logged(
        umf::limit_adaptor(pool, 100),
        [&](const umf::allocation_event &event) { events.push_back(event); });
    void *ptr = logged.allocate(64, 32);
    EXPECT_EQ(logged.try_allocate(64), nullptr);
    logged.deallocate(ptr, 64);
    ASSERT_EQ(events.size(), 3u);
    EXPECT_TRUE(events[0].what == action::allocate && events[0].ptr == ptr);
    EXPECT_TRUE(events[0].size == 64 && events[0].alignment == 32 && !events[0].is_on_queue);
    EXPECT_TRUE(events[1].what == action::fail && !events[1].ptr);
    EXPECT_TRUE(events[2].what == action::deallocate && events[2].ptr == ptr);
    int local = 0;
    EXPECT_NE(logged.deallocate(&local, 4), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(events.back().what == action::fail && events.back().ptr == &local);
}

TEST(LoggingAdaptor, WritesLines) {
    umf::pool pool("disjoint over os");
    char text[256] = {};
    std::FILE *file = fmemopen(text, sizeof(text), "w");
    umf::logging_adaptor logged(pool, umf::csv_sink(file));
    logged.deallocate(logged.allocate(64, 32), 64);
    std::fclose(file);
    std::string lines(text);
    EXPECT_EQ(lines.rfind("action,pointer,size,alignment,queue\nallocate,0x", 0), 0u) << lines;
    EXPECT_NE(lines.find(",64,32,(nil)\nfree,0x"), std::string::npos) << lines;
}

TEST(FailureCallbackAdaptor, RepeatsAsLongAsItIsAsked) {
    umf::pool pool("disjoint over os");
    umf::limit_adaptor limit(pool, 1000);
    void *cache = limit.allocate(900);
    std::vector<unsigned> attempts;
    umf::failure_callback_adaptor retried(limit, [&](std::size_t bytes, unsigned attempt) {
        EXPECT_EQ(bytes, 500u);
        attempts.push_back(attempt);
        if (attempt == 1) {
            limit.deallocate(cache, 900);
        }
        return attempt < 2;
    });
    void *ptr = retried.allocate(500);
    EXPECT_EQ(attempts, (std::vector<unsigned>{0, 1}));
    void *other = limit.allocate(400);
    EXPECT_NE(reason(
                  pool,
                  [](void *from) { return static_cast<decltype(retried) *>(from)->allocate(500); },
                  &retried)
                  .find("900 are in use"),
              std::string::npos);
    limit.deallocate(other, 400);
    retried.deallocate(ptr, 500);
    EXPECT_EQ(limit.used(), 0u);
}

TEST(AlignedAdaptor, RaisesTheAlignment) {
    umf::pool pool("disjoint over os");
    umf::aligned_adaptor aligned(pool, 4096, 100);
    void *large = aligned.allocate(100), *more = aligned.allocate(100, 8192);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % 4096, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(more) % 8192, 0u);
    bool all = true; // below the threshold no one is aligned but by chance
    std::vector<void *> small;
    for (int i = 0; i < 8; i++) {
        small.push_back(aligned.allocate(16));
        all &= reinterpret_cast<uintptr_t>(small.back()) % 4096 == 0;
    }
    EXPECT_FALSE(all);
    for (void *ptr : small) {
        aligned.deallocate(ptr, 16);
    }
    aligned.deallocate(large, 100);
    aligned.deallocate(more, 100);
    umf::aligned_adaptor wrong(pool, 48);
    EXPECT_EQ(wrong.try_allocate(64), nullptr) << "48 is no power of two";
}

TEST(AdaptorResource, ServesContainers) {
    umf::pool pool("disjoint over os");
    umf::statistics_adaptor counted(umf::aligned_adaptor(pool, 64));
    umf::adaptor_resource resource(counted);
    {
        std::pmr::map<int, std::pmr::string> map(&resource);
        map[7] = "a text that does not fit into the string itself";
        EXPECT_GT(counted.statistics().blocks, 1u);
        EXPECT_THROW(std::pmr::vector<char>(SIZE_MAX / 4, &resource), std::bad_alloc);
    }
    EXPECT_EQ(counted.statistics().bytes, 0u);
    EXPECT_TRUE(resource == resource);
    EXPECT_TRUE(umf::adaptor_resource(counted) != resource) << "each frees its own";
    EXPECT_TRUE(resource.pool() == pool);
}

TEST(Adaptors, StackInOneLineAndByName) {
    umf::pool pool("disjoint over os");
    umf::limit_adaptor limit(pool, 1000);
    auto moved = umf::statistics_adaptor(umf::limit_adaptor(umf::aligned_adaptor(limit, 64), 500));
    void *ptr = moved.allocate(400);
    EXPECT_EQ(limit.used(), 400u);
    EXPECT_EQ(moved.try_allocate(200), nullptr) << "the inner limit is 500";
    umf::statistics_adaptor taken(std::move(moved));
    EXPECT_EQ(taken.deallocate(ptr, 400), UMF_RESULT_SUCCESS);
    EXPECT_EQ(taken.statistics().peak_bytes, 400u);
    EXPECT_EQ(limit.used(), 0u);
}

TEST(CurrentPool, IsThatOfTheDevice) {
    umf::pool pool("disjoint over os");
    EXPECT_FALSE(umf::current_pool());
    {
        umf::current_pool_scope scope(pool), device(pool, 3);
        EXPECT_TRUE(umf::current_pool() == pool);
        EXPECT_TRUE(umf::current_pool(3) == pool);
        EXPECT_FALSE(umf::current_pool(2));
        umf::pool other("proxy over os");
        umf::current_pool_scope inner(other);
        std::thread([&] { EXPECT_TRUE(umf::current_pool() == other); }).join();
    }
    EXPECT_FALSE(umf::current_pool());
    EXPECT_FALSE(umf::current_pool(3));
}

TEST(CurrentPool, RefusesNoDevice) {
    umf::pool pool("disjoint over os");
    for (int device : {-2, 64, 1 << 30}) {
        EXPECT_EQ(umf::set_current_pool(pool, device).code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_FALSE(umf::current_pool(device));
        EXPECT_THROW(umf::current_pool_scope(pool, device), umf::exception);
    }
    EXPECT_FALSE(umf::set_current_pool(pool).value());
    EXPECT_TRUE(umf::set_current_pool(nullptr).value() == pool);
}

TEST(CurrentPool, IsNoneWhenItHasEnded) {
    {
        umf::pool pool("disjoint over os");
        umf::set_current_pool(pool, 63).value();
        umf::pool moved(std::move(pool));
        EXPECT_TRUE(umf::current_pool(63) == moved);
    }
    EXPECT_FALSE(umf::current_pool(63));
}

} // namespace
