// Owners of providers and pools, parameters, errors.
#include <cstring>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>
#include <umf/providers/provider_os_memory.h>

#include "cpp/heap.h"

using std::string;

static_assert(!std::is_copy_constructible_v<umf::pool> &&
              std::is_nothrow_move_constructible_v<umf::pool> &&
              std::is_nothrow_move_assignable_v<umf::provider>);
static_assert(sizeof(umf::pool) == sizeof(void *) && sizeof(umf::provider) == sizeof(void *));

static bool has(const string &text, const char *part) {
    return text.find(part) != string::npos;
}

TEST(Pool, FromTextServesAndFrees) {
    umf::pool pool("disjoint over os");
    void *ptr = pool.allocate(1000);
    std::memset(ptr, 1, 1000);
    EXPECT_EQ(umf::pool_ref::of(ptr), pool);
    EXPECT_GE(pool.usable_size(ptr), 1000u);
    EXPECT_STREQ(pool.name(), "disjoint");
    EXPECT_STREQ(pool.provider().name(), "OS");
    EXPECT_EQ(pool.deallocate(ptr), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(pool.trim());
    EXPECT_FALSE(umf::pool_ref::of(&pool));
}

TEST(Pool, AlignsAsAsked) {
    umf::pool pool("disjoint over os");
    for (size_t alignment = 1; alignment <= 8192; alignment *= 2) {
        void *ptr = pool.allocate(24, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % alignment, 0u);
        pool.deallocate(ptr);
    }
}

TEST(Pool, ZeroesWhereThePoolWritesToItsMemory) {
    umf::pool writes("coalescing over os"), never_writes("disjoint over os");
    auto *bytes = static_cast<char *>(writes.allocate_zeroed(100));
    EXPECT_EQ(bytes[0] | bytes[99], 0);
    writes.deallocate(bytes);
    EXPECT_EQ(never_writes.try_allocate_zeroed(100), nullptr);
    EXPECT_EQ(never_writes.allocation_error().code(), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_THROW(static_cast<void>(never_writes.allocate_zeroed(100)), std::bad_alloc);
}

TEST(Pool, MistakesInTextAreThrownOrReturned) {
    auto made = umf::pool::create("disjoint over oss");
    ASSERT_FALSE(made);
    EXPECT_EQ(made.code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(has(made.error().text(), "\"disjoint over oss\"")) << made.error().text();
    EXPECT_TRUE(has(made.error().text(), "at 15")) << made.error().text();
    try {
        umf::pool pool("disjoint over oss");
        FAIL();
    } catch (const umf::exception &thrown) {
        EXPECT_EQ(thrown.code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(thrown.what(), made.error().text());
    }
    EXPECT_THROW(umf::provider("os:colour=red"), std::runtime_error);
    EXPECT_FALSE(umf::provider::create("os:colour=red"));
}

TEST(Pool, OwnsAProviderThatIsMoved) {
    Counters counters;
    umf::provider provider = umf::make_provider<Heap>(counters);
    umf_memory_provider_handle_t handle = provider.get();
    {
        umf::pool pool(std::move(provider), umf::proxy_params());
        EXPECT_FALSE(provider);
        EXPECT_EQ(pool.provider().get(), handle);
        EXPECT_EQ(counters.objects, 1);
    }
    EXPECT_EQ(counters.objects, 0);
}

TEST(Pool, SharesAProviderThatIsNamed) {
    Counters counters;
    umf::provider provider = umf::make_provider<Heap>(counters);
    {
        umf::pool one(provider, umf::disjoint_params()), other(provider, umfProxyPoolOps());
        EXPECT_EQ(one.provider(), provider);
        EXPECT_NE(one, other);
    }
    EXPECT_EQ(counters.objects, 1);
    provider.reset();
    EXPECT_EQ(counters.objects, 0);
}

TEST(Pool, LeavesTheProviderIfItFails) {
    Counters counters;
    umf::provider provider = umf::make_provider<Heap>(counters);
    EXPECT_FALSE(umf::pool::create(std::move(provider), nullptr));
    EXPECT_TRUE(provider);
    EXPECT_EQ(counters.objects, 1);
}

TEST(Pool, MovesAndReleases) {
    Counters counters;
    umf::pool one(umf::make_provider<Heap>(counters), umf::proxy_params());
    umf::pool other(umf::make_provider<Heap>(counters), umf::proxy_params());
    umf_memory_pool_handle_t handle = other.get();
    one = std::move(other);
    EXPECT_EQ(counters.objects, 1);
    EXPECT_FALSE(other);
    EXPECT_EQ(one.release(), handle);
    umf::pool again(handle), moved(std::move(again));
    EXPECT_EQ(moved.get(), handle);
    moved.reset();
    EXPECT_EQ(counters.objects, 0);
}

TEST(Parameters, AreSetInARow) {
    umf::os_params os;
    os.set(umfOsMemoryProviderParamsSetVisibility, UMF_MEM_MAP_SHARED)
        .set(umfOsMemoryProviderParamsSetName, "of_mine");
    umf::provider provider(os);
    EXPECT_STREQ(provider.name(), "of_mine");
    umf::disjoint_params disjoint;
    disjoint.set(umfDisjointPoolParamsSetName, "also_mine");
    umf::pool pool(provider, disjoint);
    EXPECT_STREQ(pool.name(), "also_mine");
}

TEST(Parameters, KeepTheFirstFailure) {
    umf::disjoint_params params;
    params.set(umfDisjointPoolParamsSetMinBucketSize, 7).set(umfDisjointPoolParamsSetCapacity, 4);
    EXPECT_EQ(params.status(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umf::provider os("os");
    auto pool = umf::pool::create(os, params);
    EXPECT_EQ(pool.code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_THROW(umf::pool(os, params), umf::exception);
    umf::file_params file(nullptr);
    EXPECT_EQ(umf::provider::create(file).code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST(Parameters, MayNeedArguments) {
    alignas(4096) static char memory[1 << 20];
    umf::fixed_params params(memory, sizeof(memory)), moved(std::move(params));
    EXPECT_EQ(params.get(), nullptr);
    umf::pool pool(umf::provider(moved), umf::coalescing_params{});
    void *ptr = pool.allocate(100);
    EXPECT_TRUE(ptr >= memory && ptr < memory + sizeof(memory));
    pool.deallocate(ptr);
}

TEST(Provider, ServesPages) {
    umf::provider provider("os");
    size_t page = provider.min_page_size();
    EXPECT_GT(page, 0u);
    EXPECT_GE(provider.recommended_page_size(1), page);
    auto *bytes = static_cast<char *>(provider.allocate(4 * page));
    bytes[0] = 'x';
    EXPECT_TRUE(provider.purge_force(bytes, page));
    EXPECT_EQ(bytes[0], 0);
    EXPECT_TRUE(provider.purge_lazy(bytes, page));
    EXPECT_EQ(provider.purge_force(nullptr, page).code(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.deallocate(bytes, 4 * page), UMF_RESULT_SUCCESS);
}

TEST(Errors, OfAllocationsNameSizePoolAndCause) {
    umf::pool pool("proxy over os");
    try {
        static_cast<void>(pool.allocate(static_cast<size_t>(1) << 60));
        FAIL();
    } catch (const std::bad_alloc &thrown) {
        const auto *mine = dynamic_cast<const umf::bad_alloc *>(&thrown);
        ASSERT_NE(mine, nullptr);
        EXPECT_EQ(mine->code(), pool.allocation_error().code());
        EXPECT_TRUE(has(thrown.what(), "1152921504606846976 bytes from proxy")) << thrown.what();
    }
    umf::provider provider("os");
    EXPECT_THROW(static_cast<void>(provider.allocate(0)), umf::bad_alloc);
    auto none = provider.try_allocate(0);
    EXPECT_EQ(none.code(), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_FALSE(has(none.error().text(), ": : "));
}

TEST(Result, AConstOneIsUsedAsStdExpectedIs) {
    const umf::result<int> seven = 7;
    const umf::result<int> none = umf::error(UMF_RESULT_ERROR_OUT_OF_RESOURCES, "nothing here");
    EXPECT_EQ(*seven, 7);
    EXPECT_EQ(seven.value(), 7);
    EXPECT_THROW(static_cast<void>(none.value()), umf::exception);
    EXPECT_EQ(seven.value_or(1), 7);
    EXPECT_EQ(none.value_or(1), 1);
    auto twice = [](int value) { return umf::result<long>(2L * value); };
    EXPECT_EQ(*seven.and_then(twice), 14);
    EXPECT_EQ(none.and_then(twice).error().text(), "nothing here");
    const auto made = umf::pool::create("proxy over os");
    ASSERT_TRUE(made);
    EXPECT_NE(made->get(), nullptr);
    auto moved = umf::result<std::unique_ptr<int>>(std::make_unique<int>(3));
    auto taken = std::move(moved).and_then([](std::unique_ptr<int> &&value) {
        return umf::result<std::unique_ptr<int>>(std::move(value));
    });
    EXPECT_EQ(**taken, 3);
    EXPECT_EQ(*std::move(taken).value_or(nullptr), 3);
}

TEST(Errors, AreValuesUntilTheyAreThrown) {
    umf::result<int> good(7), bad(umf::error(UMF_RESULT_ERROR_OUT_OF_RESOURCES, "all gone"));
    EXPECT_EQ(good.value(), 7);
    EXPECT_EQ(good.code(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(bad.code(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_THROW(bad.value(), umf::exception);
    umf::result<void> nothing, failed(bad.error());
    EXPECT_TRUE(nothing);
    EXPECT_NO_THROW(nothing.value());
    EXPECT_THROW(failed.value(), umf::exception);
    umf::result<string> text(string("moved"));
    EXPECT_EQ(text->size(), 5u);
    EXPECT_EQ(std::move(text).value(), "moved");
}
