/* Blocks of an arena: a free segment serves a request, else the arena grows. */
#include "base/log.h"
#include "cache/decay.h"
#include "pools/coalescing/arena/arena.h"
#include "reclaim/reclaim.h"

/* So many free segments that fit are looked at for one that the queue need not wait for: large ones
 * up to 1/16 larger than the best. A small block takes a page of its own instead. */
#define LOOKS 8u
#define LITTLE_LOOKS 32u
#define LARGER_PARTS 16u

static bool fits(const umf_segment_t *segment, const umf_arena_request_t *request) {
    uintptr_t base = umf_align_up(segment->base, request->alignment);
    return base - segment->base <= segment->size &&
           segment->size - (base - segment->base) >= request->size;
}

static umf_segment_t *choose_locked(const umf_arena_t *arena, umf_segments_t *area,
                                    const umf_arena_request_t *request, bool *is_ordered) {
    bool is_little = area == &arena->areas[UMF_ARENA_LITTLE];
    size_t most = is_little ? SIZE_MAX : request->size + request->size / LARGER_PARTS;
    umf_segment_t *best = NULL, *at = umf_segments_fit(area, request->size);
    *is_ordered = false;
    for (unsigned i = 0; at && i < (is_little ? LITTLE_LOOKS : LOOKS) && !*is_ordered;
         i++, at = umf_segments_above(area, at)) {
        if (fits(at, request) && (!best || at->size <= most)) {
            *is_ordered = umf_arena_is_ordered_locked(arena, &at->uses, request->queue);
            best = *is_ordered || !best ? at : best;
        }
    }
    return best;
}

/* Queues that use the block and must be ordered first. */
typedef struct taken_t {
    umf_segment_t *block;
    bool is_ordered;
} taken_t;

static void own_locked(umf_arena_t *arena, umf_segment_t *block,
                       const umf_arena_request_t *request) {
    block->uses = (umf_uses_t){0};
    if (request->is_captured) {
        umf_arena_fix_locked(arena, block->base, block->size);
    }
}

umf_segment_t *umf_arena_take_locked(umf_arena_t *arena, umf_segments_t *area, umf_segment_t *from,
                                     const umf_arena_request_t *request) {
    uintptr_t base = umf_align_up(from->base, request->alignment);
    /* The thread with the driver lock has made room for one more block. */
    if (!umf_segments_reserve(area, 1) || !umf_hash_reserve(&arena->blocks, 2)) {
        return NULL;
    }
    umf_segment_cut(area, from, base, request->size);
    umf_segment_set(area, from, UMF_SEGMENT_LIVE);
    umf_hash_put(&arena->blocks, base, from);
    umf_arena_pieces_count_locked(arena, base, base + request->size, true);
    arena->live += request->size;
    return from;
}

/* `any`: also memory behind which the queue is not in order yet. */
static taken_t take_free(umf_arena_t *arena, const umf_arena_request_t *request, bool any) {
    taken_t taken = {0};
    umf_segments_t *area =
        &arena->areas[request->size < UMF_ARENA_SMALL ? UMF_ARENA_LITTLE : UMF_ARENA_LARGE];
    umf_lock(&arena->lock);
    umf_segment_t *found = choose_locked(arena, area, request, &taken.is_ordered);
    if (found && (taken.is_ordered || any)) {
        taken.block = umf_arena_take_locked(arena, area, found, request);
    }
    if (taken.block && taken.is_ordered) {
        own_locked(arena, taken.block, request);
    }
    size_t live = arena->live;
    arena->live_peak = arena->live_peak < live ? live : arena->live_peak;
    umf_unlock(&arena->lock);
    return taken;
}

void umf_arena_free_locked(umf_arena_t *arena, umf_segment_t *block) {
    umf_segments_t *area = umf_arena_area(arena, block->base);
    umf_hash_remove(&arena->blocks, block->base);
    umf_arena_pieces_count_locked(arena, block->base, umf_segment_end(block), false);
    arena->live -= block->size;
    umf_segment_set(area, block, UMF_SEGMENT_FREE);
    umf_segment_join(area, block);
}

/* The queue uses the block from now on. NULL: it cannot be put in order, and the block is free
 * again. Driver lock held. */
static umf_segment_t *order(umf_arena_t *arena, umf_segment_t *block,
                            const umf_arena_request_t *request) {
    umf_uses_t uses = block->uses; /* only this thread has the block */
    bool is_ordered = umf_arena_order(arena, &uses, request->queue);
    umf_lock(&arena->lock);
    if (is_ordered) {
        own_locked(arena, block, request);
    } else {
        umf_arena_free_locked(arena, block);
    }
    umf_unlock(&arena->lock);
    return is_ordered ? block : NULL;
}

static umf_segment_t *grow(umf_arena_t *arena, const umf_arena_request_t *request) {
    umf_segment_t *block = umf_arena_grow(arena, request);
    return block ? order(arena, block, request) : NULL;
}

static umf_segment_t *take_any(umf_arena_t *arena, const umf_arena_request_t *request) {
    taken_t taken = take_free(arena, request, true);
    return taken.block && !taken.is_ordered ? order(arena, taken.block, request) : taken.block;
}

/* How far are the queues that have used what fits best? */
static void look_at_best(umf_arena_t *arena, const umf_arena_request_t *request) {
    umf_uses_t uses = {0};
    umf_lock(&arena->lock);
    const umf_segment_t *best =
        umf_segments_fit(&arena->areas[UMF_ARENA_LITTLE], request->size + request->alignment);
    uses = best ? best->uses : uses;
    umf_unlock(&arena->lock);
    umf_arena_look(arena, &uses, true, false);
}

/* Old mappings are removed by the background thread, if there is one and it keeps up. */
static void settle_or_leave(umf_arena_t *arena) {
    umf_lock(&arena->lock);
    bool is_any = arena->stale != NULL, are_few = arena->stale_bytes <= arena->held;
    umf_unlock(&arena->lock);
    if (is_any && are_few && umf_decay_has_thread()) {
        umf_decay_tick_soon();
    } else if (is_any) {
        umf_arena_settle(arena, false);
    }
}

/* Where nothing free fits that the queue may use at once. A large block waits on the device; a
 * small one does so where there is no more memory. Driver lock held. */
static umf_segment_t *take_slow(umf_arena_t *arena, const umf_arena_request_t *request) {
    umf_arena_request_t ordered = *request, at_tail = *request;
    ordered.only_ordered = true;
    at_tail.at_tail = true; /* where large pages fit */
    umf_arena_poll(arena);
    settle_or_leave(arena);
    bool is_large = request->size >= UMF_ARENA_SMALL;
    if (!is_large) {
        look_at_best(arena, request);
    }
    umf_segment_t *block =
        is_large ? take_any(arena, request) : take_free(arena, request, false).block;
    if (!block && !is_large) {
        block = grow(arena, &ordered);
        block = block ? block : take_any(arena, request);
    }
    block = block ? block : grow(arena, request);
    block = block ? block : grow(arena, &at_tail);
    /* As in a capture, which waits for no queue. */
    return block ? block : grow(arena, &ordered);
}

/* A request that fails otherwise. */
typedef struct last_t {
    const umf_arena_request_t *request;
    umf_segment_t *block;
} last_t;

static umf_segment_t *take_with_driver(umf_arena_t *arena, const umf_arena_request_t *request) {
    umf_transit_part_t part;
    umf_transit_begin(&arena->transit, &part);
    umf_arena_driver_lock(arena);
    umf_segment_t *block = take_slow(arena, request);
    umf_arena_driver_unlock(arena);
    umf_transit_end(&part);
    return block;
}

static bool take_last(void *self, void *request) {
    last_t *last = request;
    last->block = take_with_driver(self, last->request);
    return last->block != NULL;
}

/* All that is free returns to the provider, after the work that uses it. */
static void give_back(void *self) {
    umf_arena_t *arena = self;
    umf_arena_driver_lock(arena);
    umf_arena_release(arena, 0);
    umf_arena_settle(arena, true);
    umf_arena_driver_unlock(arena);
}

static UMF_COLD bool reclaim(umf_arena_t *arena, last_t *last) {
    umf_shortage_t shortage = {
        .tracked = arena->tracked,
        .transit = &arena->transit,
        .pool = arena,
        .give_back = give_back,
        .attempt = take_last,
        .request = last,
    };
    return umf_reclaim(&shortage);
}

static UMF_COLD umf_segment_t *alloc_slow(umf_arena_t *arena, const umf_arena_request_t *request) {
    last_t last = {.request = request};
    umf_tracked_forget_refusal();
    return take_last(arena, &last) || reclaim(arena, &last) ? last.block : NULL;
}

void *umf_arena_alloc(umf_arena_t *arena, size_t size, umf_arena_request_t *request) {
    size_t granule = arena->params.granule;
    if (request->alignment != 0 && !umf_is_pow2(request->alignment)) {
        UMF_LOG_ERROR("pool %s: alignment %zu is not a power of two", arena->params.name,
                      request->alignment);
        return umf_coalescing_fail(UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    }
    request->alignment = request->alignment > granule ? request->alignment : granule;
    if (!umf_round_up(size ? size : 1, granule, &request->size) || request->size > arena->size ||
        request->alignment > arena->size) {
        return umf_coalescing_fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    umf_segment_t *block = take_free(arena, request, false).block;
    block = umf_likely(block != NULL) ? block : alloc_slow(arena, request);
    return block ? (void *)block->base : umf_coalescing_fail(umf_tracked_refusal());
}
