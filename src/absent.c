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

#define ABSENT_ALIAS_(function) __attribute__((alias(#function)))
#define ABSENT_ALIAS(function) ABSENT_ALIAS_(function)
#define ABSENT ABSENT_ALIAS(ABSENT_KIND)

/* Of a table of parameters (ctl/params.h), its functions. */
#define UMF_PARAMS_CREATE(api, function) api umf_result_t function(void) ABSENT;
#define UMF_PARAMS_DESTROY(api, function) api umf_result_t function(void) ABSENT;
#define UMF_PARAM(api, function, ...) api umf_result_t function(void) ABSENT;
#define UMF_PARAMS_CREATE_BY_HAND(function)
#define UMF_PARAM_TEXT(...)
#define UMF_PARAM_PARSED(...)

#if !UMF_WITH_JEMALLOC
#define ABSENT_KIND jemalloc_absent
static umf_result_t jemalloc_absent(void) {
    UMF_LOG_ERROR(
        "this libumf was built without the jemalloc pool (UMF_BUILD_LIBUMF_POOL_JEMALLOC)");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_1_0 const void *umfJemallocPoolOps(void);
const void *umfJemallocPoolOps(void) {
    return NULL;
}
#include "pools/jemalloc/jemalloc_params.def"
#undef ABSENT_KIND
#endif

#if !UMF_WITH_CUDA
#define ABSENT_KIND cuda_absent
static umf_result_t cuda_absent(void) {
    UMF_LOG_ERROR("this libumf was built without the CUDA provider");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_1_0 const void *umfCUDAMemoryProviderOps(void);
const void *umfCUDAMemoryProviderOps(void) {
    return NULL;
}
#include "providers/cuda/cuda_params.def"
UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetContext(void) ABSENT;
UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetDevice(void) ABSENT;

UMF_API_EXT_1 const void *umfCUDAVmmMemoryProviderOps(void);
const void *umfCUDAVmmMemoryProviderOps(void) {
    return NULL;
}
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsCreate(void) ABSENT;
#include "providers/cuda/cuda_vmm_params.def"
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetContext(void) ABSENT;
UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetPeers(void) ABSENT;
#undef ABSENT_KIND
#endif

#if !UMF_WITH_LEVEL_ZERO
#define ABSENT_KIND level_zero_absent
static umf_result_t level_zero_absent(void) {
    UMF_LOG_ERROR("this libumf was built without the Level Zero provider");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_1_0 const void *umfLevelZeroMemoryProviderOps(void);
const void *umfLevelZeroMemoryProviderOps(void) {
    return NULL;
}
#include "providers/level_zero/level_zero_params.def"
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetContext(void) ABSENT;
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetDevice(void) ABSENT;
UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetResidentDevices(void) ABSENT;
UMF_API_1_1 umf_result_t umfLevelZeroMemoryProviderResidentDeviceChange(void) ABSENT;

UMF_API_EXT_1 const void *umfLevelZeroVmmMemoryProviderOps(void);
const void *umfLevelZeroVmmMemoryProviderOps(void) {
    return NULL;
}
#include "providers/level_zero/level_zero_vmm_params.def"
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetContext(void) ABSENT;
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetDevice(void) ABSENT;
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetDriver(void) ABSENT;
UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetAnyDevice(void) ABSENT;
#undef ABSENT_KIND
#endif

#if !UMF_WITH_LINUX
#define ABSENT_KIND file_absent
static umf_result_t file_absent(void) {
    UMF_LOG_ERROR("this libumf was built for a system without the file provider");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_1_0 const void *umfFileMemoryProviderOps(void);
const void *umfFileMemoryProviderOps(void) {
    return NULL;
}
UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsCreate(void) ABSENT;
#include "providers/file/file_params.def"
#undef ABSENT_KIND
#endif

#if !UMF_WITH_LINUX
#define ABSENT_KIND devdax_absent
static umf_result_t devdax_absent(void) {
    UMF_LOG_ERROR("this libumf was built for a system without the devdax provider");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_1_0 const void *umfDevDaxMemoryProviderOps(void);
const void *umfDevDaxMemoryProviderOps(void) {
    return NULL;
}
UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsCreate(void) ABSENT;
#include "providers/file/devdax_params.def"
UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsSetDeviceDax(void) ABSENT;
#undef ABSENT_KIND
#endif

#if !UMF_WITH_LINUX
#define ABSENT_KIND linux_vmm_absent
static umf_result_t linux_vmm_absent(void) {
    UMF_LOG_ERROR("this libumf was built for a system without the linux_vmm provider");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
UMF_API_EXT_1 const void *umfLinuxVmmMemoryProviderOps(void);
const void *umfLinuxVmmMemoryProviderOps(void) {
    return NULL;
}
#include "providers/vmm/linux_vmm_params.def"
#undef ABSENT_KIND
#endif
