/* Parameters of the file provider: the public functions, and the same settings as text. */
#include "providers/file/file_params.h"

#include "base/log.h"
#include "ctl/field.h"
#include "providers/shared/name.h"
#include "providers/shared/protection.h"

const char umf_file_default_name[] = "FILE";
const umf_handle_kind_t umf_file_params_kind = {"an object of umfFileMemoryProviderParamsCreate"};

static bool params_path_is_given(const char *path) {
    bool given = path && *path;
    if (!given) {
        UMF_LOG_ERROR("the path is %s; a file provider needs one", path ? "empty" : "NULL");
    }
    return given;
}

static umf_result_t params_create(void **params) {
    umf_file_params_t *made = umf_params_new(sizeof(*made), &umf_file_params_kind);
    if (!made) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made->protection = UMF_PROTECTION_READ | UMF_PROTECTION_WRITE;
    made->visibility = UMF_MEM_MAP_PRIVATE;
    umf_name_copy(made->name, umf_file_default_name);
    *params = made;
    return UMF_RESULT_SUCCESS;
}

void umf_file_params_destroy(void *params) {
    umfFileMemoryProviderParamsDestroy(params);
}

/* --- public functions ------------------------------------------------------------------------- */

UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsCreate(
    const char *path, umf_file_memory_provider_params_handle_t *hParams) {
    if (!hParams) {
        UMF_LOG_ERROR("no place for the parameters (hParams is NULL)");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!params_path_is_given(path)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    void *made;
    umf_result_t result = params_create(&made);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_file_params_t *params = made;
    umf_path_copy(params->path, path);
    *hParams = params;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t
umfFileMemoryProviderParamsDestroy(umf_file_memory_provider_params_handle_t hParams) {
    return umf_params_delete(hParams, sizeof(*hParams), &umf_file_params_kind, __func__);
}

UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsSetPath(
    umf_file_memory_provider_params_handle_t hParams, const char *path) {
    if (!umf_handle_check(hParams, &umf_file_params_kind, __func__) ||
        !params_path_is_given(path)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_path_copy(hParams->path, path);
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsSetProtection(
    umf_file_memory_provider_params_handle_t hParams, unsigned protection) {
    if (!umf_handle_check(hParams, &umf_file_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->protection = protection;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsSetVisibility(
    umf_file_memory_provider_params_handle_t hParams, umf_memory_visibility_t visibility) {
    if (!umf_handle_check(hParams, &umf_file_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->visibility = visibility;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_1 umf_result_t umfFileMemoryProviderParamsSetName(
    umf_file_memory_provider_params_handle_t hParams, const char *name) {
    if (!umf_handle_check(hParams, &umf_file_params_kind, __func__)) {
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
    return umfFileMemoryProviderParamsSetPath(object, value);
}

static umf_result_t params_text_protection(void *object, const void *value) {
    return umfFileMemoryProviderParamsSetProtection(object, *(const unsigned *)value);
}

static umf_result_t params_text_visibility(void *object, const void *value) {
    return umfFileMemoryProviderParamsSetVisibility(object,
                                                    (umf_memory_visibility_t) * (const int *)value);
}

static umf_result_t params_text_name(void *object, const void *value) {
    return umfFileMemoryProviderParamsSetName(object, value);
}

static const umf_field_t params_list[] = {
    {.path = "params.path",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = params_text_path,
     .help = "the file, which is made if there is none; no default"},
    {.path = "params.protection",
     .type = UMF_FIELD_FLAGS,
     .access = UMF_FIELD_CREATE,
     .words = umf_protection_words,
     .set = params_text_protection,
     .help = "access to the memory; default read+write"},
    {.path = "params.visibility",
     .type = UMF_FIELD_ENUM,
     .access = UMF_FIELD_CREATE,
     .words = umf_visibility_words,
     .set = params_text_visibility,
     .help = "shared: what is written goes to the file, and other processes can open the memory; "
             "default private"},
    {.path = "params.name",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = params_text_name,
     .help = "name of the provider; default FILE"},
};
static const umf_fields_t params_fields = UMF_FIELDS(params_list);

umf_result_t umf_file_params_from_text(const char *text, void **params) {
    return umf_params_from_text(&params_fields, params_create, umf_file_params_destroy, text,
                                params);
}
