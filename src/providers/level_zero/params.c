/* Parameters of the Level Zero provider: the public functions, and the same settings as text. */
#include "providers/level_zero/params.h"

#include <stdlib.h>

#include "base/log.h"
#include "ctl/field.h"
#include "providers/gpu/gpu.h"
#include "providers/shared/name.h"

const char umf_ze_default_name[] = "LEVEL_ZERO";
const umf_handle_kind_t umf_ze_params_kind = {
    "an object of umfLevelZeroMemoryProviderParamsCreate"};

UMF_API_1_0 umf_result_t
umfLevelZeroMemoryProviderParamsCreate(umf_level_zero_memory_provider_params_handle_t *hParams) {
    if (!hParams) {
        UMF_LOG_ERROR("no place for the parameters (hParams is NULL)");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_ze_params_t *params = umf_params_new(sizeof(*params), &umf_ze_params_kind);
    if (!params) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *params = (umf_ze_params_t){.memory_type = UMF_MEMORY_TYPE_UNKNOWN};
    umf_name_copy(params->name, umf_ze_default_name);
    *hParams = params;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t
umfLevelZeroMemoryProviderParamsDestroy(umf_level_zero_memory_provider_params_handle_t hParams) {
    return umf_params_delete(hParams, sizeof(*hParams), &umf_ze_params_kind, __func__);
}

UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetContext(
    umf_level_zero_memory_provider_params_handle_t hParams, ze_context_handle_t hContext) {
    if (!umf_handle_check(hParams, &umf_ze_params_kind, __func__)) {
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
    if (!umf_handle_check(hParams, &umf_ze_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->device = hDevice;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetMemoryType(
    umf_level_zero_memory_provider_params_handle_t hParams, umf_usm_memory_type_t memoryType) {
    if (!umf_handle_check(hParams, &umf_ze_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->memory_type = memoryType;
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
    if (!umf_handle_check(hParams, &umf_ze_params_kind, __func__)) {
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

UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetFreePolicy(
    umf_level_zero_memory_provider_params_handle_t hParams,
    umf_level_zero_memory_provider_free_policy_t policy) {
    if (!umf_handle_check(hParams, &umf_ze_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->free_policy = policy;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfLevelZeroMemoryProviderParamsSetDeviceOrdinal(
    umf_level_zero_memory_provider_params_handle_t hParams, uint32_t deviceOrdinal) {
    if (!umf_handle_check(hParams, &umf_ze_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->ordinal = deviceOrdinal;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_1 umf_result_t umfLevelZeroMemoryProviderParamsSetName(
    umf_level_zero_memory_provider_params_handle_t hParams, const char *name) {
    if (!umf_handle_check(hParams, &umf_ze_params_kind, __func__)) {
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

static umf_result_t field_set_driver(void *object, const void *value) {
    umf_ze_wish_t *wish = &((umf_ze_params_t *)object)->numbers.device;
    wish->names_driver = true;
    wish->driver = *(const unsigned *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t field_set_device(void *object, const void *value) {
    ((umf_ze_params_t *)object)->numbers.device.device = *(const unsigned *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t field_set_any_device(void *object, const void *value) {
    ((umf_ze_params_t *)object)->numbers.device.any_type = *(const bool *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t field_set_memory_type(void *object, const void *value) {
    ((umf_ze_params_t *)object)->memory_type = *(const umf_usm_memory_type_t *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t field_set_ordinal(void *object, const void *value) {
    ((umf_ze_params_t *)object)->ordinal = *(const unsigned *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t field_set_free_policy(void *object, const void *value) {
    ((umf_ze_params_t *)object)->free_policy =
        *(const umf_level_zero_memory_provider_free_policy_t *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_refuse(const char *why) {
    UMF_LOG_ERROR("%s", why);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static bool numbers_have(const umf_ze_numbers_t *numbers, unsigned long number) {
    for (uint32_t i = 0; i < numbers->resident_count; i++) {
        if (numbers->resident[i] == number) {
            return true;
        }
    }
    return false;
}

/* The setting is written as a whole or not at all. */
static umf_result_t field_set_resident(void *object, const void *value) {
    umf_ze_numbers_t *numbers = &((umf_ze_params_t *)object)->numbers;
    umf_ze_numbers_t made = {.are_meant = numbers->are_meant, .device = numbers->device};
    const char *at = value;
    for (;;) {
        char *end;
        unsigned long number = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || number > INT32_MAX || (*end != '\0' && *end != '+')) {
            return params_refuse("resident devices are numbers joined by '+', such as 0+1");
        }
        if (made.resident_count == UMF_ZE_NUMBERS_MAX || numbers_have(&made, number)) {
            return params_refuse("a resident device is listed twice, or more than 64 are");
        }
        made.resident[made.resident_count++] = (unsigned)number;
        if (*end == '\0') {
            *numbers = made;
            return UMF_RESULT_SUCCESS;
        }
        at = end + 1;
    }
}

static umf_result_t field_set_name(void *object, const void *value) {
    umf_name_copy(((umf_ze_params_t *)object)->name, value);
    return UMF_RESULT_SUCCESS;
}

static const umf_field_word_t free_policy_words[] = {
    {"default", UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFAULT},
    {"blocking", UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_BLOCKING_FREE},
    {"defer", UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFER_FREE},
    {NULL, 0},
};

static const umf_field_t ze_field_list[] = {
    {.path = "params.driver",
     .type = UMF_FIELD_UINT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_driver,
     .help = "number of the driver, as the loader lists them; default: the first with a GPU"},
    {.path = "params.device",
     .type = UMF_FIELD_UINT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_device,
     .help = "number of the device, counted over the GPUs of the driver; default: 0"},
    {.path = "params.any_device",
     .type = UMF_FIELD_BOOL,
     .access = UMF_FIELD_CREATE,
     .set = field_set_any_device,
     .help = "whether devices that are no GPUs count, too; default: no"},
    {.path = "params.memory_type",
     .type = UMF_FIELD_ENUM,
     .access = UMF_FIELD_CREATE,
     .words = umf_gpu_memory_types,
     .set = field_set_memory_type,
     .help = "host, device or shared; default: device"},
    {.path = "params.resident_devices",
     .type = UMF_FIELD_TEXT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_resident,
     .help =
         "devices of the driver on which memory is made resident, joined by '+'; default: none"},
    {.path = "params.free_policy",
     .type = UMF_FIELD_ENUM,
     .access = UMF_FIELD_CREATE,
     .words = free_policy_words,
     .set = field_set_free_policy,
     .help = "default, blocking (a free waits for the device) or defer; default: default"},
    {.path = "params.device_ordinal",
     .type = UMF_FIELD_UINT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_ordinal,
     .help = "which memory of the device; default: 0"},
    {.path = "params.name",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = field_set_name,
     .help = "name of the provider; default: LEVEL_ZERO"},
};

static const umf_fields_t ze_fields = UMF_FIELDS(ze_field_list);

static umf_result_t params_create(void **params) {
    umf_ze_params_t *made;
    umf_result_t result = umfLevelZeroMemoryProviderParamsCreate(&made);
    if (result == UMF_RESULT_SUCCESS) {
        made->memory_type = UMF_MEMORY_TYPE_DEVICE;
        made->numbers.are_meant = true;
        *params = made;
    }
    return result;
}

void umf_ze_params_destroy(void *params) {
    umfLevelZeroMemoryProviderParamsDestroy(params);
}

umf_result_t umf_ze_params_from_text(const char *text, void **params) {
    return umf_params_from_text(&ze_fields, params_create, umf_ze_params_destroy, text, params);
}
