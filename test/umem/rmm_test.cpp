// RMM's interface of 2018, on the software driver or, with UMF_TEST_GPU=real, on a real one.

#include <rmm.h>

#include "gpu/gpu.h"
#include "umem_test.h"

namespace {

class Rmm : public Umem {
  protected:
    void SetUp() override {
        ASSERT_EQ(driver().cuInit(0), CUDA_SUCCESS);
        umemCuda cuda;
        umemCuda_ctor(&cuda, 0); // device 0 is the current one
        EXPECT_OK(&cuda);
        umem_dtor(&cuda);
        Umem::SetUp();
    }
    void TearDown() override {
        EXPECT_EQ(rmmFinalize(), RMM_SUCCESS);
        Umem::TearDown();
    }
    static rmmOptions_t options(rmmAllocationMode_t mode, size_t size = 0, bool logs = false) {
        rmmOptions_t made;
        made.allocation_mode = mode;
        made.initial_pool_size = size;
        made.enable_logging = logs;
        return made;
    }
    // Content of the current device at an address.
    std::string device_content(void *ptr, size_t size) {
        Made<umemCuda> cuda(umemCuda_ctor, 0);
        return content(&cuda, adr(ptr), size);
    }
    void put(void *ptr, const std::string &text) {
        Made<umemCuda> cuda(umemCuda_ctor, 0);
        umem_copy_to(&host, adr(text.data()), &cuda, adr(ptr), text.size());
        EXPECT_OK(&cuda);
    }
};

} // namespace

TEST_F(Rmm, Values) {
    EXPECT_EQ(RMM_SUCCESS, 0);
    EXPECT_EQ(RMM_ERROR_IO, 6);
    EXPECT_EQ(N_RMM_ERROR, 7);
    EXPECT_EQ(CudaDefaultAllocation, 0);
    EXPECT_EQ(PoolAllocation, 1);
    EXPECT_EQ(sizeof(offset_t), sizeof(long));
    const char *names[] = {"RMM_SUCCESS",
                           "RMM_ERROR_CUDA_ERROR",
                           "RMM_ERROR_INVALID_ARGUMENT",
                           "RMM_ERROR_NOT_INITIALIZED",
                           "RMM_ERROR_OUT_OF_MEMORY",
                           "RMM_ERROR_UNKNOWN",
                           "RMM_ERROR_IO"};
    for (int i = 0; i < N_RMM_ERROR; i++) {
        EXPECT_STREQ(rmmGetErrorString(static_cast<rmmError_t>(i)), names[i]);
    }
}

// Without rmmInitialize, with it, and with a pool.
TEST_F(Rmm, AllocatesInEachMode) {
    for (int mode = 0; mode < 4; mode++) {
        SCOPED_TRACE(mode);
        rmmOptions_t given =
            options(mode >= 2 ? PoolAllocation : CudaDefaultAllocation, mode == 3 ? 8 << 20 : 0);
        if (mode > 0) {
            ASSERT_EQ(rmmInitialize(&given), RMM_SUCCESS);
            ASSERT_EQ(rmmInitialize(nullptr), RMM_SUCCESS);
        }
        float *numbers = nullptr;
        char *text = nullptr;
        ASSERT_EQ(RMM_ALLOC(&numbers, 1000 * sizeof(float), nullptr), RMM_SUCCESS);
        ASSERT_EQ(RMM_ALLOC(&text, 20 << 20, nullptr), RMM_SUCCESS); // the pool grows
        ASSERT_NE(numbers, nullptr);
        put(text, "some text");
        EXPECT_EQ(device_content(text, 9), "some text");
        offset_t offset = -1;
        EXPECT_EQ(rmmGetAllocationOffset(&offset, text, nullptr), RMM_SUCCESS);
        EXPECT_GE(offset, 0);
        EXPECT_EQ(RMM_REALLOC(&text, 30 << 20, nullptr), RMM_SUCCESS);
        EXPECT_EQ(device_content(text, 9), "some text");
        EXPECT_EQ(RMM_REALLOC(&text, 4, nullptr), RMM_SUCCESS);
        EXPECT_EQ(device_content(text, 4), "some");
        EXPECT_EQ(RMM_FREE(numbers, nullptr), RMM_SUCCESS);
        EXPECT_EQ(RMM_FREE(text, nullptr), RMM_SUCCESS);
        EXPECT_EQ(rmmFinalize(), RMM_SUCCESS);
    }
}

TEST_F(Rmm, BlocksOutliveOptions) {
    rmmOptions_t pool = options(PoolAllocation, 1 << 20);
    ASSERT_EQ(rmmInitialize(&pool), RMM_SUCCESS);
    void *block = nullptr;
    ASSERT_EQ(RMM_ALLOC(&block, 1000, nullptr), RMM_SUCCESS);
    EXPECT_EQ(rmmFinalize(), RMM_SUCCESS);
    EXPECT_EQ(rmmFinalize(), RMM_SUCCESS);
    put(block, "here");
    EXPECT_EQ(device_content(block, 4), "here");
    EXPECT_EQ(RMM_FREE(block, nullptr), RMM_SUCCESS);
}

TEST_F(Rmm, ArgumentsAreChecked) {
    void *block = nullptr;
    int own = 0;
    size_t size = 0;
    offset_t offset;
    rmmOptions_t wrong = options(static_cast<rmmAllocationMode_t>(1));
    memset(&wrong.allocation_mode, 1, sizeof(wrong.allocation_mode));
    EXPECT_EQ(rmmInitialize(&wrong), RMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(rmmAlloc(nullptr, 1, nullptr, nullptr, 0), RMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(rmmRealloc(nullptr, 1, nullptr, nullptr, 0), RMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(RMM_FREE(&own, nullptr), RMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(rmmGetAllocationOffset(&offset, &own, nullptr), RMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(rmmGetAllocationOffset(nullptr, &own, nullptr), RMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(rmmGetInfo(nullptr, &size, nullptr), RMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(rmmGetInfo(&size, nullptr, nullptr), RMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(rmmWriteLog(nullptr), RMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(rmmGetLog(nullptr, 1), RMM_ERROR_INVALID_ARGUMENT);
    void *foreign = &own;
    EXPECT_EQ(RMM_REALLOC(&foreign, 10, nullptr), RMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(foreign, &own);
    // Sizes of 0.
    block = &own;
    EXPECT_EQ(RMM_ALLOC(&block, 0, nullptr), RMM_SUCCESS);
    EXPECT_EQ(block, nullptr);
    EXPECT_EQ(RMM_FREE(block, nullptr), RMM_SUCCESS);
    EXPECT_EQ(RMM_REALLOC(&block, 100, nullptr), RMM_SUCCESS);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(RMM_REALLOC(&block, 0, nullptr), RMM_SUCCESS);
    EXPECT_EQ(block, nullptr);
}

TEST_F(Rmm, TooMuchIsOutOfMemory) {
    for (rmmAllocationMode_t mode : {CudaDefaultAllocation, PoolAllocation}) {
        rmmOptions_t given = options(mode);
        ASSERT_EQ(rmmInitialize(&given), RMM_SUCCESS);
        void *block = nullptr;
        EXPECT_EQ(RMM_ALLOC(&block, size_t(1) << 50, nullptr), RMM_ERROR_OUT_OF_MEMORY);
        EXPECT_EQ(block, nullptr);
        ASSERT_EQ(RMM_ALLOC(&block, 100, nullptr), RMM_SUCCESS);
        void *before = block;
        EXPECT_EQ(RMM_REALLOC(&block, size_t(1) << 50, nullptr), RMM_ERROR_OUT_OF_MEMORY);
        EXPECT_EQ(block, before);
        EXPECT_EQ(RMM_FREE(block, nullptr), RMM_SUCCESS);
    }
    rmmOptions_t huge = options(PoolAllocation, size_t(1) << 50);
    EXPECT_EQ(rmmInitialize(&huge), RMM_ERROR_OUT_OF_MEMORY);
}

TEST_F(Rmm, MemoryOfTheDevice) {
    size_t before = 0, after = 0, total = 0;
    void *block = nullptr;
    for (rmmAllocationMode_t mode : {CudaDefaultAllocation, PoolAllocation}) {
        rmmOptions_t given = options(mode, 64 << 20);
        ASSERT_EQ(rmmInitialize(&given), RMM_SUCCESS);
        ASSERT_EQ(rmmGetInfo(&before, &total, nullptr), RMM_SUCCESS);
        EXPECT_GT(total, 0u);
        EXPECT_LE(before, total);
        ASSERT_EQ(RMM_ALLOC(&block, 32 << 20, nullptr), RMM_SUCCESS);
        ASSERT_EQ(rmmGetInfo(&after, &total, nullptr), RMM_SUCCESS);
        if (!driver().is_real) {
            EXPECT_EQ(after, before - (32 << 20));
        }
        EXPECT_EQ(RMM_FREE(block, nullptr), RMM_SUCCESS);
    }
}

TEST_F(Rmm, TheLogTellsWhatWasDone) {
    std::string name = folder.file("log");
    EXPECT_EQ(rmmLogSize(), 0u);
    rmmOptions_t given = options(CudaDefaultAllocation, 0, true);
    ASSERT_EQ(rmmInitialize(&given), RMM_SUCCESS);
    void *block = nullptr;
    ASSERT_EQ(RMM_ALLOC(&block, 12345, nullptr), RMM_SUCCESS);
    ASSERT_EQ(RMM_REALLOC(&block, 23456, nullptr), RMM_SUCCESS);
    ASSERT_EQ(RMM_FREE(block, nullptr), RMM_SUCCESS);
    std::string text(rmmLogSize() + 1, '?');
    ASSERT_EQ(rmmGetLog(&text[0], text.size()), RMM_SUCCESS);
    EXPECT_EQ(text.back(), 0);
    text.pop_back();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
    for (const char *part : {"Alloc,", "12345", "Realloc,", "23456", "Free,", "rmm_test.cpp"}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
    char few[6] = "?????";
    EXPECT_EQ(rmmGetLog(few, 5), RMM_SUCCESS);
    EXPECT_EQ(std::string(few, 5), text.substr(0, 5));
    EXPECT_EQ(rmmWriteLog(name.c_str()), RMM_SUCCESS);
    EXPECT_EQ(read_file(name), text);
    EXPECT_EQ(rmmWriteLog("/no/such/folder/log"), RMM_ERROR_IO);
    given.enable_logging = false;
    ASSERT_EQ(rmmInitialize(&given), RMM_SUCCESS);
    ASSERT_EQ(RMM_ALLOC(&block, 10, nullptr), RMM_SUCCESS);
    ASSERT_EQ(RMM_FREE(block, nullptr), RMM_SUCCESS);
    EXPECT_EQ(rmmLogSize(), text.size());
    EXPECT_EQ(rmmFinalize(), RMM_SUCCESS);
    EXPECT_EQ(rmmLogSize(), 0u);
}

// A block is used on a stream, then it grows: queued work is done first.
TEST_F(Rmm, ReallocWaitsForItsStream) {
    CUstream stream;
    void *block = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ASSERT_EQ(RMM_ALLOC(&block, 1000, stream), RMM_SUCCESS);
    CU(cuMemsetD8Async(adr(block), 'q', 1000, stream));
    ASSERT_EQ(RMM_REALLOC(&block, 5000, stream), RMM_SUCCESS);
    EXPECT_SAME(device_content(block, 1000), std::string(1000, 'q'));
    EXPECT_EQ(RMM_FREE(block, stream), RMM_SUCCESS);
    CU(cuStreamDestroy(stream));
}

TEST_F(Rmm, ContextsFollowTheOptions) {
    NEEDS_FAKE();
    Made<umemRMM> rmm([](umemRMM *ctx) { umemRMM_ctor(ctx, 0, false, 0); });
    const long *calls = driver().control()->calls;
    long before = calls[FAKE_cuMemAlloc];
    umem_free(&rmm, umem_alloc(&rmm, 1000));
    EXPECT_EQ(calls[FAKE_cuMemAlloc], before + 1);
    rmmOptions_t given = options(PoolAllocation, 1 << 20);
    ASSERT_EQ(rmmInitialize(&given), RMM_SUCCESS);
    before = calls[FAKE_cuMemAlloc] + calls[FAKE_cuMemCreate];
    umem_free(&rmm, umem_alloc(&rmm, 1000));
    EXPECT_EQ(calls[FAKE_cuMemAlloc] + calls[FAKE_cuMemCreate], before);
    EXPECT_OK(&rmm);
}
