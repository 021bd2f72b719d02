// Providers of users that do what they must not, under every kind of pool: no crash, no hang, no
// wrong byte, and the pool can be destroyed.

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <umf/memory_pool_ext.h>
#include <umf/reclaim.h>

#include "fakes/kinds.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t PAGE = 4096, TiB = size_t{1} << 40;

enum class Way {
    off_by_16,
    off_by_1,
    off_by_4,
    null_with_success,
    alloc_gives_code_9999,
    free_gives_code_4711,
    same_memory_twice,
    inside_of_memory_given,
    alloc_calls_the_pool,
    free_calls_the_pool,
    all_trim_the_pool,
    all_are_slow,
    all_fork,
    all_ask_for_foreign_pointers,
    all_set_errno,
    page_of_0,
    page_of_1,
    page_of_3,
    page_of_half_the_addresses,
    page_fails,
    line_of_0,
    line_of_3,
    line_of_half_the_addresses,
    high_addresses,
    last_addresses,
    low_addresses,
    every_other_free_fails,
    split_and_merge_fail,
    purges_fail,
};

const std::map<Way, const char *> ways = {
    {Way::off_by_16, "off_by_16"},
    {Way::off_by_1, "off_by_1"},
    {Way::off_by_4, "off_by_4"},
    {Way::null_with_success, "null_with_success"},
    {Way::alloc_gives_code_9999, "alloc_gives_code_9999"},
    {Way::free_gives_code_4711, "free_gives_code_4711"},
    {Way::same_memory_twice, "same_memory_twice"},
    {Way::inside_of_memory_given, "inside_of_memory_given"},
    {Way::alloc_calls_the_pool, "alloc_calls_the_pool"},
    {Way::free_calls_the_pool, "free_calls_the_pool"},
    {Way::all_trim_the_pool, "all_trim_the_pool"},
    {Way::all_are_slow, "all_are_slow"},
    {Way::all_fork, "all_fork"},
    {Way::all_ask_for_foreign_pointers, "all_ask_for_foreign_pointers"},
    {Way::all_set_errno, "all_set_errno"},
    {Way::page_of_0, "page_of_0"},
    {Way::page_of_1, "page_of_1"},
    {Way::page_of_3, "page_of_3"},
    {Way::page_of_half_the_addresses, "page_of_half_the_addresses"},
    {Way::page_fails, "page_fails"},
    {Way::line_of_0, "line_of_0"},
    {Way::line_of_3, "line_of_3"},
    {Way::line_of_half_the_addresses, "line_of_half_the_addresses"},
    {Way::high_addresses, "high_addresses"},
    {Way::last_addresses, "last_addresses"},
    {Way::low_addresses, "low_addresses"},
    {Way::every_other_free_fails, "every_other_free_fails"},
    {Way::split_and_merge_fail, "split_and_merge_fail"},
    {Way::purges_fail, "purges_fail"},
};

class BadProvider {
  public:
    Way way;
    umf_memory_pool_handle_t pool = nullptr;
    std::atomic<bool> is_bad{false}; // it behaves while the pool is made and destroyed

    explicit BadProvider(Way its) : way(its) {}
    BadProvider(const BadProvider &) = delete;
    BadProvider &operator=(const BadProvider &) = delete;
    ~BadProvider() {
        for (auto &[base, size] : mapped) {
            munmap(base, size);
        }
    }

    bool has_memory() const { // else only addresses
        return way != Way::high_addresses && way != Way::last_addresses &&
               way != Way::low_addresses;
    }

    umf_memory_provider_handle_t create() {
        umf_memory_provider_ops_t ops = plain_provider_ops();
        ops.initialize = [](const void *params, void **provider) {
            *provider = const_cast<void *>(params);
            return OK;
        };
        ops.finalize = [](void *) { return OK; };
        ops.alloc = [](void *p, size_t size, size_t alignment, void **ptr) {
            return self(p)->alloc(size, alignment, ptr);
        };
        ops.free = [](void *p, void *, size_t) { return self(p)->free(); };
        ops.get_name = [](void *, const char **name) {
            *name = "BAD";
            return OK;
        };
        ops.get_min_page_size = [](void *p, const void *, size_t *size) {
            return self(p)->page(size);
        };
        ops.get_recommended_page_size = [](void *p, size_t, size_t *size) {
            return self(p)->page(size);
        };
        ops.get_cache_line_size = [](void *p, size_t *size) { return self(p)->line(size); };
        ops.ext_allocation_split = [](void *p, void *, size_t, size_t) {
            return self(p)->change(Way::split_and_merge_fail);
        };
        ops.ext_allocation_merge = [](void *p, void *, void *, size_t) {
            return self(p)->change(Way::split_and_merge_fail);
        };
        ops.ext_purge_lazy = ops.ext_purge_force = [](void *p, void *, size_t) {
            return self(p)->change(Way::purges_fail);
        };
        umf_memory_provider_handle_t made = nullptr;
        EXPECT_EQ(umfMemoryProviderCreate(&ops, this, &made), OK);
        return made;
    }

  private:
    std::mutex mutex;
    std::vector<std::pair<void *, size_t>> mapped;
    uintptr_t next = 0, last = 0;
    size_t last_size = 0;
    std::atomic<unsigned> frees{0}, calls{0};

    static BadProvider *self(void *provider) {
        return static_cast<BadProvider *>(provider);
    }
    bool is(Way one) const {
        return is_bad && way == one;
    }

    void use_pool() {
        for (size_t size : {200, 300000}) {
            umfPoolFree(pool, umfPoolMalloc(pool, size));
        }
    }

    void fork_once() {
        if (calls++ % (does_all() ? 16 : 64)) {
            return;
        }
        mutex.lock(); // the child has no other threads that would unlock it
        pid_t child = fork();
        mutex.unlock();
        if (child == 0) {
            alarm(60);
            use_pool();
            _exit(0);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }

    void act(bool is_alloc) {
        static thread_local bool is_inside;
        if (!is_bad || is_inside) {
            return;
        }
        is_inside = true;
        if (way == (is_alloc ? Way::alloc_calls_the_pool : Way::free_calls_the_pool)) {
            use_pool();
        } else if (way == Way::all_trim_the_pool) {
            umfPoolTrimMemory(pool, 0);
        } else if (way == Way::all_are_slow) {
            std::this_thread::sleep_for(std::chrono::microseconds(300));
        } else if (way == Way::all_fork) {
            fork_once();
        } else if (way == Way::all_ask_for_foreign_pointers) {
            umf_memory_pool_handle_t found = nullptr;
            EXPECT_EQ(umfPoolByPtr(&found, &found), BAD);
            EXPECT_EQ(umfFree(&found), BAD);
        } else if (way == Way::all_set_errno) {
            errno = 4711;
        }
        is_inside = false;
    }

    umf_result_t alloc(size_t size, size_t alignment, void **ptr) {
        act(true);
        if (is(Way::null_with_success)) {
            *ptr = nullptr;
            return OK;
        }
        if (is(Way::alloc_gives_code_9999)) {
            return static_cast<umf_result_t>(9999);
        }
        size_t rounded = (size + PAGE - 1) / PAGE * PAGE, step = std::max(alignment, PAGE);
        if (rounded < size || step > TiB || rounded > TiB) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        std::lock_guard<std::mutex> guard(mutex);
        if (has_memory()) {
            return map(size, rounded, step, ptr);
        }
        return place(rounded, step, ptr);
    }

    umf_result_t map(size_t size, size_t rounded, size_t step, void **ptr) {
        if (last && is(Way::same_memory_twice) && size <= last_size) {
            *ptr = reinterpret_cast<void *>(last);
            return OK;
        }
        if (last && is(Way::inside_of_memory_given) && size + PAGE <= last_size) {
            *ptr = reinterpret_cast<void *>(last + PAGE);
            return OK;
        }
        size_t whole = rounded + step + PAGE;
        void *base = mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        mapped.push_back({base, whole});
        last = (reinterpret_cast<uintptr_t>(base) + step - 1) / step * step;
        last += way == Way::off_by_16  ? 16
                : way == Way::off_by_1 ? 1
                : way == Way::off_by_4 ? 4
                                       : 0;
        last_size = size;
        *ptr = reinterpret_cast<void *>(last);
        return OK;
    }

    umf_result_t place(size_t rounded, size_t step, void **ptr) {
        uintptr_t base;
        if (way == Way::last_addresses) {
            base = (next - rounded) / step * step;
            next = base;
        } else {
            next = next ? next : way == Way::high_addresses ? uintptr_t{1} << 63 : 65536;
            base = (next + step - 1) / step * step;
            next = base + rounded;
        }
        *ptr = reinterpret_cast<void *>(base);
        return OK;
    }

    umf_result_t free() {
        act(false);
        if (is(Way::every_other_free_fails) && frees++ % 2) {
            return UMF_RESULT_ERROR_UNKNOWN;
        }
        return is(Way::free_gives_code_4711) ? static_cast<umf_result_t>(4711) : OK;
    }

    umf_result_t change(Way failing) {
        act(false);
        return is(failing) ? static_cast<umf_result_t>(12345) : OK;
    }

    umf_result_t page(size_t *size) const {
        *size = way == Way::page_of_0                    ? 0
                : way == Way::page_of_1                  ? 1
                : way == Way::page_of_3                  ? 3
                : way == Way::page_of_half_the_addresses ? size_t{1} << 63
                                                         : PAGE;
        return way == Way::page_fails ? static_cast<umf_result_t>(77) : OK;
    }

    umf_result_t line(size_t *size) const {
        *size = way == Way::line_of_0                    ? 0
                : way == Way::line_of_3                  ? 3
                : way == Way::line_of_half_the_addresses ? size_t{1} << 63
                                                         : 64;
        return OK;
    }
};

struct Block {
    unsigned char *at;
    size_t size;
};

void use(umf_memory_pool_handle_t pool, bool has_memory, unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 4; round++) {
        std::vector<Block> blocks;
        for (unsigned i = 0; i < 40; i++) {
            size_t size = 1 + random() % (i % 7 ? 3000 : 400000);
            size_t alignment = i % 3 ? 0 : size_t{1} << random() % 14;
            void *ptr =
                alignment ? umfPoolAlignedMalloc(pool, size, alignment) : umfPoolMalloc(pool, size);
            if (ptr) {
                size_t least = alignment ? alignment : 8;
                EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % least, 0u) << size;
                blocks.push_back({static_cast<unsigned char *>(ptr), size});
            }
        }
        for (size_t i = 0; i < blocks.size() && has_memory; i++) {
            memset(blocks[i].at, static_cast<int>(seed * 64 + i), blocks[i].size);
        }
        for (size_t i = 0; i < blocks.size(); i++) {
            auto byte = static_cast<unsigned char>(seed * 64 + i);
            EXPECT_TRUE(!has_memory ||
                        (blocks[i].at[0] == byte &&
                         !memcmp(blocks[i].at, blocks[i].at + 1, blocks[i].size - 1)))
                << "another block lies in the same memory";
            umfPoolFree(pool, blocks[i].at);
        }
        if (round % 2) {
            umfPoolTrimMemory(pool, 0);
        }
    }
}

class Misbehaves
    : public testing::TestWithParam<std::tuple<PoolKind, std::pair<const Way, const char *>>> {};

TEST_P(Misbehaves, AndThePoolLives) {
    const PoolKind &kind = std::get<0>(GetParam());
    BadProvider bad(std::get<1>(GetParam()).first);
    if (!bad.has_memory() && kind.id == std::string("scalable")) {
        GTEST_SKIP() << "the pool keeps data in its memory, and there is none";
    }
    if (UMF_TEST_TSAN && bad.way == Way::all_fork) {
        GTEST_SKIP()
            << "the child of a fork in a process with threads may hang under the sanitizer";
    }
    umf_memory_provider_handle_t provider = bad.create();
    if (umfPoolCreate(kind.ops(), provider, nullptr, 0, &bad.pool) == OK) {
        bad.is_bad = true;
        std::vector<std::thread> threads;
        // That two threads are given the same memory at the same moment is not noticed: memory
        // given is recorded without a lock.
        bool gives_twice =
            bad.way == Way::same_memory_twice || bad.way == Way::inside_of_memory_given;
        for (unsigned i = 0; i < (gives_twice ? 1u : 3u); i++) {
            threads.emplace_back(use, bad.pool, bad.has_memory(), i);
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        bad.is_bad = false;
        umfPoolDestroy(bad.pool);
    }
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

INSTANTIATE_TEST_SUITE_P(pools, Misbehaves,
                         testing::Combine(testing::ValuesIn(pool_kinds()), testing::ValuesIn(ways)),
                         [](const auto &one) {
                             return std::string(std::get<0>(one.param).id) + "_" +
                                    std::get<1>(one.param).second;
                         });

// --- requests that are repeated
// --------------------------------------------------------------------------

class Asked : public testing::TestWithParam<PoolKind> {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    std::vector<size_t> requests;

    void SetUp() override {
        provider = fake.create();
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &pool), OK);
        ASSERT_EQ(umfAddReclaimCallback(note_request, this), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfRemoveReclaimCallback(note_request, this), OK);
        fake.alloc_fails = false;
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.live(), 0u);
    }
    static bool note_request(umf_memory_pool_handle_t, size_t bytes, unsigned, void *self) {
        static_cast<Asked *>(self)->requests.push_back(bytes);
        return true;
    }
};

// More memory does not bring a lost device back.
TEST_P(Asked, OnceAfterWhatIsNoShortage) {
    fake.alloc_fails = true;
    for (umf_result_t failure :
         {UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC, UMF_RESULT_ERROR_UNKNOWN,
          UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, UMF_RESULT_ERROR_INVALID_ARGUMENT}) {
        fake.failure = failure;
        for (size_t size :
             {size_t{64}, size_t{5000}, size_t{100000}, size_t{3} << 20, size_t{100} << 20}) {
            fake.allocs = 0;
            EXPECT_EQ(umfPoolMalloc(pool, size), nullptr);
            EXPECT_EQ(umfPoolGetLastAllocationError(pool), failure) << size;
            EXPECT_EQ(fake.allocs, 1u) << size << " bytes, result " << failure;
        }
    }
    EXPECT_EQ(requests.size(), 0u);
}

TEST_P(Asked, AgainAfterAShortage) {
    fake.alloc_fails = true;
    for (umf_result_t failure :
         {UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, UMF_RESULT_ERROR_OUT_OF_RESOURCES}) {
        fake.failure = failure;
        for (size_t size : {size_t{64}, size_t{100000}, size_t{100} << 20}) {
            requests.clear();
            fake.allocs = 0;
            EXPECT_EQ(umfPoolMalloc(pool, size), nullptr);
            EXPECT_EQ(umfPoolGetLastAllocationError(pool), failure) << size;
            EXPECT_GT(fake.allocs, 8u);
            EXPECT_EQ(requests.size(), 8u) << size;
        }
    }
}

// The result of a request does not depend on an earlier refusal of the thread.
TEST_P(Asked, WhateverWasRefusedBefore) {
    fake.failure = UMF_RESULT_ERROR_UNKNOWN;
    fake.alloc_fails = true;
    EXPECT_EQ(umfPoolMalloc(pool, 100000), nullptr);
    fake.alloc_fails = false;
    void *ptr = umfPoolMalloc(pool, 100000);
    EXPECT_NE(ptr, nullptr);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

TEST_P(Asked, ForSizesOf16TiBAndMore) {
    fake.limit = 0;
    for (size_t size : {16 * TiB, 16 * TiB + PAGE, 1024 * TiB, size_t{1} << 57}) {
        requests.clear();
        EXPECT_EQ(umfPoolMalloc(pool, size), nullptr);
        ASSERT_EQ(requests.size(), 8u) << size;
        EXPECT_GE(requests[0], size);
        EXPECT_LE(requests[0], size + (size_t{4} << 20));
    }
    requests.clear();
    EXPECT_EQ(umfPoolMalloc(pool, (size_t{1} << 57) + PAGE), nullptr);
    EXPECT_EQ(requests.size(), 0u);
}

// --- destroyed handles
// ----------------------------------------------------------------------------

TEST_P(Asked, NothingOfADestroyedPool) {
    std::vector<umf_memory_pool_handle_t> ended(3), later;
    for (umf_memory_pool_handle_t &one : ended) {
        umf_pool_create_flags_t flags =
            &one == &ended[2] ? UMF_POOL_CREATE_FLAG_DISABLE_TRACKING : 0;
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, flags, &one), OK);
        for (size_t size : {64, 4096, 65536}) {
            std::vector<void *> blocks;
            for (int i = 0; i < 70; i++) {
                blocks.push_back(umfPoolMalloc(one, size));
            }
            for (void *block : blocks) {
                EXPECT_EQ(umfPoolFree(one, block), OK);
            }
        }
        EXPECT_EQ(umfPoolDestroy(one), OK);
    }
    void *foreign = umfPoolMalloc(pool, 64);
    ASSERT_NE(foreign, nullptr);
    for (int i = 0; i < 20; i++) {
        for (umf_memory_pool_handle_t one : ended) {
            size_t size = 4711;
            for (size_t wanted : {0, 1, 64, 4096, 65536, 1 << 24}) {
                EXPECT_EQ(umfPoolMalloc(one, wanted), nullptr);
                EXPECT_EQ(umfPoolTryMalloc(one, wanted), nullptr);
                EXPECT_EQ(umfPoolAlignedMalloc(one, wanted, 64), nullptr);
                EXPECT_EQ(umfPoolCalloc(one, 1, wanted), nullptr);
                EXPECT_EQ(umfPoolRealloc(one, nullptr, wanted), nullptr);
            }
            EXPECT_EQ(umfPoolRealloc(one, foreign, 100), nullptr);
            EXPECT_EQ(umfPoolFree(one, foreign), BAD);
            EXPECT_EQ(umfPoolFree(one, nullptr), BAD);
            EXPECT_EQ(umfPoolFree(one, &size), BAD);
            EXPECT_FALSE(umfPoolTryFree(one, foreign));
            EXPECT_EQ(umfPoolMallocUsableSize(one, foreign, &size), BAD);
            EXPECT_EQ(umfPoolTrimMemory(one, 0), BAD);
            EXPECT_EQ(umfPoolGetLastAllocationError(one), BAD);
            EXPECT_EQ(umfPoolDestroy(one), BAD);
            EXPECT_EQ(size, 4711u);
        }
        // Its object and its index are not at once those of another pool.
        umf_memory_pool_handle_t made = nullptr;
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &made), OK);
        EXPECT_EQ(std::count(ended.begin(), ended.end(), made), 0);
        later.push_back(made);
    }
    for (umf_memory_pool_handle_t one : later) {
        EXPECT_EQ(umfPoolDestroy(one), OK);
    }
    EXPECT_EQ(umfPoolFree(pool, foreign), OK);
}

TEST_P(Asked, NothingOfADestroyedProvider) {
    FakeProvider other;
    umf_memory_provider_handle_t ended = other.create(), made = nullptr;
    EXPECT_EQ(umfMemoryProviderDestroy(ended), OK);
    for (int i = 0; i < 20; i++) {
        void *ptr = nullptr;
        EXPECT_EQ(umfMemoryProviderAlloc(ended, 64, 0, &ptr), BAD);
        EXPECT_EQ(umfMemoryProviderFree(ended, &ptr, 64), BAD);
        EXPECT_EQ(umfMemoryProviderDestroy(ended), BAD);
        made = fake.create();
        EXPECT_NE(made, ended);
        EXPECT_EQ(umfMemoryProviderDestroy(made), OK);
    }
}

INSTANTIATE_TEST_SUITE_P(pools, Asked, testing::ValuesIn(pool_kinds()),
                         [](const auto &one) { return std::string(one.param.id); });

} // namespace
