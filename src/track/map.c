/* Lookups and changes of the map. */
#include "system/annotate.h"
#include "track/map_own.h"

#define PAGE UMF_MAP_PAGE

/* --- reading --- */

umf_map_entry_t umf_map_find_slow(const umf_map_t *map, uintptr_t addr) {
    if (umf_unlikely(addr >> 48)) {
        map = umf_map_high(map, addr);
        addr = UMF_MAP_LOW_BITS(addr);
        if (!map) {
            return UMF_MAP_ENTRY_EMPTY;
        }
    }
    const _Atomic umf_map_entry_t *slot = &map->root[addr >> umf_map_shift[0]];
    for (int level = 1; level < UMF_MAP_LEVELS; level++) {
        umf_map_entry_t w = umf_map_load(slot);
        if (!(w & 1)) {
            return w;
        }
        slot = umf_map_slot_of(w, level, addr);
    }
    return umf_map_list_find(slot, addr);
}

/* --- writing --- */

static void table_fill(_Atomic umf_map_entry_t *table, uint32_t slots, umf_map_entry_t w) {
    for (uint32_t i = 0; i < slots; i++) {
        atomic_store_explicit(&table[i], w, memory_order_release);
    }
}

/* Publishes `table` in `slot`, filled with the entry that it replaces, unless the slot has a table
 * already. Returns the table of the slot. */
static _Atomic umf_map_entry_t *table_publish(_Atomic umf_map_entry_t *slot,
                                              _Atomic umf_map_entry_t *table, uint32_t slots) {
    umf_map_entry_t content = UMF_MAP_ENTRY_EMPTY, w;
    while (!((w = umf_map_load(slot)) & 1)) { /* the entry may change until the exchange */
        if (w != content) {
            table_fill(table, slots, w);
            content = w;
        }
        if (umf_map_exchange(slot, w, (umf_map_entry_t)(uintptr_t)table | UMF_MAP_ENTRY_TABLE)) {
            return table;
        }
    }
    return UMF_MAP_CHILD(w);
}

/* The table of `slot`; makes it if the slot has none. NULL: no memory. */
static _Atomic umf_map_entry_t *table_below(_Atomic umf_map_entry_t *slot, int level) {
    umf_map_entry_t w = umf_map_load(slot);
    if (w & 1) {
        return UMF_MAP_CHILD(w);
    }
    uint32_t slots = umf_map_slots[level + 1];
    _Atomic umf_map_entry_t *made = umf_map_alloc(slots * sizeof(umf_map_entry_t)), *table = NULL;
    if (made && (table = table_publish(slot, made, slots)) != made) {
        umf_map_free((void *)made, slots * sizeof(umf_map_entry_t));
    }
    return table;
}

/* The same for a slot of the root, whose table has its place in the flat table. */
static _Atomic umf_map_entry_t *table_below_root(umf_map_t *map, _Atomic umf_map_entry_t *slot,
                                                 uintptr_t addr) {
    umf_map_entry_t w = umf_map_load(slot);
    if (w & 1) {
        return UMF_MAP_CHILD(w);
    }
    umf_lock(&map->root_lock);
    map->touched[addr >> 39 >> 6] |= 1ull << (addr >> 39 & 63);
    _Atomic umf_map_entry_t *flat = umf_map_load(slot) & 1 ? NULL : umf_map_flat_table(map, addr);
    _Atomic umf_map_entry_t *table =
        flat ? table_publish(slot, flat, umf_map_slots[1]) : table_below(slot, 0);
    umf_unlock(&map->root_lock);
    return table;
}

/* Makes the tables that an entry boundary at `addr` needs, down to its page. Readers get the same
 * results before and after. false: no memory. */
static bool map_cut(umf_map_t *map, uintptr_t addr) {
    _Atomic umf_map_entry_t *slot = &map->root[addr >> umf_map_shift[0]];
    for (int level = 0; level < UMF_MAP_LEVELS - 1 && !umf_map_is_whole(addr, level); level++) {
        _Atomic umf_map_entry_t *table =
            level == 0 ? table_below_root(map, slot, addr) : table_below(slot, level);
        if (!table) {
            return false;
        }
        slot = &table[addr >> umf_map_shift[level + 1] & (umf_map_slots[level + 1] - 1u)];
    }
    return true;
}

/* The slot of a page. NULL: it has no table. */
static _Atomic umf_map_entry_t *page_slot(const umf_map_t *map, uintptr_t addr) {
    _Atomic umf_map_entry_t *slot = &map->root[addr >> umf_map_shift[0]];
    for (int level = 1; level < UMF_MAP_LEVELS; level++) {
        umf_map_entry_t w = umf_map_load(slot);
        if (!(w & 1)) {
            return NULL;
        }
        slot = umf_map_slot_of(w, level, addr);
    }
    return slot;
}

typedef enum map_action_t {
    ACTION_CHECK,
    ACTION_INSERT,
    ACTION_REMOVE,
    ACTION_RENAME
} map_action_t;

/* What happens to the entries of a range. CHECK and INSERT end at the first entry that is not
 * `from`; REMOVE and RENAME leave other entries as they are. */
typedef struct map_change_t {
    umf_map_t *map;
    map_action_t action;
    umf_map_entry_t from, to; /* CHECK: the same */
} map_change_t;

/* --- pages with the edge of a span --- */

/* `w`: the entry of the page. */
static bool page_is(umf_map_entry_t w, uint32_t lo, uint32_t hi, umf_map_entry_t entry) {
    return w & 1 ? umf_map_list_is_uniform(umf_map_list_of(w), lo, hi, entry) : w == entry;
}

static umf_result_t page_insert_locked(const map_change_t *change, umf_map_shard_t *shard,
                                       _Atomic umf_map_entry_t *slot, uint32_t lo, uint32_t hi) {
    umf_assert_locked(&shard->lock);
    umf_map_entry_t w = umf_map_load(slot);
    if (!page_is(w, lo, hi, change->from)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_map_list_t *list = umf_map_list_make_room(shard, slot, w);
    if (!list) {
        return umf_map_load(slot) == w ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
                                       : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_map_list_insert(list, lo, hi, change->to);
    return UMF_RESULT_SUCCESS;
}

static void page_replace_locked(const map_change_t *change, umf_map_shard_t *shard,
                                _Atomic umf_map_entry_t *slot, uint32_t lo, uint32_t hi) {
    umf_map_entry_t w = umf_map_load(slot);
    umf_assert_locked(&shard->lock);
    if (!(w & 1)) {
        umf_map_exchange(slot, change->from, change->to);
        return;
    }
    umf_map_list_t *list = umf_map_list_of(w);
    if (change->action == ACTION_REMOVE) {
        umf_map_list_remove(list, lo, hi, change->from, change->to);
    } else {
        umf_map_list_rename(list, lo, hi, change->from, change->to);
    }
    umf_map_list_drop_if_empty(shard, slot, list);
}

/* Changes [base, end), which lies within one page. The page has a slot, except for a check and for
 * the end of a span that is not in the map: the process forked while another thread was inserting
 * it. */
static umf_result_t page_change(const map_change_t *change, uintptr_t base, uintptr_t end) {
    umf_map_shard_t *shard = umf_map_shard_of(change->map, base);
    _Atomic umf_map_entry_t *slot = page_slot(change->map, base);
    uint32_t lo = (uint32_t)(base % PAGE), hi = lo + (uint32_t)(end - base);
    umf_result_t result = UMF_RESULT_SUCCESS;
    umf_lock(&shard->lock);
    if (change->action == ACTION_INSERT) {
        result = page_insert_locked(change, shard, slot, lo, hi);
    } else if (change->action == ACTION_CHECK) {
        bool is_same = slot ? page_is(umf_map_load(slot), lo, hi, change->from)
                            : umf_map_find_slow(change->map, base) == change->from;
        result = is_same ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    } else if (slot) {
        page_replace_locked(change, shard, slot, lo, hi);
    }
    umf_unlock(&shard->lock);
    return result;
}

/* --- whole pages --- */

/* Two entries. Each of them is aligned, so that a processor reads or writes all of it at once. */
typedef umf_map_entry_t pair_t __attribute__((vector_size(16), aligned(8), may_alias));

#define WIDE 16u

/* The same as below for WIDE slots. They are written in pairs: the ends of 80 GiB are hundreds of
 * slots. */
static bool wide_replace(_Atomic umf_map_entry_t *slots, umf_map_entry_t from, umf_map_entry_t to) {
    pair_t *at = (pair_t *)(uintptr_t)slots, was = {from, from}, is = {to, to};
    pair_t differs = (at[0] ^ was) | (at[1] ^ was) | (at[2] ^ was) | (at[3] ^ was) | (at[4] ^ was) |
                     (at[5] ^ was) | (at[6] ^ was) | (at[7] ^ was);
    bool is_same = !(differs[0] | differs[1]);
    if (is_same) {
        at[0] = at[1] = at[2] = at[3] = at[4] = at[5] = at[6] = at[7] = is;
    }
    return is_same;
}

/* Replaces `from` in the first slots. Returns how many: up to the first that has another entry. A
 * check replaces nothing. */
static size_t slots_replace(_Atomic umf_map_entry_t *slots, size_t count, umf_map_entry_t from,
                            umf_map_entry_t to) {
    size_t i = 0;
    atomic_thread_fence(memory_order_release);
    /* ThreadSanitizer takes a pair for a plain variable. */
    while (!UMF_IS_TSAN && from != to && count - i >= WIDE && wide_replace(&slots[i], from, to)) {
        i += WIDE;
    }
    while (i < count && atomic_load_explicit(&slots[i], memory_order_relaxed) == from) {
        if (from != to) {
            atomic_store_explicit(&slots[i], to, memory_order_release);
        }
        i++;
    }
    return i;
}

static umf_result_t table_change(const map_change_t *change, _Atomic umf_map_entry_t *table,
                                 int level, uintptr_t base, uintptr_t last);

/* Changes [base, last] below a slot that is not `from`. */
static umf_result_t slot_change(const map_change_t *change, const _Atomic umf_map_entry_t *slot,
                                int level, uintptr_t base, uintptr_t last) {
    umf_map_entry_t w = umf_map_load(slot);
    if (w & 1 && level < UMF_MAP_LEVELS - 1) {
        return table_change(change, UMF_MAP_CHILD(w), level + 1, base, last);
    }
    if (change->action == ACTION_CHECK || change->action == ACTION_INSERT) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return w & 1 ? page_change(change, base, last + 1) : UMF_RESULT_SUCCESS;
}

/* Changes [base, last], whole pages of the addresses below `table`. */
static umf_result_t table_change(const map_change_t *change, _Atomic umf_map_entry_t *table,
                                 int level, uintptr_t base, uintptr_t last) {
    uintptr_t cover = (uintptr_t)1 << umf_map_shift[level];
    size_t mask = level == 0 ? UMF_MAP_ROOT_SIZE - 1 : umf_map_slots[level] - 1u;
    size_t at = base / cover & mask, end = (last / cover & mask) + 1;
    uintptr_t first = (base / cover - at) * cover; /* of slot 0 */
    umf_result_t result = UMF_RESULT_SUCCESS;
    /* As in umf_map_insert_near. */
    at += change->action == ACTION_INSERT && umf_map_exchange(&table[at], change->from, change->to);
    while (result == UMF_RESULT_SUCCESS &&
           (at += slots_replace(&table[at], end - at, change->from, change->to)) < end) {
        uintptr_t slot_base = first + at * cover, slot_last = slot_base + cover - 1;
        result = slot_change(change, &table[at], level, slot_base > base ? slot_base : base,
                             slot_last < last ? slot_last : last);
        at++;
    }
    return result;
}

/* Changes the pages that the range covers in part, and the whole pages between them. */
static umf_result_t range_change(const map_change_t *change, uintptr_t base, size_t size) {
    uintptr_t end = base + size, pages = umf_align_up(base, PAGE),
              pages_end = umf_align_down(end, PAGE);
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (base < pages) {
        result = page_change(change, base, end < pages ? end : pages);
    }
    if (result == UMF_RESULT_SUCCESS && pages < pages_end) {
        result = table_change(change, change->map->root, 0, pages, pages_end - 1);
    }
    if (result == UMF_RESULT_SUCCESS && pages_end < end && pages_end >= base) {
        result = page_change(change, pages_end, end);
    }
    return result;
}

/* --- the operations --- */

static umf_result_t map_insert(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t under,
                               umf_map_entry_t entry) {
    uintptr_t end = base + size;
    /* The usual refusal makes no tables. */
    if (umf_map_find(map, base) != under || umf_map_find(map, end - 1) != under) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    /* An end at the last address of the 48 bits needs no boundary. */
    if (!map_cut(map, base) || (end >> 48 == 0 && !map_cut(map, end))) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    map_change_t insert = {map, ACTION_INSERT, under, entry};
    umf_result_t result = range_change(&insert, base, size);
    if (result != UMF_RESULT_SUCCESS) {
        umf_map_remove(map, base, size, entry, under);
    }
    return result;
}

umf_result_t umf_map_insert(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t under,
                            umf_map_entry_t entry) {
    uintptr_t last;
    if (size == 0 || __builtin_add_overflow(base, size - 1, &last) || last == UINTPTR_MAX ||
        base >> 48 != last >> 48) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    map = umf_unlikely(base >> 48) ? umf_map_high_made(map, base) : map;
    return map ? map_insert(map, UMF_MAP_LOW_BITS(base), size, under, entry)
               : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/* For a range that was inserted, or to check one. */
static umf_result_t map_change(umf_map_t *map, map_action_t action, uintptr_t base, size_t size,
                               umf_map_entry_t from, umf_map_entry_t to) {
    map_change_t change = {base >> 48 ? umf_map_high(map, base) : map, action, from, to};
    if (!change.map) {
        return from ? UMF_RESULT_ERROR_INVALID_ARGUMENT : UMF_RESULT_SUCCESS;
    }
    return range_change(&change, UMF_MAP_LOW_BITS(base), size);
}

void umf_map_remove(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t entry,
                    umf_map_entry_t under) {
    map_change(map, ACTION_REMOVE, base, size, entry, under);
}

void umf_map_rename(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t entry,
                    umf_map_entry_t to) {
    map_change(map, ACTION_RENAME, base, size, entry, to);
}

bool umf_map_is_uniform(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t entry) {
    return map_change(map, ACTION_CHECK, base, size, entry, entry) == UMF_RESULT_SUCCESS;
}

/* Divides the page of `mid`. false: no memory. */
static bool page_split(umf_map_t *map, uintptr_t mid, umf_map_entry_t low, umf_map_entry_t high,
                       umf_map_entry_t under) {
    umf_map_shard_t *shard = umf_map_shard_of(map, mid);
    umf_lock(&shard->lock);
    _Atomic umf_map_entry_t *slot = page_slot(map, mid);
    umf_map_list_t *list = umf_map_list_make_room(shard, slot, umf_map_load(slot));
    if (list) {
        umf_map_list_split(list, (uint32_t)(mid % PAGE), low, high, under);
    }
    umf_unlock(&shard->lock);
    return list != NULL;
}

umf_result_t umf_map_split(umf_map_t *map, uintptr_t base, size_t size, size_t first,
                           umf_map_entry_t low, umf_map_entry_t high, umf_map_entry_t under) {
    map = base >> 48 ? umf_map_high(map, base) : map;
    base = UMF_MAP_LOW_BITS(base);
    uintptr_t mid = base + first, pages = umf_align_up(mid, PAGE);
    if (!map_cut(map, mid) || (mid < pages && !page_split(map, mid, low, high, under))) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (pages < base + size) {
        umf_map_rename(map, pages, base + size - pages, low, high);
    }
    return UMF_RESULT_SUCCESS;
}
