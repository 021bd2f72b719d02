/* Settings: what the pools' parameter functions and tables of fields have in common. */
#ifndef UMF_SRC_POOLS_SHARED_SETTINGS_H
#define UMF_SRC_POOLS_SHARED_SETTINGS_H

#include <stdatomic.h>

#include <umf/result.h>

#include "base/handle.h"
#include "base/log.h"
#include "ctl/field.h"

static inline umf_result_t umf_null_argument(const char *what) {
    UMF_LOG_ERROR("%s is NULL", what);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* A provider or a caller may want to know; a program that counts on refusals should not have to. */
static inline void umf_tell_refused(const char *kind, umf_result_t result) {
    if (result != UMF_RESULT_SUCCESS) {
        umf_log_write(UMF_LOG_LEVEL_DEBUG, 0, kind, "the pool refuses an allocation: %s",
                      umfResultText(result));
    }
}

/* Of an operation that a kind of pool does not offer. Once: a program may call it again and again.
 */
static inline void umf_tell_not_offered(atomic_flag *told, const char *kind, const char *function,
                                        const char *instead) {
    if (!atomic_flag_test_and_set_explicit(told, memory_order_relaxed)) {
        UMF_LOG_ERROR("a %s pool does not offer %s, which gives NULL (this is said once): %s", kind,
                      function, instead);
    }
}

/* What a public function sets, by the setter of the field. */
static inline umf_result_t umf_pool_params_set(void *params, const umf_handle_kind_t *kind,
                                               umf_result_t (*set)(void *, const void *),
                                               const void *value, const char *function) {
    return umf_handle_check(params, kind, function) ? set(params, value)
                                                    : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* The getter of a parameter, for a field whose object begins with a `params_t`, which is a
 * parameter object or a pool; with its setter, if each value will do. */
#define UMF_PARAM_GET(params_t, type, member)                                                      \
    static umf_result_t get_##member(void *object, size_t index, void *value, size_t size) {       \
        (void)index, (void)size;                                                                   \
        *(type *)value = ((params_t *)object)->member;                                             \
        return UMF_RESULT_SUCCESS;                                                                 \
    }
#define UMF_PARAM(params_t, type, member)                                                          \
    UMF_PARAM_GET(params_t, type, member)                                                          \
    static umf_result_t set_##member(void *object, const void *value) {                            \
        ((params_t *)object)->member = *(const type *)value;                                       \
        return UMF_RESULT_SUCCESS;                                                                 \
    }

/* Its field: read at any time, written while the pool is being made. */
#define UMF_PARAM_FIELD(name, kind, member, text)                                                  \
    {                                                                                              \
        .path = "params." name, .type = UMF_FIELD_##kind,                                          \
        .access = UMF_FIELD_READ | UMF_FIELD_CREATE, .get = get_##member, .set = set_##member,     \
        .help = text                                                                               \
    }

#endif
