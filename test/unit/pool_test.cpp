/*
 * The inside of core/pool.c and of the layers below: the state after a failure of memory or system
 * at any step. Public behaviour of pools is in conformance/pool_test.cpp.
 */
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/providers/provider_os_memory.h>
#include <umf/reason.h>
#include <umf/text.h>

#include "fakes/fake_provider.h"
#include "fakes/kinds.h"
#include "fakes/log_file.h"
#include "fakes/scale.h"
#include "unit/toy.h"

extern "C" {
#include "base/meta.h"
#include "system/os.h"
umf_result_t
umf_thread_slot_index_get(uint32_t *index); // base/thread_slot.h, which is C11 with atomics
void umf_thread_slot_index_put(uint32_t index);
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t NO_MEMORY = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;

std::atomic<long> calls_left{-1};
std::atomic<bool> all_after{false};

// When all calls fail, frees do not: otherwise nothing could be undone.
int fail_nth(const char *call) {
    bool gives_back = std::strcmp(call, "unmap") == 0 || std::strcmp(call, "close") == 0;
    if (all_after && gives_back) {
        return 0;
    }
    long left = calls_left--;
    return left == 0 || (left < 0 && all_after) ? ENOMEM : 0;
}

// Runs `work` with the n-th call of metadata or system failing, for n = 0, 1, ... until nothing
// fails any more; `work` answers whether it got through.
void every_nth_failure(bool and_all_after, const std::function<bool()> &work) {
    for (long n = 0;; n++) {
        ASSERT_LT(n, 500) << "never got through";
        calls_left = n;
        all_after = and_all_after;
        umf_os_set_fault(fail_nth);
        bool done = work();
        umf_os_set_fault(nullptr);
        bool was_hit = calls_left < 0;
        EXPECT_TRUE(done || was_hit) << "failed without a cause";
        if (!was_hit) {
            return;
        }
    }
}

class Faults : public testing::TestWithParam<std::tuple<PoolKind, SourceKind>> {
  protected:
    const PoolKind &kind = std::get<0>(GetParam());

    void SetUp() override {
        NEEDS_TO_FIT(kind, std::get<1>(GetParam()))
    }

    // Everything was made once, so type-stable things (span descriptors, map tables, a thread's
    // table) are there.
    void warm_up() {
        for (int i = 0; i < 3; i++) {
            auto source = std::get<1>(GetParam()).make();
            for (umf_pool_create_flags_t flags : {0u, 2u}) {
                umf_memory_pool_handle_t pool = nullptr;
                ASSERT_EQ(umfPoolCreate(kind.ops(), source->handle, nullptr, flags, &pool), OK);
                for (size_t size : sizes) {
                    umfPoolFree(pool, umfPoolMalloc(pool, size));
                }
                ASSERT_EQ(umfPoolDestroy(pool), OK);
            }
        }
    }
    std::vector<size_t> sizes = {16, 100, 3000, 40000, 100000, 3u << 20};
};

// That a pool would get now: the smallest that is free.
uint32_t next_index() {
    uint32_t index = 0;
    EXPECT_EQ(umf_thread_slot_index_get(&index), OK);
    umf_thread_slot_index_put(index);
    return index;
}

bool is_clear(umf_result_t result) {
    return result == NO_MEMORY || result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC ||
           result == UMF_RESULT_ERROR_UNKNOWN;
}

TEST_P(Faults, CreateProvider) {
    warm_up();
    for (bool and_all_after : {false, true}) {
        every_nth_failure(and_all_after, [&] {
            size_t used = umf_meta_used();
            bool done;
            {
                auto source = std::get<1>(GetParam()).make();
                done = source->handle != nullptr;
                umf_os_set_fault(nullptr);
            }
            EXPECT_EQ(umf_meta_used(), used);
            return done;
        });
    }
}

TEST_P(Faults, CreatePool) {
    warm_up();
    auto source = std::get<1>(GetParam()).make();
    for (umf_pool_create_flags_t flags : {0u, 2u}) {
        for (bool and_all_after : {false, true}) {
            every_nth_failure(and_all_after, [&] {
                size_t used = umf_meta_used();
                uint32_t index = next_index();
                umf_memory_pool_handle_t pool = nullptr;
                umf_result_t result =
                    umfPoolCreate(kind.ops(), source->handle, nullptr, flags, &pool);
                umf_os_set_fault(nullptr);
                if (result == OK) {
                    EXPECT_EQ(umfPoolDestroy(pool), OK);
                } else {
                    EXPECT_TRUE(is_clear(result)) << result;
                    EXPECT_EQ(pool, nullptr);
                }
                EXPECT_EQ(umf_meta_used(), used) << "something was left";
                EXPECT_EQ(next_index(), index) << "the number of a pool, of which there are few";
                EXPECT_EQ(source->live_bytes(), 0u);
                return result == OK;
            });
        }
    }
}

TEST_P(Faults, AllocateAndFree) {
    ONE_THREAD_ONLY()
    warm_up();
    auto source = std::get<1>(GetParam()).make();
    for (umf_pool_create_flags_t flags : {0u, 2u}) {
        for (bool and_all_after : {false, true}) {
            for (size_t size : sizes) {
                every_nth_failure(and_all_after, [&] {
                    long n = calls_left;
                    umf_os_set_fault(nullptr);
                    umf_memory_pool_handle_t pool = nullptr;
                    EXPECT_EQ(umfPoolCreate(kind.ops(), source->handle, nullptr, flags, &pool), OK);
                    void *before = umfPoolMalloc(pool, 64);
                    EXPECT_NE(before, nullptr);
                    size_t count = alloc_count(pool);
                    calls_left = n;
                    umf_os_set_fault(fail_nth);
                    void *p = umfPoolMalloc(pool, size);
                    EXPECT_TRUE(p || is_clear(umfPoolGetLastAllocationError(pool)))
                        << umfPoolGetLastAllocationError(pool);
                    void *q = umfPoolAlignedMalloc(pool, size, 8192);
                    EXPECT_TRUE(q || is_clear(umfPoolGetLastAllocationError(pool)))
                        << umfPoolGetLastAllocationError(pool);
                    size_t succeeded = (p != nullptr) + (q != nullptr);
                    EXPECT_EQ(alloc_count(pool), count + succeeded);
                    if (p) {
                        static_cast<char *>(p)[size - 1] = 1;
                        umfPoolFree(pool, p); // may fail: the system refuses to unmap
                    }
                    umf_os_set_fault(nullptr);
                    if (q) {
                        static_cast<char *>(q)[size - 1] = 1;
                        EXPECT_EQ(umfPoolFree(pool, q), OK);
                    }
                    EXPECT_EQ(umfPoolFree(pool, before), OK);
                    // It works again.
                    void *again = umfPoolMalloc(pool, size);
                    EXPECT_NE(again, nullptr);
                    EXPECT_EQ(umfPoolFree(pool, again), OK);
                    EXPECT_EQ(umfPoolDestroy(pool), OK);
                    EXPECT_EQ(source->live_bytes(), 0u);
                    return succeeded == 2;
                });
            }
        }
    }
}

TEST_P(Faults, NothingGrows) {
    ONE_THREAD_ONLY()
    warm_up();
    auto source = std::get<1>(GetParam()).make();
    size_t used = 0;
    for (int round = 0; round < 20; round++) {
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreate(kind.ops(), source->handle, nullptr, 0, &pool), OK);
        std::vector<void *> live;
        for (size_t i = 0; i < 200; i++) {
            live.push_back(umfPoolMalloc(pool, 16 + i * 500));
        }
        for (void *p : live) {
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
        ASSERT_EQ(umfPoolDestroy(pool), OK);
        if (round == 9) {
            used = umf_meta_used();
        }
    }
    EXPECT_LE(umf_meta_used(), used + 8192) << "metadata grows with every pool";
}

INSTANTIATE_TEST_SUITE_P(Each, Faults,
                         testing::Combine(testing::ValuesIn(pool_kinds()),
                                          testing::ValuesIn(source_kinds())),
                         [](const auto &test) {
                             return std::string(std::get<0>(test.param).id) + "_on_" +
                                    std::get<1>(test.param).label;
                         });

// A thread that ends while its pool is being destroyed: its caches are given back once.
TEST(ThreadEnd, MeetsTheEndOfThePool) {
    for (const PoolKind &kind : pool_kinds()) {
        FakeProvider fake;
        umf_memory_provider_handle_t provider = fake.create();
        for (size_t round = 0; round < scaled(300); round++) {
            umf_memory_pool_handle_t pool = nullptr;
            ASSERT_EQ(umfPoolCreate(kind.ops(), provider, nullptr, 0, &pool), OK);
            std::atomic<int> done{0};
            std::vector<std::thread> threads;
            for (int t = 0; t < 3; t++) {
                threads.emplace_back([&] {
                    void *p = umfPoolMalloc(pool, 64);
                    umfPoolFree(pool, p);
                    done++;
                });
            }
            while (done < 3) {
                std::this_thread::yield();
            }
            ASSERT_EQ(umfPoolDestroy(pool), OK); // no thread uses it; some are still ending
            for (auto &thread : threads) {
                thread.join();
            }
            ASSERT_EQ(fake.live(), 0u);
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.mistakes, 0u);
    }
}

// The core serves the first 256 pools of a process itself; the others are served as well.
TEST(AtHand, AlsoOfPoolsBeyondTheFirst) {
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromText("os", &provider), OK);
    for (const PoolKind &kind : pool_kinds()) {
        std::vector<umf_memory_pool_handle_t> pools(300);
        for (auto &pool : pools) {
            ASSERT_EQ(umfPoolCreate(kind.ops(), provider, nullptr, 0, &pool), OK);
        }
        // Each of the threads has no caches yet.
        std::vector<void *> objects;
        std::thread([&] {
            for (auto pool : pools) {
                umf_memory_pool_handle_t found = nullptr;
                void *p = umfPoolMalloc(pool, 64), *q = umfPoolMalloc(pool, 64);
                ASSERT_TRUE(p && q && p != q) << kind;
                EXPECT_EQ(umfPoolByPtr(q, &found), OK);
                EXPECT_EQ(found, pool);
                size_t usable = SIZE_MAX;
                if (umfPoolMallocUsableSize(pool, q, &usable) == OK) {
                    EXPECT_GE(usable, 64u) << kind;
                    EXPECT_LT(usable, 1u << 20) << kind;
                }
                EXPECT_EQ(umfPoolFree(pool, q), OK);
                objects.push_back(p);
            }
        }).join();
        for (void *p : objects) {
            std::thread([&] { EXPECT_EQ(umfFree(p), OK); }).join();
        }
        for (auto pool : pools) {
            EXPECT_EQ(alloc_count(pool), 0u) << kind;
        }
        for (auto &pool : pools) {
            ASSERT_EQ(umfPoolDestroy(pool), OK);
        }
    }
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// Whatever way a free takes: over pages of their own, and where spans end inside of pages.
TEST(Free, RefusesWhatIsOfAnotherPool) {
    for (size_t stingy : {0, 8}) {
        FakeProvider fake;
        fake.stingy = stingy;
        umf_memory_provider_handle_t provider = fake.create();
        for (const PoolKind &kind : pool_kinds()) {
            umf_memory_pool_handle_t pool = nullptr, other = nullptr;
            if (umfPoolCreate(kind.ops(), provider, nullptr, 0, &pool) != OK) {
                continue; // it wants aligned memory
            }
            ASSERT_EQ(umfPoolCreate(kind.ops(), provider, nullptr, 0, &other), OK);
            for (size_t size : {size_t{64}, size_t{5000}, size_t{100000}, size_t{5} << 20}) {
                void *p = umfPoolMalloc(pool, size);
                ASSERT_NE(p, nullptr) << kind;
                ASSERT_EQ(umfPoolFree(other, p), UMF_RESULT_ERROR_INVALID_ARGUMENT) << kind;
                EXPECT_EQ(alloc_count(pool), 1u) << kind;
                memset(p, 1, size);
                EXPECT_EQ(umfPoolFree(pool, p), OK) << kind;
                EXPECT_EQ(umfPoolFree(other, p), UMF_RESULT_ERROR_INVALID_ARGUMENT) << kind;
            }
            EXPECT_EQ(umfPoolDestroy(other), OK);
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
}

// As realloc of libraries does: it allocates, moves, or frees.
TEST(Counted, ReallocOfUsersPools) {
    umf_memory_pool_ops_t ops = toy::pool_ops;
    ops.realloc = [](void *, void *ptr, size_t size) -> void * {
        if (size > 4096) {
            return nullptr;
        }
        if (ptr && size == 0) {
            free(ptr);
            return nullptr;
        }
        return realloc(ptr, size);
    };
    toy::Provider provider;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(&ops, provider.handle, nullptr, 0, &pool), OK);
    void *p = umfPoolRealloc(pool, nullptr, 100);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(alloc_count(pool), 1u);
    p = umfPoolRealloc(pool, p, 2000);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(alloc_count(pool), 1u);
    EXPECT_EQ(umfPoolRealloc(pool, p, 5000), nullptr);
    EXPECT_EQ(alloc_count(pool), 1u) << "it failed, and nothing was freed";
    EXPECT_EQ(umfPoolRealloc(pool, nullptr, 5000), nullptr);
    EXPECT_EQ(alloc_count(pool), 1u);
    EXPECT_EQ(umfPoolRealloc(pool, p, 0), nullptr);
    EXPECT_EQ(alloc_count(pool), 0u);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

// The core counts for pools that are not the library's.
TEST(Counted, AlsoUsersPoolsBeyondTheFirst) {
    toy::Provider provider;
    std::vector<umf_memory_pool_handle_t> pools(300);
    for (auto &pool : pools) {
        ASSERT_EQ(umfPoolCreate(&toy::pool_ops, provider.handle, nullptr, 0, &pool), OK);
    }
    for (auto pool : pools) {
        void *p = umfPoolMalloc(pool, 64), *q = umfPoolMalloc(pool, 0x1000);
        EXPECT_EQ(alloc_count(pool), 2u);
        EXPECT_EQ(umfPoolFree(pool, nullptr), OK);
        EXPECT_EQ(alloc_count(pool), 2u) << "nothing is not counted";
        std::thread([&] { EXPECT_EQ(umfPoolFree(pool, p), OK); }).join();
        EXPECT_EQ(alloc_count(pool), 1u) << "also what threads did that are gone";
        EXPECT_EQ(umfPoolFree(pool, q), OK);
        EXPECT_EQ(alloc_count(pool), 0u);
    }
    for (auto pool : pools) {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
}

// Pools are cheap: 10,000 exist at once.
TEST(Many, TenThousandPools) {
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    for (const PoolKind &kind : pool_kinds()) {
        const size_t count = std::min(scaled(10000), kind.most);
        size_t used = umf_meta_used();
        std::vector<umf_memory_pool_handle_t> pools(count);
        for (auto &pool : pools) {
            ASSERT_EQ(umfPoolCreate(kind.ops(), provider, nullptr, 0, &pool), OK);
        }
        EXPECT_LT((umf_meta_used() - used) / count, 20u << 10) << kind;
        // Some of them work.
        for (size_t i = 0; i < count; i += 97) {
            void *p = umfPoolMalloc(pools[i], 100);
            umf_memory_pool_handle_t found = nullptr;
            ASSERT_NE(p, nullptr) << kind << " " << i;
            EXPECT_EQ(umfPoolByPtr(p, &found), OK);
            EXPECT_EQ(found, pools[i]);
            EXPECT_EQ(umfFree(p), OK);
        }
        for (auto &pool : pools) {
            ASSERT_EQ(umfPoolDestroy(pool), OK);
        }
        EXPECT_EQ(fake.live(), 0u);
    }
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// A logger at level debug gets every refusal.
TEST(Refusals, AreInTheLogAtLevelDebug) {
    int level = 0;
    for (const char *kind : {"disjoint", "coalescing", "jemalloc", "scalable", "proxy"}) {
        LogFile log;
        ASSERT_EQ(umfCtlSet("umf.logger.level", &level, sizeof(level)), OK);
        umf_memory_pool_handle_t pool = nullptr;
        std::string text = std::string(kind) + " over os";
        umf_result_t result = umfPoolCreateFromText(text.c_str(), &pool);
        if (result == UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE ||
            result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
            continue;
        }
        ASSERT_EQ(result, OK) << kind;
        auto heard = [&, seen = log.text().size()]() mutable {
            bool is_more = log.text().size() > seen;
            seen = log.text().size();
            return is_more;
        };
        EXPECT_EQ(umfPoolMalloc(pool, SIZE_MAX), nullptr);
        EXPECT_TRUE(heard()) << kind << ": too large";
        void *p = umfPoolMalloc(pool, 0);
        EXPECT_TRUE(p || heard()) << kind << ": nothing";
        umfPoolFree(pool, p);
        size_t size;
        p = umfPoolMalloc(pool, 100);
        heard();
        result = umfPoolMallocUsableSize(pool, p, &size);
        EXPECT_EQ(result == OK, !heard()) << kind << ": size";
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        heard();
        result = umfPoolTrimMemory(pool, 0);
        EXPECT_EQ(result == OK, !heard()) << kind << ": trim";
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    LogFile log;
    ASSERT_EQ(umfCtlSet("umf.logger.level", &level, sizeof(level)), OK);
    umf_memory_provider_handle_t provider = nullptr;
    std::string file = testing::TempDir() + "umf_refusals_" + std::to_string(getpid());
    ASSERT_EQ(umfMemoryProviderCreateFromText(("file:path=" + file).c_str(), &provider), OK);
    char byte = 0;
    EXPECT_EQ(umfMemoryProviderPurgeLazy(provider, &byte, 1), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(log.count("umfMemoryProviderPurgeLazy: provider "), 1u) << log.text();
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    unlink(file.c_str());
}

// A program that calls it again and again learns once why it gets nothing.
TEST(Refusals, ByAPoolOfTheProgramIsTheLastError) {
    umf_memory_pool_ops_t ops = toy::poolOps();
    ops.malloc = [](void *, size_t) -> void * { return nullptr; };
    ops.get_last_allocation_error = [](void *) { return UMF_RESULT_ERROR_OUT_OF_RESOURCES; };
    toy::Provider below;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(&ops, below.handle, nullptr, 0, &pool), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPoolDestroy(nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfPoolMalloc(pool, 8), nullptr);
    EXPECT_EQ(std::string(umfLastErrorText()).find("pool toy returns no memory: "), 0u)
        << umfLastErrorText();
    EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
}

static umf_memory_provider_handle_t refusing; // as the pool sees it

// The pool helps itself after the provider's refusal, which is no reason of a later failure.
TEST(Refusals, ThatAPoolOfTheProgramOvercameAreForgotten) {
    umf_memory_pool_ops_t ops = toy::poolOps();
    ops.initialize = [](umf_memory_provider_handle_t provider, const void *, void **self) {
        refusing = provider;
        return toy::make(self);
    };
    ops.malloc = [](void *, size_t size) {
        void *none = nullptr;
        EXPECT_NE(umfMemoryProviderAlloc(refusing, size, 0, &none), OK);
        return malloc(size);
    };
    ops.calloc = [](void *, size_t, size_t) -> void * { return nullptr; };
    ops.aligned_malloc = [](void *, size_t, size_t) -> void * { return nullptr; };
    ops.realloc = [](void *, void *, size_t size) -> void * {
        void *none = nullptr;
        return size == 1 ? nullptr : (umfMemoryProviderAlloc(refusing, size, 0, &none), nullptr);
    };
    FakeProvider source;
    source.alloc_fails = true;
    umf_memory_provider_handle_t provider = source.create();
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(&ops, provider, nullptr, 0, &pool), OK);
    const auto begins_with = [](const std::string &text) {
        EXPECT_EQ(std::string(umfLastErrorText()).find(text), 0u) << umfLastErrorText();
    };
    const std::string own = "pool toy returns no memory: ", of_provider = "provider FAKE refuses ";
    void *p = umfPoolMalloc(pool, 8);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(umfPoolCalloc(pool, 1, 8), nullptr);
    begins_with(own);
    EXPECT_EQ(umfPoolRealloc(pool, p, 64), nullptr);
    begins_with(of_provider);
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 8, 64), nullptr);
    begins_with(own);
    umfLastErrorClear();
    EXPECT_EQ(umfPoolRealloc(pool, p, 1), nullptr);
    begins_with(own);
    umfLastErrorClear();
    EXPECT_EQ(umfPoolRealloc(pool, nullptr, 1), nullptr);
    begins_with(own);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST(NotOffered, IsLoggedOnceOfEachKind) {
    LogFile log;
    for (const char *kind : {"proxy", "disjoint"}) {
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreateFromText((std::string(kind) + " over os").c_str(), &pool), OK);
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(umfPoolCalloc(pool, 1, 8), nullptr);
            EXPECT_EQ(umfPoolRealloc(pool, nullptr, 8), nullptr);
        }
        std::string who = std::string("a ") + kind + " pool does not offer ";
        EXPECT_EQ(log.count(who + "umfPoolCalloc"), 1u) << log.text();
        EXPECT_EQ(log.count(who + "umfPoolRealloc"), 1u) << log.text();
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
}

} // namespace
