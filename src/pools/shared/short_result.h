/*
 * A result in one byte, for thread-local variables: thread-local memory is scarce. A byte is also
 * written in one instruction, and two bytes are not.
 */
#ifndef UMF_SRC_POOLS_SHARED_SHORT_RESULT_H
#define UMF_SRC_POOLS_SHARED_SHORT_RESULT_H

#include <stdint.h>

#include <umf/base.h>

typedef int8_t umf_short_result_t;

/* UNKNOWN, and every number that is too large, as none of the library's is. */
#define UMF_SHORT_RESULT_UNKNOWN INT8_MIN

static inline umf_short_result_t umf_result_shorten(umf_result_t result) {
    return (int)result > INT8_MIN && (int)result <= INT8_MAX ? (umf_short_result_t)result
                                                             : UMF_SHORT_RESULT_UNKNOWN;
}

static inline umf_result_t umf_result_lengthen(umf_short_result_t result) {
    return result == UMF_SHORT_RESULT_UNKNOWN ? UMF_RESULT_ERROR_UNKNOWN : (umf_result_t)result;
}

#endif
