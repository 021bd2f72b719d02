#include "track/span.h"

#include <sys/mman.h>

#include "base/log.h"
#include "system/annotate.h"
#include "system/os.h"
#include "system/pause.h"
#include "track/page.h"

/* A multiple of every page size. */
#define SPANS_PER_STEP 8192u

umf_span_t *umf_span_table;
uint32_t umf_span_made;

/* The common list of unused descriptors. */
static struct {
    _Alignas(UMF_CACHE_ISOLATION) umf_lock_t lock;
    umf_span_t *first; /* Sync: lock */
    uint32_t usable;   /* Sync: lock */
    uint32_t reserved; /* Immutable after init */
} spare;

static struct { _Alignas(UMF_CACHE_ISOLATION) _Atomic uint64_t steps; } ids;

uint64_t umf_span_largest_id(void) {
    uint64_t step = atomic_fetch_add_explicit(&ids.steps, 1, memory_order_relaxed);
    umf_thread_slot_tls.next_id = step * UMF_SPAN_IDS + 2;
    return step * UMF_SPAN_IDS + 1;
}

/* Reserves addresses for `count` descriptors. false: they and `spare_bytes` more, which stay free
 * for the program, are not available. */
static bool table_reserve(uint32_t count, size_t spare_bytes) {
    size_t size = count * sizeof(umf_span_t);
    void *table = NULL;
    if (umf_os_map(&table, size + spare_bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != 0) {
        return false;
    }
    if (spare_bytes) {
        umf_os_unmap((char *)table + size, spare_bytes);
    }
    umf_span_table = table;
    spare.reserved = count;
    return true;
}

#define SPANS_MOST (1u << UMF_MAP_ENTRY_SPAN_BITS)

/* If addresses are limited (ulimit -v), there is one descriptor for each page of 4 KiB that can
 * exist: they take up to 1/32 of the addresses. */
static uint32_t count_requested(void) {
    size_t pages = umf_os_address_limit() / 4096;
    uint32_t count = SPANS_PER_STEP;
    while (count < SPANS_MOST && count < pages) {
        count *= 2;
    }
    return count;
}

/* The table takes at most a quarter of the addresses that are left. */
void umf_span_global_init(void) {
    umf_lock_init(&spare.lock, UMF_RANK_SPANS);
    uint32_t count = count_requested();
    bool is_done = count == SPANS_MOST && table_reserve(count, 0);
    for (; !is_done && count >= SPANS_PER_STEP; count /= 4) {
        is_done = table_reserve(count, 3 * count * sizeof(umf_span_t));
    }
}

/* --- descriptors --- */

static bool descriptors_grow_locked(void) {
    umf_assert_locked(&spare.lock);
    if (spare.usable >= spare.reserved ||
        umf_os_protect(umf_span_at(spare.usable), SPANS_PER_STEP * sizeof(umf_span_t),
                       PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    spare.usable += SPANS_PER_STEP;
    return true;
}

/* Index 0 is never used. */
static umf_span_t *descriptor_make_locked(void) {
    if (umf_span_made + 1 >= spare.usable && !descriptors_grow_locked()) {
        return NULL;
    }
    __atomic_store_n(&umf_span_made, umf_span_made + 1, __ATOMIC_RELAXED);
    return umf_span_at(umf_span_made);
}

bool umf_span_is_one(const void *ptr) {
    uintptr_t at = (uintptr_t)ptr - (uintptr_t)umf_span_table;
    return at % sizeof(umf_span_t) == 0 && at != 0 &&
           at / sizeof(umf_span_t) <= __atomic_load_n(&umf_span_made, __ATOMIC_RELAXED);
}

uint32_t umf_span_highest(void) {
    return __atomic_load_n(&umf_span_made, __ATOMIC_RELAXED);
}

/* A thread that reuses the descriptor may write meanwhile. Values read then are dropped: `kind` is
 * 0 while the members change, and the id is new. */
UMF_WITHOUT_TSAN static void span_read(const umf_span_t *descriptor, umf_span_seen_t *seen) {
    const volatile umf_span_t *span = descriptor;
    seen->base = span->base;
    seen->size = span->size;
    seen->set = span->set;
    seen->id = span->id;
}

UMF_WITHOUT_TSAN static bool span_has_id(const umf_span_t *descriptor, uint64_t id) {
    return ((const volatile umf_span_t *)descriptor)->id == id;
}

void umf_span_see(uint32_t index, umf_span_seen_t *seen) {
    const umf_span_t *span = umf_span_at(index);
    seen->kind = umf_span_kind(span);
    if (seen->kind) {
        span_read(span, seen);
        seen->is_exported = atomic_load_explicit(&span->exported, memory_order_relaxed) != NULL;
        atomic_thread_fence(memory_order_acquire);
        if (umf_span_kind(span) != seen->kind || !span_has_id(span, seen->id)) {
            seen->kind = 0;
        }
    }
}

umf_span_t *umf_span_take_slow(void) {
    umf_lock(&spare.lock);
    umf_span_t *span = spare.first;
    if (span) {
        spare.first = span->spare;
    } else {
        span = descriptor_make_locked();
    }
    umf_unlock(&spare.lock);
    return span;
}

void umf_span_release_slow(umf_span_t *span) {
    umf_lock(&spare.lock);
    span->spare = spare.first;
    spare.first = span;
    umf_unlock(&spare.lock);
}

/* --- spans of one owner --- */

void umf_span_set_init(umf_span_set_t *set, umf_map_t *map, uint32_t pool) {
    *set = (umf_span_set_t){.map = map, .pool = pool};
    umf_lock_init(&set->lock, UMF_RANK_VIEW);
}

void umf_span_each(umf_span_set_t *set, bool (*visit)(umf_span_t *span, void *arg), void *arg) {
    bool goes_on = true;
    umf_lock(&set->lock);
    for (uint32_t index = set->first; index && goes_on;) {
        umf_span_t *span = umf_span_at(index);
        index = span->next;
        goes_on = !umf_span_kind(span) || visit(span, arg);
    }
    umf_unlock(&set->lock);
}

void umf_span_set_fini(umf_span_set_t *set) {
    while (set->spare) {
        umf_span_t *span = set->spare;
        set->spare = span->spare;
        umf_span_release_slow(span);
    }
    umf_lock_destroy(&set->lock);
}

void umf_span_set_drain(umf_span_set_t *set, void (*drop)(umf_span_t *span, void *arg), void *arg) {
    for (uint32_t index = set->first, next; index; index = next) {
        umf_span_t *span = umf_span_at(index);
        next = span->next;
        if (umf_span_kind(span) == UMF_SPAN_DORMANT) {
            umf_span_end_dormancy(span);
        } else if (umf_span_withdraw(set, span, span->base) != UMF_RESULT_SUCCESS) {
            continue; /* in a child of fork: the thread that was freeing it does not exist here */
        } else {
            drop(span, arg);
        }
        umf_span_release(set, span);
    }
}

/* --- map --- */

/* An allocation of size 0 occupies one byte of the map, so that its pointer is known. */
static size_t extent_of(size_t size) {
    return size ? size : 1;
}

/* The span around `span`. NULL: there is none. It may also have been freed too early and its
 * descriptor reused since. */
static const umf_span_t *outer_of(const umf_span_t *span) {
    const umf_span_t *outer = umf_span_at(span->outer);
    bool alive = span->outer && umf_span_is_live(outer) && outer->id < span->id &&
                 outer->base <= span->base && span->base + span->size <= outer->base + outer->size;
    return alive ? outer : NULL;
}

/* The map entry for the addresses of `span` when it is gone. */
static umf_map_entry_t entry_below(const umf_span_t *span) {
    const umf_span_t *outer = outer_of(span);
    return outer ? umf_span_map_entry(outer->set, outer) : 0;
}

/* Is one of `outer` and the spans around it of this source? */
static bool is_inside_of(const umf_span_t *outer, const void *source) {
    while (source && outer && outer->set->source != source) {
        outer = outer_of(outer);
    }
    return source && outer;
}

typedef struct overlap_t {
    uintptr_t base;
    size_t size;
    bool is_any;
} overlap_t;

static bool note_overlap(umf_span_t *span, void *arg) {
    overlap_t *overlap = arg;
    overlap->is_any = span->base - overlap->base < overlap->size ||
                      overlap->base - span->base < extent_of(span->size);
    return !overlap->is_any;
}

bool umf_span_is_given(umf_span_set_t *set, uintptr_t base, size_t size) {
    overlap_t overlap = {.base = base, .size = extent_of(size)};
    umf_span_each(set, note_overlap, &overlap);
    umf_lock(&set->map->nest_lock);
    bool is_given =
        overlap.is_any || is_inside_of(umf_span_find(set->map, base, NULL), set->source) ||
        is_inside_of(umf_span_find(set->map, base + overlap.size - 1, NULL), set->source);
    umf_unlock(&set->map->nest_lock);
    return is_given;
}

/* Places the span inside of the one whose entry is `under`; 0: there is none. */
static umf_result_t span_nest(umf_span_t *span, umf_map_entry_t under) {
    span->outer = 0;
    span->depth = 1;
    if (!under) {
        return UMF_RESULT_SUCCESS;
    }
    const umf_span_t *outer = umf_span_at(umf_map_entry_span(under));
    if (span->base + extent_of(span->size) > outer->base + extent_of(outer->size)) {
        UMF_LOG_ERROR(
            "provider memory %p of %zu bytes begins inside the tracked allocation %p of %zu "
            "bytes and ends outside",
            (void *)span->base, span->size, (void *)outer->base, outer->size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (is_inside_of(outer, span->set->source)) {
        UMF_LOG_ERROR("provider memory %p of %zu bytes lies in memory that the same provider gave "
                      "before, and that was not freed: %p of %zu bytes",
                      (void *)span->base, span->size, (void *)outer->base, outer->size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (outer->depth >= UMF_TRACK_MAX_DEPTH) {
        UMF_LOG_ERROR("provider memory %p is nested deeper than %d levels", (void *)span->base,
                      UMF_TRACK_MAX_DEPTH);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    span->outer = umf_span_index(outer);
    span->depth = (uint8_t)(outer->depth + 1);
    if (span->id < outer->id) {
        /* Threads take ids in advance, so the id of an inner span may be smaller. */
        span->id = umf_span_largest_id();
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t span_publish(umf_span_set_t *set, umf_span_t *span, umf_span_kind_t kind) {
    uintptr_t base = span->base;
    if (!umf_span_fits(base, span->size)) {
        UMF_LOG_ERROR("provider memory %p of %zu bytes does not fit into the address space",
                      (void *)base, span->size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_map_entry_t under = umf_map_find(set->map, base);
    bool may_nest = under != 0;
    if (may_nest) {
        umf_lock(&set->map->nest_lock); /* the outer span may be split or merged */
        under = umf_map_find(set->map, base);
    }
    umf_result_t result = span_nest(span, under);
    if (result == UMF_RESULT_SUCCESS) {
        /* Before the map leads to it: a reader must never find a span that is not in use. */
        atomic_store_explicit(&span->kind, (uint8_t)kind, memory_order_release);
        result = umf_map_insert(set->map, base, extent_of(span->size), under,
                                umf_span_map_entry(set, span));
        if (umf_map_entry_class_offset(under) == UMF_MAP_ENTRY_PAGED) {
            umf_page_conceal(base, extent_of(span->size));
        }
    }
    if (result != UMF_RESULT_SUCCESS) {
        atomic_store_explicit(&span->kind, 0, memory_order_relaxed);
    }
    if (may_nest) {
        umf_unlock(&set->map->nest_lock);
    }
    return result;
}

/* The span is on the set's list already. It is taken off on failure. */
umf_result_t umf_span_publish_slow(umf_span_set_t *set, umf_span_t *span, umf_span_kind_t kind) {
    umf_result_t result = span_publish(set, span, kind);
    if (result != UMF_RESULT_SUCCESS) {
        umf_span_release(set, span);
    }
    return result;
}

static void span_erase(umf_span_set_t *set, const umf_span_t *span) {
    umf_map_remove(set->map, span->base, extent_of(span->size), umf_span_map_entry(set, span),
                   entry_below(span));
}

void umf_span_erase_slow(umf_span_set_t *set, umf_span_t *span) {
    if (!span->outer) {
        span_erase(set, span);
        return;
    }
    /* The outer span may be split or merged, or get another entry. */
    umf_lock(&set->map->nest_lock);
    span_erase(set, span);
    umf_unlock(&set->map->nest_lock);
}

void umf_span_drop_class_offset(umf_span_t *span) {
    umf_map_t *map = span->set->map;
    umf_map_entry_t entry = umf_span_map_entry(span->set, span);
    if (span->class_offset == 0) {
        return;
    }
    umf_lock(&map->nest_lock);
    span->class_offset = 0;
    umf_map_rename(map, span->base, span->size, entry, umf_span_map_entry(span->set, span));
    umf_page_conceal(span->base, span->size);
    umf_unlock(&map->nest_lock);
}

umf_result_t umf_span_restore(umf_span_set_t *set, umf_span_t *span) {
    return umf_span_publish_slow(set, span, UMF_SPAN_POOL);
}

bool umf_span_wake_slow(umf_span_set_t *set, umf_span_t *span) {
    bool is_done = span_publish(set, span, UMF_SPAN_POOL) == UMF_RESULT_SUCCESS;
    if (!is_done) {
        atomic_store_explicit(&span->kind, UMF_SPAN_DORMANT, memory_order_release);
    }
    return is_done;
}

/* --- uses --- */

void umf_span_wait_unused(const umf_span_t *span) {
    umf_use_wait(umf_span_index(span));
}

/* How often a span that is being withdrawn is looked up again. In the child of a fork it may stay
 * so for ever. */
#define USE_ROUNDS 100u

static bool leads_to(const umf_map_t *map, uintptr_t addr, uint32_t index) {
    umf_map_entry_t entry = umf_map_find(map, addr);
    return umf_likely(entry != 0) && umf_likely(umf_map_entry_span(entry) == index);
}

umf_span_t *umf_span_use(const umf_map_t *map, uintptr_t addr) {
    umf_map_entry_t entry;
    for (unsigned round = 0; (entry = umf_map_find(map, addr)) != 0; round++) {
        uint32_t index = umf_map_entry_span(entry);
        umf_span_t *span = umf_span_at(index);
        umf_use_begin(index);
        uint8_t kind = atomic_load(&span->kind); /* seq_cst: see umf_use_begin */
        if (umf_likely(kind == UMF_SPAN_POOL || kind == UMF_SPAN_IMPORT) &&
            umf_likely(leads_to(map, addr, index))) {
            return span;
        }
        umf_use_end(index);
        if (round == USE_ROUNDS) {
            return NULL;
        }
        umf_pause(round);
    }
    return NULL;
}

/* --- split and merge --- */

/* Makes `high` the part of `span` from `first` on. It is not published yet. */
static void span_copy_high(const umf_span_t *span, size_t first, umf_span_t *high) {
    __atomic_store_n(&high->base, span->base + first, __ATOMIC_RELAXED);
    high->size = span->size - first;
    __atomic_store_n(&high->set, span->set, __ATOMIC_RELAXED);
    high->cookie = span->cookie;
    high->class_offset = span->class_offset;
    high->outer = span->outer;
    high->depth = span->depth;
    high->id = span->outer ? umf_span_largest_id() : umf_span_new_id();
    atomic_store_explicit(&high->exported, NULL, memory_order_relaxed);
}

umf_result_t umf_span_split(umf_span_set_t *set, umf_span_t *span, size_t first) {
    umf_lock(&set->lock);
    umf_span_t *high = umf_span_take_locked(set);
    umf_unlock(&set->lock);
    if (!high) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    uintptr_t base = span->base;
    size_t total = span->size;
    umf_lock(&set->map->nest_lock);
    umf_map_entry_t entry = umf_span_map_entry(set, span);
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    if (umf_span_is_live(span) && span->base == base && span->size == total && first > 0 &&
        first < total && umf_map_is_uniform(set->map, base, total, entry)) {
        span_copy_high(span, first, high);
        result = umf_map_split(set->map, base, total, first, entry, umf_span_map_entry(set, high),
                               entry_below(span));
        if (result == UMF_RESULT_SUCCESS) {
            atomic_store_explicit(&high->kind, UMF_SPAN_POOL, memory_order_release);
            __atomic_store_n(&span->size, first, __ATOMIC_RELAXED);
        }
    }
    umf_unlock(&set->map->nest_lock);
    if (result == UMF_RESULT_SUCCESS) {
        umf_use_wait(umf_span_index(span)); /* a copy may use the high part as one of `span` */
    }
    umf_lock(&set->lock);
    if (result == UMF_RESULT_SUCCESS) {
        umf_span_link_locked(set, high);
    } else {
        umf_span_put_locked(set, high);
    }
    umf_unlock(&set->lock);
    return result;
}

umf_result_t umf_span_merge(umf_span_set_t *set, umf_span_t *low, umf_span_t *high) {
    uintptr_t base = low->base;
    size_t total;
    if (!umf_add(low->size, high->size, &total) || base + low->size != high->base) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_lock(&set->map->nest_lock);
    umf_map_entry_t high_word = umf_span_map_entry(set, high);
    bool ok = umf_span_is_live(low) && low->set == set && low->depth == high->depth &&
              low->outer == high->outer && low->size + high->size == total &&
              umf_map_is_uniform(set->map, base, low->size, umf_span_map_entry(set, low)) &&
              umf_map_is_uniform(set->map, high->base, high->size, high_word) &&
              umf_span_claim(set, high, base + low->size);
    if (ok) {
        umf_map_rename(set->map, high->base, high->size, high_word, umf_span_map_entry(set, low));
        __atomic_store_n(&low->size, total, __ATOMIC_RELAXED);
    }
    umf_unlock(&set->map->nest_lock);
    if (!ok) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_use_wait(umf_span_index(high));
    umf_span_release(set, high);
    return UMF_RESULT_SUCCESS;
}
