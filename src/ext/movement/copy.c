/* The public calls that copy and fill. */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/movement/move.h"
#include "ext/movement/quick.h"
#include "system/keep_errno.h"

/* The cost of the general way does not matter for larger copies. */
#define QUICK_MAX ((size_t)64 << 10)

static umf_result_t operands_find(umf_operand_t *to, umf_operand_t *from,
                                  const umf_copy_item_t *item, const umf_copy_params_t *params) {
    to->name = "destination";
    from->name = "source";
    umf_operand_find(to, item->to, item->size, true, params->to_kind, params->provider);
    umf_operand_find(from, item->from, item->size, false, params->from_kind, params->provider);
    umf_result_t result = item->size ? umf_operand_check(to) : UMF_RESULT_SUCCESS;
    return result == UMF_RESULT_SUCCESS && item->size ? umf_operand_check(from) : result;
}

static umf_piece_t whole(const umf_operand_t *to, const umf_operand_t *from) {
    return (umf_piece_t){.to = to->addr, .from = from->addr, .size = to->size};
}

static umf_result_t copy_slow(void *to, const void *from, size_t size,
                              const umf_copy_params_t *params) {
    UMF_KEEP_ERRNO;
    umf_copy_item_t item = {.to = to, .from = from, .size = size};
    umf_operand_t operands[2];
    operands[0].span = operands[1].span = 0;
    umf_move_t move;
    umf_result_t result = umf_move_begin(&move, params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (umf_likely(size > 0) || !umf_move_is_plain(&move)) {
        result = operands_find(&operands[0], &operands[1], &item, move.params);
        if (umf_likely(result == UMF_RESULT_SUCCESS)) {
            result = umf_move_serve(&move, operands, 2);
        }
        if (umf_likely(result == UMF_RESULT_SUCCESS) && size > 0) {
            result =
                umf_move_copy(&move, &operands[0], &operands[1], whole(&operands[0], &operands[1]));
        }
    }
    return umf_move_end(&move, result, operands, 2);
}

UMF_API_EXT_1_3 umf_result_t umfCopy(void *to, const void *from, size_t size,
                                     const umf_copy_params_t *params) {
    if (umf_likely(!params && size - 1 < QUICK_MAX) && umf_quick_copy(to, from, size)) {
        return UMF_RESULT_SUCCESS;
    }
    return copy_slow(to, from, size, params);
}

UMF_API_EXT_1_3 umf_result_t umfFill(void *to, const void *pattern, size_t pattern_size,
                                     size_t size, const umf_copy_params_t *params) {
    UMF_KEEP_ERRNO;
    umf_operand_t operand;
    operand.name = "destination";
    operand.span = 0;
    umf_move_t move;
    umf_result_t result = umf_move_begin(&move, params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!pattern || pattern_size == 0) {
        UMF_LOG_ERROR("%s", pattern ? "pattern_size is 0" : "pattern is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (size > 0 || !umf_move_is_plain(&move)) {
        umf_operand_find(&operand, to, size, true, move.params->to_kind, move.params->provider);
        result = size ? umf_operand_check(&operand) : UMF_RESULT_SUCCESS;
        if (result == UMF_RESULT_SUCCESS) {
            result = umf_move_serve(&move, &operand, 1);
        }
        if (result == UMF_RESULT_SUCCESS && size > 0) {
            result = umf_move_fill(&move, &operand, pattern, pattern_size);
        }
    }
    return umf_move_end(&move, result, &operand, 1);
}

UMF_API_EXT_1_3 umf_result_t umfCopyRoute(void *to, const void *from, size_t size,
                                          const umf_copy_params_t *params,
                                          umf_copy_route_t *route) {
    UMF_KEEP_ERRNO;
    umf_copy_item_t item = {.to = to, .from = from, .size = size};
    umf_operand_t operands[2];
    operands[0].span = operands[1].span = 0;
    umf_move_t move;
    if (!route) {
        UMF_LOG_ERROR("route is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_move_begin(&move, params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = operands_find(&operands[0], &operands[1], &item, move.params);
    if (result == UMF_RESULT_SUCCESS) {
        *route = umf_route_of(&operands[0], &operands[1], size, move.params->queue != NULL);
    }
    umf_operand_release(&operands[0]);
    umf_operand_release(&operands[1]);
    return result;
}

/* --- batches -----------------------------------------------------------------------------------
 */

static umf_result_t batch_check(const umf_copy_item_t *items, size_t count, umf_operand_t *operands,
                                const umf_copy_params_t *params, size_t *failed) {
    for (size_t i = 0; i < count; i++) {
        umf_result_t result =
            items[i].size ? operands_find(&operands[2 * i], &operands[2 * i + 1], &items[i], params)
                          : UMF_RESULT_SUCCESS;
        if (result != UMF_RESULT_SUCCESS) {
            UMF_LOG_ERROR("nothing was copied because of item %zu of %zu", i, count);
            *failed = i;
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t batch_run(umf_move_t *move, const umf_copy_item_t *items, size_t count,
                              umf_operand_t *operands, size_t *failed) {
    umf_result_t result = batch_check(items, count, operands, move->params, failed);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_move_serve(move, operands, 2 * count);
    }
    for (size_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        if (items[i].size) {
            move->done = 0;
            result = umf_move_copy(move, &operands[2 * i], &operands[2 * i + 1],
                                   whole(&operands[2 * i], &operands[2 * i + 1]));
        }
        *failed = result == UMF_RESULT_SUCCESS ? count : i;
    }
    return result;
}

static umf_result_t batch_make(const umf_copy_item_t *items, size_t count,
                               const umf_copy_params_t *params, size_t *failed) {
    umf_move_t move;
    size_t bytes;
    umf_result_t result = umf_move_begin(&move, params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if ((!items && count) || !umf_mul(count, 2 * sizeof(umf_operand_t), &bytes)) {
        UMF_LOG_ERROR("items is NULL, or count is %zu", count);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_operand_t *operands = count ? umf_meta_alloc(bytes) : NULL;
    if (count && !operands) {
        UMF_LOG_ERROR("no memory for a batch of %zu copies", count);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    result = batch_run(&move, items, count, operands, failed);
    result = umf_move_end(&move, result, operands, 2 * count);
    if (operands) {
        umf_meta_free(operands, bytes);
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfCopyBatch(const umf_copy_item_t *items, size_t count,
                                          const umf_copy_params_t *params, size_t *failed) {
    UMF_KEEP_ERRNO;
    size_t at = count;
    umf_result_t result = batch_make(items, count, params, &at);
    if (result != UMF_RESULT_SUCCESS && failed) {
        *failed = at;
    }
    return result;
}

/* --- rows --------------------------------------------------------------------------------------
 */

/* From the first byte of the first row to the last byte of the last one. */
static bool extent(size_t pitch, size_t size, size_t count, size_t *bytes) {
    return umf_mul(pitch, count - 1, bytes) && umf_add(*bytes, size, bytes);
}

static umf_result_t rows_check(const umf_copy_rows_t *rows, size_t extents[2]) {
    if (rows->to_pitch < rows->size || rows->from_pitch < rows->size) {
        UMF_LOG_ERROR("rows of %zu bytes would overlap: they begin %zu bytes apart at the "
                      "destination, %zu at the source",
                      rows->size, rows->to_pitch, rows->from_pitch);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!extent(rows->to_pitch, rows->size, rows->count, &extents[0]) ||
        !extent(rows->from_pitch, rows->size, rows->count, &extents[1])) {
        UMF_LOG_ERROR("%zu rows that begin %zu and %zu bytes apart are more than all memory",
                      rows->count, rows->to_pitch, rows->from_pitch);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t rows_find(const umf_copy_rows_t *rows, const size_t extents[2],
                              umf_operand_t *to, umf_operand_t *from,
                              const umf_copy_params_t *params) {
    to->name = "destination";
    from->name = "source";
    umf_operand_find(to, rows->to, extents[0], true, params->to_kind, params->provider);
    umf_operand_find(from, rows->from, extents[1], false, params->from_kind, params->provider);
    umf_result_t result = umf_operand_check(to);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_operand_check(from);
    }
    if (result == UMF_RESULT_SUCCESS &&
        (to->addr - from->addr < extents[1] || from->addr - to->addr < extents[0])) {
        UMF_LOG_ERROR("the rows of the destination %p (%zu bytes in all) and of the source %p (%zu "
                      "bytes) overlap",
                      rows->to, extents[0], rows->from, extents[1]);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result;
}

static umf_result_t rows_run(umf_move_t *move, const umf_copy_rows_t *rows,
                             umf_operand_t operands[2]) {
    size_t extents[2];
    umf_result_t result = rows_check(rows, extents);
    if (result == UMF_RESULT_SUCCESS) {
        result = rows_find(rows, extents, &operands[0], &operands[1], move->params);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_move_serve(move, operands, 2);
    }
    return result == UMF_RESULT_SUCCESS ? umf_move_rows(move, &operands[0], &operands[1], rows)
                                        : result;
}

UMF_API_EXT_1_3 umf_result_t umfCopyRows(const umf_copy_rows_t *rows,
                                         const umf_copy_params_t *params) {
    UMF_KEEP_ERRNO;
    umf_operand_t operands[2];
    operands[0].span = operands[1].span = 0;
    umf_move_t move;
    umf_result_t result = umf_move_begin(&move, params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!rows || rows->struct_size < sizeof(*rows)) {
        UMF_LOG_ERROR("rows is NULL, or its struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (rows->size && rows->count) {
        result = rows_run(&move, rows, operands);
    } else if (!umf_move_is_plain(&move)) {
        umf_copy_item_t none = {.to = rows->to, .from = rows->from};
        operands_find(&operands[0], &operands[1], &none, move.params);
        result = umf_move_serve(&move, operands, 2);
    }
    return umf_move_end(&move, result, operands, 2);
}
