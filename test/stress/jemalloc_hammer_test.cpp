/*
 * Many threads on jemalloc pools: the loads that crash an allocator whose extents are merged across
 * arenas, and the ones that leak, lose or mix up memory. UMF_STRESS_SECONDS is the length of a
 * timed test.
 */
#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <umf/experimental/ctl.h>
#include <umf/memory_pool.h>
#include <umf/pools/pool_jemalloc.h>

#include "fakes/fake_provider.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

using Clock = std::chrono::steady_clock;

static std::chrono::milliseconds duration() {
    const char *text = getenv("UMF_STRESS_SECONDS");
    return std::chrono::milliseconds(text ? (size_t)(atof(text) * 1000) : does_all() ? 1500 : 500);
}

/* A provider that remembers which addresses it gave and fails at random. */
class Memory : public FakeProvider {
  public:
    std::atomic<unsigned> fail_percent{0};

    umf_memory_provider_handle_t create() {
        umf_memory_provider_ops_t ops = table();
        ops.alloc = alloc;
        ops.free = [](void *self, void *ptr, size_t size) {
            errno = EBUSY; /* as system calls do, also when they succeed in the end */
            return table().free(self, ptr, size);
        };
        umf_memory_provider_handle_t provider = nullptr;
        umfMemoryProviderCreate(&ops, static_cast<FakeProvider *>(this), &provider);
        return provider;
    }
    bool gave(const void *ptr) {
        std::lock_guard<std::mutex> guard(lock);
        auto range = given.upper_bound((uintptr_t)ptr);
        return range != given.begin() &&
               (uintptr_t)ptr - std::prev(range)->first < std::prev(range)->second;
    }

  private:
    std::mutex lock;
    std::minstd_rand random{1};
    std::map<uintptr_t, size_t> given;

    static umf_result_t alloc(void *self, size_t size, size_t alignment, void **ptr) {
        auto *memory = static_cast<Memory *>(static_cast<FakeProvider *>(self));
        std::lock_guard<std::mutex> guard(memory->lock);
        if (memory->random() % 100 < memory->fail_percent) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        umf_result_t result = table().alloc(self, size, alignment, ptr);
        if (result == UMF_RESULT_SUCCESS) {
            memory->given[(uintptr_t)*ptr] = size;
        }
        return result;
    }
};

/* A provider and a pool on it; afterwards everything must be back. */
struct Pool {
    Memory memory;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    explicit Pool(size_t arenas = 0) {
        create(arenas);
    }
    Pool(size_t page, int protection, size_t limit = SIZE_MAX) {
        memory.page_size = page;
        memory.protection = protection;
        memory.limit = limit;
        create(0);
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;
    ~Pool() {
        EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
        EXPECT_EQ(memory.live(), 0u);
        EXPECT_EQ(memory.mistakes, 0u);
        umfMemoryProviderDestroy(provider);
    }
    void create(size_t arenas) {
        umf_jemalloc_pool_params_handle_t params = nullptr;
        umfJemallocPoolParamsCreate(&params);
        umfJemallocPoolParamsSetNumArenas(params, arenas);
        provider = memory.create();
        EXPECT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, params, 0, &pool),
                  UMF_RESULT_SUCCESS);
        umfJemallocPoolParamsDestroy(params);
    }
    size_t count() const {
        size_t n = SIZE_MAX;
        umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &n, sizeof(n), pool);
        return n;
    }
};

/* A live object filled with a pattern of its own. */
struct Object {
    unsigned char *ptr;
    size_t size;

    unsigned char pattern() const {
        return (unsigned char)(((uintptr_t)ptr >> 4) ^ size);
    }
    void fill() const {
        memset(ptr, pattern(), size);
    }
    bool intact() const {
        for (size_t i = 0; i < size; i += i < 128 || i + 128 > size ? 1 : 61) {
            if (ptr[i] != pattern()) {
                return false;
            }
        }
        return true;
    }
};

static size_t random_size(std::minstd_rand &random) {
    switch (random() % 16) {
    case 0:
        return random() % (512 << 10);
    case 1:
    case 2:
        return random() % (48 << 10);
    case 3:
    case 4:
    case 5:
        return random() % 8192;
    default:
        return random() % 512;
    }
}

class JemallocHammer : public ::testing::Test {
    void SetUp() override {
        if (!umfJemallocPoolOps()) {
            GTEST_SKIP() << "the jemalloc pool was compiled out";
        }
    }
};

/* By every way that gives memory. */
static Object random_object(umf_memory_pool_handle_t pool, std::minstd_rand &random) {
    size_t size = random_size(random);
    size_t alignment = (size_t)1 << random() % 15;
    unsigned char *ptr = nullptr;
    switch (random() % 4) {
    case 0:
        ptr = (unsigned char *)umfPoolAlignedMalloc(pool, size, alignment);
        EXPECT_EQ((uintptr_t)ptr % alignment, 0u);
        break;
    case 1:
        ptr = (unsigned char *)umfPoolCalloc(pool, 1, size);
        for (size_t i = 0; ptr && i < size; i += 97) {
            EXPECT_EQ(ptr[i], 0);
        }
        break;
    default:
        ptr = (unsigned char *)umfPoolMalloc(pool, size);
        break;
    }
    EXPECT_EQ((uintptr_t)ptr % 8, 0u);
    Object object{ptr, size};
    if (ptr) {
        object.fill();
    }
    return object;
}

static void release(umf_memory_pool_handle_t pool, const Object &object, bool by_pointer) {
    EXPECT_TRUE(object.intact()) << object.size << " bytes at " << (void *)object.ptr;
    umf_result_t result = by_pointer ? umfFree(object.ptr) : umfPoolFree(pool, object.ptr);
    EXPECT_EQ(result, UMF_RESULT_SUCCESS) << object.size << " bytes at " << (void *)object.ptr;
}

static void grow_or_shrink(umf_memory_pool_handle_t pool, Object &object,
                           std::minstd_rand &random) {
    size_t size = random_size(random) + 1;
    size_t kept = size < object.size ? size : object.size;
    unsigned char pattern = object.pattern();
    auto *moved = (unsigned char *)umfPoolRealloc(pool, object.ptr, size);
    if (!moved) {
        return;
    }
    for (size_t i = 0; i < kept; i += 31) {
        ASSERT_EQ(moved[i], pattern);
    }
    object = {moved, size};
    object.fill();
}

/* Random work on up to `most` objects until `end`. */
static void churn(umf_memory_pool_handle_t pool, unsigned seed, size_t most,
                  Clock::time_point end) {
    std::minstd_rand random(seed);
    std::vector<Object> objects;
    for (size_t round = 0; round % 64 || Clock::now() < end; round++) {
        size_t at = objects.empty() ? 0 : random() % objects.size();
        unsigned choice = random() % 16;
        if (objects.size() < most && choice < 8) {
            Object object = random_object(pool, random);
            if (object.ptr) {
                objects.push_back(object);
            }
        } else if (!objects.empty() && choice < 10) {
            ASSERT_TRUE(objects[at].intact());
            grow_or_shrink(pool, objects[at], random);
        } else if (!objects.empty()) {
            release(pool, objects[at], choice & 1);
            objects[at] = objects.back();
            objects.pop_back();
        }
    }
    for (const Object &object : objects) {
        release(pool, object, true);
    }
}

TEST_F(JemallocHammer, FourThreadsOf64Blocks) {
    Pool p;
    auto end = Clock::now() + duration();
    run_threads<unsigned>(4, [&](unsigned) {
        void *blocks[64];
        while (Clock::now() < end) {
            for (void *&block : blocks) {
                block = umfPoolMalloc(p.pool, 32 << 10);
                ASSERT_NE(block, nullptr);
                *(uintptr_t *)block = (uintptr_t)block;
            }
            for (void *block : blocks) {
                ASSERT_EQ(*(uintptr_t *)block, (uintptr_t)block);
                ASSERT_EQ(umfFree(block), UMF_RESULT_SUCCESS);
            }
        }
    });
    EXPECT_EQ(p.count(), 0u);
}

TEST_F(JemallocHammer, SixteenThreadsOfMixedSizes) {
    Pool p;
    auto end = Clock::now() + duration();
    run_threads<unsigned>(16, [&](unsigned i) { churn(p.pool, i + 1, 200, end); });
    EXPECT_EQ(p.count(), 0u);
    EXPECT_EQ(umfPoolTrimMemory(p.pool, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(p.memory.live_bytes(), 0u) << "threads that ended keep nothing back";
}

TEST_F(JemallocHammer, OneArenaServesAllThreads) {
    Pool p(1);
    auto end = Clock::now() + duration() / 3;
    run_threads<unsigned>(8, [&](unsigned i) { churn(p.pool, i + 100, 200, end); });
    EXPECT_EQ(p.count(), 0u);
}

TEST_F(JemallocHammer, TrimWhileOthersWork) {
    Pool p;
    for (int tries = 0; tries < 100 && p.memory.purges == 0; tries++) { // a trim meets the others
        auto end = Clock::now() + duration() / 2;
        run_threads<unsigned>(6, [&](unsigned i) {
            if (i) {
                churn(p.pool, i + 200, 200, end);
                return;
            }
            while (Clock::now() < end) {
                EXPECT_EQ(umfPoolTrimMemory(p.pool, 0), UMF_RESULT_SUCCESS);
            }
        });
    }
    EXPECT_GT(p.memory.purges, 0u);
    EXPECT_EQ(p.count(), 0u);
}

/* Objects travel around a ring of threads; each is freed far from where it was made. */
TEST_F(JemallocHammer, FreedInOtherThreads) {
    constexpr unsigned threads = 4;
    Pool p;
    std::mutex locks[threads];
    std::vector<Object> boxes[threads];
    auto end = Clock::now() + duration();
    run_threads<unsigned>(threads, [&](unsigned i) {
        std::minstd_rand random(i + 7);
        while (Clock::now() < end) {
            std::vector<Object> made, taken;
            for (int n = 0; n < 100; n++) {
                Object object = random_object(p.pool, random);
                ASSERT_NE(object.ptr, nullptr);
                made.push_back(object);
            }
            {
                std::lock_guard<std::mutex> guard(locks[(i + 1) % threads]);
                auto &box = boxes[(i + 1) % threads];
                box.insert(box.end(), made.begin(), made.end());
            }
            {
                std::lock_guard<std::mutex> guard(locks[i]);
                taken.swap(boxes[i]);
            }
            for (const Object &object : taken) {
                release(p.pool, object, true);
            }
        }
    });
    for (auto &box : boxes) {
        for (const Object &object : box) {
            release(p.pool, object, false);
        }
    }
    EXPECT_EQ(p.count(), 0u);
}

TEST_F(JemallocHammer, ThreadsComeAndGo) {
    Pool p;
    auto end = Clock::now() + duration();
    run_threads<unsigned>(3, [&](unsigned i) {
        for (unsigned n = 0; Clock::now() < end; n++) {
            std::thread([&] { churn(p.pool, i * 1000 + n, 50, Clock::now()); }).join();
        }
    });
    EXPECT_EQ(p.count(), 0u);
}

TEST_F(JemallocHammer, PoolsComeAndGo) {
    auto end = Clock::now() + duration();
    run_threads<unsigned>(4, [&](unsigned i) {
        for (unsigned n = 0; Clock::now() < end; n++) {
            Pool p;
            churn(p.pool, i * 1000 + n, 50, Clock::now());
            void *left = umfPoolMalloc(p.pool, 100 + n % 100000);
            EXPECT_NE(left, nullptr);
        }
    });
}

TEST_F(JemallocHammer, TenThousandPoolsAtOnce) {
    /* ThreadSanitizer's deadlock detector fails at a few thousand live locks. */
    constexpr size_t pools = UMF_TEST_TSAN ? 500 : 10000, used = pools / 5;
    Memory memory;
    umf_memory_provider_handle_t provider = memory.create();
    std::vector<umf_memory_pool_handle_t> all(pools);
    for (auto &pool : all) {
        ASSERT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, nullptr, 0, &pool),
                  UMF_RESULT_SUCCESS);
    }
    std::vector<void *> objects;
    for (size_t i = 0; i < used; i++) {
        objects.push_back(umfPoolMalloc(all[i * (pools / used)], 64));
        ASSERT_NE(objects.back(), nullptr) << i;
    }
    for (size_t i = 0; i < used; i++) {
        umf_memory_pool_handle_t owner = nullptr;
        EXPECT_EQ(umfPoolByPtr(objects[i], &owner), UMF_RESULT_SUCCESS);
        EXPECT_EQ(owner, all[i * (pools / used)]);
        EXPECT_EQ(umfFree(objects[i]), UMF_RESULT_SUCCESS);
    }
    for (auto pool : all) {
        ASSERT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(memory.live_bytes(), 0u);
    umfMemoryProviderDestroy(provider);
}

// Who finds all places for arenas taken meanwhile uses one of them.
TEST_F(JemallocHammer, ThreadsMakeTheOnlyArenaAtOnce) {
    Memory memory;
    umf_memory_provider_handle_t provider = memory.create();
    umf_jemalloc_pool_params_handle_t params = nullptr;
    ASSERT_EQ(umfJemallocPoolParamsCreate(&params), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfJemallocPoolParamsSetNumArenas(params, 1), UMF_RESULT_SUCCESS);
    for (int i = 0; i < 100; i++) {
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, params, 0, &pool),
                  UMF_RESULT_SUCCESS);
        run_threads<unsigned>(8, [&](unsigned) {
            void *ptr = umfPoolMalloc(pool, 48);
            EXPECT_NE(ptr, nullptr);
            EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
        });
        ASSERT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    }
    umfJemallocPoolParamsDestroy(params);
    umfMemoryProviderDestroy(provider);
}

// jemalloc has 4,094 arenas; pools beyond them serve small objects from pages.
TEST_F(JemallocHammer, MorePoolsInUseThanArenas) {
    constexpr size_t pools = 4200;
    if (UMF_TEST_TSAN || UMF_TEST_ASAN) {
        GTEST_SKIP() << "too slow, and too many locks for ThreadSanitizer's deadlock detector";
    }
    Memory memory;
    umf_memory_provider_handle_t provider = memory.create();
    std::vector<umf_memory_pool_handle_t> all(pools);
    std::vector<char *> live;
    for (auto &pool : all) {
        ASSERT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider, nullptr, 0, &pool),
                  UMF_RESULT_SUCCESS);
        for (size_t size : {64, 5000}) {
            live.push_back(static_cast<char *>(umfPoolMalloc(pool, size)));
            ASSERT_NE(live.back(), nullptr);
            memset(live.back(), static_cast<int>(live.size()), size);
        }
    }
    size_t count = 0, usable = 0;
    EXPECT_EQ(
        umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), all.back()),
        UMF_RESULT_SUCCESS);
    EXPECT_EQ(count, 2u);
    EXPECT_EQ(umfPoolMallocUsableSize(all.back(), live.back(), &usable), UMF_RESULT_SUCCESS);
    EXPECT_GE(usable, 5000u);
    EXPECT_EQ(umfFree(live.back() + 16), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    for (size_t i = 0; i < live.size(); i++) {
        EXPECT_EQ(live[i][0], static_cast<char>(i + 1));
        EXPECT_EQ(umfFree(live[i]), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(umfFree(live.back()), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(
        umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), all.back()),
        UMF_RESULT_SUCCESS);
    EXPECT_EQ(count, 0u);
    for (auto pool : all) {
        ASSERT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(memory.live_bytes(), 0u);
    umfMemoryProviderDestroy(provider);
}

TEST_F(JemallocHammer, ProviderThatFailsAtRandom) {
    for (unsigned percent : {5u, 50u, 95u}) {
        Pool p;
        p.memory.fail_percent = percent;
        auto end = Clock::now() + duration() / 6;
        run_threads<unsigned>(4, [&](unsigned i) { churn(p.pool, i + percent, 300, end); });
        EXPECT_EQ(p.count(), 0u);
        p.memory.fail_percent = 0;
        void *ptr = umfPoolMalloc(p.pool, 1000);
        EXPECT_NE(ptr, nullptr) << "a pool recovers";
        EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
    }
}

TEST_F(JemallocHammer, LittleMemory) {
    Pool p(4096, PROT_READ | PROT_WRITE, 3 << 20);
    auto end = Clock::now() + duration() / 3;
    run_threads<unsigned>(4, [&](unsigned i) { churn(p.pool, i + 1, 500, end); });
    EXPECT_EQ(p.count(), 0u);
    EXPECT_EQ(umfPoolTrimMemory(p.pool, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(p.memory.live_bytes(), 0u);
}

/* Neither jemalloc's data nor ours lies in memory of the provider. */
static void work_without_touching(size_t page) {
    Pool p(page, PROT_NONE);
    auto end = Clock::now() + duration() / 4;
    run_threads<unsigned>(3, [&](unsigned i) {
        std::minstd_rand random(i + 1);
        std::vector<void *> objects;
        while (Clock::now() < end) {
            for (int n = 0; n < 500; n++) {
                size_t size = random_size(random);
                void *ptr = umfPoolAlignedMalloc(p.pool, size, (size_t)1 << random() % 15);
                size_t room = 0;
                ASSERT_NE(ptr, nullptr);
                EXPECT_EQ(umfPoolMallocUsableSize(p.pool, ptr, &room), UMF_RESULT_SUCCESS);
                EXPECT_GE(room, size);
                objects.push_back(ptr);
            }
            for (void *ptr : objects) {
                EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
            }
            objects.clear();
            EXPECT_EQ(umfPoolTrimMemory(p.pool, 0), UMF_RESULT_SUCCESS);
        }
    });
    EXPECT_EQ(p.count(), 0u);
}

TEST_F(JemallocHammer, MemoryOutOfReach) {
    work_without_touching(4096);
}

TEST_F(JemallocHammer, MemoryOutOfReachInPagesOf2MiB) {
    work_without_touching(2 << 20);
}

/* The provider of one pool stands on another pool of the same kind: while the upper one is below
 * its magazines, the lower one is entered. */
static std::vector<void *> notes; /* Kept by provider_on for each allocation, in its pool. */

static umf_memory_provider_handle_t provider_on(umf_memory_pool_handle_t pool) {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.initialize = [](const void *params, void **self) {
        *self = const_cast<void *>(params);
        return UMF_RESULT_SUCCESS;
    };
    ops.finalize = [](void *) { return UMF_RESULT_SUCCESS; };
    ops.alloc = [](void *self, size_t size, size_t alignment, void **ptr) {
        static std::mutex lock;
        std::lock_guard<std::mutex> guard(lock);
        notes.push_back(
            umfPoolMalloc((umf_memory_pool_handle_t)self, 16 + notes.size() * 100 % 8000));
        *ptr = umfPoolAlignedMalloc((umf_memory_pool_handle_t)self, size, alignment);
        return *ptr ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    };
    ops.free = [](void *self, void *ptr, size_t) {
        return umfPoolFree((umf_memory_pool_handle_t)self, ptr);
    };
    ops.get_min_page_size = [](void *, const void *, size_t *size) {
        *size = 4096;
        return UMF_RESULT_SUCCESS;
    };
    ops.get_name = [](void *, const char **name) {
        *name = "on_pool";
        return UMF_RESULT_SUCCESS;
    };
    ops.ext_allocation_split = [](void *, void *, size_t, size_t) {
        return UMF_RESULT_ERROR_UNKNOWN;
    };
    ops.ext_purge_force = ops.ext_purge_lazy = nullptr;
    ops.ext_ctl = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umfMemoryProviderCreate(&ops, pool, &provider);
    return provider;
}

TEST_F(JemallocHammer, PoolOnPool) {
    Pool outer;
    umf_memory_pool_handle_t inner = nullptr;
    ASSERT_EQ(umfPoolCreate(umfJemallocPoolOps(), provider_on(outer.pool), nullptr,
                            UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &inner),
              UMF_RESULT_SUCCESS);
    for (size_t size : {16u, 1000u, 20000u, 1000000u}) {
        void *ptr = umfPoolMalloc(inner, size);
        ASSERT_NE(ptr, nullptr);
        EXPECT_TRUE(outer.memory.gave(ptr)) << "not memory of the lowest provider";
        EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
    }
    auto end = Clock::now() + duration() / 3;
    run_threads<unsigned>(4,
                          [&](unsigned i) { churn(i % 2 ? inner : outer.pool, i + 1, 100, end); });
    EXPECT_EQ(umfPoolDestroy(inner), UMF_RESULT_SUCCESS);
    for (void *note : notes) {
        EXPECT_TRUE(outer.memory.gave(note));
        EXPECT_EQ(umfPoolFree(outer.pool, note), UMF_RESULT_SUCCESS);
    }
    EXPECT_GT(notes.size(), 1u);
    notes.clear();
    EXPECT_EQ(outer.count(), 0u);
}

/* What users do wrong gets an answer and harms nothing. */
TEST_F(JemallocHammer, WrongFrees) {
    Pool p, other;
    std::minstd_rand random(5);
    for (size_t size : {1u, 16u, 48u, 100u, 1000u, 5000u, 20000u, 32768u, 40000u, 3000000u}) {
        std::vector<char *> objects;
        for (int i = 0; i < 70; i++) {
            objects.push_back((char *)umfPoolMalloc(p.pool, size));
            ASSERT_NE(objects.back(), nullptr);
        }
        for (char *object : objects) {
            for (size_t step = 1; step < size; step += 1 + random() % 4096) {
                ASSERT_EQ(umfFree(object + step), UMF_RESULT_ERROR_INVALID_ARGUMENT) << size;
                ASSERT_EQ(umfPoolFree(p.pool, object + step), UMF_RESULT_ERROR_INVALID_ARGUMENT);
            }
            EXPECT_EQ(umfPoolFree(other.pool, object), UMF_RESULT_ERROR_INVALID_ARGUMENT);
            EXPECT_EQ(umfPoolRealloc(other.pool, object, 10), nullptr);
            errno = 1234;
            EXPECT_EQ(umfFree(object), UMF_RESULT_SUCCESS);
            EXPECT_EQ(errno, 1234);
            EXPECT_EQ(umfFree(object), UMF_RESULT_ERROR_INVALID_ARGUMENT) << size;
            EXPECT_EQ(umfPoolFree(p.pool, object), UMF_RESULT_ERROR_INVALID_ARGUMENT) << size;
        }
    }
    EXPECT_EQ(umfPoolFree(p.pool, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPoolFree(p.pool, &p), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

/* Many double frees, before and after magazines are flushed: jemalloc must not see them. */
TEST_F(JemallocHammer, LateDoubleFrees) {
    Pool p;
    std::minstd_rand random(5);
    for (int round = 0; round < 20; round++) {
        size_t size = random_size(random) % 32000;
        std::vector<void *> objects;
        for (int i = 0; i < 300; i++) {
            objects.push_back(umfPoolMalloc(p.pool, size));
            ASSERT_NE(objects.back(), nullptr);
        }
        for (int again = 0; again < 2; again++) {
            for (void *object : objects) {
                umfFree(object);
            }
        }
        umfPoolTrimMemory(p.pool, 0);
        for (void *object : objects) {
            EXPECT_EQ(umfFree(object), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        }
    }
    churn(p.pool, 3, 100, Clock::now() + duration() / 10);
}
