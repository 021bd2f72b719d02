#include "object/refusal.h"

#include <umf/result.h>

#include "base/last_error.h"
#include "base/native.h"
#include "base/thread_slot.h"

static const char *native_text(umf_memory_provider_handle_t provider, umf_result_t result) {
    const char *text = NULL;
    int32_t code = 0;
    if (result != UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC ||
        provider->ops.get_last_native_error(provider->self, &text, &code) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    return text && *text ? text : NULL;
}

/* A destroyed provider has no root, and the use of its handle is logged. */
static bool is_logged(umf_memory_provider_handle_t provider, umf_result_t result) {
    return !provider->root ||
           (provider->root->kind && (result == UMF_RESULT_ERROR_INVALID_ARGUMENT ||
                                     result == UMF_RESULT_ERROR_INVALID_ALIGNMENT));
}

void umf_refusal_by_provider(umf_memory_provider_handle_t provider, size_t size,
                             umf_result_t result) {
    umf_thread_slot_tls.is_refused = true;
    atomic_fetch_add_explicit(&provider->refusals, 1, memory_order_relaxed);
    if (is_logged(provider, result)) {
        return;
    }
    const char *text = native_text(provider, result);
    umf_last_error_set("provider %s refuses %zu bytes: %.400s", provider->root->name, size,
                       text ? text : umfResultText(result));
    if (umf_result_is_shortage(result)) {
        umf_last_reason_set(UMF_REASON_EXHAUSTED);
    }
}

void umf_refusal_by_function(umf_memory_provider_handle_t provider, const char *function,
                             umf_result_t result) {
    if (!is_logged(provider, result)) {
        const char *text = native_text(provider, result);
        umf_last_error_set("%s: provider %s: %.400s", function, provider->root->name,
                           text ? text : umfResultText(result));
    }
}

void umf_refusal_by_group(umf_tracked_provider_t *tracked, size_t size) {
    atomic_fetch_add_explicit(&tracked->refusals, 1, memory_order_relaxed);
    umf_thread_slot_tls.is_refused = true;
    umf_last_error_set("the limit of the pool's group has no room for %zu bytes", size);
    umf_last_reason_set(UMF_REASON_LIMIT);
}
