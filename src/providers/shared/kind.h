/*
 * Common parts of the tables of a kind of provider. A kind whose functions are called
 * <kind>_<operation> names them all by one macro.
 */
#ifndef UMF_SRC_PROVIDERS_SHARED_KIND_H
#define UMF_SRC_PROVIDERS_SHARED_KIND_H

#include <umf/plugin.h>

#include "base/meta.h"
#include "base/native.h"
#include "ctl/params.h"
#include "system/common.h"

/* Members of umf_memory_provider_ops_t that each kind implements. */
#define UMF_PROVIDER_OPS(kind)                                                                     \
    .version = UMF_PROVIDER_OPS_VERSION_CURRENT, .initialize = kind##_initialize,                  \
    .finalize = kind##_finalize

/* Members for sharing with other processes: a kind has all five operations or none. */
#define UMF_IPC_OPS(kind)                                                                          \
    .ext_get_ipc_handle_size = kind##_get_ipc_handle_size,                                         \
    .ext_get_ipc_handle = kind##_get_ipc_handle, .ext_put_ipc_handle = kind##_put_ipc_handle,      \
    .ext_open_ipc_handle = kind##_open_ipc_handle, .ext_close_ipc_handle = kind##_close_ipc_handle

/* Common answers to the small questions. Page and cache line sizes are those of the system. No
 * native error means that each failure has a result of its own. */
umf_result_t umf_provider_op_page_size(void *provider, size_t size, size_t *page_size);
umf_result_t umf_provider_op_min_page_size(void *provider, const void *ptr, size_t *page_size);
umf_result_t umf_provider_op_cache_line_size(void *provider, size_t *size);
umf_result_t umf_provider_op_no_native_error(void *provider, const char **message, int32_t *code);

/* Defines <kind>_get_name for a state with a `name`. Without a provider it gives the
 * default name. */
#define UMF_PROVIDER_GET_NAME(kind, state_t, params)                                               \
    static umf_result_t kind##_get_name(void *provider, const char **name) {                       \
        const state_t *state = provider;                                                           \
        return umf_params_name(state ? state->name : params##_defaults.name, name);                \
    }

/* Defines <kind>_native, the thread's last native error, and <kind>_get_last_native_error for the
 * texts of the kind. */
#define UMF_PROVIDER_NATIVE(kind, ...)                                                             \
    static __thread umf_native_t kind##_native;                                                    \
    static umf_result_t kind##_get_last_native_error(void *provider, const char **message,         \
                                                     int32_t *code) {                              \
        static const umf_native_text_t texts[] = {__VA_ARGS__};                                    \
        (void)provider;                                                                            \
        return umf_native_get(&kind##_native, texts, UMF_COUNT_OF(texts), message, code);          \
    }

/* Defines <kind>_initialize: a zeroed state, which <kind>_init(state, params) sets up. That leaves
 * nothing behind if it fails; umf_meta_free frees the state. */
#define UMF_PROVIDER_INITIALIZE(kind, state_t)                                                     \
    static umf_result_t kind##_initialize(const void *params, void **provider) {                   \
        state_t *state = umf_provider_state_new(sizeof(*state));                                   \
        umf_result_t result =                                                                      \
            state ? kind##_init(state, params) : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            umf_meta_free(state, sizeof(*state));                                                  \
            return result;                                                                         \
        }                                                                                          \
        *provider = state;                                                                         \
        return UMF_RESULT_SUCCESS;                                                                 \
    }

/* NULL: no memory, logged. */
void *umf_provider_state_new(size_t size);

/* The descriptor of a kind for the registry, see providers.def. `params` is a kind of
 * parameters (ctl/params.h); the other arguments are further members. */
#define UMF_PROVIDER_DESCRIPTOR(kind, params, ...)                                                 \
    extern const umf_memory_provider_descriptor_t umf_##kind##_descriptor;                         \
    const umf_memory_provider_descriptor_t umf_##kind##_descriptor = {                             \
        .struct_size = sizeof(umf_memory_provider_descriptor_t),                                   \
        .name = #kind,                                                                             \
        .params_from_text = params##_from_text,                                                    \
        .params_destroy = params##_destroy,                                                        \
        __VA_ARGS__,                                                                               \
    }

#endif
