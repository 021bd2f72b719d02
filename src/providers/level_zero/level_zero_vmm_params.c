/* Parameters of the level_zero_vmm provider: what their table does not say. */
#include "providers/level_zero/level_zero_vmm_params.h"

#include "base/log.h"

/* The request for a device by number. The other way is to give a device with its context. */
static umf_ze_request_t *params_request(umf_ze_vmm_params_t *params) {
    params->context = NULL;
    params->device = NULL;
    return &params->request;
}

static umf_result_t params_set_device(void *object, const void *value) {
    params_request(object)->device = *(const unsigned *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_set_driver(void *object, const void *value) {
    umf_ze_request_t *request = params_request(object);
    request->names_driver = true;
    request->driver = *(const unsigned *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_set_any_device(void *object, const void *value) {
    ((umf_ze_vmm_params_t *)object)->request.any_type = *(const bool *)value;
    return UMF_RESULT_SUCCESS;
}

static const umf_field_word_t params_free_policies[] = {
    {"wait", UMF_LEVEL_ZERO_VMM_FREE_POLICY_WAIT},
    {"immediate", UMF_LEVEL_ZERO_VMM_FREE_POLICY_IMMEDIATE},
    {NULL, 0},
};

#include "ctl/params_define.h"

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetContext(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, ze_context_handle_t hContext,
    ze_device_handle_t hDevice) {
    if (!umf_handle_check(hParams, &umf_ze_vmm_params_kind.handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!hContext || !hDevice) {
        UMF_LOG_ERROR("context or device are NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->context = hContext;
    hParams->device = hDevice;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetDevice(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, unsigned number) {
    return umf_params_set(&umf_ze_vmm_params_kind, hParams, "device", &number, __func__);
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetDriver(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, unsigned number) {
    return umf_params_set(&umf_ze_vmm_params_kind, hParams, "driver", &number, __func__);
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetAnyDevice(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, int isCounted) {
    return umf_params_set(&umf_ze_vmm_params_kind, hParams, "any_device", &(bool){isCounted != 0},
                          __func__);
}
