/*
 * Pinned: units of host memory near a device, retained after use. Most are pinned; plain ones are
 * not, and the system may take their pages while they are unused.
 *
 * Units are made in blocks: one mapping on huge pages, pinned by one call. Both matter. A driver
 * pins touched huge pages at copy speed. Small pages, untouched pages, or many ranges pinned by
 * many threads at once are several times slower. So several threads touch units, and one pins a
 * block when it is touched.
 */
#ifndef UMF_SRC_EXT_STAGING_PINNED_H
#define UMF_SRC_EXT_STAGING_PINNED_H

#include "object/object.h"

#define UMF_PINNED_UNIT ((size_t)32 << 20)

typedef struct umf_pinned_block_t umf_pinned_block_t;

typedef struct umf_pinned_t {
    umf_pinned_block_t *block; /* Immutable */
    char *base;                /* Immutable */
} umf_pinned_t;

/* Takes `count` units: first retained ones, then new ones, which umf_pinned_make completes.
 * `*ready` is the number of retained ones. All or nothing. */
umf_result_t umf_pinned_take(umf_memory_provider_handle_t provider, umf_pinned_t **units,
                             size_t count, size_t *ready);
/* The same for plain units. They are complete. */
umf_result_t umf_pinned_take_plain(umf_memory_provider_handle_t provider, umf_pinned_t **units,
                                   size_t count);
/* Gives units back. They are retained if their block was pinned, or is plain. */
void umf_pinned_put(umf_pinned_t **units, size_t count);

/* Makes the units behind the first `ready` ones resident and pins them. Calls `use`, unless it is
 * NULL, for each unit in order as soon as it is complete. Ends at the first failure. */
umf_result_t umf_pinned_make(umf_pinned_t **units, size_t count, size_t ready,
                             umf_result_t (*use)(void *arg, size_t unit), void *arg);

/* Milliseconds for which unused pinned blocks are retained. Later ones go in umf_pinned_ticks. 0:
 * none is retained. */
#define UMF_PINNED_LEASE_MAX 3600000
int umf_pinned_lease(void);
void umf_pinned_set_lease(int milliseconds);
/* Gives some of the blocks whose lease is over back to the system, and requests another tick soon:
 * drivers let no thread launch work while they unpin, so there are pauses between blocks. A device
 * that works is left alone until its blocks were over for so long, in which case ticks of 1.6 s
 * give back all. */
#define UMF_PINNED_PATIENCE_MS 1500
void umf_pinned_ticks(void);

/* Gives unused blocks back to the system. One that cannot be unpinned is used for the next copies.
 */
void umf_pinned_trim(void);
/* The same for all blocks of a provider, which is about to end. Blocks that are in use, or cannot
 * be unpinned, stay with the process. */
void umf_pinned_drop(umf_memory_provider_handle_t provider);

#endif
