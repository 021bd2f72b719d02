/*
 * Runs: writing the usual range into the map. It consists of whole slots of one existing table,
 * which are inserted and removed inline. Everything else is for map.c.
 */
#ifndef UMF_SRC_TRACK_MAP_RUN_H
#define UMF_SRC_TRACK_MAP_RUN_H

#include "system/atomic.h"
#include "track/map.h"

#define UMF_MAP_LEVELS 4

static const uint8_t umf_map_shift[UMF_MAP_LEVELS] = {30, 21, 16, 12};
static const uint16_t umf_map_slots[UMF_MAP_LEVELS] = {0, 512, 32, 16};

typedef struct umf_map_run_t {
    _Atomic(umf_map_entry_t) *slots;
    size_t count;
} umf_map_run_t;

static inline bool umf_map_exchange(_Atomic(umf_map_entry_t) *slot, umf_map_entry_t entry,
                                    umf_map_entry_t to) {
    return atomic_compare_exchange_strong_explicit(slot, &entry, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* Do all slots have this entry? A run has at least one slot, here and below. */
static inline bool umf_map_run_is(const umf_map_run_t *run, umf_map_entry_t entry) {
    umf_map_entry_t differs = 0;
    size_t i = 0;
    do {
        differs |= atomic_load_explicit(&run->slots[i], memory_order_relaxed) ^ entry;
    } while (++i < run->count);
    return !differs;
}

/* Stores `entry` behind the first slot. */
static inline void umf_map_run_store_rest(const umf_map_run_t *run, umf_map_entry_t entry) {
    for (size_t i = 1; i < run->count; i++) {
        atomic_store_explicit(&run->slots[i], entry, memory_order_release);
    }
}

/* false: a slot is not `entry`. The slots before it are replaced, the others are not. */
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

/* The slot of `base` in the table to which `w` leads. */
static inline _Atomic(umf_map_entry_t) *umf_map_slot_of(umf_map_entry_t w, int level,
                                                        uintptr_t base) {
    return &UMF_MAP_CHILD(w)[base >> umf_map_shift[level] & (umf_map_slots[level] - 1u)];
}

static inline bool umf_map_is_whole(uintptr_t ends, int level) {
    return !(ends & (((uintptr_t)1 << umf_map_shift[level]) - 1));
}

/* Does the range lie within one GiB below 48 bits? All that follows requires this. false if it is
 * empty or wraps. */
static inline bool umf_map_is_near(uintptr_t base, size_t size) {
    uintptr_t last = base + size - 1, gib = base >> umf_map_shift[0];
    return last >= base && last >> umf_map_shift[0] == gib && gib < UMF_MAP_ROOT_SIZE;
}

/* The run of a near range. false: the range is not whole slots of one existing table below the
 * root. */
static inline bool umf_map_run_of(const umf_map_t *map, uintptr_t base, size_t size,
                                  umf_map_run_t *run) {
    uintptr_t differs = base ^ (base + (size - 1)), ends = base | size;
    umf_map_entry_t w = umf_map_load(&map->root[base >> umf_map_shift[0]]);
    if (umf_unlikely(!(w & 1))) {
        return false;
    }
    _Atomic(umf_map_entry_t) *slot = umf_map_slot_of(w, 1, base);
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

/*
 * umf_map_insert of a near range with nothing under it, if it is such a run, as is nearly always
 * the case. false: it is not; nothing is changed. The first slot is exchanged: a provider that is
 * not thread-safe gives two threads memory that begins at the same address, and one of them must
 * find the entry of the other.
 */
static inline bool umf_map_insert_near(umf_map_t *map, uintptr_t base, size_t size,
                                       umf_map_entry_t entry) {
    umf_map_run_t run;
    if (umf_unlikely(!umf_map_run_of(map, base, size, &run) ||
                     !umf_map_run_is(&run, UMF_MAP_ENTRY_EMPTY) ||
                     !umf_map_exchange(&run.slots[0], UMF_MAP_ENTRY_EMPTY, entry))) {
        return false;
    }
    umf_map_run_store_rest(&run, entry);
    return true;
}

/* umf_map_remove of a near range. false: other entries are in it, or it is not whole slots of one
 * table. The caller must then call umf_map_remove. */
static inline bool umf_map_remove_near(umf_map_t *map, uintptr_t base, size_t size,
                                       umf_map_entry_t entry, umf_map_entry_t under) {
    umf_map_run_t run;
    return umf_likely(umf_map_run_of(map, base, size, &run) &&
                      umf_map_run_replace(&run, entry, under));
}

#endif
