/* Which memory of a provider pools have got, also where another pool stands on it. */
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_fixed_memory.h>

#include "fakes/fake_provider.h"
#include "fakes/plain_ops.h"
#include "fakes/scale.h"

extern "C" {
#include "object/provider/provider_query.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

TEST(Tracked, AlsoBelowOtherPools) {
    FakeProvider fake, unrelated;
    umf_memory_provider_handle_t provider = fake.create(), other = unrelated.create();
    umf_memory_provider_handle_t above = nullptr;
    umf_memory_pool_handle_t outer = nullptr, inner = nullptr;
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    constexpr size_t size = 65536;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &outer), OK);
    auto block = static_cast<char *>(umfPoolMalloc(outer, size));
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(umf_provider_is_tracked(provider, block));
    EXPECT_FALSE(umf_provider_is_tracked(provider, block + 4096)) << "not where it begins";
    EXPECT_FALSE(umf_provider_is_tracked(other, block));

    ASSERT_EQ(umfFixedMemoryProviderParamsCreate(block, size, &params), OK);
    ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &above), OK);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), above, nullptr, 0, &inner), OK);
    void *part = umfPoolMalloc(inner, 4096);
    ASSERT_EQ(part, block) << "at the very address";
    EXPECT_TRUE(umf_provider_is_tracked(above, block));
    EXPECT_TRUE(umf_provider_is_tracked(provider, block));
    EXPECT_FALSE(umf_provider_is_tracked(other, block));

    EXPECT_EQ(umfPoolFree(inner, part), OK);
    EXPECT_FALSE(umf_provider_is_tracked(above, block));
    EXPECT_EQ(umfPoolDestroy(inner), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(above), OK);
    EXPECT_EQ(umfFixedMemoryProviderParamsDestroy(params), OK);
    EXPECT_EQ(umfPoolFree(outer, block), OK);
    EXPECT_FALSE(umf_provider_is_tracked(provider, block));
    EXPECT_EQ(umfPoolDestroy(outer), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(other), OK);
}

// Two threads meet here, again and again.
void meet(std::atomic<size_t> &arrived) {
    size_t number = arrived++;
    while (arrived <= (number | 1)) {
        std::this_thread::yield();
    }
}

// Each request waits until both threads are inside of one. Then they get the same memory, or memory
// that begins `shift` bytes behind where the size is `shifted`.
struct Twice {
    std::atomic<size_t> inside{0}, frees{0};
    size_t shifted = 0, shift = 0;

    static umf_result_t initialize(const void *params, void **provider) {
        *provider = const_cast<void *>(params);
        return OK;
    }
    static umf_result_t alloc(void *provider, size_t size, size_t, void **ptr) {
        Twice *twice = static_cast<Twice *>(provider);
        meet(twice->inside);
        *ptr = base() + (size == twice->shifted ? twice->shift : 0);
        return OK;
    }
    static char *base() {
        return reinterpret_cast<char *>(uintptr_t{23} << 40);
    }
    static umf_result_t free(void *provider, void *, size_t) {
        static_cast<Twice *>(provider)->frees++;
        return OK;
    }
    umf_memory_provider_handle_t create() {
        umf_memory_provider_ops_t ops = plain_provider_ops();
        ops.initialize = initialize;
        ops.finalize = [](void *) { return OK; };
        ops.get_name = [](void *, const char **name) {
            *name = "TWICE";
            return OK;
        };
        ops.alloc = alloc;
        ops.free = free;
        umf_memory_provider_handle_t provider = nullptr;
        umfMemoryProviderCreate(&ops, this, &provider);
        return provider;
    }
};

struct Sizes {
    size_t first, second;
};

// From a part of a page to slots of all levels of the pointer map.
class TrackedTwice : public testing::TestWithParam<Sizes> {};

INSTANTIATE_TEST_SUITE_P(Of, TrackedTwice,
                         testing::Values(Sizes{100, 100}, Sizes{4096, 4096}, Sizes{6000, 4096},
                                         Sizes{6000, 100}, Sizes{65536, 65536}, Sizes{4096, 65536},
                                         Sizes{1 << 20, 1 << 20}, Sizes{2 << 20, 4096},
                                         Sizes{1 << 30, 1 << 30}, Sizes{1 << 30, 3 << 20},
                                         Sizes{size_t{3} << 30, 65536},
                                         Sizes{(3 << 20) + 100, (3 << 20) + 100}));

// A provider that is not made for threads: one of them gets the memory, and the other's request
// does not free it.
TEST_P(TrackedTwice, OneOfTwoThreadsGetsIt) {
    const size_t rounds = scaled(20000);
    Twice twice;
    umf_memory_provider_handle_t provider = twice.create();
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
    std::atomic<size_t> begun{0}, done{0}, served{0};
    auto work = [&](size_t size) {
        for (size_t round = 0; round < rounds; round++) {
            meet(begun);
            void *block = umfPoolMalloc(pool, size);
            served += block != nullptr;
            meet(done);
            if (block) {
                umfPoolFree(pool, block);
            }
        }
    };
    std::thread other(work, GetParam().first);
    work(GetParam().second);
    other.join();
    EXPECT_EQ(served, rounds);
    EXPECT_EQ(twice.frees, rounds);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

struct Overlap {
    size_t first, second, shift;
};

class TrackedOverlap : public testing::TestWithParam<Overlap> {};

INSTANTIATE_TEST_SUITE_P(Of, TrackedOverlap,
                         testing::Values(Overlap{6000, 5000, 4096}, Overlap{65536, 65537, 4096},
                                         Overlap{1 << 20, 3 << 20, 65536},
                                         Overlap{4 << 20, 6 << 20, 2 << 20},
                                         Overlap{size_t{3} << 30, 2 << 20, 1 << 30}));

// Of two that begin elsewhere both may be accepted (memory_provider_ops.h). Then a free may be
// refused, which ends the rounds. One is served in each round, the provider gets back no more than
// it gave, and in the end the map has nothing of either.
TEST_P(TrackedOverlap, AtTheSameMomentOneIsServedAndNothingIsLeft) {
    const size_t rounds = scaled(20000);
    const Overlap overlap = GetParam();
    Twice twice;
    twice.shifted = overlap.second;
    twice.shift = overlap.shift;
    umf_memory_provider_handle_t provider = twice.create();
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
    std::atomic<size_t> begun{0}, done{0}, freed{0}, served{0}, made{0};
    std::atomic<bool> is_refused{false};
    auto work = [&](size_t size) {
        for (size_t round = 0; round < rounds && !is_refused; round++) {
            meet(begun);
            void *block = umfPoolMalloc(pool, size);
            served += block != nullptr;
            meet(done);
            if (block && umfPoolFree(pool, block) != OK) {
                is_refused = true;
            }
            made++;
            meet(freed);
        }
    };
    std::thread other(work, overlap.first);
    work(overlap.second);
    other.join();
    EXPECT_GE(served, made / 2);
    EXPECT_LE(twice.frees, served);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_LE(twice.frees, served);
    for (size_t at = 0; at < overlap.shift + overlap.second; at += 4096) {
        umf_memory_pool_handle_t owner = nullptr;
        ASSERT_NE(umfPoolByPtr(Twice::base() + at, &owner), OK) << at;
    }
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

} // namespace
