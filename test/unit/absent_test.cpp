// The kinds that a build may be without: their functions are there and say so.

#include <string>

#include <gtest/gtest.h>

#include <umf/pools/pool_jemalloc.h>
#include <umf/providers/provider_cuda.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/providers/provider_devdax_memory.h>
#include <umf/providers/provider_file_memory.h>
#include <umf/providers/provider_level_zero.h>
#include <umf/providers/provider_level_zero_vmm.h>
#include <umf/providers/provider_linux_vmm.h>

extern "C" char absent_log[256];

namespace {

template <typename... Args> void expect_absent(umf_result_t (*function)(Args...), const char *who) {
    absent_log[0] = '\0';
    EXPECT_EQ(function(Args{}...), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_NE(std::string(absent_log).find(who), std::string::npos) << absent_log;
}

} // namespace

TEST(absent, Jemalloc) {
    EXPECT_EQ(umfJemallocPoolOps(), nullptr);
    expect_absent(umfJemallocPoolParamsCreate, "jemalloc");
    expect_absent(umfJemallocPoolParamsDestroy, "jemalloc");
    expect_absent(umfJemallocPoolParamsSetNumArenas, "jemalloc");
    expect_absent(umfJemallocPoolParamsSetName, "jemalloc");
}

TEST(absent, Cuda) {
    EXPECT_EQ(umfCUDAMemoryProviderOps(), nullptr);
    expect_absent(umfCUDAMemoryProviderParamsCreate, "CUDA");
    expect_absent(umfCUDAMemoryProviderParamsDestroy, "CUDA");
    expect_absent(umfCUDAMemoryProviderParamsSetContext, "CUDA");
    expect_absent(umfCUDAMemoryProviderParamsSetDevice, "CUDA");
    expect_absent(umfCUDAMemoryProviderParamsSetMemoryType, "CUDA");
    expect_absent(umfCUDAMemoryProviderParamsSetAllocFlags, "CUDA");
    expect_absent(umfCUDAMemoryProviderParamsSetName, "CUDA");
}

TEST(absent, CudaVmm) {
    EXPECT_EQ(umfCUDAVmmMemoryProviderOps(), nullptr);
    expect_absent(umfCUDAVmmMemoryProviderParamsCreate, "CUDA");
    expect_absent(umfCUDAVmmMemoryProviderParamsDestroy, "CUDA");
    expect_absent(umfCUDAVmmMemoryProviderParamsSetContext, "CUDA");
    expect_absent(umfCUDAVmmMemoryProviderParamsSetHostNode, "CUDA");
    expect_absent(umfCUDAVmmMemoryProviderParamsSetPeers, "CUDA");
    expect_absent(umfCUDAVmmMemoryProviderParamsSetShare, "CUDA");
    expect_absent(umfCUDAVmmMemoryProviderParamsSetFreePolicy, "CUDA");
    expect_absent(umfCUDAVmmMemoryProviderParamsSetGPUDirectRDMA, "CUDA");
    expect_absent(umfCUDAVmmMemoryProviderParamsSetPieceSize, "CUDA");
    expect_absent(umfCUDAVmmMemoryProviderParamsSetPerThreadStream, "CUDA");
    expect_absent(umfCUDAVmmMemoryProviderParamsSetName, "CUDA");
}

TEST(absent, LevelZero) {
    EXPECT_EQ(umfLevelZeroMemoryProviderOps(), nullptr);
    expect_absent(umfLevelZeroMemoryProviderParamsCreate, "Level Zero");
    expect_absent(umfLevelZeroMemoryProviderParamsDestroy, "Level Zero");
    expect_absent(umfLevelZeroMemoryProviderParamsSetContext, "Level Zero");
    expect_absent(umfLevelZeroMemoryProviderParamsSetDevice, "Level Zero");
    expect_absent(umfLevelZeroMemoryProviderParamsSetMemoryType, "Level Zero");
    expect_absent(umfLevelZeroMemoryProviderParamsSetResidentDevices, "Level Zero");
    expect_absent(umfLevelZeroMemoryProviderParamsSetFreePolicy, "Level Zero");
    expect_absent(umfLevelZeroMemoryProviderParamsSetDeviceOrdinal, "Level Zero");
    expect_absent(umfLevelZeroMemoryProviderParamsSetName, "Level Zero");
    expect_absent(umfLevelZeroMemoryProviderResidentDeviceChange, "Level Zero");
}

TEST(absent, LevelZeroVmm) {
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderOps(), nullptr);
    expect_absent(umfLevelZeroVmmMemoryProviderParamsCreate, "Level Zero");
    expect_absent(umfLevelZeroVmmMemoryProviderParamsDestroy, "Level Zero");
    expect_absent(umfLevelZeroVmmMemoryProviderParamsSetContext, "Level Zero");
    expect_absent(umfLevelZeroVmmMemoryProviderParamsSetDevice, "Level Zero");
    expect_absent(umfLevelZeroVmmMemoryProviderParamsSetDriver, "Level Zero");
    expect_absent(umfLevelZeroVmmMemoryProviderParamsSetAnyDevice, "Level Zero");
    expect_absent(umfLevelZeroVmmMemoryProviderParamsSetFreePolicy, "Level Zero");
    expect_absent(umfLevelZeroVmmMemoryProviderParamsSetPieceSize, "Level Zero");
    expect_absent(umfLevelZeroVmmMemoryProviderParamsSetName, "Level Zero");
}

TEST(absent, File) {
    EXPECT_EQ(umfFileMemoryProviderOps(), nullptr);
    expect_absent(umfFileMemoryProviderParamsCreate, "file provider");
    expect_absent(umfFileMemoryProviderParamsDestroy, "file provider");
    expect_absent(umfFileMemoryProviderParamsSetPath, "file provider");
    expect_absent(umfFileMemoryProviderParamsSetProtection, "file provider");
    expect_absent(umfFileMemoryProviderParamsSetVisibility, "file provider");
    expect_absent(umfFileMemoryProviderParamsSetName, "file provider");
}

TEST(absent, DevDax) {
    EXPECT_EQ(umfDevDaxMemoryProviderOps(), nullptr);
    expect_absent(umfDevDaxMemoryProviderParamsCreate, "devdax");
    expect_absent(umfDevDaxMemoryProviderParamsDestroy, "devdax");
    expect_absent(umfDevDaxMemoryProviderParamsSetDeviceDax, "devdax");
    expect_absent(umfDevDaxMemoryProviderParamsSetProtection, "devdax");
    expect_absent(umfDevDaxMemoryProviderParamsSetName, "devdax");
}

TEST(absent, LinuxVmm) {
    EXPECT_EQ(umfLinuxVmmMemoryProviderOps(), nullptr);
    expect_absent(umfLinuxVmmMemoryProviderParamsCreate, "linux_vmm");
    expect_absent(umfLinuxVmmMemoryProviderParamsDestroy, "linux_vmm");
    expect_absent(umfLinuxVmmMemoryProviderParamsSetPieceSize, "linux_vmm");
    expect_absent(umfLinuxVmmMemoryProviderParamsSetName, "linux_vmm");
}
