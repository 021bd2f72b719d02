/*
 * Metadata arena: memory for our own bookkeeping, taken from the system, never from a provider or
 * from malloc (which may be us). Small blocks come from size classes with free lists, large ones
 * are mapped. Blocks are type-stable in this sense only: the arena is never unmapped while the
 * process lives.
 */
#ifndef UMF_SRC_BASE_META_H
#define UMF_SRC_BASE_META_H

#include "system/common.h"

/* Zeroed, aligned to 16 bytes (to 64 from 64 bytes on, to UMF_CACHE_ISOLATION where the
 * size is a multiple of it, to a page from a page on). NULL when the
 * system has no memory. */
void *umf_meta_alloc(size_t size);

/* `size` as given to alloc; NULL is ignored. */
void umf_meta_free(void *ptr, size_t size);

/* The size to ask for, and to give back, where one thread writes often: such a block shares nothing
 * that CPUs fetch with blocks of other threads. */
static inline size_t umf_meta_isolated_size(size_t size) {
    return (size + UMF_CACHE_ISOLATION - 1) & ~(size_t)(UMF_CACHE_ISOLATION - 1);
}

/* Bytes in use by callers now, and bytes mapped from the system. */
size_t umf_meta_used(void);
size_t umf_meta_mapped(void);

#endif
