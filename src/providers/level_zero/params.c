/* Parameters of the Level Zero provider: what their table does not say. */
#include "providers/level_zero/params.h"

#include <string.h>

#include "base/log.h"
#include "providers/gpu/gpu.h"

static umf_result_t params_init_text(void *object) {
    umf_ze_params_t *params = object;
    params->memory_type = UMF_MEMORY_TYPE_DEVICE;
    params->numbers.are_meant = true;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_set_driver(void *object, const void *value) {
    umf_ze_request_t *request = &((umf_ze_params_t *)object)->numbers.device;
    request->names_driver = true;
    request->driver = *(const unsigned *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_set_number(void *object, const void *value) {
    ((umf_ze_params_t *)object)->numbers.device.device = *(const unsigned *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_set_any_device(void *object, const void *value) {
    ((umf_ze_params_t *)object)->numbers.device.any_type = *(const bool *)value;
    return UMF_RESULT_SUCCESS;
}

static bool numbers_are_distinct(const unsigned *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (numbers[i] == numbers[j]) {
                return false;
            }
        }
    }
    return true;
}

/* The list replaces the setting as a whole, or the setting stays unchanged. */
static umf_result_t params_parse_resident(void *object, const void *value) {
    umf_ze_numbers_t *numbers = &((umf_ze_params_t *)object)->numbers;
    unsigned resident[UMF_ZE_NUMBERS_MAX];
    size_t count;
    if (!umf_params_parse_numbers(value, "+", resident, UMF_ZE_NUMBERS_MAX, &count) || count == 0 ||
        !numbers_are_distinct(resident, count)) {
        UMF_LOG_ERROR("resident devices are up to %d different numbers joined by '+', such as 0+1",
                      UMF_ZE_NUMBERS_MAX);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memcpy(numbers->resident, resident, sizeof(resident));
    numbers->resident_count = (uint32_t)count;
    return UMF_RESULT_SUCCESS;
}

static const umf_field_word_t params_free_policies[] = {
    {"default", UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFAULT},
    {"blocking", UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_BLOCKING_FREE},
    {"defer", UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFER_FREE},
    {NULL, 0},
};

#define UMF_PARAMS_HOOKS .init_text = params_init_text,
#include "ctl/params_define.h"

UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetContext(
    umf_level_zero_memory_provider_params_handle_t hParams, ze_context_handle_t hContext) {
    if (!umf_handle_check(hParams, &umf_ze_params_kind.handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!hContext) {
        UMF_LOG_ERROR("the context is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->context = hContext;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetDevice(
    umf_level_zero_memory_provider_params_handle_t hParams, ze_device_handle_t hDevice) {
    if (!umf_handle_check(hParams, &umf_ze_params_kind.handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->device = hDevice;
    return UMF_RESULT_SUCCESS;
}

bool umf_ze_devices_are_distinct(const ze_device_handle_t *devices, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (devices[i] == devices[j]) {
                UMF_LOG_ERROR("resident device %p is listed twice, at %u and %u",
                              (void *)devices[i], j, i);
                return false;
            }
        }
    }
    return true;
}

UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetResidentDevices(
    umf_level_zero_memory_provider_params_handle_t hParams, ze_device_handle_t *hDevices,
    uint32_t deviceCount) {
    if (!umf_handle_check(hParams, &umf_ze_params_kind.handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (deviceCount && !hDevices) {
        UMF_LOG_ERROR("a list of %u resident devices is NULL", deviceCount);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_ze_devices_are_distinct(hDevices, deviceCount)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->resident = hDevices;
    hParams->resident_count = deviceCount;
    return UMF_RESULT_SUCCESS;
}
