#include "ctl/params.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"

static void params_free(const umf_params_kind_t *kind, void *params) {
    if (kind->fini) {
        kind->fini(params);
    }
    umf_meta_free(params, kind->size);
}

umf_result_t umf_params_create(const umf_params_kind_t *kind, void **made) {
    umf_result_t result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    void *params = umf_meta_alloc(kind->size);
    *made = NULL;
    if (!params) {
        UMF_LOG_ERROR("no memory for %s", kind->handle.name);
        return result;
    }
    if (kind->defaults) {
        memcpy(params, kind->defaults, kind->size);
    }
    result = kind->init ? kind->init(params) : UMF_RESULT_SUCCESS;
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_handle_begin(params, &kind->handle);
    }
    if (result != UMF_RESULT_SUCCESS) {
        params_free(kind, params);
        return result;
    }
    *made = params;
    return result;
}

umf_result_t umf_params_give(const umf_params_kind_t *kind, void *params, umf_result_t result,
                             void *handle, const char *function) {
    if (!handle) {
        umf_log_error(function, "no place for the parameters (hParams is NULL)");
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (result == UMF_RESULT_SUCCESS) {
        memcpy(handle, &params, sizeof(params));
    } else {
        umf_params_destroy(kind, params, function);
    }
    return result;
}

umf_result_t umf_params_destroy(const umf_params_kind_t *kind, void *params, const char *function) {
    if (!params) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_handle_end(params, &kind->handle, function)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    params_free(kind, params);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_params_set(const umf_params_kind_t *kind, void *params, const char *name,
                            const void *value, const char *function) {
    if (!umf_handle_check(params, &kind->handle, function)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!value) {
        umf_log_error(function, "%s is NULL", name);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_field_write(params, umf_field_by_name(&kind->fields, name), value, function);
}

const void *umf_params_or_defaults(const umf_params_kind_t *kind, const void *params,
                                   const char *function) {
    if (!params) {
        return kind->defaults;
    }
    return umf_handle_check(params, &kind->handle, function) ? params : NULL;
}

umf_result_t umf_params_name(const char *name, const char **out) {
    if (!out) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *out = name;
    return UMF_RESULT_SUCCESS;
}
