/*
 * Extents: the private memory of one OS provider, between the provider and the system.
 *
 * Pieces of up to 256 KiB, as pools take for their slabs, are cut out of extents: mappings of 2 MiB
 * at multiples of 2 MiB, the size of a huge page. A single mapping of such a size never gets one.
 * An extent asks for huge pages as soon as the provider has 8 MiB in extents; before that one
 * touched byte must not cost 2 MiB. Larger memory is mapped for itself (os_place.h).
 *
 * Where several threads take pieces, each takes them from groups of its own, as far as there is
 * room in extents that are half full: the words of a group lie in one pair of cache lines of the
 * pointer map, which threads with neighbouring pieces would write in turns.
 *
 * What is freed is given back to the system at once, and to touch it is a fault. The place of a
 * piece stays without access until its extent goes, unless addresses run out: that is one system
 * call for a piece and two for an extent. An extent goes with its last piece, if it has no room
 * left or four others are empty. Four other mappings of 2 to 8 MiB are kept without access for the
 * next that want the same, which is cheaper than to ask for huge pages again.
 *
 * Pieces that are freed to be used again stay dirty: they keep their content for who wants any
 * memory. That is the way of pools, and costs no system call; with many threads these meet in the
 * kernel. So do mappings of up to 8 MiB. What is live and what is dirty are together no more than
 * was live at most in this period of decay and in the last, and 64 MiB. Beyond that, and where some
 * were dirty for a period, all dirty pages of an extent are cleared together, for any use, and
 * mappings unmapped: two at most for each that comes, or all when a pool looks at what decays.
 *
 * Thread-safe.
 */
#ifndef UMF_SRC_PROVIDERS_OS_EXTENT_H
#define UMF_SRC_PROVIDERS_OS_EXTENT_H

#include "base/lock.h"
#include "cache/decay.h"
#include "ds/hash.h"
#include "ds/list.h"
#include "providers/os/dirty.h"

#define UMF_OS_KEPT_MAX 4u
#define UMF_OS_GROUPS 32u /* of different threads, by their numbers */

typedef struct umf_os_extents_t {
    size_t page_size;   /* Immutable after init, as the next two */
    int protection;     /* as mmap has it */
    bool has_guards;    /* the system has MADV_GUARD_INSTALL */
    umf_lock_t lock;    /* UMF_RANK_PROVIDER; guards all that follows */
    umf_hash_t all;     /* extents by address */
    umf_list_t roomy;   /* those with free pages */
    umf_list_t dirty;   /* those with dirty pages, the latest first */
    size_t dirty_count; /* pages */
    umf_os_dirty_t dirty_maps;
    uint64_t now;                       /* of the last tick */
    uint64_t period_since;              /* when the present period of decay began */
    size_t peak;                        /* bytes that were live at most in it, */
    size_t last_peak;                   /* and in the one before */
    uintptr_t low, high;                /* all extents there ever were lie between */
    size_t empty;                       /* extents without pieces */
    size_t free;                        /* pages of all extents */
    uint32_t last_thread;               /* that took a piece */
    bool is_shared;                     /* there was another one before */
    uintptr_t groups[2][UMF_OS_GROUPS]; /* for small pieces, and for larger ones; 0: none yet */
    bool huge;                          /* extents ask for huge pages */
    unsigned kept_count;
    struct {
        uintptr_t base;
        size_t size;
    } kept[UMF_OS_KEPT_MAX]; /* mappings without content and access, the oldest first */
} umf_os_extents_t;

void umf_os_extents_init(umf_os_extents_t *extents, size_t page_size, int protection);
/* Pieces that were not freed stay, with the whole of their extents. */
void umf_os_extents_fini(umf_os_extents_t *extents);

/* `size` is in whole pages; `alignment` as umf_os_place has it. The memory is zero. 0 or an errno
 * value. */
int umf_os_extents_alloc(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr);

/* Any whole pages of what was allocated: parts of it, or neighbours together. EINVAL for what
 * cannot be such; of other memory the kernel unmaps what is there. */
int umf_os_extents_free(umf_os_extents_t *extents, void *ptr, size_t size);

/* The same for memory that may have any content, and for memory with the protection that it was
 * allocated with. `live`: bytes that stay allocated. */
int umf_os_extents_alloc_any(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr);
int umf_os_extents_keep(umf_os_extents_t *extents, void *ptr, size_t size, size_t live);

/* Clears what is dirty, `all` or what has decayed. false: nothing was. */
bool umf_os_extents_cool(umf_os_extents_t *extents, bool all);

#endif
