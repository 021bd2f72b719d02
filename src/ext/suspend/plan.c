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
    umf_suspendable_t *suspendable;
    plan_span_t *spans; /* spans of the pool, by address */
    size_t count, room;
    size_t *allocations; /* spans in each candidate; the candidates are in the object's bases */
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
    if (atomic_load(&span->exported)) {
        plan->exported += span->size;
    }
    return plan_visit_part(span->base, span->size, plan);
}

static int plan_compare(const void *a, const void *b) {
    uintptr_t left = ((const plan_span_t *)a)->base, right = ((const plan_span_t *)b)->base;
    return (left > right) - (left < right);
}

static void plan_list(plan_t *plan) {
    const umf_pool_pieces_ops_t *own = umf_suspendable_own_pieces(plan->suspendable);
    if (own) {
        own->each_part(plan->suspendable->pool->self, plan_visit_part, plan);
    } else {
        umf_tracked_each_span(plan->suspendable->pool->tracked, plan_visit, plan);
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
    const umf_pool_pieces_ops_t *own = umf_suspendable_own_pieces(plan->suspendable);
    if (own) {
        own->each_part(plan->suspendable->pool->self, plan_visit_part_again, &check);
    } else {
        umf_tracked_each_span(plan->suspendable->pool->tracked, plan_visit_again, &check);
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
    umf_suspendable_t *suspendable = plan->suspendable;
    umf_suspend_vm_t vm = umf_suspendable_vm(suspendable);
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
        suspendable->pieces[plan->candidates].base = piece.base;
        suspendable->pieces[plan->candidates].size = piece.size;
        suspendable->bases[plan->candidates] = piece.base;
        plan->allocations[plan->candidates++] = n;
    }
    return UMF_RESULT_SUCCESS;
}

/* Claims the candidates. Those that could be claimed move to the front and are the
 * object's pieces. */
static umf_result_t plan_claim(plan_t *plan) {
    umf_suspendable_t *suspendable = plan->suspendable;
    umf_suspend_vm_t vm = umf_suspendable_vm(suspendable);
    umf_result_t result = vm.ext->vm_claim(vm.self, suspendable->bases, plan->allocations,
                                           plan->candidates, plan->claimed);
    for (size_t i = 0; i < plan->candidates && result == UMF_RESULT_SUCCESS; i++) {
        if (!plan->claimed[i]) {
            plan->shared += suspendable->pieces[i].size;
            continue;
        }
        suspendable->pieces[suspendable->count] = suspendable->pieces[i];
        suspendable->bases[suspendable->count++] = suspendable->bases[i];
        suspendable->bytes += suspendable->pieces[i].size;
    }
    return result;
}

/* Adds a span to the parts. A span that is adjacent to the last part extends it. */
static void plan_part(umf_suspendable_t *suspendable, const plan_span_t *span, bool is_first) {
    umf_store_part_t *last =
        suspendable->part_count ? &suspendable->parts[suspendable->part_count - 1] : NULL;
    if (!is_first && last->base + last->size == (char *)span->base) {
        last->size += span->size;
    } else {
        suspendable->parts[suspendable->part_count++] = (umf_store_part_t){
            .base = (char *)span->base, .size = span->size, .offset = suspendable->part_bytes};
    }
    suspendable->part_bytes += span->size;
}

/* Makes the parts: the allocated memory in the pieces of the object. */
static void plan_parts(plan_t *plan) {
    umf_suspendable_t *suspendable = plan->suspendable;
    size_t span = 0;
    for (size_t i = 0; i < suspendable->count; i++) {
        umf_suspend_piece_t *piece = &suspendable->pieces[i];
        while (plan->spans[span].base < (uintptr_t)piece->base) {
            span++;
        }
        bool is_first = true;
        while (span < plan->count &&
               plan->spans[span].base - (uintptr_t)piece->base < piece->size) {
            plan_part(suspendable, &plan->spans[span], is_first);
            piece->content += plan->spans[span++].size;
            is_first = false;
        }
        piece->parts = suspendable->part_count;
    }
}

/* Drops the exports of the pool: their handles describe memory that is about to be detached. */
static void plan_drop_exports(const plan_t *plan) {
    for (size_t i = 0; i < plan->count; i++) {
        umf_span_t *span =
            umf_tracked_find(plan->suspendable->pool->tracked, (void *)plan->spans[i].base);
        if (span) {
            umf_core_export_ends(span, umf_suspendable_provider(plan->suspendable));
        }
    }
}

/* --- both ------------------------------------------------------------------------------------- */

static bool plan_alloc(plan_t *plan) {
    umf_suspendable_t *suspendable = plan->suspendable;
    size_t room = suspendable->room = plan->room;
    plan->spans = umf_meta_alloc(room * sizeof(*plan->spans));
    plan->allocations = umf_meta_alloc(room * sizeof(*plan->allocations));
    plan->claimed = umf_meta_alloc(room * sizeof(*plan->claimed));
    suspendable->pieces = umf_meta_alloc(room * sizeof(*suspendable->pieces));
    suspendable->bases = umf_meta_alloc(room * sizeof(*suspendable->bases));
    suspendable->parts = umf_meta_alloc(room * sizeof(*suspendable->parts));
    return plan->spans && plan->allocations && plan->claimed && suspendable->pieces &&
           suspendable->bases && suspendable->parts;
}

static void plan_free(plan_t *plan) {
    umf_meta_free(plan->spans, plan->room * sizeof(*plan->spans));
    umf_meta_free(plan->allocations, plan->room * sizeof(*plan->allocations));
    umf_meta_free(plan->claimed, plan->room * sizeof(*plan->claimed));
}

/* How many spans or parts there are. */
static umf_result_t plan_count(plan_t *plan) {
    const umf_memory_pool_handle_t pool = plan->suspendable->pool;
    const umf_pool_pieces_ops_t *own = umf_suspendable_own_pieces(plan->suspendable);
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
umf_result_t umf_plan_make(umf_suspendable_t *suspendable, umf_suspend_report_t *report) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    plan_t plan;
    do {
        umf_plan_forget(suspendable);
        plan = (plan_t){.suspendable = suspendable};
        result = plan_count(&plan);
        result = result == UMF_RESULT_SUCCESS && plan.room ? plan_try(&plan) : result;
        plan_free(&plan);
    } while (result == UMF_RESULT_SUCCESS && plan.is_stale);
    report->shared += plan.shared;
    report->exported += plan.exported;
    return result;
}

static void plan_release(umf_suspendable_t *suspendable) {
    umf_suspend_vm_t vm = umf_suspendable_vm(suspendable);
    for (size_t i = 0; i < suspendable->count; i++) {
        if (!suspendable->pieces[i].gone) {
            /* A failure is logged, and the memory leaks. */
            vm.ext->vm_release(vm.self, &suspendable->bases[i], 1);
        }
    }
}

void umf_plan_forget(umf_suspendable_t *suspendable) {
    plan_release(suspendable);
    umf_store_destroy(suspendable->store);
    umf_meta_free(suspendable->pieces, suspendable->room * sizeof(*suspendable->pieces));
    umf_meta_free(suspendable->bases, suspendable->room * sizeof(*suspendable->bases));
    umf_meta_free(suspendable->parts, suspendable->room * sizeof(*suspendable->parts));
    suspendable->store = NULL;
    suspendable->pieces = NULL;
    suspendable->bases = NULL;
    suspendable->parts = NULL;
    suspendable->count = suspendable->part_count = suspendable->room = suspendable->bytes =
        suspendable->part_bytes = 0;
}

umf_suspend_piece_t *umf_plan_find(const umf_suspendable_t *suspendable, uintptr_t addr) {
    size_t low = 0, high = suspendable->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const umf_suspend_piece_t *piece = &suspendable->pieces[middle];
        if (addr < (uintptr_t)piece->base) {
            high = middle;
        } else if (addr - (uintptr_t)piece->base >= piece->size) {
            low = middle + 1;
        } else {
            return &suspendable->pieces[middle];
        }
    }
    return NULL;
}

void umf_plan_prune(umf_suspendable_t *suspendable) {
    size_t pieces = 0, parts = 0, first = 0;
    for (size_t i = 0; i < suspendable->count; i++) {
        umf_suspend_piece_t piece = suspendable->pieces[i];
        size_t end = piece.parts;
        if (piece.gone) {
            suspendable->bytes -= piece.size;
        } else {
            memmove(&suspendable->parts[parts], &suspendable->parts[first],
                    (end - first) * sizeof(*suspendable->parts));
            parts += end - first;
            piece.parts = parts;
            suspendable->bases[pieces] = piece.base;
            suspendable->pieces[pieces++] = piece;
        }
        first = end;
    }
    suspendable->count = pieces;
    suspendable->part_count = parts;
}

size_t umf_plan_content(const umf_suspendable_t *suspendable) {
    size_t bytes = 0;
    for (size_t i = 0; i < suspendable->count; i++) {
        bytes += suspendable->pieces[i].gone ? 0 : suspendable->pieces[i].content;
    }
    return bytes;
}

size_t umf_plan_away(umf_suspendable_t *suspendable) {
    umf_suspend_vm_t vm = umf_suspendable_vm(suspendable);
    size_t bytes = 0;
    for (size_t i = 0; i < suspendable->count; i++) {
        umf_suspend_piece_t *piece = &suspendable->pieces[i];
        umf_vm_piece_t now;
        piece->is_away = !piece->gone &&
                         vm.ext->vm_find(vm.self, piece->base, &now) == UMF_RESULT_SUCCESS &&
                         !now.attached;
        bytes += piece->is_away ? umf_suspendable_piece_bytes(suspendable, piece) : 0;
    }
    return bytes;
}
