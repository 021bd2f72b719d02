/* A replay: who has what, event by event. */
#include <stdlib.h>
#include <string.h>

#include "live_table.h"
#include "own.h"

#define NO_SITE UINT32_MAX

/* The moments that are kept: at which peak and which refusal the figures of a use were frozen. */
typedef struct moments_t {
    uint64_t peak, refusal;
} moments_t;

typedef struct site_t {
    umf_reader_site_t known;
    moments_t frozen;
    uint32_t life;      /* of the object, when the site was made */
    uint32_t next_site; /* of the same object; NO_SITE: the last */
    uint32_t next_in_bucket;
} site_t;

typedef struct object_t {
    umf_reader_object_use_t known;
    moments_t frozen;
    uint32_t life;       /* how often it was destroyed */
    uint32_t first_site; /* of this life; NO_SITE: none */
} object_t;

/* The last free of a thread, should it be refused. */
typedef struct last_free_t {
    umf_reader_live_t what; /* address 0: none */
    bool was_known;
} last_free_t;

struct umf_reader_replay_t {
    const umf_reader_t *reader;
    umf_reader_total_t total;
    moments_t moments;
    live_table_t live, provided;
    object_t *objects;
    site_t *sites;
    uint32_t site_count, site_room;
    uint32_t *buckets; /* of sites; their number is site_room */
    last_free_t *last_frees;
    umf_reader_cursor_t *cursor; /* of umf_reader_replay_run */
    umf_reader_event_t pending;
    bool has_pending;
};

/* --- use -------------------------------------------------------------------------------------- */

/*
 * Nothing is copied when a moment comes: a use keeps its figures of the last moment when it
 * changes for the first time after it.
 */
static void freeze(umf_reader_use_t *use, moments_t *frozen, const moments_t *now) {
    if (frozen->peak != now->peak) {
        use->peak_bytes = use->bytes;
        use->peak_count = use->count;
        frozen->peak = now->peak;
    }
    if (frozen->refusal != now->refusal) {
        use->refused_bytes = use->bytes;
        use->refused_count = use->count;
        frozen->refusal = now->refusal;
    }
}

static void add_use(umf_reader_use_t *use, uint64_t bytes) {
    use->bytes += bytes;
    use->count++;
}

static void sub_use(umf_reader_use_t *use, uint64_t bytes) {
    use->bytes -= bytes;
    use->count--;
}

static void see_peaks(umf_reader_replay_t *replay, object_t *object) {
    umf_reader_total_t *total = &replay->total;
    if (total->use.bytes > total->use.peak_bytes) {
        total->use.peak_bytes = total->use.bytes;
        total->use.peak_count = total->use.count;
        total->peak_ns = total->now;
        replay->moments.peak++;
    }
    if (object->known.use.bytes > object->known.own_peak) {
        object->known.own_peak = object->known.use.bytes;
        object->known.own_peak_ns = total->now;
    }
}

/* --- sites ------------------------------------------------------------------------------------ */

static uint32_t bucket_of(const umf_reader_replay_t *replay, uint32_t object, uint32_t stack) {
    uint64_t key = (uint64_t)object << 32 | stack;
    return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (replay->site_room - 1);
}

static void put_in_bucket(umf_reader_replay_t *replay, uint32_t site) {
    const umf_reader_site_t *known = &replay->sites[site].known;
    uint32_t *bucket = &replay->buckets[bucket_of(replay, known->object, known->stack)];
    replay->sites[site].next_in_bucket = *bucket;
    *bucket = site;
}

static bool grow_sites(umf_reader_replay_t *replay) {
    uint32_t room = replay->site_room ? 2 * replay->site_room : 256;
    site_t *sites = realloc(replay->sites, room * sizeof(*sites));
    replay->sites = sites ? sites : replay->sites;
    uint32_t *buckets = sites ? realloc(replay->buckets, room * sizeof(*buckets)) : NULL;
    if (!buckets) {
        return false;
    }
    replay->buckets = buckets;
    replay->site_room = room;
    memset(buckets, 0xff, room * sizeof(*buckets));
    for (uint32_t site = 0; site < replay->site_count; site++) {
        put_in_bucket(replay, site);
    }
    return true;
}

static uint32_t make_site(umf_reader_replay_t *replay, uint32_t object, uint32_t stack) {
    if (replay->site_count == replay->site_room && !grow_sites(replay)) {
        return NO_SITE;
    }
    uint32_t site = replay->site_count++;
    object_t *owner = &replay->objects[object];
    replay->sites[site] = (site_t){.known = {.object = object, .stack = stack},
                                   .frozen = replay->moments,
                                   .life = owner->life,
                                   .next_site = owner->first_site};
    owner->first_site = site;
    put_in_bucket(replay, site);
    return site;
}

/* NO_SITE: no memory. */
static uint32_t site_of(umf_reader_replay_t *replay, uint32_t object, uint32_t stack) {
    uint32_t site = replay->site_room ? replay->buckets[bucket_of(replay, object, stack)] : NO_SITE;
    for (; site != NO_SITE; site = replay->sites[site].next_in_bucket) {
        const site_t *at = &replay->sites[site];
        if (at->known.object == object && at->known.stack == stack &&
            at->life == replay->objects[object].life) {
            return site;
        }
    }
    return make_site(replay, object, stack);
}

/* --- allocations of pools --------------------------------------------------------------------- */

static bool is_gone(const umf_reader_replay_t *replay, const umf_reader_live_t *what) {
    return replay->sites[what->site].life != replay->objects[what->object].life;
}

static void count_in(umf_reader_replay_t *replay, const umf_reader_live_t *what) {
    site_t *site = &replay->sites[what->site];
    object_t *object = &replay->objects[what->object];
    freeze(&site->known.use, &site->frozen, &replay->moments);
    freeze(&object->known.use, &object->frozen, &replay->moments);
    add_use(&site->known.use, what->size);
    add_use(&object->known.use, what->size);
    add_use(&replay->total.use, what->size);
    see_peaks(replay, object);
}

static void count_out(umf_reader_replay_t *replay, const umf_reader_live_t *what) {
    site_t *site = &replay->sites[what->site];
    object_t *object = &replay->objects[what->object];
    freeze(&site->known.use, &site->frozen, &replay->moments);
    freeze(&object->known.use, &object->frozen, &replay->moments);
    sub_use(&site->known.use, what->size);
    sub_use(&object->known.use, what->size);
    sub_use(&replay->total.use, what->size);
}

/* Removes the live allocation at an address. False: none is recorded. */
static bool take_out(umf_reader_replay_t *replay, uint64_t address, uint32_t object,
                     umf_reader_live_t *what) {
    const umf_reader_live_t *slot = live_table_find(&replay->live, address, object);
    if (!slot) {
        return false;
    }
    *what = *slot;
    live_table_remove(&replay->live, slot);
    if (is_gone(replay, what)) {
        return false;
    }
    count_out(replay, what);
    return true;
}

static bool put_in(umf_reader_replay_t *replay, umf_reader_live_t *what) {
    what->site = site_of(replay, what->object, what->stack);
    if (what->site == NO_SITE || !live_table_add(&replay->live, what)) {
        return false;
    }
    count_in(replay, what);
    return true;
}

static umf_reader_live_t live_of(const umf_reader_event_t *event) {
    return (umf_reader_live_t){event->address, event->size,   event->ns, event->object,
                               event->stack,   event->thread, NO_SITE};
}

static bool allocate(umf_reader_replay_t *replay, const umf_reader_event_t *event,
                     umf_reader_change_t *change) {
    if (event->address == 0) {
        return true;
    }
    if (take_out(replay, event->address, event->object, &change->replaced)) {
        replay->total.missing_frees++;
    } else {
        change->replaced = (umf_reader_live_t){0};
    }
    change->what = live_of(event);
    change->kind = UMF_READER_ALLOCATED;
    if (!put_in(replay, &change->what)) {
        return false;
    }
    if (!event->is_older) {
        replay->sites[change->what.site].known.allocs++;
        replay->sites[change->what.site].known.alloc_bytes += event->size;
        replay->objects[event->object].known.allocs++;
        replay->total.allocs++;
    }
    return true;
}

static void release(umf_reader_replay_t *replay, const umf_reader_event_t *event,
                    umf_reader_change_t *change) {
    change->what = live_of(event);
    bool is_known = take_out(replay, event->address, event->object, &change->what);
    change->kind = is_known ? UMF_READER_FREED : UMF_READER_FREE_UNKNOWN;
    replay->objects[event->object].known.frees++;
    replay->total.frees++;
    replay->total.unknown_frees += !is_known;
    replay->last_frees[event->thread] = (last_free_t){change->what, is_known};
}

/* The free before was refused: what it took out comes back. */
static bool restore(umf_reader_replay_t *replay, const umf_reader_event_t *event,
                    umf_reader_change_t *change) {
    last_free_t *last = &replay->last_frees[event->thread];
    replay->total.bad_frees++;
    change->what = live_of(event);
    change->kind = UMF_READER_BAD_FREE;
    if (last->what.address != event->address || event->address == 0) {
        return true;
    }
    uint32_t owner = last->was_known ? last->what.object : event->object;
    replay->objects[owner].known.frees -= replay->objects[owner].known.frees > 0;
    replay->total.frees--;
    replay->total.unknown_frees -= !last->was_known;
    umf_reader_live_t what = last->what;
    last->what.address = 0;
    if (!last->was_known || live_table_find(&replay->live, what.address, what.object)) {
        return true;
    }
    change->what = what;
    change->kind = UMF_READER_RESTORED;
    return put_in(replay, &change->what);
}

/* --- the others ------------------------------------------------------------------------------- */

static void set_held(object_t *object, uint64_t bytes) {
    object->known.held = bytes;
    if (bytes > object->known.held_peak) {
        object->known.held_peak = bytes;
    }
}

/* Where the sums of pages are known they are right also without earlier events. */
static void change_held(object_t *object, uint64_t bytes) {
    if (!object->known.pages.is_known) {
        set_held(object, object->known.held + bytes);
    }
}

static void apply_pages(object_t *object, const umf_reader_event_t *event) {
    umf_reader_pages_t *pages = &object->known.pages;
    reader_pages_apply(pages, event);
    if (pages->is_known) {
        set_held(object, pages->reserved - pages->spare);
    }
}

static void provider_release(umf_reader_replay_t *replay, const umf_reader_event_t *event) {
    const umf_reader_live_t *slot =
        live_table_find(&replay->provided, event->address, event->object);
    /* A provider may get memory of a pool back from another caller. */
    slot = slot ? slot : live_table_find(&replay->provided, event->address, 0);
    if (slot) {
        object_t *object = &replay->objects[slot->object];
        change_held(object, -slot->size);
        live_table_remove(&replay->provided, slot);
    }
}

static bool provider_allocate(umf_reader_replay_t *replay, const umf_reader_event_t *event) {
    provider_release(replay, event);
    umf_reader_live_t what = live_of(event);
    change_held(&replay->objects[event->object], event->size);
    return event->address == 0 || live_table_add(&replay->provided, &what);
}

static void refuse(umf_reader_replay_t *replay, const umf_reader_event_t *event) {
    umf_reader_use_t *use = &replay->total.use;
    replay->total.refused++;
    replay->total.refusal = *event;
    use->refused_bytes = use->bytes;
    use->refused_count = use->count;
    replay->moments.refusal++;
    replay->objects[event->object].known.refused++;
}

/* With a pool all that lives in it is gone. */
static void destroy(umf_reader_replay_t *replay, const umf_reader_event_t *event,
                    umf_reader_change_t *change) {
    object_t *object = &replay->objects[event->object];
    umf_reader_use_t *total = &replay->total.use;
    freeze(&object->known.use, &object->frozen, &replay->moments);
    change->kind = UMF_READER_ENDED;
    change->what = live_of(event);
    change->what.size = object->known.use.bytes;
    total->bytes -= object->known.use.bytes;
    total->count -= object->known.use.count;
    object->known.use.bytes = object->known.use.count = 0;
    for (uint32_t at = object->first_site; at != NO_SITE; at = replay->sites[at].next_site) {
        site_t *site = &replay->sites[at];
        freeze(&site->known.use, &site->frozen, &replay->moments);
        site->known.ended_bytes = site->known.use.bytes;
        site->known.ended_count = site->known.use.count;
        site->known.use.bytes = site->known.use.count = 0;
    }
    object->first_site = NO_SITE;
    object->life++;
}

static bool apply_other(umf_reader_replay_t *replay, const umf_reader_event_t *event,
                        umf_reader_change_t *change) {
    object_t *object = &replay->objects[event->object];
    apply_pages(object, event);
    switch (event->kind) {
    case UMF_RECORD_REFUSED:
        refuse(replay, event);
        return true;
    case UMF_RECORD_PROVIDER_ALLOC:
        return provider_allocate(replay, event);
    case UMF_RECORD_PROVIDER_FREE:
        provider_release(replay, event);
        return true;
    case UMF_RECORD_PROVIDER_REFUSED:
        object->known.refused +=
            umf_reader_object(replay->reader, event->object)->kind == UMF_RECORD_OBJECT_PROVIDER;
        return true;
    case UMF_RECORD_SUSPEND:
    case UMF_RECORD_RESUME:
        object->known.is_suspended = event->kind == UMF_RECORD_SUSPEND;
        return true;
    case UMF_RECORD_DESTROY:
        destroy(replay, event, change);
        return true;
    default:
        return true;
    }
}

bool umf_reader_replay_apply(umf_reader_replay_t *replay, const umf_reader_event_t *event,
                             umf_reader_change_t *change) {
    umf_reader_change_t unseen;
    change = change ? change : &unseen;
    change->kind = UMF_READER_NO_CHANGE;
    replay->total.now = event->ns;
    switch (event->kind) {
    case UMF_RECORD_ALLOC:
        return allocate(replay, event, change);
    case UMF_RECORD_FREE:
        release(replay, event, change);
        return true;
    case UMF_RECORD_FREE_REFUSED:
        return restore(replay, event, change);
    default:
        return apply_other(replay, event, change);
    }
}

/* --- begin, run, end -------------------------------------------------------------------------- */

/* Finds the allocations of the table whose events are there: they begin with these. */
static void find_events(const umf_reader_t *reader, const live_table_t *table) {
    for (uint64_t i = 0; table->count && i < reader->info.event_count; i++) {
        const umf_record_event_t *event = &reader->events[i];
        umf_reader_live_t *live =
            UMF_RECORD_EVENT_KIND(event->what) == UMF_RECORD_ALLOC
                ? live_table_find(table, event->address, reader_object_of(reader, event->what))
                : NULL;
        if (live && umf_reader_ns(reader, event->ticks) >= live->ns) {
            live->site = 0;
        }
    }
}

/* A live allocation at the end without an event existed before the recording. */
static bool begin_with(umf_reader_replay_t *replay, live_table_t *table) {
    const umf_reader_t *reader = replay->reader;
    for (size_t i = 0; i < reader->live_count; i++) {
        const umf_reader_live_t *live = &reader->live[i];
        bool is_gone = reader->objects[live->object].flags & UMF_RECORD_OBJECT_IS_GONE;
        bool is_left_out =
            reader->info.from_ns != INT64_MIN || umf_reader_is_left_out(reader, live->object);
        if (!is_gone && !is_left_out && !live_table_find(table, live->address, live->object) &&
            !live_table_add(table, live)) {
            return false;
        }
    }
    find_events(reader, table);
    for (size_t i = 0; i <= table->mask; i++) {
        umf_reader_live_t *live = &table->slots[i];
        if (live->address && live->site == NO_SITE && !put_in(replay, live)) {
            return false;
        }
    }
    return true;
}

static bool begin_with_live(umf_reader_replay_t *replay) {
    live_table_t table;
    bool is_done = live_table_init(&table) && begin_with(replay, &table);
    live_table_free(&table);
    return is_done;
}

static bool make_parts(umf_reader_replay_t *replay, umf_reader_error_t *error) {
    const umf_reader_info_t *info = &replay->reader->info;
    replay->objects = reader_memory(replay->reader, info->object_count, sizeof(object_t), error);
    replay->last_frees = replay->objects ? reader_memory(replay->reader, info->thread_count,
                                                         sizeof(last_free_t), error)
                                         : NULL;
    if (!replay->last_frees) {
        return false;
    }
    for (uint32_t i = 0; i < info->object_count; i++) {
        replay->objects[i].first_site = NO_SITE;
    }
    return (live_table_init(&replay->live) && live_table_init(&replay->provided) &&
            begin_with_live(replay)) ||
           reader_fail(error, "%s: there is no memory for the live allocations",
                       replay->reader->name);
}

umf_reader_replay_t *umf_reader_replay_begin(const umf_reader_t *reader,
                                             umf_reader_error_t *error) {
    umf_reader_replay_t *replay = reader_memory(reader, 1, sizeof(*replay), error);
    if (replay) {
        replay->reader = reader;
        replay->total.now = replay->total.peak_ns = reader->info.first_ns;
        if (!make_parts(replay, error)) {
            umf_reader_replay_free(replay);
            return NULL;
        }
    }
    return replay;
}

void umf_reader_replay_free(umf_reader_replay_t *replay) {
    if (replay) {
        live_table_free(&replay->live);
        live_table_free(&replay->provided);
        free(replay->objects);
        free(replay->sites);
        free(replay->buckets);
        free(replay->last_frees);
        umf_reader_cursor_free(replay->cursor);
        free(replay);
    }
}

bool umf_reader_replay_run(umf_reader_replay_t *replay, int64_t until, umf_reader_error_t *error) {
    if (!replay->cursor) {
        replay->cursor = umf_reader_iterate(replay->reader, error);
        if (!replay->cursor) {
            return false;
        }
        replay->has_pending = umf_reader_next(replay->cursor, &replay->pending);
    }
    while (replay->has_pending && replay->pending.ns <= until) {
        if (!umf_reader_replay_apply(replay, &replay->pending, NULL)) {
            return reader_fail(error, "%s: there is no memory for the live allocations",
                               replay->reader->name);
        }
        replay->has_pending = umf_reader_next(replay->cursor, &replay->pending);
    }
    return true;
}

/* --- queries of others ------------------------------------------------------------------------ */

const umf_reader_total_t *umf_reader_replay_total(const umf_reader_replay_t *replay) {
    return &replay->total;
}

const umf_reader_object_use_t *umf_reader_replay_object(umf_reader_replay_t *replay,
                                                        uint32_t number) {
    object_t *object = &replay->objects[number < replay->reader->info.object_count ? number : 0];
    freeze(&object->known.use, &object->frozen, &replay->moments);
    return &object->known;
}

const umf_reader_site_t *umf_reader_replay_site(umf_reader_replay_t *replay, uint32_t index) {
    if (index >= replay->site_count) {
        return NULL;
    }
    site_t *site = &replay->sites[index];
    freeze(&site->known.use, &site->frozen, &replay->moments);
    return &site->known;
}

const umf_reader_live_t *umf_reader_replay_next(const umf_reader_replay_t *replay,
                                                size_t *position) {
    while (*position <= replay->live.mask) {
        const umf_reader_live_t *slot = &replay->live.slots[(*position)++];
        if (slot->address && !is_gone(replay, slot)) {
            return slot;
        }
    }
    return NULL;
}

const umf_reader_live_t *umf_reader_replay_next_provided(const umf_reader_replay_t *replay,
                                                         size_t *position) {
    while (*position <= replay->provided.mask) {
        const umf_reader_live_t *slot = &replay->provided.slots[(*position)++];
        if (slot->address) {
            return slot;
        }
    }
    return NULL;
}
