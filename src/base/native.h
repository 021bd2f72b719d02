/*
 * Last native error of a provider kind, per thread: a code, a fixed text and perhaps an errno.
 */
#ifndef UMF_SRC_BASE_NATIVE_H
#define UMF_SRC_BASE_NATIVE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/base.h>

/* Each kind stores it in a `__thread umf_native_t`. It is small, because thread-local memory is
 * scarce. */
typedef struct umf_native_t {
    int16_t code;   /* of this library; codes of drivers are wider */
    int16_t errnum; /* 0: no system call failed */
} umf_native_t;

typedef struct umf_native_text_t {
    int32_t code;
    const char *text;
} umf_native_text_t;

/* Whether a request that failed so may succeed when there is more free memory. */
static inline bool umf_result_is_shortage(umf_result_t result) {
    return result == UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY ||
           result == UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}
static inline bool umf_errno_is_shortage(int errnum) {
    return errnum == ENOMEM || errnum == EAGAIN || errnum == ENOSPC || errnum == EDQUOT;
}

/* Stores the code and the errno value. Returns MEMORY_PROVIDER_SPECIFIC. */
umf_result_t umf_native_fail(umf_native_t *last, int32_t code, int errnum);

/* The same, after it logs "<what> <size> bytes at <ptr> failed" with the name of the kind. */
umf_result_t umf_native_fail_at(umf_native_t *last, const char *kind, int32_t code, int errnum,
                                const char *what, const void *ptr, size_t size);

/* Whether the caller of get_last_native_error passed both outputs. Logs if not. */
bool umf_native_has_places(const char **message, const int32_t *code);

/*
 * The body of get_last_native_error for texts of this library: `*message` is "<text>" or "<text>:
 * <system's text>", valid until the next call in this thread. INVALID_ARGUMENT on NULL.
 */
umf_result_t umf_native_get(const umf_native_t *last, const umf_native_text_t *texts, size_t count,
                            const char **message, int32_t *code);

#endif
