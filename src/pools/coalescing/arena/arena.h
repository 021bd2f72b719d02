/*
 * Arena: a coalescing pool over one range of addresses, whose pages move. A free page of physical
 * memory is *donated*: mapped where a block needs it, while its old address goes.
 *
 * Blocks are cut out of segments (segments.h), best fit. Where no free segment fits, the block gets
 * the place that lacks the fewest pages, and these come from the first of: spare pages; new ones,
 * while the arena holds less than its highest use and a margin; whole free pages of other
 * places; new ones.
 *
 * A donated page is mapped at its new place at once, although queued work may still use it at the
 * old one: the work that uses the new place is put in order behind it (queues.c). The old mapping
 * is stale until that work has completed; then it is removed.
 *
 * Whatever calls the provider is done by the thread with the driver lock, and without other locks;
 * only the end of a description (share.c) needs no driver lock. What it works on is BUSY meanwhile,
 * and it alone counts the mappings of pages. Files: take.c serves requests, place.c finds a place
 * and maps what it lacks, pages.c has the pages, donates, and removes stale mappings, pieces.c
 * takes the memory away for a suspend, share.c describes blocks for other processes, callbacks.c
 * calls the program's, record.c emits sums for recordings, queues.c orders queues, trim.c returns
 * memory, pool.c has the other operations, settings.c the counters.
 */
#ifndef UMF_SRC_POOLS_COALESCING_ARENA_ARENA_H
#define UMF_SRC_POOLS_COALESCING_ARENA_ARENA_H

#include "cache/transit.h"
#include "ds/hash.h"
#include "object/content.h"
#include "object/provider/tracked_range.h"
#include "pools/coalescing/arena/segments.h"
#include "pools/coalescing/coalescing.h"
#include "system/atomic.h"

/* A piece (pieces.c) is at most so many times as large as the next new page: a page moves as a
 * whole, so one that is too large stays. */
#define UMF_ARENA_PAGES_OF_PIECE 4u
/* Units of the largest page: of the largest new ones, after a suspend. */
#define UMF_ARENA_PAGE_UNITS (8u * UMF_ARENA_PAGES_OF_PIECE)
/* Blocks from this size on are in the large area, others in pages of their own. */
#define UMF_ARENA_SMALL ((size_t)256 << 10)

enum { UMF_ARENA_LARGE, UMF_ARENA_LITTLE, UMF_ARENA_AREAS };

/* One page of physical memory. */
typedef struct umf_arena_page_t {
    umf_vm_page_t memory;
    uintptr_t home;      /* where it is mapped; of a spare one: nothing */
    size_t mappings;     /* there, and at old places. Sync: driver lock */
    bool is_fixed;       /* it stays there: a graph has its address */
    bool is_shared;      /* others reach it, by a DMA buffer: it is never mapped elsewhere */
    uint64_t generation; /* of the block at its home */
    bool is_doomed;      /* it is released with its last mapping */
    umf_uses_t uses;     /* of a spare one; kept at its home, which a callback may refuse */
    struct umf_arena_page_t *next;
} umf_arena_page_t;

/* Adjacent pages, in a suspend (pieces.c). Sync: the lock; the thread with the driver lock changes
 * its pages. */
typedef struct umf_arena_piece_t {
    uintptr_t base;
    size_t size;
    size_t blocks;           /* that lie in it, at least in part; of a fixed one 1 */
    bool is_fixed;           /* all of its pages are */
    bool is_claimed;         /* it belongs to a suspend */
    bool is_attached;        /* its memory is mapped */
    umf_arena_page_t *pages; /* that have memory and are not mapped, in their order */
} umf_arena_piece_t;

/* An old mapping. */
typedef struct umf_arena_stale_t {
    struct umf_arena_stale_t *next;
    umf_segments_t *area;
    umf_segment_t *segment;
    bool is_trimmed; /* a trim came after it */
    bool is_told;    /* to callbacks. Sync: driver lock */
    size_t room, count;
    umf_arena_page_t *pages[];
} umf_arena_stale_t;

typedef struct umf_arena_mark_t {
    void *mark;
    uint64_t count; /* all frees up to it */
    bool is_of_all; /* of the device, not of the queue */
} umf_arena_mark_t;

/* Of one queue: the host is so many marks ahead of the device before it waits. */
#define UMF_ARENA_MARKS 1024u

typedef enum umf_arena_queue_state_t {
    UMF_ARENA_QUEUE_UNUSED,
    UMF_ARENA_QUEUE_OPEN,
    UMF_ARENA_QUEUE_ENDED, /* its last mark stands behind all */
    UMF_ARENA_QUEUE_LOST,  /* it was destroyed: only the whole device can be marked */
} umf_arena_queue_state_t;

/* Sync: the arena's lock, but for marks. */
typedef struct umf_arena_queue_t {
    umf_arena_queue_state_t state;
    void *handle;
    uint64_t id, thread;     /* of the provider; the only thread that may mark it, 0: any */
    uint64_t freed;          /* the count of its last free */
    uint64_t passed;         /* so far it has come */
    unsigned pins;           /* calls that use the number */
    size_t named;            /* live blocks that name it: it may use them until they are freed */
    umf_arena_mark_t *marks; /* oldest first. Sync: driver lock, as the next two */
    unsigned mark_count, mark_room;
    uint64_t follows[UMF_USES_QUEUES]; /* so far it is in order behind each other queue */
} umf_arena_queue_t;

/* Bytes of pages, as a recording shows them. */
typedef struct umf_arena_sums_t {
    size_t held, spare, stale, donated;
} umf_arena_sums_t;

typedef struct umf_arena_t {
    umf_coalescing_pool_params_t params; /* first, as fields require. Immutable once sealed */
    bool sealed;
    umf_tracked_provider_t *tracked;
    umf_tracked_ops_t provider; /* operations that are called directly. Immutable */
    umf_content_t content;
    umf_transit_t transit;
    void *base; /* the range. Immutable, as the next */
    size_t size, unit;
    _Atomic(uint64_t) inside; /* the thread that calls callbacks, with the driver lock; 0: none */
    _Atomic(unsigned) driver_lock; /* umf_fork_count() + 1 while a thread has it */
    umf_lock_t lock;
    umf_segments_t areas[UMF_ARENA_AREAS]; /* Sync: lock, as all that follows */
    uintptr_t small_base;                  /* Immutable */
    umf_hash_t blocks;                     /* segments of live blocks, by address */
    umf_hash_t slots;                      /* pages by the units of addresses they are mapped at */
    umf_arena_page_t *spare;
    size_t spare_bytes;
    umf_arena_stale_t *stale, **stale_end; /* oldest first */
    size_t stale_bytes;
    bool is_lossy;             /* mapped addresses are in no list: they stay mapped */
    size_t live, live_peak;    /* bytes of blocks */
    size_t exported;           /* blocks with descriptions */
    size_t held, held_peak;    /* bytes of pages */
    size_t donated;            /* bytes, so far */
    umf_arena_sums_t recorded; /* that a recording has */
    uint64_t clock;            /* frees so far */
    umf_arena_piece_t *pieces; /* by address, during a suspend */
    size_t piece_count, piece_room;
    size_t claimed;         /* pieces. While there are any no page moves, is made or released */
    size_t promised;        /* segments of each area, for the release of pieces */
    unsigned queues_opened; /* the largest number that a queue has had; numbers begin at 1 */
    umf_arena_queue_t queues[UMF_USES_QUEUES];
} umf_arena_t;

/* May the queue use the memory now? (queues.c) */
bool umf_arena_is_ordered_locked(const umf_arena_t *arena, const umf_uses_t *uses, unsigned queue);

/* A request. */
typedef struct umf_arena_request_t {
    size_t size; /* in granules */
    size_t alignment;
    unsigned queue; /* UMF_USES_DEVICE: none */
    bool is_captured;
    bool only_ordered; /* only memory behind whose work the queue is in order already */
    bool at_tail;      /* behind all blocks, where pages of all sizes fit */
} umf_arena_request_t;

static inline umf_segments_t *umf_arena_area(umf_arena_t *arena, uintptr_t base) {
    return &arena->areas[base >= arena->small_base ? UMF_ARENA_LITTLE : UMF_ARENA_LARGE];
}

/* May the request have memory that these use? */
static inline bool umf_arena_may_use_locked(const umf_arena_t *arena, const umf_uses_t *uses,
                                            const umf_arena_request_t *request) {
    return !request->only_ordered || umf_arena_is_ordered_locked(arena, uses, request->queue);
}

/* --- the driver lock (no other lock is held) --- */

void umf_arena_driver_lock(umf_arena_t *arena);
bool umf_arena_driver_try_lock(umf_arena_t *arena);
void umf_arena_driver_unlock(umf_arena_t *arena);

/* --- take.c --- */

/* A block for the request, whose size and alignment are completed. NULL: the reason is the thread's
 * last error. No lock held. */
void *umf_arena_alloc(umf_arena_t *arena, size_t size, umf_arena_request_t *request);
/* Takes the request out of a free segment, at its alignment. NULL: no memory for bookkeeping. */
umf_segment_t *umf_arena_take_locked(umf_arena_t *arena, umf_segments_t *area, umf_segment_t *from,
                                     const umf_arena_request_t *request);
/* The block becomes a free segment. */
void umf_arena_free_locked(umf_arena_t *arena, umf_segment_t *block);

/* --- share.c --- */

umf_result_t umf_arena_get_handle(void *self, const void *ptr, void *data, umf_pool_export_t *made);
/* The block is about to lose its pages, its end, or its life: its descriptions end. The lock, which
 * is held, is released meanwhile. Returns the block, NULL if it is gone. */
umf_segment_t *umf_arena_unshare_locked(umf_arena_t *arena, umf_segment_t *block);
/* The same of all blocks in a range. No lock held. */
void umf_arena_unshare(umf_arena_t *arena, uintptr_t base, size_t size);
/* A DMA buffer of the range is made: its holder can reach the pages. */
void umf_arena_share(void *self, const void *ptr, size_t size);

/* --- place.c --- */

/* Makes a block where nothing free fits. NULL: there is no memory, or no place. Driver lock held.
 */
umf_segment_t *umf_arena_grow(umf_arena_t *arena, const umf_arena_request_t *request);
/* --- pages.c --- */

static inline umf_arena_page_t *umf_arena_page_at(const umf_arena_t *arena, uintptr_t at) {
    return (umf_arena_page_t *)umf_hash_get(&arena->slots, at / arena->unit);
}

/* Whole free pages of other places become spare, at least so many bytes if there are, and at most
 * `most`. Driver lock held. Returns bytes. */
size_t umf_arena_donate_locked(umf_arena_t *arena, size_t bytes, size_t most,
                               const umf_arena_request_t *request);
/* Releases a page that is mapped nowhere. */
void umf_arena_page_unmake(umf_arena_t *arena, umf_arena_page_t *page);
/* Makes a spare page. Driver lock held. */
umf_result_t umf_arena_page_make(umf_arena_t *arena, size_t size);
/* The size of the next new page, at most `most` bytes. */
size_t umf_arena_page_size_locked(const umf_arena_t *arena, size_t most);
/* Removes stale mappings whose work has completed; `waits`: all of them. If only trims remove
 * mappings, those from before the last one. Driver lock held. */
void umf_arena_settle(umf_arena_t *arena, bool waits);
/* The oldest one. false: none was removed. */
bool umf_arena_settle_one(umf_arena_t *arena, bool waits);
/* One page is mapped at a segment which is about to be stale. false: no memory. */
bool umf_arena_stale_add_locked(umf_arena_t *arena, umf_segments_t *area, umf_segment_t *segment,
                                umf_arena_page_t *page);
/* Releases spare and whole free pages beyond `keep` free bytes; those in use by work later.
 * Driver lock held. */
void umf_arena_release(umf_arena_t *arena, size_t keep);
/* The pages under a range stay where they are from now on. Where there is none, nothing happens. */
void umf_arena_fix_locked(umf_arena_t *arena, uintptr_t base, size_t size);
/* They stay, or are released. */
void umf_arena_share_locked(umf_arena_t *arena, uintptr_t base, size_t size);
/* The page is at this address, mapped once more. Room in `slots` is reserved. */
void umf_arena_enter_locked(umf_arena_t *arena, umf_arena_page_t *page, uintptr_t at);
/* It is not there, nor mapped. */
void umf_arena_remove_locked(umf_arena_t *arena, umf_arena_page_t *page);
/* --- callbacks (umf/registration.h). Driver lock held --- */
/* Does this thread call them now? Then it must not wait for the driver lock. */
bool umf_arena_is_inside(const umf_arena_t *arena);
/* The page is at its home. Anything but success: a callback refuses it. */
umf_result_t umf_arena_tell_mapped(umf_arena_t *arena, const umf_arena_page_t *page);
void umf_arena_tell_unmapping(umf_arena_t *arena, const umf_arena_page_t *page, uintptr_t at);
/* The pages of old mappings are about to be mapped elsewhere, or released. */
void umf_arena_tell_left(umf_arena_t *arena);
void umf_arena_tell_stale(umf_arena_t *arena, umf_arena_stale_t *stale);
void umf_arena_each_page(void *self, umf_part_visit_t visit, void *arg);
/* For all pages, at the end. */
void umf_arena_tell_all(umf_arena_t *arena);
/* Unmaps and releases everything. No other thread uses the arena. */
umf_result_t umf_arena_unmap_all(umf_arena_t *arena);

/* --- pieces.c --- */

extern const umf_pool_pieces_ops_t umf_arena_pieces;

static inline uintptr_t umf_arena_piece_end(const umf_arena_piece_t *piece) {
    return piece->base + piece->size;
}

/* NULL: none holds the address. */
umf_arena_piece_t *umf_arena_piece_locked(const umf_arena_t *arena, uintptr_t at);

/* A block was made or freed in pieces. */
void umf_arena_pieces_count_locked(umf_arena_t *arena, uintptr_t base, uintptr_t end, bool more);
/* Tells the suspend of pieces in these addresses that have lost their last block. No lock held. */
void umf_arena_pieces_tell(umf_arena_t *arena, uintptr_t base, uintptr_t end);
/* The end of an arena whose memory is away. */
void umf_arena_pieces_fini(umf_arena_t *arena);

/* --- pieces_memory.c: as of umf/plugin.h --- */

umf_result_t umf_arena_vm_detach(void *self, void *const *bases, size_t count);
umf_result_t umf_arena_vm_create(void *self, void *const *bases, size_t count, size_t *missing);
/* After a failure the caller detaches the attached pages, or attaches the rest later. */
umf_result_t umf_arena_vm_attach(void *self, void *const *bases, size_t count);
/* Destroys a list of unmapped pages. One that the provider does not take back is lost. Returns the
 * first failure. */
umf_result_t umf_arena_pages_destroy(umf_arena_t *arena, umf_arena_page_t *pages);

/* --- record.c --- */

/* Tells a recording of sums that have changed. Driver lock held, no other. */
void umf_arena_record_sums(umf_arena_t *arena);
/* A recording of the pool begins. */
void umf_arena_recorded(void *self);

/* --- queues.c --- */

/* The number of a queue, which the provider returns. It is pinned until umf_arena_unpin.
 * Errors are logged. */
umf_result_t umf_arena_queue(umf_arena_t *arena, void *handle, unsigned *queue, bool *is_captured);
void umf_arena_unpin(umf_arena_t *arena, unsigned queue);
/* A live block names the queue, until its free. Only these functions change what it names: a block
 * that is allocated names none. */
void umf_arena_name_locked(umf_arena_t *arena, umf_segment_t *block, unsigned queue);
void umf_arena_unname_locked(umf_arena_t *arena, const umf_segment_t *block);
/* Has all work of these queues completed? */
bool umf_arena_is_idle_locked(const umf_arena_t *arena, const umf_uses_t *uses);
/* Asks how far these queues are, and marks them if `marks`. `waits`: until they have come as far.
 * Driver lock held. */
void umf_arena_look(umf_arena_t *arena, const umf_uses_t *uses, bool marks, bool waits);
/* Puts what follows on the queue behind them: by their marks, else the host waits. false: that is
 * not possible now. Driver lock held. */
bool umf_arena_order(umf_arena_t *arena, const umf_uses_t *uses, unsigned queue);
/* Asks how far all queues with marks are. Driver lock held. */
void umf_arena_poll(umf_arena_t *arena);
/* The queue ends. Driver lock held. */
void umf_arena_queue_ends(umf_arena_t *arena, unsigned queue);
/* Ends all marks, after all work has completed. */
void umf_arena_queues_fini(umf_arena_t *arena);
void umf_arena_queues_free(umf_arena_t *arena);

/* --- settings.c --- */

void umf_arena_walk(void *self, const umf_span_t *span, struct umf_walk_t *walk);
umf_result_t umf_arena_ctl(void *self, umf_ctl_query_source_t source, const char *name, void *arg,
                           size_t size, umf_ctl_query_type_t type, va_list args);

/* --- trim.c: operations of the pool. Without effect inside a callback of this thread. --- */

umf_result_t umf_arena_trim(void *self, size_t keep);
void umf_arena_tick(void *self);
size_t umf_arena_pending(void *self, bool waits);

/* --- pool.c: for the coalescing pool --- */

extern const umf_pool_variant_t umf_arena_variant;

#endif
