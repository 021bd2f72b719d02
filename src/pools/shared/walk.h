/* Walks (object/walk.h) of spans that are divided by ds/range. */
#ifndef UMF_SRC_POOLS_SHARED_WALK_H
#define UMF_SRC_POOLS_SHARED_WALK_H

#include "ds/range.h"
#include "object/walk.h"
#include "pools/shared/purge.h"

typedef struct umf_walk_range_t {
    const umf_purge_part_t *part;
    /* Reports the blocks of a used piece, with no lock held. */
    void (*used)(const umf_range_piece_t *piece, umf_walk_t *walk, void *arg);
    void *arg;
} umf_walk_range_t;

/* Reports the region that starts at `region`, from high addresses to low. false: the range has no
 * such region; nothing is reported. */
bool umf_walk_range(const umf_walk_range_t *divided, uintptr_t region, umf_walk_t *walk);

/* A used piece that is one live block. */
void umf_walk_live(const umf_range_piece_t *piece, umf_walk_t *walk, void *arg);

#endif
