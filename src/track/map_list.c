#include "track/map_list.h"

#include "base/meta.h"
#include "system/pause.h"

/*
 * The list of a page: `under` is the map entry of the span that covers the whole page, and the
 * entries are the spans (or ends of spans) inside of it. The innermost span is the shortest one
 * that contains the address.
 *
 * A page without entries has a plain map entry again. Its list, or a list that became too small, is
 * then recycled for other pages, while readers may still read it. A reader therefore checks
 * afterwards: its result is valid if the sequence number has not changed and the page still has
 * this list.
 */
#define LIST_CAPACITY_MIN 4u

/* A change is a few stores. A reader that sees one tries again this often before it yields to the
 * writer. */
#define LIST_RETRIES 64u

typedef struct map_entry_t {
    _Atomic uint32_t range; /* begin << 16 | end, end at most 4096 */
    _Atomic umf_map_entry_t map_entry;
} map_entry_t;

struct umf_map_list_t {
    _Atomic uint32_t seq; /* odd: being changed */
    uint32_t capacity;
    _Atomic uint32_t count;
    _Atomic umf_map_entry_t under;
    struct umf_map_list_t *next; /* the next unused list. Sync: the shard */
    map_entry_t entries[];
};

static size_t list_bytes(uint32_t capacity) {
    return sizeof(umf_map_list_t) + capacity * sizeof(map_entry_t);
}

static atomic_size_t map_used;

void *umf_map_alloc(size_t size) {
    void *ptr = umf_meta_alloc(size);
    atomic_fetch_add_explicit(&map_used, ptr ? size : 0, memory_order_relaxed);
    return ptr;
}

void umf_map_free(void *ptr, size_t size) {
    umf_meta_free(ptr, size);
    atomic_fetch_sub_explicit(&map_used, size, memory_order_relaxed);
}

size_t umf_map_used(void) {
    return atomic_load_explicit(&map_used, memory_order_relaxed);
}

void umf_map_list_free(umf_map_list_t *list) {
    umf_map_free(list, list_bytes(list->capacity));
}

static uint32_t entry_begin(uint32_t range) {
    return range >> 16;
}
static uint32_t entry_end(uint32_t range) {
    return range & 0xffff;
}

/* The map entry of the shortest span that covers [lo, hi) of the page. `whole` (may be NULL)
 * receives whether every entry that overlaps the range contains it. */
static umf_map_entry_t list_find(const umf_map_list_t *list, uint32_t lo, uint32_t hi,
                                 bool *whole) {
    umf_map_entry_t best = atomic_load_explicit(&list->under, memory_order_acquire);
    uint32_t best_length = UINT32_MAX;
    uint32_t count = atomic_load_explicit(&list->count, memory_order_acquire);
    bool contained = true;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t range = atomic_load_explicit(&list->entries[i].range, memory_order_acquire);
        uint32_t begin = entry_begin(range), end = entry_end(range);
        if (end <= lo || begin >= hi) {
            continue;
        }
        contained &= begin <= lo && end >= hi;
        /* Of two equal ranges the later one is nested in the earlier. */
        if (begin <= lo && end >= hi && end - begin <= best_length) {
            best = atomic_load_explicit(&list->entries[i].map_entry, memory_order_acquire);
            best_length = end - begin;
        }
    }
    if (whole) {
        *whole = contained;
    }
    return best;
}

bool umf_map_list_is_uniform(const umf_map_list_t *list, uint32_t lo, uint32_t hi,
                             umf_map_entry_t map_entry) {
    bool whole;
    return list_find(list, lo, hi, &whole) == map_entry && whole;
}

static void list_change_begin(umf_map_list_t *list) {
    uint32_t seq = atomic_load_explicit(&list->seq, memory_order_relaxed);
    atomic_store_explicit(&list->seq, seq + 1, memory_order_relaxed);
}

static void list_change_end(umf_map_list_t *list) {
    uint32_t seq = atomic_load_explicit(&list->seq, memory_order_relaxed);
    atomic_store_explicit(&list->seq, seq + 1, memory_order_release);
}

/* These are release stores: none of them may become visible before the sequence number is odd. */
static void entry_store(map_entry_t *entry, uint32_t range, umf_map_entry_t map_entry) {
    atomic_store_explicit(&entry->range, range, memory_order_release);
    atomic_store_explicit(&entry->map_entry, map_entry, memory_order_release);
}

void umf_map_list_insert(umf_map_list_t *list, uint32_t lo, uint32_t hi,
                         umf_map_entry_t map_entry) {
    uint32_t count = atomic_load_explicit(&list->count, memory_order_relaxed);
    list_change_begin(list);
    entry_store(&list->entries[count], lo << 16 | hi, map_entry);
    atomic_store_explicit(&list->count, count + 1, memory_order_release);
    list_change_end(list);
}

/* Replaces `map_entry` by `to`. Its entries are dropped or stay. */
static void list_replace(umf_map_list_t *list, uint32_t lo, uint32_t hi, umf_map_entry_t map_entry,
                         umf_map_entry_t to, bool drop_entries) {
    list_change_begin(list);
    if (lo == 0 && hi == UMF_MAP_PAGE &&
        atomic_load_explicit(&list->under, memory_order_relaxed) == map_entry) {
        atomic_store_explicit(&list->under, to, memory_order_release);
    }
    uint32_t count = atomic_load_explicit(&list->count, memory_order_relaxed), kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t range = atomic_load_explicit(&list->entries[i].range, memory_order_relaxed);
        umf_map_entry_t w = atomic_load_explicit(&list->entries[i].map_entry, memory_order_relaxed);
        if (w == map_entry && entry_begin(range) >= lo && entry_end(range) <= hi) {
            if (drop_entries) {
                continue;
            }
            w = to;
        }
        entry_store(&list->entries[kept++], range, w);
    }
    atomic_store_explicit(&list->count, kept, memory_order_release);
    list_change_end(list);
}

/* Merges parts of a span that became adjacent in the page: into one entry, or into `under` if they
 * cover the page. */
static void list_join(umf_map_list_t *list, umf_map_entry_t map_entry) {
    uint32_t begin = UMF_MAP_PAGE, end = 0, parts = 0, kept = 0, at = 0;
    uint32_t count = atomic_load_explicit(&list->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        if (atomic_load_explicit(&list->entries[i].map_entry, memory_order_relaxed) == map_entry) {
            uint32_t range = atomic_load_explicit(&list->entries[i].range, memory_order_relaxed);
            begin = entry_begin(range) < begin ? entry_begin(range) : begin;
            end = entry_end(range) > end ? entry_end(range) : end;
            parts++;
        }
    }
    if (parts < 2) {
        return;
    }
    list_change_begin(list);
    bool whole_page = begin == 0 && end == UMF_MAP_PAGE;
    if (whole_page) {
        atomic_store_explicit(&list->under, map_entry, memory_order_release);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t range = atomic_load_explicit(&list->entries[i].range, memory_order_relaxed);
        umf_map_entry_t w = atomic_load_explicit(&list->entries[i].map_entry, memory_order_relaxed);
        if (w != map_entry) {
            entry_store(&list->entries[kept++], range, w);
        } else if (at++ == 0 && !whole_page) {
            entry_store(&list->entries[kept++], begin << 16 | end, w);
        }
    }
    atomic_store_explicit(&list->count, kept, memory_order_release);
    list_change_end(list);
}

void umf_map_list_remove(umf_map_list_t *list, uint32_t lo, uint32_t hi, umf_map_entry_t map_entry,
                         umf_map_entry_t under) {
    list_replace(list, lo, hi, map_entry, under, true);
}

void umf_map_list_rename(umf_map_list_t *list, uint32_t lo, uint32_t hi, umf_map_entry_t map_entry,
                         umf_map_entry_t to) {
    list_replace(list, lo, hi, map_entry, to, false);
    list_join(list, to);
}

void umf_map_list_split(umf_map_list_t *list, uint32_t mid, umf_map_entry_t low,
                        umf_map_entry_t high, umf_map_entry_t under) {
    list_change_begin(list);
    uint32_t count = atomic_load_explicit(&list->count, memory_order_relaxed), all = count;
    if (atomic_load_explicit(&list->under, memory_order_relaxed) == low) {
        atomic_store_explicit(&list->under, under, memory_order_release);
        entry_store(&list->entries[all++], mid, low);
        entry_store(&list->entries[all++], mid << 16 | (uint32_t)UMF_MAP_PAGE, high);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t range = atomic_load_explicit(&list->entries[i].range, memory_order_relaxed);
        if (atomic_load_explicit(&list->entries[i].map_entry, memory_order_relaxed) != low ||
            entry_end(range) <= mid) {
            continue;
        }
        if (entry_begin(range) < mid) {
            entry_store(&list->entries[i], entry_begin(range) << 16 | mid, low);
            entry_store(&list->entries[all++], mid << 16 | entry_end(range), high);
        } else {
            entry_store(&list->entries[i], range, high);
        }
    }
    atomic_store_explicit(&list->count, all, memory_order_release);
    list_change_end(list);
}

/* The unused lists of a shard that have this capacity. */
static umf_map_list_t **lists_without_page(umf_map_shard_t *shard, uint32_t capacity) {
    return &shard->lists[__builtin_ctz(capacity / LIST_CAPACITY_MIN)];
}

static umf_map_list_t *list_get(umf_map_shard_t *shard, uint32_t capacity) {
    umf_map_list_t **lists = lists_without_page(shard, capacity), *list = *lists;
    if (list) {
        *lists = list->next;
    } else if ((list = umf_map_alloc(list_bytes(capacity)))) {
        list->capacity = capacity;
    }
    return list;
}

/* Recycles a list that no page uses any more. */
static void list_put(umf_map_shard_t *shard, umf_map_list_t *list) {
    umf_map_list_t **lists = lists_without_page(shard, list->capacity);
    list->next = *lists;
    *lists = list;
}

/* Fills the list with the content of `old`. If that is NULL, `w` covers the whole page. */
static void list_begin_with(umf_map_list_t *list, const umf_map_list_t *old, umf_map_entry_t w) {
    uint32_t count = old ? atomic_load_explicit(&old->count, memory_order_relaxed) : 0;
    list_change_begin(list);
    atomic_store_explicit(&list->under,
                          old ? atomic_load_explicit(&old->under, memory_order_relaxed) : w,
                          memory_order_release);
    for (uint32_t i = 0; i < count; i++) {
        entry_store(&list->entries[i],
                    atomic_load_explicit(&old->entries[i].range, memory_order_relaxed),
                    atomic_load_explicit(&old->entries[i].map_entry, memory_order_relaxed));
    }
    atomic_store_explicit(&list->count, count, memory_order_release);
    list_change_end(list);
}

umf_map_list_t *umf_map_list_make_room(umf_map_shard_t *shard, _Atomic umf_map_entry_t *slot,
                                       umf_map_entry_t w) {
    umf_map_list_t *old = w & 1 ? umf_map_list_of(w) : NULL;
    if (old && atomic_load_explicit(&old->count, memory_order_relaxed) + 2 <= old->capacity) {
        return old;
    }
    umf_map_list_t *list = list_get(shard, old ? 2 * old->capacity : LIST_CAPACITY_MIN);
    if (!list) {
        return NULL;
    }
    list_begin_with(list, old, w);
    umf_map_entry_t published = (umf_map_entry_t)(uintptr_t)list | UMF_MAP_ENTRY_LIST;
    bool is_done = atomic_compare_exchange_strong_explicit(
        slot, &w, published, memory_order_acq_rel, memory_order_relaxed);
    if (old || !is_done) {
        list_put(shard, is_done ? old : list);
    }
    return is_done ? list : NULL;
}

void umf_map_list_drop_if_empty(umf_map_shard_t *shard, _Atomic umf_map_entry_t *slot,
                                umf_map_list_t *list) {
    if (atomic_load_explicit(&list->count, memory_order_relaxed) == 0) {
        atomic_store_explicit(slot, atomic_load_explicit(&list->under, memory_order_relaxed),
                              memory_order_release);
        list_put(shard, list);
    }
}

void umf_map_list_free_unused(umf_map_shard_t *shard) {
    for (uint32_t i = 0; i < UMF_COUNT_OF(shard->lists); i++) {
        for (umf_map_list_t *list = shard->lists[i], *next; list; list = next) {
            next = list->next;
            umf_map_list_free(list);
        }
    }
}

/* The slot must be read before the sequence number. If the list leaves the page and comes back, the
 * slot is the same again, but the sequence number is not. */
umf_map_entry_t umf_map_list_find(const _Atomic umf_map_entry_t *slot, uintptr_t addr) {
    uint32_t offset = (uint32_t)(addr % UMF_MAP_PAGE);
    umf_map_entry_t w;
    for (unsigned round = 0; (w = umf_map_load(slot)) & 1; round++) {
        if (umf_unlikely(round >= LIST_RETRIES)) {
            umf_pause(round - LIST_RETRIES);
        }
        const umf_map_list_t *list = umf_map_list_of(w);
        uint32_t seq = atomic_load_explicit(&list->seq, memory_order_acquire);
        umf_map_entry_t found = list_find(list, offset, offset + 1, NULL);
        if (!(seq & 1) && umf_map_load(slot) == w &&
            atomic_load_explicit(&list->seq, memory_order_relaxed) == seq) {
            return found;
        }
    }
    return w;
}
