/* Pages of an arena: making, donating, and removing old mappings. */
#include <stdlib.h>

#include "base/log.h"
#include "base/meta.h"
#include "pools/coalescing/arena/arena.h"

/* From so many bytes in pages on, a new page is as large. Small pages fit anywhere; large ones are
 * fewer calls. */
#define SIZES 3u
static const struct {
    size_t from, units;
} page_sizes[SIZES] = {{0, 1}, {(size_t)10 << 30, 4}, {(size_t)20 << 30, 8}};

size_t umf_arena_page_size_locked(const umf_arena_t *arena, size_t most) {
    size_t size = arena->unit;
    for (size_t i = 0; i < SIZES; i++) {
        size_t larger = page_sizes[i].units * arena->unit;
        size = arena->held >= page_sizes[i].from && larger <= most ? larger : size;
    }
    return size;
}

static void push_spare_locked(umf_arena_t *arena, umf_arena_page_t *page) {
    page->home = 0;
    page->next = arena->spare;
    arena->spare = page;
    arena->spare_bytes += page->memory.size;
}

void umf_arena_enter_locked(umf_arena_t *arena, umf_arena_page_t *page, uintptr_t at) {
    page->home = at;
    page->generation = umf_tracked_page_generation();
    page->mappings++;
    page->next = NULL;
    for (size_t i = 0; i < page->memory.size; i += arena->unit) {
        umf_hash_put(&arena->slots, (at + i) / arena->unit, page);
    }
}

void umf_arena_remove_locked(umf_arena_t *arena, umf_arena_page_t *page) {
    for (size_t i = 0; i < page->memory.size; i += arena->unit) {
        umf_hash_remove(&arena->slots, (page->home + i) / arena->unit);
    }
    page->mappings--;
    page->home = 0;
}

umf_result_t umf_arena_page_make(umf_arena_t *arena, size_t size) {
    umf_arena_page_t *page = umf_meta_alloc(sizeof(*page));
    if (!page) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    page->memory.size = size;
    umf_result_t result = umf_tracked_page_create(arena->tracked, &page->memory);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(page, sizeof(*page));
        return result;
    }
    umf_lock(&arena->lock);
    push_spare_locked(arena, page);
    arena->held += size;
    arena->held_peak = arena->held_peak < arena->held ? arena->held : arena->held_peak;
    umf_unlock(&arena->lock);
    return result;
}

/* A page that the provider does not take back is lost. */
void umf_arena_page_unmake(umf_arena_t *arena, umf_arena_page_t *page) {
    size_t size = page->memory.size;
    if (umf_tracked_page_destroy(arena->tracked, &page->memory) != UMF_RESULT_SUCCESS) {
        UMF_LOG_WARN("a page of %zu bytes was not taken back by its provider", size);
    }
    umf_meta_free(page, sizeof(*page));
    umf_lock(&arena->lock);
    arena->held -= size;
    umf_unlock(&arena->lock);
}

/* --- free pages --- */

/* A free segment that holds whole pages. */
typedef struct donor_t {
    umf_segments_t *area;
    umf_segment_t *segment;
    bool is_idle;
} donor_t;

/* Those that no work uses first, of these the largest. */
static int compare_donors(const void *a, const void *b) {
    const donor_t *left = a, *right = b;
    if (left->is_idle != right->is_idle) {
        return left->is_idle ? -1 : 1;
    }
    size_t low = left->segment->size, high = right->segment->size;
    return low != high ? (low > high ? -1 : 1)
                       : (left->segment->base < right->segment->base ? 1 : -1);
}

static size_t list_donors_locked(umf_arena_t *arena, donor_t *donors,
                                 const umf_arena_request_t *request) {
    size_t count = 0;
    for (size_t i = 0; i < UMF_ARENA_AREAS; i++) {
        umf_segments_t *area = &arena->areas[i];
        for (umf_segment_t *at = umf_segments_largest(area); at && at->size >= arena->unit;
             at = umf_segments_below(area, at)) {
            if (!request || umf_arena_may_use_locked(arena, &at->uses, request)) {
                bool is_idle = umf_arena_is_idle_locked(arena, &at->uses);
                donors[count++] = (donor_t){area, at, is_idle};
            }
        }
    }
    qsort(donors, count, sizeof(*donors), compare_donors);
    return count;
}

/* How much is taken from free segments. */
typedef struct wanted_t {
    size_t bytes, most; /* at least, if there is as much; at most */
    size_t page;        /* bytes of a page, at least */
    bool is_doomed;     /* the pages are to be released, else they become spare */
} wanted_t;

/* The highest run of pages that lie wholly in the segment and may leave, below `*end`, which
 * becomes its beginning; no more pages than are wanted. Returns the bytes of the run. */
static size_t find_run(umf_arena_t *arena, const umf_segment_t *segment, uintptr_t *end,
                       const wanted_t *wanted) {
    uintptr_t low = umf_align_up(segment->base, arena->unit), top = 0, bottom = 0;
    uintptr_t at = umf_align_down(*end, arena->unit);
    while (at > low && (!top || top - bottom < wanted->bytes)) {
        const umf_arena_page_t *page = umf_arena_page_at(arena, at - arena->unit);
        bool is_whole = page->home >= low && page->home + page->memory.size == at;
        bool may_leave = !page->is_fixed && (wanted->is_doomed || !page->is_shared);
        may_leave = may_leave && page->memory.size >= wanted->page;
        if (is_whole && may_leave && page->memory.size <= wanted->most - (top - bottom)) {
            top = top ? top : at;
            bottom = page->home;
        } else if (top) {
            break;
        }
        at = page->home;
    }
    *end = bottom ? bottom : segment->base;
    return top - bottom;
}

static size_t stale_bytes(size_t count) {
    return sizeof(umf_arena_stale_t) + count * sizeof(umf_arena_page_t *);
}

/* The pages of a run leave their place: its segment is stale. They are spare, or doomed. */
static void leave_locked(umf_arena_t *arena, const donor_t *donor, umf_segment_t *run,
                         umf_arena_stale_t *stale, bool doomed) {
    uintptr_t end = umf_segment_end(run);
    umf_segment_set(donor->area, run, UMF_SEGMENT_STALE);
    stale->area = donor->area;
    stale->segment = run;
    stale->is_told = !umf_tracked_is_watched(arena->tracked); /* later callbacks never see it */
    for (uintptr_t at = run->base; at < end; at += arena->unit) {
        umf_arena_page_t *page = umf_hash_remove(&arena->slots, at / arena->unit);
        if (page->home == at) {
            stale->pages[stale->count++] = page;
            page->uses = run->uses;
            page->is_doomed = doomed;
            umf_tracked_page_event(arena->tracked, UMF_RECORD_PROVIDER_FREE, at, page->memory.size);
            if (!doomed) {
                push_spare_locked(arena, page);
            }
        }
    }
    *arena->stale_end = stale;
    arena->stale_end = &stale->next;
    arena->stale_bytes += run->size;
    umf_tracked_page_event(arena->tracked, doomed ? UMF_RECORD_PAGE_RETIRE : UMF_RECORD_PAGE_DONATE,
                           run->base, run->size);
}

/* Returns the bytes of pages. */
static size_t take_from_locked(umf_arena_t *arena, const donor_t *donor, wanted_t wanted) {
    umf_segment_t *segment = donor->segment;
    uintptr_t end = umf_segment_end(segment);
    size_t taken = 0;
    while (segment && wanted.bytes > 0) {
        size_t run = find_run(arena, segment, &end, &wanted);
        size_t units = run / arena->unit;
        umf_arena_stale_t *stale = run ? umf_meta_alloc(stale_bytes(units)) : NULL;
        if (!stale || !umf_segments_reserve(donor->area, 1)) {
            umf_meta_free(stale, stale_bytes(units));
            break;
        }
        stale->room = units;
        bool is_rest = end > segment->base;
        umf_segment_cut(donor->area, segment, end, run);
        umf_segment_t *below = is_rest ? segment->prev : NULL;
        leave_locked(arena, donor, segment, stale, wanted.is_doomed);
        taken += run;
        wanted.bytes -= run < wanted.bytes ? run : wanted.bytes;
        wanted.most -= run;
        segment = below;
    }
    return taken;
}

static size_t take_pages_locked(umf_arena_t *arena, wanted_t wanted,
                                const umf_arena_request_t *request) {
    size_t room =
        arena->areas[UMF_ARENA_LARGE].free_count + arena->areas[UMF_ARENA_LITTLE].free_count;
    size_t taken = 0;
    donor_t *donors = room && !arena->claimed ? umf_meta_alloc(room * sizeof(*donors)) : NULL;
    if (!donors) {
        return 0;
    }
    size_t count = list_donors_locked(arena, donors, request);
    for (size_t i = 0; i < count && wanted.bytes > 0; i++) {
        size_t run = take_from_locked(arena, &donors[i], wanted);
        taken += run;
        wanted.bytes -= run < wanted.bytes ? run : wanted.bytes;
        wanted.most -= run;
    }
    umf_meta_free(donors, room * sizeof(*donors));
    return taken;
}

/* Large pages first: drivers need as long for one as for a small one. */
static size_t take_locked(umf_arena_t *arena, size_t bytes, size_t most,
                          const umf_arena_request_t *request) {
    size_t taken = 0;
    for (size_t i = SIZES; i-- > 0 && taken < bytes;) {
        size_t page = page_sizes[i].units * arena->unit;
        if (i == 0 || (arena->held_peak >= page_sizes[i].from && page <= bytes - taken)) {
            const wanted_t wanted = {bytes - taken, most - taken, page, !request};
            taken += take_pages_locked(arena, wanted, request);
        }
    }
    return taken;
}

size_t umf_arena_donate_locked(umf_arena_t *arena, size_t bytes, size_t most,
                               const umf_arena_request_t *request) {
    if (arena->params.donate == UMF_COALESCING_DONATE_OFF) {
        return 0;
    }
    size_t taken = take_locked(arena, bytes, most, request);
    arena->donated += taken;
    return taken;
}

/* --- old mappings --- */

/* The oldest one, if its work has completed. */
static umf_arena_stale_t *pop_stale(umf_arena_t *arena, bool waits) {
    umf_lock(&arena->lock);
    umf_arena_stale_t *stale = arena->stale;
    if (stale && arena->params.donate == UMF_COALESCING_DONATE_TRIM && !stale->is_trimmed) {
        stale = NULL;
    }
    umf_uses_t uses = stale ? stale->segment->uses : (umf_uses_t){0};
    umf_unlock(&arena->lock);
    if (!stale) {
        return NULL;
    }
    umf_arena_look(arena, &uses, true, waits);
    umf_lock(&arena->lock);
    bool is_idle = umf_arena_is_idle_locked(arena, &uses);
    if (is_idle) {
        arena->stale = stale->next;
        arena->stale_end = stale->next ? arena->stale_end : &arena->stale;
    }
    umf_unlock(&arena->lock);
    return is_idle ? stale : NULL;
}

static void push_stale_locked(umf_arena_t *arena, umf_arena_stale_t *stale) {
    stale->next = NULL;
    *arena->stale_end = stale;
    arena->stale_end = &stale->next;
}

bool umf_arena_stale_add_locked(umf_arena_t *arena, umf_segments_t *area, umf_segment_t *segment,
                                umf_arena_page_t *page) {
    umf_arena_stale_t *stale = umf_meta_alloc(stale_bytes(1));
    if (stale) {
        *stale = (umf_arena_stale_t){.area = area,
                                     .segment = segment,
                                     .is_trimmed = true,
                                     .is_told = true,
                                     .room = 1,
                                     .count = 1};
        stale->pages[0] = page;
        page->mappings++;
        push_stale_locked(arena, stale);
    }
    return stale != NULL;
}

/* false: the provider keeps the mapping, and so it is kept here. */
static bool remove_mapping(umf_arena_t *arena, umf_arena_stale_t *stale) {
    umf_segment_t *segment = stale->segment;
    size_t size = segment->size;
    umf_arena_tell_stale(arena, stale);
    if (umf_tracked_page_unmap(arena->tracked, (void *)segment->base, size) != UMF_RESULT_SUCCESS) {
        umf_lock(&arena->lock);
        push_stale_locked(arena, stale);
        umf_unlock(&arena->lock);
        return false;
    }
    umf_tracked_page_event(arena->tracked, UMF_RECORD_PAGE_UNMAP, segment->base, size);
    umf_lock(&arena->lock);
    arena->stale_bytes -= size;
    segment->uses = (umf_uses_t){0};
    umf_segment_set(stale->area, segment, UMF_SEGMENT_NONE);
    umf_segment_join(stale->area, segment);
    umf_unlock(&arena->lock);
    for (size_t i = 0; i < stale->count; i++) {
        umf_arena_page_t *page = stale->pages[i];
        if (--page->mappings == 0 && page->is_doomed) {
            umf_arena_page_unmake(arena, page);
        }
    }
    umf_meta_free(stale, stale_bytes(stale->room));
    return true;
}

bool umf_arena_settle_one(umf_arena_t *arena, bool waits) {
    umf_arena_stale_t *stale = pop_stale(arena, waits);
    return stale && remove_mapping(arena, stale);
}

void umf_arena_settle(umf_arena_t *arena, bool waits) {
    while (umf_arena_settle_one(arena, waits)) {
    }
}

static umf_arena_page_t *pop_spare(umf_arena_t *arena) {
    umf_lock(&arena->lock);
    umf_arena_page_t *page = arena->spare;
    if (page) {
        arena->spare = page->next;
        arena->spare_bytes -= page->memory.size;
    }
    umf_unlock(&arena->lock);
    return page;
}

static void note_trim_locked(umf_arena_t *arena) {
    for (umf_arena_stale_t *at = arena->stale; at; at = at->next) {
        at->is_trimmed = true;
    }
}

void umf_arena_release(umf_arena_t *arena, size_t keep) {
    umf_lock(&arena->lock);
    size_t free_bytes = arena->held - arena->live;
    size_t surplus = free_bytes > keep ? free_bytes - keep : 0;
    umf_unlock(&arena->lock);
    for (umf_arena_page_t *page; surplus && (page = pop_spare(arena));) {
        surplus -= surplus < page->memory.size ? surplus : page->memory.size;
        page->is_doomed = true;
        if (page->mappings == 0) {
            umf_arena_page_unmake(arena, page);
        }
    }
    umf_lock(&arena->lock);
    /* The last page is not released if that would leave less than is to be kept. */
    if (surplus >= arena->unit) {
        take_locked(arena, surplus - (arena->unit - 1), surplus, NULL);
    }
    note_trim_locked(arena);
    umf_unlock(&arena->lock);
    umf_arena_settle(arena, false);
}

/* Without memory, in a suspend, the piece gets a fixed page on resume. */
static void fix_piece_locked(umf_arena_t *arena, uintptr_t at) {
    umf_arena_piece_t *piece = arena->claimed ? umf_arena_piece_locked(arena, at) : NULL;
    if (piece && piece->is_claimed) {
        piece->is_fixed = true;
        piece->blocks = 1; /* it stays when its blocks are freed */
    }
}

void umf_arena_fix_locked(umf_arena_t *arena, uintptr_t base, size_t size) {
    for (uintptr_t at = umf_align_down(base, arena->unit); at < base + size; at += arena->unit) {
        umf_arena_page_t *page = umf_arena_page_at(arena, at);
        if (page) {
            page->is_fixed = true;
        }
        fix_piece_locked(arena, at);
    }
}

void umf_arena_share_locked(umf_arena_t *arena, uintptr_t base, size_t size) {
    for (uintptr_t at = umf_align_down(base, arena->unit); at < base + size; at += arena->unit) {
        umf_arena_page_t *page = umf_arena_page_at(arena, at);
        if (page) {
            page->is_shared = true;
        }
    }
}

/* --- the end --- */

static void list_page(uint64_t slot, void *value, void *arg) {
    umf_arena_page_t *page = value, **list = arg;
    (void)slot;
    if (!page->is_fixed) { /* once for each page, whatever number of slots it has */
        page->is_fixed = true;
        page->next = *list;
        *list = page;
    }
}

static void note_unfixed(uint64_t slot, void *value, void *arg) {
    (void)slot, (void)arg;
    ((umf_arena_page_t *)value)->is_fixed = false;
}

/* Released, unless it is mapped still: then it stays with the process. */
static void page_end(umf_arena_t *arena, umf_arena_page_t *page) {
    if (page->mappings == 0) {
        umf_arena_page_unmake(arena, page);
        return;
    }
    umf_tracked_page_forget(arena->tracked, page->memory.size);
    umf_meta_free(page, sizeof(*page));
}

/* Old mappings that could not be removed. Their doomed pages are nowhere else. */
static umf_arena_page_t *list_stale(umf_arena_t *arena, umf_arena_page_t *list) {
    for (umf_arena_stale_t *next, *stale = arena->stale; stale; stale = next) {
        next = stale->next;
        for (size_t i = 0; i < stale->count; i++) {
            umf_arena_page_t *page = stale->pages[i];
            if (page->is_doomed && !page->is_fixed) {
                page->is_fixed = true; /* once */
                page->next = list;
                list = page;
            }
        }
        umf_meta_free(stale, stale_bytes(stale->room));
    }
    arena->stale = NULL;
    arena->stale_end = &arena->stale;
    return list;
}

umf_result_t umf_arena_unmap_all(umf_arena_t *arena) {
    umf_arena_page_t *list = NULL, *doomed;
    size_t tries = 0;
    umf_lock(&arena->lock);
    note_trim_locked(arena);
    for (const umf_arena_stale_t *at = arena->stale; at; at = at->next) {
        tries++;
    }
    umf_unlock(&arena->lock);
    for (; tries > 0; tries--) { /* one that cannot be removed is behind the others then */
        umf_arena_settle_one(arena, true);
    }
    bool stays_mapped = arena->is_lossy || arena->stale;
    umf_hash_each(&arena->slots, note_unfixed, NULL);
    umf_hash_each(&arena->slots, list_page, &list);
    doomed = list_stale(arena, NULL);
    umf_result_t result = stays_mapped ? UMF_RESULT_ERROR_UNKNOWN : UMF_RESULT_SUCCESS;
    for (umf_arena_page_t *next; list; list = next) {
        next = list->next;
        umf_result_t unmapped =
            umf_tracked_page_unmap(arena->tracked, (void *)list->home, list->memory.size);
        list->mappings -= unmapped == UMF_RESULT_SUCCESS;
        result = result ? result : unmapped;
        umf_tracked_page_event(arena->tracked, UMF_RECORD_PROVIDER_FREE, list->home,
                               list->memory.size);
        page_end(arena, list);
    }
    for (umf_arena_page_t *next; doomed; doomed = next) {
        next = doomed->next;
        page_end(arena, doomed);
    }
    for (umf_arena_page_t *page; (page = pop_spare(arena));) {
        page_end(arena, page);
    }
    return result;
}
