/*
 * Content: zeroing and copying inside the memory of a pool, also where the CPU cannot reach it.
 *
 * Memory of a device (its property POINTER_TYPE is DEVICE) is filled and copied by the provider's
 * own operations (umf/plugin.h), memory of another type by the CPU. A provider serves one kind of
 * memory, so it is asked once. One that does not tell (it has no properties, or the type is
 * UNKNOWN) may serve memory of the host or any other: the first time that something is done in a
 * span, the kernel is asked whether the CPU reaches the place. What it does not reach is the
 * provider's.
 */
#ifndef UMF_SRC_CORE_CONTENT_H
#define UMF_SRC_CORE_CONTENT_H

#include <stdatomic.h>

#include "core/tracked_provider.h"

#define UMF_CONTENT_KNOWN 16

typedef struct umf_content_t {
    umf_tracked_provider_t *tracked; /* Immutable after init */
    _Atomic int access;              /* who can touch the memory, see content.c */
    _Atomic(void *) queue;           /* of the provider, kept for the next use. Taken by exchange */
    _Atomic uint64_t known[UMF_CONTENT_KNOWN]; /* ids of spans that the CPU reaches */
} umf_content_t;

/* Takes nothing. */
void umf_content_init(umf_content_t *content, umf_tracked_provider_t *tracked);
/* Before the tracked provider is released. */
void umf_content_fini(umf_content_t *content);

/*
 * Both are done when they return. NOT_SUPPORTED if neither the CPU nor the provider can, or an
 * error of the provider; the cause has been logged. No lock may be held.
 */
umf_result_t umf_content_zero(umf_content_t *content, void *ptr, size_t size);
/* `dst` and `src` are allocations through the tracked provider and do not overlap. */
umf_result_t umf_content_copy(umf_content_t *content, void *dst, const void *src, size_t size);

#endif
