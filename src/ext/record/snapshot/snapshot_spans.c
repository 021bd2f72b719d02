/* The spans of a snapshot, and what they are divided into. */
#include "ext/record/snapshot/snapshot_own.h"
#include "object/listener.h"
#include "reclaim/reclaim.h"

#define SPANS_AT_ONCE 64 /* of a pool in one visit */

/* --- which there are --- */

static uint32_t object_of(const umf_snapshot_t *snapshot, const umf_span_seen_t *span) {
    return span->kind == UMF_SPAN_IMPORT ? 0 : umf_snapshot_number(snapshot, span->set);
}

static void span_note(umf_snapshot_t *snapshot, uint32_t index, const umf_span_seen_t *span) {
    uint32_t object = object_of(snapshot, span);
    umf_snapshot_seen_t *seen = NULL;
    if (object || span->kind == UMF_SPAN_IMPORT) {
        seen = umf_items_add(&snapshot->seen);
        umf_snapshot_need(snapshot, seen);
    }
    if (seen) {
        *seen = (umf_snapshot_seen_t){*span, index, object};
        umf_snapshot_object(snapshot, object)->count++;
    }
}

static void spans_note(umf_snapshot_t *snapshot) {
    uint32_t highest = umf_span_highest();
    umf_span_seen_t span;
    for (uint32_t i = 1; i <= highest && snapshot->error == 0; i++) {
        umf_span_see(i, &span);
        if (span.kind) {
            span_note(snapshot, i, &span);
        }
    }
}

/* By object, so that each pool is visited once. */
static void spans_sort(umf_snapshot_t *snapshot) {
    for (size_t i = 0; i < snapshot->seen.count && snapshot->error == 0; i++) {
        umf_snapshot_need(snapshot, umf_items_add(&snapshot->order));
    }
    size_t first = 0;
    for (size_t i = 0; i < snapshot->objects.count; i++) {
        umf_snapshot_object_t *object = umf_snapshot_object(snapshot, i);
        object->first = first;
        first += object->count;
        object->count = 0;
    }
    for (size_t i = 0; i < snapshot->seen.count && snapshot->error == 0; i++) {
        const umf_snapshot_seen_t *seen = umf_items_at(&snapshot->seen, i);
        umf_snapshot_object_t *object = umf_snapshot_object(snapshot, seen->object);
        *(uint32_t *)umf_items_at(&snapshot->order, object->first + object->count++) = (uint32_t)i;
    }
}

/* --- what they are divided into --- */

typedef struct snapshot_walk_t {
    umf_walk_t walk; /* first */
    umf_snapshot_t *snapshot;
    umf_snapshot_object_t *object;
    size_t bytes; /* of all runs */
} snapshot_walk_t;

static void run_report(umf_walk_t *walk, const umf_record_run_t *run) {
    snapshot_walk_t *mine = (snapshot_walk_t *)walk;
    mine->bytes += run->size * run->count;
    if (run->state == UMF_RECORD_STATE_LIVE) {
        mine->object->item.live += run->size * run->count;
    }
    if (mine->snapshot->what == UMF_SNAPSHOT_ALL) {
        umf_record_run_t *kept = umf_items_add(&mine->snapshot->runs);
        umf_snapshot_need(mine->snapshot, kept);
        if (kept) {
            *kept = *run;
        }
    }
}

/* Some pools report a span from high addresses to low. */
static void runs_ascend(umf_snapshot_t *snapshot, size_t first) {
    size_t low = first, high = snapshot->runs.count;
    while (low + 1 < high--) {
        umf_record_run_t *a = umf_items_at(&snapshot->runs, low++);
        umf_record_run_t *b = umf_items_at(&snapshot->runs, high);
        if (a->base < b->base) {
            return;
        }
        umf_record_run_t kept = *a;
        *a = *b;
        *b = kept;
    }
}

static uint32_t span_flags(const umf_snapshot_object_t *object, const umf_span_seen_t *span) {
    uint32_t flags = span->is_exported ? UMF_RECORD_SPAN_IS_EXPORTED : 0;
    flags |= object->item.away ? UMF_RECORD_SPAN_IS_AWAY : 0;
    return flags | (span->kind == UMF_SPAN_IMPORT ? UMF_RECORD_SPAN_IS_IMPORT : 0);
}

static void span_add(umf_snapshot_t *snapshot, const umf_record_span_t *span, size_t first_run) {
    umf_record_span_t *kept = NULL;
    if (snapshot->what == UMF_SNAPSHOT_ALL && snapshot->error == 0) {
        runs_ascend(snapshot, first_run);
        kept = umf_items_add(&snapshot->spans);
        umf_snapshot_need(snapshot, kept);
    }
    if (kept) {
        *kept = *span;
        kept->first_run = (uint32_t)first_run;
        kept->run_count = (uint32_t)(snapshot->runs.count - first_run);
    }
}

/* Is the span unchanged? It may have been cut, or have grown into others. */
static bool is_same(const umf_snapshot_seen_t *seen, size_t *size) {
    umf_span_seen_t now;
    umf_span_see(seen->index, &now);
    *size = now.kind && now.size < seen->span.size ? now.size : seen->span.size;
    return now.kind == seen->span.kind && now.id == seen->span.id && now.set == seen->span.set &&
           now.base == seen->span.base;
}

static void walk_begin(snapshot_walk_t *walk, umf_snapshot_t *snapshot, uint32_t object) {
    *walk = (snapshot_walk_t){
        .walk = {.report = run_report},
        .snapshot = snapshot,
        .object = umf_snapshot_object(snapshot, object),
    };
}

/* `pool`: NULL if it cannot list blocks. The span is in use, or dormant. */
static void span_divide(snapshot_walk_t *walk, umf_memory_pool_handle_t pool,
                        const umf_snapshot_seen_t *seen, size_t size) {
    bool is_dormant = seen->span.kind == UMF_SPAN_DORMANT;
    if (!is_dormant && pool && pool->fast && pool->fast->walk &&
        seen->span.set == &pool->tracked->spans) {
        pool->fast->walk(pool->self, umf_span_at(seen->index), &walk->walk);
    } else {
        umf_walk_add(&walk->walk, seen->span.base, size, 1,
                     is_dormant ? UMF_RECORD_STATE_CACHED : UMF_RECORD_STATE_UNKNOWN);
    }
    umf_walk_end(&walk->walk);
    walk->object->is_known &= !walk->walk.is_partial;
}

/* Of a span that is addresses, in part without memory: a span for each part that has some. */
static void parts_add(umf_snapshot_t *snapshot, const umf_record_span_t *whole, size_t first) {
    for (size_t end = snapshot->runs.count, next; first < end; first = next) {
        const umf_record_run_t *run = umf_items_at(&snapshot->runs, first);
        umf_record_span_t part = *whole;
        part.base = run->base;
        part.size = 0;
        for (next = first; next < end; next++) {
            run = umf_items_at(&snapshot->runs, next);
            if (run->base != part.base + part.size) {
                break;
            }
            part.size += run->size * run->count;
        }
        umf_record_span_t *kept = umf_items_add(&snapshot->spans);
        umf_snapshot_need(snapshot, kept);
        if (!kept) {
            return;
        }
        *kept = part;
        kept->first_run = (uint32_t)first;
        kept->run_count = (uint32_t)(next - first);
    }
}

/* Places the pool pages in its spans itself? */
static bool has_parts(umf_memory_pool_handle_t pool, const umf_snapshot_seen_t *seen) {
    return pool && pool->fast && pool->fast->pieces && seen->span.kind == UMF_SPAN_POOL &&
           seen->span.set == &pool->tracked->spans;
}

static void span_take_in(umf_snapshot_t *snapshot, umf_memory_pool_handle_t pool, uint32_t number,
                         const umf_snapshot_seen_t *seen, size_t size) {
    snapshot_walk_t walk;
    walk_begin(&walk, snapshot, number);
    size_t first_run = snapshot->runs.count;
    span_divide(&walk, pool, seen, size);
    bool is_parted = has_parts(pool, seen);
    size_t held = is_parted ? walk.bytes : size;
    walk.object->item.held += seen->span.kind == UMF_SPAN_IMPORT ? 0 : held;
    umf_record_span_t span = {
        .base = seen->span.base,
        .size = size,
        .object = number,
        .flags = span_flags(walk.object, &seen->span),
    };
    if (is_parted) {
        parts_add(snapshot, &span, first_run);
    } else {
        span_add(snapshot, &span, first_run);
    }
}

/* An imported span belongs to the provider that opened it. */
static uint32_t import_object(const umf_snapshot_t *snapshot, const umf_snapshot_seen_t *seen) {
    umf_memory_provider_handle_t provider = umf_core_import_provider(umf_span_at(seen->index));
    return provider ? umf_snapshot_number(snapshot, provider->root) : 0;
}

/* As umf_span_use: sequentially consistent, so that of this thread and one that withdraws the span
 * one sees the other. An acquire load may pass umf_use_begin on machines whose acquire is weaker.
 */
static bool is_in_use(uint32_t index) {
    return atomic_load(&umf_span_at(index)->kind) != 0;
}

/* Seen in use, a span stays as it is until the use ends (track/use.h). No thread could wait for a
 * dormant one. */
static void span_visit(umf_snapshot_t *snapshot, umf_memory_pool_handle_t pool,
                       const umf_snapshot_seen_t *seen) {
    size_t size;
    if (seen->span.kind == UMF_SPAN_DORMANT) {
        if (is_same(seen, &size)) {
            span_take_in(snapshot, NULL, seen->object, seen, size);
        }
        return;
    }
    umf_use_begin(seen->index);
    if (is_in_use(seen->index) && is_same(seen, &size)) {
        uint32_t object = seen->object ? seen->object : import_object(snapshot, seen);
        if (object) {
            span_take_in(snapshot, pool, object, seen, size);
        }
    }
    umf_use_end(seen->index);
}

typedef struct snapshot_visit_t {
    umf_snapshot_t *snapshot;
    size_t next, end; /* of `order` */
} snapshot_visit_t;

static void some_visit(umf_memory_pool_handle_t pool, void *arg) {
    snapshot_visit_t *visit = arg;
    umf_snapshot_t *snapshot = visit->snapshot;
    for (size_t i = 0; i < SPANS_AT_ONCE && visit->next < visit->end && snapshot->error == 0; i++) {
        uint32_t at = *(uint32_t *)umf_items_at(&snapshot->order, visit->next++);
        span_visit(snapshot, pool, umf_items_at(&snapshot->seen, at));
    }
}

/* Object 0 stands for imports, of which no pool is visited. */
static void object_visit(umf_snapshot_t *snapshot, size_t number) {
    const umf_snapshot_object_t *object = umf_snapshot_object(snapshot, number);
    snapshot_visit_t visit = {snapshot, object->first, object->first + object->count};
    while (visit.next < visit.end && snapshot->error == 0) {
        if (snapshot->is_enough && snapshot->is_enough()) {
            snapshot->error = ECANCELED;
        }
        if (number == 0) {
            some_visit(NULL, &visit);
        } else if (!umf_reclaim_one(object->index, some_visit, &visit)) {
            return;
        }
    }
}

static void figures_end(umf_record_object_t *item, bool is_known) {
    if (item->kind == UMF_RECORD_OBJECT_POOL && !is_known) {
        item->live = UMF_RECORD_UNKNOWN;
    }
}

void umf_snapshot_spans(umf_snapshot_t *snapshot) {
    spans_note(snapshot);
    spans_sort(snapshot);
    for (size_t i = 0; i < snapshot->objects.count && snapshot->error == 0; i++) {
        object_visit(snapshot, i);
    }
    for (size_t i = 1; i < snapshot->objects.count; i++) {
        umf_snapshot_object_t *object = umf_snapshot_object(snapshot, i);
        figures_end(&object->item, object->is_known);
    }
}
