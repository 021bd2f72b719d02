/*
 * Extents: the private memory of one OS provider, between the provider and the system.
 *
 * A piece has up to 256 KiB; pools take pieces for their slabs. Pieces are cut out of extents:
 * mappings of 2 MiB at multiples of 2 MiB, the size of a huge page. A single mapping of a piece's
 * size never gets a huge page. An extent requests huge pages as soon as the provider has 8 MiB in
 * extents; before that one touched byte must not cost 2 MiB. Larger memory gets a mapping of its
 * own (base/aligned_map.h), the first 4 MiB that pools take so without huge pages, too.
 *
 * Each thread takes its pieces from groups of its own when several threads take pieces, as far as
 * there is room in extents that are half full. The entries of one group lie in one pair of cache
 * lines of the pointer map. Threads with neighbouring pieces would contend for these lines.
 *
 * Freed memory goes back to the system at once, and a later access faults. The addresses of a freed
 * piece stay mapped without access until its extent is unmapped, unless addresses run out: that is
 * one system call for a piece and two for an extent. An extent is unmapped with its last piece if
 * it has no free pages left or if four others are empty. Mappings of 2 to 8 MiB, up to 16 MiB in
 * all, are retained without content and access for the next allocations of their size: a new one
 * would have to request huge pages again.
 *
 * Pieces that a pool frees stay dirty: they keep their content for an allocation of any content.
 * That costs no system call, and with many threads system calls contend in the kernel. Mappings of
 * up to 8 MiB stay dirty, too. The limit: live plus dirty bytes are at most the peak of live bytes
 * in this and the last decay period plus 64 MiB. Memory beyond the limit, or dirty for a decay
 * period, is evicted: all dirty pages of an extent are cleared together and are then free for
 * any use; mappings are unmapped. A pool's free evicts at most two; a decay pass evicts all that
 * have decayed.
 *
 * Thread-safe.
 */
#ifndef UMF_SRC_PROVIDERS_OS_EXTENT_H
#define UMF_SRC_PROVIDERS_OS_EXTENT_H

#include "base/lock.h"
#include "cache/decay.h"
#include "cache/transit.h"
#include "ds/hash.h"
#include "ds/list.h"
#include "providers/os/maps.h"

#define UMF_OS_GROUPS 32u /* threads share a group if their numbers modulo this are equal */

typedef struct umf_os_extents_t {
    size_t page_size;      /* Immutable after init, as the next two members */
    int protection;        /* as mmap has it */
    bool has_guards;       /* the system has MADV_GUARD_INSTALL */
    umf_transit_t transit; /* dirty memory on its way out */
    umf_lock_t lock;       /* UMF_RANK_PROVIDER; guards all that follows */
    umf_hash_t all;        /* extents by address */
    umf_list_t roomy;      /* those with free pages */
    umf_list_t dirty;      /* those with dirty pages, newest first */
    size_t dirty_count;    /* pages */
    umf_os_maps_t dirty_maps;
    umf_os_maps_t clear_maps;           /* without content and access */
    size_t evicting;                    /* threads that have withdrawn dirty memory */
    uint64_t now;                       /* time of the last tick */
    uint64_t period_since;              /* start of the current decay period */
    size_t peak;                        /* most live bytes in this period */
    size_t last_peak;                   /* and in the last period */
    uintptr_t low, high;                /* bounds of all extents, past ones included */
    size_t empty;                       /* extents without pieces */
    size_t free;                        /* pages of all extents */
    uint32_t last_thread;               /* the last thread that took a piece; 0: none */
    bool is_shared;                     /* more than one thread has taken pieces */
    uintptr_t groups[2][UMF_OS_GROUPS]; /* of small pieces, of larger pieces; 0: none yet */
    bool huge;                          /* extents request huge pages */
    size_t small_mapped;                /* bytes of mappings that were made without huge pages */
} umf_os_extents_t;

void umf_os_extents_init(umf_os_extents_t *extents, size_t page_size, int protection);
/* An extent that has live pieces stays mapped. */
void umf_os_extents_fini(umf_os_extents_t *extents);

/* `size` is a multiple of the page size; `alignment` as in umf_os_map_aligned. The memory reads as
 * zero. Returns 0 or an errno value. */
int umf_os_extents_alloc(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr);

/* Frees whole pages of allocations: parts of one, or neighbours together. EINVAL if the range
 * cannot be allocated memory. The kernel unmaps other mappings in the range, too. */
int umf_os_extents_free(umf_os_extents_t *extents, void *ptr, size_t size);

/* Alloc may return memory with any content. Keep frees memory that has the protection it was
 * allocated with, and may leave it dirty. `live`: bytes that stay allocated. */
int umf_os_extents_alloc_any(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr);
int umf_os_extents_keep(umf_os_extents_t *extents, void *ptr, size_t size, size_t live);

size_t umf_os_extents_dirty(umf_os_extents_t *extents); /* bytes */

/* Evicts decayed pages. */
void umf_os_extents_decay(umf_os_extents_t *extents);

/* Evicts all dirty memory. Memory that other threads evict is back with the system, too, when it
 * returns. */
void umf_os_extents_drop(umf_os_extents_t *extents);

#endif
