/* Which pieces of a pool's memory go when it is suspended. */
#include "suspend/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"

typedef struct plan_span_t {
    uintptr_t base;
    size_t size;
} plan_span_t;

typedef struct plan_t {
    umf_sleep_t *sleep;
    plan_span_t *spans;
    size_t count, room;
    size_t exported;
    bool overflow; /* more spans came while they were counted */
} plan_t;

static bool plan_visit(umf_span_t *span, void *arg) {
    plan_t *plan = arg;
    if (!umf_span_is_live(span)) {
        return true;
    }
    if (plan->count == plan->room) {
        plan->overflow = true;
        return false;
    }
    if (atomic_load(&span->export)) {
        plan->exported += span->size;
    }
    plan->spans[plan->count++] = (plan_span_t){span->base, span->size};
    return true;
}

static int plan_compare(const void *a, const void *b) {
    uintptr_t left = ((const plan_span_t *)a)->base, right = ((const plan_span_t *)b)->base;
    return (left > right) - (left < right);
}

/* Adds a span to the parts; one that touches the last is joined to it. */
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

/* Adds a piece if all of its allocations are the pool's: the `count` spans. */
static void plan_piece(umf_sleep_t *sleep, const umf_vm_piece_t *piece, const plan_span_t *spans,
                       size_t count, umf_suspend_report_t *report) {
    if (!piece->attached) {
        return;
    }
    if (piece->allocations != count) {
        report->shared += piece->size;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        plan_part(sleep, &spans[i], i == 0);
    }
    umf_sleep_piece_t *added = &sleep->pieces[sleep->count];
    added->base = piece->base;
    added->size = piece->size;
    added->parts = sleep->part_count;
    sleep->bases[sleep->count++] = piece->base;
    sleep->bytes += piece->size;
}

static umf_result_t plan_pieces(plan_t *plan, umf_suspend_report_t *report) {
    umf_sleep_t *sleep = plan->sleep;
    umf_memory_provider_handle_t provider = umf_sleep_provider(sleep);
    umf_vm_piece_t piece = {0};
    size_t seen = 0;
    for (size_t i = 0; i < plan->count; i++) {
        if (seen > 0 && plan->spans[i].base - (uintptr_t)piece.base < piece.size) {
            seen++;
            continue;
        }
        if (seen > 0) {
            plan_piece(sleep, &piece, &plan->spans[i - seen], seen, report);
        }
        umf_result_t result =
            provider->ext->vm_find(provider->self, (void *)plan->spans[i].base, &piece);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        seen = 1;
    }
    if (seen > 0) {
        plan_piece(sleep, &piece, &plan->spans[plan->count - seen], seen, report);
    }
    return UMF_RESULT_SUCCESS;
}

/* Handles given out describe memory that is about to go. */
static void plan_drop_exports(const plan_t *plan) {
    for (size_t i = 0; i < plan->count; i++) {
        umf_span_t *span = umf_view_find(plan->sleep->pool->view, (void *)plan->spans[i].base);
        if (span) {
            umf_core_export_drop(span, umf_sleep_provider(plan->sleep));
        }
    }
}

static umf_result_t plan_room(umf_sleep_t *sleep, size_t room) {
    sleep->room = room;
    sleep->pieces = umf_meta_alloc(room * sizeof(*sleep->pieces));
    sleep->bases = umf_meta_alloc(room * sizeof(*sleep->bases));
    sleep->parts = umf_meta_alloc(room * sizeof(*sleep->parts));
    return sleep->pieces && sleep->bases && sleep->parts ? UMF_RESULT_SUCCESS
                                                         : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

umf_result_t umf_plan_make(umf_sleep_t *sleep, umf_suspend_report_t *report) {
    size_t room = umf_view_span_count(sleep->pool->view);
    if (room == 0) {
        return UMF_RESULT_SUCCESS;
    }
    plan_t plan = {
        .sleep = sleep, .room = room, .spans = umf_meta_alloc(room * sizeof(plan_span_t))};
    umf_result_t result = plan.spans ? plan_room(sleep, room) : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (result == UMF_RESULT_SUCCESS) {
        umf_view_each_span(sleep->pool->view, plan_visit, &plan);
        if (plan.overflow) {
            UMF_LOG_ERROR("pool %p is used while it is being suspended", (void *)sleep->pool);
            result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
        }
    }
    if (result == UMF_RESULT_SUCCESS) {
        qsort(plan.spans, plan.count, sizeof(*plan.spans), plan_compare);
        result = plan_pieces(&plan, report);
        plan_drop_exports(&plan);
    }
    report->exported += plan.exported;
    umf_meta_free(plan.spans, room * sizeof(*plan.spans));
    return result;
}

void umf_plan_forget(umf_sleep_t *sleep) {
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
        umf_sleep_piece_t *piece = &sleep->pieces[i];
        size_t end = piece->parts;
        if (piece->gone) {
            sleep->bytes -= piece->size;
        } else {
            memmove(&sleep->parts[parts], &sleep->parts[first],
                    (end - first) * sizeof(*sleep->parts));
            parts += end - first;
            sleep->bases[pieces] = piece->base;
            sleep->pieces[pieces].base = piece->base;
            sleep->pieces[pieces].size = piece->size;
            sleep->pieces[pieces].parts = parts;
            sleep->pieces[pieces].gone = false;
            pieces++;
        }
        first = end;
    }
    sleep->count = pieces;
    sleep->part_count = parts;
}

size_t umf_plan_kept(const umf_sleep_t *sleep) {
    size_t bytes = 0, part = 0;
    for (size_t i = 0; i < sleep->count; i++) {
        for (; part < sleep->pieces[i].parts; part++) {
            bytes += sleep->pieces[i].gone ? 0 : sleep->parts[part].size;
        }
    }
    return bytes;
}
