/*
 * Range: best fit with boundary links.
 *
 * Pieces of a span are linked in address order, so free finds its neighbours without searching.
 * Free pieces are listed in bins by size, eight bins per doubling (a bin's pieces differ by less
 * than 12.5 %), and a two-level bitmap leads to the next bin that is not empty. Used pieces are
 * found by a hash of their start.
 *
 * A used piece with a ticket (parking) is in the list of those, by way of the links that free
 * pieces have in their bins. Its claim changes without the lock; whoever changes it to what is not
 * claimed has the piece to itself. The number in a claim outlives the piece, so that old tickets
 * stay void.
 *
 * A span ends in a piece of size 0 that is never free (its `size` field holds the span's size). It
 * stops coalescing at the span's end and is what the sorted table of spans points to.
 *
 * Every piece of a bin above that of `size + alignment` fits, so those bins are never searched. The
 * bins below are tried a few pieces deep; only before giving up is everything looked at, so a
 * request fails only when no piece fits.
 */
#include "ds/range.h"

#include <assert.h>

#include "base/meta.h"

#define RANGE_STEPS 3 /* log2 of the bins per doubling */
#define RANGE_BINS ((64 - RANGE_STEPS + 1) << RANGE_STEPS)
#define RANGE_WORDS ((RANGE_BINS + 63) / 64)
#define RANGE_DEPTH 8 /* pieces looked at in one bin */

#define RANGE_FIRST_SLAB 1024
#define RANGE_LARGEST_SLAB 65536
#define RANGE_FIRST_HASH 16

typedef enum range_kind_t { RANGE_FREE, RANGE_USED, RANGE_END } range_kind_t;

/* What is known of a free piece's content. */
typedef enum range_age_t {
    RANGE_FRESH, /* some may have been used a moment ago */
    RANGE_MET,   /* it was free before, at least in part */
    RANGE_CLEAN, /* there is none */
} range_age_t;

typedef struct piece_t {
    uintptr_t base;
    size_t size;
    struct piece_t *prev, *next;         /* in the span; NULL at its two ends */
    struct piece_t *bin_prev, *bin_next; /* free pieces; used pieces with a ticket */
    struct piece_t *chain; /* used pieces of one hash slot; unused pieces of the slab */
    uint32_t claim;        /* number, and the two bits below. Sync: atomic */
    uint16_t bin;          /* of a free piece */
    uint8_t kind;          /* range_kind_t */
    uint8_t age;           /* range_age_t, of a free piece */
} piece_t;
_Static_assert(sizeof(piece_t) == 64, "what a block costs");

#define CLAIMED 2u /* there is a ticket; UMF_RANGE_PARKED is the other bit */

typedef struct range_slab_t {
    struct range_slab_t *next;
    size_t size;
    piece_t pieces[];
} range_slab_t;

struct umf_range_t {
    piece_t *unused;
    size_t unused_count;
    range_slab_t *slabs;

    piece_t **hash;
    size_t hash_size; /* power of two */
    size_t used_count;
    piece_t *claimed; /* used pieces with a ticket */

    piece_t **spans; /* their end pieces, sorted by address */
    size_t span_count, span_room;

    size_t used_bytes, total_bytes;
    size_t free_span_bytes; /* of spans that are wholly free */

    uint64_t summary;             /* which words of the bitmap are not 0 */
    uint64_t bitmap[RANGE_WORDS]; /* which bins are not empty */
    piece_t *bins[RANGE_BINS];
};

/* --- unused pieces ---------------------------------------------------------------------------- */

static bool slab_add(umf_range_t *range) {
    size_t size = range->slabs ? range->slabs->size * 2 : RANGE_FIRST_SLAB;
    if (size > RANGE_LARGEST_SLAB) {
        size = RANGE_LARGEST_SLAB;
    }
    range_slab_t *slab = umf_meta_alloc(size);
    if (!slab) {
        return false;
    }
    slab->size = size;
    slab->next = range->slabs;
    range->slabs = slab;
    size_t count = (size - sizeof(*slab)) / sizeof(piece_t);
    for (size_t i = 0; i < count; i++) {
        slab->pieces[i].chain = range->unused;
        range->unused = &slab->pieces[i];
    }
    range->unused_count += count;
    return true;
}

/* Makes sure the next `count` (at most 2) calls of piece_new succeed, so that changes need no
 * undoing. */
static bool piece_reserve(umf_range_t *range, size_t count) {
    return umf_likely(range->unused_count >= count) || slab_add(range);
}

static piece_t *piece_new(umf_range_t *range, uintptr_t base, size_t size, range_kind_t kind) {
    piece_t *piece = range->unused;
    assert(piece);
    range->unused = piece->chain;
    range->unused_count--;
    piece->base = base;
    piece->size = size;
    piece->prev = piece->next = NULL;
    piece->kind = (uint8_t)kind;
    piece->age = RANGE_FRESH;
    return piece;
}

static void piece_delete(umf_range_t *range, piece_t *piece) {
    piece->chain = range->unused;
    range->unused = piece;
    range->unused_count++;
}

static void piece_link(piece_t *prev, piece_t *next) {
    if (prev) {
        prev->next = next;
    }
    if (next) {
        next->prev = prev;
    }
}

/* --- bins of free pieces ---------------------------------------------------------------------- */

/* Sizes below 8 have a bin each, above that the bin is the exponent and the next three bits. */
static unsigned bin_of(size_t size) {
    if (size < (1u << RANGE_STEPS)) {
        return (unsigned)size;
    }
    unsigned exponent = 63 - (unsigned)__builtin_clzll(size);
    unsigned step = (unsigned)(size >> (exponent - RANGE_STEPS)) & ((1u << RANGE_STEPS) - 1);
    return ((exponent - RANGE_STEPS + 1) << RANGE_STEPS) + step;
}

static inline void bin_add(umf_range_t *range, piece_t *piece) {
    unsigned bin = bin_of(piece->size);
    piece->bin = (uint16_t)bin;
    piece->bin_prev = NULL;
    piece->bin_next = range->bins[bin];
    if (piece->bin_next) {
        piece->bin_next->bin_prev = piece;
    }
    range->bins[bin] = piece;
    range->bitmap[bin / 64] |= UINT64_C(1) << (bin % 64);
    range->summary |= UINT64_C(1) << (bin / 64);
}

static inline void bin_remove(umf_range_t *range, piece_t *piece) {
    if (piece->bin_next) {
        piece->bin_next->bin_prev = piece->bin_prev;
    }
    if (piece->bin_prev) {
        piece->bin_prev->bin_next = piece->bin_next;
        return;
    }
    unsigned bin = piece->bin;
    range->bins[bin] = piece->bin_next;
    if (!piece->bin_next) {
        range->bitmap[bin / 64] &= ~(UINT64_C(1) << (bin % 64));
        if (!range->bitmap[bin / 64]) {
            range->summary &= ~(UINT64_C(1) << (bin / 64));
        }
    }
}

/* The first bin from `bin` on that is not empty, RANGE_BINS if there is none. */
static unsigned bin_next(const umf_range_t *range, unsigned bin) {
    if (bin >= RANGE_BINS) {
        return RANGE_BINS;
    }
    uint64_t word = range->bitmap[bin / 64] >> (bin % 64);
    if (word) {
        return bin + (unsigned)__builtin_ctzll(word);
    }
    unsigned i = bin / 64 + 1;
    uint64_t words = i < RANGE_WORDS ? range->summary >> i : 0;
    if (!words) {
        return RANGE_BINS;
    }
    i += (unsigned)__builtin_ctzll(words);
    return i * 64 + (unsigned)__builtin_ctzll(range->bitmap[i]);
}

/* --- used pieces with tickets ----------------------------------------------------------------- */

static void claimed_link(umf_range_t *range, piece_t *piece) {
    piece->bin_prev = NULL;
    piece->bin_next = range->claimed;
    if (piece->bin_next) {
        piece->bin_next->bin_prev = piece;
    }
    range->claimed = piece;
}

static void claimed_unlink(umf_range_t *range, piece_t *piece) {
    *(piece->bin_prev ? &piece->bin_prev->bin_next : &range->claimed) = piece->bin_next;
    if (piece->bin_next) {
        piece->bin_next->bin_prev = piece->bin_prev;
    }
}

static bool is_parked(const piece_t *piece) {
    return __atomic_load_n(&piece->claim, __ATOMIC_RELAXED) & UMF_RANGE_PARKED;
}

/* From just this claim to none. false: it is another by now. */
static bool claim_end(umf_range_t *range, piece_t *piece, uint32_t claim) {
    uint32_t none = (claim | CLAIMED | UMF_RANGE_PARKED) + 1;
    if (!__atomic_compare_exchange_n(&piece->claim, &claim, none, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED)) {
        return false;
    }
    claimed_unlink(range, piece);
    return true;
}

/* Makes the ticket void, if there is one. false: the piece is parked. */
static bool claim_void(umf_range_t *range, piece_t *piece) {
    for (;;) {
        uint32_t claim = __atomic_load_n(&piece->claim, __ATOMIC_RELAXED);
        if (umf_likely(!(claim & CLAIMED))) {
            return true;
        }
        if (claim & UMF_RANGE_PARKED) {
            return false;
        }
        if (claim_end(range, piece, claim)) {
            return true;
        }
    }
}

/* --- used pieces by their start --------------------------------------------------------------- */

static piece_t **used_slot(piece_t **hash, size_t size, uintptr_t base) {
    uint64_t key = (uint64_t)base * UINT64_C(0x9E3779B97F4A7C15);
    return &hash[(key ^ (key >> 32)) & (size - 1)];
}

static piece_t *used_find(const umf_range_t *range, uintptr_t base) {
    piece_t *piece = *used_slot(range->hash, range->hash_size, base);
    while (piece && piece->base != base) {
        piece = piece->chain;
    }
    return piece;
}

/* A table that cannot grow only gets slower, so this does not fail. */
static UMF_COLD void used_rehash(umf_range_t *range) {
    size_t size = range->hash_size * 2;
    piece_t **hash = umf_meta_alloc(size * sizeof(*hash));
    if (!hash) {
        return;
    }
    for (size_t i = 0; i < range->hash_size; i++) {
        for (piece_t *piece = range->hash[i], *next; piece; piece = next) {
            next = piece->chain;
            piece_t **slot = used_slot(hash, size, piece->base);
            piece->chain = *slot;
            *slot = piece;
        }
    }
    umf_meta_free(range->hash, range->hash_size * sizeof(*hash));
    range->hash = hash;
    range->hash_size = size;
}

static void used_add(umf_range_t *range, piece_t *piece) {
    if (umf_unlikely(range->used_count >= range->hash_size)) {
        used_rehash(range);
    }
    piece_t **slot = used_slot(range->hash, range->hash_size, piece->base);
    piece->kind = RANGE_USED;
    piece->chain = *slot;
    *slot = piece;
    range->used_count++;
}

/* Finds and removes. `size` 0: any. NULL if there is no such piece, or it is parked. */
static piece_t *used_take(umf_range_t *range, uintptr_t base, size_t size) {
    piece_t **slot = used_slot(range->hash, range->hash_size, base);
    while (*slot && (*slot)->base != base) {
        slot = &(*slot)->chain;
    }
    piece_t *piece = *slot;
    if (!piece || (size && size != piece->size) || !claim_void(range, piece)) {
        return NULL;
    }
    *slot = piece->chain;
    range->used_count--;
    return piece;
}

/* --- spans ------------------------------------------------------------------------------------ */

/* The index of the first span that ends above `addr`. */
static size_t span_above(const umf_range_t *range, uintptr_t addr) {
    size_t low = 0, high = range->span_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (range->spans[middle]->base > addr) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static uintptr_t span_base(const piece_t *end) {
    return end->base - end->size;
}

static bool span_reserve(umf_range_t *range) {
    if (range->span_count < range->span_room) {
        return true;
    }
    size_t room = range->span_room ? range->span_room * 2 : 4;
    piece_t **spans = umf_meta_alloc(room * sizeof(*spans));
    if (!spans) {
        return false;
    }
    for (size_t i = 0; i < range->span_count; i++) {
        spans[i] = range->spans[i];
    }
    umf_meta_free(range->spans, range->span_room * sizeof(*spans));
    range->spans = spans;
    range->span_room = room;
    return true;
}

/* Is it all of its span? */
static bool is_span(const piece_t *piece) {
    return !piece->prev && piece->next->kind == RANGE_END;
}

/* The span's only piece if it is wholly free, else NULL. */
static piece_t *span_free_piece(const piece_t *end) {
    piece_t *piece = end->prev;
    return piece->kind == RANGE_FREE && !piece->prev ? piece : NULL;
}

umf_range_t *umf_range_create(void) {
    umf_range_t *range = umf_meta_alloc(sizeof(*range));
    if (!range) {
        return NULL;
    }
    range->hash = umf_meta_alloc(RANGE_FIRST_HASH * sizeof(*range->hash));
    range->hash_size = RANGE_FIRST_HASH;
    if (!range->hash) {
        umf_meta_free(range, sizeof(*range));
        return NULL;
    }
    return range;
}

void umf_range_destroy(umf_range_t *range) {
    for (range_slab_t *slab = range->slabs, *next; slab; slab = next) {
        next = slab->next;
        umf_meta_free(slab, slab->size);
    }
    umf_meta_free(range->hash, range->hash_size * sizeof(*range->hash));
    umf_meta_free(range->spans, range->span_room * sizeof(*range->spans));
    umf_meta_free(range, sizeof(*range));
}

umf_result_t umf_range_add(umf_range_t *range, uintptr_t base, size_t size) {
    uintptr_t end;
    if (size == 0 || __builtin_add_overflow(base, size, &end)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t at = span_above(range, base);
    if (at < range->span_count && span_base(range->spans[at]) < end) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!span_reserve(range) || !piece_reserve(range, 2)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    piece_t *piece = piece_new(range, base, size, RANGE_FREE);
    piece_t *last = piece_new(range, end, size, RANGE_END);
    piece_link(piece, last);
    bin_add(range, piece);
    for (size_t i = range->span_count++; i > at; i--) {
        range->spans[i] = range->spans[i - 1];
    }
    range->spans[at] = last;
    range->total_bytes += size;
    range->free_span_bytes += size;
    return UMF_RESULT_SUCCESS;
}

/* The end piece of the span that ends at `end`, NULL if there is none. */
static piece_t *span_end(const umf_range_t *range, uintptr_t end) {
    size_t at = end ? span_above(range, end - 1) : range->span_count;
    return at < range->span_count && range->spans[at]->base == end ? range->spans[at] : NULL;
}

size_t umf_range_free_tail(const umf_range_t *range, uintptr_t end) {
    const piece_t *last = span_end(range, end);
    return last && last->prev->kind == RANGE_FREE ? last->prev->size : 0;
}

umf_result_t umf_range_grow(umf_range_t *range, uintptr_t end, size_t more) {
    size_t at = end ? span_above(range, end - 1) : range->span_count;
    uintptr_t new_end;
    if (at == range->span_count || range->spans[at]->base != end || more == 0 ||
        __builtin_add_overflow(end, more, &new_end) ||
        (at + 1 < range->span_count && span_base(range->spans[at + 1]) < new_end)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    piece_t *last = range->spans[at];
    piece_t *piece = last->prev;
    if (piece->kind == RANGE_FREE) {
        bin_remove(range, piece);
        piece->size += more;
    } else {
        if (!piece_reserve(range, 1)) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        piece_t *added = piece_new(range, end, more, RANGE_FREE);
        piece_link(piece, added);
        piece_link(added, last);
        piece = added;
    }
    bin_add(range, piece);
    range->free_span_bytes += is_span(piece) ? more : 0;
    last->base = new_end;
    last->size += more;
    range->total_bytes += more;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_range_remove(umf_range_t *range, uintptr_t base) {
    size_t at = span_above(range, base);
    if (at == range->span_count || span_base(range->spans[at]) != base) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    piece_t *last = range->spans[at];
    piece_t *piece = span_free_piece(last);
    if (!piece) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    bin_remove(range, piece);
    range->total_bytes -= last->size;
    range->free_span_bytes -= last->size;
    piece_delete(range, piece);
    piece_delete(range, last);
    range->span_count--;
    for (size_t i = at; i < range->span_count; i++) {
        range->spans[i] = range->spans[i + 1];
    }
    return UMF_RESULT_SUCCESS;
}

/* --- alloc ------------------------------------------------------------------------------------ */

/* Bytes before the first multiple of `alignment`; SIZE_MAX if `size` bytes do not fit behind them.
 */
static size_t piece_gap(const piece_t *piece, size_t size, size_t alignment) {
    size_t rest = umf_likely(umf_is_pow2(alignment)) ? piece->base & (alignment - 1)
                                                     : piece->base % alignment;
    size_t gap = rest ? alignment - rest : 0;
    return piece->size >= size && piece->size - size >= gap ? gap : SIZE_MAX;
}

/* The smallest of the first `depth` pieces of a bin in which the request fits. */
static piece_t *bin_best(const umf_range_t *range, unsigned bin, size_t depth, size_t size,
                         size_t alignment) {
    piece_t *best = NULL;
    for (piece_t *piece = range->bins[bin]; piece && depth; piece = piece->bin_next, depth--) {
        if ((!best || piece->size < best->size) && piece_gap(piece, size, alignment) != SIZE_MAX) {
            best = piece;
            if (piece->size == size) {
                break;
            }
        }
    }
    return best;
}

static UMF_COLD piece_t *range_search_all(const umf_range_t *range, size_t size, size_t alignment) {
    for (unsigned bin = bin_next(range, bin_of(size)); bin < RANGE_BINS;
         bin = bin_next(range, bin + 1)) {
        piece_t *piece = bin_best(range, bin, SIZE_MAX, size, alignment);
        if (piece) {
            return piece;
        }
    }
    return NULL;
}

static piece_t *range_search(const umf_range_t *range, size_t size, size_t alignment) {
    unsigned bin = bin_of(size);
    size_t sure;
    unsigned sure_bin = umf_add(size, alignment - 1, &sure) ? bin_of(sure) + 1 : RANGE_BINS;
    for (bin = bin_next(range, bin); bin < sure_bin && bin < RANGE_BINS;
         bin = bin_next(range, bin + 1)) {
        piece_t *piece = bin_best(range, bin, RANGE_DEPTH, size, alignment);
        if (piece) {
            return piece;
        }
    }
    return bin < RANGE_BINS ? range->bins[bin] : range_search_all(range, size, alignment);
}

/* Makes what of `piece` lies beyond its first `size` bytes a free piece of its own. */
static void piece_cut(umf_range_t *range, piece_t *piece, size_t size) {
    piece_t *rest = piece_new(range, piece->base + size, piece->size - size, RANGE_FREE);
    piece_link(rest, piece->next);
    piece_link(piece, rest);
    piece->size = size;
    rest->age = piece->age;
    bin_add(range, rest);
}

umf_result_t umf_range_alloc(umf_range_t *range, size_t size, size_t alignment, uintptr_t *base) {
    if (size == 0 || alignment == 0) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    piece_t *piece = range_search(range, size, alignment);
    if (!piece) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (!piece_reserve(range, 2)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    bin_remove(range, piece);
    range->free_span_bytes -= is_span(piece) ? piece->size : 0;
    size_t gap = piece_gap(piece, size, alignment);
    if (gap) {
        piece_t *front = piece_new(range, piece->base, gap, RANGE_FREE);
        piece_link(piece->prev, front);
        piece_link(front, piece);
        piece->base += gap;
        piece->size -= gap;
        front->age = piece->age;
        bin_add(range, front);
    }
    if (piece->size > size) {
        piece_cut(range, piece, size);
    }
    used_add(range, piece);
    range->used_bytes += size;
    *base = piece->base;
    return UMF_RESULT_SUCCESS;
}

/* --- free, split, merge ----------------------------------------------------------------------- */

/* Two neighbours become one, the low one. */
static void piece_absorb(umf_range_t *range, piece_t *low, piece_t *high) {
    assert(low->next == high && high->prev == low && low->base + low->size == high->base);
    low->size += high->size;
    low->age = low->age == high->age ? low->age : RANGE_MET;
    piece_link(low, high->next);
    piece_delete(range, high);
}

/* One that is no longer among the used. `freed` may be NULL. */
static void piece_free(umf_range_t *range, piece_t *piece, range_age_t age,
                       umf_range_freed_t *freed) {
    size_t size = piece->size;
    range->used_bytes -= size;
    piece->kind = RANGE_FREE;
    piece->age = (uint8_t)age;
    if (piece->next->kind == RANGE_FREE) {
        bin_remove(range, piece->next);
        piece_absorb(range, piece, piece->next);
    }
    if (piece->prev && piece->prev->kind == RANGE_FREE) {
        piece = piece->prev;
        bin_remove(range, piece);
        piece_absorb(range, piece, piece->next);
    }
    bin_add(range, piece);
    bool whole_span = is_span(piece);
    range->free_span_bytes += whole_span ? piece->size : 0;
    if (freed) {
        *freed = (umf_range_freed_t){.size = size,
                                     .free_base = piece->base,
                                     .free_size = piece->size,
                                     .whole_span = whole_span};
    }
}

static umf_result_t range_free(umf_range_t *range, uintptr_t base, size_t size, range_age_t age,
                               umf_range_freed_t *freed) {
    piece_t *piece = used_take(range, base, size);
    if (!piece) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    piece_free(range, piece, age, freed);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_range_free(umf_range_t *range, uintptr_t base, size_t size,
                            umf_range_freed_t *freed) {
    return range_free(range, base, size, RANGE_FRESH, freed);
}

umf_result_t umf_range_free_clean(umf_range_t *range, uintptr_t base, size_t size,
                                  umf_range_freed_t *freed) {
    return range_free(range, base, size, RANGE_CLEAN, freed);
}

umf_result_t umf_range_split(umf_range_t *range, uintptr_t base, size_t total, size_t first) {
    piece_t *piece = used_find(range, base);
    if (!piece || piece->size != total || first == 0 || first >= total) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!piece_reserve(range, 1)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!claim_void(range, piece)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    piece_t *high = piece_new(range, base + first, total - first, RANGE_USED);
    piece_link(high, piece->next);
    piece_link(piece, high);
    piece->size = first;
    used_add(range, high);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_range_merge(umf_range_t *range, uintptr_t low, uintptr_t high, size_t total) {
    piece_t *first = used_find(range, low);
    if (!first || first->next->base != high || first->next->kind != RANGE_USED ||
        first->size + first->next->size != total || !claim_void(range, first) ||
        !used_take(range, high, 0)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    piece_absorb(range, first, first->next);
    return UMF_RESULT_SUCCESS;
}

/* --- parking ---------------------------------------------------------------------------------- */

umf_range_ticket_t umf_range_ticket(umf_range_t *range, uintptr_t base) {
    piece_t *piece = used_find(range, base);
    if (!piece || !claim_void(range, piece)) {
        return (umf_range_ticket_t){0};
    }
    uint32_t claim = __atomic_load_n(&piece->claim, __ATOMIC_RELAXED) | CLAIMED;
    __atomic_store_n(&piece->claim, claim, __ATOMIC_RELAXED);
    claimed_link(range, piece);
    return (umf_range_ticket_t){&piece->claim, claim};
}

/* Frees the piece if this is its claim still. */
static bool parked_free(umf_range_t *range, piece_t *piece, uint32_t claim) {
    if (!claim_end(range, piece, claim)) {
        return false;
    }
    piece_free(range, used_take(range, piece->base, 0), RANGE_FRESH, NULL);
    return true;
}

bool umf_range_ticket_end(umf_range_t *range, const umf_range_ticket_t *ticket) {
    piece_t *piece = UMF_CONTAINER_OF(ticket->claim, piece_t, claim);
    return !claim_end(range, piece, ticket->number) &&
           parked_free(range, piece, ticket->number | UMF_RANGE_PARKED);
}

size_t umf_range_reclaim(umf_range_t *range) {
    size_t count = 0;
    for (piece_t *piece = range->claimed, *next; piece; piece = next) {
        next = piece->bin_next;
        uint32_t claim = __atomic_load_n(&piece->claim, __ATOMIC_RELAXED);
        count += (claim & UMF_RANGE_PARKED) && parked_free(range, piece, claim);
    }
    return count;
}

/* --- what there is ---------------------------------------------------------------------------- */

size_t umf_range_used_size(const umf_range_t *range, uintptr_t base) {
    const piece_t *piece = used_find(range, base);
    return piece && !is_parked(piece) ? piece->size : 0;
}

size_t umf_range_free_spans(const umf_range_t *range,
                            void (*visit)(uintptr_t base, size_t size, void *arg), void *arg) {
    size_t count = 0;
    for (size_t i = 0; i < range->span_count; i++) {
        const piece_t *piece = span_free_piece(range->spans[i]);
        if (piece) {
            count++;
            if (visit) {
                visit(piece->base, piece->size, arg);
            }
        }
    }
    return count;
}

void umf_range_free_pieces(const umf_range_t *range,
                           void (*visit)(uintptr_t base, size_t size, void *arg), void *arg) {
    for (unsigned bin = bin_next(range, 0); bin < RANGE_BINS; bin = bin_next(range, bin + 1)) {
        for (const piece_t *piece = range->bins[bin]; piece; piece = piece->bin_next) {
            visit(piece->base, piece->size, arg);
        }
    }
}

/* Which free pieces are taken. */
typedef bool (*piece_choice_t)(piece_t *piece);

static bool piece_is_any(piece_t *piece) {
    (void)piece;
    return true;
}

static bool piece_is_idle(piece_t *piece) {
    bool is_idle = piece->age == RANGE_MET;
    piece->age = piece->age == RANGE_FRESH ? RANGE_MET : piece->age;
    return is_idle;
}

static size_t span_take(umf_range_t *range, const piece_t *end, uintptr_t *cursor, size_t min,
                        piece_choice_t choice, umf_range_piece_t *pieces, size_t n) {
    size_t count = 0;
    for (piece_t *piece = end->prev; piece && count < n; piece = piece->prev) {
        if (piece->kind == RANGE_FREE && piece->base < *cursor && piece->size >= min &&
            choice(piece)) {
            bin_remove(range, piece);
            range->free_span_bytes -= is_span(piece) ? piece->size : 0;
            used_add(range, piece);
            range->used_bytes += piece->size;
            pieces[count++] = (umf_range_piece_t){piece->base, piece->size};
        }
    }
    *cursor = count == n ? pieces[n - 1].base : span_base(end);
    return count;
}

static size_t range_take(umf_range_t *range, uintptr_t *cursor, size_t min, piece_choice_t choice,
                         umf_range_piece_t *pieces, size_t n) {
    size_t count = 0;
    size_t at = *cursor ? span_above(range, *cursor - 1) + 1 : 0;
    for (at = at < range->span_count ? at : range->span_count; at > 0 && count < n; at--) {
        if (span_base(range->spans[at - 1]) < *cursor) {
            count += span_take(range, range->spans[at - 1], cursor, min, choice, &pieces[count],
                               n - count);
        }
    }
    return count;
}

size_t umf_range_take_free(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_piece_t *pieces, size_t n) {
    return range_take(range, cursor, min, piece_is_any, pieces, n);
}

size_t umf_range_take_idle(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_piece_t *pieces, size_t n) {
    return range_take(range, cursor, min, piece_is_idle, pieces, n);
}

size_t umf_range_used_bytes(const umf_range_t *range) {
    return range->used_bytes;
}

size_t umf_range_total_bytes(const umf_range_t *range) {
    return range->total_bytes;
}

size_t umf_range_free_span_bytes(const umf_range_t *range) {
    return range->free_span_bytes;
}

size_t umf_range_span_count(const umf_range_t *range) {
    return range->span_count;
}

typedef struct range_tally_t {
    size_t used, used_bytes, total_bytes, free_span_bytes, free;
} range_tally_t;

static bool span_is_valid(const umf_range_t *range, const piece_t *end, range_tally_t *tally) {
    uintptr_t expected = end->base;
    for (const piece_t *piece = end->prev; piece; piece = piece->prev) {
        bool is_free = piece->kind == RANGE_FREE;
        bool linked = piece->next && piece->next->prev == piece;
        if (!linked || piece->size == 0 || piece->base + piece->size != expected ||
            (is_free && piece->next->kind == RANGE_FREE) ||
            (!is_free && used_find(range, piece->base) != piece)) {
            return false;
        }
        expected = piece->base;
        tally->free += is_free;
        tally->used += !is_free;
        tally->used_bytes += is_free ? 0 : piece->size;
    }
    tally->total_bytes += end->size;
    tally->free_span_bytes += span_free_piece(end) ? end->size : 0;
    return expected == span_base(end);
}

static void tally_bin_piece(uintptr_t base, size_t size, void *arg) {
    (void)base;
    (void)size;
    ((range_tally_t *)arg)->free--;
}

bool umf_range_is_valid(const umf_range_t *range) {
    range_tally_t tally = {0};
    for (size_t i = 0; i < range->span_count; i++) {
        if ((i > 0 && range->spans[i - 1]->base > span_base(range->spans[i])) ||
            !span_is_valid(range, range->spans[i], &tally)) {
            return false;
        }
    }
    umf_range_free_pieces(range, tally_bin_piece, &tally);
    return tally.free == 0 && tally.used == range->used_count &&
           tally.used_bytes == range->used_bytes && tally.total_bytes == range->total_bytes &&
           tally.free_span_bytes == range->free_span_bytes;
}
