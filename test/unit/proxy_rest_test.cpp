/* Spans of the proxy pool that rest: over a provider that counts them, by one thread. */
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf/experimental/memory_properties.h>

#include "fakes/ipc_fixture.h"
#include "fakes/log_file.h"
#include "fakes/other_thread.h"
#include "fakes/properties.h"
#include "fakes/resting_provider.h"
#include "fault.h"

extern "C" {
#include "base/meta.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t KiB = 1024, MiB = KiB * KiB;
constexpr size_t PAGE = 4096;
constexpr size_t MOST = 256 * KiB; // of a span that rests

using Base = RestingProvider;

uint64_t id_of(const void *p) {
    return property<uint64_t>(p, UMF_MEMORY_PROPERTY_BUFFER_ID);
}

std::string base_name(const testing::TestParamInfo<RestingProvider::Base> &test) {
    return test.param == Base::OS ? "os" : "fake";
}

class ProxyRest : public testing::TestWithParam<RestingProvider::Base>, protected PoolThatRests {
  protected:
    void SetUp() override {
        open(GetParam());
    }
    void TearDown() override {
        umf_os_set_fault(nullptr);
        close();
    }
    void *rest(size_t size) {
        void *p = alloc(size);
        free(p);
        return p;
    }
    // Everything in between came from what rests.
    struct Untouched {
        RestingProvider &source;
        size_t calls = source.calls();
        ~Untouched() {
            EXPECT_EQ(source.calls(), calls);
        }
    };
};

INSTANTIATE_TEST_SUITE_P(Over, ProxyRest, testing::Values(Base::OS, Base::FAKE), base_name);

TEST_P(ProxyRest, TheFirstFreesGoToTheProvider) {
    EXPECT_EQ(source->questions, 1u) << "whether it counts";
    for (size_t i = 1; i <= OFTEN; i++) {
        free(alloc(PAGE));
        EXPECT_EQ(source->allocs, i);
        EXPECT_EQ(source->frees, i);
        EXPECT_EQ(source->rests, 0u);
    }
    void *p = alloc(PAGE);
    EXPECT_EQ(source->allocs, OFTEN + 1);
    for (size_t i = 0; i < 1000; i++) {
        free(p);
        EXPECT_EQ(source->rests, i + 1);
        EXPECT_EQ(source->wakes, i);
        ASSERT_EQ(alloc(PAGE), p);
    }
    free(p);
    EXPECT_EQ(source->allocs, OFTEN + 1);
    EXPECT_EQ(source->frees, OFTEN);
    EXPECT_EQ(source->held(), 1u);
    EXPECT_EQ(source->requested, 0u);
    EXPECT_EQ(source->questions, 1u);
}

TEST_P(ProxyRest, ManyAtOnce) {
    warm_up();
    free_all(alloc_all(1000, PAGE));
    EXPECT_EQ(source->held(), 1000u);
    Untouched check{*source};
    for (int i = 0; i < 3; i++) {
        auto list = alloc_all(1000, PAGE);
        EXPECT_EQ(std::set<void *>(list.begin(), list.end()).size(), 1000u);
        EXPECT_EQ(count(), 1000u);
        EXPECT_EQ(source->requested, 1000 * PAGE);
        free_all(list);
        EXPECT_EQ(count(), 0u);
        EXPECT_EQ(source->requested, 0u);
    }
}

// The answer is that of the interface; the memory goes back all the same.
TEST_P(ProxyRest, TrimGivesBackWhatRests) {
    warm_up();
    void *live = alloc(PAGE);
    for (size_t size : {PAGE, 5 * PAGE, MOST}) {
        free_all(alloc_all(10, size));
    }
    EXPECT_GE(source->held(), 31u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(source->held(), 1u);
    free(live);
    EXPECT_EQ(alloc(PAGE), live) << "the pool rests again";
    free(live);
}

TEST_P(ProxyRest, AlsoWithoutTracking) {
    close();
    open(GetParam(), Base::COUNTS, UMF_POOL_CREATE_FLAG_DISABLE_TRACKING);
    warm_up();
    void *p = rest(PAGE);
    Untouched check{*source};
    EXPECT_EQ(umfPoolFree(pool, p), BAD);
    EXPECT_EQ(alloc(PAGE), p);
    free(p);
}

// --- who never rests ---

TEST(ProxyRests, NotWhereTheProviderCannotCount) {
    struct Never : PoolThatRests {
        Never(RestingProvider::Base base, RestingProvider::Count count, size_t questions) {
            open(base, count);
            for (size_t i = 1; i <= 3 * OFTEN; i++) {
                free(alloc(PAGE));
                EXPECT_EQ(source->allocs, i);
                EXPECT_EQ(source->frees, i);
            }
            EXPECT_EQ(source->questions, questions);
            EXPECT_EQ(source->rests, 0u);
            EXPECT_EQ(source->wakes, 0u);
            close();
        }
    };
    for (auto base : {Base::OS, Base::FAKE}) {
        Never(base, Base::ABSENT, 0);
        Never(base, Base::REFUSES, 1);
    }
    Never(Base::OS_SHARED, Base::COUNTS, 1);
}

// --- whose they are ---

TEST_P(ProxyRest, WhatRestsIsNobodys) {
    warm_up();
    auto p = static_cast<char *>(alloc(1000));
    umf_memory_properties_handle_t before = properties_of(p), after = nullptr;
    free(p);
    {
        Untouched check{*source};
        LogFile log;
        OtherThread other;
        auto refused = [&] {
            EXPECT_EQ(umfFree(p), BAD);
            EXPECT_EQ(umfPoolFree(pool, p), BAD);
            EXPECT_EQ(umfPoolFree(pool, p + 1), BAD);
        };
        refused();
        refused();
        other(refused);
        EXPECT_EQ(log.count("no pool has"), 3u) << log.text();
        EXPECT_EQ(log.count("but to none:"), 6u);
        for (char *at : {p, p + 1, p + 999, p + PAGE - 1}) {
            EXPECT_EQ(pool_of(at), nullptr);
            EXPECT_EQ(umfGetMemoryPropertiesHandle(at, &after), BAD);
        }
        size_t size = 0;
        EXPECT_EQ(umfGetMemoryPropertySize(before, UMF_MEMORY_PROPERTY_BASE_SIZE, &size), BAD);
        EXPECT_EQ(umfGetMemoryProperty(before, UMF_MEMORY_PROPERTY_BASE_SIZE, &size, sizeof(size)),
                  BAD);
        EXPECT_EQ(after, nullptr);
    }
    EXPECT_EQ(source->rests, 1u);
    EXPECT_EQ(source->requested, 0u);
    EXPECT_EQ(count(), 0u);
    EXPECT_EQ(alloc(1000), p);
    EXPECT_NE(alloc(1000), p) << "it rested once";
}

TEST_P(ProxyRest, WokenWithAnotherSize) {
    warm_up();
    auto p = static_cast<char *>(rest(100));
    std::set<uint64_t> ids;
    Untouched check{*source};
    for (size_t size : {4000, 1, 4096, 100, 4095, 4096, 1}) {
        ASSERT_EQ(alloc(size), p);
        EXPECT_EQ(property<void *>(p, UMF_MEMORY_PROPERTY_BASE_ADDRESS), p);
        EXPECT_EQ(property<size_t>(p + size - 1, UMF_MEMORY_PROPERTY_BASE_SIZE), size);
        EXPECT_EQ(property<umf_memory_pool_handle_t>(p, UMF_MEMORY_PROPERTY_POOL_HANDLE), pool);
        EXPECT_EQ(property<umf_memory_provider_handle_t>(p, UMF_MEMORY_PROPERTY_PROVIDER_HANDLE),
                  provider);
        EXPECT_TRUE(ids.insert(id_of(p)).second);
        EXPECT_EQ(*ids.rbegin(), id_of(p)) << "they grow";
        EXPECT_EQ(pool_of(p + size - 1), pool);
        EXPECT_EQ(pool_of(p + size), nullptr);
        EXPECT_EQ(pool_of(p - 1), nullptr);
        EXPECT_EQ(source->requested, size);
        EXPECT_EQ(count(), 1u);
        memset(p, 'x', size);
        EXPECT_EQ(umfPoolFree(pool, p + size - 1), size == 1 ? OK : BAD);
        if (size != 1) {
            EXPECT_EQ(umfFree(p), OK);
        }
    }
}

TEST_P(ProxyRest, OnlyTheSamePagesServe) {
    warm_up();
    for (size_t pages : {1, 2, 3, 15, 16, 17, 63, 64}) {
        void *p = rest(pages * PAGE);
        {
            Untouched check{*source};
            for (size_t size : {pages * PAGE, (pages - 1) * PAGE + 1}) {
                EXPECT_EQ(alloc(size), p) << size;
                free(p);
            }
        }
        size_t allocs = source->allocs, frees = source->frees;
        void *more = alloc(pages * PAGE + 1), *less = pages > 1 ? alloc((pages - 1) * PAGE) : p;
        EXPECT_NE(more, p) << pages;
        EXPECT_EQ(source->allocs, allocs + (pages > 1 ? 2 : 1)) << pages;
        EXPECT_EQ(source->frees, frees);
        EXPECT_EQ(alloc(pages * PAGE), p);
        // Nothing is left to those that come next.
        close();
        EXPECT_EQ(pool_of(less), nullptr);
        open(GetParam());
        warm_up();
    }
}

TEST_P(ProxyRest, LargeOnesDoNot) {
    warm_up();
    for (size_t size : {MOST + 1, MOST + PAGE, MiB, 16 * MiB}) {
        size_t frees = source->frees;
        free(alloc(size));
        EXPECT_EQ(source->frees, frees + 1) << size;
    }
    EXPECT_EQ(source->rests, 0u);
    void *p = rest(MOST);
    EXPECT_EQ(source->rests, 1u);
    EXPECT_EQ(alloc(MOST), p);
}

TEST_P(ProxyRest, SizeZeroIsTheProviders) {
    warm_up();
    rest(1), rest(MOST);
    size_t allocs = source->allocs, rests = source->rests;
    void *p = umfPoolMalloc(pool, 0);
    EXPECT_GT(source->allocs, allocs);
    if (GetParam() == Base::OS) {
        EXPECT_EQ(p, nullptr);
        EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        return;
    }
    EXPECT_EQ(pool_of(p), pool);
    free(p);
    EXPECT_EQ(source->rests, rests);
}

TEST_P(ProxyRest, AlignmentsUpToAPageAreServed) {
    warm_up();
    void *p = rest(1000);
    for (size_t alignment : {0, 1, 8, 64, 4096}) {
        Untouched check{*source};
        EXPECT_EQ(alloc(1000, alignment), p);
        free(p);
    }
    for (size_t alignment : {2 * PAGE, 64 * KiB, 2 * MiB, 4 * MiB}) {
        size_t allocs = source->allocs;
        void *aligned = alloc(1000, alignment);
        EXPECT_EQ(source->allocs, allocs + 1) << alignment;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % alignment, 0u);
        free(aligned);
        EXPECT_EQ(alloc(1000), aligned) << "then it serves all";
        EXPECT_EQ(alloc(1000), p);
        free(p);
    }
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 1000, 3), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), BAD) << "the provider is not called";
}

// --- going back ---

TEST_P(ProxyRest, DestroyGivesAllBack) {
    for (bool has_depots : {false, true}) {
        OtherThread other;
        warm_up();
        std::vector<void *> list = alloc_all(has_depots ? 1500 : 50, 4000), live;
        auto mine = list, large = alloc_all(has_depots ? 30 : 2, MOST);
        std::vector<void *> others(mine.begin() + static_cast<long>(mine.size() / 2), mine.end());
        mine.resize(mine.size() / 2);
        free_all(mine);
        other([&] { free_all(others), free_all(large); });
        live = alloc_all(3, 5000);
        live.push_back(alloc(4000)); // woken
        EXPECT_EQ(count(), 4u);
        EXPECT_EQ(source->frees, OFTEN);
        close();
        for (auto &one : {list, large, live}) {
            for (void *p : one) {
                EXPECT_EQ(pool_of(p), nullptr);
            }
        }
        open(GetParam());
        other([&] { free(alloc(4000)), free(alloc(MOST)); });
        EXPECT_EQ(source->allocs, 2u) << "nothing of the old pool is there";
        EXPECT_EQ(source->frees, 2u);
        close();
        open(GetParam());
    }
}

TEST_P(ProxyRest, NoMetadataIsLost) {
    size_t used = 0;
    OtherThread other;
    for (int round = 0; round < 4; round++) {
        close();
        used = round == 2 ? umf_meta_used() : used;
        open(GetParam());
        warm_up();
        auto list = alloc_all(500, PAGE);
        other([&] { free_all(list); });
        free_all(alloc_all(500, PAGE));
    }
    close();
    EXPECT_EQ(umf_meta_used(), used);
}

// A thread may end while a pool that it has used is being destroyed.
TEST_P(ProxyRest, AThreadEndsDuringDestroy) {
    auto other = std::make_unique<OtherThread>();
    warm_up();
    auto list = alloc_all(20, PAGE);
    (*other)([&] { free_all(list); });
    source->on_free = [&] {
        if (other) {
            fault::Nth nth("meta_alloc"); // it finds no room in depots
            nth.next();
            other.reset();
        }
    };
    close();
    EXPECT_EQ(other, nullptr);
}

TEST_P(ProxyRest, WhatRestsGoesBeforeAnAllocationFails) {
    constexpr size_t LIMIT = 4 * MiB;
    warm_up();
    source->limit = LIMIT;
    for (size_t resting : {PAGE, 64 * KiB, MOST}) {
        for (size_t wanted : {PAGE, 8 * KiB, 64 * KiB, MOST, MiB, LIMIT}) {
            free_all(alloc_all(LIMIT / resting, resting));
            EXPECT_EQ(source->held_bytes(), LIMIT) << "it rests";
            std::vector<void *> list = alloc_all(LIMIT / wanted, wanted);
            EXPECT_EQ(source->requested, LIMIT);
            size_t frees = source->frees;
            EXPECT_EQ(umfPoolMalloc(pool, wanted), nullptr);
            EXPECT_EQ(umfPoolGetLastAllocationError(pool), source->failure);
            umf_memory_provider_handle_t failed = nullptr;
            EXPECT_EQ(umfGetLastFailedMemoryProvider(&failed), OK);
            EXPECT_EQ(failed, provider);
            EXPECT_EQ(source->frees, frees);
            EXPECT_EQ(source->requested, LIMIT);
            EXPECT_EQ(count(), LIMIT / wanted);
            free(list.back());
            list.back() = alloc(wanted);
            EXPECT_EQ(umfPoolGetLastAllocationError(pool), OK);
            free_all(list);
        }
    }
    source->limit = SIZE_MAX;
    source->alloc_fails = true;
    EXPECT_EQ(umfPoolMalloc(pool, MOST + 1), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), source->failure);
    EXPECT_EQ(source->held(), 0u) << "all was given back";
    source->alloc_fails = false;
}

TEST_P(ProxyRest, WithoutMetadataNothingIsLost) {
    for (fault::Nth nth("meta_alloc"); nth.next();) {
        nth.off();
        close();
        open(GetParam());
        warm_up();
        void *whole = rest(PAGE);
        free_all(alloc_all(100, 8 * KiB));
        umf_os_set_fault(fault::hook);
        std::vector<void *> list;
        for (size_t size : {100, 5000, 5001, 8192, 200, 4096}) {
            if (void *p = umfPoolMalloc(pool, size)) {
                list.push_back(p);
            } else {
                EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
            }
        }
        EXPECT_GE(list.size(), 5u);
        EXPECT_EQ(count(), list.size());
        OtherThread()([&] { free_all(list); });
        nth.off();
        EXPECT_EQ(count(), 0u);
        EXPECT_EQ(source->requested, 0u);
        EXPECT_EQ(pool_of(whole), nullptr);
    }
}

// A span that cannot be woken goes back, and what it was for fails.
TEST_P(ProxyRest, WithoutMetadataNoneIsWoken) {
    constexpr size_t COUNT = 3000;
    warm_up();
    free_all(alloc_all(COUNT, 8 * KiB));
    umf_os_set_fault([](const char *call) { return strcmp(call, "meta_alloc") == 0 ? ENOMEM : 0; });
    std::vector<void *> list;
    while (void *p = list.size() < COUNT ? umfPoolMalloc(pool, 5000) : nullptr) {
        list.push_back(p);
    }
    umf_os_set_fault(nullptr);
    EXPECT_LT(list.size(), COUNT) << "each needs a list for its last page";
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(count(), list.size());
    EXPECT_EQ(source->requested, list.size() * 5000);
    EXPECT_EQ(source->held(), list.size()) << "all others went back";
    free_all(list);
    EXPECT_EQ(count(), 0u);
    EXPECT_EQ(source->requested, 0u);
}

// --- nested ---

// Ids of spans show whether the one around is still the same; threads have ids of their own.
TEST_P(ProxyRest, AroundMemoryThatGoesIsTheOuterPool) {
    for (bool rests : {false, true}) {
        OtherThread first;
        uint64_t early = 0;
        do {
            first([&] { early = id_of(alloc(PAGE)); });
        } while ((early - 1) % 64 > 30); // it has more of them
        char *outer = nullptr;
        OtherThread()([&] { outer = static_cast<char *>(alloc(2 * MiB)); });
        const uint64_t around = id_of(outer);
        EXPECT_GT(around, early + 60);

        RestingProvider inner(Base::FIXED, rests ? Base::COUNTS : Base::ABSENT);
        inner.range = outer;
        inner.range_size = 2 * MiB;
        umf_memory_provider_handle_t fixed = inner.create();
        umf_memory_pool_handle_t inside = nullptr;
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), fixed, nullptr, 0, &inside), OK);
        const size_t sizes[] = {PAGE, 100, 64 * KiB, 10000};
        if (rests) { // a thread that has ended leaves some that rest
            OtherThread()([&] {
                for (size_t i = 0; i <= OFTEN; i++) {
                    for (size_t size : sizes) {
                        EXPECT_EQ(umfPoolFree(inside, umfPoolMalloc(inside, size)), OK);
                    }
                }
            });
            EXPECT_GT(inner.rests, 0u);
        }
        size_t wakes = inner.wakes;
        first([&] {
            for (size_t size : sizes) {
                auto p = static_cast<char *>(umfPoolMalloc(inside, size));
                ASSERT_NE(p, nullptr);
                EXPECT_GT(id_of(p), around);
                EXPECT_EQ(pool_of(p), inside);
                EXPECT_EQ(pool_of(p + size - 1), inside);
                EXPECT_EQ(umfPoolFree(inside, p), OK);
                for (char *at : {p, p + size - 1, p + size}) {
                    EXPECT_EQ(pool_of(at), pool) << size;
                }
                EXPECT_EQ(id_of(p), around);
            }
        });
        EXPECT_EQ(inner.wakes > wakes, rests);
        EXPECT_EQ(umfPoolDestroy(inside), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(fixed), OK);
        EXPECT_EQ(inner.held(), 0u);
        EXPECT_EQ(inner.requested, 0u);
        EXPECT_EQ(inner.mistakes, 0u);
        EXPECT_EQ(pool_of(outer), pool);
        EXPECT_EQ(pool_of(outer + 2 * MiB - 1), pool);
    }
}

// --- IPC ---

const umf_memory_provider_ops_t *ipc_ops() {
    static const umf_memory_provider_ops_t table = *FakeIpc::ops();
    static const umf_memory_provider_ext_ops_t ext = [] {
        umf_memory_provider_ext_ops_t made = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
        made.reuse_alloc = table.alloc;
        made.reuse_free = table.free;
        made.reuse_drop = [](void *, int) { return OK; };
        made.reuse_count = [](void *, size_t, int) { return OK; };
        return made;
    }();
    static const umf_memory_provider_descriptor_t descriptor =
        plain_kind("resting_ipc", &table, &ext);
    static const umf_result_t registered = umfRegisterProvider(&descriptor);
    EXPECT_EQ(registered, OK);
    return &table;
}

TEST(ProxyRests, HandlesArePutWhenTheirMemoryBeginsToRest) {
    FakePool p(ipc_ops());
    for (int i = 0; i < 64; i++) {
        p.free(p.alloc());
    }
    char *ptr = p.alloc();
    std::set<uint64_t> ids;
    for (int i = 1; i <= 5; i++) {
        EXPECT_TRUE(ids.insert(decoded(handle_of(ptr)).export_id).second) << "another piece";
        handle_of(ptr);
        EXPECT_EQ(p.fake.gets, i);
        EXPECT_EQ(p.fake.puts, i - 1);
        p.free(ptr);
        EXPECT_EQ(p.fake.puts, i);
        umf_ipc_handle_t none = nullptr;
        size_t size = 0;
        EXPECT_EQ(umfGetIPCHandle(ptr, &none, &size), BAD);
        EXPECT_EQ(p.fake.gets, i);
        EXPECT_EQ(p.alloc(), ptr);
    }
    EXPECT_EQ(p.fake.allocs, 65);
    EXPECT_EQ(p.fake.frees, 64);
    handle_of(ptr);
    p.destroy_pool();
    EXPECT_EQ(p.fake.puts, 6);
    EXPECT_EQ(p.fake.frees, 65);
}

} // namespace
