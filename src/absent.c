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

/* The functions that follow say `...`. */
#define ABSENT_SAYS(...)                                                                           \
    static umf_result_t ABSENT_KIND(void) {                                                        \
        UMF_LOG_ERROR(__VA_ARGS__);                                                                \
        return UMF_RESULT_ERROR_NOT_SUPPORTED;                                                     \
    }
#define ABSENT_ALIAS_(function) __attribute__((alias(#function)))
#define ABSENT_ALIAS(function) ABSENT_ALIAS_(function)
#define ABSENT(api, function) api umf_result_t function(void) ABSENT_ALIAS(ABSENT_KIND);
#define ABSENT_OPS(api, function)                                                                  \
    api const void *function(void);                                                                \
    const void *function(void) {                                                                   \
        return NULL;                                                                               \
    }

/* Of a table of parameters (ctl/params.h), its functions. */
#define UMF_PARAMS_CREATE(api, function) ABSENT(api, function)
#define UMF_PARAMS_DESTROY(api, function) ABSENT(api, function)
#define UMF_PARAM(api, function, ...) ABSENT(api, function)
#define UMF_PARAMS_CREATE_BY_HAND(function)
#define UMF_PARAM_TEXT(...)
#define UMF_PARAM_PARSED(...)

#if !UMF_WITH_JEMALLOC
#define ABSENT_KIND jemalloc_absent
ABSENT_SAYS("this libumf was built without the jemalloc pool (UMF_BUILD_LIBUMF_POOL_JEMALLOC)")
ABSENT_OPS(UMF_API_1_0, umfJemallocPoolOps)
#include "pools/jemalloc/jemalloc_params.def"
#undef ABSENT_KIND
#endif

#if !UMF_WITH_CUDA
#define ABSENT_KIND cuda_absent
ABSENT_SAYS("this libumf was built without the CUDA provider")
ABSENT_OPS(UMF_API_1_0, umfCUDAMemoryProviderOps)
#include "providers/cuda/cuda_params.def"
ABSENT(UMF_API_1_0, umfCUDAMemoryProviderParamsSetContext)
ABSENT(UMF_API_1_0, umfCUDAMemoryProviderParamsSetDevice)

ABSENT_OPS(UMF_API_EXT_1, umfCUDAVmmMemoryProviderOps)
ABSENT(UMF_API_EXT_1, umfCUDAVmmMemoryProviderParamsCreate)
#include "providers/cuda/cuda_vmm_params.def"
ABSENT(UMF_API_EXT_1, umfCUDAVmmMemoryProviderParamsSetContext)
ABSENT(UMF_API_EXT_1, umfCUDAVmmMemoryProviderParamsSetPeers)
#undef ABSENT_KIND
#endif

#if !UMF_WITH_LEVEL_ZERO
#define ABSENT_KIND level_zero_absent
ABSENT_SAYS("this libumf was built without the Level Zero provider")
ABSENT_OPS(UMF_API_1_0, umfLevelZeroMemoryProviderOps)
#include "providers/level_zero/level_zero_params.def"
ABSENT(UMF_API_1_0, umfLevelZeroMemoryProviderParamsSetContext)
ABSENT(UMF_API_1_0, umfLevelZeroMemoryProviderParamsSetDevice)
ABSENT(UMF_API_1_0, umfLevelZeroMemoryProviderParamsSetResidentDevices)
ABSENT(UMF_API_1_1, umfLevelZeroMemoryProviderResidentDeviceChange)

ABSENT_OPS(UMF_API_EXT_1, umfLevelZeroVmmMemoryProviderOps)
#include "providers/level_zero/level_zero_vmm_params.def"
ABSENT(UMF_API_EXT_1, umfLevelZeroVmmMemoryProviderParamsSetContext)
ABSENT(UMF_API_EXT_1, umfLevelZeroVmmMemoryProviderParamsSetDevice)
ABSENT(UMF_API_EXT_1, umfLevelZeroVmmMemoryProviderParamsSetDriver)
ABSENT(UMF_API_EXT_1, umfLevelZeroVmmMemoryProviderParamsSetAnyDevice)
#undef ABSENT_KIND
#endif

#if !UMF_WITH_LINUX
#define ABSENT_KIND file_absent
ABSENT_SAYS("this libumf was built for a system without the file provider")
ABSENT_OPS(UMF_API_1_0, umfFileMemoryProviderOps)
ABSENT(UMF_API_1_0, umfFileMemoryProviderParamsCreate)
#include "providers/file/file_params.def"
#undef ABSENT_KIND
#endif

#if !UMF_WITH_LINUX
#define ABSENT_KIND devdax_absent
ABSENT_SAYS("this libumf was built for a system without the devdax provider")
ABSENT_OPS(UMF_API_1_0, umfDevDaxMemoryProviderOps)
ABSENT(UMF_API_1_0, umfDevDaxMemoryProviderParamsCreate)
#include "providers/file/devdax_params.def"
ABSENT(UMF_API_1_0, umfDevDaxMemoryProviderParamsSetDeviceDax)
#undef ABSENT_KIND
#endif

#if !UMF_WITH_LINUX
#define ABSENT_KIND linux_vmm_absent
ABSENT_SAYS("this libumf was built for a system without the linux_vmm provider")
ABSENT_OPS(UMF_API_EXT_1, umfLinuxVmmMemoryProviderOps)
#include "providers/vmm/linux_vmm_params.def"
#undef ABSENT_KIND
#endif
