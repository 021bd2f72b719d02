/* Frees by page records (track/page.h): what they find, and all that they must refuse. */
#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/memory_pool_ext.h>
#include <umf/providers/provider_fixed_memory.h>

#include "fakes/current_free.h"
#include "fakes/fake_provider.h"
#include "fakes/kinds.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "cache/depot.h"
#include "pools/shared/starts.h"
#include "system/annotate.h"
#include "track/page.h"
}

namespace {

void publish(uintptr_t addr, uint16_t pool, uint16_t magazine, uint8_t *states) {
    umf_page_record_t record = {};
    record.states = states;
    record.pool = pool;
    record.magazine = magazine;
    umf_page_publish(addr, &record);
}

// The map leads from these addresses to a span of the pool 5 that has page records.
struct Mapped {
    Mapped(uintptr_t at, size_t bytes) : base(at), size(bytes) {
        EXPECT_EQ(umf_map_insert(&umf_map_global, base, size, 0, entry), UMF_RESULT_SUCCESS);
    }
    ~Mapped() {
        umf_map_remove(&umf_map_global, base, size, entry, 0);
    }
    void rename(umf_map_entry_t to) {
        umf_map_rename(&umf_map_global, base, size, entry, to);
        entry = to;
    }
    const uintptr_t base;
    const size_t size;
    umf_map_entry_t entry = umf_map_entry_make(UMF_MAP_ENTRY_PAGED, 5, 0);
};

// The pool of the record; there must be one.
uint32_t pool_at(uintptr_t addr) {
    return __atomic_load_n(&umf_page_record_at(addr)->pool, __ATOMIC_RELAXED);
}

umf_starts_sizes_t sizes;

// The objects of a page become those of another kind: 1 is of 48 B, 2 of 32 B. `page`: an
// umf_starts_t.
void make_starts(void *page, uint32_t kind, uintptr_t addr) {
    static std::atomic<size_t> made;
    umf_lock_t lock;
    umf_lock_init(&lock, UMF_RANK_ARENA);
    umf_starts_pool_t pool = {};
    pool.sizes = &sizes;
    pool.lock = &lock;
    pool.index = 5;
    pool.bins = 2;
    umf_starts_set_size(&sizes, 1, 48);
    umf_starts_set_size(&sizes, 2, 32);
    umf_starts_make(&pool, static_cast<umf_starts_t *>(page), kind, addr, 0, &made);
    umf_lock_destroy(&lock);
}

uint32_t kind_of(const void *page) {
    return __atomic_load_n(&static_cast<const umf_starts_t *>(page)->kind, __ATOMIC_ACQUIRE);
}

bool is_of_kind(uintptr_t addr, uint32_t kind) {
    const umf_page_record_t *record = umf_page_record_at(addr);
    return UMF_PAGE_LOAD(record, pool) == 5 &&
           UMF_PAGE_LOAD(record, magazine) == umf_magazine_offset(kind - 1);
}

constexpr auto OK = UMF_RESULT_SUCCESS;
constexpr auto BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t PAGE = 4096, GIB = size_t{1} << 30;

// Addresses that no test uses as memory.
constexpr uintptr_t FAR = uintptr_t{77} * GIB;

TEST(PageRecord, BelongsToOnePoolAndItsStates) {
    uint8_t states[2] = {};
    umfPoolTrimMemory(nullptr, 0); // the library is started
    publish(FAR, 5, 24, states);   // without a table there is nothing to write to
    if (!umf_page_records_make(FAR, PAGE)) {
        GTEST_SKIP() << "addresses are limited here, or the lookup does not reach them";
    }
    Mapped mapped(FAR, PAGE);
    EXPECT_EQ(pool_at(FAR), 0u);
    publish(FAR + 100, 5, 24, states);
    EXPECT_EQ(pool_at(FAR), 5u);
    EXPECT_EQ(pool_at(FAR + PAGE - 1), 5u);
    EXPECT_EQ(pool_at(FAR + PAGE), 0u);
    umf_page_withdraw(FAR, 6, states);
    umf_page_withdraw(FAR, 5, states + 1);
    EXPECT_EQ(pool_at(FAR), 5u) << "neither was the record's";
    umf_page_withdraw(FAR, 5, states);
    EXPECT_EQ(pool_at(FAR), 0u);
    publish(FAR, 5, 24, states);
    publish(FAR, 5, 0, states);
    EXPECT_EQ(pool_at(FAR), 0u) << "no magazine serves its objects";
    umf_page_withdraw(FAR + GIB, 5, states); // no table
}

TEST(PageRecord, HasAnOwner) {
    uint8_t states[2] = {};
    umfPoolTrimMemory(nullptr, 0);
    if (!umf_page_records_make(FAR, PAGE)) {
        GTEST_SKIP() << "addresses are limited here, or the lookup does not reach them";
    }
    Mapped mapped(FAR, PAGE);
    publish(FAR, umf_page_key(5, 3), 24, states);
    EXPECT_EQ(umf_page_key_pool(uint16_t(pool_at(FAR))), 5u);
    EXPECT_EQ(umf_page_key_owner(uint16_t(pool_at(FAR))), 3u);
    umf_page_adopt(FAR, 6, 4);
    EXPECT_EQ(pool_at(FAR), umf_page_key(5, 3)) << "the record of another pool";
    umf_page_adopt(FAR, 5, 4);
    EXPECT_EQ(pool_at(FAR), umf_page_key(5, 4));
    umf_page_withdraw(FAR, 5, states);
    umf_page_adopt(FAR, 5, 4);
    EXPECT_EQ(pool_at(FAR), 0u) << "it was withdrawn";
    umf_page_adopt(FAR + GIB, 5, 4); // no table
}

TEST(PageRecord, AgreesWithTheMap) {
    uint8_t states[2] = {};
    umfPoolTrimMemory(nullptr, 0);
    if (!umf_page_records_make(FAR, 4 * PAGE)) {
        GTEST_SKIP() << "addresses are limited here, or the lookup does not reach them";
    }
    publish(FAR, 5, 24, states);
    EXPECT_EQ(pool_at(FAR), 0u) << "the map has no span there";
    Mapped mapped(FAR, 4 * PAGE);
    publish(FAR, 6, 24, states);
    EXPECT_EQ(pool_at(FAR), 0u) << "the span is of another pool";
    for (int i = 0; i < 4; i++) {
        publish(FAR + i * PAGE, 5, 24, states);
    }
    umf_page_conceal(FAR + PAGE + 100, PAGE);
    EXPECT_EQ(pool_at(FAR), 5u);
    EXPECT_EQ(pool_at(FAR + PAGE), 0u);
    EXPECT_EQ(pool_at(FAR + 2 * PAGE), 0u) << "its first bytes are in the range";
    EXPECT_EQ(pool_at(FAR + 3 * PAGE), 5u);
    umf_page_adopt(FAR + PAGE, 5, 4);
    EXPECT_EQ(pool_at(FAR + PAGE), 0u);
    mapped.rename(umf_map_entry_make(0, 5, 0));
    umf_page_conceal(FAR, 4 * PAGE);
    publish(FAR, 5, 24, states);
    EXPECT_EQ(pool_at(FAR), 0u) << "a layer sees the frees of the span";
    umf_page_conceal(FAR + GIB, PAGE); // no table
    umf_page_conceal(UINTPTR_MAX - PAGE, PAGE);
}

// Two pages that are read-only: a write to one is a fault, and makes that page writable.
struct Watched {
    uintptr_t record; // the page of the page record
    uintptr_t page;   // that of the kind
    size_t bytes;
    uint32_t kind_at_record, kind; // the kind at the first write of the record; the new kind
    bool is_record_there;          // at the first write of the kind
};
Watched watched;

void on_write(int, siginfo_t *info, void *) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(info->si_addr) & ~(watched.bytes - 1);
    void *written = reinterpret_cast<void *>(at), *page = reinterpret_cast<void *>(watched.page);
    if (at == watched.record) { // what make_slow writes to the other page before is not of interest
        watched.kind_at_record = kind_of(page);
        mprotect(page, watched.bytes, PROT_READ);
    } else if (at == watched.page) {
        watched.is_record_there = is_of_kind(FAR + 16 * PAGE, watched.kind);
    } else {
        signal(SIGSEGV, SIG_DFL); // a fault of its own
        return;
    }
    mprotect(written, watched.bytes, PROT_READ | PROT_WRITE);
}

// Another thread may hand out objects of the page as soon as it sees their kind.
TEST(PageRecord, IsThereBeforeTheKindOfItsObjects) {
    const uintptr_t at = FAR + 16 * PAGE;
    umfPoolTrimMemory(nullptr, 0);
    if (!umf_page_records_make(at, PAGE)) {
        GTEST_SKIP() << "addresses are limited here, or the lookup does not reach them";
    }
    Mapped mapped(at, PAGE);
    watched.bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *page =
        mmap(nullptr, watched.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    watched.page = reinterpret_cast<uintptr_t>(page);
    watched.record = reinterpret_cast<uintptr_t>(umf_page_record_at(at)) & ~(watched.bytes - 1);
    void *record = reinterpret_cast<void *>(watched.record);
    struct sigaction action = {}, before = {};
    action.sa_sigaction = on_write;
    action.sa_flags = SA_SIGINFO;
    ASSERT_EQ(sigaction(SIGSEGV, &action, &before), 0);
    for (uint32_t round = 0; round < 4; round++) {
        watched.kind = 1 + round % 2;
        watched.kind_at_record = watched.kind;
        watched.is_record_there = false;
        ASSERT_EQ(mprotect(record, watched.bytes, PROT_READ), 0);
        make_starts(page, watched.kind, at);
        EXPECT_NE(watched.kind_at_record, watched.kind) << "the kind was visible first";
        EXPECT_TRUE(watched.is_record_there) << "at the first write of the kind";
    }
    sigaction(SIGSEGV, &before, nullptr);
    munmap(page, watched.bytes);
}

TEST(PageRecord, RangesAreMadeAsFarAsTheMapReaches) {
    umfPoolTrimMemory(nullptr, 0);
    if (!umf_page_records_make(FAR + 2 * GIB - PAGE, 2 * PAGE)) {
        GTEST_SKIP() << "addresses are limited here, or the lookup does not reach them";
    }
    EXPECT_EQ(pool_at(FAR + 2 * GIB - PAGE), 0u);
    EXPECT_EQ(pool_at(FAR + 2 * GIB), 0u);
    EXPECT_FALSE(umf_page_records_make(UINTPTR_MAX - 2 * PAGE, PAGE));
}

struct Paged : testing::TestWithParam<PoolKind> {
    void SetUp() override {
        provider = fake.create();
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, 0, &pool), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.mistakes, 0u);
    }
    std::vector<char *> take(umf_memory_pool_handle_t from, size_t size, size_t count) {
        std::vector<char *> all;
        for (size_t i = 0; i < count; i++) {
            all.push_back(static_cast<char *>(umfPoolMalloc(from, size)));
            EXPECT_NE(all.back(), nullptr);
        }
        return all;
    }
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
};

// Every entrance refuses it.
void expect_refused(umf_memory_pool_handle_t pool, char *ptr, const char *why) {
    EXPECT_FALSE(umfPoolTryFree(pool, ptr)) << why;
    EXPECT_EQ(umfPoolFree(pool, ptr), BAD) << why;
    EXPECT_EQ(umfFree(ptr), BAD) << why;
}

TEST_P(Paged, RefusesFreedAndInnerPointers) {
    for (size_t size : {16, 48, 112, 320, 1024, 1792, 2688, 5376, 12288, 100000}) {
        std::vector<char *> all = take(pool, size, 64);
        for (char *p : all) {
            for (size_t inner : {size_t{1}, size_t{8}, size_t{16}, size / 2, size - 1}) {
                if (inner > 0 && inner < size) {
                    expect_refused(pool, p + inner, "inside of an object");
                }
            }
        }
        for (char *p : all) {
            EXPECT_EQ(umfFree(p), OK);
            if (!UMF_IS_ASAN && size <= 1024) {
                memset(p, 0xA5, 16); // a program that goes on writing
            }
            expect_refused(pool, p, "freed by this thread");
        }
        std::thread([&] {
            for (char *p : all) {
                expect_refused(pool, p, "freed by another thread");
            }
        }).join();
    }
}

// The pages get objects of another size, with states of their own.
TEST_P(Paged, RefusesWhatAPageHadBefore) {
    size_t before = 32;
    for (size_t size : {1024, 64, 4032, 128, 12288, 16, 200000, 512}) {
        std::vector<char *> old = take(pool, before, 4096);
        for (char *p : old) {
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
        umfPoolTrimMemory(pool, 0);
        std::vector<char *> now = take(pool, size, 300);
        for (char *p : old) {
            if (std::find(now.begin(), now.end(), p) == now.end()) {
                umf_memory_pool_handle_t owner = nullptr;
                if (umfPoolByPtr(p, &owner) == OK) {
                    expect_refused(pool, p, "an object that was there before");
                }
            }
        }
        for (char *p : now) {
            EXPECT_EQ(umfPoolFree(pool, p), OK) << size;
        }
        before = size;
    }
}

// Memory that goes from pool to pool: records are of the pool that has it.
TEST_P(Paged, FollowsMemoryFromPoolToPool) {
    const size_t room = 32u << 20;
    std::vector<char> memory(room + PAGE);
    auto begin = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(memory.data()) + PAGE - 1) &
                                          ~(PAGE - 1));
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t fixed = nullptr;
    ASSERT_EQ(umfFixedMemoryProviderParamsCreate(begin, room, &params), OK);
    ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &fixed), OK);
    umfFixedMemoryProviderParamsDestroy(params);
    for (int round = 0; round < 4; round++) {
        umf_memory_pool_handle_t first = nullptr, second = nullptr;
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), fixed, nullptr, 0, &first), OK);
        std::vector<char *> old = take(first, 64, 2000);
        for (char *p : old) {
            EXPECT_EQ(umfFree(p), OK);
        }
        if (round % 2) {
            EXPECT_EQ(umfPoolDestroy(first), OK); // or its memory is returned by a trim
            ASSERT_EQ(umfPoolCreate(GetParam().ops(), fixed, nullptr, 0, &first), OK);
        } else {
            umfPoolTrimMemory(first, 0);
        }
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), fixed, nullptr, 0, &second), OK);
        std::vector<char *> now = take(second, 128, 2000);
        for (char *p : now) {
            EXPECT_FALSE(umfPoolTryFree(first, p));
            EXPECT_EQ(umfPoolFree(first, p), BAD);
            EXPECT_EQ(umfFree(p), OK);
            EXPECT_EQ(umfFree(p), BAD);
        }
        EXPECT_EQ(umfPoolDestroy(second), OK);
        EXPECT_EQ(umfPoolDestroy(first), OK);
    }
    EXPECT_EQ(umfMemoryProviderDestroy(fixed), OK);
}

// The first object of a pool inside of an object may have the address of that object.
TEST_P(Paged, InsideOfAnObjectTheInnermostPoolDecides) {
    for (const PoolKind &kind : pool_kinds()) {
        std::vector<char *> beside = take(pool, 65536, 3);
        umf_fixed_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t fixed = nullptr;
        umf_memory_pool_handle_t inner = nullptr;
        char *memory = static_cast<char *>(umfPoolAlignedMalloc(pool, 8u << 20, 2u << 20));
        ASSERT_NE(memory, nullptr);
        ASSERT_EQ(umfFixedMemoryProviderParamsCreate(memory, 8u << 20, &params), OK);
        ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &fixed), OK);
        umfFixedMemoryProviderParamsDestroy(params);
        ASSERT_EQ(umfPoolCreate(kind.ops(), fixed, nullptr, 0, &inner), OK);
        std::vector<char *> all = take(inner, 64, 100); // proxy takes a page for each
        EXPECT_FALSE(umfPoolTryFree(pool, memory)) << kind;
        for (char *p : all) {
            EXPECT_FALSE(umfPoolTryFree(pool, p)) << kind;
            EXPECT_EQ(umfPoolFree(pool, p), BAD) << kind;
        }
        for (char *p : all) {
            EXPECT_EQ(umfFree(p), OK) << kind;
        }
        for (char *p : beside) {
            EXPECT_EQ(umfFree(p), OK) << kind;
        }
        EXPECT_EQ(umfPoolDestroy(inner), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(fixed), OK);
        EXPECT_EQ(umfFree(memory), OK) << kind;
    }
}

// --- frees into the calling thread's current pool, which use records without the map ---

bool has_record(const void *ptr) {
    umf_page_record_t *record;
    return umf_page_record_find(reinterpret_cast<uintptr_t>(ptr), &record) &&
           UMF_PAGE_LOAD(record, pool) != 0;
}

TEST_P(Paged, CurrentPoolRefusesFreedAndInnerPointers) {
    for (size_t size : {16, 48, 320, 1024, 2688, 12288}) {
        std::vector<char *> all = take(pool, size, 64);
        for (char *p : all) {
            for (size_t inner : {size_t{1}, size_t{8}, size_t{16}, size / 2, size - 1}) {
                EXPECT_TRUE(inner == 0 || inner >= size || !current_free(pool, p + inner));
            }
        }
        unsigned freed = 0;
        for (char *p : all) {
            const bool is_done = current_free(pool, p);
            freed += is_done;
            EXPECT_EQ(umfPoolFree(pool, p), is_done ? BAD : OK);
            EXPECT_FALSE(current_free(pool, p));
        }
        EXPECT_TRUE(UMF_IS_ASAN || freed > 0 || !has_record(all[0])) << size;
    }
    for (uintptr_t wild : {uintptr_t{0}, uintptr_t{8}, FAR, ~uintptr_t{15}, uintptr_t{1} << 48}) {
        const bool is_done = current_free(pool, reinterpret_cast<void *>(wild));
        EXPECT_EQ(is_done, wild == 0) << wild; // there is nothing to do for NULL
    }
}

// The record of the page would lead to the object around it.
TEST_P(Paged, CurrentPoolLeavesInnerPoolsAlone) {
    const size_t system_page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *memory = umfPoolAlignedMalloc(pool, 3 * system_page, system_page);
    ASSERT_NE(memory, nullptr);
    if (!has_record(memory)) {
        EXPECT_EQ(umfPoolFree(pool, memory), OK);
        GTEST_SKIP() << "objects of three pages of the system have no records";
    }
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t fixed = nullptr;
    ASSERT_EQ(umfFixedMemoryProviderParamsCreate(memory, 3 * system_page, &params), OK);
    ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &fixed), OK);
    umfFixedMemoryProviderParamsDestroy(params);
    umf_memory_pool_handle_t inner = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), fixed, nullptr, 0, &inner), OK);
    void *first = umfPoolMalloc(inner, 64);
    ASSERT_EQ(first, memory);
    EXPECT_FALSE(current_free(pool, first)) << "it is the inner pool's";
    EXPECT_EQ(umfFree(first), OK);
    EXPECT_EQ(umfPoolDestroy(inner), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(fixed), OK);
    EXPECT_EQ(umfPoolFree(pool, memory), OK);
}

// A pool whose threads own no pages has stacks that a record could be pushed to.
TEST(CurrentPool, WithoutRecordsLeavesOtherPagesAlone) {
    uint8_t states[2] = {UMF_STATE_LIVE, UMF_STATE_LIVE};
    umfPoolTrimMemory(nullptr, 0);
    if (!umf_page_records_make(FAR, PAGE)) {
        GTEST_SKIP() << "addresses are limited here, or the lookup does not reach them";
    }
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &pool), OK);
    EXPECT_EQ(umfPoolFree(pool, umfPoolMalloc(pool, 64)), OK); // the thread has stacks now
    {
        Mapped mapped(FAR, PAGE);
        for (uint32_t bin = 0; bin < 20; bin++) {
            umf_page_record_t record = {};
            record.states = states;
            record.pool = 5;
            record.magazine = umf_magazine_offset(bin);
            record.origin = static_cast<uint32_t>(FAR);
            umf_page_publish(FAR, &record);
            umf_page_conceal(FAR, PAGE);
            EXPECT_FALSE(current_free(pool, reinterpret_cast<void *>(FAR))) << bin;
        }
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// Records are made, withdrawn and read at once.
TEST_P(Paged, ThreadsThatChangeSizesAndTrim) {
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < 4; number++) {
        threads.emplace_back([&, number] {
            uint32_t random = number + 1;
            for (int round = 0; round < 40; round++) {
                std::vector<char *> all;
                for (int i = 0; i < 300; i++) {
                    random = random * 1664525u + 1013904223u;
                    const size_t size = 16u << (random >> 16) % 9;
                    auto p = static_cast<char *>(umfPoolMalloc(pool, size));
                    ASSERT_NE(p, nullptr);
                    memset(p, static_cast<int>(number), size);
                    all.push_back(p);
                }
                for (char *p : all) {
                    ASSERT_EQ(*p, static_cast<char>(number));
                    ASSERT_EQ(umfFree(p), OK);
                }
                if (number == 0) {
                    umfPoolTrimMemory(pool, 0);
                }
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

// --- pages have owners: threads do not mix their objects ---

size_t common(const std::vector<char *> &all, const std::vector<char *> &some) {
    const std::set<char *> set(all.begin(), all.end());
    return size_t(
        std::count_if(some.begin(), some.end(), [&](char *p) { return set.count(p) != 0; }));
}

size_t live(umf_memory_pool_handle_t pool) {
    size_t count = SIZE_MAX;
    EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool),
              OK);
    return count;
}

void free_all(const std::vector<char *> &all) {
    for (char *p : all) {
        EXPECT_EQ(umfFree(p), OK);
    }
}

#define NEEDS_TWO_OWNERS()                                                                         \
    if (umf_depots_index(1) == umf_depots_index(2)) {                                              \
        GTEST_SKIP() << "on one CPU all threads share what they own";                              \
    }

TEST_P(Paged, AThreadKeepsObjectsOfItsOwnPages) {
    NEEDS_TWO_OWNERS();
    OtherThread other;
    std::vector<char *> mine, others, again;
    const std::vector<char *> theirs = take(pool, 64, 1000);
    other([&] {
        mine = take(pool, 64, 1000);
        free_all(mine);
        free_all(theirs);
        again = take(pool, 64, 1000);
    });
    EXPECT_EQ(common(theirs, again), 0u);
    EXPECT_EQ(live(pool), 1000u);
    for (char *p : theirs) {
        if (common(again, {p}) == 0) {
            ASSERT_EQ(umfFree(p), BAD) << "freed already, and in a remote stack or a depot";
            EXPECT_FALSE(umfPoolTryFree(pool, p));
        }
    }
    others = take(pool, 64, 800); // a part is in the stack of the other thread
    EXPECT_GE(common(theirs, others), 700u);
    free_all(others);
    other([&] { free_all(again); });
    EXPECT_EQ(live(pool), 0u);
}

// Larger ones have no owner in a scalable pool, and no remote stacks in a jemalloc pool.
TEST_P(Paged, AThreadKeepsLargeObjectsOfAllPages) {
    NEEDS_TWO_OWNERS();
    const size_t largest = std::string(GetParam().id) == "jemalloc" ? 16384 : 8000;
    for (size_t size : {size_t{2048}, largest, size_t{20480}}) {
        OtherThread other;
        const std::vector<char *> theirs = take(pool, size, 20);
        other([&] {
            free_all(take(pool, size, 1)); // it has a cache
            free_all(theirs);
            const std::vector<char *> again = take(pool, size, 20);
            if (size <= largest) {
                EXPECT_EQ(common(theirs, again), 0u) << size;
            } else {
                EXPECT_GE(common(theirs, again), 1u) << size;
            }
            free_all(again);
        });
        EXPECT_EQ(live(pool), 0u);
    }
}

TEST_P(Paged, RemoteObjectsGoWithATrimAndWithTheirThread) {
    NEEDS_TWO_OWNERS();
    for (bool ends : {false, true}) {
        FakeProvider source;
        umf_memory_provider_handle_t below = source.create();
        umf_memory_pool_handle_t over = nullptr;
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), below, nullptr, 0, &over), OK);
        auto other = std::make_unique<OtherThread>();
        const std::vector<char *> theirs = take(over, 64, 100);
        (*other)([&] {
            free_all(take(over, 64, 1));
            free_all(theirs);
        });
        EXPECT_EQ(live(over), 0u);
        if (ends) {
            other.reset();
            const std::vector<char *> again = take(over, 64, 300);
            EXPECT_EQ(common(theirs, again), 100u);
            free_all(again);
        }
        umfPoolTrimMemory(over, 0);
        EXPECT_EQ(live(over), 0u);
        if (std::string(GetParam().id) == "jemalloc") {
            EXPECT_EQ(source.live(), 0u);
        }
        other.reset();
        EXPECT_EQ(umfPoolDestroy(over), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(below), OK);
    }
}

// A thread with objects of its own. It replaces random ones by others of random sizes, of which
// each octave has as many.
class Replacer {
  public:
    Replacer(umf_memory_pool_handle_t of, unsigned seed) : pool(of), random(seed), slots(1000) {}
    ~Replacer() {
        for (char *slot : slots) {
            EXPECT_EQ(umfFree(slot), OK);
        }
    }
    // Returns how many of the objects that it freed lay in pages of other threads. A thread that
    // had to wait may have lost its cache, and its key with it, so the key is looked up each time.
    size_t replace(size_t n) {
        size_t foreign = 0;
        own = usual_key();
        for (size_t i = 0; i < n; i++) {
            char *&slot = slots[random() % slots.size()];
            if (slot) {
                foreign += is_foreign(slot);
                EXPECT_EQ(umfFree(slot), OK);
            }
            slot = static_cast<char *>(umfPoolMalloc(pool, size_t(exp2(2 + octaves(random)))));
        }
        return foreign;
    }

  private:
    bool is_small(const char *slot) const {
        size_t size = 0;
        umfPoolMallocUsableSize(pool, slot, &size);
        return size <= 1024;
    }
    bool is_foreign(const char *slot) const {
        return is_small(slot) && pool_at(reinterpret_cast<uintptr_t>(slot)) != own;
    }
    // Of the pages of most of its objects.
    uint32_t usual_key() const {
        std::map<uint32_t, size_t> counts;
        for (const char *slot : slots) {
            if (slot && is_small(slot)) {
                counts[pool_at(reinterpret_cast<uintptr_t>(slot))]++;
            }
        }
        const auto most = std::max_element(counts.begin(), counts.end(),
                                           [](auto &a, auto &b) { return a.second < b.second; });
        return most == counts.end() ? 0 : most->first;
    }

    umf_memory_pool_handle_t pool;
    std::mt19937 random;
    std::uniform_real_distribution<> octaves{0, 13};
    std::vector<char *> slots;
    uint32_t own = 0; // the key of the pages of this thread
};

// They share pages at first, as they refill from the same runs. Whether they go on to do so is
// chance, so there are several attempts.
TEST_P(Paged, ThreadsThatFreeOnlyTheirObjectsSoonHavePagesOfTheirOwn) {
    NEEDS_TWO_OWNERS();
    if (UMF_TEST_TSAN) {
        GTEST_SKIP() << "it counts, and has no race that the next test does not have";
    }
    constexpr size_t FREES = 100000;
    for (size_t attempt = 0; attempt < scaled(60); attempt++) {
        FakeProvider source;
        umf_memory_provider_handle_t below = source.create();
        umf_memory_pool_handle_t over = nullptr;
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), below, nullptr, 0, &over), OK);
        std::atomic<size_t> foreign{0};
        std::atomic<int> starting{2};
        run_threads<unsigned>(2, [&](unsigned number) {
            Replacer thread(over, number);
            thread.replace(4 * FREES);
            for (--starting; starting > 0;) {
                std::this_thread::yield();
            }
            thread.replace(FREES); // one that has waited may have got another key
            foreign += thread.replace(FREES);
        });
        EXPECT_LT(foreign, FREES / 50) << "of twice " << FREES;
        EXPECT_EQ(umfPoolDestroy(over), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(below), OK);
    }
}

// Objects pass from thread to thread, and each is there once.
TEST_P(Paged, ThreadsThatFreeEachOthersObjects) {
    constexpr size_t THREADS = 4, SLOTS = 4000;
    std::vector<std::atomic<char *>> slots(SLOTS);
    run_threads<unsigned>(THREADS, [&](unsigned number) {
        std::mt19937 random(number);
        for (size_t i = 0; i < scaled(200000); i++) {
            const size_t size = 16 + random() % 1000;
            auto p = static_cast<char *>(umfPoolMalloc(pool, size));
            ASSERT_NE(p, nullptr);
            memset(p, int(size & 0x7f), size < 16 ? size : 16);
            char *old = slots[random() % SLOTS].exchange(p);
            if (old) {
                ASSERT_EQ(old[0], old[15]) << "it was handed out twice";
                ASSERT_EQ(i % 2 ? umfFree(old) : umfPoolFree(pool, old), OK);
            }
            if (number == 0 && i % 5000 == 0) {
                umfPoolTrimMemory(pool, 0);
            }
        }
    });
    size_t rest = 0;
    for (auto &slot : slots) {
        rest += slot != nullptr;
    }
    EXPECT_EQ(live(pool), rest);
    for (auto &slot : slots) {
        if (slot) {
            EXPECT_EQ(umfFree(slot), OK);
        }
    }
    EXPECT_EQ(live(pool), 0u);
}

std::atomic<long> led_back{0}; // records of memory that a provider got

umf_result_t look_and_free(void *provider, void *ptr, size_t size) {
    for (size_t at = 0; at < size; at += PAGE) {
        led_back += pool_at(reinterpret_cast<uintptr_t>(ptr) + at) != 0;
    }
    return FakeProvider::table().free(provider, ptr, size);
}

// The provider may hand the memory out again at once.
TEST_P(Paged, MemoryThatGoesToTheProviderHasNoRecords) {
    if (std::string(GetParam().id) != "jemalloc") {
        GTEST_SKIP() << "every other object has a record of its own before it is handed out";
    }
    FakeProvider source;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.free = look_and_free;
    umf_memory_provider_handle_t looking = nullptr;
    umf_memory_pool_handle_t over = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &source, &looking), OK);
    ASSERT_EQ(umfPoolCreate(GetParam().ops(), looking, nullptr, 0, &over), OK);
    led_back = 0;
    for (char *p : take(over, 48, 100000)) {
        EXPECT_EQ(umfFree(p), OK);
    }
    EXPECT_EQ(umfPoolTrimMemory(over, 0), OK);
    EXPECT_GT(source.frees, 0U);
    EXPECT_EQ(led_back, 0);
    EXPECT_EQ(umfPoolDestroy(over), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(looking), OK);
}

constexpr size_t LARGE = 64u << 20;
std::map<uintptr_t, size_t> refused; // what a provider does not take back: the first, and a large

umf_result_t refuse_two(void *provider, void *ptr, size_t size) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(ptr);
    if (refused.empty() || (refused.size() == 1 && size >= LARGE) || refused.count(at) != 0) {
        refused[at] = size;
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return FakeProvider::table().free(provider, ptr, size);
}

// Another pool may get the number of the one that ended.
TEST_P(Paged, WhatAProviderRefusesAtTheEndHasNoRecordsAndKeepsNothingElse) {
    FakeProvider source;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.free = refuse_two;
    umf_memory_provider_handle_t refusing = nullptr;
    umf_memory_pool_handle_t over = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &source, &refusing), OK);
    ASSERT_EQ(umfPoolCreate(GetParam().ops(), refusing, nullptr, 0, &over), OK);
    refused.clear();
    take(over, LARGE, 3); // they and the next live
    take(over, 48, 100000);
    ASSERT_GT(source.live(), 2U);
    (void)umfPoolDestroy(over);
    EXPECT_EQ(source.live(), refused.size());
    for (const auto &span : refused) {
        for (size_t at = 0; at < span.second; at += PAGE) {
            ASSERT_EQ(pool_at(span.first + at), 0U) << at << " of " << span.second;
        }
    }
    EXPECT_EQ(umfMemoryProviderDestroy(refusing), OK);
}

std::vector<PoolKind> paged_kinds() {
    std::vector<PoolKind> kinds;
    for (const PoolKind &kind : pool_kinds()) {
        if (std::string(kind.id) == "jemalloc" || std::string(kind.id) == "scalable") {
            kinds.push_back(kind);
        }
    }
    return kinds;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Paged);
INSTANTIATE_TEST_SUITE_P(Pools, Paged, testing::ValuesIn(paged_kinds()),
                         [](const auto &kind) { return std::string(kind.param.id); });

} // namespace
