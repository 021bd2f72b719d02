/*
 * Pieces of an arena: runs of adjacent pages, whose memory a suspend takes away (umf/plugin.h,
 * virtual memory). They are listed for a suspend, when nothing moves: no page is spare, no mapping
 * stale. On resume each piece is one page, as the driver's calls cost by the page.
 */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "pools/coalescing/arena/arena.h"

/* A piece is so many times as large as the next new page: a page moves as a whole, so one that is
 * too large stays. */
#define PAGES_OF_PIECE 4u

/* --- the list (the lock is held) --- */

static uintptr_t end_of(const umf_arena_piece_t *piece) {
    return piece->base + piece->size;
}

/* The index of the first piece that ends above the address. */
static size_t find_locked(const umf_arena_t *arena, uintptr_t at) {
    size_t low = 0, high = arena->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (end_of(&arena->pieces[middle]) > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* NULL: none holds the address. */
static umf_arena_piece_t *piece_locked(const umf_arena_t *arena, uintptr_t at) {
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
    if (last && end_of(last) == page->home && last->is_fixed == page->is_fixed &&
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
    size_t most = PAGES_OF_PIECE * umf_arena_page_size_locked(arena, SIZE_MAX);
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
    if (arena->stale || arena->spare) {
        UMF_LOG_ERROR("pages of an arena cannot be unmapped, because work that may use them could "
                      "not be waited for: suspend it after captures have ended");
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

/* --- parts: what is kept of each piece --- */

static bool visit_block_locked(const umf_arena_t *arena, const umf_segment_t *block,
                               umf_part_visit_t visit, void *arg) {
    uintptr_t end = umf_segment_end(block);
    bool goes_on = true;
    for (size_t i = find_locked(arena, block->base); i < arena->piece_count && goes_on; i++) {
        const umf_arena_piece_t *piece = &arena->pieces[i];
        uintptr_t from = piece->base > block->base ? piece->base : block->base;
        uintptr_t to = end_of(piece) < end ? end_of(piece) : end;
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
    const umf_arena_piece_t *piece = piece_locked(arena, (uintptr_t)ptr);
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
    while (at < end_of(piece)) {
        const umf_arena_page_t *page = umf_arena_page_at(arena, at);
        if (!page || page->home != at || page->is_fixed != piece->is_fixed) {
            return false;
        }
        at += page->memory.size;
    }
    return at == end_of(piece);
}

static bool claim_locked(umf_arena_t *arena, uintptr_t base, size_t allocations) {
    umf_arena_piece_t *piece = piece_locked(arena, base);
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
    umf_tracked_page_forget(arena->tracked, piece->size);
    umf_arena_piece_t *end = arena->pieces + arena->piece_count--;
    memmove(piece, piece + 1, (size_t)((char *)end - (char *)(piece + 1)));
}

static void release_locked(umf_arena_t *arena, uintptr_t base) {
    umf_arena_piece_t *piece = piece_locked(arena, base);
    if (!piece || !piece->is_claimed) {
        return;
    }
    piece->is_claimed = false;
    arena->claimed--;
    if (!piece->blocks && !piece->is_attached && !piece->pages) {
        let_go_locked(arena, piece);
    }
    if (arena->claimed == 0) {
        arena->areas[UMF_ARENA_LARGE].promised -= arena->promised;
        arena->areas[UMF_ARENA_LITTLE].promised -= arena->promised;
        arena->promised = 0;
        forget_locked(arena);
    }
}

static umf_result_t vm_release(void *self, void *const *bases, size_t count) {
    umf_arena_t *arena = self;
    umf_arena_driver_lock(arena);
    umf_lock(&arena->lock);
    for (size_t i = 0; i < count; i++) {
        release_locked(arena, (uintptr_t)bases[i]);
    }
    umf_unlock(&arena->lock);
    umf_arena_driver_unlock(arena);
    return UMF_RESULT_SUCCESS;
}

/* --- taking the memory away (driver lock held) --- */

/* A claimed piece stays, but its neighbours may go: it is found again for each step. */
static umf_arena_piece_t claimed_copy(umf_arena_t *arena, uintptr_t base) {
    umf_arena_piece_t copy = {0};
    umf_lock(&arena->lock);
    const umf_arena_piece_t *piece = piece_locked(arena, base);
    if (piece && piece->base == base && piece->is_claimed) {
        copy = *piece;
    }
    umf_unlock(&arena->lock);
    return copy;
}

static void set_pages(umf_arena_t *arena, uintptr_t base, umf_arena_page_t *pages) {
    umf_lock(&arena->lock);
    piece_locked(arena, base)->pages = pages;
    umf_unlock(&arena->lock);
}

/* Its pages are mapped nowhere, in their order. */
static umf_arena_page_t *unlist_pages_locked(umf_arena_t *arena, umf_arena_piece_t *piece) {
    umf_arena_page_t *pages = NULL, **link = &pages;
    for (uintptr_t at = piece->base; at < end_of(piece); at += arena->unit) {
        umf_arena_page_t *page = umf_hash_remove(&arena->slots, at / arena->unit);
        if (page->home == at) {
            page->mappings--;
            page->next = NULL;
            *link = page;
            link = &page->next;
        }
    }
    piece->is_attached = false;
    return pages;
}

static umf_result_t unmap(umf_arena_t *arena, uintptr_t base) {
    umf_arena_piece_t piece = claimed_copy(arena, base);
    const umf_tracked_ops_t *provider = &arena->provider;
    if (!piece.is_attached) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = provider->ext->page_unmap(provider->self, (void *)base, piece.size);
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock(&arena->lock);
        umf_arena_piece_t *found = piece_locked(arena, base);
        found->pages = unlist_pages_locked(arena, found);
        umf_unlock(&arena->lock);
    }
    return result;
}

/* A page that the provider does not take back is lost. */
static umf_result_t destroy_pages(umf_arena_t *arena, umf_arena_page_t *pages) {
    const umf_tracked_ops_t *provider = &arena->provider;
    umf_result_t first = UMF_RESULT_SUCCESS;
    for (umf_arena_page_t *next; pages; pages = next) {
        next = pages->next;
        umf_result_t result = provider->ext->page_destroy(provider->self, &pages->memory);
        if (result != UMF_RESULT_SUCCESS) {
            UMF_LOG_WARN("a page of %zu bytes was not taken back by its provider",
                         pages->memory.size);
        }
        first = first ? first : result;
        umf_meta_free(pages, sizeof(*pages));
    }
    return first;
}

static umf_result_t destroy(umf_arena_t *arena, uintptr_t base) {
    umf_arena_page_t *pages = claimed_copy(arena, base).pages;
    if (!pages) {
        return UMF_RESULT_SUCCESS;
    }
    set_pages(arena, base, NULL);
    return destroy_pages(arena, pages);
}

static bool are_claimed(umf_arena_t *arena, void *const *bases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!claimed_copy(arena, (uintptr_t)bases[i]).size) {
            UMF_LOG_ERROR("%p is not the start of a piece that was claimed", bases[i]);
            return false;
        }
    }
    return true;
}

static umf_result_t vm_detach(void *self, void *const *bases, size_t count) {
    umf_arena_t *arena = self;
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    umf_arena_driver_lock(arena);
    if (are_claimed(arena, bases, count)) {
        result = UMF_RESULT_SUCCESS;
        for (size_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
            result = unmap(arena, (uintptr_t)bases[i]);
            result = result ? result : destroy(arena, (uintptr_t)bases[i]);
        }
    }
    umf_arena_driver_unlock(arena);
    return result;
}

/* --- bringing it back (driver lock held) --- */

static size_t missing_of(umf_arena_t *arena, void *const *bases, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        umf_arena_piece_t piece = claimed_copy(arena, (uintptr_t)bases[i]);
        bytes += piece.is_attached || piece.pages ? 0 : piece.size;
    }
    return bytes;
}

/* One page for all of it. */
static umf_result_t create(umf_arena_t *arena, uintptr_t base) {
    const umf_tracked_ops_t *provider = &arena->provider;
    umf_arena_piece_t piece = claimed_copy(arena, base);
    if (piece.is_attached || piece.pages) {
        return UMF_RESULT_SUCCESS;
    }
    umf_arena_page_t *page = umf_meta_alloc(sizeof(*page));
    if (!page) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    page->memory.size = piece.size;
    umf_result_t result = provider->ext->page_create(provider->self, &page->memory);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(page, sizeof(*page));
        return result;
    }
    page->is_fixed = piece.is_fixed;
    set_pages(arena, base, page);
    return result;
}

static umf_result_t create_all(umf_arena_t *arena, void *const *bases, size_t count,
                               size_t *missing) {
    const umf_tracked_ops_t *provider = &arena->provider;
    umf_result_t result = UMF_RESULT_SUCCESS;
    size_t left;
    if (provider->ext->free_pending) { /* it may be the very memory that is needed */
        provider->ext->free_pending(provider->self, true, &left);
    }
    for (size_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        result = create(arena, (uintptr_t)bases[i]);
    }
    if (result != UMF_RESULT_SUCCESS) {
        *missing = missing_of(arena, bases, count);
        for (size_t i = 0; i < count; i++) {
            destroy(arena, (uintptr_t)bases[i]);
        }
    }
    return result;
}

static umf_result_t vm_create(void *self, void *const *bases, size_t count, size_t *missing) {
    umf_arena_t *arena = self;
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    umf_arena_driver_lock(arena);
    if (are_claimed(arena, bases, count)) {
        result = create_all(arena, bases, count, missing);
    }
    umf_arena_driver_unlock(arena);
    return result;
}

static void list_pages_locked(umf_arena_t *arena, umf_arena_piece_t *piece) {
    uintptr_t at = piece->base;
    for (umf_arena_page_t *next, *page = piece->pages; page; page = next) {
        next = page->next;
        page->next = NULL;
        page->home = at;
        page->mappings++;
        for (uintptr_t end = at + page->memory.size; at < end; at += arena->unit) {
            umf_hash_put(&arena->slots, at / arena->unit, page);
        }
    }
    piece->pages = NULL;
    piece->is_attached = true;
}

/* The pages of a piece: one, or those of a suspend that could not destroy them. */
static umf_result_t map_pages(umf_arena_t *arena, const umf_arena_piece_t *piece) {
    const umf_tracked_ops_t *provider = &arena->provider;
    size_t room = piece->size / arena->unit, count = 0;
    umf_vm_page_t *list = umf_meta_alloc(room * sizeof(*list));
    umf_lock(&arena->lock);
    bool has_room = umf_hash_reserve(&arena->slots, room);
    umf_unlock(&arena->lock);
    umf_result_t result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    for (const umf_arena_page_t *page = piece->pages; list && page; page = page->next) {
        list[count++] = page->memory;
    }
    if (list && has_room) {
        result = provider->ext->page_map(provider->self, (void *)piece->base, list, count);
    } else {
        UMF_LOG_ERROR("no memory for bookkeeping");
    }
    umf_meta_free(list, room * sizeof(*list));
    return result;
}

static umf_result_t attach(umf_arena_t *arena, uintptr_t base) {
    umf_arena_piece_t piece = claimed_copy(arena, base);
    if (piece.is_attached) {
        return UMF_RESULT_SUCCESS;
    }
    if (!piece.pages) {
        UMF_LOG_ERROR("a piece at %p cannot be attached: it has no memory", (void *)base);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = map_pages(arena, &piece);
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock(&arena->lock);
        list_pages_locked(arena, piece_locked(arena, base));
        umf_unlock(&arena->lock);
    }
    return result;
}

/* After a failure the caller takes away what was attached, or attaches the rest later. */
static umf_result_t vm_attach(void *self, void *const *bases, size_t count) {
    umf_arena_t *arena = self;
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    umf_arena_driver_lock(arena);
    if (are_claimed(arena, bases, count)) {
        result = UMF_RESULT_SUCCESS;
        for (size_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
            result = attach(arena, (uintptr_t)bases[i]);
        }
    }
    umf_arena_driver_unlock(arena);
    return result;
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
        *from = end_of(piece);
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
            destroy_pages(arena, piece->pages);
            umf_tracked_page_forget(arena->tracked, piece->size);
        }
    }
    forget_locked(arena);
}

static const umf_memory_provider_ext_ops_t vm = {
    .vm_find = vm_find,
    .vm_detach = vm_detach,
    .vm_create = vm_create,
    .vm_attach = vm_attach,
    .vm_claim = vm_claim,
    .vm_release = vm_release,
};

const umf_pool_pieces_ops_t umf_arena_pieces = {.vm = &vm, .make = make, .each_part = each_part};
