/* Parameters of the file provider: the public functions, and the same settings as text. */
#include "providers/file_params.h"

#include "base/log.h"
#include "base/meta.h"
#include "ctl/field.h"
#include "providers/name.h"
#include "providers/protection.h"

const char umf_file_default_name[] = "FILE";

static bool params_are_given(const umf_file_params_t *params) {
    if (!params) {
        UMF_LOG_ERROR("parameters are NULL");
    }
    return params != NULL;
}

static bool params_path_is_given(const char *path) {
    bool given = path && *path;
    if (!given) {
        UMF_LOG_ERROR("the path is %s; a file provider needs one", path ? "empty" : "NULL");
    }
    return given;
}

static umf_result_t params_create(void **params) {
    umf_file_params_t *made = umf_meta_alloc(sizeof(*made));
    if (!made) {
        UMF_LOG_ERROR("no memory for parameters");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made->protection = UMF_PROTECTION_READ | UMF_PROTECTION_WRITE;
    made->visibility = UMF_MEM_MAP_PRIVATE;
    umf_name_copy(made->name, umf_file_default_name);
    *params = made;
    return UMF_RESULT_SUCCESS;
}

void umf_file_params_destroy(void *params) {
    umf_meta_free(params, sizeof(umf_file_params_t));
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
    umf_file_params_destroy(hParams);
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsSetPath(
    umf_file_memory_provider_params_handle_t hParams, const char *path) {
    if (!params_are_given(hParams) || !params_path_is_given(path)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_path_copy(hParams->path, path);
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsSetProtection(
    umf_file_memory_provider_params_handle_t hParams, unsigned protection) {
    if (!params_are_given(hParams)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->protection = protection;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfFileMemoryProviderParamsSetVisibility(
    umf_file_memory_provider_params_handle_t hParams, umf_memory_visibility_t visibility) {
    if (!params_are_given(hParams)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->visibility = visibility;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_1 umf_result_t umfFileMemoryProviderParamsSetName(
    umf_file_memory_provider_params_handle_t hParams, const char *name) {
    if (!hParams || !name) {
        UMF_LOG_ERROR("parameters or name are NULL");
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
