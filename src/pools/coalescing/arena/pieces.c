/*
 * Pieces of an arena: runs of adjacent pages, whose memory a suspend takes away (umf/plugin.h,
 * virtual memory). They are listed for a suspend, when nothing moves: no page is spare, no mapping
 * stale. Their memory: pieces_memory.c.
 */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "pools/coalescing/arena/arena.h"

/* --- the list (the lock is held) --- */

/* The index of the first piece that ends above the address. */
static size_t find_locked(const umf_arena_t *arena, uintptr_t at) {
    size_t low = 0, high = arena->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (umf_arena_piece_end(&arena->pieces[middle]) > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

umf_arena_piece_t *umf_arena_piece_locked(const umf_arena_t *arena, uintptr_t at) {
    size_t i = find_locked(arena, at);
    return i < arena->piece_count && arena->pieces[i].base <= at ? &arena->pieces[i] : NULL;
}

static bool grow_locked(umf_arena_t *arena) {
    size_t more = arena->piece_room ? 2 * arena->piece_room : 16;
    if (arena->piece_count < arena->piece_room) {
        return true;
    }
    umf_arena_piece_t *made = umf_meta_alloc(more * sizeof(*made));
    if (!made) {
        return false;
    }
    if (arena->piece_count) {
        memcpy(made, arena->pieces, arena->piece_count * sizeof(*made));
    }
    umf_meta_free(arena->pieces, arena->piece_room * sizeof(*made));
    arena->pieces = made;
    arena->piece_room = more;
    return true;
}

/* The page becomes a part of the last piece, or a piece. */
static bool add_page_locked(umf_arena_t *arena, const umf_arena_page_t *page, size_t most) {
    umf_arena_piece_t *last = arena->piece_count ? &arena->pieces[arena->piece_count - 1] : NULL;
    size_t size = page->memory.size;
    if (last && umf_arena_piece_end(last) == page->home && last->is_fixed == page->is_fixed &&
        last->size + size <= most && page->home != arena->small_base) {
        last->size += size;
        return true;
    }
    if (!grow_locked(arena)) {
        return false;
    }
    arena->pieces[arena->piece_count++] = (umf_arena_piece_t){
        .base = page->home, .size = size, .is_fixed = page->is_fixed, .is_attached = true};
    return true;
}

static bool add_area_locked(umf_arena_t *arena, const umf_segments_t *area) {
    size_t most = UMF_ARENA_PAGES_OF_PIECE * umf_arena_page_size_locked(arena, SIZE_MAX);
    uintptr_t at = 0;
    for (const umf_segment_t *segment = area->first; segment; segment = segment->next) {
        if (segment->kind == UMF_SEGMENT_NONE) {
            continue;
        }
        at = at > segment->base ? at : segment->base;
        while (at < umf_segment_end(segment)) {
            const umf_arena_page_t *page = umf_arena_page_at(arena, at);
            if (!add_page_locked(arena, page, most)) {
                return false;
            }
            at = page->home + page->memory.size;
        }
    }
    return true;
}

void umf_arena_pieces_count_locked(umf_arena_t *arena, uintptr_t base, uintptr_t end, bool more) {
    for (size_t i = find_locked(arena, base); i < arena->piece_count; i++) {
        umf_arena_piece_t *piece = &arena->pieces[i];
        if (piece->base >= end) {
            return;
        }
        if (!piece->is_fixed) {
            piece->blocks += more ? 1 : (size_t)-1;
        }
    }
}

/* All of a fixed piece stays: a graph may use memory in it that has been freed. */
static void count_all_locked(umf_arena_t *arena) {
    for (size_t i = 0; i < UMF_ARENA_AREAS; i++) {
        const umf_segment_t *at = arena->areas[i].first;
        for (; at; at = at->next) {
            if (at->kind == UMF_SEGMENT_LIVE) {
                umf_arena_pieces_count_locked(arena, at->base, umf_segment_end(at), true);
            }
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < arena->piece_count; i++) {
        umf_arena_piece_t piece = arena->pieces[i];
        piece.blocks += piece.is_fixed ? 1 : 0;
        if (piece.blocks) {
            arena->pieces[kept++] = piece;
        }
    }
    arena->piece_count = kept;
}

static void forget_locked(umf_arena_t *arena) {
    umf_meta_free(arena->pieces, arena->piece_room * sizeof(*arena->pieces));
    arena->pieces = NULL;
    arena->piece_count = arena->piece_room = 0;
}

/* Lists them, where nothing moves. */
static umf_result_t list_locked(umf_arena_t *arena, size_t *parts) {
    *parts = 0;
    if (arena->stale || arena->spare || arena->is_lossy) {
        UMF_LOG_ERROR("pages of an arena cannot be unmapped, because work that may use them could "
                      "not be waited for, or the driver refuses it: suspend it after captures have "
                      "ended");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    forget_locked(arena);
    for (size_t i = 0; i < UMF_ARENA_AREAS; i++) {
        if (!add_area_locked(arena, &arena->areas[i])) {
            forget_locked(arena);
            UMF_LOG_ERROR("no memory for bookkeeping");
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
    }
    count_all_locked(arena);
    for (size_t i = 0; i < arena->piece_count; i++) {
        *parts += arena->pieces[i].blocks;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t make(void *self, size_t *parts) {
    umf_arena_t *arena = self;
    umf_arena_driver_lock(arena);
    umf_arena_settle(arena, true);
    umf_arena_release(arena, 0);
    umf_arena_settle(arena, true);
    umf_lock(&arena->lock);
    umf_result_t result = list_locked(arena, parts);
    umf_unlock(&arena->lock);
    umf_arena_driver_unlock(arena);
    return result;
}

/* --- parts: the kept pages of each piece --- */

static bool visit_block_locked(const umf_arena_t *arena, const umf_segment_t *block,
                               umf_part_visit_t visit, void *arg) {
    uintptr_t end = umf_segment_end(block);
    bool goes_on = true;
    for (size_t i = find_locked(arena, block->base); i < arena->piece_count && goes_on; i++) {
        const umf_arena_piece_t *piece = &arena->pieces[i];
        uintptr_t from = piece->base > block->base ? piece->base : block->base;
        uintptr_t to = umf_arena_piece_end(piece) < end ? umf_arena_piece_end(piece) : end;
        if (from >= to) {
            break;
        }
        goes_on = piece->is_fixed || visit(from, to - from, arg);
    }
    return goes_on;
}

static void each_part(void *self, umf_part_visit_t visit, void *arg) {
    umf_arena_t *arena = self;
    bool goes_on = true;
    umf_lock(&arena->lock);
    for (size_t i = 0; i < UMF_ARENA_AREAS; i++) {
        for (const umf_segment_t *at = arena->areas[i].first; at && goes_on; at = at->next) {
            goes_on = at->kind != UMF_SEGMENT_LIVE || visit_block_locked(arena, at, visit, arg);
        }
    }
    for (size_t i = 0; i < arena->piece_count && goes_on; i++) {
        const umf_arena_piece_t *piece = &arena->pieces[i];
        goes_on = !piece->is_fixed || visit(piece->base, piece->size, arg);
    }
    umf_unlock(&arena->lock);
}

/* --- claims --- */

static umf_result_t vm_find(void *self, const void *ptr, umf_vm_piece_t *found) {
    umf_arena_t *arena = self;
    umf_lock(&arena->lock);
    const umf_arena_piece_t *piece = umf_arena_piece_locked(arena, (uintptr_t)ptr);
    if (piece) {
        *found = (umf_vm_piece_t){.base = (void *)piece->base,
                                  .size = piece->size,
                                  .allocations = piece->blocks,
                                  .attached = piece->is_attached};
    }
    umf_unlock(&arena->lock);
    return piece ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* Cuts that the release of pieces needs cannot fail. */
static bool reserve_cuts_locked(umf_arena_t *arena, size_t pieces) {
    umf_segments_t *areas = arena->areas;
    if (!umf_segments_reserve(&areas[UMF_ARENA_LARGE], pieces) ||
        !umf_segments_reserve(&areas[UMF_ARENA_LITTLE], pieces)) {
        UMF_LOG_ERROR("no memory for bookkeeping of %zu pieces", pieces);
        return false;
    }
    areas[UMF_ARENA_LARGE].promised += 2 * pieces;
    areas[UMF_ARENA_LITTLE].promised += 2 * pieces;
    arena->promised += 2 * pieces;
    return true;
}

/* Are its pages still those that it was listed with? */
static bool is_mapped_locked(const umf_arena_t *arena, const umf_arena_piece_t *piece) {
    uintptr_t at = piece->base;
    while (at < umf_arena_piece_end(piece)) {
        const umf_arena_page_t *page = umf_arena_page_at(arena, at);
        if (!page || page->home != at || page->is_fixed != piece->is_fixed) {
            return false;
        }
        at += page->memory.size;
    }
    return at == umf_arena_piece_end(piece);
}

static bool claim_locked(umf_arena_t *arena, uintptr_t base, size_t allocations) {
    umf_arena_piece_t *piece = umf_arena_piece_locked(arena, base);
    bool is_free = piece && piece->base == base && !piece->is_claimed &&
                   piece->blocks == allocations && is_mapped_locked(arena, piece);
    if (is_free) {
        piece->is_claimed = true;
        arena->claimed++;
    }
    return is_free;
}

static umf_result_t vm_claim(void *self, void *const *bases, const size_t *allocations,
                             size_t count, int *claimed) {
    umf_arena_t *arena = self;
    umf_arena_driver_lock(arena);
    umf_lock(&arena->lock);
    bool is_reserved = reserve_cuts_locked(arena, count);
    for (size_t i = 0; i < count; i++) {
        claimed[i] = is_reserved && claim_locked(arena, (uintptr_t)bases[i], allocations[i]);
    }
    umf_unlock(&arena->lock);
    umf_arena_driver_unlock(arena);
    return is_reserved ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/* A piece without memory and without blocks goes: its addresses have no page any more. */
static void let_go_locked(umf_arena_t *arena, umf_arena_piece_t *piece) {
    umf_segments_t *area = umf_arena_area(arena, piece->base);
    umf_segment_t *at = area->first;
    while (umf_segment_end(at) <= piece->base) {
        at = at->next;
    }
    umf_segment_cut(area, at, piece->base, piece->size); /* all of it is one free segment */
    at->uses = (umf_uses_t){0};
    umf_segment_set(area, at, UMF_SEGMENT_NONE);
    umf_segment_join(area, at);
    arena->held -= piece->size;
    umf_tracked_page_event(arena->tracked, UMF_RECORD_PROVIDER_FREE, piece->base, piece->size);
    umf_tracked_page_forget(arena->tracked, piece->size);
    umf_arena_piece_t *end = arena->pieces + arena->piece_count--;
    memmove(piece, piece + 1, (size_t)((char *)end - (char *)(piece + 1)));
}

/* Returns the pages that it had, which are mapped nowhere. */
static umf_arena_page_t *release_locked(umf_arena_t *arena, uintptr_t base) {
    umf_arena_piece_t *piece = umf_arena_piece_locked(arena, base);
    umf_arena_page_t *pages = NULL;
    if (!piece || !piece->is_claimed) {
        return NULL;
    }
    piece->is_claimed = false;
    arena->claimed--;
    if (!piece->blocks && !piece->is_attached) {
        pages = piece->pages;
        let_go_locked(arena, piece);
    }
    if (arena->claimed == 0) {
        arena->areas[UMF_ARENA_LARGE].promised -= arena->promised;
        arena->areas[UMF_ARENA_LITTLE].promised -= arena->promised;
        arena->promised = 0;
        forget_locked(arena);
    }
    return pages;
}

static umf_result_t vm_release(void *self, void *const *bases, size_t count) {
    umf_arena_t *arena = self;
    umf_arena_driver_lock(arena);
    umf_result_t first = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < count; i++) {
        umf_lock(&arena->lock);
        umf_arena_page_t *pages = release_locked(arena, (uintptr_t)bases[i]);
        umf_unlock(&arena->lock);
        umf_result_t result = umf_arena_pages_destroy(arena, pages);
        first = first ? first : result;
    }
    umf_arena_driver_unlock(arena);
    return first;
}

/* --- frees, and the end --- */

/* The first piece in [from, end) that has lost its last block while its memory is away. 0: none. */
static uintptr_t find_empty(umf_arena_t *arena, uintptr_t *from, uintptr_t end) {
    uintptr_t base = 0;
    umf_lock(&arena->lock);
    for (size_t i = find_locked(arena, *from); i < arena->piece_count && !base; i++) {
        const umf_arena_piece_t *piece = &arena->pieces[i];
        if (piece->base >= end) {
            break;
        }
        *from = umf_arena_piece_end(piece);
        base = piece->is_claimed && !piece->is_attached && !piece->blocks ? piece->base : 0;
    }
    umf_unlock(&arena->lock);
    return base;
}

void umf_arena_pieces_tell(umf_arena_t *arena, uintptr_t base, uintptr_t end) {
    for (uintptr_t empty; (empty = find_empty(arena, &base, end)) != 0;) {
        umf_tracked_page_freed(arena->tracked, (void *)empty);
    }
}

void umf_arena_pieces_fini(umf_arena_t *arena) {
    for (size_t i = 0; i < arena->piece_count; i++) {
        umf_arena_piece_t *piece = &arena->pieces[i];
        if (!piece->is_attached) {
            umf_arena_pages_destroy(arena, piece->pages);
            umf_tracked_page_event(arena->tracked, UMF_RECORD_PROVIDER_FREE, piece->base,
                                   piece->size);
            umf_tracked_page_forget(arena->tracked, piece->size);
        }
    }
    forget_locked(arena);
}

/* Which page is at the address? It stays there as long as a block is on it. */
static umf_result_t vm_run(void *self, const void *ptr, umf_vm_piece_t *piece, uint64_t *handle,
                           uint64_t *generation) {
    umf_arena_t *arena = self;
    umf_lock(&arena->lock);
    const umf_arena_page_t *page = umf_arena_page_at(arena, (uintptr_t)ptr);
    if (page) {
        *piece = (umf_vm_piece_t){
            .base = (void *)page->home, .size = page->memory.size, .allocations = 1, .attached = 1};
        *handle = arena->provider.ext->dmabuf ? page->memory.id : 0; /* of the host: no handle */
        *generation = page->generation;
    }
    const umf_arena_piece_t *away = page ? NULL : umf_arena_piece_locked(arena, (uintptr_t)ptr);
    umf_unlock(&arena->lock);
    if (away) {
        piece->attached = 0;
    } else if (!page) {
        UMF_LOG_ERROR("no block of an arena is at %p", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static const umf_memory_provider_ext_ops_t vm = {
    .vm_find = vm_find,
    .vm_detach = umf_arena_vm_detach,
    .vm_create = umf_arena_vm_create,
    .vm_attach = umf_arena_vm_attach,
    .vm_claim = vm_claim,
    .vm_release = vm_release,
    .vm_run = vm_run,
};

const umf_pool_pieces_ops_t umf_arena_pieces = {
    .vm = &vm, .make = make, .each_part = each_part, .each_page = umf_arena_each_page};
