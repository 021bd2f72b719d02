/* Parameters of the level_zero_vmm provider: the public functions, and the same settings as text.
 */
#include "providers/level_zero/level_zero_vmm_params.h"

#include "base/log.h"
#include "ctl/field.h"
#include "providers/shared/name.h"

const char umf_ze_vmm_default_name[] = "LEVEL_ZERO_VMM";
const umf_handle_kind_t umf_ze_vmm_params_kind = {
    "an object of umfLevelZeroVmmMemoryProviderParamsCreate"};

static umf_result_t params_refuse(const char *why) {
    UMF_LOG_ERROR("%s", why);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsCreate(
    umf_level_zero_vmm_memory_provider_params_handle_t *hParams) {
    if (!hParams) {
        return params_refuse("hParams is NULL");
    }
    umf_ze_vmm_params_t *params = umf_params_new(sizeof(*params), &umf_ze_vmm_params_kind);
    if (!params) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_name_copy(params->name, umf_ze_vmm_default_name);
    *hParams = params;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsDestroy(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams) {
    return umf_params_delete(hParams, sizeof(*hParams), &umf_ze_vmm_params_kind, __func__);
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetContext(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, ze_context_handle_t hContext,
    ze_device_handle_t hDevice) {
    if (!umf_handle_check(hParams, &umf_ze_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!hContext || !hDevice) {
        return params_refuse("context or device are NULL");
    }
    hParams->context = hContext;
    hParams->device = hDevice;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetDevice(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, unsigned number) {
    if (!umf_handle_check(hParams, &umf_ze_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->context = NULL;
    hParams->device = NULL;
    hParams->wish.device = number;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetDriver(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, unsigned number) {
    if (!umf_handle_check(hParams, &umf_ze_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->context = NULL;
    hParams->device = NULL;
    hParams->wish.names_driver = true;
    hParams->wish.driver = number;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetAnyDevice(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, int isCounted) {
    if (!umf_handle_check(hParams, &umf_ze_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->wish.any_type = isCounted != 0;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetFreePolicy(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams,
    umf_level_zero_vmm_free_policy_t policy) {
    if (!umf_handle_check(hParams, &umf_ze_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if ((unsigned)policy > UMF_LEVEL_ZERO_VMM_FREE_POLICY_IMMEDIATE) {
        return params_refuse("the free policy is no umf_level_zero_vmm_free_policy_t");
    }
    hParams->free_policy = policy;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetPieceSize(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, size_t size) {
    if (!umf_handle_check(hParams, &umf_ze_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (size == 0) {
        return params_refuse("a piece of 0 bytes");
    }
    hParams->piece_size = size;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfLevelZeroVmmMemoryProviderParamsSetName(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, const char *name) {
    if (!umf_handle_check(hParams, &umf_ze_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!name) {
        return params_refuse("the name is NULL");
    }
    umf_name_copy(hParams->name, name);
    return UMF_RESULT_SUCCESS;
}

/* --- text ------------------------------------------------------------------------------------- */

static umf_result_t field_set_driver(void *object, const void *value) {
    return umfLevelZeroVmmMemoryProviderParamsSetDriver(object, *(const unsigned *)value);
}

static umf_result_t field_set_any_device(void *object, const void *value) {
    return umfLevelZeroVmmMemoryProviderParamsSetAnyDevice(object, *(const bool *)value);
}

static umf_result_t field_set_device(void *object, const void *value) {
    return umfLevelZeroVmmMemoryProviderParamsSetDevice(object, *(const unsigned *)value);
}

static umf_result_t field_set_free_policy(void *object, const void *value) {
    return umfLevelZeroVmmMemoryProviderParamsSetFreePolicy(
        object, *(const umf_level_zero_vmm_free_policy_t *)value);
}

static umf_result_t field_set_piece_size(void *object, const void *value) {
    return umfLevelZeroVmmMemoryProviderParamsSetPieceSize(object, *(const size_t *)value);
}

static umf_result_t field_set_name(void *object, const void *value) {
    return umfLevelZeroVmmMemoryProviderParamsSetName(object, value);
}

static const umf_field_word_t free_policy_words[] = {
    {"wait", UMF_LEVEL_ZERO_VMM_FREE_POLICY_WAIT},
    {"immediate", UMF_LEVEL_ZERO_VMM_FREE_POLICY_IMMEDIATE},
    {NULL, 0},
};

static const umf_field_t ze_vmm_field_list[] = {
    {.path = "params.driver",
     .type = UMF_FIELD_UINT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_driver,
     .help = "number of the driver, as the loader lists them; default the first with a GPU"},
    {.path = "params.device",
     .type = UMF_FIELD_UINT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_device,
     .help = "number of the device, counted over the GPUs of the driver; default 0"},
    {.path = "params.any_device",
     .type = UMF_FIELD_BOOL,
     .access = UMF_FIELD_CREATE,
     .set = field_set_any_device,
     .help = "whether devices that are no GPUs count, too; default no"},
    {.path = "params.free_policy",
     .type = UMF_FIELD_ENUM,
     .access = UMF_FIELD_CREATE,
     .words = free_policy_words,
     .set = field_set_free_policy,
     .help = "wait (for the device, before freed memory goes) or immediate; default wait"},
    {.path = "params.piece_size",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_CREATE,
     .set = field_set_piece_size,
     .help = "smallest piece of memory that comes and goes, in bytes; default: the page size"},
    {.path = "params.name",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = field_set_name,
     .help = "name of the provider; default LEVEL_ZERO_VMM"},
};
static const umf_fields_t ze_vmm_fields = UMF_FIELDS(ze_vmm_field_list);

static umf_result_t params_create(void **params) {
    umf_ze_vmm_params_t *made;
    umf_result_t result = umfLevelZeroVmmMemoryProviderParamsCreate(&made);
    if (result == UMF_RESULT_SUCCESS) {
        *params = made;
    }
    return result;
}

void umf_ze_vmm_params_destroy(void *params) {
    umfLevelZeroVmmMemoryProviderParamsDestroy(params);
}

umf_result_t umf_ze_vmm_params_from_text(const char *text, void **params) {
    return umf_params_from_text(&ze_vmm_fields, params_create, umf_ze_vmm_params_destroy, text,
                                params);
}
