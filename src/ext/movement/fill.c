/* Fills by the CPU, by the provider, or by copies of a pattern. */
#include "base/log.h"
#include "base/meta.h"
#include "ext/movement/cpu.h"
#include "ext/movement/move.h"
#include "ext/staging/queue.h"

/* The most of a pattern that is made on the host. */
#define TILE_SIZE ((size_t)64 << 10)

/* --- fills -------------------------------------------------------------------------------------
 */

/* Some of the pattern is copied from the host; then the filled part doubles, in order on the queue.
 */
static umf_result_t queue_tiles(umf_move_t *move, const umf_operand_t *to, const void *tile,
                                size_t tile_size) {
    umf_result_t result = umf_move_queue(move, to);
    if (result == UMF_RESULT_SUCCESS) {
        result = to->ext->copy(to->self, move->queue, (void *)to->addr, tile, tile_size);
    }
    for (size_t have = tile_size; have < to->size && result == UMF_RESULT_SUCCESS; have *= 2) {
        size_t more = to->size - have < have ? to->size - have : have;
        result = to->ext->copy(to->self, move->queue, (void *)(to->addr + have),
                               (const void *)to->addr, more);
    }
    return result;
}

/* The pattern on the host. The work may still read it if a wait for the work failed. */
typedef struct tile_t {
    umf_undone_memory_t memory;
    size_t size;
    _Alignas(16) char bytes[];
} tile_t;

static void tile_release(umf_undone_memory_t *memory) {
    tile_t *tile = UMF_CONTAINER_OF(memory, tile_t, memory);
    umf_meta_free(tile, sizeof(*tile) + tile->size);
}

/* Waits for the work, and ends the use of the tile. On a queue of the caller that cannot be waited
 * for it has no end: the program may destroy the queue at any time. */
static umf_result_t tile_end(umf_move_t *move, const umf_operand_t *to, tile_t *tile) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    bool is_done = !move->queue_operand || umf_queue_drain(to, move->queue, &result);
    if (!is_done && !move->is_callers) {
        umf_undone_add(to, move->queue, &tile->memory);
        move->queue_operand = NULL;
        is_done = true;
    }
    if (is_done) {
        umf_undone_drop(&tile->memory);
    }
    return result;
}

/* A pattern that the provider does not offer. */
static umf_result_t fill_by_copies(umf_move_t *move, const umf_operand_t *to, const void *pattern,
                                   size_t pattern_size) {
    size_t room = TILE_SIZE / pattern_size * pattern_size;
    room = room ? room : pattern_size;
    room = to->size < room ? to->size : room;
    tile_t *tile = umf_meta_alloc(sizeof(*tile) + room);
    if (!tile) {
        UMF_LOG_ERROR("no %zu bytes of host memory for a pattern", room);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    tile->memory.users = 1;
    tile->memory.release = tile_release;
    tile->size = room;
    umf_cpu_fill(tile->bytes, room, pattern, pattern_size);
    umf_result_t result = queue_tiles(move, to, tile->bytes, room);
    umf_result_t waited = tile_end(move, to, tile);
    return umf_operand_failed(to, result ? result : waited);
}

static umf_result_t fill_by_provider(umf_move_t *move, const umf_operand_t *to, const void *pattern,
                                     size_t pattern_size) {
    if (!to->ext->fill || !umf_cpu_is_one_byte(pattern, pattern_size)) {
        return fill_by_copies(move, to, pattern, pattern_size);
    }
    umf_result_t result = umf_move_queue(move, to);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_operand_failed(to, to->ext->fill(to->self, move->queue, (void *)to->addr,
                                                      *(const uint8_t *)pattern, to->size));
    }
    return result;
}

static UMF_COLD umf_result_t no_way_to_fill(const umf_operand_t *to) {
    UMF_LOG_ERROR("%p cannot be filled: the CPU does not reach it, and its provider has no "
                  "operations to copy and queues (umf/plugin.h)",
                  (void *)to->addr);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

umf_result_t umf_move_fill(umf_move_t *move, const umf_operand_t *to, const void *pattern,
                           size_t pattern_size) {
    bool has_copy = umf_operand_has_copy(to);
    bool is_for_cpu = umf_operand_is_of_host(to) && !(move->params->queue && has_copy);
    if (!is_for_cpu && !has_copy && to->kind == UMF_PLACE_DEVICE) {
        return no_way_to_fill(to);
    }
    umf_result_t result;
    if (is_for_cpu || !has_copy) {
        result = umf_move_wait(move);
        if (result == UMF_RESULT_SUCCESS) {
            umf_cpu_fill((void *)to->addr, to->size, pattern, pattern_size);
        }
    } else {
        result = fill_by_provider(move, to, pattern, pattern_size);
    }
    move->done += result == UMF_RESULT_SUCCESS ? to->size : 0;
    return result;
}
