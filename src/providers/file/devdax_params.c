/* Parameters of the DevDax provider: the public functions, and the same settings as text. */
#include "providers/file/devdax_params.h"

#include "base/log.h"
#include "ctl/field.h"
#include "providers/shared/name.h"
#include "providers/shared/protection.h"

const char umf_devdax_default_name[] = "DEVDAX";
const umf_handle_kind_t umf_devdax_params_kind = {
    "an object of umfDevDaxMemoryProviderParamsCreate"};

static umf_result_t params_set_path(umf_devdax_params_t *params, const char *path) {
    if (!path || !*path) {
        UMF_LOG_ERROR("the path is %s; a DevDax provider needs that of a device, as /dev/dax0.0",
                      path ? "empty" : "NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_path_copy(params->path, path);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_create(void **params) {
    umf_devdax_params_t *made = umf_params_new(sizeof(*made), &umf_devdax_params_kind);
    if (!made) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made->protection = UMF_PROTECTION_READ | UMF_PROTECTION_WRITE;
    umf_name_copy(made->name, umf_devdax_default_name);
    *params = made;
    return UMF_RESULT_SUCCESS;
}

void umf_devdax_params_destroy(void *params) {
    umfDevDaxMemoryProviderParamsDestroy(params);
}

/* --- public functions ------------------------------------------------------------------------- */

UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsCreate(
    const char *path, size_t size, umf_devdax_memory_provider_params_handle_t *hParams) {
    void *made;
    if (!hParams) {
        UMF_LOG_ERROR("no place for the parameters (hParams is NULL)");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = params_create(&made);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_devdax_params_t *params = made;
    result = umfDevDaxMemoryProviderParamsSetDeviceDax(params, path, size);
    if (result != UMF_RESULT_SUCCESS) {
        umf_devdax_params_destroy(params);
        return result;
    }
    *hParams = params;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t
umfDevDaxMemoryProviderParamsDestroy(umf_devdax_memory_provider_params_handle_t hParams) {
    return umf_params_delete(hParams, sizeof(*hParams), &umf_devdax_params_kind, __func__);
}

UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsSetDeviceDax(
    umf_devdax_memory_provider_params_handle_t hParams, const char *path, size_t size) {
    if (!umf_handle_check(hParams, &umf_devdax_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = params_set_path(hParams, path);
    if (result == UMF_RESULT_SUCCESS) {
        hParams->size = size;
    }
    return result;
}

UMF_API_1_0 umf_result_t umfDevDaxMemoryProviderParamsSetProtection(
    umf_devdax_memory_provider_params_handle_t hParams, unsigned protection) {
    if (!umf_handle_check(hParams, &umf_devdax_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (protection == 0 || !umf_protection_is_valid(protection)) {
        UMF_LOG_ERROR("protection %#x is 0 or has bits that are no umf_mem_protection_flag_t",
                      protection);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->protection = protection;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_1 umf_result_t umfDevDaxMemoryProviderParamsSetName(
    umf_devdax_memory_provider_params_handle_t hParams, const char *name) {
    if (!umf_handle_check(hParams, &umf_devdax_params_kind, __func__)) {
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

static umf_result_t params_text_path(void *object, const void *value) {
    return params_set_path(object, value);
}

static umf_result_t params_text_size(void *object, const void *value) {
    ((umf_devdax_params_t *)object)->size = *(const size_t *)value;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_text_protection(void *object, const void *value) {
    return umfDevDaxMemoryProviderParamsSetProtection(object, *(const unsigned *)value);
}

static umf_result_t params_text_name(void *object, const void *value) {
    return umfDevDaxMemoryProviderParamsSetName(object, value);
}

static const umf_field_t params_list[] = {
    {.path = "params.path",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = params_text_path,
     .help = "the device, such as /dev/dax0.0; no default"},
    {.path = "params.size",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_CREATE,
     .set = params_text_size,
     .help = "bytes of the device that are used; no default"},
    {.path = "params.protection",
     .type = UMF_FIELD_FLAGS,
     .access = UMF_FIELD_CREATE,
     .words = umf_protection_words,
     .set = params_text_protection,
     .help = "access to the memory; default read+write"},
    {.path = "params.name",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = params_text_name,
     .help = "name of the provider; default DEVDAX"},
};
static const umf_fields_t params_fields = UMF_FIELDS(params_list);

umf_result_t umf_devdax_params_from_text(const char *text, void **params) {
    return umf_params_from_text(&params_fields, params_create, umf_devdax_params_destroy, text,
                                params);
}
