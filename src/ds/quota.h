/* Bytes up to a limit that several objects share. No lock. A NULL quota has no limit. */
#ifndef UMF_SRC_DS_QUOTA_H
#define UMF_SRC_DS_QUOTA_H

#include <stdbool.h>
#include <stddef.h>

#include "system/atomic.h"

typedef struct umf_quota_t {
    _Atomic(size_t) max;
    _Atomic(size_t) used; /* above `max` only after umf_quota_add or a lower `max` */
} umf_quota_t;

/* false: it would exceed the limit, and nothing is counted. */
static inline bool umf_quota_reserve(umf_quota_t *quota, size_t size) {
    if (!quota) {
        return true;
    }
    size_t max = atomic_load_explicit(&quota->max, memory_order_relaxed);
    size_t used = atomic_load_explicit(&quota->used, memory_order_relaxed);
    do {
        if (size > max || used > max - size) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&quota->used, &used, used + size,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* Counts even beyond the limit. */
static inline void umf_quota_add(umf_quota_t *quota, size_t size) {
    if (quota) {
        atomic_fetch_add_explicit(&quota->used, size, memory_order_relaxed);
    }
}

static inline void umf_quota_release(umf_quota_t *quota, size_t size) {
    if (quota) {
        atomic_fetch_sub_explicit(&quota->used, size, memory_order_relaxed);
    }
}

#endif
