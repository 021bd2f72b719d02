#include "pools/coalescing/arena/segments.h"

#include "base/meta.h"

/* --- the tree: a treap, whose priorities are random --- */

static bool is_before(const umf_segment_t *a, const umf_segment_t *b) {
    return a->size != b->size ? a->size < b->size : a->base < b->base;
}

static void tree_split(umf_segment_t *tree, const umf_segment_t *at, umf_segment_t **low,
                       umf_segment_t **high) {
    while (tree) {
        if (is_before(tree, at)) {
            *low = tree;
            low = &tree->right;
            tree = tree->right;
        } else {
            *high = tree;
            high = &tree->left;
            tree = tree->left;
        }
    }
    *low = *high = NULL;
}

static void tree_insert(umf_segments_t *segments, umf_segment_t *item) {
    umf_segment_t **link = &segments->tree;
    while (*link && (*link)->priority >= item->priority) {
        link = is_before(item, *link) ? &(*link)->left : &(*link)->right;
    }
    tree_split(*link, item, &item->left, &item->right);
    *link = item;
    segments->free_count++;
}

static void tree_remove(umf_segments_t *segments, umf_segment_t *item) {
    umf_segment_t **link = &segments->tree;
    while (*link != item) {
        link = is_before(item, *link) ? &(*link)->left : &(*link)->right;
    }
    umf_segment_t *low = item->left, *high = item->right;
    while (low && high) {
        if (low->priority >= high->priority) {
            *link = low;
            link = &low->right;
            low = low->right;
        } else {
            *link = high;
            link = &high->left;
            high = high->left;
        }
    }
    *link = low ? low : high;
    segments->free_count--;
}

umf_segment_t *umf_segments_fit(const umf_segments_t *segments, size_t size) {
    umf_segment_t *found = NULL;
    for (umf_segment_t *at = segments->tree; at;) {
        bool fits = at->size >= size;
        found = fits ? at : found;
        at = fits ? at->left : at->right;
    }
    return found;
}

umf_segment_t *umf_segments_above(const umf_segments_t *segments, const umf_segment_t *segment) {
    umf_segment_t *found = NULL;
    for (umf_segment_t *at = segments->tree; at;) {
        bool is_above = is_before(segment, at);
        found = is_above ? at : found;
        at = is_above ? at->left : at->right;
    }
    return found;
}

umf_segment_t *umf_segments_below(const umf_segments_t *segments, const umf_segment_t *segment) {
    umf_segment_t *found = NULL;
    for (umf_segment_t *at = segments->tree; at;) {
        bool is_below = is_before(at, segment);
        found = is_below ? at : found;
        at = is_below ? at->right : at->left;
    }
    return found;
}

umf_segment_t *umf_segments_largest(const umf_segments_t *segments) {
    umf_segment_t *at = segments->tree;
    while (at && at->right) {
        at = at->right;
    }
    return at;
}

/* --- objects --- */

bool umf_segments_reserve(umf_segments_t *segments, size_t cuts) {
    while (segments->spare_count < 2 * cuts + segments->promised) {
        umf_segment_t *made = umf_meta_alloc(sizeof(*made));
        if (!made) {
            return false;
        }
        made->next = segments->spare;
        segments->spare = made;
        segments->spare_count++;
    }
    return true;
}

static umf_segment_t *take_spare(umf_segments_t *segments) {
    umf_segment_t *made = segments->spare;
    segments->spare = made->next;
    segments->spare_count--;
    segments->seed = segments->seed * 1664525u + 1013904223u;
    made->priority = segments->seed >> 8;
    return made;
}

/* Some spare ones stay for the next cuts. */
#define SPARE_MAX 64u

static void drop(umf_segments_t *segments, umf_segment_t *segment) {
    if (segments->spare_count >= SPARE_MAX) {
        umf_meta_free(segment, sizeof(*segment));
        return;
    }
    segment->next = segments->spare;
    segments->spare = segment;
    segments->spare_count++;
}

bool umf_segments_init(umf_segments_t *segments, uintptr_t base, size_t size) {
    *segments = (umf_segments_t){.seed = 1};
    if (!umf_segments_reserve(segments, 1)) {
        return false;
    }
    umf_segment_t *whole = take_spare(segments);
    whole->base = base;
    whole->size = size;
    whole->kind = UMF_SEGMENT_NONE;
    whole->export_id = 0;
    whole->is_last = false;
    whole->prev = whole->next = NULL;
    segments->first = segments->last = whole;
    return true;
}

static void free_all(umf_segment_t *first) {
    for (umf_segment_t *next; first; first = next) {
        next = first->next;
        umf_meta_free(first, sizeof(*first));
    }
}

void umf_segments_fini(umf_segments_t *segments) {
    free_all(segments->first);
    free_all(segments->spare);
    *segments = (umf_segments_t){0};
}

/* --- the order of addresses --- */

static void link_after(umf_segments_t *segments, umf_segment_t *at, umf_segment_t *item) {
    item->prev = at;
    item->next = at->next;
    *(at->next ? &at->next->prev : &segments->last) = item;
    at->next = item;
}

static void link_before(umf_segments_t *segments, umf_segment_t *at, umf_segment_t *item) {
    item->next = at;
    item->prev = at->prev;
    *(at->prev ? &at->prev->next : &segments->first) = item;
    at->prev = item;
}

static void unlink_next(umf_segments_t *segments, umf_segment_t *at) {
    umf_segment_t *gone = at->next;
    at->next = gone->next;
    *(gone->next ? &gone->next->prev : &segments->last) = at;
    drop(segments, gone);
}

/* A new segment like another one, for a part of its addresses. */
static umf_segment_t *part_of(umf_segments_t *segments, const umf_segment_t *whole, uintptr_t base,
                              size_t size) {
    umf_segment_t *part = take_spare(segments);
    part->base = base;
    part->size = size;
    part->uses = whole->uses;
    part->kind = whole->kind;
    part->was = whole->was;
    part->export_id = 0;
    part->is_last = false;
    return part;
}

static void enter(umf_segments_t *segments, umf_segment_t *segment) {
    if (segment->kind == UMF_SEGMENT_FREE) {
        tree_insert(segments, segment);
    }
}

static void leave(umf_segments_t *segments, umf_segment_t *segment) {
    if (segment->kind == UMF_SEGMENT_FREE) {
        tree_remove(segments, segment);
    }
}

void umf_segment_cut(umf_segments_t *segments, umf_segment_t *segment, uintptr_t base,
                     size_t size) {
    uintptr_t begin = segment->base, end = umf_segment_end(segment);
    if (begin == base && segment->size == size) {
        return;
    }
    leave(segments, segment);
    if (begin < base) {
        umf_segment_t *low = part_of(segments, segment, begin, base - begin);
        link_before(segments, segment, low);
        enter(segments, low);
    }
    if (base + size < end) {
        umf_segment_t *high = part_of(segments, segment, base + size, end - base - size);
        link_after(segments, segment, high);
        enter(segments, high);
    }
    segment->base = base;
    segment->size = size;
    enter(segments, segment);
}

void umf_segment_set(umf_segments_t *segments, umf_segment_t *segment, umf_segment_kind_t kind) {
    leave(segments, segment);
    segment->kind = (uint8_t)kind;
    enter(segments, segment);
}

static bool can_join(const umf_segment_t *low, const umf_segment_t *high) {
    return low && high && low->kind == high->kind &&
           (low->kind == UMF_SEGMENT_FREE || low->kind == UMF_SEGMENT_NONE);
}

static void join_next(umf_segments_t *segments, umf_segment_t *segment) {
    leave(segments, segment);
    leave(segments, segment->next);
    segment->size += segment->next->size;
    umf_uses_merge(&segment->uses, &segment->next->uses);
    unlink_next(segments, segment);
    enter(segments, segment);
}

umf_segment_t *umf_segment_join(umf_segments_t *segments, umf_segment_t *segment) {
    if (can_join(segment, segment->next)) {
        join_next(segments, segment);
    }
    if (can_join(segment->prev, segment)) {
        segment = segment->prev;
        join_next(segments, segment);
    }
    return segment;
}

void umf_segment_absorb(umf_segments_t *segments, umf_segment_t *segment) {
    segment->size += segment->next->size;
    umf_uses_merge(&segment->uses, &segment->next->uses);
    unlink_next(segments, segment);
}
