/* Parameters of the CUDA provider: what their table does not say. */
#include "providers/cuda/params.h"

#include "base/log.h"
#include "providers/cuda/driver.h"
#include "providers/gpu/gpu.h"

/* The current context is the default. Without one, the caller must set a device or a context. */
static umf_result_t params_init(void *object) {
    umf_cuda_params_t *params = object;
    char why[256];
    const umf_cuda_driver_t *driver = umf_cuda_driver(why, sizeof(why));
    if (!driver) {
        UMF_LOG_ERROR("%s", why);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    CUcontext context = NULL;
    CUdevice device;
    if (driver->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context) {
        params->context = context;
    }
    if (driver->cuCtxGetDevice(&device) == CUDA_SUCCESS) {
        params->device = device;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_init_text(void *object) {
    umf_cuda_params_t *params = object;
    params->memory_type = UMF_MEMORY_TYPE_DEVICE;
    params->device = params->device < 0 ? 0 : params->device;
    return UMF_RESULT_SUCCESS;
}

/* A device in a text means its primary context, not the context that happens to be current. */
static umf_result_t params_set_device(void *object, const void *value) {
    umf_cuda_params_t *params = object;
    params->device = *(const int *)value;
    params->context = NULL;
    return UMF_RESULT_SUCCESS;
}

/* Of CUDA, with its own name for memory that host and devices share. */
static const umf_field_word_t cuda_memory_types[] = {
    {"host", UMF_MEMORY_TYPE_HOST},
    {"device", UMF_MEMORY_TYPE_DEVICE},
    {"shared", UMF_MEMORY_TYPE_SHARED},
    {"managed", UMF_MEMORY_TYPE_SHARED},
    {NULL, 0},
};

#define UMF_PARAMS_HOOKS .init = params_init, .init_text = params_init_text,
#include "ctl/params_define.h"

UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetContext(
    umf_cuda_memory_provider_params_handle_t hParams, void *hContext) {
    if (!umf_handle_check(hParams, &umf_cuda_params_kind.handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->context = hContext;
    hParams->context_is_set = true;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetDevice(
    umf_cuda_memory_provider_params_handle_t hParams, int hDevice) {
    if (!umf_handle_check(hParams, &umf_cuda_params_kind.handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->device = hDevice;
    return UMF_RESULT_SUCCESS;
}
