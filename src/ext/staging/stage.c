#include "ext/staging/stage.h"

#include <stdatomic.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/staging/pinned.h"
#include "ext/staging/queue.h"
#include "ext/staging/workers.h"
#include "system/os.h"

/* Rows from this size on pass pinned memory. */
#define STAGE_PINNED_MIN ((size_t)16 << 20)
#define STAGE_THREADS 12
/* Half of a thread's buffer: of pinned memory, two threads share a unit; of ordinary memory. */
#define HALF_PINNED UMF_STAGE_PART
#define HALF_PLAIN ((size_t)512 << 10)

#define UNITS_MAX ((STAGE_THREADS + 1) / 2)

/* The buffers of a copy. Its work may still use them if a wait failed. */
typedef struct buffers_t {
    umf_undone_memory_t memory;
    umf_pinned_t *units[UNITS_MAX];
    size_t unit_count; /* 0: one buffer of ordinary memory */
    char *plain;
    size_t plain_size;
} buffers_t;

/* One copy. */
typedef struct stage_t {
    const umf_stage_end_t *to, *from;
    size_t size;
    size_t half;        /* bytes that are copied at once */
    buffers_t *buffers; /* NULL: there are none */
    size_t threads;
    _Atomic size_t worker; /* numbers the threads */
    _Atomic size_t next;   /* offset of the next part */
    _Atomic size_t bad;    /* the smallest offset that is not right */
    _Atomic int result;    /* the first failure */
} stage_t;

/* A half of a thread's buffer, and the part of the copy that is in it. */
typedef struct half_t {
    char *buffer;
    void *to_queue, *from_queue; /* NULL: the thread does that end */
    size_t at, size;             /* size 0: empty */
} half_t;

/* The end that parts lie at without a buffer; NULL: neither. */
static const umf_stage_end_t *located(const stage_t *stage) {
    return stage->to->locate ? stage->to : stage->from->locate ? stage->from : NULL;
}

static void stage_fail(stage_t *stage, umf_result_t result, size_t at) {
    int none = UMF_RESULT_SUCCESS;
    size_t bad = atomic_load(&stage->bad);
    atomic_compare_exchange_strong(&stage->result, &none, (int)result);
    while (at < bad && !atomic_compare_exchange_weak(&stage->bad, &bad, at)) {
    }
}

/* --- one half ----------------------------------------------------------------------------------
 */

static umf_result_t half_wait(const umf_stage_end_t *end, void *queue) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (queue) {
        umf_queue_drain(end->operand, queue, &result);
    }
    return result;
}

static umf_result_t half_copy(const umf_stage_end_t *end, void *queue, const half_t *half,
                              bool is_into_buffer) {
    return end->locate ? UMF_RESULT_SUCCESS
                       : end->copy(end, queue, half->at, half->size, half->buffer, is_into_buffer);
}

/* Begins to fill the half, which is empty. */
static umf_result_t half_fill(stage_t *stage, half_t *half, size_t at) {
    const umf_stage_end_t *place = located(stage);
    size_t rest = stage->size - at;
    half->at = at;
    half->size = rest < stage->half ? rest : stage->half;
    half->buffer = place ? place->locate(place, at) : half->buffer;
    return half_copy(stage->from, half->from_queue, half, true);
}

/* Begins to empty the half, when it is filled. */
static umf_result_t half_empty(stage_t *stage, half_t *half) {
    umf_result_t result = half_wait(stage->from, half->from_queue);
    return result ? result : half_copy(stage->to, half->to_queue, half, false);
}

/* The half is empty then. */
static umf_result_t half_end(stage_t *stage, half_t *half) {
    umf_result_t result = half_wait(stage->to, half->to_queue);
    if (result == UMF_RESULT_SUCCESS) {
        half->size = 0;
    }
    return result;
}

/* What of the library's memory the copies use. */
static umf_undone_memory_t *stage_memory(const stage_t *stage) {
    const umf_stage_end_t *place = located(stage);
    return stage->buffers ? &stage->buffers->memory : place ? place->memory : NULL;
}

static void half_close_end(const stage_t *stage, const umf_stage_end_t *end, void *queue) {
    umf_result_t before; /* of earlier waits */
    if (queue) {
        umf_queue_end(end->operand, queue, stage_memory(stage), &before);
    }
}

static void half_close(const stage_t *stage, const half_t *half) {
    half_close_end(stage, stage->from, half->from_queue);
    half_close_end(stage, stage->to, half->to_queue);
}

static umf_result_t half_open_end(const umf_stage_end_t *end, void **queue) {
    return end->operand ? umf_operand_failed(end->operand, umf_queue_take(end->operand, queue))
                        : UMF_RESULT_SUCCESS;
}

static umf_result_t half_open(stage_t *stage, half_t *half) {
    umf_result_t result = half_open_end(stage->from, &half->from_queue);
    return result ? result : half_open_end(stage->to, &half->to_queue);
}

/* --- one thread --------------------------------------------------------------------------------
 */

/* Takes the next part into `half` and lets the other half go on. `*ends`: there is no next part. */
static umf_result_t thread_step(stage_t *stage, half_t *half, half_t *other, bool *ends) {
    umf_result_t result = half_end(stage, half);
    if (result == UMF_RESULT_SUCCESS) {
        bool is_failed = atomic_load(&stage->result) != UMF_RESULT_SUCCESS;
        size_t at = is_failed ? stage->size : atomic_fetch_add(&stage->next, stage->half);
        *ends = at >= stage->size;
        result = *ends ? result : half_fill(stage, half, at);
    }
    if (result == UMF_RESULT_SUCCESS && other->size) {
        result = half_empty(stage, other);
    }
    return result;
}

static umf_result_t thread_parts(stage_t *stage, half_t halves[2]) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    bool ends = false;
    size_t turn = 0;
    for (; result == UMF_RESULT_SUCCESS && !ends; turn++) {
        result = thread_step(stage, &halves[turn % 2], &halves[(turn + 1) % 2], &ends);
    }
    if (result == UMF_RESULT_SUCCESS) { /* the last step has begun to empty the last part */
        result = half_end(stage, &halves[turn % 2]);
    }
    return result;
}

static void thread_halves(stage_t *stage, half_t halves[2]) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < 2 && result == UMF_RESULT_SUCCESS; i++) {
        result = half_open(stage, &halves[i]);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = thread_parts(stage, halves);
    }
    if (result != UMF_RESULT_SUCCESS) {
        stage_fail(stage, result, stage->size);
    }
    for (size_t i = 0; i < 2; i++) {
        if (halves[i].size) {
            stage_fail(stage, result, halves[i].at);
        }
        half_close(stage, &halves[i]);
    }
}

static void thread_run(void *arg) {
    stage_t *stage = arg;
    size_t number = atomic_fetch_add(&stage->worker, 1);
    const buffers_t *buffers = stage->buffers;
    char *buffer = NULL;
    if (buffers) {
        buffer = buffers->unit_count
                     ? buffers->units[number / 2]->base + number % 2 * 2 * stage->half
                     : buffers->plain;
    }
    half_t halves[2] = {{.buffer = buffer}, {.buffer = buffer ? buffer + stage->half : NULL}};
    thread_halves(stage, halves);
}

/* --- the whole ---------------------------------------------------------------------------------
 */

/* The provider that pins the buffers; NULL: none. */
static umf_memory_provider_handle_t pinner(const stage_t *stage) {
    const umf_operand_t *operands[] = {stage->to->operand, stage->from->operand};
    for (size_t i = 0; i < 2; i++) {
        if (operands[i] && operands[i]->provider && operands[i]->ext->host_pin) {
            return operands[i]->provider;
        }
    }
    return NULL;
}

static size_t thread_count(size_t size) {
    size_t cpus = umf_os_cpu_count(), pieces = size / (2 * HALF_PINNED);
    size_t most = cpus < STAGE_THREADS ? cpus : STAGE_THREADS;
    return pieces < most ? pieces + (pieces == 0) : most;
}

static void buffers_release(umf_undone_memory_t *memory) {
    buffers_t *buffers = UMF_CONTAINER_OF(memory, buffers_t, memory);
    umf_pinned_put(buffers->units, buffers->unit_count);
    umf_meta_free(buffers->plain, buffers->plain_size);
    umf_meta_free(buffers, sizeof(*buffers));
}

/* Pinned buffers for all threads. false: ordinary memory has to do. */
static bool stage_take_units(stage_t *stage) {
    umf_memory_provider_handle_t provider = pinner(stage);
    umf_pinned_t **units = stage->buffers->units;
    size_t threads = thread_count(stage->size), count = (threads + 1) / 2, ready;
    if (!provider || stage->size < STAGE_PINNED_MIN ||
        umf_pinned_take(provider, units, count, &ready) != UMF_RESULT_SUCCESS) {
        return false;
    }
    if (umf_pinned_make(units, count, ready, NULL, NULL) != UMF_RESULT_SUCCESS) {
        umf_pinned_put(units, count);
        return false;
    }
    stage->buffers->unit_count = count;
    stage->half = HALF_PINNED;
    stage->threads = threads;
    return true;
}

static bool stage_take_plain(stage_t *stage) {
    stage->half = stage->size < HALF_PLAIN ? stage->size : HALF_PLAIN;
    stage->threads = 1;
    stage->buffers->plain_size = 2 * stage->half;
    stage->buffers->plain = umf_meta_alloc(2 * stage->half);
    return stage->buffers->plain != NULL;
}

/* false: no memory. */
static bool stage_prepare(stage_t *stage) {
    if (located(stage)) {
        stage->half = HALF_PINNED;
        stage->threads = thread_count(stage->size);
        return true;
    }
    stage->buffers = umf_meta_alloc(sizeof(*stage->buffers));
    if (!stage->buffers) {
        return false;
    }
    stage->buffers->memory.users = 1;
    stage->buffers->memory.release = buffers_release;
    return stage_take_units(stage) || stage_take_plain(stage);
}

static umf_result_t stage_end(const stage_t *stage) {
    if (stage->buffers) {
        umf_undone_drop(&stage->buffers->memory);
    }
    return (umf_result_t)atomic_load(&stage->result);
}

umf_result_t umf_stage_copy_by_provider(const umf_stage_end_t *end, void *queue, size_t at,
                                        size_t size, char *buffer, bool is_into_buffer) {
    const umf_operand_t *operand = end->operand;
    char *memory = (char *)(uintptr_t)end->what + at;
    return umf_operand_failed(operand, operand->ext->copy(operand->self, queue,
                                                          is_into_buffer ? buffer : memory,
                                                          is_into_buffer ? memory : buffer, size));
}

umf_result_t umf_stage_run(const umf_stage_end_t *to, const umf_stage_end_t *from, size_t size,
                           size_t *done) {
    stage_t stage = {.to = to, .from = from, .size = size, .bad = size};
    if (stage_prepare(&stage)) {
        umf_workers_run(stage.threads, thread_run, &stage);
    } else {
        UMF_LOG_ERROR("no memory for the buffers of a copy of %zu bytes", size);
        stage_fail(&stage, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, size);
    }
    umf_result_t result = stage_end(&stage);
    *done = result == UMF_RESULT_SUCCESS                         ? size
            : atomic_load(&stage.next) < atomic_load(&stage.bad) ? stage.next
                                                                 : stage.bad;
    return result;
}
