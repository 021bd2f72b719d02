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

template <typename... Functions> void expect_all_absent(const char *who, Functions... functions) {
    (expect_absent(functions, who), ...);
}

} // namespace

TEST(absent, Jemalloc) {
    EXPECT_EQ(umfJemallocPoolOps(), nullptr);
    expect_all_absent("the pool 'jemalloc'", umfJemallocPoolParamsCreate,
                      umfJemallocPoolParamsDestroy, umfJemallocPoolParamsSetNumArenas,
                      umfJemallocPoolParamsSetName);
}

TEST(absent, Cuda) {
    EXPECT_EQ(umfCUDAMemoryProviderOps(), nullptr);
    expect_all_absent("the provider 'cuda'", umfCUDAMemoryProviderParamsCreate,
                      umfCUDAMemoryProviderParamsDestroy, umfCUDAMemoryProviderParamsSetContext,
                      umfCUDAMemoryProviderParamsSetDevice,
                      umfCUDAMemoryProviderParamsSetMemoryType,
                      umfCUDAMemoryProviderParamsSetAllocFlags, umfCUDAMemoryProviderParamsSetName);
}

TEST(absent, CudaVmm) {
    EXPECT_EQ(umfCUDAVmmMemoryProviderOps(), nullptr);
    expect_all_absent(
        "the provider 'cuda_vmm'", umfCUDAVmmMemoryProviderParamsCreate,
        umfCUDAVmmMemoryProviderParamsDestroy, umfCUDAVmmMemoryProviderParamsSetContext,
        umfCUDAVmmMemoryProviderParamsSetHostNode, umfCUDAVmmMemoryProviderParamsSetPeers,
        umfCUDAVmmMemoryProviderParamsSetShare, umfCUDAVmmMemoryProviderParamsSetFreePolicy,
        umfCUDAVmmMemoryProviderParamsSetGPUDirectRDMA, umfCUDAVmmMemoryProviderParamsSetPieceSize,
        umfCUDAVmmMemoryProviderParamsSetPerThreadStream, umfCUDAVmmMemoryProviderParamsSetName);
}

TEST(absent, LevelZero) {
    EXPECT_EQ(umfLevelZeroMemoryProviderOps(), nullptr);
    expect_all_absent(
        "the provider 'level_zero'", umfLevelZeroMemoryProviderParamsCreate,
        umfLevelZeroMemoryProviderParamsDestroy, umfLevelZeroMemoryProviderParamsSetContext,
        umfLevelZeroMemoryProviderParamsSetDevice, umfLevelZeroMemoryProviderParamsSetMemoryType,
        umfLevelZeroMemoryProviderParamsSetResidentDevices,
        umfLevelZeroMemoryProviderParamsSetFreePolicy,
        umfLevelZeroMemoryProviderParamsSetDeviceOrdinal, umfLevelZeroMemoryProviderParamsSetName,
        umfLevelZeroMemoryProviderResidentDeviceChange);
}

TEST(absent, LevelZeroVmm) {
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderOps(), nullptr);
    expect_all_absent(
        "the provider 'level_zero_vmm'", umfLevelZeroVmmMemoryProviderParamsCreate,
        umfLevelZeroVmmMemoryProviderParamsDestroy, umfLevelZeroVmmMemoryProviderParamsSetContext,
        umfLevelZeroVmmMemoryProviderParamsSetDevice, umfLevelZeroVmmMemoryProviderParamsSetDriver,
        umfLevelZeroVmmMemoryProviderParamsSetAnyDevice,
        umfLevelZeroVmmMemoryProviderParamsSetFreePolicy,
        umfLevelZeroVmmMemoryProviderParamsSetPieceSize,
        umfLevelZeroVmmMemoryProviderParamsSetName);
}

TEST(absent, File) {
    EXPECT_EQ(umfFileMemoryProviderOps(), nullptr);
    expect_all_absent("the provider 'file'", umfFileMemoryProviderParamsCreate,
                      umfFileMemoryProviderParamsDestroy, umfFileMemoryProviderParamsSetPath,
                      umfFileMemoryProviderParamsSetProtection,
                      umfFileMemoryProviderParamsSetVisibility, umfFileMemoryProviderParamsSetName);
}

TEST(absent, DevDax) {
    EXPECT_EQ(umfDevDaxMemoryProviderOps(), nullptr);
    expect_all_absent(
        "the provider 'devdax'", umfDevDaxMemoryProviderParamsCreate,
        umfDevDaxMemoryProviderParamsDestroy, umfDevDaxMemoryProviderParamsSetDeviceDax,
        umfDevDaxMemoryProviderParamsSetProtection, umfDevDaxMemoryProviderParamsSetName);
}

TEST(absent, LinuxVmm) {
    EXPECT_EQ(umfLinuxVmmMemoryProviderOps(), nullptr);
    expect_all_absent("the provider 'linux_vmm'", umfLinuxVmmMemoryProviderParamsCreate,
                      umfLinuxVmmMemoryProviderParamsDestroy,
                      umfLinuxVmmMemoryProviderParamsSetPieceSize,
                      umfLinuxVmmMemoryProviderParamsSetName);
}
