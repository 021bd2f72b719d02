/*
 * Content: zeroes and copies memory of a pool, even if the CPU cannot access it.
 *
 * Device memory (its property POINTER_TYPE is DEVICE) is filled and copied by the provider's own
 * operations (umf/plugin.h), memory of another type by the CPU. A provider serves one type of
 * memory, so it is queried once. A provider may not report it: it has no properties, or the type is
 * UNKNOWN. Then the first access to each span tests, by a call of the kernel, whether the CPU can
 * access the address. If it cannot, the provider's operations are used.
 *
 * This module chooses the one or the other. The work itself is in ext/movement, which core calls
 * through `umf_content_mover` only.
 */
#ifndef UMF_SRC_OBJECT_CONTENT_H
#define UMF_SRC_OBJECT_CONTENT_H

#include "object/provider/tracked_provider.h"
#include "system/atomic.h"

#define UMF_CONTENT_KNOWN 16

typedef struct umf_content_t {
    umf_tracked_provider_t *tracked;            /* Immutable after init */
    _Atomic(int) access;                        /* what can access the memory, see content.c */
    _Atomic(uint64_t) known[UMF_CONTENT_KNOWN]; /* ids of spans that the CPU can access */
} umf_content_t;

typedef struct umf_content_mover_t {
    void (*cpu_zero)(void *ptr, size_t size);
    void (*cpu_copy)(void *to, const void *from, size_t size);
    /* By the operations of a provider, which is not tracked, on a queue that it keeps. Both have
     * finished when they return; the provider that failed is recorded. */
    umf_result_t (*zero)(umf_memory_provider_handle_t provider, void *ptr, size_t size);
    umf_result_t (*copy)(umf_memory_provider_handle_t provider, void *to, const void *from,
                         size_t size);
} umf_content_mover_t;

/* Set when the library starts. */
extern const umf_content_mover_t *umf_content_mover;

/* Takes no resources. */
void umf_content_init(umf_content_t *content, umf_tracked_provider_t *tracked);

/*
 * Both have finished when they return. NOT_SUPPORTED: neither the CPU nor the provider can do it.
 * Other errors are the provider's. The cause is logged. No lock may be held.
 */
umf_result_t umf_content_zero(umf_content_t *content, void *ptr, size_t size);
/* `dst` and `src` are allocations through the tracked provider and do not overlap. */
umf_result_t umf_content_copy(umf_content_t *content, void *dst, const void *src, size_t size);

#endif
