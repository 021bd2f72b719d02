/*
 * Operations that all kinds of pools have, over a few of their own.
 *
 * A kind has a constant umf_block_ops_t, which the compiler sees through: nothing is called by
 * pointer. Its `free` and `refuse` log what they refuse.
 */
#ifndef UMF_SRC_POOLS_SHARED_BLOCK_OPS_H
#define UMF_SRC_POOLS_SHARED_BLOCK_OPS_H

#include <string.h>

#include "object/content.h"
#include "pools/shared/settings.h"
#include "pools/shared/short_result.h"
#include "system/atomic.h"

/* A live block: its usable size, 0 for none, and a note for `fits`. In registers: a size in memory
 * would give each caller a stack frame to protect. */
typedef struct umf_block_room_t {
    size_t size;
    void *note;
} umf_block_room_t;

typedef struct umf_block_ops_t {
    void *(*malloc)(void *pool, size_t size);
    umf_result_t (*free)(void *pool, void *ptr);
    /* The block at `ptr`. `entry`: the map entry, or 0 if it is not looked up. */
    umf_block_room_t (*usable)(void *pool, const void *ptr, umf_map_entry_t entry);
    /* Can the block of `old` bytes stay and have `size`? It may be grown or shrunk for that. */
    bool (*fits)(void *pool, void *ptr, void *note, size_t old, size_t size);
    /* `ptr` is no live block: INVALID_ARGUMENT. */
    umf_result_t (*refuse)(const void *pool, const void *ptr);
    /* Sets the thread's last error. Returns NULL. */
    void *(*fail)(umf_result_t result);
    umf_content_t *(*content)(void *pool); /* NULL: the CPU has access to all memory */
} umf_block_ops_t;

/* Logs that `ptr` is no live block, and returns INVALID_ARGUMENT. */
UMF_COLD umf_result_t umf_block_refuse(const char *name, const void *ptr);

/* NULL: the address has no span. */
static inline umf_span_t *umf_block_span(umf_tracked_provider_t *tracked, const void *ptr,
                                         umf_map_entry_t entry) {
    return entry ? umf_span_at(umf_map_entry_span(entry)) : umf_tracked_find(tracked, ptr);
}

UMF_INLINE void *umf_block_calloc(const umf_block_ops_t *ops, void *pool, size_t num, size_t size) {
    size_t bytes;
    if (!umf_mul(num, size, &bytes)) {
        return ops->fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    void *ptr = ops->malloc(pool, bytes);
    if (ptr && !ops->content) {
        memset(ptr, 0, bytes);
    } else if (ptr) {
        umf_result_t result = umf_content_zero(ops->content(pool), ptr, bytes);
        if (result != UMF_RESULT_SUCCESS) {
            ops->free(pool, ptr);
            return ops->fail(result);
        }
    }
    return ptr;
}

UMF_INLINE void *umf_block_move(const umf_block_ops_t *ops, void *pool, void *ptr, size_t old,
                                size_t size) {
    size_t bytes = old < size ? old : size;
    void *moved = ops->malloc(pool, size);
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (umf_unlikely(!moved)) {
        return NULL;
    }
    if (ops->content) {
        result = umf_content_copy(ops->content(pool), moved, ptr, bytes);
    } else {
        memcpy(moved, ptr, bytes);
    }
    ops->free(pool, result == UMF_RESULT_SUCCESS ? ptr : moved);
    return result == UMF_RESULT_SUCCESS ? moved : ops->fail(result);
}

UMF_INLINE void *umf_block_realloc(const umf_block_ops_t *ops, void *pool, void *ptr, size_t size) {
    if (!ptr) {
        return ops->malloc(pool, size);
    }
    if (umf_unlikely(size == 0)) {
        return ops->fail(ops->free(pool, ptr));
    }
    umf_block_room_t old = ops->usable(pool, ptr, 0);
    if (umf_unlikely(!old.size)) {
        return ops->fail(ops->refuse(pool, ptr));
    }
    return ops->fits(pool, ptr, old.note, old.size, size)
               ? ptr
               : umf_block_move(ops, pool, ptr, old.size, size);
}

UMF_INLINE umf_result_t umf_block_usable_size(const umf_block_ops_t *ops, void *pool,
                                              const void *ptr, size_t *size) {
    if (!size) {
        UMF_LOG_ERROR("size is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t room = ptr ? ops->usable(pool, ptr, 0).size : 0;
    if (ptr && !room) {
        return ops->refuse(pool, ptr);
    }
    *size = room;
    return UMF_RESULT_SUCCESS;
}

/* Defines <kind>_calloc, _realloc, _usable_size and _usable_size_at over <kind>_blocks. */
#define UMF_BLOCK_OPS(kind)                                                                        \
    static void *kind##_calloc(void *pool, size_t num, size_t size) {                              \
        return umf_block_calloc(&kind##_blocks, pool, num, size);                                  \
    }                                                                                              \
    static void *kind##_realloc(void *pool, void *ptr, size_t size) {                              \
        return umf_block_realloc(&kind##_blocks, pool, ptr, size);                                 \
    }                                                                                              \
    static umf_result_t kind##_usable_size(void *pool, const void *ptr, size_t *size) {            \
        return umf_block_usable_size(&kind##_blocks, pool, ptr, size);                             \
    }                                                                                              \
    static umf_result_t kind##_usable_size_at(void *pool, const void *ptr, umf_map_entry_t entry,  \
                                              size_t *size) {                                      \
        *size = kind##_blocks.usable(pool, ptr, entry).size;                                       \
        return *size ? UMF_RESULT_SUCCESS : kind##_blocks.refuse(pool, ptr);                       \
    }

/* Defines <kind>_last_error, of the thread, <kind>_fail, which sets it, and
 * <kind>_last_allocation_error. The error is reached as the thread's block (base/thread_slot.h),
 * which puts all thread-local variables of the library into static memory anyway. */
#define UMF_BLOCK_ERRORS(kind)                                                                     \
    static UMF_THREAD_SLOT_TLS umf_short_result_t kind##_last_error;                               \
    static UMF_COLD void *kind##_fail(umf_result_t result) {                                       \
        kind##_last_error = umf_result_shorten(result);                                            \
        umf_tell_refused(#kind, result);                                                           \
        return NULL;                                                                               \
    }                                                                                              \
    static umf_result_t kind##_last_allocation_error(void *pool) {                                 \
        (void)pool;                                                                                \
        return umf_result_lengthen(kind##_last_error);                                             \
    }

/* Defines <kind>_calloc and <kind>_realloc of a kind that does not offer them. */
#define UMF_BLOCK_NOT_OFFERED(kind)                                                                \
    static void *kind##_calloc(void *pool, size_t num, size_t size) {                              \
        (void)pool, (void)num, (void)size;                                                         \
        UMF_BLOCK_TELL(#kind, "umfPoolCalloc, which gives NULL (this is said once): allocate "     \
                              "with umfPoolMalloc and clear the memory");                          \
        kind##_last_error = UMF_RESULT_ERROR_NOT_SUPPORTED;                                        \
        return NULL;                                                                               \
    }                                                                                              \
    static void *kind##_realloc(void *pool, void *ptr, size_t size) {                              \
        if (ptr && size == 0) {                                                                    \
            return kind##_fail(kind##_free(pool, ptr));                                            \
        }                                                                                          \
        UMF_BLOCK_TELL(#kind, "umfPoolRealloc, which gives NULL (this is said once): allocate "    \
                              "anew with umfPoolMalloc, copy and free");                           \
        kind##_last_error = UMF_RESULT_ERROR_NOT_SUPPORTED;                                        \
        return NULL;                                                                               \
    }

/* Logs once, because a program may call the operation again and again. */
#define UMF_BLOCK_TELL(kind, text)                                                                 \
    do {                                                                                           \
        static atomic_flag logged = ATOMIC_FLAG_INIT;                                              \
        if (!atomic_flag_test_and_set_explicit(&logged, memory_order_relaxed)) {                   \
            UMF_LOG_ERROR("a " kind " pool does not offer " text);                                 \
        }                                                                                          \
    } while (0)

/* Defines <kind>_tick and <kind>_thread_cache of a state with `magazines`. */
#define UMF_BLOCK_MAGAZINES(kind, state_t)                                                         \
    static void kind##_tick(void *pool) {                                                          \
        umf_magazines_decay(&((state_t *)pool)->magazines);                                        \
    }                                                                                              \
    static size_t kind##_thread_cache(void *pool) {                                                \
        return umf_magazines_bytes(&((state_t *)pool)->magazines);                                 \
    }

#endif
