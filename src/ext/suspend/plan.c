/* Which pieces of a pool are detached when it is suspended. */
#include "ext/suspend/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"

/* A span of the pool, or a part of a pool that places pages itself. */
typedef struct plan_span_t {
    uintptr_t base;
    size_t size;
} plan_span_t;

/* One attempt to make a plan. */
typedef struct plan_t {
    umf_sleep_t *sleep;
    plan_span_t *spans; /* spans of the pool, by address */
    size_t count, room;
    size_t *allocations; /* spans in each candidate; the candidates are in the sleep's bases */
    int *claimed;
    size_t candidates;
    size_t shared, exported; /* bytes, for the report */
    bool is_stale;           /* spans were added or withdrawn meanwhile */
} plan_t;

/* --- spans of the pool ------------------------------------------------------------------------ */

static bool plan_visit_part(uintptr_t base, size_t size, void *arg) {
    plan_t *plan = arg;
    if (plan->count == plan->room) {
        plan->is_stale = true;
        return false;
    }
    plan->spans[plan->count++] = (plan_span_t){base, size};
    return true;
}

static bool plan_visit(umf_span_t *span, void *arg) {
    plan_t *plan = arg;
    if (!umf_span_is_live(span)) {
        return true;
    }
    if (atomic_load(&span->export)) {
        plan->exported += span->size;
    }
    return plan_visit_part(span->base, span->size, plan);
}

static int plan_compare(const void *a, const void *b) {
    uintptr_t left = ((const plan_span_t *)a)->base, right = ((const plan_span_t *)b)->base;
    return (left > right) - (left < right);
}

static void plan_list(plan_t *plan) {
    const umf_pool_pieces_ops_t *own = umf_sleep_own_pieces(plan->sleep);
    if (own) {
        own->each_part(plan->sleep->pool->self, plan_visit_part, plan);
    } else {
        umf_tracked_each_span(plan->sleep->pool->tracked, plan_visit, plan);
    }
    qsort(plan->spans, plan->count, sizeof(*plan->spans), plan_compare);
}

typedef struct plan_check_t {
    const plan_t *plan;
    size_t seen;
} plan_check_t;

static bool plan_visit_part_again(uintptr_t base, size_t size, void *arg) {
    plan_check_t *check = arg;
    plan_span_t now = {base, size};
    const plan_span_t *then =
        bsearch(&now, check->plan->spans, check->plan->count, sizeof(now), plan_compare);
    check->seen += then && then->size == now.size;
    return true;
}

static bool plan_visit_again(umf_span_t *span, void *arg) {
    return !umf_span_is_live(span) || plan_visit_part_again(span->base, span->size, arg);
}

/* Whether the pool still has the listed spans. A claimed piece has as many allocations as the list,
 * so then all of them are the pool's. */
static bool plan_is_true(const plan_t *plan) {
    plan_check_t check = {.plan = plan};
    const umf_pool_pieces_ops_t *own = umf_sleep_own_pieces(plan->sleep);
    if (own) {
        own->each_part(plan->sleep->pool->self, plan_visit_part_again, &check);
    } else {
        umf_tracked_each_span(plan->sleep->pool->tracked, plan_visit_again, &check);
    }
    return check.seen == plan->count;
}

/* --- pieces of the pool ----------------------------------------------------------------------- */

/* The number of spans from `first` on that lie in one piece. */
static size_t plan_spans_of(const plan_t *plan, size_t first, const umf_vm_piece_t *piece) {
    size_t n = 0;
    while (first + n < plan->count &&
           plan->spans[first + n].base - (uintptr_t)piece->base < piece->size) {
        n++;
    }
    return n;
}

/* Lists the candidates: pieces whose allocations all seem to belong to the pool. */
static umf_result_t plan_candidates(plan_t *plan) {
    umf_sleep_t *sleep = plan->sleep;
    umf_sleep_vm_t vm = umf_sleep_vm(sleep);
    for (size_t i = 0, n; i < plan->count; i += n) {
        umf_vm_piece_t piece;
        umf_result_t result = vm.ext->vm_find(vm.self, (void *)plan->spans[i].base, &piece);
        if (result != UMF_RESULT_SUCCESS) {
            plan->is_stale = !plan_is_true(plan);
            return plan->is_stale ? UMF_RESULT_SUCCESS : result;
        }
        n = plan_spans_of(plan, i, &piece);
        if (piece.allocations != n) {
            plan->shared += piece.size;
            continue;
        }
        sleep->pieces[plan->candidates].base = piece.base;
        sleep->pieces[plan->candidates].size = piece.size;
        sleep->bases[plan->candidates] = piece.base;
        plan->allocations[plan->candidates++] = n;
    }
    return UMF_RESULT_SUCCESS;
}

/* Claims the candidates. Those that could be claimed move to the front and are the
 * sleep's pieces. */
static umf_result_t plan_claim(plan_t *plan) {
    umf_sleep_t *sleep = plan->sleep;
    umf_sleep_vm_t vm = umf_sleep_vm(sleep);
    umf_result_t result =
        vm.ext->vm_claim(vm.self, sleep->bases, plan->allocations, plan->candidates, plan->claimed);
    for (size_t i = 0; i < plan->candidates && result == UMF_RESULT_SUCCESS; i++) {
        if (!plan->claimed[i]) {
            plan->shared += sleep->pieces[i].size;
            continue;
        }
        sleep->pieces[sleep->count] = sleep->pieces[i];
        sleep->bases[sleep->count++] = sleep->bases[i];
        sleep->bytes += sleep->pieces[i].size;
    }
    return result;
}

/* Adds a span to the parts. A span that is adjacent to the last part extends it. */
static void plan_part(umf_sleep_t *sleep, const plan_span_t *span, bool is_first) {
    umf_store_part_t *last = sleep->part_count ? &sleep->parts[sleep->part_count - 1] : NULL;
    if (!is_first && last->base + last->size == (char *)span->base) {
        last->size += span->size;
    } else {
        sleep->parts[sleep->part_count++] = (umf_store_part_t){
            .base = (char *)span->base, .size = span->size, .offset = sleep->part_bytes};
    }
    sleep->part_bytes += span->size;
}

/* Makes the parts: the allocated memory in the pieces of the sleep. */
static void plan_parts(plan_t *plan) {
    umf_sleep_t *sleep = plan->sleep;
    size_t span = 0;
    for (size_t i = 0; i < sleep->count; i++) {
        umf_sleep_piece_t *piece = &sleep->pieces[i];
        while (plan->spans[span].base < (uintptr_t)piece->base) {
            span++;
        }
        bool is_first = true;
        while (span < plan->count &&
               plan->spans[span].base - (uintptr_t)piece->base < piece->size) {
            plan_part(sleep, &plan->spans[span], is_first);
            piece->content += plan->spans[span++].size;
            is_first = false;
        }
        piece->parts = sleep->part_count;
    }
}

/* Drops the exports of the pool: their handles describe memory that is about to be detached. */
static void plan_drop_exports(const plan_t *plan) {
    for (size_t i = 0; i < plan->count; i++) {
        umf_span_t *span =
            umf_tracked_find(plan->sleep->pool->tracked, (void *)plan->spans[i].base);
        if (span) {
            umf_core_export_ends(span, umf_sleep_provider(plan->sleep));
        }
    }
}

/* --- both ------------------------------------------------------------------------------------- */

static bool plan_alloc(plan_t *plan) {
    umf_sleep_t *sleep = plan->sleep;
    size_t room = sleep->room = plan->room;
    plan->spans = umf_meta_alloc(room * sizeof(*plan->spans));
    plan->allocations = umf_meta_alloc(room * sizeof(*plan->allocations));
    plan->claimed = umf_meta_alloc(room * sizeof(*plan->claimed));
    sleep->pieces = umf_meta_alloc(room * sizeof(*sleep->pieces));
    sleep->bases = umf_meta_alloc(room * sizeof(*sleep->bases));
    sleep->parts = umf_meta_alloc(room * sizeof(*sleep->parts));
    return plan->spans && plan->allocations && plan->claimed && sleep->pieces && sleep->bases &&
           sleep->parts;
}

static void plan_free(plan_t *plan) {
    umf_meta_free(plan->spans, plan->room * sizeof(*plan->spans));
    umf_meta_free(plan->allocations, plan->room * sizeof(*plan->allocations));
    umf_meta_free(plan->claimed, plan->room * sizeof(*plan->claimed));
}

/* How many spans or parts there are. */
static umf_result_t plan_count(plan_t *plan) {
    const umf_memory_pool_handle_t pool = plan->sleep->pool;
    const umf_pool_pieces_ops_t *own = umf_sleep_own_pieces(plan->sleep);
    if (own) {
        return own->make(pool->self, &plan->room);
    }
    plan->room = umf_tracked_span_count(pool->tracked);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t plan_try(plan_t *plan) {
    if (!plan_alloc(plan)) {
        UMF_LOG_ERROR("no memory for bookkeeping of %zu allocations", plan->room);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    plan_list(plan);
    umf_result_t result = plan_candidates(plan);
    if (result == UMF_RESULT_SUCCESS && !plan->is_stale) {
        result = plan_claim(plan);
        plan->is_stale = result == UMF_RESULT_SUCCESS && !plan_is_true(plan);
    }
    if (result == UMF_RESULT_SUCCESS && !plan->is_stale) {
        plan_parts(plan);
        plan_drop_exports(plan);
    }
    return result;
}

/* Spans may be withdrawn at the same time, for example by a thread that ends. Then the plan is made
 * again. Nothing can be added, so the loop ends. */
umf_result_t umf_plan_make(umf_sleep_t *sleep, umf_suspend_report_t *report) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    plan_t plan;
    do {
        umf_plan_forget(sleep);
        plan = (plan_t){.sleep = sleep};
        result = plan_count(&plan);
        result = result == UMF_RESULT_SUCCESS && plan.room ? plan_try(&plan) : result;
        plan_free(&plan);
    } while (result == UMF_RESULT_SUCCESS && plan.is_stale);
    report->shared += plan.shared;
    report->exported += plan.exported;
    return result;
}

static void plan_release(umf_sleep_t *sleep) {
    umf_sleep_vm_t vm = umf_sleep_vm(sleep);
    for (size_t i = 0; i < sleep->count; i++) {
        if (!sleep->pieces[i].gone) {
            /* A failure is logged, and the memory leaks. */
            vm.ext->vm_release(vm.self, &sleep->bases[i], 1);
        }
    }
}

void umf_plan_forget(umf_sleep_t *sleep) {
    plan_release(sleep);
    umf_store_destroy(sleep->store);
    umf_meta_free(sleep->pieces, sleep->room * sizeof(*sleep->pieces));
    umf_meta_free(sleep->bases, sleep->room * sizeof(*sleep->bases));
    umf_meta_free(sleep->parts, sleep->room * sizeof(*sleep->parts));
    sleep->store = NULL;
    sleep->pieces = NULL;
    sleep->bases = NULL;
    sleep->parts = NULL;
    sleep->count = sleep->part_count = sleep->room = sleep->bytes = sleep->part_bytes = 0;
}

umf_sleep_piece_t *umf_plan_find(const umf_sleep_t *sleep, uintptr_t addr) {
    size_t low = 0, high = sleep->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const umf_sleep_piece_t *piece = &sleep->pieces[middle];
        if (addr < (uintptr_t)piece->base) {
            high = middle;
        } else if (addr - (uintptr_t)piece->base >= piece->size) {
            low = middle + 1;
        } else {
            return &sleep->pieces[middle];
        }
    }
    return NULL;
}

void umf_plan_prune(umf_sleep_t *sleep) {
    size_t pieces = 0, parts = 0, first = 0;
    for (size_t i = 0; i < sleep->count; i++) {
        umf_sleep_piece_t piece = sleep->pieces[i];
        size_t end = piece.parts;
        if (piece.gone) {
            sleep->bytes -= piece.size;
        } else {
            memmove(&sleep->parts[parts], &sleep->parts[first],
                    (end - first) * sizeof(*sleep->parts));
            parts += end - first;
            piece.parts = parts;
            sleep->bases[pieces] = piece.base;
            sleep->pieces[pieces++] = piece;
        }
        first = end;
    }
    sleep->count = pieces;
    sleep->part_count = parts;
}

size_t umf_plan_content(const umf_sleep_t *sleep) {
    size_t bytes = 0;
    for (size_t i = 0; i < sleep->count; i++) {
        bytes += sleep->pieces[i].gone ? 0 : sleep->pieces[i].content;
    }
    return bytes;
}

size_t umf_plan_away(umf_sleep_t *sleep) {
    umf_sleep_vm_t vm = umf_sleep_vm(sleep);
    size_t bytes = 0;
    for (size_t i = 0; i < sleep->count; i++) {
        umf_sleep_piece_t *piece = &sleep->pieces[i];
        umf_vm_piece_t now;
        piece->is_away = !piece->gone &&
                         vm.ext->vm_find(vm.self, piece->base, &now) == UMF_RESULT_SUCCESS &&
                         !now.attached;
        bytes += piece->is_away ? umf_sleep_piece_bytes(sleep, piece) : 0;
    }
    return bytes;
}
