/* Parameters of the CUDA provider: the public functions, and the same settings as text. */
#include "providers/cuda/params.h"

#include "base/log.h"
#include "ctl/field.h"
#include "providers/cuda/driver.h"
#include "providers/gpu/gpu.h"
#include "providers/shared/name.h"

const char umf_cuda_default_name[] = "CUDA";
const umf_handle_kind_t umf_cuda_params_kind = {"an object of umfCUDAMemoryProviderParamsCreate"};

/* Without a current context nothing is chosen: the caller sets a device or a context. */
static void params_take_current(const umf_cuda_driver_t *driver, umf_cuda_params_t *params) {
    CUcontext context = NULL;
    CUdevice device;
    params->device = -1;
    if (driver->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context) {
        params->context = context;
    }
    if (driver->cuCtxGetDevice(&device) == CUDA_SUCCESS) {
        params->device = device;
    }
}

UMF_API_1_0 umf_result_t
umfCUDAMemoryProviderParamsCreate(umf_cuda_memory_provider_params_handle_t *hParams) {
    if (!hParams) {
        UMF_LOG_ERROR("no place for the parameters (hParams is NULL)");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    char why[256];
    const umf_cuda_driver_t *driver = umf_cuda_driver(why, sizeof(why));
    if (!driver) {
        UMF_LOG_ERROR("%s", why);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    umf_cuda_params_t *params = umf_params_new(sizeof(*params), &umf_cuda_params_kind);
    if (!params) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    params_take_current(driver, params);
    params->memory_type = UMF_MEMORY_TYPE_UNKNOWN;
    umf_name_copy(params->name, umf_cuda_default_name);
    *hParams = params;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t
umfCUDAMemoryProviderParamsDestroy(umf_cuda_memory_provider_params_handle_t hParams) {
    return umf_params_delete(hParams, sizeof(*hParams), &umf_cuda_params_kind, __func__);
}

UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetContext(
    umf_cuda_memory_provider_params_handle_t hParams, void *hContext) {
    if (!umf_handle_check(hParams, &umf_cuda_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->context = hContext;
    hParams->context_is_set = true;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetDevice(
    umf_cuda_memory_provider_params_handle_t hParams, int hDevice) {
    if (!umf_handle_check(hParams, &umf_cuda_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->device = hDevice;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetMemoryType(
    umf_cuda_memory_provider_params_handle_t hParams, umf_usm_memory_type_t memoryType) {
    if (!umf_handle_check(hParams, &umf_cuda_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->memory_type = memoryType;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfCUDAMemoryProviderParamsSetAllocFlags(
    umf_cuda_memory_provider_params_handle_t hParams, unsigned int flags) {
    if (!umf_handle_check(hParams, &umf_cuda_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->flags = flags;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_1 umf_result_t umfCUDAMemoryProviderParamsSetName(
    umf_cuda_memory_provider_params_handle_t hParams, const char *name) {
    if (!umf_handle_check(hParams, &umf_cuda_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!name) {
        UMF_LOG_ERROR("the name is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_name_copy(hParams->name, name);
    return UMF_RESULT_SUCCESS;
}

/* --- text ------------------------------------------------------------------------------------- */

/* A device named in a text means its primary context, not the one that happens to be current. */
static umf_result_t field_set_device(void *object, const void *value) {
    umf_cuda_params_t *params = object;
    params->device = *(const int *)value;
    params->context = NULL;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t field_set_memory_type(void *object, const void *value) {
    ((umf_cuda_params_t *)object)->memory_type = *(const umf_usm_memory_type_t *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t field_set_flags(void *object, const void *value) {
    ((umf_cuda_params_t *)object)->flags = *(const unsigned *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t field_set_name(void *object, const void *value) {
    umf_name_copy(((umf_cuda_params_t *)object)->name, value);
    return UMF_RESULT_SUCCESS;
}

static const umf_field_t cuda_field_list[] = {
    {.path = "params.device",
     .type = UMF_FIELD_INT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_device,
     .help = "number of the GPU; default: that of the current context, or 0"},
    {.path = "params.memory_type",
     .type = UMF_FIELD_ENUM,
     .access = UMF_FIELD_CREATE,
     .words = umf_gpu_memory_types,
     .set = field_set_memory_type,
     .help = "host (pinned), device or shared (managed); default: device"},
    {.path = "params.alloc_flags",
     .type = UMF_FIELD_UINT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_flags,
     .help = "flags of cuMemHostAlloc or cuMemAllocManaged; default: 0"},
    {.path = "params.name",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = field_set_name,
     .help = "name of the provider; default: CUDA"},
};

static const umf_fields_t cuda_fields = UMF_FIELDS(cuda_field_list);

static umf_result_t params_create(void **params) {
    umf_cuda_params_t *made;
    umf_result_t result = umfCUDAMemoryProviderParamsCreate(&made);
    if (result == UMF_RESULT_SUCCESS) {
        made->memory_type = UMF_MEMORY_TYPE_DEVICE;
        made->device = made->device < 0 ? 0 : made->device;
        *params = made;
    }
    return result;
}

void umf_cuda_params_destroy(void *params) {
    umfCUDAMemoryProviderParamsDestroy(params);
}

umf_result_t umf_cuda_params_from_text(const char *text, void **params) {
    return umf_params_from_text(&cuda_fields, params_create, umf_cuda_params_destroy, text, params);
}
