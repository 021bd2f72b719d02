// Pointers, buffers, resources and allocators.
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cpp/heap.h"

static_assert(sizeof(umf::unique_ptr<int>) == sizeof(int *));
static_assert(std::is_same_v<std::allocator_traits<umf::allocator<int>>::rebind_alloc<char>,
                             umf::allocator<char>>);

struct Loud {
    static inline int alive;
    explicit Loud(bool fails = false) {
        if (fails) {
            throw std::runtime_error("no");
        }
        alive++;
    }
    ~Loud() {
        alive--;
    }
};

struct alignas(256) Wide {
    char bytes[256];
};

// A proxy pool: each of its allocations is one of the provider, and counted.
struct Counted {
    Counters counters;
    umf::pool pool{umf::make_provider<Heap>(counters), umf::proxy_params()};
};

TEST(UniquePtr, EndsTheObjectAndFreesItsMemory) {
    Counted counted;
    {
        auto loud = umf::make_unique<Loud>(counted.pool);
        umf::unique_ptr<const int> constant(umf::make_unique<int>(counted.pool, 7).release());
        auto wide = umf::make_unique<Wide>(counted.pool);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(wide.get()) % alignof(Wide), 0u);
        EXPECT_EQ(*constant, 7);
        EXPECT_EQ(Loud::alive, 1);
        umf::pool_ref pool = counted.pool;
        umf::unique_ptr<float[]> array(static_cast<float *>(pool.allocate(100)));
        umf::unique_ptr<void> bytes(pool.allocate(100));
    }
    EXPECT_EQ(Loud::alive, 0);
    EXPECT_THROW(static_cast<void>(umf::make_unique<Loud>(counted.pool, true)), std::runtime_error);
    counted.pool.reset();
    EXPECT_EQ(counted.counters.blocks, 0);
}

TEST(Buffer, OwnsAnArray) {
    umf::pool pool("disjoint over os");
    umf::buffer<int> numbers(pool, 100), none, empty(pool, 0);
    std::iota(numbers.begin(), numbers.end(), 0);
    EXPECT_EQ(numbers[99], 99);
    EXPECT_EQ(numbers.size_bytes(), 100 * sizeof(int));
    EXPECT_EQ(empty.data(), nullptr);
    EXPECT_TRUE(none.empty());
    umf::buffer<int> moved(std::move(numbers));
    EXPECT_EQ(numbers.size(), 0u);
    none = std::move(moved);
    EXPECT_EQ(none[7], 7);
    EXPECT_EQ(moved.data(), nullptr);
}

TEST(Buffer, RefusesMoreThanThereIs) {
    umf::pool pool("disjoint over os");
    EXPECT_THROW(umf::buffer<double>(pool, SIZE_MAX / 4), std::bad_alloc);
    EXPECT_FALSE(umf::buffer<double>::create(pool, SIZE_MAX / 4));
    EXPECT_EQ(umf::buffer<double>::create(pool, 10)->size(), 10u);
    EXPECT_TRUE(umf::buffer<double>::create(pool, 0)->empty());
}

TEST(Buffer, MayBeMemoryOfADevice) {
    Counters counters;
    umf::pool pool(umf::make_provider<Device>(counters), umf::disjoint_params());
    umf::buffer<float> numbers(pool, 1000);
    EXPECT_NE(numbers.data(), nullptr);
    EXPECT_FALSE(pool.place()->is_reachable);
}

#if defined(__cpp_lib_span)
static float sum(std::span<const float> numbers) {
    return std::accumulate(numbers.begin(), numbers.end(), 0.0F);
}

TEST(Buffer, IsASpan) {
    umf::pool pool("disjoint over os");
    umf::buffer<float> numbers(pool, 10);
    for (float &number : numbers.span()) {
        number = 1.5F;
    }
    EXPECT_EQ(sum(numbers.span()), 15);
    EXPECT_EQ(sum(numbers), 15);
}
#endif

TEST(Resource, ServesContainers) {
    Counted counted;
    {
        umf::memory_resource resource(counted.pool);
        std::pmr::vector<std::pmr::string> words(&resource);
        for (int i = 0; i < 100; i++) {
            words.emplace_back("a word that does not fit into the object itself");
        }
        std::pmr::map<int, Wide> wide(&resource);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(&wide[7]) % alignof(Wide), 0u);
        EXPECT_EQ(umf::pool_ref::of(words[99].data()), counted.pool);
        resource.deallocate(resource.allocate(0), 0);
    }
    counted.pool.reset();
    EXPECT_EQ(counted.counters.blocks, 0);
}

TEST(Resource, IsEqualToOthersOfItsPool) {
    umf::pool one("disjoint over os"), other("disjoint over os");
    umf::memory_resource resource(one), same(one), different(other);
    EXPECT_TRUE(resource == same);
    EXPECT_FALSE(resource == different);
    EXPECT_FALSE(resource == *std::pmr::new_delete_resource());
    EXPECT_EQ(resource.pool(), one);
    EXPECT_THROW(static_cast<void>(resource.allocate(SIZE_MAX / 4)), std::bad_alloc);
}

TEST(Allocator, ServesContainers) {
    umf::pool pool("disjoint over os");
    umf::allocator<int> allocator(pool);
    std::vector<int, umf::allocator<int>> numbers(1000, 7, allocator);
    std::list<Wide, umf::allocator<Wide>> wide(10, allocator);
    using Pair = std::pair<const int, int>;
    std::map<int, int, std::less<>, umf::allocator<Pair>> map(allocator);
    map[1] = 2;
    EXPECT_EQ(umf::pool_ref::of(numbers.data()), pool);
    EXPECT_EQ(umf::pool_ref::of(&map[1]), pool);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(&wide.back()) % alignof(Wide), 0u);
    EXPECT_THROW(static_cast<void>(allocator.allocate(SIZE_MAX / 2)), std::bad_array_new_length);
    EXPECT_THROW(static_cast<void>(allocator.allocate(SIZE_MAX / 16)), umf::bad_alloc);
}

TEST(Allocator, TakesItsPoolAlong) {
    umf::pool one("disjoint over os"), other("disjoint over os");
    using Numbers = std::vector<int, umf::allocator<int>>;
    Numbers first(10, 1, umf::allocator<int>(one)), second(20, 2, umf::allocator<int>(other));
    EXPECT_NE(first.get_allocator(), second.get_allocator());
    first.swap(second);
    EXPECT_EQ(first.get_allocator(), umf::allocator<long>(other));
    int *data = first.data();
    second = std::move(first);
    EXPECT_EQ(second.data(), data);
    EXPECT_EQ(second.get_allocator().pool(), other);
}

TEST(Containers, AreRefusedMemoryThatTheCpuDoesNotReach) {
    Counters counters;
    umf::pool pool(umf::make_provider<Device>(counters), umf::disjoint_params());
    EXPECT_EQ(umf::memory_resource::check(pool).code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_THROW(umf::allocator<int>{pool}, umf::exception);
    try {
        umf::memory_resource resource(pool);
        FAIL();
    } catch (const umf::exception &thrown) {
        EXPECT_EQ(thrown.code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_NE(std::string(thrown.what()).find("disjoint over provider HEAP"), std::string::npos)
            << thrown.what();
    }
}

TEST(Containers, AreRefusedAPoolThatCannotBeLookedAt) {
    const size_t page = 65536, size = 2 * page; // whole pages on every machine
    std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(page, size), &std::free);
    umf::pool pool(umf::provider(umf::fixed_params(memory.get(), size)), umf::proxy_params());
    void *all = pool.allocate(size);
    EXPECT_NE(umf::memory_resource::check(pool).code(), UMF_RESULT_SUCCESS);
    EXPECT_THROW(umf::memory_resource{pool}, umf::exception);
    pool.deallocate(all);
    EXPECT_TRUE(umf::memory_resource::check(pool));
}
