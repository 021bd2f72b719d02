// Without a driver the contexts of GPUs exist, and their calls report errors.

#include <rmm.h>

#include "umem_test.h"

#include <umf/cuda_device.h>

namespace {

class NoDriver : public Umem {
  protected:
    void SetUp() override {
        int count;
        if (umfCUDADeviceCount(&count) == UMF_RESULT_SUCCESS) {
            GTEST_SKIP() << "there is a driver";
        }
        Umem::SetUp();
    }

    // Calls of a context without memory.
    void expect_nothing(void *ctx) {
        char data[8] = "";
        umem_clear_status(ctx);
        EXPECT_EQ(umem_alloc(ctx, 0), 0u);
        EXPECT_EQ(umem_calloc(ctx, 0, 1), 0u);
        umem_free(ctx, 0);
        umem_aligned_free(ctx, 0);
        EXPECT_OK(ctx);
        EXPECT_EQ(umem_alloc(ctx, 8), 0u);
        EXPECT_STATUS(ctx, umemMemoryError);
        umem_clear_status(ctx);
        EXPECT_EQ(umem_calloc(ctx, 8, 8), 0u);
        EXPECT_STATUS(ctx, umemMemoryError);
        umem_clear_status(ctx);
        EXPECT_EQ(umem_aligned_alloc(ctx, 256, 256), 0u);
        EXPECT_STATUS(ctx, umemMemoryError);
        umem_clear_status(ctx);
        EXPECT_EQ(umem_aligned_alloc(ctx, 3, 3), 0u);
        EXPECT_STATUS(ctx, umemValueError);
        const std::function<void()> uses[] = {
            [&] { umem_set(ctx, 4096, 0, 8); },
            [&] { umem_copy_to(ctx, 4096, &host, adr(data), 8); },
            [&] { umem_copy_from(ctx, 4096, &host, adr(data), 8); },
            [&] { umem_copy_to(&host, adr(data), ctx, 4096, 8); },
            [&] { umem_copy_from(&host, adr(data), ctx, 4096, 8); },
            [&] { umem_copy_to(ctx, 4096, ctx, 8192, 8); },
        };
        for (const auto &use : uses) {
            umem_clear_status(ctx);
            use();
            EXPECT_STATUS(ctx, umemRuntimeError);
            EXPECT_OK(&host);
            EXPECT_EQ(errno, 0);
        }
        umem_clear_status(ctx);
        EXPECT_EQ(umem_connect(&host, adr(data), 8, ctx, 0), 0u);
        EXPECT_STATUS(ctx, umemMemoryError);
    }
};

} // namespace

TEST_F(NoDriver, Cuda) {
    for (int device : {0, -1, 5}) {
        Made<umemCuda> cuda(umemCuda_ctor, device), other(umemCuda_ctor, 1);
        EXPECT_STATUS(&cuda, umemRuntimeError);
        EXPECT_EQ(cuda->device, device);
        expect_nothing(&cuda);
        umem_clear_status(&cuda);
        EXPECT_FALSE(umem_is_accessible_from(&cuda, &other));
        EXPECT_STATUS(&cuda, umemRuntimeError);
    }
}

TEST_F(NoDriver, CudaHost) {
    Made<umemCudaHost> pinned(umemCudaHost_ctor, 7u);
    EXPECT_OK(&pinned);
    EXPECT_EQ(pinned->flags, 7u);
    EXPECT_TRUE(umem_is_accessible_from(&pinned, &host));
    expect_nothing(&pinned);
}

TEST_F(NoDriver, CudaManaged) {
    Made<umemCudaManaged> managed(umemCudaManaged_ctor, 0u, true, uintptr_t(3));
    EXPECT_STATUS(&managed, umemRuntimeError);
    EXPECT_EQ(managed->flags, 1u);
    EXPECT_TRUE(managed->async);
    EXPECT_EQ(managed->stream, 3u);
    expect_nothing(&managed);
}

TEST_F(NoDriver, RMM) {
    Made<umemRMM> rmm([](umemRMM *ctx) { umemRMM_ctor(ctx, 2, true, 3); });
    EXPECT_OK(&rmm);
    EXPECT_EQ(rmm->device, 2);
    expect_nothing(&rmm);
    void *block = nullptr;
    size_t size;
    rmmOptions_t pool = {PoolAllocation, 0, false};
    EXPECT_EQ(rmmInitialize(nullptr), RMM_SUCCESS);
    EXPECT_EQ(rmmInitialize(&pool), RMM_ERROR_CUDA_ERROR);
    EXPECT_EQ(RMM_ALLOC(&block, 10, nullptr), RMM_ERROR_CUDA_ERROR);
    EXPECT_EQ(RMM_ALLOC(&block, 0, nullptr), RMM_SUCCESS);
    EXPECT_EQ(rmmGetInfo(&size, &size, nullptr), RMM_ERROR_CUDA_ERROR);
    EXPECT_EQ(rmmFinalize(), RMM_SUCCESS);
}
