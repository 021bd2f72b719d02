/*
 * A result in two bytes, for thread-local variables: thread-local memory is scarce.
 */
#ifndef UMF_SRC_BASE_SHORT_RESULT_H
#define UMF_SRC_BASE_SHORT_RESULT_H

#include <stdint.h>

#include <umf/base.h>

typedef int16_t umf_short_result_t;

/* UNKNOWN, and every number that is too large, as none of the library's is. */
#define UMF_SHORT_RESULT_UNKNOWN INT16_MIN

static inline umf_short_result_t umf_result_shorten(umf_result_t result) {
    return (int)result > INT16_MIN && (int)result <= INT16_MAX ? (umf_short_result_t)result
                                                               : UMF_SHORT_RESULT_UNKNOWN;
}

static inline umf_result_t umf_result_lengthen(umf_short_result_t result) {
    return result == UMF_SHORT_RESULT_UNKNOWN ? UMF_RESULT_ERROR_UNKNOWN : (umf_result_t)result;
}

#endif
