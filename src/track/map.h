/*
 * Pointer map: leads from any address to the span that contains it, by one radix walk over
 * self-contained entries.
 *
 * Levels cover 1 GiB, 2 MiB, 64 KiB and 4 KiB of a 48-bit address space, with early leaves. An
 * entry is empty, a child table, a leaf, or a list (for a page that contains the edge of a span).
 * The leaf itself contains the pool and the span, so the common lookups read nothing else.
 *
 * Readers take no lock: they load entries with acquire. Writers have two ways, too. Whole slots are
 * written without a lock: memory belongs to one span at a time, and passes from one span to the
 * next through a provider or a pool, which orders their writes. A page that contains the edge of a
 * span has a list, and its shard is held while that changes; no thread holds two.
 *
 * A writer that makes a table fills it with the entry that it replaces, and publishes it by
 * compare-and-exchange. An entry that became a table stays one. Tables and lists are never freed
 * while the map lives, so no reader sees one disappear. The cost of that is bounded: 4 KiB per GiB,
 * 256 B per 2 MiB and 128 B per 64 KiB that was ever divided.
 *
 * The tables of 2 MiB slots lie side by side in one reserved range of addresses. The usual lookup
 * indexes them as one flat table and never reads the root. Only tables that are in use have memory.
 * If the range cannot be reserved, the tables lie anywhere and lookups start at the root.
 */
#ifndef UMF_SRC_TRACK_MAP_H
#define UMF_SRC_TRACK_MAP_H

#include "base/lock.h"
#include "system/atomic.h"
#include "system/common.h"

typedef uint64_t umf_map_entry_t;

enum {
    UMF_MAP_ENTRY_EMPTY = 0,
    UMF_MAP_ENTRY_TABLE = 1,
    UMF_MAP_ENTRY_LEAF = 2,
    UMF_MAP_ENTRY_LIST = 3,
    UMF_MAP_ENTRY_TAG = 3,
};

/* A leaf, from the low bits: tag 2, class offset 14 (for the pool's own use, a multiple of 4, so
 * the tag fits below it), span 26, two bits of 0, pool 20. */
#define UMF_MAP_ENTRY_POOL_BITS 20
#define UMF_MAP_ENTRY_SPAN_BITS 26

static inline umf_map_entry_t umf_map_entry_make(uint16_t class_offset, uint32_t pool,
                                                 size_t span) {
    return UMF_MAP_ENTRY_LEAF | class_offset | (umf_map_entry_t)span << 16 |
           (umf_map_entry_t)pool << 44;
}
/* A class offset that is none of a magazine: page records lead to them (track/page.h). Its sign and
 * its low bits are its own. */
#define UMF_MAP_ENTRY_PAGED ((uint16_t)0x8004)

/* The members of a leaf. All are 0 for the entry 0. */
static inline size_t umf_map_entry_class_offset(umf_map_entry_t w) {
    return (uint16_t)w & ~(size_t)UMF_MAP_ENTRY_TAG;
}
/* The same with a sign: above 0, that of a magazine; below, UMF_MAP_ENTRY_PAGED. The empty assembly
 * keeps the sign in the register, so that one instruction masks and tests. */
static inline int64_t umf_map_entry_class(umf_map_entry_t w) {
    int64_t class_offset = (int16_t)w;
    __asm__("" : "+r"(class_offset));
    return class_offset & ~UMF_MAP_ENTRY_TAG;
}
static inline uint32_t umf_map_entry_span(umf_map_entry_t w) {
    return (uint32_t)(w >> 16) & ((1u << UMF_MAP_ENTRY_SPAN_BITS) - 1);
}
static inline uint32_t umf_map_entry_pool(umf_map_entry_t w) {
    return (uint32_t)(w >> 44);
}
/* The entry with the pool and the low bits of the class offset in the low word. For the spans of a
 * pool with page records that word is umf_map_paged_key, and for no other leaf. The empty assembly
 * makes compilers rotate in one instruction where only that word is used. */
static inline uint64_t umf_map_entry_rotate(umf_map_entry_t w) {
    uint64_t rotated = w << 20 | w >> 44;
    __asm__("" : "+r"(rotated));
    return rotated;
}
static inline umf_map_entry_t umf_map_entry_unrotate(uint64_t rotated) {
    return rotated >> 20 | rotated << 44;
}
static inline uint32_t umf_map_paged_key(uint32_t pool) {
    return (uint32_t)umf_map_entry_rotate(umf_map_entry_make(UMF_MAP_ENTRY_PAGED, pool, 0));
}

#define UMF_MAP_ROOT_BITS 18
#define UMF_MAP_ROOT_SIZE ((size_t)1 << UMF_MAP_ROOT_BITS)
#define UMF_MAP_SHARDS 64

/* No two shards share a cache line. */
typedef struct umf_map_shard_t {
    _Alignas(UMF_CACHE_ISOLATION) umf_lock_t lock;
    struct umf_map_list_t *lists[16]; /* unused lists, by capacity. Sync: lock */
} umf_map_shard_t;

typedef struct umf_map_t {
    _Atomic(umf_map_entry_t) *flat; /* all tables of 2 MiB slots; NULL: not reserved. Immutable */
    size_t flat_slots;              /* 0: not reserved. Immutable */
    _Atomic(umf_map_entry_t) *root; /* Immutable after init */
    umf_map_shard_t *shards;        /* by page. Immutable after init */
    uint32_t shard_mask;            /* shards - 1 */
    umf_lock_t root_lock;           /* held to make the table of a slot of the root */
    umf_lock_t nest_lock;           /* track/span.c: for nested spans, and spans that are split */
    _Atomic(struct umf_map_high_t *) high; /* for addresses above 48 bits. Sync: atomic; shard 0 to
                                              add one */
    uint64_t
        touched[UMF_MAP_ROOT_SIZE / 512 / 64]; /* pages of the root with tables. Sync: root_lock */
} umf_map_t;

/* The map of the process. */
extern umf_map_t umf_map_global;
extern UMF_HIDDEN _Atomic(umf_map_entry_t)
    *umf_map_global_flat; /* copies of its members, so that each costs one load */
extern UMF_HIDDEN size_t umf_map_global_slots;

void umf_map_global_init(void);            /* once, before anything is inserted */
umf_result_t umf_map_init(umf_map_t *map); /* a private map, with one shard, nothing reserved */
void umf_map_reserve(umf_map_t *map);      /* reserves the flat table of a new map, if possible */
void umf_map_fini(umf_map_t *map);         /* frees the tables of a private map */

/* Bytes of the tables and lists of all maps, a part of umf_meta_used. They are as many as the
 * addresses that were divided so far, whether these are in use or not. */
size_t umf_map_used(void);

/* The walk from the root, for the cases that the fast walk below does not handle. */
umf_map_entry_t umf_map_find_slow(const umf_map_t *map, uintptr_t addr);

/* The tag is subtracted, not masked: the compiler folds it into the address. */
#define UMF_MAP_CHILD(w) ((_Atomic(umf_map_entry_t) *)(uintptr_t)((w)-UMF_MAP_ENTRY_TABLE))

static inline umf_map_entry_t umf_map_load(const _Atomic(umf_map_entry_t) *slot) {
    return atomic_load_explicit(slot, memory_order_acquire);
}

UMF_INLINE bool umf_map_walk(const _Atomic(umf_map_entry_t) *flat, size_t slots, uintptr_t addr,
                             umf_map_entry_t *entry) {
    uintptr_t slot = addr >> 21;
    if (umf_unlikely(slot >= slots)) {
        *entry = 0;
        return false;
    }
    umf_map_entry_t w = umf_map_load(&flat[slot]);
    if (w & 1) {
        w = umf_map_load(&UMF_MAP_CHILD(w)[(addr >> 16) & 31]);
        if (w & 1) {
            w = umf_map_load(&UMF_MAP_CHILD(w)[(addr >> 12) & 15]);
            *entry = w;
            return umf_likely(!(w & 1));
        }
    }
    *entry = w;
    return true;
}

/* The walk without its rare cases. The result false, or the entry 0, means: call
 * umf_map_find. These cases are addresses in a whole GiB of one span, beyond the flat table, in a
 * page with a list, or of no span. Hot. */
static inline bool umf_map_find_fast(const umf_map_t *map, uintptr_t addr, umf_map_entry_t *entry) {
    return umf_map_walk(map->flat, map->flat_slots, addr, entry);
}

/* The same in the map of the process. Hot. */
UMF_INLINE bool umf_map_find_global(uintptr_t addr, umf_map_entry_t *entry) {
    return umf_map_walk(umf_map_global_flat, umf_map_global_slots, addr, entry);
}

/* The leaf entry of the innermost span that contains `addr`, or 0. */
static inline umf_map_entry_t umf_map_find(const umf_map_t *map, uintptr_t addr) {
    umf_map_entry_t entry;
    return umf_map_find_fast(map, addr, &entry) && umf_likely(entry != 0)
               ? entry
               : umf_map_find_slow(map, addr);
}

/* The shard of a page. Neighbouring pages have different shards, and so have the first pages of
 * neighbouring 64 KiB. */
static inline umf_map_shard_t *umf_map_shard_of(const umf_map_t *map, uintptr_t addr) {
    return &map->shards[(addr >> 12 ^ addr >> 16) & map->shard_mask];
}

/*
 * Writes `entry` for [base, base + size). Every address must have led to `under` so far: 0, or the
 * entry of the span around it. INVALID_ARGUMENT: it has not, or the range wraps or crosses 48 bits.
 * OUT_OF_HOST_MEMORY. After a failed insert all is as before; during it a reader may find `entry`
 * where `under` was.
 */
umf_result_t umf_map_insert(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t under,
                            umf_map_entry_t entry);

/* Removes `entry`: the range leads to `under` again. Entries of nested spans stay. */
void umf_map_remove(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t entry,
                    umf_map_entry_t under);

/* Replaces `entry`, which alone covers the range, by `to`. */
void umf_map_rename(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t entry,
                    umf_map_entry_t to);

/* Divides a range that `low` alone covers: from base + first on it leads to `high`. `under` as for
 * remove. OUT_OF_HOST_MEMORY: nothing is changed. */
umf_result_t umf_map_split(umf_map_t *map, uintptr_t base, size_t size, size_t first,
                           umf_map_entry_t low, umf_map_entry_t high, umf_map_entry_t under);

/* Does every address of the range lead to `entry`? */
bool umf_map_is_uniform(umf_map_t *map, uintptr_t base, size_t size, umf_map_entry_t entry);

#endif
