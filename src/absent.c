/*
 * The public functions of the kinds that this build is without: the table is NULL, everything else
 * says so and answers NOT_SUPPORTED, whatever the arguments are.
 *
 * No public header is included, since an alias has the type of what it stands for. Callers pass
 * arguments that nobody reads, which the C calling conventions of our systems allow.
 */
#include <umf/base.h>

#include "base/log.h"
#include "system/common.h"

#define ABSENT(function) __attribute__((alias(#function)))

#if !UMF_WITH_JEMALLOC
static umf_result_t jemalloc_absent(void) {
    UMF_LOG_ERROR(
        "this libumf was built without the jemalloc pool (UMF_BUILD_LIBUMF_POOL_JEMALLOC)");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_1_0 const void *umfJemallocPoolOps(void);
const void *umfJemallocPoolOps(void) {
    return NULL;
}
UMF_API_1_0 umf_result_t umfJemallocPoolParamsCreate(void) ABSENT(jemalloc_absent);
UMF_API_1_0 umf_result_t umfJemallocPoolParamsDestroy(void) ABSENT(jemalloc_absent);
UMF_API_1_0 umf_result_t umfJemallocPoolParamsSetNumArenas(void) ABSENT(jemalloc_absent);
UMF_API_1_1 umf_result_t umfJemallocPoolParamsSetName(void) ABSENT(jemalloc_absent);
#endif

#if !UMF_WITH_CUDA
static umf_result_t cuda_absent(void) {
    UMF_LOG_ERROR("this libumf was built without the CUDA provider");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_1_0 const void *umfCUDAMemoryProviderOps(void);
const void *umfCUDAMemoryProviderOps(void) {
    return NULL;
}
UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsCreate(void) ABSENT(cuda_absent);
UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsDestroy(void) ABSENT(cuda_absent);
UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetContext(void) ABSENT(cuda_absent);
UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetDevice(void) ABSENT(cuda_absent);
UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetMemoryType(void) ABSENT(cuda_absent);
UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetAllocFlags(void) ABSENT(cuda_absent);
UMF_API_1_1 umf_result_t umfCUDAMemoryProviderParamsSetName(void) ABSENT(cuda_absent);

UMF_API_EXT_1 const void *umfCUDAVmmMemoryProviderOps(void);
const void *umfCUDAVmmMemoryProviderOps(void) {
    return NULL;
}
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsCreate(void) ABSENT(cuda_absent);
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsDestroy(void) ABSENT(cuda_absent);
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetContext(void) ABSENT(cuda_absent);
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetHostNode(void) ABSENT(cuda_absent);
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetPeers(void) ABSENT(cuda_absent);
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetShare(void) ABSENT(cuda_absent);
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetFreePolicy(void) ABSENT(cuda_absent);
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetPieceSize(void) ABSENT(cuda_absent);
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetGPUDirectRDMA(void) ABSENT(cuda_absent);
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetPerThreadStream(void)
    ABSENT(cuda_absent);
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetName(void) ABSENT(cuda_absent);
#endif

#if !UMF_WITH_LEVEL_ZERO
static umf_result_t level_zero_absent(void) {
    UMF_LOG_ERROR("this libumf was built without the Level Zero provider");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_1_0 const void *umfLevelZeroMemoryProviderOps(void);
const void *umfLevelZeroMemoryProviderOps(void) {
    return NULL;
}
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsCreate(void) ABSENT(level_zero_absent);
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsDestroy(void) ABSENT(level_zero_absent);
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetContext(void) ABSENT(level_zero_absent);
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetDevice(void) ABSENT(level_zero_absent);
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetMemoryType(void)
    ABSENT(level_zero_absent);
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetResidentDevices(void)
    ABSENT(level_zero_absent);
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetFreePolicy(void)
    ABSENT(level_zero_absent);
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetDeviceOrdinal(void)
    ABSENT(level_zero_absent);
UMF_API_1_1 umf_result_t umfLevelZeroMemoryProviderParamsSetName(void) ABSENT(level_zero_absent);
UMF_API_1_1 umf_result_t umfLevelZeroMemoryProviderResidentDeviceChange(void)
    ABSENT(level_zero_absent);

UMF_API_EXT_1 const void *umfLevelZeroVmmMemoryProviderOps(void);
const void *umfLevelZeroVmmMemoryProviderOps(void) {
    return NULL;
}
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsCreate(void)
    ABSENT(level_zero_absent);
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsDestroy(void)
    ABSENT(level_zero_absent);
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetContext(void)
    ABSENT(level_zero_absent);
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetDevice(void)
    ABSENT(level_zero_absent);
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetDriver(void)
    ABSENT(level_zero_absent);
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetAnyDevice(void)
    ABSENT(level_zero_absent);
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetFreePolicy(void)
    ABSENT(level_zero_absent);
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetPieceSize(void)
    ABSENT(level_zero_absent);
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetName(void)
    ABSENT(level_zero_absent);
#endif

#if !UMF_WITH_LINUX
static umf_result_t file_absent(void) {
    UMF_LOG_ERROR("this libumf was built for a system without the file provider");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_1_0 const void *umfFileMemoryProviderOps(void);
const void *umfFileMemoryProviderOps(void) {
    return NULL;
}
UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsCreate(void) ABSENT(file_absent);
UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsDestroy(void) ABSENT(file_absent);
UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsSetPath(void) ABSENT(file_absent);
UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsSetProtection(void) ABSENT(file_absent);
UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsSetVisibility(void) ABSENT(file_absent);
UMF_API_1_1 umf_result_t umfFileMemoryProviderParamsSetName(void) ABSENT(file_absent);
#endif

#if !UMF_WITH_LINUX
static umf_result_t devdax_absent(void) {
    UMF_LOG_ERROR("this libumf was built for a system without the devdax provider");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_1_0 const void *umfDevDaxMemoryProviderOps(void);
const void *umfDevDaxMemoryProviderOps(void) {
    return NULL;
}
UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsCreate(void) ABSENT(devdax_absent);
UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsDestroy(void) ABSENT(devdax_absent);
UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsSetDeviceDax(void) ABSENT(devdax_absent);
UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsSetProtection(void) ABSENT(devdax_absent);
UMF_API_1_1 umf_result_t umfDevDaxMemoryProviderParamsSetName(void) ABSENT(devdax_absent);
#endif

#if !UMF_WITH_LINUX
static umf_result_t linux_vmm_absent(void) {
    UMF_LOG_ERROR("this libumf was built for a system without the linux_vmm provider");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_EXT_1 const void *umfLinuxVmmMemoryProviderOps(void);
const void *umfLinuxVmmMemoryProviderOps(void) {
    return NULL;
}
UMF_API_EXT_1 umf_result_t umfLinuxVmmMemoryProviderParamsCreate(void) ABSENT(linux_vmm_absent);
UMF_API_EXT_1 umf_result_t umfLinuxVmmMemoryProviderParamsDestroy(void) ABSENT(linux_vmm_absent);
UMF_API_EXT_1 umf_result_t umfLinuxVmmMemoryProviderParamsSetPieceSize(void)
    ABSENT(linux_vmm_absent);
UMF_API_EXT_1 umf_result_t umfLinuxVmmMemoryProviderParamsSetName(void) ABSENT(linux_vmm_absent);
#endif
