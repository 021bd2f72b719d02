/* Helpers for settings and messages that all kinds of pools use. */
#ifndef UMF_SRC_POOLS_SHARED_SETTINGS_H
#define UMF_SRC_POOLS_SHARED_SETTINGS_H

#include <umf/result.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/thread_slot.h"
#include "ctl/params.h"

/* <kind>_get_name, of a state with that member. Without a pool it is the default. */
#define UMF_POOL_GET_NAME(kind, state_t, member, params)                                           \
    static umf_result_t kind##_get_name(void *pool, const char **name) {                           \
        const state_t *state = pool;                                                               \
        return umf_params_name(state ? state->member : params##_defaults.name, name);              \
    }

/* Logs a failed allocation at debug level only: a program may expect failures and handle them. The
 * last error of the thread is that of the provider, if it refused memory for this request. Pools
 * have logged errors in arguments. */
static inline void umf_tell_refused(const char *kind, umf_result_t result) {
    if (result != UMF_RESULT_SUCCESS) {
        bool is_logged = result == UMF_RESULT_ERROR_INVALID_ARGUMENT ||
                         result == UMF_RESULT_ERROR_INVALID_ALIGNMENT;
        if (!umf_thread_slot_tls.is_refused && !is_logged) {
            umf_last_error_set("a %s pool refuses an allocation: %s", kind, umfResultText(result));
        }
        umf_thread_slot_tls.is_refused = false;
        umf_log_write(UMF_LOG_LEVEL_DEBUG, 0, kind, "the pool refuses an allocation: %s",
                      umfResultText(result));
    }
}

/* Reads or writes a setting of a pool whose first member is its parameters. `fields` are the other
 * settings. They are searched first, because every creation runs one of them. */
static inline umf_result_t umf_pool_params_ctl(void *pool, bool creating,
                                               const umf_fields_t *fields,
                                               const umf_params_kind_t *params,
                                               umf_ctl_query_source_t source, const char *path,
                                               void *arg, size_t size, umf_ctl_query_type_t type,
                                               va_list args) {
    umf_result_t result =
        umf_field_ctl(pool, creating, fields, source, path, arg, size, type, args);
    if (result == UMF_RESULT_ERROR_INVALID_CTL_PATH) {
        result =
            umf_field_ctl(pool, creating, &params->fields, source, path, arg, size, type, args);
    }
    return result;
}

#endif
