// The devices of this machine (umf/cuda_device.h).

#include "fakes/threads.h"
#include "gpu.h"

#include <umf/cuda_device.h>
#include <umf/memory_pool.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

class Device : public Gpu {
  protected:
    int count = 0;

    void SetUp() override {
        Gpu::SetUp();
        ASSERT_EQ(umfCUDADeviceCount(&count), OK);
        ASSERT_GT(count, 0);
    }
};

} // namespace

TEST_F(Device, OutputsAndNumbersAreChecked) {
    int device;
    bool reaches = true;
    size_t left = 0, total = 0;
    EXPECT_EQ(umfCUDADeviceCount(nullptr), BAD);
    EXPECT_EQ(umfCUDADeviceCurrent(nullptr), BAD);
    EXPECT_EQ(umfCUDADeviceReaches(0, 0, nullptr), BAD);
    EXPECT_EQ(umfCUDADeviceMemory(0, nullptr, &total), BAD);
    EXPECT_EQ(umfCUDADeviceMemory(0, &left, nullptr), BAD);
    EXPECT_EQ(umfCUDADeviceHasManagedMemory(0, nullptr), BAD);
    for (int none : {-1, count}) {
        EXPECT_EQ(umfCUDADeviceMakeCurrent(none), BAD);
        EXPECT_EQ(umfCUDADeviceReaches(none, 0, &reaches), BAD);
        EXPECT_EQ(umfCUDADeviceReaches(0, none, &reaches), BAD);
        EXPECT_EQ(umfCUDADeviceMemory(none, &left, &total), BAD);
        EXPECT_EQ(umfCUDADeviceHasManagedMemory(none, &reaches), BAD);
    }
    EXPECT_EQ(umfCUDADeviceCurrent(&device), OK);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(current(), context);
}

TEST_F(Device, MemoryIsTheDriversAnswer) {
    size_t free = 0, total = 0, left = 0, all = 0;
    CU(cuMemGetInfo(&free, &total));
    ASSERT_EQ(umfCUDADeviceMemory(0, &left, &all), OK);
    EXPECT_EQ(all, total);
    EXPECT_LE(left, total);
    EXPECT_EQ(current(), context);
}

TEST_F(Device, ManagedMemory) {
    bool has = false;
    EXPECT_EQ(umfCUDADeviceHasManagedMemory(0, &has), OK);
    EXPECT_TRUE(has);
    NEEDS_FAKE();
    driver().control()->lacks_managed = 1;
    EXPECT_EQ(umfCUDADeviceHasManagedMemory(0, &has), OK);
    EXPECT_FALSE(has);
    long before = driver().control()->calls[FAKE_cuDevicePrimaryCtxRetain];
    umfCUDADeviceHasManagedMemory(1, &has);
    EXPECT_EQ(driver().control()->calls[FAKE_cuDevicePrimaryCtxRetain], before);
}

TEST_F(Device, ManagedMemoryIsPrefetched) {
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over cuda:memory_type=managed", &pool), OK);
    constexpr size_t size = 1 << 20;
    void *ptr = umfPoolMalloc(pool, size);
    ASSERT_NE(ptr, nullptr);
    memset(ptr, 7, size);
    CUstream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int device : {0, -1, 0}) {
        EXPECT_EQ(umfCUDAPrefetch(ptr, size, device, stream), OK) << device;
        CU(cuStreamSynchronize(stream));
        EXPECT_EQ(static_cast<char *>(ptr)[size - 1], 7);
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->prefetched, device);
        }
    }
    EXPECT_EQ(umfCUDAPrefetch(static_cast<char *>(ptr) + 4096, 1, 0, nullptr), OK);
    EXPECT_EQ(umfCUDAPrefetch(ptr, 0, 0, stream), OK);
    EXPECT_EQ(current(), context);
    CU(cuStreamSynchronize(nullptr));
    CU(cuStreamDestroy(stream));
    umfFree(ptr);
    umfPoolDestroy(pool);
}

TEST_F(Device, OnlyManagedMemoryIsPrefetched) {
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over cuda:memory_type=shared", &pool), OK);
    void *ptr = umfPoolMalloc(pool, 4096);
    ASSERT_NE(ptr, nullptr);
    int local = 0;
    EXPECT_EQ(umfCUDAPrefetch(nullptr, 1, 0, nullptr), BAD);
    EXPECT_EQ(umfCUDAPrefetch(&local, sizeof(local), 0, nullptr), BAD);
    EXPECT_EQ(umfCUDAPrefetch(ptr, 1 << 30, 0, nullptr), BAD);
    for (int none : {-2, count}) {
        EXPECT_EQ(umfCUDAPrefetch(ptr, 4096, none, nullptr), BAD);
    }
    umfFree(ptr);
    umfPoolDestroy(pool);
}

TEST_F(Device, ReachesItselfAndItsPeers) {
    bool reaches = false;
    EXPECT_EQ(umfCUDADeviceReaches(0, 0, &reaches), OK);
    EXPECT_TRUE(reaches);
    NEEDS_FAKE();
    EXPECT_EQ(umfCUDADeviceReaches(0, 1, &reaches), OK);
    EXPECT_TRUE(reaches);
    driver().control()->lacks_peers = 1;
    EXPECT_EQ(umfCUDADeviceReaches(0, 1, &reaches), OK);
    EXPECT_FALSE(reaches);
}

// The primary context stays when who else retained it releases it.
TEST_F(Device, IsMadeCurrentInTheThread) {
    CU(cuCtxSetCurrent(nullptr));
    int device = 7;
    EXPECT_EQ(umfCUDADeviceCurrent(&device), OK);
    EXPECT_EQ(device, -1);
    for (int round = 0; round < 3; round++) {
        ASSERT_EQ(umfCUDADeviceMakeCurrent(count - 1), OK);
        EXPECT_EQ(umfCUDADeviceCurrent(&device), OK);
        EXPECT_EQ(device, count - 1);
    }
    CUcontext primary = nullptr;
    CU(cuDevicePrimaryCtxRetain(&primary, count - 1));
    EXPECT_EQ(current(), primary);
    CU(cuDevicePrimaryCtxRelease(count - 1));
    unsigned flags;
    int active = 0;
    CU(cuDevicePrimaryCtxGetState(count - 1, &flags, &active));
    EXPECT_EQ(active, 1);
    std::thread([&] {
        EXPECT_EQ(umfCUDADeviceCurrent(&device), OK);
        EXPECT_EQ(device, -1);
    }).join();
}

TEST_F(Device, FailuresOfTheDriverChangeNothing) {
    NEEDS_FAKE();
    size_t left = 0, total = 0;
    bool reaches = true;
    const CUresult broken = CUDA_ERROR_UNKNOWN;
    const umf_result_t failed = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
    fail(FAKE_cuMemGetInfo, broken);
    EXPECT_EQ(umfCUDADeviceMemory(0, &left, &total), failed);
    EXPECT_EQ(total, 0u);
    fail(FAKE_cuDeviceGetAttribute, broken);
    EXPECT_EQ(umfCUDADeviceHasManagedMemory(0, &reaches), failed);
    fail(FAKE_cuDevicePrimaryCtxRetain, broken);
    EXPECT_EQ(umfCUDADeviceMakeCurrent(0), failed);
    fail(FAKE_cuDeviceCanAccessPeer, broken);
    EXPECT_EQ(umfCUDADeviceReaches(0, 1, &reaches), failed);
    EXPECT_TRUE(reaches);
    fail(FAKE_cuDeviceGetCount, CUDA_ERROR_NO_DEVICE);
    EXPECT_EQ(umfCUDADeviceCount(&count), UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    EXPECT_EQ(current(), context);
}
