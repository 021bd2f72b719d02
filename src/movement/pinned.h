/*
 * Pinned: units of pinned host memory, retained after use.
 *
 * Units are made in blocks: one mapping on huge pages, pinned by one call. Both matter. A driver
 * pins touched huge pages at copy speed. Small pages, untouched pages, or many ranges pinned by
 * many threads at once are several times slower. So the caller touches units with all of its
 * threads, and pins a block with one.
 */
#ifndef UMF_SRC_MOVEMENT_PINNED_H
#define UMF_SRC_MOVEMENT_PINNED_H

#include "core/object.h"

#define UMF_PINNED_UNIT ((size_t)32 << 20)

typedef struct umf_pinned_block_t umf_pinned_block_t;

typedef struct umf_pinned_t {
    umf_pinned_block_t *block; /* Immutable */
    char *base;                /* Immutable */
} umf_pinned_t;

/* Takes `count` units: first retained ones, then new ones, which are neither touched nor pinned.
 * `*ready` is the number of retained ones. All or nothing. */
umf_result_t umf_pinned_take(umf_memory_provider_handle_t provider, umf_pinned_t **units,
                             size_t count, size_t *ready);
/* Gives a unit back. It is retained if its block was pinned. */
void umf_pinned_put(umf_pinned_t *unit);

/* Makes the pages of a new unit resident, once. */
void umf_pinned_touch(umf_pinned_t *unit);
/* Whether all units of the block were touched. */
bool umf_pinned_is_touched(const umf_pinned_t *unit);
/* Pins the unit's block. `*count` gets the number of its units. */
umf_result_t umf_pinned_pin(umf_pinned_t *unit, size_t *count);

/* Gives unused blocks back to the system: those of one provider, which is about to end, or of all
 * (NULL). */
void umf_pinned_trim(umf_memory_provider_handle_t provider);

#endif
