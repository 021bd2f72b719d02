/*
 * Metadata arena: memory for our own bookkeeping. It comes from the system, never from a provider
 * or from malloc (which may be us). Small blocks come from size classes with free lists, large
 * blocks are mapped. The memory of small blocks stays mapped while the process lives, so reading a
 * freed one is harmless.
 */
#ifndef UMF_SRC_BASE_META_H
#define UMF_SRC_BASE_META_H

#include "system/common.h"

/* Zeroed memory, aligned to 16 bytes (to 64 from 64 bytes on, to UMF_CACHE_ISOLATION if the size is
 * a multiple of it, to a page from a page on). NULL: the system has no memory. */
void *umf_meta_alloc(size_t size);

/* `size` is that of the allocation. NULL is ignored. */
void umf_meta_free(void *ptr, size_t size);

/* The same for objects of destroyed handles: the block is in use no longer, but it stays as it is,
 * and is not allocated again, until as many others have been freed late. */
#define UMF_META_LATE 64
void umf_meta_free_late(void *ptr, size_t size);

/* The same for blocks of any size that may still be read after they were freed: they stay mapped.
 * The first 16 bytes change then. The first page of a large one keeps the rest, the others are 0.
 */
void *umf_meta_alloc_lasting(size_t size);
void umf_meta_free_lasting(void *ptr, size_t size);

/* Makes room for one item more in a list of `count` items of `size` bytes, which has room for
 * `*room`. `list` is the address of the pointer to it. false: no memory, and nothing has changed.
 */
bool umf_meta_grow(void *list, size_t count, size_t *room, size_t size);

/* The size to allocate and to free for a block to which one thread writes often: cache-line
 * isolated, it shares nothing that CPUs fetch with blocks of other threads. */
static inline size_t umf_meta_isolated_size(size_t size) {
    return (size + UMF_CACHE_ISOLATION - 1) & ~(size_t)(UMF_CACHE_ISOLATION - 1);
}

/* Lets the system have the pages of freed small blocks, if more than 1 MiB was freed since the last
 * time. Their addresses stay mapped. */
UMF_COLD void umf_meta_trim(void);

/* Bytes in use by callers now, and bytes mapped from the system. */
size_t umf_meta_used(void);
size_t umf_meta_mapped(void);

#endif
