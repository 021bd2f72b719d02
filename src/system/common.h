/*
 * Small helpers every file may use: branch hints, export markers, checked arithmetic.
 */
#ifndef UMF_SRC_SYSTEM_COMMON_H
#define UMF_SRC_SYSTEM_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/base.h>

#ifdef __cplusplus /* tests */
#define _Alignas alignas
#define _Static_assert static_assert
#endif

#define umf_likely(x) __builtin_expect(!!(x), 1)
#define umf_unlikely(x) __builtin_expect(!!(x), 0)

/* A function of the hot path that is worth its size in more than one caller. */
#define UMF_INLINE static inline __attribute__((always_inline))

/* A function off the hot path: kept out of line so that the hot path stays short. */
#define UMF_COLD __attribute__((cold, noinline))

/* The distance between data that different threads write. One cache line is not enough, because
 * CPUs fetch lines in pairs. */
#define UMF_CACHE_ISOLATION 128

/* For data that hot code of several files reads. Without it each read would load the
 * address first. */
#define UMF_HIDDEN __attribute__((visibility("hidden")))

/*
 * Export markers. One stands in front of every public definition; the linker's version script is
 * generated from them, so this is the only place where a symbol is given its version node.
 * The node of a released version is closed: a new function has the marker of the next one.
 */
#define UMF_API_1_0 __attribute__((visibility("default")))
#define UMF_API_1_1 __attribute__((visibility("default")))
#define UMF_API_1_2 __attribute__((visibility("default")))
#define UMF_API_EXT_1 __attribute__((visibility("default")))
#define UMF_API_EXT_1_3 __attribute__((visibility("default")))

#define UMF_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define UMF_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* The longest name of a provider or a pool, with its NUL; longer ones are cut. */
#define UMF_NAME_MAX 64

static inline bool umf_is_pow2(size_t v) {
    return v != 0 && (v & (v - 1)) == 0;
}

/* Checked arithmetic: false when the result does not fit, `*out` is then unspecified. */
static inline bool umf_add(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

static inline bool umf_mul(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

/* Rounds up to a multiple of `granule` (any value above 0). */
static inline bool umf_round_up(size_t v, size_t granule, size_t *out) {
    size_t rest = v % granule;
    return umf_add(v, rest ? granule - rest : 0, out);
}

/* Rounds an address or size up to a power of two that is known not to overflow. */
static inline uintptr_t umf_align_up(uintptr_t v, size_t pow2) {
    return (v + pow2 - 1) & ~(uintptr_t)(pow2 - 1);
}

static inline uintptr_t umf_align_down(uintptr_t v, size_t pow2) {
    return v & ~(uintptr_t)(pow2 - 1);
}

#endif
