#include "movement/stage.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "movement/crew.h"
#include "movement/pinned.h"
#include "movement/queue.h"
#include "movement/stream.h"
#include "system/os.h"

/* Pageable copies from this size on are staged, where there are so many CPUs: fewer threads are
 * slower than a driver. */
#define STAGE_MIN ((size_t)16 << 20)
#define STAGE_MIN_CPUS 4
#define STAGE_THREADS 12
/* Half of a thread's buffer: of pinned memory, two threads share a unit; of ordinary memory. */
#define HALF_PINNED (UMF_PINNED_UNIT / 4)
#define HALF_PLAIN ((size_t)512 << 10)

/* One copy. */
typedef struct stage_t {
    const umf_side_t *to, *from;
    umf_piece_t piece;
    size_t half;          /* bytes that are copied at once */
    umf_pinned_t **units; /* NULL: buffers are ordinary memory */
    size_t threads;
    _Atomic size_t worker;  /* numbers the threads */
    _Atomic size_t next;    /* offset of the next part */
    _Atomic size_t bad;     /* the smallest offset that is not right */
    _Atomic int result;     /* the first failure */
    _Atomic bool is_undone; /* work that could not be waited for may still use the buffers */
} stage_t;

/* A half of a thread's buffer, and the part of the copy that is in it. */
typedef struct half_t {
    char *buffer;
    void *to_queue, *from_queue; /* NULL: the CPU does that side */
    size_t at, size;             /* size 0: empty */
} half_t;

/* The CPU does a side that it reaches, unless the other side needs the CPU's help. */
static bool has_queue(const umf_side_t *side) {
    return !umf_side_is_of_host(side);
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

static umf_result_t half_wait(stage_t *stage, const umf_side_t *side, void *queue) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (queue && !umf_move_drain(side, queue, &result)) {
        atomic_store(&stage->is_undone, true);
    }
    return result;
}

static void copy_cached(char *to, const char *from, size_t size) {
    memcpy(to, from, size);
}

/* The CPU writes to the program's memory past the cache; what it writes into a buffer is read next,
 * from the cache. */
static umf_result_t half_copy(const umf_side_t *side, void *queue, void *to, const void *from,
                              size_t size, bool is_last) {
    if (!queue) {
        (is_last ? umf_stream_copy : copy_cached)(to, from, size);
        return UMF_RESULT_SUCCESS;
    }
    return umf_move_failed(side, side->ext->copy(side->self, queue, to, from, size));
}

/* Begins to fill the half, which is empty. */
static umf_result_t half_fill(stage_t *stage, half_t *half, size_t at) {
    size_t rest = stage->piece.size - at;
    half->at = at;
    half->size = rest < stage->half ? rest : stage->half;
    return half_copy(stage->from, half->from_queue, half->buffer,
                     (const char *)stage->piece.from + at, half->size, false);
}

/* Begins to empty the half, when it is filled. */
static umf_result_t half_empty(stage_t *stage, half_t *half) {
    umf_result_t result = half_wait(stage, stage->from, half->from_queue);
    return result ? result
                  : half_copy(stage->to, half->to_queue, (char *)stage->piece.to + half->at,
                              half->buffer, half->size, true);
}

/* The half is empty then. */
static umf_result_t half_end(stage_t *stage, half_t *half) {
    umf_result_t result = half_wait(stage, stage->to, half->to_queue);
    if (result == UMF_RESULT_SUCCESS) {
        half->size = 0;
    }
    return result;
}

static void half_close(stage_t *stage, half_t *half) {
    if (half->from_queue) {
        half_wait(stage, stage->from, half->from_queue);
        umf_queue_put(stage->from, half->from_queue);
    }
    if (half->to_queue) {
        half_wait(stage, stage->to, half->to_queue);
        umf_queue_put(stage->to, half->to_queue);
    }
}

static umf_result_t half_open(stage_t *stage, half_t *half) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (has_queue(stage->from)) {
        result = umf_move_failed(stage->from, umf_queue_take(stage->from, &half->from_queue));
    }
    if (result == UMF_RESULT_SUCCESS && has_queue(stage->to)) {
        result = umf_move_failed(stage->to, umf_queue_take(stage->to, &half->to_queue));
    }
    return result;
}

/* --- one thread --------------------------------------------------------------------------------
 */

/* Takes the next part into `half` and lets the other half go on. `*ends`: there is no next part. */
static umf_result_t thread_step(stage_t *stage, half_t *half, half_t *other, bool *ends) {
    umf_result_t result = half_end(stage, half);
    if (result == UMF_RESULT_SUCCESS) {
        bool is_failed = atomic_load(&stage->result) != UMF_RESULT_SUCCESS;
        size_t at = is_failed ? stage->piece.size : atomic_fetch_add(&stage->next, stage->half);
        *ends = at >= stage->piece.size;
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

static char *thread_buffer(stage_t *stage, size_t number) {
    return stage->units ? stage->units[number / 2]->base + number % 2 * 2 * stage->half
                        : umf_meta_alloc(2 * stage->half);
}

static void thread_run(void *arg) {
    stage_t *stage = arg;
    size_t number = atomic_fetch_add(&stage->worker, 1);
    char *buffer = thread_buffer(stage, number);
    half_t halves[2] = {{.buffer = buffer}, {.buffer = buffer ? buffer + stage->half : NULL}};
    umf_result_t result = buffer ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < 2 && result == UMF_RESULT_SUCCESS; i++) {
        result = half_open(stage, &halves[i]);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = thread_parts(stage, halves);
    }
    if (result != UMF_RESULT_SUCCESS) {
        stage_fail(stage, result, stage->piece.size);
    }
    for (size_t i = 0; i < 2; i++) {
        if (halves[i].size) {
            stage_fail(stage, result, halves[i].at);
        }
        half_close(stage, &halves[i]);
    }
    if (buffer && !stage->units && !atomic_load(&stage->is_undone)) {
        umf_meta_free(buffer, 2 * stage->half);
    }
}

/* --- the whole ---------------------------------------------------------------------------------
 */

bool umf_stage_pays(const umf_side_t *own, const umf_side_t *other, size_t size) {
    return size >= STAGE_MIN && other->kind == UMF_PLACE_HOST && !umf_side_is_of_host(own) &&
           own->provider && own->ext->host_pin && own->ext->host_unpin &&
           umf_os_cpu_count() >= STAGE_MIN_CPUS;
}

/* The provider that pins the buffers; NULL: nobody does. */
static umf_memory_provider_handle_t pinner(const stage_t *stage) {
    const umf_side_t *sides[] = {stage->to, stage->from};
    for (size_t i = 0; i < 2; i++) {
        if (has_queue(sides[i]) && sides[i]->provider && sides[i]->ext->host_pin) {
            return sides[i]->provider;
        }
    }
    return NULL;
}

static size_t thread_count(size_t size) {
    size_t cpus = umf_os_cpu_count(), pieces = size / (2 * HALF_PINNED);
    size_t most = cpus < STAGE_THREADS ? cpus : STAGE_THREADS;
    return pieces < most ? pieces + (pieces == 0) : most;
}

static umf_result_t units_pin(umf_pinned_t **units, size_t count, size_t ready) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = ready; i < count; i++) {
        umf_pinned_touch(units[i]);
    }
    while (ready < count && result == UMF_RESULT_SUCCESS) {
        size_t pinned = 0;
        result = umf_pinned_pin(units[ready], &pinned);
        ready += pinned;
    }
    return result;
}

/* Pinned buffers for all threads. false: there are none, and ordinary memory has to do. */
static bool stage_take_units(stage_t *stage, umf_pinned_t **units) {
    umf_memory_provider_handle_t provider = pinner(stage);
    size_t threads = thread_count(stage->piece.size), count = (threads + 1) / 2, ready;
    if (!provider || stage->piece.size < STAGE_MIN ||
        umf_pinned_take(provider, units, count, &ready) != UMF_RESULT_SUCCESS) {
        return false;
    }
    if (units_pin(units, count, ready) != UMF_RESULT_SUCCESS) {
        while (count > 0) {
            umf_pinned_put(units[--count]);
        }
        return false;
    }
    stage->units = units;
    stage->half = HALF_PINNED;
    stage->threads = threads;
    return true;
}

static void stage_put_units(stage_t *stage) {
    bool is_undone = atomic_load(&stage->is_undone);
    for (size_t i = 0; stage->units && !is_undone && i < (stage->threads + 1) / 2; i++) {
        umf_pinned_put(stage->units[i]);
    }
}

umf_result_t umf_stage_copy(umf_move_t *move, const umf_side_t *to, const umf_side_t *from,
                            umf_piece_t piece) {
    umf_pinned_t *units[(STAGE_THREADS + 1) / 2];
    stage_t stage = {.to = to, .from = from, .piece = piece, .threads = 1, .bad = piece.size};
    umf_result_t result = umf_move_wait(move);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    stage.half = piece.size < HALF_PLAIN ? piece.size : HALF_PLAIN;
    stage_take_units(&stage, units);
    umf_crew_run(stage.threads, thread_run, &stage);
    stage_put_units(&stage);
    result = (umf_result_t)atomic_load(&stage.result);
    if (result != UMF_RESULT_SUCCESS) {
        size_t done = atomic_load(&stage.next) < stage.bad ? stage.next : stage.bad;
        move->done += done;
        UMF_LOG_ERROR("a copy of %zu bytes from %p to %p failed: %zu bytes from the start are "
                      "right",
                      piece.size, (void *)piece.from, (void *)piece.to, done);
    }
    return result;
}
