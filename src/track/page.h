/*
 * Page records: lead from an address to the state of the object that starts there, in one load.
 *
 * A pool that divides whole pages into objects of one size each (pools/shared/starts.h) publishes a
 * copy of its record of a page here. A span whose class offset is UMF_MAP_ENTRY_PAGED may have such
 * records.
 *
 * A record agrees with the map: the span of its pool is the innermost one in the whole page, and no
 * layer must see its frees. A record is concealed when a span is recorded inside of its page, or
 * when a layer drops the class offset of its span. A free into a given pool may therefore use a
 * record of that pool without a look at the map.
 *
 * A page has an owner: the thread that took objects of it last, from the pool below or from another
 * thread's depot (cache/magazine_remote.c). The owner is a hint: a record with the wrong one is
 * correct, too.
 *
 * A record covers a whole page of one span, so only one pool publishes it at a time. Apart from the
 * owner it changes only while no live object starts in the page: the free of a live object reads
 * one whole record, or none. Other frees may read parts of two; they find a byte of state that is
 * not LIVE.
 */
#ifndef UMF_SRC_TRACK_PAGE_H
#define UMF_SRC_TRACK_PAGE_H

#include "system/annotate.h"
#include "system/atomic.h"
#include "system/common.h"
#include "track/map.h"

#define UMF_PAGE_RECORD_SHIFT 12
#define UMF_PAGE_RECORD_BYTES ((uintptr_t)1 << UMF_PAGE_RECORD_SHIFT)

/* Sync of all members: atomic, for readers UMF_PAGE_LOAD. `pool` is written last. */
typedef struct umf_page_record_t {
    uint8_t *states;   /* of the objects, as in umf_starts_t */
    uint16_t pool;     /* umf_page_key; 0: no record */
    uint16_t magazine; /* umf_magazine_offset of the objects' bin */
    /* The low bits of the address of the object with the first state: an object before the page may
     * have it. Its distance from an address is the difference of the low bits. */
    uint32_t origin;
} umf_page_record_t;
_Static_assert(sizeof(umf_page_record_t) == 16, "the index of a record is a shift");

/* The index of a pool, below 256, and the owner above it (umf_magazines_owner). */
static inline uint16_t umf_page_key(uint32_t pool, uint32_t owner) {
    return (uint16_t)(pool | owner << 8);
}

/* A key that no record has: no pool has the index 0. */
#define UMF_PAGE_KEY_NONE ((uint16_t)0xff00)

static inline uint32_t umf_page_key_pool(uint16_t key) {
    return key & 0xffu;
}

static inline uint32_t umf_page_key_owner(uint16_t key) {
    return key >> 8;
}

/* A plain load saves instructions. For the user of a live object nothing but the owner of the page
 * changes: code that uses the key twice loads it atomically. */
#define UMF_PAGE_LOAD(record, member)                                                              \
    (UMF_IS_TSAN ? __atomic_load_n(&(record)->member, __ATOMIC_RELAXED) : (record)->member)

/* By GiB: the records of its pages. The address is that of the record that page 0 would have, so
 * that a lookup adds the number of the page alone. 0: there are none. */
extern UMF_HIDDEN _Atomic(uintptr_t) umf_page_records[UMF_MAP_ROOT_SIZE];
#define UMF_PAGE_RECORDS_SHIFT 30

/* Makes the records of a range. false: no memory, or the lookups of the map do not reach it. */
bool umf_page_records_make(uintptr_t base, size_t size);

static inline umf_page_record_t *umf_page_record_in(uintptr_t records, uintptr_t addr) {
    return (umf_page_record_t *)(records +
                                 (addr >> UMF_PAGE_RECORD_SHIFT) * sizeof(umf_page_record_t));
}

/* The record of an address in a span with UMF_MAP_ENTRY_PAGED. Hot. */
static inline umf_page_record_t *umf_page_record_at(uintptr_t addr) {
    return umf_page_record_in(
        atomic_load_explicit(&umf_page_records[addr >> UMF_PAGE_RECORDS_SHIFT],
                             memory_order_relaxed),
        addr);
}

/* Does a thread own the page of an address in a span with UMF_MAP_ENTRY_PAGED? */
static inline bool umf_page_has_owner(uintptr_t addr) {
    uint16_t key = __atomic_load_n(&umf_page_record_at(addr)->pool, __ATOMIC_RELAXED);
    return umf_page_key_owner(key) != 0;
}

/* The record of any address. false: it has none. Hot. */
static inline bool umf_page_record_find(uintptr_t addr, umf_page_record_t **record) {
    uintptr_t gib = addr >> UMF_PAGE_RECORDS_SHIFT;
    if (umf_unlikely(gib >= UMF_MAP_ROOT_SIZE)) {
        return false;
    }
    uintptr_t records = atomic_load_explicit(&umf_page_records[gib], memory_order_relaxed);
    *record = umf_page_record_in(records, addr);
    return umf_likely(records != 0);
}

/* Publishes the record of a page that lies wholly in a span of the pool. Does nothing if the page
 * has no record, or if the map leads from `addr` to another span, or to one without records.
 * `magazine` 0: none serves its objects, the record is withdrawn. The caller owns all memory of the
 * page in which objects start. */
void umf_page_publish(uintptr_t addr, const umf_page_record_t *record);

/* Conceals the records of all pages of the range. Call it after the entries of the map were
 * written: those of a span without records, or of a span inside of these pages. */
void umf_page_conceal(uintptr_t base, size_t size);

/* Makes `owner` the owner of the page, if its record is of this pool. */
void umf_page_adopt(uintptr_t addr, uint32_t pool, uint32_t owner);

/* Withdraws the record if it is that of this pool and these states. */
void umf_page_withdraw(uintptr_t addr, uint32_t pool, const uint8_t *states);

#endif
