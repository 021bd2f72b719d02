/* What pools move: calloc and realloc (object/content.h). */
#include "ext/movement/content.h"

#include "ext/movement/cpu.h"
#include "ext/staging/queue.h"
#include "object/content.h"

typedef struct content_work_t {
    void *to;
    const void *from; /* NULL: zeroes */
    size_t size;
} content_work_t;

static umf_result_t content_queue(const umf_operand_t *operand, void *queue, void *arg) {
    const content_work_t *work = arg;
    return work->from ? operand->ext->copy(operand->self, queue, work->to, work->from, work->size)
                      : operand->ext->fill(operand->self, queue, work->to, 0, work->size);
}

static umf_result_t content_copy(umf_memory_provider_handle_t provider, void *to, const void *from,
                                 size_t size) {
    umf_operand_t operand;
    content_work_t work = {.to = to, .from = from, .size = size};
    umf_operand_of_provider(&operand, provider);
    return umf_queue_run(&operand, content_queue, &work, NULL);
}

static umf_result_t content_zero(umf_memory_provider_handle_t provider, void *ptr, size_t size) {
    return content_copy(provider, ptr, NULL, size);
}

static void content_cpu_zero(void *ptr, size_t size) {
    umf_cpu_fill(ptr, size, "", 1);
}

void umf_movement_serve_content(void) {
    static const umf_content_mover_t mover = {.cpu_zero = content_cpu_zero,
                                              .cpu_copy = umf_cpu_copy,
                                              .zero = content_zero,
                                              .copy = content_copy};
    umf_content_mover = &mover;
}
