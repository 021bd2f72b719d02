/* Kinds of providers. */
#include "providers/shared/kind.h"

#include "base/log.h"
#include "base/meta.h"
#include "base/native.h"
#include "system/os.h"

void *umf_provider_state_new(size_t size) {
    void *state = umf_meta_alloc(size);
    if (!state) {
        UMF_LOG_ERROR("no memory for a provider");
    }
    return state;
}

umf_result_t umf_provider_op_page_size(void *provider, size_t size, size_t *page_size) {
    (void)provider, (void)size;
    *page_size = umf_os_page_size();
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_provider_op_min_page_size(void *provider, const void *ptr, size_t *page_size) {
    (void)provider, (void)ptr;
    *page_size = umf_os_page_size();
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_provider_op_cache_line_size(void *provider, size_t *size) {
    (void)provider;
    *size = umf_os_cache_line_size();
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_provider_op_no_native_error(void *provider, const char **message, int32_t *code) {
    (void)provider;
    static const umf_native_t none;
    return umf_native_get(&none, NULL, 0, message, code);
}
