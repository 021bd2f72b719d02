/*
 * Blocks of an arena in other processes. A description lists the pages under the block. It ends
 * before a page leaves: with the block, whose free is deferred while a handle of it is out
 * (object/pin.h), and in a suspend. Pages under a live block do not move, so they are fixed as long
 * as a handle is out.
 */
#include "base/log.h"
#include "base/meta.h"
#include "pools/coalescing/arena/arena.h"

void umf_arena_share(void *self, const void *ptr, size_t size) {
    umf_arena_t *arena = self;
    umf_lock(&arena->lock);
    umf_arena_share_locked(arena, (uintptr_t)ptr, size);
    umf_unlock(&arena->lock);
}

/* The live segment that holds the address. NULL: there is none. */
static umf_segment_t *block_at_locked(umf_arena_t *arena, uintptr_t at) {
    umf_segment_t *block = umf_hash_get(&arena->blocks, at);
    if (block) {
        return block;
    }
    block = umf_arena_area(arena, at)->first;
    while (block && umf_segment_end(block) <= at) {
        block = block->next;
    }
    return block && block->kind == UMF_SEGMENT_LIVE ? block : NULL;
}

/* --- making a description (driver lock held: no page goes in a suspend) --- */

/* A block and its pages. */
typedef struct paged_block_t {
    uintptr_t base;
    size_t size, offset;
    umf_vm_page_t *pages;
    size_t count, room;
} paged_block_t;

static umf_result_t list_locked(umf_arena_t *arena, const umf_segment_t *block,
                                paged_block_t *listed) {
    uintptr_t end = umf_segment_end(block);
    *listed = (paged_block_t){.base = block->base, .size = block->size};
    listed->room =
        (umf_align_up(end, arena->unit) - umf_align_down(block->base, arena->unit)) / arena->unit;
    listed->pages = umf_meta_alloc(listed->room * sizeof(*listed->pages));
    if (!listed->pages) {
        UMF_LOG_ERROR("no memory to share %p", (void *)block->base);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    for (uintptr_t at = block->base; at < end;) {
        const umf_arena_page_t *page = umf_arena_page_at(arena, at);
        if (!page) {
            UMF_LOG_ERROR("%p cannot be shared while its pool is suspended: resume it first",
                          (void *)block->base);
            return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
        }
        listed->offset = listed->count ? listed->offset : at - page->home;
        listed->pages[listed->count++] = page->memory;
        at = page->home + page->memory.size;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t find(umf_arena_t *arena, const void *ptr, paged_block_t *listed,
                         umf_pool_export_t *made) {
    umf_lock(&arena->lock);
    const umf_segment_t *block = block_at_locked(arena, (uintptr_t)ptr);
    umf_result_t result =
        block ? list_locked(arena, block, listed) : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    if (block && block->export_id) {
        made->id = block->export_id;
    }
    umf_unlock(&arena->lock);
    if (!block) {
        UMF_LOG_ERROR("no block of pool %s is at %p", arena->params.name, ptr);
    }
    return result;
}

static void note(umf_arena_t *arena, uintptr_t base, uint64_t id) {
    umf_lock(&arena->lock);
    umf_segment_t *block = umf_hash_get(&arena->blocks, base);
    if (block) {
        arena->exported += block->export_id == 0;
        block->export_id = id;
    }
    umf_unlock(&arena->lock);
}

umf_result_t umf_arena_get_handle(void *self, const void *ptr, void *data,
                                  umf_pool_export_t *made) {
    umf_arena_t *arena = self;
    const umf_tracked_ops_t *provider = &arena->provider;
    paged_block_t block = {0};
    if (!provider->ext->range_get_ipc_handle || !provider->ext->range_end_ipc_handle) {
        UMF_LOG_ERROR("the provider of pool %s shares no memory in pages: use a pool without arena",
                      arena->params.name);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (umf_arena_is_inside(arena)) {
        UMF_LOG_ERROR("a callback of pool %s must not share its memory", arena->params.name);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result =
        provider->ext->range_get_ipc_handle(provider->self, NULL, 0, NULL, 0, 0, NULL);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_arena_driver_lock(arena);
    result = find(arena, ptr, &block, made);
    if (result == UMF_RESULT_SUCCESS) {
        result = provider->ext->range_get_ipc_handle(provider->self, (void *)block.base, block.size,
                                                     block.pages, block.count, block.offset, data);
    }
    if (result == UMF_RESULT_SUCCESS) {
        note(arena, block.base, made->id);
        made->base = block.base;
        made->size = block.size;
    }
    umf_arena_driver_unlock(arena);
    umf_meta_free(block.pages, block.room * sizeof(*block.pages));
    return result;
}

/* --- its end --- */

umf_segment_t *umf_arena_unshare_locked(umf_arena_t *arena, umf_segment_t *block) {
    const umf_tracked_ops_t *provider = &arena->provider;
    uintptr_t base = block->base;
    block->export_id = 0;
    arena->exported--;
    umf_unlock(&arena->lock);
    provider->ext->range_end_ipc_handle(provider->self, (void *)base);
    umf_lock(&arena->lock);
    return umf_hash_get(&arena->blocks, base);
}

/* The next described block of an area that overlaps a range, from `at` on. */
static umf_segment_t *find_exported_locked(const umf_arena_t *arena, umf_segment_t *at,
                                           uintptr_t base, size_t size) {
    at = arena->exported ? at : NULL;
    while (at && at->base < base + size && (!at->export_id || umf_segment_end(at) <= base)) {
        at = at->next;
    }
    return at && at->base < base + size ? at : NULL;
}

void umf_arena_unshare(umf_arena_t *arena, uintptr_t base, size_t size) {
    umf_lock(&arena->lock);
    for (size_t i = 0; i < UMF_ARENA_AREAS; i++) {
        umf_segment_t *at = arena->areas[i].first;
        while ((at = find_exported_locked(arena, at, base, size)) != NULL) {
            at = umf_arena_unshare_locked(arena, at);
            at = at ? at : arena->areas[i].first; /* it was freed meanwhile */
        }
    }
    umf_unlock(&arena->lock);
}
