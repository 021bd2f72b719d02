// Memory of a GPU that others register (umf/registration.h): whether cards reach it, DMA buffers,
// runs.

#include <cstring>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "gpu.h"

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/providers/provider_cuda.h>
#include <umf/registration.h>
#include <umf/suspend.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr size_t MiB = size_t{1} << 20;

class GpuRegistration : public Gpu {
  protected:
    umf_memory_pool_handle_t pool = nullptr;

    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        Gpu::TearDown();
    }
    char *make(const char *text, size_t size) {
        EXPECT_EQ(umfPoolCreateFromText(text, &pool), OK);
        char *made = pool ? static_cast<char *>(umfPoolMalloc(pool, size)) : nullptr;
        EXPECT_NE(made, nullptr);
        return made;
    }
    void end(void *block) {
        EXPECT_EQ(umfFree(block), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        pool = nullptr;
    }
    static umf_result_t rdma(const void *ptr, int *value) {
        umf_memory_properties_handle_t handle = nullptr;
        EXPECT_EQ(umfGetMemoryPropertiesHandle(ptr, &handle), OK);
        return umfGetMemoryProperty(handle, UMF_MEMORY_PROPERTY_RDMA_CAPABLE, value,
                                    sizeof(*value));
    }
    static bool has_dmabuf() {
        int can = 0;
        driver().cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0);
        return can != 0;
    }
};

} // namespace

TEST_F(GpuRegistration, CardsReachWhatTheDriverSays) {
    NEEDS_FAKE();
    for (int has : {0, 1}) {
        driver().control()->has_rdma = has;
        for (const char *text : {"proxy over cuda_vmm", "proxy over cuda"}) {
            int value = -1;
            char *block = make(text, MiB);
            EXPECT_EQ(rdma(block, &value), OK);
            EXPECT_EQ(value, has) << text;
            end(block);
        }
    }
    int value = -1;
    char *block = make("proxy over cuda_vmm:gpudirect_rdma=no", MiB);
    EXPECT_EQ(rdma(block, &value), OK);
    EXPECT_EQ(value, 0);
    fail(FAKE_cuPointerGetAttribute, CUDA_ERROR_INVALID_VALUE);
    EXPECT_NE(rdma(block, &value), OK);
    end(block);
    block = make("proxy over cuda:memory_type=host", MiB);
    EXPECT_EQ(rdma(block, &value), OK);
    EXPECT_EQ(value, 1) << "pages of the host";
    end(block);
}

TEST_F(GpuRegistration, ADmabufHasTheRange) {
    if (!has_dmabuf()) {
        GTEST_SKIP() << "the device makes no DMA buffers";
    }
    CUcontext primary = nullptr; // that of providers made from text
    CU(cuDevicePrimaryCtxRetain(&primary, 0));
    CU(cuCtxSetCurrent(primary));
    for (const char *text : {"proxy over cuda_vmm", "proxy over cuda"}) {
        SCOPED_TRACE(text);
        char *block = make(text, 4 * MiB);
        CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(block), 3, 4 * MiB));
        CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(block) + 70000, 9, 1));
        umf_dmabuf_t dmabuf = UMF_DMABUF_INIT;
        ASSERT_EQ(umfGetDmabuf(block + 70000, 10, &dmabuf), OK);
        EXPECT_EQ(dmabuf.offset, 70000 % static_cast<size_t>(getpagesize()));
        EXPECT_EQ(dmabuf.length, 10u);
        EXPECT_NE(fcntl(dmabuf.fd, F_GETFD) & FD_CLOEXEC, 0);
        if (!driver().is_real) {
            char bytes[2] = {};
            ASSERT_EQ(pread(dmabuf.fd, bytes, 2, static_cast<off_t>(dmabuf.offset)), 2);
            EXPECT_EQ(bytes[0], 9);
            EXPECT_EQ(bytes[1], 3);
        }
        close(dmabuf.fd);
        dmabuf = UMF_DMABUF_INIT;
        EXPECT_EQ(umfGetDmabuf(block, 4 * MiB + 1, &dmabuf), BAD) << "beyond the allocation";
        EXPECT_EQ(dmabuf.fd, -1);
        end(block);
    }
    CU(cuCtxSetCurrent(context));
    CU(cuDevicePrimaryCtxRelease(0));
}

TEST_F(GpuRegistration, WithoutDmabufs) {
    NEEDS_FAKE();
    umf_dmabuf_t dmabuf = UMF_DMABUF_INIT;
    char *block = make("proxy over cuda_vmm", 4 * MiB);
    driver().control()->lacks_dmabuf = 1;
    EXPECT_EQ(umfGetDmabuf(block, MiB, &dmabuf), NONE);
    driver().control()->lacks_dmabuf = 0;
    fail(FAKE_cuMemGetHandleForAddressRange, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(umfGetDmabuf(block, MiB, &dmabuf), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(dmabuf.fd, -1);
    end(block);
    block = make("proxy over cuda:memory_type=host", MiB);
    EXPECT_EQ(umfGetDmabuf(block, MiB, &dmabuf), NONE);
    end(block);
}

TEST_F(GpuRegistration, RunsHaveTheHandleOfTheDriver) {
    char *block = make("proxy over cuda_vmm", 4 * MiB);
    umf_memory_run_t before{}, after{};
    size_t count = 1;
    ASSERT_EQ(umfGetRuns(block + MiB, MiB, &before, &count), OK);
    EXPECT_EQ(before.base, block);
    EXPECT_GE(before.size, 4 * MiB);
    EXPECT_NE(before.handle, 0u);
    int fd = -1;
    EXPECT_NE(driver().cuMemExportToShareableHandle(&fd, before.handle,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_SUCCESS)
        << "a handle of the driver, of memory that is not shared";
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfGetRuns(block, MiB, &after, &count), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfGetRuns(block, MiB, &after, &count), OK);
    EXPECT_GT(after.generation, before.generation);
    EXPECT_NE(after.handle, 0u);
    end(block);
}

// Pages of an arena move only when they are free, and never once another device can reach them.
TEST_F(GpuRegistration, AnArenaListsItsPages) {
    char *block = make("coalescing:arena=yes,watermark=0 over cuda_vmm:device=0", 5 * MiB);
    size_t count = 0;
    ASSERT_EQ(umfGetRuns(block, 5 * MiB, nullptr, &count), OK);
    EXPECT_EQ(count, 3u);
    std::vector<umf_memory_run_t> runs(count), again(count);
    ASSERT_EQ(umfGetRuns(block, 5 * MiB, runs.data(), &count), OK);
    for (const umf_memory_run_t &run : runs) {
        EXPECT_EQ(run.size, 2 * MiB);
        EXPECT_NE(run.handle, 0u);
    }
    EXPECT_NE(runs[0].generation, runs[1].generation);
    EXPECT_EQ(umfGetRuns(block + 6 * MiB, 1, nullptr, &(count = 0)), BAD) << "no page is there";
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfGetRuns(block, 1, nullptr, &(count = 0)), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfGetRuns(block, 1, again.data(), &(count = 1)), OK);
    EXPECT_NE(again[0].generation, runs[0].generation) << "it is other memory";
    EXPECT_EQ(again[0].base, block);
    EXPECT_EQ(again[0].size, 6 * MiB) << "one page for the run";
    end(block);
}

TEST_F(GpuRegistration, APageOfADmabufStaysInItsArenaUntilATrim) {
    if (!has_dmabuf()) {
        GTEST_SKIP() << "the device makes no DMA buffers";
    }
    char *block = make("coalescing:arena=yes,watermark=0 over cuda_vmm:device=0", 4 * MiB);
    char *other = static_cast<char *>(umfPoolMalloc(pool, 4 * MiB));
    size_t moved = 0, held = 0;
    const auto counter = [&](const char *name) {
        size_t value = 0;
        EXPECT_EQ(umfCtlGet(name, &value, sizeof(value), pool), OK);
        return value;
    };
    umf_dmabuf_t dmabuf = UMF_DMABUF_INIT;
    ASSERT_EQ(umfGetDmabuf(block, 4 * MiB, &dmabuf), OK);
    EXPECT_EQ(umfFree(block), OK);
    block = static_cast<char *>(umfPoolMalloc(pool, 6 * MiB)); // the free pages are too few
    moved = counter("umf.pool.by_handle.{}.stats.donated_memory");
    EXPECT_EQ(moved, 0u);
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    held = counter("umf.pool.by_handle.{}.stats.reserved_memory");
    EXPECT_EQ(held, 4 * MiB) << "released, as it is free";
    close(dmabuf.fd);
    end(other);
}
