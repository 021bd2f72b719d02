/*
 * The lock is held for one portion of pieces at a time. Meanwhile pieces come and go. The next
 * portion continues below the lowest used piece that is still there; what lies below it is looked
 * at again. If none is there any more, the rest of the span is unknown.
 */
#include "pools/shared/walk.h"

#define PORTION 512

typedef struct portion_t {
    size_t count;
    bool is_last;
    umf_range_piece_t pieces[PORTION];
} portion_t;

static void portion_read_locked(const umf_walk_range_t *divided, uintptr_t region, uintptr_t below,
                                portion_t *portion) {
    portion->count = umf_range_pieces(*divided->part->range, region, below, portion->pieces,
                                      PORTION, &portion->is_last);
    for (size_t i = 0; i < portion->count && !umf_list_is_empty(&divided->part->isolated); i++) {
        if (umf_purge_has_isolated(divided->part, portion->pieces[i].base)) {
            portion->pieces[i].use = UMF_RANGE_IS_FREE;
        }
    }
}

static bool first_read(const umf_walk_range_t *divided, uintptr_t region, portion_t *portion) {
    umf_lock(divided->part->lock);
    bool is_there = *divided->part->range != NULL;
    if (is_there) {
        portion_read_locked(divided, region, 0, portion);
        is_there = portion->count > 0;
    }
    umf_unlock(divided->part->lock);
    return is_there;
}

/* Reads the portion after `last`. Returns how many pieces of `last` still count; 0: none is there
 * any more, and nothing is read. */
static size_t next_read(const umf_walk_range_t *divided, uintptr_t region, const portion_t *last,
                        portion_t *next) {
    size_t kept = last->count;
    umf_lock(divided->part->lock);
    while (kept > 0 && !umf_range_used_size(*divided->part->range, last->pieces[kept - 1].base)) {
        kept--;
    }
    if (kept > 0) {
        portion_read_locked(divided, region, last->pieces[kept - 1].base, next);
    }
    umf_unlock(divided->part->lock);
    return kept;
}

void umf_walk_live(const umf_range_piece_t *piece, umf_walk_t *walk, void *arg) {
    (void)arg;
    umf_walk_add(walk, piece->base, piece->size, 1, UMF_RECORD_STATE_LIVE);
}

static void piece_tell(const umf_walk_range_t *divided, const umf_range_piece_t *piece,
                       umf_walk_t *walk) {
    if (piece->use == UMF_RANGE_IS_USED) {
        divided->used(piece, walk, divided->arg);
    } else {
        umf_walk_add(walk, piece->base, piece->size, 1,
                     piece->use == UMF_RANGE_IS_FREE ? UMF_RECORD_STATE_FREE
                                                     : UMF_RECORD_STATE_CACHED);
    }
}

static void pieces_report(const umf_walk_range_t *divided, const portion_t *portion, size_t count,
                          umf_walk_t *walk) {
    for (size_t i = 0; i < count; i++) {
        piece_tell(divided, &portion->pieces[i], walk);
    }
}

bool umf_walk_range(const umf_walk_range_t *divided, uintptr_t region, umf_walk_t *walk) {
    portion_t portions[2];
    portion_t *last = &portions[0], *next = &portions[1];
    bool is_there = first_read(divided, region, last);
    while (is_there && last->count > 0) {
        size_t reported = last->count;
        next->count = 0;
        if (!last->is_last && (reported = next_read(divided, region, last, next)) == 0) {
            pieces_report(divided, last, last->count, walk);
            uintptr_t lowest = last->pieces[last->count - 1].base;
            umf_walk_add(walk, region, lowest - region, 1, UMF_RECORD_STATE_UNKNOWN);
            break;
        }
        pieces_report(divided, last, reported, walk);
        portion_t *read = next;
        next = last;
        last = read;
    }
    return is_there;
}
