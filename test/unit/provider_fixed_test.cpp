/* providers/fixed and the rules of providers/shared/carve, through the ops table. */
#include <cstring>
#include <random>
#include <string>
#include <sys/mman.h>
#include <vector>

#include <gtest/gtest.h>

#include <umf/plugin.h>
#include <umf/providers/provider_fixed_memory.h>

#include "fakes/threads.h"

#include "fault.h"
#include "provider.h"

extern "C" {
#include "base/meta.h"
extern const umf_memory_provider_descriptor_t umf_fixed_descriptor;
}

namespace {

const size_t page = umf_os_page_size();

class Params {
  public:
    umf_fixed_memory_provider_params_handle_t handle = nullptr;
    Params(void *ptr, size_t size) {
        EXPECT_EQ(umfFixedMemoryProviderParamsCreate(ptr, size, &handle), UMF_RESULT_SUCCESS);
    }
    ~Params() {
        EXPECT_EQ(umfFixedMemoryProviderParamsDestroy(handle), UMF_RESULT_SUCCESS);
    }
};

class fixed : public testing::Test {
  protected:
    static constexpr size_t pages = 64;
    size_t size = pages * page;
    char *memory = static_cast<char *>(
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    void TearDown() override {
        munmap(memory, size);
    }
    Provider make() {
        return make(memory, size);
    }
    Provider make(void *ptr, size_t bytes) {
        return Provider(umfFixedMemoryProviderOps(), Params(ptr, bytes).handle);
    }
};

} // namespace

TEST_F(fixed, ParamsCheckTheirArguments) {
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    EXPECT_EQ(umfFixedMemoryProviderParamsCreate(nullptr, 1, &params),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfFixedMemoryProviderParamsCreate(memory, 0, &params),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfFixedMemoryProviderParamsCreate(memory, SIZE_MAX, &params),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfFixedMemoryProviderParamsCreate(memory, size, nullptr),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(params, nullptr);
    ASSERT_EQ(umfFixedMemoryProviderParamsCreate(memory, size, &params), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfFixedMemoryProviderParamsSetMemory(nullptr, memory, size),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfFixedMemoryProviderParamsSetMemory(params, nullptr, size),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfFixedMemoryProviderParamsSetMemory(params, memory, 0),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfFixedMemoryProviderParamsSetMemory(params, memory, size), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfFixedMemoryProviderParamsSetName(nullptr, "x"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfFixedMemoryProviderParamsSetName(params, nullptr),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfFixedMemoryProviderParamsDestroy(params), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfFixedMemoryProviderParamsDestroy(nullptr), UMF_RESULT_SUCCESS);
    void *provider = nullptr;
    EXPECT_EQ(umfFixedMemoryProviderOps()->initialize(nullptr, &provider),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_F(fixed, NameIsCutTo63) {
    Params params(memory, size);
    std::string name(100, 'n');
    ASSERT_EQ(umfFixedMemoryProviderParamsSetName(params.handle, name.c_str()), UMF_RESULT_SUCCESS);
    Provider provider(umfFixedMemoryProviderOps(), params.handle);
    const char *got;
    ASSERT_EQ(provider.ops->get_name(provider.self, &got), UMF_RESULT_SUCCESS);
    EXPECT_EQ(got, std::string(63, 'n'));
    ASSERT_EQ(provider.ops->get_name(nullptr, &got), UMF_RESULT_SUCCESS);
    EXPECT_STREQ(got, "FIXED");
    EXPECT_EQ(provider.ops->get_name(provider.self, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_F(fixed, Facts) {
    Provider provider = make();
    size_t value = 0;
    EXPECT_EQ(provider.ops->get_min_page_size(provider.self, nullptr, &value), UMF_RESULT_SUCCESS);
    EXPECT_EQ(value, page);
    value = 0;
    EXPECT_EQ(provider.ops->get_recommended_page_size(provider.self, 1, &value),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(value, page);
    EXPECT_EQ(provider.ops->get_cache_line_size(provider.self, &value), UMF_RESULT_SUCCESS);
    EXPECT_EQ(value, 64u);
    EXPECT_EQ(provider.ops->ext_purge_lazy, nullptr);
    EXPECT_EQ(provider.ops->ext_get_ipc_handle, nullptr);
}

TEST_F(fixed, FreshRangeIsServedUpwardsUntilItIsFull) {
    Provider provider = make();
    for (size_t i = 0; i < pages; i++) {
        ASSERT_EQ(provider.must_alloc(i % 2 ? page : 1), memory + i * page);
    }
    void *ptr = memory;
    EXPECT_EQ(provider.alloc(1, 0, &ptr), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(ptr, memory) << "output written on failure";
}

TEST_F(fixed, SizesAndAlignmentsThatCannotBe) {
    Provider provider = make();
    void *ptr = nullptr;
    EXPECT_EQ(provider.alloc(SIZE_MAX, 0, &ptr), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(provider.alloc(SIZE_MAX - page, 0, &ptr), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(provider.alloc(size + 1, 0, &ptr), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(provider.alloc(0, 0, &ptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.alloc(page, size_t{1} << 62, &ptr), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(provider.alloc(page, 3, &ptr), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    EXPECT_EQ(provider.alloc(page, page * 3, &ptr), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    EXPECT_EQ(provider.alloc(page, page + 8, &ptr), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    EXPECT_EQ(provider.allocated(), 0u);
    for (size_t alignment = 1; alignment <= page * 8; alignment *= 2) {
        char *got = provider.must_alloc(page, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(got) % alignment, 0u);
        EXPECT_EQ(provider.free(got, page), UMF_RESULT_SUCCESS);
    }
}

TEST_F(fixed, FreeChecksWhatItIsGiven) {
    Provider provider = make();
    char *ptr = provider.must_alloc(2 * page);
    EXPECT_EQ(provider.free(nullptr, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(nullptr, 17), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr + page, page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.free(ptr + 1, 0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.free(&provider, 0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.free(ptr, 2 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr, 2 * page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ptr = provider.must_alloc(100);
    EXPECT_EQ(provider.free(ptr, 100), UMF_RESULT_SUCCESS);
    ptr = provider.must_alloc(100);
    EXPECT_EQ(provider.free(ptr, 0), UMF_RESULT_SUCCESS);
    ptr = provider.must_alloc(100);
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS) << "the size in whole pages";
    EXPECT_EQ(provider.allocated(), 0u);
}

TEST_F(fixed, FreedSpaceIsJoined) {
    Provider provider = make();
    std::vector<char *> all;
    for (size_t i = 0; i < pages; i++) {
        all.push_back(provider.must_alloc(page));
    }
    for (size_t i = 0; i < pages; i += 2) {
        ASSERT_EQ(provider.free(all[i], page), UMF_RESULT_SUCCESS);
    }
    void *ptr;
    EXPECT_EQ(provider.alloc(2 * page, 0, &ptr), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    for (size_t i = 1; i < pages; i += 2) {
        ASSERT_EQ(provider.free(all[i], page), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(provider.must_alloc(size), memory);
}

TEST_F(fixed, StatisticsCountWhatWasAskedFor) {
    Provider provider = make();
    char *a = provider.must_alloc(100), *b = provider.must_alloc(page + 1);
    EXPECT_EQ(provider.allocated(), page + 101);
    EXPECT_EQ(provider.free(a, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.allocated(), page + 1);
    EXPECT_EQ(provider.peak(), page + 101);
    EXPECT_EQ(provider.ctl("stats.peak_memory.reset", nullptr, 0, CTL_QUERY_RUNNABLE),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.peak(), page + 1);
    EXPECT_EQ(provider.free(b, page + 1), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.allocated(), 0u);
    size_t value;
    EXPECT_EQ(provider.ctl("post_initialize", nullptr, 0, CTL_QUERY_RUNNABLE),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
    EXPECT_EQ(provider.ctl("stats.unknown", &value, sizeof(value), CTL_QUERY_READ),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
}

TEST_F(fixed, SplitAndMerge) {
    Provider provider = make();
    char *ptr = provider.must_alloc(4 * page);
    EXPECT_EQ(provider.split(ptr, 3 * page, page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.split(ptr + page, 3 * page, page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.split(ptr, 4 * page, 4 * page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ASSERT_EQ(provider.split(ptr, 4 * page, page), UMF_RESULT_SUCCESS);
    ASSERT_EQ(provider.split(ptr + page, 3 * page, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr, 4 * page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.merge(ptr, ptr + 2 * page, 3 * page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.merge(ptr, ptr + page, 3 * page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ASSERT_EQ(provider.merge(ptr, ptr + page, 2 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr + page, page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.allocated(), 4 * page);
    EXPECT_EQ(provider.free(ptr + 2 * page, 2 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.merge(ptr, ptr + 2 * page, 4 * page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.free(ptr, 2 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.split(ptr, 4 * page, page), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(provider.allocated(), 0u);
}

/* Requested bytes are neither lost nor invented when odd sizes are split and merged. */
TEST_F(fixed, SplitOfOddSizes) {
    Provider provider = make();
    char *ptr = provider.must_alloc(page + 100);
    ASSERT_EQ(provider.split(ptr, page + 100, 1000), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr, 1000), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.allocated(), page - 900);
    EXPECT_EQ(provider.free(ptr + 1000, page - 900), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.allocated(), 0u);

    ptr = provider.must_alloc(100);
    ASSERT_EQ(provider.split(ptr, page, 200), UMF_RESULT_SUCCESS);
    ASSERT_EQ(provider.merge(ptr, ptr + 200, page), UMF_RESULT_SUCCESS);
    ASSERT_EQ(provider.split(ptr, page, 50), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr + 50, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr, 50), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.allocated(), 0u);
}

TEST_F(fixed, RangeMayBeUnalignedAtBothEnds) {
    Provider provider = make(memory + 100, 4 * page);
    EXPECT_EQ(provider.must_alloc(3 * page), memory + page);
    void *ptr;
    EXPECT_EQ(provider.alloc(page, 0, &ptr), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(provider.free(memory + page, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.must_alloc(4 * page, 4), memory + 100);

    Provider tiny = make(memory, 10);
    EXPECT_EQ(tiny.alloc(1, 1, &ptr), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
}

TEST_F(fixed, PurgeDropsWholePagesInsideOnly) {
    Provider provider = make(memory + 100, 8 * page);
    memset(memory, 'x', size);
    ASSERT_EQ(provider.ops->ext_purge_force(provider.self, memory + 100, 3 * page),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(memory[page - 1], 'x');
    EXPECT_EQ(memory[page], 0);
    EXPECT_EQ(memory[3 * page - 1], 0);
    EXPECT_EQ(memory[3 * page], 'x');
    EXPECT_EQ(provider.ops->ext_purge_force(provider.self, memory + 100, 10), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.ops->ext_purge_force(provider.self, memory + 100 + 8 * page, 0),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(memory[100], 'x');
}

TEST_F(fixed, PurgeOfWhatIsNotOursFails) {
    Provider provider = make(memory + page, 8 * page);
    memset(memory, 'x', size);
    for (char *ptr : {memory, memory + 9 * page, reinterpret_cast<char *>(page)}) {
        EXPECT_EQ(provider.ops->ext_purge_force(provider.self, ptr, 2 * page),
                  UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(provider.native(), UMF_FIXED_RESULT_ERROR_PURGE_FORCE_FAILED);
    }
    EXPECT_EQ(memory[0], 'x');
    EXPECT_EQ(memory[9 * page], 'x');
    EXPECT_EQ(provider.native_text(), std::string("force purging failed: ") + strerror(EINVAL));
    fault::Nth nth("advise", EPERM);
    nth.next();
    EXPECT_EQ(provider.ops->ext_purge_force(provider.self, memory + page, page),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider.native_text(), std::string("force purging failed: ") + strerror(EPERM));
}

TEST_F(fixed, ParamsMayBeChangedAfterwards) {
    Params params(memory, page);
    Provider provider(umfFixedMemoryProviderOps(), params.handle);
    ASSERT_EQ(umfFixedMemoryProviderParamsSetMemory(params.handle, memory + page, page),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.must_alloc(page), memory);
}

TEST_F(fixed, MemoryIsNeverTouched) {
    ASSERT_EQ(mprotect(memory, size, PROT_NONE), 0);
    Provider provider = make();
    char *ptr = provider.must_alloc(10 * page);
    EXPECT_EQ(provider.split(ptr, 10 * page, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr + page, 9 * page), UMF_RESULT_SUCCESS);
}

TEST_F(fixed, ManyThreads) {
    Provider provider = make();
    run_threads<unsigned>(4, [&](unsigned t) {
        std::mt19937 random(t);
        for (int i = 0; i < 2000; i++) {
            size_t bytes = random() % (4 * page) + 1;
            void *ptr;
            if (provider.alloc(bytes, 0, &ptr) == UMF_RESULT_SUCCESS) {
                memset(ptr, static_cast<int>(t), bytes);
                for (size_t at = 0; at < bytes; at += 512) {
                    ASSERT_EQ(static_cast<char *>(ptr)[at], static_cast<char>(t));
                }
                ASSERT_EQ(provider.free(ptr, bytes), UMF_RESULT_SUCCESS);
            }
        }
    });
    EXPECT_EQ(provider.allocated(), 0u);
    EXPECT_EQ(provider.must_alloc(size), memory);
}

TEST_F(fixed, EveryFailureLeavesNothing) {
    size_t before = umf_meta_used();
    int runs = 0;
    for (fault::Nth nth; nth.next(); runs++) {
        umf_fixed_memory_provider_params_handle_t params;
        umf_result_t result = umfFixedMemoryProviderParamsCreate(memory, size, &params);
        if (result != UMF_RESULT_SUCCESS) {
            ASSERT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
            continue;
        }
        void *self = nullptr;
        const umf_memory_provider_ops_t *ops = umfFixedMemoryProviderOps();
        result = ops->initialize(params, &self);
        if (result == UMF_RESULT_SUCCESS) {
            void *ptr = nullptr;
            result = ops->alloc(self, 100, 0, &ptr);
            if (result == UMF_RESULT_SUCCESS) {
                result = ops->ext_allocation_split(self, ptr, 100, 50);
                ASSERT_TRUE(result == UMF_RESULT_SUCCESS || nth.hit());
                ASSERT_EQ(ops->free(self, ptr, 0), UMF_RESULT_SUCCESS);
            } else {
                ASSERT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
            }
            ASSERT_EQ(ops->finalize(self), UMF_RESULT_SUCCESS);
        } else {
            ASSERT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
            ASSERT_EQ(self, nullptr);
        }
        umfFixedMemoryProviderParamsDestroy(params);
        ASSERT_EQ(umf_meta_used(), before) << "call " << nth.runs();
    }
    EXPECT_GE(runs, 5);
}

TEST_F(fixed, CannotBeMadeFromText) {
    void *params = nullptr;
    EXPECT_STREQ(umf_fixed_descriptor.name, "fixed");
    EXPECT_EQ(umf_fixed_descriptor.ops, umfFixedMemoryProviderOps());
    EXPECT_EQ(umf_fixed_descriptor.params_from_text("", &params), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(params, nullptr);
}
