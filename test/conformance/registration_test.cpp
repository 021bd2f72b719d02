// Memory that others register (umf/registration.h), of the host: runs, the property, callbacks.

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/queue.h>
#include <umf/registration.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/fake_provider.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr umf_result_t FULL = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t MiB = size_t{1} << 20;

umf_memory_run_t run_of(const void *ptr) {
    umf_memory_run_t run{};
    size_t count = 1;
    EXPECT_EQ(umfGetRuns(ptr, 1, &run, &count), OK);
    EXPECT_EQ(count, 1u);
    return run;
}

// A registration of each range of a pool, as a library of a network card keeps it.
struct Registrar {
    std::map<char *, umf_memory_run_t> records;
    std::vector<char> calls; // m, u
    umf_result_t answer = OK;
    size_t refuse_at = 0; // the n-th call of mapped from now; 0: as `answer`
    umf_memory_callbacks_t callbacks = UMF_MEMORY_CALLBACKS_INIT;

    Registrar() {
        callbacks.arg = this;
        callbacks.mapped = [](void *arg, umf_memory_pool_handle_t, const umf_memory_run_t *run) {
            return static_cast<Registrar *>(arg)->mapped(run);
        };
        callbacks.unmapping = [](void *arg, umf_memory_pool_handle_t, const umf_memory_run_t *run) {
            static_cast<Registrar *>(arg)->unmapping(run);
        };
    }

    umf_result_t mapped(const umf_memory_run_t *run) {
        if (answer != OK || (refuse_at && --refuse_at == 0)) {
            return answer != OK ? answer : FULL;
        }
        calls.push_back('m');
        EXPECT_FALSE(has(run->base)) << "registered twice";
        EXPECT_EQ(run_of(run->base).generation, run->generation);
        records[static_cast<char *>(run->base)] = *run;
        return OK;
    }

    void unmapping(const umf_memory_run_t *run) {
        calls.push_back('u');
        char *first = static_cast<char *>(run->base), *end = first + run->size;
        for (auto at = records.begin(); at != records.end();) {
            bool overlaps = at->first < end && at->first + at->second.size > first;
            at = overlaps ? records.erase(at) : std::next(at);
        }
    }

    bool has(const void *ptr) const {
        auto at = records.upper_bound(static_cast<char *>(const_cast<void *>(ptr)));
        if (at == records.begin()) {
            return false;
        }
        --at;
        return static_cast<const char *>(ptr) < at->first + at->second.size;
    }
    bool is_right(const void *ptr) const {
        auto at = records.upper_bound(static_cast<char *>(const_cast<void *>(ptr)));
        return has(ptr) && std::prev(at)->second.generation == run_of(ptr).generation;
    }
};

class Registration : public ::testing::Test {
  protected:
    umf_memory_pool_handle_t pool = nullptr;
    Registrar registrar;

    void make(const char *text) {
        ASSERT_EQ(umfPoolCreateFromText(text, &pool), OK);
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
    }
    char *alloc(size_t size) {
        char *made = static_cast<char *>(umfPoolMalloc(pool, size));
        EXPECT_NE(made, nullptr);
        return made;
    }
    umf_result_t suspend() {
        return umfPoolsSuspend(&pool, 1, nullptr, nullptr);
    }
    umf_result_t resume() {
        return umfPoolsResume(&pool, 1, nullptr, nullptr);
    }
};

} // namespace

TEST_F(Registration, ARunIsTheAllocationOfTheProvider) {
    make("proxy over os");
    char *block = alloc(5 * MiB);
    umf_memory_run_t run = run_of(block + MiB);
    EXPECT_EQ(run.base, block);
    EXPECT_EQ(run.size, 5 * MiB);
    EXPECT_EQ(run.handle, 0u);
    uint64_t first = run.generation;
    EXPECT_EQ(umfFree(block), OK);
    block = alloc(5 * MiB);
    EXPECT_NE(run_of(block).generation, first);
    EXPECT_EQ(umfFree(block), OK);
}

TEST_F(Registration, AGenerationEndsWithThePhysicalMemory) {
    make("disjoint over linux_vmm");
    char *block = alloc(3 * MiB);
    umf_memory_run_t before = run_of(block), while_suspended{};
    EXPECT_LE(before.base, block);
    EXPECT_EQ(run_of(block + 3 * MiB - 1).generation, before.generation);
    ASSERT_EQ(suspend(), OK);
    size_t count = 1;
    EXPECT_EQ(umfGetRuns(block, 1, &while_suspended, &count), FULL);
    EXPECT_EQ(count, 1u);
    ASSERT_EQ(resume(), OK);
    umf_memory_run_t after = run_of(block);
    EXPECT_EQ(after.base, before.base);
    EXPECT_EQ(after.size, before.size);
    EXPECT_GT(after.generation, before.generation);
    EXPECT_EQ(umfFree(block), OK);
}

TEST_F(Registration, RunsOfARangeAreCounted) {
    // Allocations next to each other, in memory of the test.
    constexpr size_t PART = 64 << 10;
    std::vector<char> memory(5 * PART);
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfFixedMemoryProviderParamsCreate(memory.data(), memory.size(), &params), OK);
    ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &provider), OK);
    umfFixedMemoryProviderParamsDestroy(params);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                            &pool),
              OK);
    std::vector<char *> blocks;
    for (int i = 0; i < 4; i++) {
        blocks.push_back(alloc(PART));
    }
    std::sort(blocks.begin(), blocks.end());
    ASSERT_EQ(blocks[3], blocks[0] + 3 * PART);
    size_t count = 0, size = 2 * PART + 2;
    EXPECT_EQ(umfGetRuns(blocks[0] + 100, size, nullptr, &count), OK);
    EXPECT_EQ(count, 3u);
    umf_memory_run_t runs[4] = {};
    count = 2;
    EXPECT_EQ(umfGetRuns(blocks[0] + 100, size, runs, &count), BAD);
    EXPECT_EQ(count, 3u);
    count = 4;
    EXPECT_EQ(umfGetRuns(blocks[0] + 100, size, runs, &count), OK);
    EXPECT_EQ(count, 3u);
    for (size_t i = 0; i < count; i++) {
        EXPECT_EQ(runs[i].base, blocks[i]);
    }
    count = 4;
    EXPECT_EQ(umfGetRuns(blocks[3], PART + 1, runs, &count), BAD) << "beyond the known range";
    EXPECT_EQ(count, 4u);
    for (char *block : blocks) {
        EXPECT_EQ(umfFree(block), OK);
    }
}

TEST_F(Registration, WrongArguments) {
    make("proxy over os");
    char *block = alloc(4096);
    umf_memory_run_t run{};
    size_t count = 1;
    EXPECT_EQ(umfGetRuns(nullptr, 1, &run, &count), BAD);
    EXPECT_EQ(umfGetRuns(block, 0, &run, &count), BAD);
    EXPECT_EQ(umfGetRuns(block, SIZE_MAX, &run, &count), BAD);
    EXPECT_EQ(umfGetRuns(block, 1, &run, nullptr), BAD);
    EXPECT_EQ(umfGetRuns(block, 1, nullptr, &count), BAD);
    EXPECT_EQ(umfGetRuns(&run, 1, &run, &count), BAD);
    umf_dmabuf_t dmabuf = UMF_DMABUF_INIT;
    EXPECT_EQ(umfGetDmabuf(nullptr, 1, &dmabuf), BAD);
    EXPECT_EQ(umfGetDmabuf(block, 0, &dmabuf), BAD);
    EXPECT_EQ(umfGetDmabuf(block, 1, nullptr), BAD);
    EXPECT_EQ(umfGetDmabuf(&run, 1, &dmabuf), BAD);
    EXPECT_EQ(umfGetDmabuf(block, 4096, &dmabuf), NONE) << "memory of the host";
    EXPECT_EQ(dmabuf.fd, -1);
    dmabuf.struct_size = 4;
    EXPECT_EQ(umfGetDmabuf(block, 1, &dmabuf), BAD);
    umf_memory_callbacks_t callbacks = UMF_MEMORY_CALLBACKS_INIT;
    EXPECT_EQ(umfPoolAddMemoryCallback(pool, &callbacks), BAD) << "no function";
    EXPECT_EQ(umfPoolAddMemoryCallback(nullptr, &registrar.callbacks), BAD);
    EXPECT_EQ(umfPoolAddMemoryCallback(pool, nullptr), BAD);
    EXPECT_EQ(umfPoolRemoveMemoryCallback(pool, &registrar.callbacks), BAD) << "not added";
    registrar.callbacks.struct_size = 8;
    EXPECT_EQ(umfPoolAddMemoryCallback(pool, &registrar.callbacks), BAD);
    EXPECT_EQ(umfFree(block), OK);
}

TEST_F(Registration, CardsReachMemoryOfTheHost) {
    make("disjoint over linux_vmm");
    char *block = alloc(MiB);
    umf_memory_properties_handle_t handle = nullptr;
    int value = -1;
    size_t size = 0;
    ASSERT_EQ(umfGetMemoryPropertiesHandle(block, &handle), OK);
    EXPECT_EQ(umfGetMemoryPropertySize(handle, UMF_MEMORY_PROPERTY_RDMA_CAPABLE, &size), OK);
    EXPECT_EQ(size, sizeof(value));
    EXPECT_EQ(umfGetMemoryProperty(handle, UMF_MEMORY_PROPERTY_RDMA_CAPABLE, &value, size), OK);
    EXPECT_EQ(value, 1);
    EXPECT_EQ(umfFree(block), OK);
}

TEST_F(Registration, GrowthAndTrim) {
    for (const char *text : {"disjoint over os", "proxy over os", "proxy over linux_vmm",
                             "coalescing over linux_vmm", "jemalloc over os"}) {
        SCOPED_TRACE(text);
        Registrar own;
        if (umfPoolCreateFromText(text, &pool) != OK) {
            continue; // this build is without
        }
        char *old = alloc(3 * MiB);
        ASSERT_EQ(umfPoolAddMemoryCallback(pool, &own.callbacks), OK);
        EXPECT_TRUE(own.is_right(old)) << "memory that the pool had";
        std::vector<char *> blocks;
        for (int round = 0; round < 3; round++) {
            for (size_t size : {size_t{100}, size_t{5000}, MiB, 9 * MiB}) {
                blocks.push_back(alloc(size));
                EXPECT_TRUE(own.is_right(blocks.back())) << size;
                EXPECT_TRUE(own.is_right(blocks.back() + size - 1)) << size;
            }
            for (char *block : blocks) {
                EXPECT_TRUE(own.is_right(block));
                EXPECT_EQ(umfFree(block), OK);
            }
            blocks.clear();
        }
        EXPECT_EQ(umfFree(old), OK);
        umfPoolTrimMemory(pool, 0);
        ASSERT_EQ(umfPoolDestroy(pool), OK);
        pool = nullptr;
        EXPECT_TRUE(own.records.empty()) << own.records.size() << " stale";
    }
}

TEST_F(Registration, AProxyPoolUsesMemoryAgain) { // spans that are dormant between two uses
    make("proxy over os");
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &registrar.callbacks), OK);
    for (int i = 0; i < 300; i++) {
        char *block = alloc(size_t{4096} << (i % 4));
        ASSERT_TRUE(registrar.is_right(block)) << i;
        ASSERT_EQ(umfFree(block), OK);
        ASSERT_FALSE(registrar.has(block)) << i;
        if (i % 10 == 9) {
            registrar.answer = FULL;
            EXPECT_EQ(umfPoolMalloc(pool, 4096), nullptr) << i;
            registrar.answer = OK;
        }
    }
}

TEST_F(Registration, SuspendAndResume) {
    make("disjoint over linux_vmm");
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &registrar.callbacks), OK);
    char *block = alloc(3 * MiB), *small = alloc(64);
    memset(block, 5, 3 * MiB);
    uint64_t before = run_of(block).generation;
    ASSERT_EQ(suspend(), OK);
    EXPECT_TRUE(registrar.records.empty());
    EXPECT_EQ(umfPoolAddMemoryCallback(pool, &registrar.callbacks), FULL) << "suspended";
    ASSERT_EQ(resume(), OK);
    EXPECT_TRUE(registrar.is_right(block));
    EXPECT_TRUE(registrar.is_right(small));
    EXPECT_GT(run_of(block).generation, before);
    EXPECT_EQ(block[3 * MiB - 1], 5);
    EXPECT_EQ(umfPoolRemoveMemoryCallback(pool, &registrar.callbacks), OK);
    size_t calls = registrar.calls.size();
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(umfFree(small), OK);
    umfPoolTrimMemory(pool, 0);
    EXPECT_EQ(registrar.calls.size(), calls) << "removed";
}

TEST_F(Registration, ARefusalLeavesThePoolSuspended) {
    make("proxy over linux_vmm");
    Registrar second;
    char *blocks[3];
    for (char *&block : blocks) { // a piece of its own each
        block = alloc(64 * MiB);
        block[0] = block[64 * MiB - 1] = 'x';
    }
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &registrar.callbacks), OK);
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &second.callbacks), OK);
    ASSERT_EQ(suspend(), OK);
    for (size_t n : {1, 2, 3}) {
        second.refuse_at = n;
        EXPECT_EQ(resume(), FULL) << n;
        EXPECT_TRUE(registrar.records.empty()) << n;
        EXPECT_TRUE(second.records.empty()) << n;
        umf_residency_t now = UMF_RESIDENCY_INIT;
        EXPECT_EQ(umfPoolGetResidency(pool, &now), OK);
        EXPECT_EQ(now.state, UMF_SUSPEND_STATE_SUSPENDED);
    }
    EXPECT_EQ(umfFree(blocks[1]), OK) << "while it is suspended";
    ASSERT_EQ(resume(), OK);
    for (int i : {0, 2}) {
        EXPECT_TRUE(registrar.is_right(blocks[i]));
        EXPECT_TRUE(second.is_right(blocks[i]));
        EXPECT_EQ(blocks[i][64 * MiB - 1], 'x');
        EXPECT_EQ(umfFree(blocks[i]), OK);
    }
}

// --- arenas: each page at its place is a run
// ------------------------------------------------------

namespace {

const char *const arena = "coalescing:arena=yes,arena_page=64K,arena_size=1G,watermark=0 "
                          "over linux_vmm";
constexpr size_t arena_page = 64 * 1024;

size_t counter(umf_memory_pool_handle_t pool, const char *name) {
    size_t value = SIZE_MAX;
    const std::string path = std::string("umf.pool.by_handle.{}.stats.") + name;
    EXPECT_EQ(umfCtlGet(path.c_str(), &value, sizeof(value), pool), OK) << name;
    return value;
}

bool all_right(const Registrar &registrar, const char *block, size_t size) {
    bool is_right = registrar.is_right(block + size - 1);
    for (size_t at = 0; at < size; at += arena_page) {
        is_right &= registrar.is_right(block + at);
    }
    return is_right;
}

size_t registered(const Registrar &registrar) {
    size_t bytes = 0;
    for (const auto &record : registrar.records) {
        bytes += record.second.size;
    }
    return bytes;
}

} // namespace

// A donated page has no record at its old address before there is one at the new address.
TEST_F(Registration, PagesOfAnArenaMove) {
    make(arena);
    std::vector<char *> blocks(8);
    for (char *&block : blocks) {
        block = alloc(MiB);
    }
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &registrar.callbacks), OK);
    EXPECT_EQ(registered(registrar), 8 * MiB) << "what it has";
    for (size_t i = 0; i < blocks.size(); i += 2) {
        EXPECT_TRUE(all_right(registrar, blocks[i], MiB));
        EXPECT_EQ(umfFree(blocks[i]), OK);
    }
    EXPECT_TRUE(registrar.is_right(blocks[1]));
    char *large = alloc(3 * MiB);
    EXPECT_EQ(counter(pool, "donated_memory"), 3 * MiB);
    EXPECT_TRUE(all_right(registrar, large, 3 * MiB));
    EXPECT_EQ(registered(registrar), 8 * MiB) << "none at two addresses";
    for (size_t i = 1; i < blocks.size(); i += 2) {
        EXPECT_TRUE(all_right(registrar, blocks[i], MiB));
    }
    memset(large, 5, 3 * MiB);
    ASSERT_EQ(suspend(), OK);
    EXPECT_TRUE(registrar.records.empty());
    ASSERT_EQ(resume(), OK);
    EXPECT_TRUE(all_right(registrar, large, 3 * MiB));
    EXPECT_EQ(large[3 * MiB - 1], 5);
    EXPECT_EQ(registered(registrar), counter(pool, "reserved_memory"));
    EXPECT_EQ(umfFree(large), OK);
    ASSERT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(registered(registrar), counter(pool, "reserved_memory"));
    EXPECT_EQ(registered(registrar), 4 * MiB);
    for (size_t i = 1; i < blocks.size(); i += 2) {
        EXPECT_EQ(umfFree(blocks[i]), OK);
    }
    ASSERT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
    EXPECT_TRUE(registrar.records.empty());
}

// Old addresses from before a callback was added are none of its memory: the page there has moved,
// and is known under the new one.
TEST_F(Registration, OldAddressesOfAnArenaAreNotReported) {
    make("coalescing:arena=yes,arena_page=64K,arena_size=1G,watermark=0,donate=trim "
         "over linux_vmm");
    std::vector<char *> blocks(8);
    for (char *&block : blocks) {
        block = alloc(MiB);
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
        EXPECT_EQ(umfFree(blocks[i]), OK);
    }
    char *large = alloc(3 * MiB);
    EXPECT_EQ(counter(pool, "stale_memory"), 3 * MiB);
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &registrar.callbacks), OK);
    registrar.calls.clear();
    ASSERT_EQ(umfPoolTrimMemory(pool, 64 * MiB), OK);
    EXPECT_EQ(counter(pool, "stale_memory"), 0U);
    EXPECT_TRUE(registrar.calls.empty());
    EXPECT_TRUE(all_right(registrar, large, 3 * MiB));
}

// A callback may use queues of its own, of whose end all pools hear.
TEST_F(Registration, ACallbackOfAnArenaMayEndAQueue) {
    int queue = 0;
    umf_memory_callbacks_t callbacks = UMF_MEMORY_CALLBACKS_INIT;
    callbacks.arg = &queue;
    callbacks.mapped = [](void *arg, umf_memory_pool_handle_t, const umf_memory_run_t *) {
        return umfQueueEnds(arg);
    };
    make(arena);
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &callbacks), OK);
    EXPECT_EQ(umfFree(alloc(MiB)), OK);
}

// A page that a callback refuses serves elsewhere later, and those that were called before forget
// it.
TEST_F(Registration, ARefusalEndsTheGrowthOfAnArena) {
    make(arena);
    Registrar second;
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &registrar.callbacks), OK);
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &second.callbacks), OK);
    second.answer = FULL;
    EXPECT_EQ(umfPoolMalloc(pool, MiB), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), FULL);
    EXPECT_TRUE(registrar.records.empty());
    second.answer = OK;
    std::vector<std::pair<char *, size_t>> blocks;
    unsigned random = 1;
    for (size_t i = 0; i < 400; i++) {
        random = random * 1103515245 + 12345;
        const size_t size = arena_page / 2 + (random >> 8) % (8 * arena_page);
        second.refuse_at = i % 5 == 0 ? 1 + i % 7 : 0;
        char *block = static_cast<char *>(umfPoolMalloc(pool, size));
        second.refuse_at = 0;
        if (block) {
            ASSERT_TRUE(all_right(registrar, block, size) && all_right(second, block, size)) << i;
            blocks.push_back({block, size});
        }
        if (blocks.size() > 20) {
            const size_t at = (random >> 4) % blocks.size();
            EXPECT_EQ(umfFree(blocks[at].first), OK);
            blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
        }
        if (i % 50 == 49) {
            umfPoolTrimMemory(pool, MiB);
        }
        const size_t mapped = counter(pool, "reserved_memory") - counter(pool, "spare_memory");
        ASSERT_EQ(registered(registrar), mapped) << i;
        ASSERT_EQ(registered(second), mapped) << i;
    }
    EXPECT_GT(counter(pool, "donated_memory"), MiB);
    ASSERT_EQ(suspend(), OK);
    for (size_t n : {1, 5}) {
        second.refuse_at = n;
        EXPECT_EQ(resume(), FULL) << n;
        EXPECT_TRUE(registrar.records.empty() && second.records.empty()) << n;
    }
    ASSERT_EQ(resume(), OK);
    for (const auto &block : blocks) {
        EXPECT_TRUE(all_right(second, block.first, block.second));
        EXPECT_EQ(umfFree(block.first), OK);
    }
    ASSERT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
    EXPECT_TRUE(registrar.records.empty() && second.records.empty());
}

TEST_F(Registration, ARefusalEndsTheGrowth) {
    make("proxy over linux_vmm");
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &registrar.callbacks), OK);
    registrar.answer = FULL;
    EXPECT_EQ(umfPoolMalloc(pool, MiB), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), FULL);
    registrar.answer = OK;
    char *block = alloc(MiB);
    EXPECT_TRUE(registrar.is_right(block));
    char *more = alloc(70 * MiB); // a piece of its own
    Registrar refuses;
    refuses.answer = NONE;
    EXPECT_EQ(umfPoolAddMemoryCallback(pool, &refuses.callbacks), NONE) << "memory that it has";
    refuses.answer = OK;
    refuses.refuse_at = 2;
    EXPECT_EQ(umfPoolAddMemoryCallback(pool, &refuses.callbacks), FULL);
    EXPECT_TRUE(refuses.records.empty());
    EXPECT_EQ(umfFree(more), OK);
    EXPECT_EQ(umfPoolRemoveMemoryCallback(pool, &refuses.callbacks), BAD);
    EXPECT_EQ(umfFree(block), OK);
}

TEST_F(Registration, PagesOfARegisteredPoolAreNotPurged) {
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    ASSERT_EQ(umfPoolCreate(umfCoalescingPoolOps(), provider, nullptr, 0, &pool), OK);
    char *kept = alloc(20000), *block = alloc(20000), *last = alloc(20000);
    EXPECT_EQ(umfFree(last), OK);
    umfPoolTrimMemory(pool, 0);
    size_t purges = fake.purges;
    EXPECT_GT(purges, 0u) << "without callbacks";
    ASSERT_EQ(umfPoolAddMemoryCallback(pool, &registrar.callbacks), OK);
    EXPECT_EQ(umfFree(block), OK);
    umfPoolTrimMemory(pool, 0);
    EXPECT_EQ(fake.purges, purges);
    EXPECT_TRUE(registrar.is_right(kept));
    EXPECT_EQ(umfFree(kept), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
    EXPECT_TRUE(registrar.records.empty());
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}
