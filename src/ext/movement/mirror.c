/* Mirrors: a second view of a range, and what of it has changed. */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/movement/dirty.h"
#include "ext/movement/memory_kind.h"
#include "system/keep_errno.h"

struct umf_mirror_t {
    char *of; /* Immutable, as all without a note */
    char *ptr;
    size_t size;
    umf_memory_pool_handle_t pool;
    umf_lock_t lock;   /* UMF_RANK_SUSPEND */
    umf_dirty_t dirty; /* Sync: lock */
};

static const umf_handle_kind_t mirror_handle = {"a mirror"};

static bool mirror_check(umf_mirror_handle_t mirror, const char *function) {
    return umf_handle_check(mirror, &mirror_handle, function);
}

/* Do those who use memory of `pool`, of which `like` is some, reach the range, too? */
static bool is_in_reach(const umf_operand_t *of, const umf_operand_t *like) {
    if (umf_operand_is_of_host(like)) {
        return of->kind != UMF_PLACE_DEVICE;
    }
    return of->kind != UMF_PLACE_HOST && umf_operand_is_same_domain(of, like) &&
           (of->kind != UMF_PLACE_DEVICE || of->provider == like->provider);
}

static umf_result_t mirror_place(umf_mirror_handle_t mirror, const umf_operand_t *of) {
    umf_operand_t like;
    mirror->ptr = umfPoolMalloc(mirror->pool, mirror->size);
    if (!mirror->ptr) {
        umf_result_t result = umfPoolGetLastAllocationError(mirror->pool);
        return result == UMF_RESULT_SUCCESS ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY : result;
    }
    umf_operand_find(&like, mirror->ptr, mirror->size, true, UMF_PLACE_UNKNOWN, NULL);
    bool is_same = is_in_reach(of, &like);
    umf_operand_release(&like);
    if (is_same) {
        umfPoolFree(mirror->pool, mirror->ptr);
        mirror->ptr = mirror->of;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t mirror_find(umf_mirror_handle_t mirror) {
    umf_operand_t of;
    of.name = "range of the mirror";
    umf_operand_find(&of, mirror->of, mirror->size, false, UMF_PLACE_UNKNOWN, NULL);
    umf_result_t result = umf_operand_check(&of);
    if (result == UMF_RESULT_SUCCESS) {
        result = mirror_place(mirror, &of);
    }
    umf_operand_release(&of);
    return result;
}

static umf_result_t mirror_make(umf_mirror_handle_t mirror) {
    umf_result_t result = mirror_find(mirror);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_handle_begin(mirror, &mirror_handle);
    if (result != UMF_RESULT_SUCCESS && mirror->ptr != mirror->of) {
        umfPoolFree(mirror->pool, mirror->ptr);
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfMirrorCreate(void *of, size_t size, umf_memory_pool_handle_t in,
                                             umf_mirror_handle_t *out) {
    UMF_KEEP_ERRNO;
    if (!umf_pool_check(in, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!of || size == 0 || !out) {
        UMF_LOG_ERROR("%s", !of ? "of is NULL" : size == 0 ? "size is 0" : "mirror is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_mirror_handle_t mirror = umf_meta_alloc(sizeof(*mirror));
    if (!mirror) {
        UMF_LOG_ERROR("no memory for a mirror");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    mirror->of = of;
    mirror->size = size;
    mirror->pool = in;
    umf_result_t result = mirror_make(mirror);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(mirror, sizeof(*mirror));
        return result;
    }
    umf_lock_init(&mirror->lock, UMF_RANK_SUSPEND);
    *out = mirror;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfMirrorDestroy(umf_mirror_handle_t mirror) {
    UMF_KEEP_ERRNO;
    if (!mirror) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_handle_end(mirror, &mirror_handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result =
        mirror->ptr == mirror->of ? UMF_RESULT_SUCCESS : umfPoolFree(mirror->pool, mirror->ptr);
    umf_dirty_fini(&mirror->dirty);
    umf_lock_destroy(&mirror->lock);
    umf_meta_free(mirror, sizeof(*mirror));
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfMirrorPtr(umf_mirror_handle_t mirror, void **ptr) {
    if (!mirror_check(mirror, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!ptr) {
        UMF_LOG_ERROR("ptr is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *ptr = mirror->ptr;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t part_check(umf_mirror_handle_t mirror, size_t offset, size_t size) {
    if (offset > mirror->size || size > mirror->size - offset) {
        UMF_LOG_ERROR("%zu bytes at %zu leave the mirror, which has %zu", size, offset,
                      mirror->size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfMirrorMark(umf_mirror_handle_t mirror, size_t offset, size_t size) {
    if (!mirror_check(mirror, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = part_check(mirror, offset, size);
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock(&mirror->lock);
        bool is_marked = umf_dirty_add(&mirror->dirty, offset, offset + size);
        umf_unlock(&mirror->lock);
        if (!is_marked) {
            UMF_LOG_ERROR("no memory to mark a part of a mirror");
            result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
    }
    return result;
}

/* --- pull and push -----------------------------------------------------------------------------
 */

static umf_copy_item_t part_item(umf_mirror_handle_t mirror, bool is_push, size_t begin,
                                 size_t end) {
    char *to = is_push ? mirror->of : mirror->ptr, *from = is_push ? mirror->ptr : mirror->of;
    return (umf_copy_item_t){.to = to + begin, .from = from + begin, .size = end - begin};
}

/* Takes the dirty ranges at or above `offset` out of the set. NULL: no memory. */
static umf_copy_item_t *take_dirty(umf_mirror_handle_t mirror, bool is_push, size_t offset,
                                   size_t *count) {
    umf_lock(&mirror->lock);
    const umf_dirty_t *dirty = &mirror->dirty;
    umf_copy_item_t *items = umf_meta_alloc((dirty->count + 1) * sizeof(*items));
    size_t taken = 0;
    for (size_t i = 0; items && i < dirty->count; i++) {
        umf_dirty_range_t range = dirty->ranges[i];
        if (range.end > offset) {
            items[taken++] =
                part_item(mirror, is_push, range.begin > offset ? range.begin : offset, range.end);
        }
    }
    *count = dirty->count;
    if (items && !umf_dirty_remove(&mirror->dirty, offset, mirror->size)) {
        umf_meta_free(items, (*count + 1) * sizeof(*items));
        items = NULL;
    }
    umf_unlock(&mirror->lock);
    if (items) {
        items[*count].size = taken; /* the place behind the items has their number */
    }
    return items;
}

/* Parts that were not copied are dirty again. */
static void put_dirty(umf_mirror_handle_t mirror, bool is_push, const umf_copy_item_t *items,
                      size_t first, size_t count) {
    umf_lock(&mirror->lock);
    for (size_t i = first; i < count; i++) {
        const char *ptr = is_push ? items[i].from : items[i].to;
        size_t begin = (size_t)(ptr - mirror->ptr);
        if (!umf_dirty_add(&mirror->dirty, begin, begin + items[i].size)) {
            UMF_LOG_ERROR("no memory: %zu bytes at %zu of a mirror are no longer marked",
                          items[i].size, begin);
        }
    }
    umf_unlock(&mirror->lock);
}

/* Where nothing has to move, the parameters still hold: events are waited for and recorded. */
static umf_result_t mirror_copy(umf_mirror_handle_t mirror, const umf_copy_item_t *items,
                                size_t count, const umf_copy_params_t *params) {
    umf_copy_item_t none = {.to = mirror->of, .from = mirror->ptr};
    bool has_work = mirror->of != mirror->ptr && count > 0;
    return umfCopyBatch(has_work ? items : &none, has_work ? count : 1, params, NULL);
}

static umf_result_t move_dirty(umf_mirror_handle_t mirror, bool is_push, size_t offset,
                               const umf_copy_params_t *params) {
    size_t room;
    umf_result_t result = part_check(mirror, offset, 0);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_copy_item_t *items = take_dirty(mirror, is_push, offset, &room);
    if (!items) {
        UMF_LOG_ERROR("no memory for the dirty parts of a mirror");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    size_t count = items[room].size;
    result = mirror_copy(mirror, items, count, params);
    if (result != UMF_RESULT_SUCCESS) {
        put_dirty(mirror, is_push, items, 0, count);
    }
    umf_meta_free(items, (room + 1) * sizeof(*items));
    return result;
}

static umf_result_t move_part(umf_mirror_handle_t mirror, bool is_push, size_t offset, size_t size,
                              const umf_copy_params_t *params) {
    umf_result_t result = part_check(mirror, offset, size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_copy_item_t item = part_item(mirror, is_push, offset, offset + size);
    umf_lock(&mirror->lock); /* before the copy: marks that are made from now on stay */
    bool is_removed = umf_dirty_remove(&mirror->dirty, offset, offset + size);
    umf_unlock(&mirror->lock);
    result = mirror_copy(mirror, &item, 1, params);
    if (result != UMF_RESULT_SUCCESS && is_removed) {
        put_dirty(mirror, is_push, &item, 0, 1);
    }
    return result;
}

static umf_result_t mirror_move(umf_mirror_handle_t mirror, bool is_push, size_t offset,
                                size_t size, const umf_copy_params_t *params) {
    UMF_KEEP_ERRNO;
    return size == UMF_MIRROR_DIRTY ? move_dirty(mirror, is_push, offset, params)
                                    : move_part(mirror, is_push, offset, size, params);
}

UMF_API_EXT_1_3 umf_result_t umfMirrorPull(umf_mirror_handle_t mirror, size_t offset, size_t size,
                                           const umf_copy_params_t *params) {
    return mirror_check(mirror, __func__) ? mirror_move(mirror, false, offset, size, params)
                                          : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1_3 umf_result_t umfMirrorPush(umf_mirror_handle_t mirror, size_t offset, size_t size,
                                           const umf_copy_params_t *params) {
    return mirror_check(mirror, __func__) ? mirror_move(mirror, true, offset, size, params)
                                          : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}
