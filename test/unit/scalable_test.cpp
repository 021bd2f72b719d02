/* The scalable pool: what its header promises. */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_scalable.h>
#include <umf/reason.h>
#include <umf/text.h>

#include "fakes/child.h"
#include "fakes/decay_period.h"
#include "fakes/fake_provider.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "base/meta.h"
#include "system/os.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr umf_result_t NO_MEMORY = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
constexpr umf_result_t UNKNOWN = UMF_RESULT_ERROR_UNKNOWN;
constexpr size_t MiB = size_t{1} << 20;

// What stderr gets in the log while `work` runs.
template <typename F> std::string log_of(F &&work) {
    char to[] = "stderr";
    int warning = 2, fatal = 4;
    EXPECT_EQ(umfCtlSet("umf.logger.level", &warning, sizeof(warning)), OK);
    EXPECT_EQ(umfCtlSet("umf.logger.output", to, sizeof(to)), OK);
    testing::internal::CaptureStderr();
    work();
    umfCtlSet("umf.logger.level", &fatal, sizeof(fatal));
    return testing::internal::GetCapturedStderr();
}

// Where oneTBB is not installed everything here is skipped. Looked at in a child: nothing in this
// process may load it before the tests below.
class HasOneTbb : public testing::Environment {
    void SetUp() override {
        if (exit_of_child([] { return dlopen("libtbbmalloc.so.2", RTLD_LAZY) ? 0 : 1; }) != 0) {
            GTEST_SKIP() << "libtbbmalloc.so.2 is not installed";
        }
    }
};
testing::Environment *const has_one_tbb = testing::AddGlobalTestEnvironment(new HasOneTbb);

// --- the library is missing: first, before anything in this process has loaded it ---

const char *failing_call;

int fail_call(const char *call) {
    return strcmp(call, failing_call) == 0 ? ENOENT : 0;
}

class Missing : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();

    void SetUp() override {
        umf_memory_pool_handle_t pool = nullptr;
        failing_call = "dl_open";
        umf_os_set_fault(fail_call);
        if (umfPoolCreate(umfScalablePoolOps(), provider, nullptr, 0, &pool) == OK) {
            umfPoolDestroy(pool);
            GTEST_SKIP() << "another test has loaded the library already";
        }
    }
    void TearDown() override {
        umf_os_set_fault(nullptr);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    // Without the library, then without a symbol.
    template <typename F> void each(F &&test) {
        for (const char *call : {"dl_open", "dl_symbol"}) {
            SCOPED_TRACE(call);
            failing_call = call;
            umf_os_set_fault(fail_call);
            test();
            umf_os_set_fault(nullptr);
        }
    }
};

TEST_F(Missing, CreationSaysWhatToInstall) {
    EXPECT_NE(umfScalablePoolOps(), nullptr);
    each([&] {
        umf_memory_pool_handle_t pool = nullptr;
        std::string log = log_of([&] {
            EXPECT_EQ(umfPoolCreate(umfScalablePoolOps(), provider, nullptr, 0, &pool),
                      UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
        });
        EXPECT_EQ(pool, nullptr);
        EXPECT_NE(log.find("libtbbmalloc.so.2"), std::string::npos) << log;
        EXPECT_NE(log.find("package libtbbmalloc2"), std::string::npos) << log;
    });
}

TEST_F(Missing, CreationFromTextSaysIt) {
    each([] {
        umf_memory_pool_handle_t pool = nullptr;
        EXPECT_EQ(umfPoolCreateFromText("scalable over os", &pool),
                  UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    });
}

TEST_F(Missing, TheListOfKindsSaysIt) {
    std::string reason;
    umf_kind_visitor_t visitor = [](const char *name, int available, const char *why, void *arg) {
        if (strcmp(name, "scalable") == 0) {
            *static_cast<std::string *>(arg) = available ? "available" : why;
        }
        return 0;
    };
    each([&] {
        EXPECT_EQ(umfPoolKinds(visitor, &reason), OK);
        EXPECT_NE(reason.find("package libtbbmalloc2"), std::string::npos) << reason;
    });
    EXPECT_EQ(umfPoolKinds(visitor, &reason), OK);
    EXPECT_EQ(reason, "available");
}

// --- parameters and table ---

TEST(ScalableParams, ArgumentsAreChecked) {
    umf_scalable_pool_params_handle_t params = nullptr;
    EXPECT_EQ(umfScalablePoolParamsCreate(nullptr), BAD);
    EXPECT_EQ(umfScalablePoolParamsDestroy(nullptr), BAD);
    ASSERT_EQ(umfScalablePoolParamsCreate(&params), OK);
    EXPECT_EQ(umfScalablePoolParamsSetGranularity(params, 0), BAD);
    EXPECT_EQ(umfScalablePoolParamsSetGranularity(params, 1), OK);
    EXPECT_EQ(umfScalablePoolParamsSetKeepAllMemory(params, false), OK);
    EXPECT_EQ(umfScalablePoolParamsSetName(params, nullptr), BAD);
    EXPECT_EQ(umfScalablePoolParamsDestroy(params), OK);
}

TEST(ScalableParams, Table) {
    const umf_memory_pool_ops_t *ops = umfScalablePoolOps();
    ASSERT_NE(ops, nullptr);
    EXPECT_EQ(ops->version, UMF_POOL_OPS_VERSION_CURRENT);
    const char *name = nullptr;
    EXPECT_EQ(ops->get_name(nullptr, &name), OK);
    EXPECT_STREQ(name, "scalable");
    EXPECT_EQ(ops->get_name(nullptr, nullptr), BAD);
    void *pool = nullptr;
    EXPECT_EQ(ops->initialize(nullptr, nullptr, &pool), BAD);
}

class Scalable : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    umf_scalable_pool_params_handle_t params = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        ASSERT_EQ(umfScalablePoolParamsCreate(&params), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfScalablePoolParamsDestroy(params), OK);
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.mistakes, 0u);
    }
    umf_result_t create(umf_pool_create_flags_t flags = 0) {
        return umfPoolCreate(umfScalablePoolOps(), provider, params, flags, &pool);
    }
    char *alloc(size_t size) {
        void *ptr = umfPoolMalloc(pool, size);
        EXPECT_NE(ptr, nullptr) << size;
        return static_cast<char *>(ptr);
    }
    umf_result_t last_error() {
        return umfPoolGetLastAllocationError(pool);
    }
};

TEST_F(Scalable, NameIsCopiedAndCut) {
    std::string name(100, 'n');
    ASSERT_EQ(umfScalablePoolParamsSetName(params, name.c_str()), OK);
    ASSERT_EQ(create(), OK);
    ASSERT_EQ(umfScalablePoolParamsSetName(params, "other"), OK);
    const char *seen = nullptr;
    ASSERT_EQ(umfPoolGetName(pool, &seen), OK);
    EXPECT_EQ(seen, name.substr(0, 63));
}

TEST_F(Scalable, FromText) {
    ASSERT_EQ(umfPoolCreateFromText("scalable:granularity=4M,keep_all_memory=yes,name=mine over os",
                                    &pool),
              OK);
    const char *name = nullptr;
    ASSERT_EQ(umfPoolGetName(pool, &name), OK);
    EXPECT_STREQ(name, "mine");
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), NONE) << "keep_all_memory";
    EXPECT_EQ(umfPoolFree(pool, alloc(64)), OK);
    umf_memory_pool_handle_t none = nullptr;
    EXPECT_EQ(umfPoolCreateFromText("scalable:granularity=0 over os", &none), BAD);
    EXPECT_EQ(umfPoolCreateFromText("scalable:keep_all_memory=2 over os", &none), BAD);
}

// --- requests to the provider ---

TEST_F(Scalable, NothingIsTakenBeforeTheFirstAllocation) {
    ASSERT_EQ(create(), OK);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.allocs, 0u);
}

class Granularity : public Scalable, public testing::WithParamInterface<size_t> {};

TEST_P(Granularity, SmallAllocationsRequestIt) {
    ASSERT_EQ(umfScalablePoolParamsSetGranularity(params, GetParam()), OK);
    ASSERT_EQ(create(), OK);
    for (size_t i = 0; i < scaled(20000); i++) {
        size_t before = fake.allocs, size = 1 + i % 8000;
        ASSERT_NE(alloc(size), nullptr);
        if (fake.allocs != before) {
            ASSERT_EQ(fake.last_size, GetParam()) << size;
            ASSERT_EQ(fake.last_alignment, 0u);
        }
    }
    EXPECT_GT(fake.allocs, 0u);
}

TEST_P(Granularity, LargeAllocationsRequestMultiples) {
    ASSERT_EQ(umfScalablePoolParamsSetGranularity(params, GetParam()), OK);
    ASSERT_EQ(create(), OK);
    alloc(20 * MiB)[20 * MiB - 1] = 1;
    EXPECT_GT(fake.last_size, 20 * MiB);
    EXPECT_EQ(fake.last_size % GetParam(), 0u);
    EXPECT_EQ(fake.last_alignment, 0u);
}

INSTANTIATE_TEST_SUITE_P(MiB, Granularity, testing::Values(2 * MiB, 3 * MiB, 4 * MiB, 5 * MiB),
                         [](const auto &test) { return std::to_string(test.param / MiB); });

// oneTBB uses 1 or 2 MiB of a region for them, however large the region is.
TEST_P(Granularity, LargeObjectsFillTheirRegions) {
    ASSERT_EQ(umfScalablePoolParamsSetGranularity(params, GetParam()), OK);
    ASSERT_EQ(create(), OK);
    for (size_t size : {24 << 10, 300 << 10}) {
        size_t before = fake.live_bytes();
        for (size_t i = 0; i < 96 * MiB / size; i++) {
            alloc(size - 256);
        }
        EXPECT_LE(fake.live_bytes() - before, 128 * MiB) << size;
    }
}

TEST_F(Scalable, OddGranularities) {
    for (size_t granularity : {size_t{1}, size_t{4097}, size_t{100000}, 7 * MiB + 3}) {
        ASSERT_EQ(umfScalablePoolParamsSetGranularity(params, granularity), OK);
        ASSERT_EQ(create(), OK);
        for (size_t size : {size_t{1}, size_t{100}, size_t{9000}, 3 * MiB}) {
            memset(alloc(size), 1, size);
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        pool = nullptr;
    }
    for (size_t granularity : {SIZE_MAX, SIZE_MAX / 4 + 1}) {
        ASSERT_EQ(umfScalablePoolParamsSetGranularity(params, granularity), OK);
        EXPECT_EQ(create(), BAD);
    }
    ASSERT_EQ(umfScalablePoolParamsSetGranularity(params, SIZE_MAX / 4), OK);
    ASSERT_EQ(create(), OK);
    EXPECT_EQ(umfPoolMalloc(pool, 100), nullptr);
    EXPECT_EQ(last_error(), NO_MEMORY);
}

TEST_F(Scalable, KeepAllMemory) {
    ASSERT_EQ(umfScalablePoolParamsSetKeepAllMemory(params, true), OK);
    ASSERT_EQ(create(), OK);
    std::vector<char *> live;
    for (size_t i = 0; i < 2000; i++) {
        live.push_back(alloc(i % 5 ? 1 + i * 20 : 5 * MiB));
    }
    for (char *p : live) {
        EXPECT_EQ(umfPoolFree(pool, p), OK);
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), NONE);
    EXPECT_EQ(fake.frees, 0u);
    EXPECT_GT(fake.live(), 0u);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
    EXPECT_EQ(fake.live(), 0u);
}

// --- errors ---

TEST_F(Scalable, LastError) {
    ASSERT_EQ(create(), OK);
    char *p = alloc(100);
    EXPECT_EQ(umfPoolMalloc(pool, SIZE_MAX), nullptr);
    EXPECT_EQ(last_error(), UNKNOWN) << "the provider was not called";
    fake.alloc_fails = true;
    EXPECT_EQ(umfPoolMalloc(pool, 64 * MiB), nullptr);
    EXPECT_EQ(last_error(), NO_MEMORY) << "the provider refused";
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 10, 3), nullptr);
    EXPECT_EQ(last_error(), UNKNOWN);
    while (umfPoolMalloc(pool, 1000)) {
    }
    EXPECT_EQ(last_error(), NO_MEMORY);
    EXPECT_EQ(umfPoolCalloc(pool, SIZE_MAX / 2, 3), nullptr);
    EXPECT_EQ(last_error(), UNKNOWN);
    EXPECT_EQ(umfPoolRealloc(pool, p, 64 * MiB), nullptr);
    EXPECT_EQ(last_error(), NO_MEMORY);
    char local;
    EXPECT_EQ(umfPoolRealloc(pool, &local, 10), nullptr);
    EXPECT_EQ(last_error(), UNKNOWN);
    fake.alloc_fails = false;
    EXPECT_EQ(umfPoolFree(pool, alloc(64 * MiB)), OK);
}

TEST_F(Scalable, MemoryTheCpuCannotWrite) {
    for (int protection : {PROT_NONE, PROT_READ}) {
        fake.protection = protection;
        ASSERT_EQ(create(), OK);
        std::string log = log_of([&] {
            for (size_t size : {100, 9000, 5000000, 64 << 20}) {
                EXPECT_EQ(umfPoolMalloc(pool, size), nullptr);
                EXPECT_EQ(last_error(), UNKNOWN);
            }
        });
        EXPECT_NE(log.find("cannot write"), std::string::npos) << log;
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    fake.protection = PROT_READ | PROT_WRITE;
    ASSERT_EQ(create(), OK);
    failing_call = "probe_write";
    umf_os_set_fault(fail_call); // with ENOENT: the system has no answer
    EXPECT_EQ(umfPoolFree(pool, alloc(100)), OK);
    umf_os_set_fault(nullptr);
}

TEST_F(Scalable, NoMetadata) {
    ASSERT_EQ(create(), OK);
    failing_call = "meta_alloc";
    umf_os_set_fault(fail_call);
    EXPECT_EQ(umfPoolMalloc(pool, 32 * MiB), nullptr);
    EXPECT_EQ(last_error(), NO_MEMORY);
    EXPECT_EQ(umfPoolFree(pool, alloc(64 * MiB)), OK) << "a direct block needs none";
    umf_memory_pool_handle_t other = nullptr;
    EXPECT_EQ(umfPoolCreate(umfScalablePoolOps(), provider, nullptr, 0, &other), NO_MEMORY);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(umfPoolFree(pool, alloc(64 * MiB)), OK);
}

// oneTBB has a limited number of pools. The error says so, and nothing else breaks.
TEST_F(Scalable, AsManyPoolsAsThereAreKeys) {
    std::vector<umf_memory_pool_handle_t> pools;
    umf_result_t result;
    std::string log = log_of([&] {
        while ((result = create()) == OK && pools.size() < 2000) {
            pools.push_back(pool);
        }
    });
    EXPECT_EQ(result, UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_GE(pools.size(), 900u);
    EXPECT_NE(log.find("thread-specific keys"), std::string::npos) << log;
    pool = pools.back();
    pools.pop_back();
    char *p = alloc(100);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK) << "without a key to spare";
    for (umf_memory_pool_handle_t one : pools) {
        EXPECT_EQ(umfPoolDestroy(one), OK);
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

TEST_F(Scalable, WhatTheProviderDoesNotTakeBackIsOfferedAgain) {
    ASSERT_EQ(create(), OK);
    char *keep = alloc(100);
    char *p = alloc(64 * MiB);
    size_t held = fake.live_bytes();
    fake.free_fails = true;
    EXPECT_EQ(umfPoolFree(pool, p), OK) << "for the user it is free";
    EXPECT_EQ(umfPoolFree(pool, p), BAD);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live_bytes(), held);
    fake.free_fails = false;
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_LE(fake.live_bytes(), held - 64 * MiB);
    EXPECT_EQ(umfPoolFree(pool, keep), OK);
}

TEST_F(Scalable, WhatTheProviderNeverTakesBack) {
    ASSERT_EQ(create(), OK);
    alloc(100);
    fake.free_fails = true;
    EXPECT_EQ(umfPoolDestroy(pool), UNKNOWN);
    pool = nullptr;
    fake.free_fails = false;
    while (void *left = fake.any()) {
        EXPECT_EQ(umfMemoryProviderFree(provider, left, 0), OK);
    }
}

// --- direct blocks ---

// Neither a record for each page nor a header: of the block nothing is touched.
TEST_F(Scalable, DirectBlocksCostNothingForTheirSize) {
    ASSERT_EQ(create(), OK);
    EXPECT_EQ(umfPoolFree(pool, alloc(100)), OK);
    size_t metadata = umf_meta_used();
    char *p = alloc(64 * MiB);
    EXPECT_EQ(fake.last_size, 64 * MiB);
    EXPECT_LT(umf_meta_used() - metadata, 4096u);
    unsigned char resident = 0xff;
    ASSERT_EQ(mincore(p, 4096, &resident), 0);
    EXPECT_EQ(resident & 1, 0);
    size_t usable = 0;
    EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
    EXPECT_EQ(usable, 64 * MiB);
    memset(p, 1, usable);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(umf_meta_used(), metadata);
}

TEST_F(Scalable, DirectBlocksAreMultiplesOfTheGranularity) {
    ASSERT_EQ(umfScalablePoolParamsSetGranularity(params, 5 * MiB), OK);
    ASSERT_EQ(create(), OK);
    EXPECT_EQ(umfPoolFree(pool, alloc(64 * MiB + 1)), OK);
    EXPECT_EQ(fake.last_size, 65 * MiB);
    EXPECT_EQ(umfPoolFree(pool, alloc(65 * MiB)), OK);
    EXPECT_EQ(fake.last_size, 65 * MiB);
}

TEST_F(Scalable, DirectBlocksAreKeptWithAllMemory) {
    ASSERT_EQ(umfScalablePoolParamsSetKeepAllMemory(params, true), OK);
    ASSERT_EQ(create(), OK);
    EXPECT_EQ(umfPoolFree(pool, alloc(64 * MiB)), OK);
    EXPECT_EQ(fake.frees, 0u);
}

TEST_F(Scalable, DirectBlocksAreCounted) {
    ASSERT_EQ(create(), OK);
    char *p = alloc(64 * MiB);
    size_t count = 0;
    auto counted = [&] {
        EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool),
                  OK);
        return count;
    };
    EXPECT_EQ(counted(), 1u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(counted(), 0u);
}

// Of several frees at once one passes.
TEST_F(Scalable, DirectBlocksAreFreedOnce) {
    ASSERT_EQ(create(), OK);
    for (size_t round = 0; round < scaled(500); round++) {
        char *p = alloc(64 * MiB);
        std::atomic<int> freed{0};
        run_threads(3, [&](int) { freed += umfPoolFree(pool, p) == OK; });
        ASSERT_EQ(freed, 1);
    }
    EXPECT_EQ(fake.live(), 0u);
}

// --- pointers ---

class Pointers : public Scalable, public testing::WithParamInterface<umf_pool_create_flags_t> {
  protected:
    void expect_refused(char *p) {
        size_t usable;
        ASSERT_EQ(umfPoolFree(pool, p), BAD);
        ASSERT_EQ(umfPoolMallocUsableSize(pool, p, &usable), BAD);
        ASSERT_EQ(umfPoolRealloc(pool, p, 10), nullptr);
    }
};

// RULES 21, 49: among all addresses of the pool's memory one is a block.
TEST_P(Pointers, EveryOtherAddressIsRefused) {
    ASSERT_EQ(create(GetParam()), OK);
    char *p = alloc(20000);
    memset(p, 0x5a, 20000);
    auto base = static_cast<char *>(fake.any());
    for (size_t offset = 0; offset < 2 * MiB; offset += 8) {
        if (base + offset != p) {
            ASSERT_NO_FATAL_FAILURE(expect_refused(base + offset)) << offset;
        }
    }
    EXPECT_EQ(p[19999], 0x5a);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    expect_refused(p);
}

TEST_P(Pointers, InsideAnObject) {
    ASSERT_EQ(create(GetParam()), OK);
    for (size_t size : {1, 16, 100, 1024, 3000, 8128, 8129, 100000, 64 << 20}) {
        char *p = alloc(size);
        for (size_t offset : {size_t{1}, size_t{8}, size_t{15}, size / 2, size / 2 | 1,
                              size - 1 + !(size - 1), size > 4096 ? size_t{4096} : size_t{1}}) {
            offset += offset == 0;
            ASSERT_NO_FATAL_FAILURE(expect_refused(p + offset)) << offset << " in " << size;
        }
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        EXPECT_EQ(umfPoolFree(pool, p), BAD) << "at once, for it was the last one freed";
    }
}

INSTANTIATE_TEST_SUITE_P(Scalable, Pointers,
                         testing::Values(UMF_POOL_CREATE_FLAG_NONE,
                                         UMF_POOL_CREATE_FLAG_DISABLE_TRACKING),
                         [](const auto &test) { return test.param ? "untracked" : "tracked"; });

TEST_F(Scalable, UsableSizeIsUsable) {
    ASSERT_EQ(create(), OK);
    std::vector<std::pair<char *, size_t>> live;
    for (size_t size = 0; size < 20000; size += 1 + size / 8) {
        for (size_t alignment : {size_t{0}, size_t{8}, size_t{64}, size_t{512}, size_t{4096}}) {
            auto p = static_cast<char *>(umfPoolAlignedMalloc(pool, size, alignment));
            ASSERT_NE(p, nullptr);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % (alignment ? alignment : 8), 0u);
            size_t usable = 0;
            ASSERT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
            ASSERT_GE(usable, size);
            memset(p, static_cast<int>(live.size()), usable);
            live.emplace_back(p, usable);
        }
    }
    for (size_t i = 0; i < live.size(); i++) {
        auto [p, usable] = live[i];
        ASSERT_EQ(p[0], static_cast<char>(i));
        ASSERT_EQ(p[usable - 1], static_cast<char>(i));
        ASSERT_EQ(umfPoolFree(pool, p), OK);
    }
}

// --- objects of up to 128 KiB, and of the usual sizes up to 1 MiB, in magazines of their own ---

class LargeBins : public Scalable {
  protected:
    static constexpr size_t SMALL_MOST = 8128, BIN_MOST = 128 * 1024;
    const std::vector<size_t> sizes = {8127,
                                       SMALL_MOST,
                                       SMALL_MOST + 1,
                                       8192,
                                       16384 - 257,
                                       16384 - 256,
                                       16384 - 255,
                                       16384,
                                       16385,
                                       24576 - 256,
                                       65536,
                                       BIN_MOST - 256,
                                       BIN_MOST,
                                       BIN_MOST + 1,
                                       BIN_MOST / 4 * 5,
                                       BIN_MOST * 7 / 2,
                                       MiB - 1,
                                       MiB,
                                       MiB + 1};

    size_t room(char *p) {
        size_t usable = 0;
        EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
        return usable;
    }
    size_t count() {
        size_t n = SIZE_MAX;
        EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &n, sizeof(n), pool), OK);
        return n;
    }
    void expect_refused(char *p) {
        size_t usable;
        EXPECT_EQ(umfPoolFree(pool, p), BAD);
        EXPECT_EQ(umfFree(p), BAD);
        EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &usable), BAD);
        EXPECT_EQ(umfPoolRealloc(pool, p, 10), nullptr);
    }
};

TEST_F(LargeBins, ObjectsAreApart) {
    ASSERT_EQ(create(), OK);
    for (int round = 0; round < 3; round++) {
        std::vector<std::pair<char *, size_t>> live;
        for (size_t i = 0; i < 20 * sizes.size(); i++) {
            size_t size = sizes[i % sizes.size()];
            char *p = alloc(size);
            size_t usable = room(p);
            ASSERT_GE(usable, size);
            EXPECT_LE(usable, size + size / 3 + 8192) << "the next bin at most";
            memset(p, static_cast<int>(i % 251), usable);
            live.emplace_back(p, usable);
            EXPECT_EQ(count(), live.size());
        }
        for (size_t i = 0; i < live.size(); i++) {
            auto [p, usable] = live[i];
            ASSERT_EQ(p[0], static_cast<char>(i % 251));
            ASSERT_EQ(memcmp(p, p + 1, usable - 1), 0);
            ASSERT_EQ(umfPoolFree(pool, p), OK);
            EXPECT_EQ(count(), live.size() - 1 - i);
        }
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live_bytes(), 0u);
}

TEST_F(LargeBins, ASecondFreeIsAlwaysRefused) {
    ASSERT_EQ(create(), OK);
    for (size_t size : sizes) {
        std::vector<char *> list;
        for (size_t i = 0; i < 50; i++) {
            list.push_back(alloc(size));
        }
        for (size_t i = 0; i < list.size(); i++) {
            ASSERT_EQ(umfPoolFree(pool, list[i]), OK);
            EXPECT_EQ(umfPoolFree(pool, list[i]), BAD);
            if (size > SMALL_MOST) { // smaller ones do not promise more
                expect_refused(list[i / 2]);
                expect_refused(list[0]);
            }
        }
        if (size > SMALL_MOST) {
            std::thread([&] {
                std::for_each(list.begin(), list.end(), [&](char *p) { expect_refused(p); });
            }).join();
        }
        EXPECT_EQ(count(), 0u) << size;
    }
}

TEST_F(LargeBins, InteriorPointersAreRefused) {
    ASSERT_EQ(create(), OK);
    for (size_t size : sizes) {
        char *p = alloc(size);
        for (size_t offset :
             {size_t{1}, size_t{16}, size_t{64}, size_t{4096}, size / 2, size - 1}) {
            expect_refused(p + offset);
        }
        EXPECT_EQ(count(), 1u);
        EXPECT_EQ(umfPoolFree(pool, p), OK) << "it is live all the same";
    }
}

TEST_F(LargeBins, ReallocKeepsTheContent) {
    ASSERT_EQ(create(), OK);
    for (size_t from : sizes) {
        for (size_t to : sizes) {
            char *p = alloc(from);
            for (size_t i = 0; i < from; i += 29) {
                p[i] = static_cast<char>(i * 7 % 253);
            }
            p = static_cast<char *>(umfPoolRealloc(pool, p, to));
            ASSERT_NE(p, nullptr);
            ASSERT_GE(room(p), to);
            for (size_t i = 0; i < std::min(from, to); i += 29) {
                ASSERT_EQ(p[i], static_cast<char>(i * 7 % 253)) << from << " to " << to;
            }
            EXPECT_EQ(count(), 1u);
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live_bytes(), 0u);
}

// A free block of such a size stays with its thread, as `stats.thread_cache` shows; one of another
// size goes to oneTBB.
TEST_F(LargeBins, ThreadsKeepBlocksOfUsualSizes) {
    ASSERT_EQ(create(), OK);
    size_t before = 0;
    auto kept_by = [&](size_t size) {
        size_t now = 0;
        EXPECT_EQ(umfPoolFree(pool, alloc(size)), OK);
        EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.thread_cache", &now, sizeof(now), pool),
                  OK);
        return now - std::exchange(before, now);
    };
    EXPECT_EQ(kept_by(BIN_MOST + 9000), 0u);
    for (size_t size = BIN_MOST; size < MiB; size *= 2) {
        for (size_t parts = 5; parts <= 8; parts++) {
            EXPECT_GE(kept_by(size / 4 * parts), size / 4 * parts);
        }
    }
    EXPECT_EQ(kept_by(MiB + 1), 0u);
    EXPECT_EQ(count(), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live_bytes(), 0u);
}

// What one thread frees, another that frees none is given.
TEST_F(LargeBins, ObjectsThatWaitServeAllThreads) {
    ASSERT_EQ(create(), OK);
    OtherThread other;
    for (size_t size : {SMALL_MOST + 1, size_t{65536}, BIN_MOST, BIN_MOST * 2}) {
        std::vector<char *> list(100);
        auto round = [&] {
            for (char *&p : list) {
                p = alloc(size);
            }
            other([&] {
                for (char *p : list) {
                    EXPECT_EQ(umfPoolFree(pool, p), OK);
                }
            });
        };
        round();
        round();
        size_t allocs = fake.allocs;
        for (int i = 0; i < 20; i++) {
            round();
        }
        EXPECT_EQ(fake.allocs, allocs) << size;
        EXPECT_EQ(count(), 0u);
    }
}

// --- trim ---

TEST_F(Scalable, TrimGivesFreedLargeBlocksBack) {
    ASSERT_EQ(create(), OK);
    char *keep = alloc(100);
    std::vector<char *> live;
    for (size_t i = 0; i < 300; i++) {
        live.push_back(alloc(100000 + i * 1000));
    }
    size_t most = fake.live_bytes();
    for (char *p : live) {
        EXPECT_EQ(umfPoolFree(pool, p), OK);
    }
    EXPECT_GT(fake.live_bytes(), 10 * MiB) << "oneTBB caches them";
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_GT(most, 60 * MiB);
    EXPECT_LE(fake.live_bytes(), 4 * MiB);
    EXPECT_EQ(umfPoolFree(pool, keep), OK);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live_bytes(), 0u);
    EXPECT_EQ(umfPoolFree(pool, alloc(100)), OK) << "the pool remains usable";
}

// What other threads have cached in oneTBB, while they live.
TEST_F(Scalable, TrimReachesOtherThreads) {
    ASSERT_EQ(create(), OK);
    char *keep = alloc(100);
    std::atomic<int> step{0};
    std::thread other([&] {
        std::vector<char *> live;
        for (size_t i = 0; i < 300; i++) {
            live.push_back(alloc(140000 + i * 1000)); // smaller ones wait in magazines
        }
        for (char *p : live) {
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
        step = 1;
        while (step == 1) {
            std::this_thread::yield();
        }
    });
    while (step == 0) {
        std::this_thread::yield();
    }
    size_t before = fake.live_bytes();
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_LE(fake.live_bytes(), 8 * MiB);
    EXPECT_GT(before, fake.live_bytes());
    step = 2;
    other.join();
    EXPECT_EQ(umfPoolFree(pool, keep), OK);
}

// A program that only hits, and one whose other pools tick.
TEST_F(Scalable, WhatOneTbbKeepsDecays) {
    std::vector<char *> live;
    char *keep;
    {
        DecayPeriod endless(DecayPeriod::ENDLESS);
        ASSERT_EQ(create(), OK);
        keep = alloc(100);
        for (size_t i = 0; i < 300; i++) {
            live.push_back(alloc(140000 + i * 1000));
        }
        for (char *p : live) {
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
    }
    EXPECT_GT(fake.live_bytes(), 10 * MiB);
    DecayPeriod none(DecayPeriod::NONE);
    for (int i = 0; i < 50000; i++) {
        EXPECT_EQ(umfPoolFree(pool, alloc(64)), OK);
    }
    EXPECT_LE(fake.live_bytes(), 4 * MiB);
    EXPECT_EQ(umfPoolFree(pool, keep), OK);
}

TEST_F(Scalable, TrimsAtOnceWhileOthersWork) {
    ASSERT_EQ(create(), OK);
    std::atomic<size_t> trims{0};
    run_threads<unsigned>(4, [&](unsigned t) {
        std::vector<char *> live(64);
        for (size_t i = 0; i < scaled(4000); i++) {
            char *&p = live[(i * 7 + t) % live.size()];
            if (p) {
                ASSERT_EQ(*p, static_cast<char>(t));
                ASSERT_EQ(umfPoolFree(pool, p), OK);
            }
            p = alloc(i % 31 == 0 ? 200000 : 1 + i % 9000);
            *p = static_cast<char>(t);
            if (i % 200 == t) {
                ASSERT_EQ(umfPoolTrimMemory(pool, 0), OK);
                trims++;
            }
        }
        for (char *p : live) {
            ASSERT_EQ(umfPoolFree(pool, p), OK);
        }
    });
    EXPECT_GT(trims, 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live_bytes(), 0u) << "the threads are gone and left nothing";
}

// Nothing is in use, so each of them could replace oneTBB's pool.
TEST_F(Scalable, TrimsOfAnUnusedPoolAtOnce) {
    ASSERT_EQ(create(), OK);
    run_threads(3, [&](int) {
        for (size_t i = 0; i < scaled(20000); i++) {
            ASSERT_EQ(umfPoolFree(pool, alloc(20000)), OK);
            ASSERT_EQ(umfPoolTrimMemory(pool, 0), OK);
        }
    });
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live_bytes(), 0u);
}

// --- threads that end ---

// oneTBB takes a thread's data apart while its pool is destroyed: without a word of ours that
// crashes after some thousand rounds.
TEST_F(Scalable, ThreadsEndWhileThePoolIsDestroyed) {
    for (size_t round = 0; round < scaled(4000); round++) {
        ASSERT_EQ(create(), OK);
        std::atomic<int> done{0};
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++) {
            threads.emplace_back([&] {
                void *live[40];
                for (size_t i = 0; i < std::size(live); i++) {
                    live[i] = umfPoolMalloc(pool, 16 + i * 200);
                }
                for (void *p : live) {
                    umfPoolFree(pool, p);
                }
                done++;
            });
        }
        while (done < 4) {
            std::this_thread::yield();
        }
        ASSERT_EQ(umfPoolDestroy(pool), OK);
        pool = nullptr;
        for (auto &thread : threads) {
            thread.join();
        }
        ASSERT_EQ(fake.live(), 0u);
    }
}

// --- fork ---

// A provider whose operations can be held up.
struct Slow {
    FakeProvider fake;
    std::atomic<bool> holds{false}, is_held{false};
    umf_memory_provider_ops_t ops = FakeProvider::table();

    static Slow *&instance() {
        static Slow *slow;
        return slow;
    }
    static umf_result_t alloc(void *provider, size_t size, size_t alignment, void **ptr) {
        Slow *slow = instance();
        if (slow->holds) {
            slow->is_held = true;
            while (slow->holds) {
                std::this_thread::yield();
            }
        }
        return FakeProvider::table().alloc(provider, size, alignment, ptr);
    }
    umf_memory_provider_handle_t create() {
        instance() = this;
        ops.alloc = alloc;
        umf_memory_provider_handle_t provider = nullptr;
        umfMemoryProviderCreate(&ops, &fake, &provider);
        return provider;
    }
};

class Fork : public testing::Test {
  protected:
    Slow slow;
    umf_memory_provider_handle_t provider = slow.create();
    umf_memory_pool_handle_t pool = nullptr;
    std::thread thread;
    void *first = nullptr;

    void SetUp() override {
        ASSERT_EQ(umfPoolCreate(umfScalablePoolOps(), provider, nullptr, 0, &pool), OK);
        first = umfPoolMalloc(pool, 300000);
        EXPECT_NE(first, nullptr);
        EXPECT_EQ(umfPoolFree(pool, umfPoolMalloc(pool, 100)), OK); // makes a region of slabs
        slow.holds = true;
        thread = std::thread([&] {
            void *p = umfPoolMalloc(pool, 40 * MiB);
            EXPECT_NE(p, nullptr);
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        });
        while (!slow.is_held) {
            std::this_thread::yield();
        }
    }
    void TearDown() override {
        thread.join();
        EXPECT_EQ(umfPoolFree(pool, first), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(slow.fake.live(), 0u);
    }
};

// A fork waits for a thread that is inside oneTBB, in a slow operation of the provider.
TEST_F(Fork, WaitsForAThreadInside) {
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        slow.holds = false;
    });
    EXPECT_EQ(exit_of_child([&] {
                  if (slow.holds) {
                      return 1;
                  }
                  for (size_t size : {100, 5000, 100000, 50000000}) {
                      void *p = umfPoolMalloc(pool, size);
                      if (!p || umfPoolFree(pool, p) != OK) {
                          return 2;
                      }
                  }
                  return umfPoolTrimMemory(pool, 0) == OK && umfPoolDestroy(pool) == OK ? 0 : 3;
              }),
              0);
    opener.join();
}

// A thread that a child of fork begins may have the identity of one that is gone. oneTBB takes the
// slabs of that one for its own.
class ForkedThread : public Scalable {
  protected:
    std::vector<void *> objects;
    OtherThread owner;
    pthread_t gone{};

    // As many as there can be, at most `count`.
    void allocate(size_t count) {
        ASSERT_EQ(create(), OK);
        owner([&] {
            gone = pthread_self();
            void *object = nullptr;
            while (objects.size() < count && (object = umfPoolMalloc(pool, 100)) != nullptr) {
                objects.push_back(object);
            }
        });
    }
    bool free_all() {
        bool is_freed = true;
        for (void *object : objects) {
            is_freed = umfPoolFree(pool, object) == OK && is_freed;
        }
        return is_freed;
    }
    // In a new thread of a child, where `work` must be true.
    void in_new_thread(const std::function<bool()> &work) {
        const int exit = exit_of_child([&] {
            bool is_same = false, is_good = false;
            std::thread([&] {
                is_same = pthread_equal(pthread_self(), gone);
                is_good = work();
            }).join();
            return !is_good ? 1 : is_same ? 0 : 77;
        });
        EXPECT_TRUE(exit == 0 || exit == 77) << exit;
        if (exit == 77) {
            GTEST_SKIP() << "the child's thread did not get the identity of the one that is gone";
        }
    }
    void TearDown() override {
        EXPECT_TRUE(free_all());
        Scalable::TearDown();
    }
};

TEST_F(ForkedThread, FreesWhatTheOneThatIsGoneAllocated) {
    allocate(5000);
    in_new_thread([&] { return free_all() && umfPoolTrimMemory(pool, 0) == OK; });
}

// There is no memory for what oneTBB needs for the new thread, either.
TEST_F(ForkedThread, HasTheMemoryOfAFullProviderAgain) {
    fake.limit = 8 * MiB;
    allocate(SIZE_MAX);
    for (size_t size : {100, 4000}) {
        SCOPED_TRACE(size);
        in_new_thread([&] {
            bool is_freed = free_all();
            for (size_t had = 0; had + size < 4 * MiB; had += size) {
                if (!umfPoolMalloc(pool, size)) {
                    return false;
                }
            }
            return is_freed;
        });
    }
}

// An operation that ends only after the fork: the fork does not wait for ever, and says so. A lock
// of oneTBB stays locked in the child, whose calls fail instead of waiting for it.
TEST_F(Fork, DoesNotWaitForEver) {
    auto child = [&] {
        slow.holds = false;
        if (umfPoolMalloc(pool, 400000) || umfPoolGetLastAllocationError(pool) != NO_MEMORY ||
            !strstr(umfLastErrorText(), "forked")) {
            return 1;
        }
        umf_memory_pool_handle_t other = nullptr;
        if (umfPoolCreate(umfScalablePoolOps(), provider, nullptr, 0, &other) == OK) {
            return 2;
        }
        if (umfPoolFree(pool, first) != OK || umfPoolTrimMemory(pool, 0) != OK) {
            return 3;
        }
        return exit_of_child([&] { return umfPoolMalloc(pool, 400000) ? 4 : 0; });
    };
    std::string log = log_of([&] { EXPECT_EQ(exit_of_child(child), 0); });
    slow.holds = false;
    EXPECT_NE(log.find("no memory to give"), std::string::npos) << log;
}

// Ends the calling thread, and the process once its other thread-specific data are destroyed.
[[noreturn]] void end_thread_of_child() {
    static pthread_key_t key;
    static int round;
    pthread_key_create(&key, [](void *value) {
        if (round++ > 0) {
            _exit(0);
        }
        pthread_setspecific(key, value);
    });
    pthread_setspecific(key, &key);
    pthread_exit(nullptr);
}

// A thread that has data in oneTBB ends after the pool. Its memory went back to the provider, so
// nothing may write to it.
TEST_F(Fork, APoolThatIsLostCanBeDestroyed) {
    std::thread forks([&] {
        EXPECT_EQ(umfPoolFree(pool, umfPoolMalloc(pool, 100)), OK);
        EXPECT_EQ(exit_of_child([&] {
                      slow.holds = false;
                      std::thread([&] { umfPoolFree(pool, umfPoolMalloc(pool, 100)); }).join();
                      if (umfPoolDestroy(pool) != OK || slow.fake.live() != 0) {
                          return 1;
                      }
                      end_thread_of_child();
                  }),
                  0);
    });
    forks.join();
    slow.holds = false;
}

} // namespace
