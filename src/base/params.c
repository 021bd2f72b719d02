#include "base/params.h"

#include "base/log.h"
#include "base/meta.h"

void *umf_params_new(size_t size, const umf_handle_kind_t *kind) {
    void *params = umf_meta_alloc(size);
    if (!params) {
        UMF_LOG_ERROR("no memory for %s", kind->name);
        return NULL;
    }
    if (umf_handle_begin(params, kind) != UMF_RESULT_SUCCESS) {
        umf_meta_free(params, size);
        return NULL;
    }
    return params;
}

umf_result_t umf_params_delete(void *params, size_t size, const umf_handle_kind_t *kind,
                               const char *function) {
    if (params && !umf_handle_end(params, kind, function)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_meta_free(params, size);
    return UMF_RESULT_SUCCESS;
}
