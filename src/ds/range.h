/*
 * Range: divides address (or offset) ranges into pieces, best fit with immediate coalescing, all
 * bookkeeping out of line. It never touches the memory it divides.
 *
 * A range set holds any number of spans (contiguous ranges given to it); pieces never cross spans.
 * Each piece is free or used; used pieces can be split and merged. Not thread-safe: the caller
 * locks.
 *
 * Cost: O(1) for free, split and merge; alloc searches at most a few pieces of the exact size bin,
 * then takes the first of the next non-empty bin (bitmap index).
 */
#ifndef UMF_SRC_DS_RANGE_H
#define UMF_SRC_DS_RANGE_H

#include "system/common.h"

typedef struct umf_range_t umf_range_t;

/* NULL when out of memory. */
umf_range_t *umf_range_create(void);
/* Frees the bookkeeping of all pieces; the memory is the caller's business. */
void umf_range_destroy(umf_range_t *range);

/* Gives a span to the set, free. INVALID_ARGUMENT if it overlaps or is empty, OUT_OF_HOST_MEMORY.
 */
umf_result_t umf_range_add(umf_range_t *range, uintptr_t base, size_t size);
/* Enlarges the span that ends at `end` (file providers grow). */
umf_result_t umf_range_grow(umf_range_t *range, uintptr_t end, size_t more);
/* Free bytes directly below `end`, the end of a span; 0 also if no span ends there. */
size_t umf_range_free_tail(const umf_range_t *range, uintptr_t end);
/* Takes a wholly free span back. INVALID_ARGUMENT if it is unknown or any of it is used. */
umf_result_t umf_range_remove(umf_range_t *range, uintptr_t base);

/* A used piece of exactly `size` bytes at a multiple of `alignment` (any value above 0).
 * OUT_OF_RESOURCES if no piece fits, OUT_OF_HOST_MEMORY if bookkeeping has no memory.
 * An empty span is served upwards from its start. */
umf_result_t umf_range_alloc(umf_range_t *range, size_t size, size_t alignment, uintptr_t *base);

/* What a successful free tells, so that the caller can give whole spans back. */
typedef struct umf_range_freed_t {
    size_t size;         /* that was freed */
    uintptr_t free_base; /* the free piece that now holds the freed one */
    size_t free_size;
    bool whole_span; /* the span is wholly free now */
} umf_range_freed_t;

/* `size` is the piece's size, or 0 for unknown. INVALID_ARGUMENT if `base` is not the start of a
 * used piece or the size differs. `freed` may be NULL. */
umf_result_t umf_range_free(umf_range_t *range, uintptr_t base, size_t size,
                            umf_range_freed_t *freed);
/* The same for a piece that has no content the caller would keep or give back. */
umf_result_t umf_range_free_clean(umf_range_t *range, uintptr_t base, size_t size,
                                  umf_range_freed_t *freed);

/* A used piece at `base` of `total` bytes becomes two; two adjacent used pieces of one span become
 * one. */
umf_result_t umf_range_split(umf_range_t *range, uintptr_t base, size_t total, size_t first);
umf_result_t umf_range_merge(umf_range_t *range, uintptr_t low, uintptr_t high, size_t total);

/*
 * Parking. Whoever holds the ticket of a used piece may park it, which gives it back for the time
 * being, and take it again; both without the caller's lock and by any thread. A parked piece is
 * nobody's: it cannot be freed, split or merged, and has no size, until it is unparked or
 * reclaimed. A ticket is void as soon as its piece is freed, split or merged.
 */
typedef struct umf_range_ticket_t {
    uint32_t *claim; /* of the piece. Sync: atomic */
    uint32_t number; /* what it says while the piece is used and this ticket is good */
} umf_range_ticket_t;

#define UMF_RANGE_PARKED 1u

/* Of the used piece at `base`, makes an earlier one void; no claim if there is no such piece. */
umf_range_ticket_t umf_range_ticket(umf_range_t *range, uintptr_t base);
/* Makes a ticket void and frees its piece if that is parked. Was it? */
bool umf_range_ticket_end(umf_range_t *range, const umf_range_ticket_t *ticket);
/* Frees all parked pieces; how many. */
size_t umf_range_reclaim(umf_range_t *range);

/* Hot. false: the ticket is void, or the piece is parked already. */
static inline bool umf_range_park(const umf_range_ticket_t *ticket) {
    uint32_t expected = ticket->number;
    return __atomic_compare_exchange_n(ticket->claim, &expected, expected | UMF_RANGE_PARKED, false,
                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Hot. false: the piece is not parked any more. */
static inline bool umf_range_unpark(const umf_range_ticket_t *ticket) {
    uint32_t expected = ticket->number | UMF_RANGE_PARKED;
    return __atomic_compare_exchange_n(ticket->claim, &expected, ticket->number, false,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Size of the used piece that starts at `base`, 0 if there is none. */
size_t umf_range_used_size(const umf_range_t *range, uintptr_t base);

/* Visits wholly free spans; `visit` may not change the set. Returns how many there are. */
size_t umf_range_free_spans(const umf_range_t *range,
                            void (*visit)(uintptr_t base, size_t size, void *arg), void *arg);
/* Visits all free pieces in no particular order. */
void umf_range_free_pieces(const umf_range_t *range,
                           void (*visit)(uintptr_t base, size_t size, void *arg), void *arg);

typedef struct umf_range_piece_t {
    uintptr_t base;
    size_t size;
} umf_range_piece_t;

/* Makes up to `n` free pieces of at least `min` bytes used and tells which, from high addresses to
 * low.
 * `*cursor` is UINTPTR_MAX at first and moves along; 0 pieces: there are no more. Needs no memory.
 */
size_t umf_range_take_free(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_piece_t *pieces, size_t n);
/* The same for those that are not clean and were met free before, in an earlier run of this
 * function over all pieces. A free piece that is cut or merged stays met. */
size_t umf_range_take_idle(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_piece_t *pieces, size_t n);

size_t umf_range_used_bytes(const umf_range_t *range);
size_t umf_range_total_bytes(const umf_range_t *range);
/* Bytes of the spans that are wholly free. */
size_t umf_range_free_span_bytes(const umf_range_t *range);
size_t umf_range_span_count(const umf_range_t *range);

/* For tests and debugging: walks everything and compares all views of it. */
bool umf_range_is_valid(const umf_range_t *range);

#endif
