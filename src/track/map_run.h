/*
 * Writing the usual range into the map: one that is whole slots of one table, or of a few on the
 * way up to the largest slots that fit and down again, all of one entry.
 *
 * That needs no shard. Memory belongs to one span at a time, and goes from one to the next by way
 * of a provider or a pool, which orders what they write. Slots that several spans have in common,
 * above their own ones, are changed by comparing exchanges (map.c).
 */
#ifndef UMF_SRC_TRACK_MAP_RUN_H
#define UMF_SRC_TRACK_MAP_RUN_H

#include "track/map.h"

#define UMF_MAP_LEVELS 4

static const uint8_t umf_map_shift[UMF_MAP_LEVELS] = {30, 21, 16, 12};
static const uint16_t umf_map_slots[UMF_MAP_LEVELS] = {0, 512, 32, 16};

typedef struct umf_map_run_t {
    _Atomic umf_map_entry_t *slots;
    size_t count;
} umf_map_run_t;

static inline bool umf_map_exchange(_Atomic umf_map_entry_t *slot, umf_map_entry_t entry,
                                    umf_map_entry_t to) {
    return atomic_compare_exchange_strong_explicit(slot, &entry, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* There is one slot at least, here and below. */
static inline bool umf_map_run_is(const umf_map_run_t *run, umf_map_entry_t entry) {
    umf_map_entry_t differs = 0;
    size_t i = 0;
    do {
        differs |= atomic_load_explicit(&run->slots[i], memory_order_relaxed) ^ entry;
    } while (++i < run->count);
    return !differs;
}

static inline void umf_map_run_store(const umf_map_run_t *run, umf_map_entry_t entry) {
    size_t i = 0;
    do {
        atomic_store_explicit(&run->slots[i], entry, memory_order_release);
    } while (++i < run->count);
}

/* Stops at the first slot that is not `entry`, and is false then. */
static inline bool umf_map_run_replace(const umf_map_run_t *run, umf_map_entry_t entry,
                                       umf_map_entry_t to) {
    size_t i = 0;
    do {
        if (umf_unlikely(atomic_load_explicit(&run->slots[i], memory_order_relaxed) != entry)) {
            return false;
        }
        atomic_store_explicit(&run->slots[i], to, memory_order_release);
    } while (++i < run->count);
    return true;
}

/* The slot of `base` in the table that `w` leads to. */
static inline _Atomic umf_map_entry_t *umf_map_slot_of(umf_map_entry_t w, int level,
                                                       uintptr_t base) {
    return &UMF_MAP_CHILD(w)[base >> umf_map_shift[level] & (umf_map_slots[level] - 1u)];
}

static inline bool umf_map_is_whole(uintptr_t ends, int level) {
    return !(ends & (((uintptr_t)1 << umf_map_shift[level]) - 1));
}

/* Whether a range lies within one GiB below 48 bits, as all that follows asks for. Not if it is
 * empty or wraps. */
static inline bool umf_map_is_near(uintptr_t base, size_t size) {
    uintptr_t last = base + size - 1, gib = base >> umf_map_shift[0];
    return last >= base && last >> umf_map_shift[0] == gib && gib < UMF_MAP_ROOT_SIZE;
}

/* A near range of whole slots of one table below the root; false if it is not. */
static inline bool umf_map_run_of(const umf_map_t *map, uintptr_t base, size_t size,
                                  umf_map_run_t *run) {
    uintptr_t differs = base ^ (base + (size - 1)), ends = base | size;
    umf_map_entry_t w = umf_map_load(&map->root[base >> umf_map_shift[0]]);
    if (umf_unlikely(!(w & 1))) {
        return false;
    }
    _Atomic umf_map_entry_t *slot = umf_map_slot_of(w, 1, base);
    if (umf_map_is_whole(ends, 1)) {
        *run = (umf_map_run_t){.slots = slot, .count = size >> umf_map_shift[1]};
        return true;
    }
    if (differs >> umf_map_shift[1] || !((w = umf_map_load(slot)) & 1)) {
        return false;
    }
    slot = umf_map_slot_of(w, 2, base);
    if (umf_map_is_whole(ends, 2)) {
        *run = (umf_map_run_t){.slots = slot, .count = size >> umf_map_shift[2]};
        return true;
    }
    if (differs >> umf_map_shift[2] || !((w = umf_map_load(slot)) & 1) ||
        !umf_map_is_whole(ends, 3)) {
        return false;
    }
    slot = umf_map_slot_of(w, 3, base);
    *run = (umf_map_run_t){.slots = slot, .count = size >> umf_map_shift[3]};
    return true;
}

/* What the next two do where the one slot of a run was divided before, which is for good. */
bool umf_map_insert_divided(const umf_map_t *map, uintptr_t base, size_t size,
                            umf_map_entry_t entry);
bool umf_map_remove_divided(const umf_map_t *map, uintptr_t base, size_t size,
                            umf_map_entry_t entry, umf_map_entry_t under);

/*
 * As umf_map_insert of a near range with nothing under it, where that takes no new table and no
 * list: nearly always. False if it is not so simple; nothing is changed then.
 */
static inline bool umf_map_insert_near(umf_map_t *map, uintptr_t base, size_t size,
                                       umf_map_entry_t entry) {
    umf_map_run_t run;
    if (umf_unlikely(!umf_map_run_of(map, base, size, &run) ||
                     !umf_map_run_is(&run, UMF_MAP_ENTRY_EMPTY))) {
        return umf_map_insert_divided(map, base, size, entry);
    }
    umf_map_run_store(&run, entry);
    return true;
}

/* As umf_map_remove of a near range; false if other entries are in it, or it is not so simple: then
 * that is still to be called. */
static inline bool umf_map_remove_near(umf_map_t *map, uintptr_t base, size_t size,
                                       umf_map_entry_t entry, umf_map_entry_t under) {
    umf_map_run_t run;
    if (umf_unlikely(!umf_map_run_of(map, base, size, &run) ||
                     !umf_map_run_replace(&run, entry, under))) {
        return umf_map_remove_divided(map, base, size, entry, under);
    }
    return true;
}

/*
 * As umf_map_insert and umf_map_remove of any whole pages below 48 bits that do not wrap, unless
 * there are lists; may take new tables. False: nothing is inserted; not all is removed, and
 * umf_map_remove is still to be called.
 */
bool umf_map_pages_insert(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t under,
                          umf_map_entry_t entry);
bool umf_map_pages_remove(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t entry,
                          umf_map_entry_t under);

/*
 * The same for what ends inside of a page, and begins with one or lies within it: of that page they
 * take the shard, and may make its list.
 */
bool umf_map_tail_insert(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t under,
                         umf_map_entry_t entry);
bool umf_map_tail_remove(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t entry,
                         umf_map_entry_t under);

#endif
