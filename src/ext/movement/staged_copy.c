#include "ext/movement/staged_copy.h"

#include <string.h>

#include "base/log.h"
#include "ext/staging/stage.h"
#include "ext/staging/stream.h"
#include "system/os.h"

/* Pageable copies from this size on are staged, where there are so many CPUs: fewer threads are
 * slower than a driver. */
#define STAGE_MIN ((size_t)16 << 20)
#define STAGE_MIN_CPUS 4

bool umf_staged_copy_pays(const umf_operand_t *own, const umf_operand_t *other, size_t size) {
    return size >= STAGE_MIN && other->kind == UMF_PLACE_HOST && !umf_operand_is_of_host(own) &&
           own->provider && own->ext->host_pin && own->ext->host_unpin &&
           umf_os_cpu_count() >= STAGE_MIN_CPUS;
}

/* The CPU writes to the program's memory past the cache; what it writes into a buffer is read next,
 * from the cache. */
static umf_result_t copy_by_cpu(const umf_stage_end_t *end, void *queue, size_t at, size_t size,
                                char *buffer, bool is_into_buffer) {
    char *memory = (char *)(uintptr_t)end->what + at;
    (void)queue;
    if (is_into_buffer) {
        memcpy(buffer, memory, size);
    } else {
        umf_stream_copy(memory, buffer, size);
    }
    return UMF_RESULT_SUCCESS;
}

/* The CPU handles an operand that it can access. */
static umf_stage_end_t end_of(const umf_operand_t *operand, uintptr_t addr) {
    bool is_for_cpu = umf_operand_is_of_host(operand);
    return (umf_stage_end_t){.operand = is_for_cpu ? NULL : operand,
                             .what = (const void *)addr,
                             .copy = is_for_cpu ? copy_by_cpu : umf_stage_copy_by_provider};
}

umf_result_t umf_staged_copy(umf_move_t *move, const umf_operand_t *to, const umf_operand_t *from,
                             umf_piece_t piece) {
    umf_stage_end_t end = end_of(to, piece.to), start = end_of(from, piece.from);
    size_t done;
    umf_result_t result = umf_move_wait(move);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_stage_run(&end, &start, piece.size, &done);
    if (result != UMF_RESULT_SUCCESS) {
        move->done += done;
        UMF_LOG_ERROR("a copy of %zu bytes from %p to %p failed: %zu bytes from the start are "
                      "right",
                      piece.size, (void *)piece.from, (void *)piece.to, done);
    }
    return result;
}
