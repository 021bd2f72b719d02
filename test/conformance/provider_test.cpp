/*
 * What every provider promises (umf/memory_provider.h), stated once and run for each kind of
 * providers.def and for a provider written by a user.
 */
#include <cerrno>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <umf/experimental/memory_properties.h>

#include "fakes/kinds.h"
#include "fakes/log_file.h"
#include "fakes/scale.h"
#include "fakes/table_member.h"
#include "fakes/threads.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;

TEST(Kinds, EveryLineOfTheListIsTested) {
    for (const Listed &listed : listed_providers()) {
        bool known = false;
        for (const SourceKind &kind : source_kinds()) {
            known |= std::string(kind.id) == listed.id;
        }
        EXPECT_TRUE(known || !listed.available || not_here(listed.id))
            << "add " << listed.id << " to source_kinds() in fakes/kinds.h";
    }
}

class Provider : public testing::TestWithParam<SourceKind> {
  protected:
    void SetUp() override {
        source = GetParam().make();
        ASSERT_NE(source->handle, nullptr);
        provider = source->handle;
        ASSERT_EQ(umfMemoryProviderGetMinPageSize(provider, nullptr, &page), OK);
    }
    void TearDown() override {
        if (source->handle) {
            EXPECT_EQ(source->live_bytes(), 0u);
        }
        if (source->fake) {
            EXPECT_EQ(source->fake->mistakes, 0u);
        }
    }
    char *alloc(size_t size, size_t alignment = 0) {
        void *ptr = nullptr;
        EXPECT_EQ(umfMemoryProviderAlloc(provider, size, alignment, &ptr), OK);
        return static_cast<char *>(ptr);
    }
    void free(void *ptr, size_t size) {
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, size), OK);
    }
    bool is(const char *label) {
        return std::string(GetParam().label) == label;
    }
    size_t read(const char *path) {
        size_t value = SIZE_MAX;
        std::string full = std::string("umf.provider.by_handle.{}.") + path;
        EXPECT_EQ(umfCtlGet(full.c_str(), &value, sizeof(value), provider), OK);
        return value;
    }
    umf_memory_provider_handle_t last_failed() {
        umf_memory_provider_handle_t failed = nullptr;
        EXPECT_EQ(umfGetLastFailedMemoryProvider(&failed), OK);
        return failed;
    }

    std::unique_ptr<Source> source;
    umf_memory_provider_handle_t provider = nullptr;
    size_t page = 0;
};

TEST_P(Provider, TableIsWhole) {
    const umf_memory_provider_ops_t *ops = GetParam().ops();
    ASSERT_NE(ops, nullptr);
    EXPECT_EQ(ops->version, uint32_t{UMF_PROVIDER_OPS_VERSION_CURRENT});
    EXPECT_EQ(GetParam().ops(), ops);
    EXPECT_TRUE(ops->initialize && ops->finalize && ops->alloc && ops->free &&
                ops->get_last_native_error && ops->get_recommended_page_size &&
                ops->get_min_page_size && ops->get_name && ops->get_cache_line_size);
    EXPECT_EQ(!ops->ext_allocation_merge, !ops->ext_allocation_split);
}

TEST_P(Provider, CreateChecksItsArguments) {
    auto untouched = reinterpret_cast<umf_memory_provider_handle_t>(this);
    umf_memory_provider_handle_t handle = untouched;
    EXPECT_EQ(umfMemoryProviderCreate(nullptr, nullptr, &handle), BAD);
    EXPECT_EQ(umfMemoryProviderCreate(GetParam().ops(), nullptr, nullptr), BAD);
    if (GetParam().needs_params) {
        EXPECT_EQ(umfMemoryProviderCreate(GetParam().ops(), nullptr, &handle), BAD);
    }
    EXPECT_EQ(handle, untouched);
}

TEST_P(Provider, DestroyOfNullIsFine) {
    EXPECT_EQ(umfMemoryProviderDestroy(nullptr), OK);
}

TEST_P(Provider, Names) {
    const char *name = nullptr;
    ASSERT_EQ(umfMemoryProviderGetName(provider, &name), OK);
    for (const Listed &listed : listed_providers()) {
        if (std::string(listed.id) == GetParam().id) {
            EXPECT_STREQ(name, listed.name);
        }
    }
    const char *default_name = nullptr;
    ASSERT_EQ(GetParam().ops()->get_name(nullptr, &default_name), OK);
    EXPECT_STREQ(name, default_name);
    if (*GetParam().id) {
        EXPECT_EQ(GetParam().ops()->get_name(nullptr, nullptr), BAD);
    }
}

TEST_P(Provider, NullsAreRefusedAndNotRecorded) {
    umf_memory_provider_handle_t before = last_failed();
    void *ptr = nullptr;
    size_t size = 0;
    const char *text = nullptr;
    int32_t error = 0;
    char data[4096];
    char *p = alloc(4 * page);

    EXPECT_EQ(umfMemoryProviderAlloc(nullptr, 1, 0, &ptr), BAD);
    EXPECT_EQ(umfMemoryProviderAlloc(provider, 1, 0, nullptr), BAD);
    EXPECT_EQ(umfMemoryProviderFree(nullptr, p, page), BAD);
    EXPECT_EQ(umfMemoryProviderGetLastNativeError(nullptr, &text, &error), BAD);
    EXPECT_EQ(umfMemoryProviderGetLastNativeError(provider, nullptr, &error), BAD);
    EXPECT_EQ(umfMemoryProviderGetLastNativeError(provider, &text, nullptr), BAD);
    EXPECT_EQ(umfMemoryProviderGetRecommendedPageSize(nullptr, 1, &size), BAD);
    EXPECT_EQ(umfMemoryProviderGetRecommendedPageSize(provider, 1, nullptr), BAD);
    EXPECT_EQ(umfMemoryProviderGetMinPageSize(nullptr, nullptr, &size), BAD);
    EXPECT_EQ(umfMemoryProviderGetMinPageSize(provider, nullptr, nullptr), BAD);
    EXPECT_EQ(umfMemoryProviderGetCacheLineSize(nullptr, &size), BAD);
    EXPECT_EQ(umfMemoryProviderGetCacheLineSize(provider, nullptr), BAD);
    EXPECT_EQ(umfMemoryProviderGetName(nullptr, &text), BAD);
    EXPECT_EQ(umfMemoryProviderGetName(provider, nullptr), BAD);
    EXPECT_EQ(umfMemoryProviderPurgeLazy(nullptr, p, page), BAD);
    EXPECT_EQ(umfMemoryProviderPurgeLazy(provider, nullptr, page), BAD);
    EXPECT_EQ(umfMemoryProviderPurgeForce(nullptr, p, page), BAD);
    EXPECT_EQ(umfMemoryProviderPurgeForce(provider, nullptr, page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(nullptr, p, 2 * page, page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, nullptr, 2 * page, page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, p, 0, page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, p, 2 * page, 0), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, p, page, page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, p, page, 2 * page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(nullptr, p, p + page, 2 * page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, nullptr, p, 2 * page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, p, nullptr, 2 * page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, p, p + page, 0), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, p, p, 2 * page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, p + page, p, 2 * page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, p, p + 2 * page, 2 * page), BAD);
    EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(nullptr, &size), BAD);
    EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider, nullptr), BAD);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(nullptr, p, page, data), BAD);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, nullptr, page, data), BAD);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, p, 0, data), BAD);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, p, page, nullptr), BAD);
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(nullptr, data), BAD);
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, nullptr), BAD);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(nullptr, data, &ptr), BAD);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, nullptr, &ptr), BAD);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, data, nullptr), BAD);
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(nullptr, p, page), BAD);
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, nullptr, page), BAD);
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, p, 0), BAD);
    EXPECT_EQ(umfGetLastFailedMemoryProvider(nullptr), BAD);
    EXPECT_EQ(last_failed(), before);
    free(p, 4 * page);
}

TEST_P(Provider, MemoryIsAlignedWritableAndSeparate) {
    const size_t sizes[] = {1, page - 1, page, page + 1, 3 * page, 1u << 20};
    std::vector<std::pair<char *, size_t>> live;
    for (size_t size : sizes) {
        char *p = alloc(size);
        ASSERT_NE(p, nullptr);
        memset(p, static_cast<int>(live.size() + 1), size);
        live.emplace_back(p, size);
    }
    for (size_t i = 0; i < live.size(); i++) {
        EXPECT_EQ(live[i].first[0], static_cast<char>(i + 1));
        EXPECT_EQ(live[i].first[live[i].second - 1], static_cast<char>(i + 1));
    }
    for (auto &[p, size] : live) {
        free(p, size);
    }
}

TEST_P(Provider, FreshSystemMemoryReadsAsZero) {
    if (std::string(GetParam().id) != "os") {
        GTEST_SKIP() << "promised by the OS provider only";
    }
    for (int round = 0; round < 8; round++) {
        char *p = alloc(2 * page);
        for (size_t i = 0; i < 2 * page; i++) {
            ASSERT_EQ(p[i], 0) << "round " << round << ", byte " << i;
        }
        memset(p, 0x5a, 2 * page);
        free(p, 2 * page);
    }
}

TEST_P(Provider, PowersOfTwoAsAlignment) {
    for (size_t alignment = 1; alignment <= (1u << 22); alignment *= 2) {
        for (size_t size : {page, 3 * page}) {
            char *p = alloc(size, alignment);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u) << alignment;
            p[0] = p[size - 1] = 1;
            free(p, size);
        }
    }
}

TEST_P(Provider, BadAlignmentIsRefused) {
    void *untouched = this, *ptr = untouched;
    umf_result_t expected =
        std::string(GetParam().id) == "os" ? BAD : UMF_RESULT_ERROR_INVALID_ALIGNMENT;
    for (size_t alignment : {size_t{3}, size_t{5}, page + 8, page - 1}) {
        EXPECT_EQ(umfMemoryProviderAlloc(provider, page, alignment, &ptr), expected) << alignment;
    }
    EXPECT_EQ(ptr, untouched);
    EXPECT_EQ(last_failed(), provider);
}

TEST_P(Provider, ImpossibleSizesAreRefused) {
    void *untouched = this, *ptr = untouched;
    for (size_t size : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - page + 1, SIZE_MAX - page, SIZE_MAX / 2,
                        SIZE_MAX - 2 * page}) {
        for (size_t alignment : {size_t{0}, page, 16 * page}) {
            EXPECT_NE(umfMemoryProviderAlloc(provider, size, alignment, &ptr), OK) << size;
        }
    }
    EXPECT_NE(umfMemoryProviderAlloc(provider, page, size_t{1} << 63, &ptr), OK);
    EXPECT_EQ(ptr, untouched);
    EXPECT_EQ(source->live_bytes(), 0u);
}

TEST_P(Provider, SizeZeroReachesTheProvider) {
    void *ptr = nullptr;
    umf_result_t result = umfMemoryProviderAlloc(provider, 0, 0, &ptr);
    if (std::string(GetParam().id) == "os") {
        EXPECT_EQ(result, UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        const char *text = nullptr;
        int32_t error = 0;
        ASSERT_EQ(umfMemoryProviderGetLastNativeError(provider, &text, &error), OK);
        EXPECT_EQ(error, UMF_OS_RESULT_ERROR_ALLOC_FAILED);
        EXPECT_EQ(std::string(text).rfind("memory allocation failed", 0), 0u) << text;
    }
    if (source->fake) {
        EXPECT_EQ(source->fake->allocs, 1u);
    }
    if (result == OK) {
        umfMemoryProviderFree(provider, ptr, 0);
    }
}

TEST_P(Provider, FreeOfNullIsFine) {
    EXPECT_EQ(umfMemoryProviderFree(provider, nullptr, 0), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, nullptr, 123), OK);
    if (source->fake) {
        EXPECT_EQ(source->fake->frees, 2u) << "both reach the provider";
        EXPECT_EQ(source->fake->last_free_size, 123u);
    }
}

TEST_P(Provider, BadFreesAreRefused) {
    if (!GetParam().is_coarse && !is("os_shared")) {
        GTEST_SKIP() << "the system decides";
    }
    umf_result_t expected = is("os_shared") ? UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC : BAD;
    char *p = alloc(4 * page), *q = alloc(page);
    char local;
    EXPECT_EQ(umfMemoryProviderFree(provider, &local, page), expected);
    EXPECT_EQ(umfMemoryProviderFree(provider, p + page, page), expected);
    EXPECT_EQ(umfMemoryProviderFree(provider, p, 3 * page), expected);
    EXPECT_EQ(umfMemoryProviderFree(provider, p, 5 * page), expected);
    EXPECT_EQ(source->live_bytes(), 5 * page) << "refused requests do not count";
    p[0] = p[4 * page - 1] = 1;
    free(p, 4 * page);
    EXPECT_EQ(umfMemoryProviderFree(provider, p, 4 * page), expected) << "freed already";
    free(q, page);
}

TEST_P(Provider, CoarseSpaceIsReusedAndJoined) {
    if (!source->region) {
        GTEST_SKIP() << "no range of ours";
    }
    size_t all = source->region_size / 4;
    std::vector<char *> parts;
    for (int i = 0; i < 4; i++) {
        parts.push_back(alloc(all));
    }
    EXPECT_EQ(parts[1] - parts[0], static_cast<ptrdiff_t>(all)) << "served upwards";
    void *ptr = nullptr;
    EXPECT_EQ(umfMemoryProviderAlloc(provider, page, 0, &ptr), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    for (int i : {2, 0, 3, 1}) {
        free(parts[static_cast<size_t>(i)], i % 2 ? all : 0);
    }
    char *whole = alloc(4 * all);
    EXPECT_EQ(whole, source->region);
    free(whole, 4 * all);
}

TEST_P(Provider, SplitPartsAreIndependent) {
    if (!GetParam().can_split) {
        GTEST_SKIP();
    }
    char *p = alloc(4 * page);
    ASSERT_EQ(umfMemoryProviderAllocationSplit(provider, p, 4 * page, page), OK);
    ASSERT_EQ(umfMemoryProviderAllocationSplit(provider, p + page, 3 * page, page), OK);
    free(p + page, page);
    p[0] = p[2 * page] = p[4 * page - 1] = 7;
    free(p + 2 * page, 2 * page);
    EXPECT_EQ(p[0], 7);
    free(p, page);
}

TEST_P(Provider, MergedPartsAreOne) {
    if (!GetParam().can_split) {
        GTEST_SKIP();
    }
    char *p = alloc(6 * page);
    memset(p, 9, 6 * page);
    ASSERT_EQ(umfMemoryProviderAllocationSplit(provider, p, 6 * page, 2 * page), OK);
    ASSERT_EQ(umfMemoryProviderAllocationSplit(provider, p + 2 * page, 4 * page, page), OK);
    ASSERT_EQ(umfMemoryProviderAllocationMerge(provider, p + 2 * page, p + 3 * page, 4 * page), OK);
    ASSERT_EQ(umfMemoryProviderAllocationMerge(provider, p, p + 2 * page, 6 * page), OK);
    EXPECT_EQ(p[6 * page - 1], 9);
    free(p, 6 * page);
}

TEST_P(Provider, NonsenseIsNotSplitOrMerged) {
    if (!GetParam().is_coarse && !source->fake) {
        GTEST_SKIP() << "private OS memory answers SUCCESS always";
    }
    char *p = alloc(4 * page), *q = alloc(page);
    char local[2];
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, local, 2 * page, page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, p, 3 * page, page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, p + page, 3 * page, page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, local, local + 1, page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, p, p + page, 2 * page), BAD);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, p, p + 4 * page, 5 * page),
              GetParam().is_coarse && q == p + 4 * page ? OK : BAD)
        << "neighbours that were not split off may join only where the provider has one range";
    if (GetParam().is_coarse && q == p + 4 * page) {
        free(p, 5 * page);
    } else {
        free(p, 4 * page);
        free(q, page);
    }
}

TEST_P(Provider, Purge) {
    char *p = alloc(4 * page);
    memset(p, 3, 4 * page);
    EXPECT_EQ(umfMemoryProviderPurgeLazy(provider, p, page), GetParam().purges_lazily ? OK : NONE);
    EXPECT_EQ(umfMemoryProviderPurgeForce(provider, p + page, page), GetParam().purges ? OK : NONE);
    if (GetParam().purges && !is("devdax")) { // a device keeps what it holds
        EXPECT_EQ(p[page], 0) << "the contents are dropped now";
        EXPECT_EQ(p[2 * page - 1], 0);
    }
    EXPECT_EQ(p[2 * page], 3) << "and only there";
    memset(p, 4, 4 * page);
    EXPECT_EQ(p[page], 4) << "the memory stays usable";
    free(p, 4 * page);
}

size_t line_of_cpu() {
#ifdef _SC_LEVEL1_DCACHE_LINESIZE
    long line = sysconf(_SC_LEVEL1_DCACHE_LINESIZE);
    return line > 0 ? static_cast<size_t>(line) : 64;
#else
    return 64;
#endif
}

TEST_P(Provider, PageAndCacheLineSizes) {
    char *p = alloc(page);
    size_t size = 0;
    ASSERT_EQ(umfMemoryProviderGetMinPageSize(provider, p, &size), OK);
    EXPECT_EQ(size, page);
    EXPECT_EQ(page, is("devdax") ? size_t{2} << 20 : static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    ASSERT_EQ(umfMemoryProviderGetRecommendedPageSize(provider, 10 * page, &size), OK);
    EXPECT_GE(size, page);
    ASSERT_EQ(umfMemoryProviderGetCacheLineSize(provider, &size), OK);
    EXPECT_TRUE(size >= 8 && (size & (size - 1)) == 0) << size;
    if (GetParam().is_coarse) {
        EXPECT_EQ(size, is("cuda_vmm") ? 128u : is("linux_vmm") ? line_of_cpu() : 64u);
    }
    free(p, page);
}

TEST_P(Provider, NativeErrorIsThereBeforeAnyFailure) {
    const char *text = nullptr;
    int32_t error = -1;
    ASSERT_EQ(umfMemoryProviderGetLastNativeError(provider, &text, &error), OK);
    ASSERT_NE(text, nullptr);
    EXPECT_TRUE(error == 0 || error >= GetParam().first_native_error) << error;
}

TEST_P(Provider, LastFailedIsPerThreadAndKept) {
    umf_memory_provider_handle_t in_thread = provider;
    void *ptr = nullptr;
    EXPECT_NE(umfMemoryProviderAlloc(provider, SIZE_MAX, 0, &ptr), OK);
    EXPECT_EQ(last_failed(), provider);
    free(alloc(page), page);
    EXPECT_EQ(last_failed(), provider) << "a success does not clear it";
    std::thread([&] { in_thread = last_failed(); }).join();
    EXPECT_EQ(in_thread, nullptr);
}

TEST_P(Provider, IpcOperationsAnswer) {
    size_t size = 0;
    char data[4096] = {};
    void *ptr = nullptr;
    char *p = alloc(page);
    umf_result_t expected = GetParam().ipc;
    if (GetParam().shares) {
        EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &size), OK);
        ASSERT_LE(size, sizeof(data));
        EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, data, page, data), BAD);
        ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, p, page, data), OK);
        p[5] = 42;
        ASSERT_EQ(umfMemoryProviderOpenIPCHandle(provider, data, &ptr), OK);
        EXPECT_EQ(static_cast<char *>(ptr)[5], 42);
        EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, ptr, page), OK);
        EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, data), OK);
    } else {
        EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &size), expected);
        EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, p, page, data), expected);
    }
    char junk[4096];
    memset(junk, 0x77, sizeof(junk));
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, junk), expected);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, junk, &ptr), expected);
    EXPECT_NE(umfMemoryProviderCloseIPCHandle(provider, junk, page), OK);
    free(p, page);
}

TEST_P(Provider, StatisticsCountRequestedSizes) {
    if (source->fake) {
        GTEST_SKIP() << "a user's provider has its own";
    }
    EXPECT_EQ(read("stats.allocated_memory"), 0u);
    char *p = alloc(3 * page), *q = alloc(page);
    EXPECT_EQ(read("stats.allocated_memory"), 4 * page);
    free(p, 3 * page);
    EXPECT_EQ(read("stats.allocated_memory"), page);
    EXPECT_EQ(read("stats.peak_memory"), 4 * page);
    EXPECT_EQ(umfCtlExec("umf.provider.by_handle.{}.stats.peak_memory.reset", nullptr, 0, provider),
              OK);
    EXPECT_EQ(read("stats.peak_memory"), page);
    free(q, page);
    void *ptr = nullptr;
    EXPECT_NE(umfMemoryProviderAlloc(provider, SIZE_MAX / 2, 0, &ptr), OK);
    EXPECT_EQ(read("stats.allocated_memory"), 0u) << "a failed allocation does not count";
    EXPECT_EQ(read("stats.peak_memory"), page);
    p = alloc(10);
    EXPECT_EQ(read("stats.allocated_memory"), 10u);
    free(p, 10);
}

TEST_P(Provider, StatisticsAreOfThisProviderOnly) {
    if (source->fake) {
        GTEST_SKIP() << "a user's provider has its own";
    }
    auto other = GetParam().make();
    void *ptr = nullptr;
    char *p = alloc(page);
    ASSERT_EQ(umfMemoryProviderAlloc(other->handle, 3 * page, 0, &ptr), OK);
    EXPECT_EQ(read("stats.allocated_memory"), page);
    EXPECT_EQ(read("stats.peak_memory"), page);
    EXPECT_EQ(other->live_bytes(), 3 * page);
    EXPECT_EQ(umfMemoryProviderFree(other->handle, ptr, 3 * page), OK);
    free(p, page);
}

TEST_P(Provider, NodesGivenAsArguments) {
    if (source->fake) {
        GTEST_SKIP() << "a user's provider has its own";
    }
    char *p = alloc(page);
    size_t value = 0;
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.{}.{}", &value, sizeof(value), provider, "stats",
                        "allocated_memory"),
              OK);
    EXPECT_EQ(value, page);
    value = 0;
    EXPECT_EQ(umfCtlGet("{}.{}.{}.{}.{}.{}", &value, sizeof(value), "umf", "provider", "by_handle",
                        provider, "stats", "peak_memory"),
              OK);
    EXPECT_EQ(value, page);
    EXPECT_EQ(umfCtlExec("umf.provider.by_handle.{}.stats.{}.{}", nullptr, 0, provider,
                         "peak_memory", "reset", "surplus"),
              OK);
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.{}.{}", &value, sizeof(value), provider, "stats",
                        "nothing"),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
    free(p, page);
}

TEST_P(Provider, ControlRefusesWhatIsNotThere) {
    if (source->fake) {
        GTEST_SKIP() << "a user's provider has its own";
    }
    size_t value = 0;
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.stats.nothing", &value, sizeof(value), provider),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
    EXPECT_EQ(
        umfCtlSet("umf.provider.by_handle.{}.stats.peak_memory", &value, sizeof(value), provider),
        BAD);
    EXPECT_EQ(umfCtlExec("umf.provider.by_handle.{}.stats.allocated_memory", nullptr, 0, provider),
              BAD);
    char small = 0;
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.stats.peak_memory", &small, 1, provider), BAD);
}

TEST_P(Provider, ThreadsShareOne) {
    const size_t rounds = scaled(400);
    std::atomic<int> failures{0};
    run_threads(4, [&](int t) {
        for (size_t i = 0; i < rounds; i++) {
            size_t size = page * (1 + (i * 7 + static_cast<size_t>(t)) % 8);
            void *ptr = nullptr;
            if (umfMemoryProviderAlloc(provider, size, 0, &ptr) != OK) {
                failures++;
                continue;
            }
            auto p = static_cast<char *>(ptr);
            p[0] = p[size - 1] = static_cast<char>(t);
            if (GetParam().can_split && size > page &&
                umfMemoryProviderAllocationSplit(provider, p, size, page) == OK) {
                failures += p[size - 1] != t;
                failures += umfMemoryProviderFree(provider, p + page, size - page) != OK;
                size = page;
            }
            failures += p[0] != t || umfMemoryProviderFree(provider, p, size) != OK;
        }
    });
    EXPECT_EQ(failures, 0);
}

// Freed memory goes back to the system, and no descriptor is left open.
TEST_P(Provider, ChurnDoesNotGrow) {
    const size_t size = 1u << 20;
    size_t rounds = scaled(400);
    auto resident = [] {
        long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        EXPECT_EQ(fscanf(file, "%*d %ld", &pages), 1);
        fclose(file);
        return static_cast<size_t>(pages) * 4096;
    };
    size_t before = resident();
    for (size_t i = 0; i < rounds; i++) {
        char *p = alloc(size);
        memset(p, 1, size);
        free(p, size);
    }
    EXPECT_LT(resident(), before + (128u << 20));
}

TEST_P(Provider, CreateAndDestroyLeaveNoDescriptor) {
    auto next_descriptor = [] {
        int fd = dup(0);
        close(fd);
        return fd;
    };
    int before = next_descriptor();
    for (int i = 0; i < 50; i++) {
        auto other = GetParam().make();
        ASSERT_NE(other->handle, nullptr);
        void *ptr = nullptr;
        ASSERT_EQ(umfMemoryProviderAlloc(other->handle, page, 0, &ptr), OK);
        ASSERT_EQ(umfMemoryProviderFree(other->handle, ptr, page), OK);
    }
    EXPECT_EQ(next_descriptor(), before);
}

INSTANTIATE_TEST_SUITE_P(Each, Provider, testing::ValuesIn(source_kinds()),
                         [](const auto &test) { return test.param.label; });

// --- parameters common to built-in kinds ---

TEST(OsParams, SettersCheck) {
    umf_os_memory_provider_params_handle_t params = nullptr;
    EXPECT_EQ(umfOsMemoryProviderParamsCreate(nullptr), BAD);
    EXPECT_EQ(umfOsMemoryProviderParamsDestroy(nullptr), OK);
    ASSERT_EQ(umfOsMemoryProviderParamsCreate(&params), OK);
    EXPECT_EQ(umfOsMemoryProviderParamsSetName(params, nullptr), BAD);
    EXPECT_EQ(umfOsMemoryProviderParamsSetName(params, std::string(100, 'n').c_str()), OK);
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider), OK);
    EXPECT_EQ(umfOsMemoryProviderParamsDestroy(params), OK);
    const char *name = nullptr;
    ASSERT_EQ(umfMemoryProviderGetName(provider, &name), OK);
    EXPECT_EQ(std::string(name), std::string(63, 'n')) << "cut, and kept after the parameters went";
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST(FixedParams, SettersCheck) {
    static char memory[1 << 16];
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    EXPECT_EQ(umfFixedMemoryProviderParamsCreate(memory, sizeof(memory), nullptr), BAD);
    EXPECT_EQ(umfFixedMemoryProviderParamsCreate(nullptr, 1, &params), BAD);
    EXPECT_EQ(umfFixedMemoryProviderParamsCreate(memory, 0, &params), BAD);
    EXPECT_EQ(params, nullptr);
    ASSERT_EQ(umfFixedMemoryProviderParamsCreate(memory, sizeof(memory), &params), OK);
    EXPECT_EQ(umfFixedMemoryProviderParamsSetMemory(params, nullptr, 1), BAD);
    EXPECT_EQ(umfFixedMemoryProviderParamsSetMemory(params, memory, 0), BAD);
    EXPECT_EQ(umfFixedMemoryProviderParamsSetName(params, nullptr), BAD);
    EXPECT_EQ(umfFixedMemoryProviderParamsDestroy(params), OK);
    EXPECT_EQ(umfFixedMemoryProviderParamsDestroy(nullptr), OK);
}

TEST(FileParams, SettersCheck) {
    umf_file_memory_provider_params_handle_t params = nullptr;
    EXPECT_EQ(umfFileMemoryProviderParamsCreate("x", nullptr), BAD);
    EXPECT_EQ(umfFileMemoryProviderParamsCreate(nullptr, &params), BAD);
    EXPECT_EQ(umfFileMemoryProviderParamsCreate("", &params), BAD);
    EXPECT_EQ(params, nullptr);
    ASSERT_EQ(umfFileMemoryProviderParamsCreate("/no/such/folder/file", &params), OK);
    EXPECT_EQ(umfFileMemoryProviderParamsSetPath(params, nullptr), BAD);
    EXPECT_EQ(umfFileMemoryProviderParamsSetPath(params, ""), BAD);
    EXPECT_EQ(umfFileMemoryProviderParamsSetName(params, nullptr), BAD);
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfMemoryProviderCreate(umfFileMemoryProviderOps(), params, &provider), BAD);
    EXPECT_EQ(provider, nullptr);
    EXPECT_EQ(umfFileMemoryProviderParamsDestroy(params), OK);
    EXPECT_EQ(umfFileMemoryProviderParamsDestroy(nullptr), OK);
}

TEST(DevDaxParams, SettersCheck) {
    umf_devdax_memory_provider_params_handle_t params = nullptr;
    EXPECT_EQ(umfDevDaxMemoryProviderParamsCreate("/dev/dax0.0", 1, nullptr), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsCreate(nullptr, 1, &params), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsCreate("", 1, &params), BAD);
    EXPECT_EQ(params, nullptr);
    ASSERT_EQ(umfDevDaxMemoryProviderParamsCreate("/dev/dax_none", 0, &params), OK);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsSetDeviceDax(params, nullptr, 1), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsSetProtection(params, 0), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsSetProtection(params, 16), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsSetName(params, nullptr), BAD);
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfMemoryProviderCreate(umfDevDaxMemoryProviderOps(), params, &provider), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsSetDeviceDax(params, "/dev/dax_none", 2u << 20), OK);
    EXPECT_EQ(umfMemoryProviderCreate(umfDevDaxMemoryProviderOps(), params, &provider), BAD);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsSetDeviceDax(params, "/dev/null", 2u << 20), OK);
    EXPECT_EQ(umfMemoryProviderCreate(umfDevDaxMemoryProviderOps(), params, &provider), BAD);
    EXPECT_EQ(provider, nullptr);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsDestroy(params), OK);
    EXPECT_EQ(umfDevDaxMemoryProviderParamsDestroy(nullptr), OK);
}

// --- native errors: one for each kind and thread ---

int32_t native_error(umf_memory_provider_handle_t provider) {
    const char *text = nullptr;
    int32_t error = -1;
    EXPECT_EQ(umfMemoryProviderGetLastNativeError(provider, &text, &error), OK);
    return error;
}

TEST(NativeErrors, AreKeptPerThreadAndKind) {
    constexpr umf_result_t SPECIFIC = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
    auto os = make_os(UMF_MEM_MAP_PRIVATE), other_os = make_os(UMF_MEM_MAP_PRIVATE);
    auto fixed = make_fixed(1u << 20);
    void *ptr = nullptr;
    char foreign = 0;
    std::thread([&] {
        EXPECT_EQ(umfMemoryProviderAlloc(os->handle, 0, 0, &ptr), SPECIFIC);
        EXPECT_EQ(native_error(os->handle), UMF_OS_RESULT_ERROR_ALLOC_FAILED);
        EXPECT_EQ(native_error(other_os->handle), UMF_OS_RESULT_ERROR_ALLOC_FAILED)
            << "one value for the kind";
        int32_t of_fixed = native_error(fixed->handle);
        EXPECT_TRUE(of_fixed == 0 || of_fixed == UMF_FIXED_RESULT_SUCCESS) << of_fixed;
        EXPECT_EQ(umfMemoryProviderPurgeForce(fixed->handle, &foreign, 1), SPECIFIC);
        EXPECT_EQ(native_error(fixed->handle), UMF_FIXED_RESULT_ERROR_PURGE_FORCE_FAILED);
        EXPECT_EQ(native_error(os->handle), UMF_OS_RESULT_ERROR_ALLOC_FAILED);
        std::thread([&] {
            int32_t seen = native_error(os->handle);
            EXPECT_TRUE(seen == 0 || seen == UMF_OS_RESULT_SUCCESS) << seen;
            EXPECT_EQ(umfMemoryProviderFree(os->handle, &foreign, 0), SPECIFIC);
            EXPECT_EQ(native_error(os->handle), UMF_OS_RESULT_ERROR_FREE_FAILED);
        }).join();
        EXPECT_EQ(native_error(os->handle), UMF_OS_RESULT_ERROR_ALLOC_FAILED)
            << "not changed by another thread";
    }).join();
}

// --- tables written by users ---

umf_memory_provider_handle_t const untouched =
    reinterpret_cast<umf_memory_provider_handle_t>(uintptr_t{0x1234});

umf_result_t create(const umf_memory_provider_ops_t &ops, FakeProvider &fake,
                    umf_memory_provider_handle_t *handle) {
    *handle = untouched;
    return umfMemoryProviderCreate(&ops, &fake, handle);
}

// A table without one of its operations is refused before any is called.
void expect_needed(const umf_memory_provider_ops_t &whole, std::initializer_list<TableMember> all) {
    for (TableMember each : all) {
        FakeProvider fake;
        umf_memory_provider_handle_t handle = nullptr;
        EXPECT_EQ(create(without(whole, each), fake, &handle), BAD) << each.name;
        EXPECT_EQ(handle, untouched);
        EXPECT_EQ(fake.initializes, 0u) << each.name;
    }
}

TEST(UserTable, RequiredOperations) {
    using Ops = umf_memory_provider_ops_t;
    // Merge and split come together.
    expect_needed(
        FakeProvider::table(),
        {TABLE_MEMBER(Ops, initialize), TABLE_MEMBER(Ops, finalize), TABLE_MEMBER(Ops, alloc),
         TABLE_MEMBER(Ops, free), TABLE_MEMBER(Ops, get_last_native_error),
         TABLE_MEMBER(Ops, get_recommended_page_size), TABLE_MEMBER(Ops, get_min_page_size),
         TABLE_MEMBER(Ops, get_name), TABLE_MEMBER(Ops, get_cache_line_size),
         TABLE_MEMBER(Ops, ext_allocation_split), TABLE_MEMBER(Ops, ext_allocation_merge)});
}

umf_result_t ipc_size(void *, size_t *size) {
    *size = 7;
    return OK;
}
umf_result_t ipc_get(void *, const void *, size_t, void *) {
    return UMF_RESULT_ERROR_USER_SPECIFIC;
}
umf_result_t ipc_put(void *, void *) {
    return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}
umf_result_t ipc_open(void *, void *, void **) {
    return UMF_RESULT_ERROR_UNKNOWN;
}
umf_result_t ipc_close(void *, void *, size_t) {
    return UMF_RESULT_ERROR_USER_SPECIFIC;
}
umf_result_t property(void *, const void *, umf_memory_property_id_t, void *) {
    return OK;
}
umf_result_t property_size(void *, umf_memory_property_id_t, size_t *) {
    return OK;
}

umf_memory_provider_ops_t full_table() {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.ext_get_ipc_handle_size = ipc_size;
    ops.ext_get_ipc_handle = ipc_get;
    ops.ext_put_ipc_handle = ipc_put;
    ops.ext_open_ipc_handle = ipc_open;
    ops.ext_close_ipc_handle = ipc_close;
    ops.ext_get_allocation_properties = property;
    ops.ext_get_allocation_properties_size = property_size;
    return ops;
}

TEST(UserTable, AllOrNone) {
    using Ops = umf_memory_provider_ops_t;
    expect_needed(full_table(),
                  {TABLE_MEMBER(Ops, ext_get_ipc_handle_size),
                   TABLE_MEMBER(Ops, ext_get_ipc_handle), TABLE_MEMBER(Ops, ext_put_ipc_handle),
                   TABLE_MEMBER(Ops, ext_open_ipc_handle), TABLE_MEMBER(Ops, ext_close_ipc_handle),
                   TABLE_MEMBER(Ops, ext_get_allocation_properties),
                   TABLE_MEMBER(Ops, ext_get_allocation_properties_size)});
}

TEST(UserTable, ResultsArePassedOnAndRecorded) {
    FakeProvider fake;
    umf_memory_provider_handle_t provider, failed = nullptr;
    ASSERT_EQ(create(full_table(), fake, &provider), OK);
    size_t size = 0;
    char data[16];
    void *ptr = nullptr;
    EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &size), OK);
    EXPECT_EQ(size, 7u);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, data, 1, data),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, data), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, data, &ptr), UMF_RESULT_ERROR_UNKNOWN);
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, data, 1), UMF_RESULT_ERROR_USER_SPECIFIC);
    ASSERT_EQ(umfGetLastFailedMemoryProvider(&failed), OK);
    EXPECT_EQ(failed, provider);
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    fake.alloc_fails = true;
    EXPECT_EQ(umfMemoryProviderAlloc(provider, 1, 0, &ptr), UMF_RESULT_ERROR_USER_SPECIFIC);
    fake.free_fails = true;
    EXPECT_EQ(umfMemoryProviderFree(provider, data, 1), UMF_RESULT_ERROR_USER_SPECIFIC);
    const char *text = nullptr;
    int32_t error = 0;
    EXPECT_EQ(umfMemoryProviderGetLastNativeError(provider, &text, &error), OK);
    EXPECT_STREQ(text, "fake error");
    EXPECT_EQ(error, 4711);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// A provider whose operations all return a given result.

umf_result_t answer = OK;

umf_memory_provider_ops_t obedient_table() {
    umf_memory_provider_ops_t ops = full_table();
    ops.alloc = [](void *, size_t, size_t, void **) { return answer; };
    ops.free = [](void *, void *, size_t) { return answer; };
    ops.get_last_native_error = [](void *, const char **, int32_t *) { return answer; };
    ops.get_recommended_page_size = [](void *, size_t, size_t *) { return answer; };
    ops.get_min_page_size = [](void *, const void *, size_t *) { return answer; };
    ops.get_cache_line_size = [](void *, size_t *) { return answer; };
    ops.get_name = [](void *, const char **name) {
        *name = "obedient";
        return answer;
    };
    ops.ext_purge_lazy = [](void *, void *, size_t) { return answer; };
    ops.ext_purge_force = [](void *, void *, size_t) { return answer; };
    ops.ext_allocation_split = [](void *, void *, size_t, size_t) { return answer; };
    ops.ext_allocation_merge = [](void *, void *, void *, size_t) { return answer; };
    ops.ext_get_ipc_handle_size = [](void *, size_t *) { return answer; };
    ops.ext_get_ipc_handle = [](void *, const void *, size_t, void *) { return answer; };
    ops.ext_put_ipc_handle = [](void *, void *) { return answer; };
    ops.ext_open_ipc_handle = [](void *, void *, void **) { return answer; };
    ops.ext_close_ipc_handle = [](void *, void *, size_t) { return answer; };
    return ops;
}

struct Operation {
    const char *name;
    std::function<umf_result_t(umf_memory_provider_handle_t)> call;
};

using Handle = umf_memory_provider_handle_t;
char some[16];
size_t a_size;
void *a_pointer;
const char *a_text;
int32_t an_error;

const Operation recorded[] = {
    {"alloc", [](Handle h) { return umfMemoryProviderAlloc(h, 1, 0, &a_pointer); }},
    {"free", [](Handle h) { return umfMemoryProviderFree(h, some, 1); }},
    {"recommended",
     [](Handle h) { return umfMemoryProviderGetRecommendedPageSize(h, 1, &a_size); }},
    {"min", [](Handle h) { return umfMemoryProviderGetMinPageSize(h, nullptr, &a_size); }},
    {"line", [](Handle h) { return umfMemoryProviderGetCacheLineSize(h, &a_size); }},
    {"name", [](Handle h) { return umfMemoryProviderGetName(h, &a_text); }},
    {"purge lazy", [](Handle h) { return umfMemoryProviderPurgeLazy(h, some, 1); }},
    {"purge force", [](Handle h) { return umfMemoryProviderPurgeForce(h, some, 1); }},
    {"split", [](Handle h) { return umfMemoryProviderAllocationSplit(h, some, 2, 1); }},
    {"merge", [](Handle h) { return umfMemoryProviderAllocationMerge(h, some, some + 1, 2); }},
    {"ipc size", [](Handle h) { return umfMemoryProviderGetIPCHandleSize(h, &a_size); }},
    {"ipc get", [](Handle h) { return umfMemoryProviderGetIPCHandle(h, some, 1, some); }},
    {"ipc put", [](Handle h) { return umfMemoryProviderPutIPCHandle(h, some); }},
    {"ipc open", [](Handle h) { return umfMemoryProviderOpenIPCHandle(h, some, &a_pointer); }},
    {"ipc close", [](Handle h) { return umfMemoryProviderCloseIPCHandle(h, some, 1); }},
};

TEST(UserTable, AnyResultIsPassedOn) {
    FakeProvider fake;
    Handle provider = nullptr;
    answer = OK;
    ASSERT_EQ(create(obedient_table(), fake, &provider), OK);
    for (int result : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x7ffffffe, 4711}) {
        answer = static_cast<umf_result_t>(result);
        for (const Operation &operation : recorded) {
            EXPECT_EQ(operation.call(provider), answer) << operation.name;
        }
        EXPECT_EQ(umfMemoryProviderGetLastNativeError(provider, &a_text, &an_error), answer);
    }
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

class LastFailed : public testing::Test {
  protected:
    FakeProvider fake, marker_fake;
    Handle provider = nullptr, marker = marker_fake.create();

    void SetUp() override {
        answer = OK;
        ASSERT_EQ(create(obedient_table(), fake, &provider), OK);
        marker_fake.alloc_fails = true;
        EXPECT_NE(umfMemoryProviderAlloc(marker, 1, 0, &a_pointer), OK);
        answer = UMF_RESULT_ERROR_USER_SPECIFIC;
    }
    void TearDown() override {
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        EXPECT_EQ(umfMemoryProviderDestroy(marker), OK);
    }
    Handle last() {
        Handle failed = nullptr;
        EXPECT_EQ(umfGetLastFailedMemoryProvider(&failed), OK);
        return failed;
    }
};

TEST_F(LastFailed, IsRecordedByEachOperation) {
    for (const Operation &operation : recorded) {
        ASSERT_NE(umfMemoryProviderAlloc(marker, 1, 0, &a_pointer), OK);
        ASSERT_EQ(last(), marker);
        EXPECT_EQ(operation.call(provider), answer);
        EXPECT_EQ(last(), provider) << operation.name;
    }
}

TEST_F(LastFailed, IsNotRecordedByASuccess) {
    answer = OK;
    for (const Operation &operation : recorded) {
        EXPECT_EQ(operation.call(provider), OK);
        EXPECT_EQ(last(), marker) << operation.name;
    }
}

TEST_F(LastFailed, IsNotRecordedByCreateDestroyAndNativeError) {
    EXPECT_EQ(umfMemoryProviderGetLastNativeError(provider, &a_text, &an_error), answer);
    EXPECT_EQ(last(), marker);
    Handle other = nullptr;
    EXPECT_EQ(create(obedient_table(), fake, &other), answer) << "its get_name fails";
    EXPECT_EQ(last(), marker);
    answer = OK;
    umf_memory_provider_ops_t ops = obedient_table();
    ops.finalize = [](void *) { return UMF_RESULT_ERROR_USER_SPECIFIC; };
    ASSERT_EQ(create(ops, fake, &other), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(other), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(last(), marker);
}

// No handle that is gone is given to anybody in this thread.
TEST_F(LastFailed, IsForgottenWithItsProvider) {
    EXPECT_EQ(umfMemoryProviderAlloc(provider, 1, 0, &a_pointer), answer);
    EXPECT_EQ(last(), provider);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    provider = nullptr;
    EXPECT_EQ(last(), nullptr);
}

TEST(UserTable, OptionalOperationsThatAreAbsent) {
    FakeProvider fake;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.ext_purge_lazy = nullptr;
    ops.ext_purge_force = nullptr;
    ops.ext_allocation_merge = nullptr;
    ops.ext_allocation_split = nullptr;
    ops.ext_ctl = nullptr;
    umf_memory_provider_handle_t provider;
    ASSERT_EQ(create(ops, fake, &provider), OK);
    char data[16];
    size_t size = 0;
    void *ptr = nullptr;
    umf_memory_provider_handle_t failed = nullptr;
    EXPECT_EQ(umfMemoryProviderPurgeLazy(provider, data, 1), NONE);
    EXPECT_EQ(umfGetLastFailedMemoryProvider(&failed), OK);
    EXPECT_EQ(failed, provider) << "an answer of the provider's, as if it were its callback's";
    EXPECT_EQ(umfMemoryProviderPurgeForce(provider, data, 1), NONE);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, data, 2, 1), NONE);
    EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, data, data + 1, 2), NONE);
    EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &size), NONE);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, data, 1, data), NONE);
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, data), NONE);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, data, &ptr), NONE);
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, data, 1), NONE);
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.x", &size, sizeof(size), provider),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

using Journal = std::vector<std::string>;

TEST(UserTable, CreationCallsInOrder) {
    FakeProvider fake;
    umf_memory_provider_handle_t provider;
    ASSERT_EQ(create(FakeProvider::table(), fake, &provider), OK);
    EXPECT_EQ(fake.journal, (Journal{"initialize", "get_name", "post_initialize"}));
    EXPECT_EQ(fake.params_seen, &fake);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    EXPECT_EQ(fake.journal, (Journal{"initialize", "get_name", "post_initialize", "finalize"}));
}

TEST(UserTable, FailureOfInitialize) {
    FakeProvider fake;
    fake.initialize_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    umf_memory_provider_handle_t provider;
    EXPECT_EQ(create(FakeProvider::table(), fake, &provider), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(provider, untouched);
    EXPECT_EQ(fake.journal, (Journal{"initialize"}));
}

TEST(UserTable, FailureOfGetName) {
    FakeProvider fake;
    fake.get_name_result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    umf_memory_provider_handle_t provider;
    EXPECT_EQ(create(FakeProvider::table(), fake, &provider), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(provider, untouched);
    EXPECT_EQ(fake.journal, (Journal{"initialize", "get_name", "finalize"}));
}

TEST(UserTable, FailureOfPostInitialize) {
    FakeProvider fake;
    fake.post_initialize_result = UMF_RESULT_ERROR_USER_SPECIFIC;
    umf_memory_provider_handle_t provider;
    EXPECT_EQ(create(FakeProvider::table(), fake, &provider), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(provider, untouched);
    EXPECT_EQ(fake.journal, (Journal{"initialize", "get_name", "post_initialize", "finalize"}));
}

TEST(UserTable, PostInitializeMayBeUnknownOrSucceed) {
    for (umf_result_t result : {OK, UMF_RESULT_ERROR_INVALID_CTL_PATH}) {
        FakeProvider fake;
        fake.post_initialize_result = result;
        umf_memory_provider_handle_t provider;
        ASSERT_EQ(create(FakeProvider::table(), fake, &provider), OK);
        EXPECT_EQ(fake.post_initializes, 1u);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.finalizes, 1u);
    }
}

TEST(UserTable, OddNamesOnlyWarn) {
    for (const std::string &name : {std::string(65, 'x'), std::string("a b.c"), std::string(),
                                    std::string("new\nline"), std::string(100000, 'x')}) {
        FakeProvider fake;
        fake.name = name;
        umf_memory_provider_handle_t provider;
        LogFile log;
        ASSERT_EQ(create(FakeProvider::table(), fake, &provider), OK) << name;
        EXPECT_EQ(log.count("[WARN  UMF]"), 1u) << log.text();
        EXPECT_EQ(log.count("\n"), 1u) << "one line, whatever the name";
        const char *got = nullptr;
        ASSERT_EQ(umfMemoryProviderGetName(provider, &got), OK);
        EXPECT_EQ(name, got);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
}

TEST(UserTable, NamesThatCanBeUsedAreNotWarnedAbout) {
    for (const std::string &name :
         {std::string(64, 'x'), std::string("My-Name_7"), std::string("-")}) {
        FakeProvider fake;
        fake.name = name;
        umf_memory_provider_handle_t provider;
        LogFile log;
        ASSERT_EQ(create(FakeProvider::table(), fake, &provider), OK);
        EXPECT_EQ(log.text(), "");
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
}

// Stored defaults are writes between get_name and post_initialize; what they answer is ignored.
TEST(UserTable, DefaultsReachTablesOfEveryVersion) {
    int value = 5;
    ASSERT_EQ(umfCtlSet("umf.provider.default.with_defaults.x", &value, sizeof(value)), OK);
    ASSERT_EQ(umfCtlSet("umf.provider.default.with_defaults.y", &value, sizeof(value)), OK);
    for (uint32_t version :
         {UMF_MAKE_VERSION(1, 0), UMF_MAKE_VERSION(1, 1), UMF_MAKE_VERSION(1, 2)}) {
        FakeProvider fake;
        fake.name = "with_defaults";
        umf_memory_provider_ops_t ops = full_table();
        ops.version = version;
        umf_memory_provider_handle_t provider;
        ASSERT_EQ(create(ops, fake, &provider), OK) << version;
        EXPECT_EQ(fake.ctls, 2u + fake.post_initializes) << version;
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        ops.ext_ctl = nullptr;
        ASSERT_EQ(create(ops, fake, &provider), OK) << version;
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
}

umf_result_t finalize_fails(void *) {
    return UMF_RESULT_ERROR_USER_SPECIFIC;
}

TEST(UserTable, ResultOfFinalizeIsReturned) {
    FakeProvider fake;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.finalize = finalize_fails;
    umf_memory_provider_handle_t provider;
    ASSERT_EQ(create(ops, fake, &provider), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_ERROR_USER_SPECIFIC);
}

umf_result_t stores_null(const void *, void **provider) {
    *provider = nullptr;
    return OK;
}
umf_result_t alloc_of_null(void *provider, size_t, size_t, void **ptr) {
    *ptr = nullptr;
    return provider ? UMF_RESULT_ERROR_UNKNOWN : OK;
}
umf_result_t free_of_null(void *provider, void *, size_t) {
    return provider ? UMF_RESULT_ERROR_UNKNOWN : OK;
}
umf_result_t finalize_of_null(void *provider) {
    return provider ? UMF_RESULT_ERROR_UNKNOWN : OK;
}

TEST(UserTable, PrivatePointerMayBeNull) {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.initialize = stores_null;
    ops.finalize = finalize_of_null;
    ops.alloc = alloc_of_null;
    ops.free = free_of_null;
    ops.ext_ctl = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, nullptr, &provider), OK);
    void *ptr = &ops;
    EXPECT_EQ(umfMemoryProviderAlloc(provider, 1, 0, &ptr), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 1), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// A table that ends where its version says, right before a page that faults.
class ShortTable {
  public:
    ShortTable(const umf_memory_provider_ops_t &ops, size_t size) {
        size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        mapped = 2 * page;
        memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(static_cast<char *>(memory) + page, page, PROT_NONE);
        table = static_cast<char *>(memory) + page - size;
        memcpy(table, &ops, size);
    }
    ~ShortTable() {
        munmap(memory, mapped);
    }
    ShortTable(const ShortTable &) = delete;
    ShortTable &operator=(const ShortTable &) = delete;
    const umf_memory_provider_ops_t *ops() {
        return static_cast<const umf_memory_provider_ops_t *>(table);
    }

  private:
    void *memory = nullptr, *table = nullptr;
    size_t mapped = 0;
};

constexpr size_t SIZE_1_0 = offsetof(umf_memory_provider_ops_t, ext_get_allocation_properties);
constexpr size_t SIZE_1_1 = offsetof(umf_memory_provider_ops_t, get_cache_line_size);

TEST(OldTables, AreReadUpToTheirEnd) {
    struct {
        uint32_t version;
        size_t size;
        size_t post_initializes;
    } const cases[] = {
        {UMF_MAKE_VERSION(1, 0), SIZE_1_0, 0},
        {UMF_MAKE_VERSION(0, 0), SIZE_1_0, 0},
        {UMF_MAKE_VERSION(7, 0), SIZE_1_0, 0},
        {UMF_MAKE_VERSION(1, 1), SIZE_1_1, 1},
        {UMF_MAKE_VERSION(2, 1), SIZE_1_1, 1},
        {UMF_MAKE_VERSION(1, 2), sizeof(umf_memory_provider_ops_t), 1},
    };
    for (const auto &c : cases) {
        FakeProvider fake;
        fake.cache_line = 128;
        umf_memory_provider_ops_t ops = full_table();
        ops.version = c.version;
        bool is_current = c.version == UMF_PROVIDER_OPS_VERSION_CURRENT;
        umf_memory_provider_handle_t provider = nullptr;
        {
            ShortTable table(ops, c.size); // gone afterwards: it was copied
            LogFile log;
            ASSERT_EQ(umfMemoryProviderCreate(table.ops(), &fake, &provider), OK) << c.version;
            EXPECT_EQ(log.count("[WARN  UMF]"), is_current ? 0u : 1u) << log.text();
        }
        size_t line = 0;
        EXPECT_EQ(umfMemoryProviderGetCacheLineSize(provider, &line), OK);
        EXPECT_EQ(line, is_current ? 128u : 64u);
        umf_memory_pool_handle_t pool = nullptr;
        umf_memory_properties_handle_t handle = nullptr;
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
        ASSERT_EQ(umfGetMemoryPropertiesHandle(umfPoolMalloc(pool, 100), &handle), OK);
        EXPECT_EQ(umfGetMemoryPropertySize(handle, UMF_MEMORY_PROPERTY_CONTEXT, &line),
                  c.size == SIZE_1_0 ? NONE : OK)
            << "the property callbacks came with 1.1";
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(fake.post_initializes, c.post_initializes);
        void *ptr = nullptr;
        EXPECT_EQ(umfMemoryProviderAlloc(provider, 100, 0, &ptr), OK);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 100), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
}

TEST(OldTables, UnknownMinorVersions) {
    for (uint32_t version : {uint32_t{UMF_MAKE_VERSION(1, 3)}, uint32_t{UMF_MAKE_VERSION(2, 2)},
                             uint32_t{UMF_MAKE_VERSION(0, 99)}, uint32_t{0xffffffff}}) {
        FakeProvider fake;
        umf_memory_provider_ops_t ops = full_table();
        ops.version = version;
        umf_memory_provider_handle_t provider;
        LogFile log;
        EXPECT_EQ(create(ops, fake, &provider), NONE) << version;
        EXPECT_EQ(log.count("[WARN  UMF]"), 1u) << log.text();
        EXPECT_EQ(provider, untouched);
        EXPECT_EQ(fake.initializes, 0u);
    }
}

TEST(OldTables, PropertiesOfATableBefore11CountAsAbsent) {
    FakeProvider fake;
    umf_memory_provider_ops_t ops = full_table();
    ops.version = UMF_MAKE_VERSION(1, 0);
    ops.ext_get_allocation_properties = nullptr; // one of two: would be refused in 1.1
    umf_memory_provider_handle_t provider;
    ASSERT_EQ(create(ops, fake, &provider), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

} // namespace
