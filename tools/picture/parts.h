/*
 * Definitions shared by the parts of the picture's writer. Events are gone through twice: the first
 * time to find the large objects (measure.c), the second to fill bins (timeline.c), cells (cells.c)
 * and moments (moments.c). Sums are unsigned and may wrap: a damaged file makes a wrong picture,
 * nothing worse.
 */
#ifndef UMF_PICTURE_PARTS_H
#define UMF_PICTURE_PARTS_H

#include "json.h"

#define PICTURE_POOLS 20u    /* that have a series of their own */
#define PICTURE_BYTES 192u   /* sites that do because of their bytes */
#define PICTURE_SITES 256u   /* and these with the others, because of their number */
#define PICTURE_BINS 2000u   /* of pools, and of sites if they are few */
#define PICTURE_MAPS 8u      /* pools with an address map */
#define PICTURE_SPANS 512u   /* of a map */
#define PICTURE_CELLS 4096u  /* of a map */
#define PICTURE_FRAMES 40u   /* of a map, and one for each refusal */
#define PICTURE_RANGES 8192u /* of a pool that are known */
#define PICTURE_ARENAS 8u    /* pools with pages */
#define PICTURE_SUMS 4u      /* of their pages */
#define PICTURE_MARKS 300u   /* of a kind */
#define PICTURE_ALLOCS 2000u
#define PICTURE_FIRST 6u /* refusals that are listed, the first and */
#define PICTURE_LAST 4u  /* the last */

/* Addresses of a pool: a span, or where allocations were seen of which no span is known. */
typedef struct picture_range_t {
    uint64_t base, size;
    uint64_t held; /* of a span: from the provider at this time */
    uint32_t flags;
    uint32_t first, cells; /* in the map; 0 cells: not drawn */
    bool is_span, joins;   /* with those that it touches */
} picture_range_t;

typedef struct picture_ranges_t {
    picture_range_t *list; /* by address */
    size_t count, room, last;
    uint64_t left, left_bytes; /* without room, or not drawn */
} picture_ranges_t;

typedef struct picture_object_t {
    uint64_t live, held, peak_live, peak_held;
    uint32_t slot;
    bool is_used;      /* something refers to it */
    bool is_suspended; /* at this time */
    bool has_pages;    /* an arena; */
    bool has_sums;     /* the sums of its pages are known */
    struct picture_map_t *map;
    picture_ranges_t ranges;
} picture_object_t;

typedef struct picture_site_t {
    uint32_t object, stack, slot;
    uint64_t bytes, count, peak_bytes, peak_count;
} picture_site_t;

typedef struct picture_frame_t {
    int64_t t;
    const char *live, *cached, *unknown, *there; /* NULL: no such */
    uint64_t held, live_bytes, cached_bytes, unknown_bytes, largest;
    bool knows_largest, is_exact, is_suspended;
} picture_frame_t;

typedef struct picture_map_t {
    uint32_t object;
    uint64_t cell;
    uint32_t cells;
    uint64_t *part; /* bytes of cells that are partly covered */
    uint64_t *full; /* differences of how often a cell is covered wholly */
    picture_frame_t frames[PICTURE_FRAMES + PICTURE_FIRST + PICTURE_LAST + 3];
    size_t frame_count;
} picture_map_t;

/* A pool with pages. */
typedef struct picture_arena_t {
    uint32_t object, slot;
    uint64_t now[PICTURE_SUMS];
    uint64_t *bins; /* a row for each sum */
} picture_arena_t;

typedef struct picture_mark_t {
    int64_t t;
    umf_record_event_kind_t kind;
    uint32_t object;
    uint64_t size, address;
} picture_mark_t;

typedef struct picture_refusal_t {
    int64_t t;
    bool is_pool;
    uint32_t object;
    uint64_t requested, held, live, count, total, largest;
    bool knows_largest;
    uint32_t pools[3], sites[5]; /* the largest, and what they had */
    uint64_t pool_live[3], pool_held[3], site_bytes[5];
} picture_refusal_t;

typedef struct picture_t {
    umf_reader_t *reader;
    const umf_reader_info_t *info;
    umf_reader_error_t *error;
    picture_out_t *out;
    void *memory; /* all that picture_take gave, chained */
    bool has_failed;
    int64_t origin;  /* of the times in the picture */
    uint64_t length; /* in ns, at least 1 */
    picture_object_t *objects;
    picture_site_t *sites;
    uint32_t site_count, site_room;
    uint32_t pools[PICTURE_POOLS], pool_count; /* by slot; the slot after them is for the others */
    uint32_t site_of[PICTURE_SITES], slot_count;
    uint32_t site_bins;
    uint64_t live; /* of all */
    uint64_t pool_now[2][PICTURE_POOLS + 1],
        site_now[2][PICTURE_SITES + 1];             /* live, held; bytes, count */
    uint64_t *pool_bins[2], *site_bins_of[2], *top; /* a row of bins for each slot */
    uint32_t pool_bin, site_bin; /* the bins that are open, and whether they have their values */
    bool is_pool_bin_set, is_site_bin_set, has_peak;
    picture_arena_t arenas[PICTURE_ARENAS];
    uint32_t arena_count;
    picture_map_t *maps[PICTURE_MAPS];
    uint32_t map_count, next_frame;
    uint64_t kinds[UMF_READER_KIND_LAST + 1], seen[UMF_READER_KIND_LAST + 1];
    uint64_t refused, refused_seen;
    picture_mark_t *marks;
    size_t mark_count;
    picture_refusal_t refusals[PICTURE_FIRST + PICTURE_LAST];
    size_t refusal_count;
    uint32_t *stack_of, *stacks, stack_count; /* numbers in the picture, and back */
    umf_reader_total_t total;
} picture_t;

/* Zeroed memory that lives as long as the picture; NULL: there is none, which `has_failed` keeps.
 */
void *picture_take(picture_t *picture, size_t count, size_t size);
void picture_free_all(picture_t *picture);

/* One way through all events. Functions may be NULL. `changed` is called when something begins
 * (`is_more`) or ceases to live, `before` and `after` for each event. */
typedef struct picture_visitor_t {
    void (*before)(picture_t *picture, const umf_reader_event_t *event);
    void (*changed)(picture_t *picture, const umf_reader_live_t *what, bool is_more);
    void (*after)(picture_t *picture, umf_reader_replay_t *replay, const umf_reader_event_t *event);
    void (*end)(picture_t *picture, umf_reader_replay_t *replay);
} picture_visitor_t;

bool picture_visit(picture_t *picture, const picture_visitor_t *visitor);

/* Finds the large objects. */
bool picture_measure(picture_t *picture);

void picture_timeline_prepare(picture_t *picture);
void picture_timeline_before(picture_t *picture, int64_t t);
void picture_timeline_after(picture_t *picture);
void picture_timeline_set(picture_t *picture);
void picture_timeline_end(picture_t *picture);
void picture_timeline_write(picture_t *picture);

/* Pages of arenas; their bins are those of pools. */
void picture_pages_prepare(picture_t *picture);
void picture_pages_event(picture_t *picture, umf_reader_replay_t *replay,
                         const umf_reader_event_t *event);
void picture_pages_set(picture_t *picture, uint32_t bin);
void picture_pages_write(picture_t *picture);

/* Ranges of addresses. */
void picture_ranges_add(picture_t *picture, picture_ranges_t *ranges, picture_range_t range);
void picture_ranges_see(picture_t *picture, picture_ranges_t *ranges, uint64_t address,
                        uint64_t size);
picture_range_t *picture_ranges_find(picture_ranges_t *ranges, uint64_t address);

/* Cells of an address map. */
picture_map_t *picture_map_make(picture_t *picture, uint32_t object);
void picture_cells_clear(picture_map_t *map);
void picture_cells_add(picture_map_t *map, const picture_range_t *range, uint64_t address,
                       uint64_t size, bool is_more);
const char *picture_cells_levels(picture_t *picture, const picture_map_t *map);

/* Maps out of events, and out of a snapshot. */
void picture_maps_prepare(picture_t *picture);
void picture_maps_event(picture_t *picture, const umf_reader_event_t *event);
void picture_maps_change(picture_t *picture, const umf_reader_live_t *what, bool is_more);
void picture_maps_before(picture_t *picture, int64_t t);
void picture_maps_frame(picture_t *picture, int64_t t);
void picture_maps_snapshot(picture_t *picture);
void picture_maps_write(picture_t *picture);

/* Marks and refusals. */
void picture_moments_prepare(picture_t *picture);
void picture_moments_event(picture_t *picture, umf_reader_replay_t *replay,
                           const umf_reader_event_t *event);
void picture_moments_write(picture_t *picture);

/* Makes a moment one that the picture shows as it was, in its bin and as a frame of maps. */
void picture_moment(picture_t *picture, int64_t t);

/* Allocations that live at the end. */
void picture_allocs_write(picture_t *picture, umf_reader_replay_t *replay);

/* The number of a stack or object in the picture; -1: none. */
int64_t picture_stack(picture_t *picture, uint32_t stack);
int64_t picture_name(picture_t *picture, uint32_t object);
void picture_names_write(picture_t *picture);

#endif
