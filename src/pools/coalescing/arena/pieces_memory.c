/*
 * The memory of an arena's pieces (pieces.c), taken away and brought back. On resume each piece is
 * one page, as the driver's calls cost by the page. The calls are the provider's own, for what the
 * pool holds, in its group, does not change by a suspend.
 */
#include "base/log.h"
#include "base/meta.h"
#include "pools/coalescing/arena/arena.h"

/* --- taking the memory away (driver lock held) --- */

/* A claimed piece stays, but its neighbours may go: it is found again for each step. */
static umf_arena_piece_t claimed_copy(umf_arena_t *arena, uintptr_t base) {
    umf_arena_piece_t copy = {0};
    umf_lock(&arena->lock);
    const umf_arena_piece_t *piece = umf_arena_piece_locked(arena, base);
    if (piece && piece->base == base && piece->is_claimed) {
        copy = *piece;
    }
    umf_unlock(&arena->lock);
    return copy;
}

static void set_pages(umf_arena_t *arena, uintptr_t base, umf_arena_page_t *pages) {
    umf_lock(&arena->lock);
    umf_arena_piece_locked(arena, base)->pages = pages;
    umf_unlock(&arena->lock);
}

/* Its pages are mapped nowhere, in their order. A recording has one page in their place as long as
 * the memory is away, because the pool holds it still. */
static umf_arena_page_t *unlist_pages_locked(umf_arena_t *arena, umf_arena_piece_t *piece) {
    umf_arena_page_t *pages = NULL, **link = &pages;
    for (uintptr_t at = piece->base; at < umf_arena_piece_end(piece); at += arena->unit) {
        umf_arena_page_t *page = umf_hash_remove(&arena->slots, at / arena->unit);
        if (page->home == at) {
            page->mappings--;
            page->next = NULL;
            *link = page;
            link = &page->next;
            umf_tracked_page_event(arena->tracked, UMF_RECORD_PROVIDER_FREE, at, page->memory.size);
        }
    }
    umf_tracked_page_event(arena->tracked, UMF_RECORD_PROVIDER_ALLOC, piece->base, piece->size);
    piece->is_attached = false;
    return pages;
}

static umf_result_t unmap(umf_arena_t *arena, uintptr_t base) {
    umf_arena_piece_t piece = claimed_copy(arena, base);
    const umf_tracked_ops_t *provider = &arena->provider;
    if (!piece.is_attached) {
        return UMF_RESULT_SUCCESS;
    }
    umf_arena_unshare(arena, base, piece.size);
    umf_result_t result = provider->ext->page_unmap(provider->self, (void *)base, piece.size);
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock(&arena->lock);
        umf_arena_piece_t *found = umf_arena_piece_locked(arena, base);
        found->pages = unlist_pages_locked(arena, found);
        umf_unlock(&arena->lock);
    }
    return result;
}

umf_result_t umf_arena_pages_destroy(umf_arena_t *arena, umf_arena_page_t *pages) {
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
    return umf_arena_pages_destroy(arena, pages);
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

typedef umf_result_t (*step_t)(umf_arena_t *arena, uintptr_t base);

/* Until a step fails. */
static umf_result_t each_claimed(umf_arena_t *arena, void *const *bases, size_t count,
                                 step_t step) {
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    umf_arena_driver_lock(arena);
    if (are_claimed(arena, bases, count)) {
        result = UMF_RESULT_SUCCESS;
        for (size_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
            result = step(arena, (uintptr_t)bases[i]);
        }
    }
    umf_arena_driver_unlock(arena);
    return result;
}

static umf_result_t detach(umf_arena_t *arena, uintptr_t base) {
    umf_result_t result = unmap(arena, base);
    return result ? result : destroy(arena, base);
}

umf_result_t umf_arena_vm_detach(void *self, void *const *bases, size_t count) {
    return each_claimed(self, bases, count, detach);
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

umf_result_t umf_arena_vm_create(void *self, void *const *bases, size_t count, size_t *missing) {
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
    umf_tracked_page_event(arena->tracked, UMF_RECORD_PROVIDER_FREE, piece->base, piece->size);
    for (umf_arena_page_t *next, *page = piece->pages; page; page = next) {
        next = page->next;
        umf_arena_enter_locked(arena, page, at);
        umf_tracked_page_event(arena->tracked, UMF_RECORD_PROVIDER_ALLOC, at, page->memory.size);
        at += page->memory.size;
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
        list_pages_locked(arena, umf_arena_piece_locked(arena, base));
        umf_unlock(&arena->lock);
    }
    return result;
}

umf_result_t umf_arena_vm_attach(void *self, void *const *bases, size_t count) {
    return each_claimed(self, bases, count, attach);
}
