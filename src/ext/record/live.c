/*
 * The table of live allocations: windows of items with linear probing. A window has a lock. An
 * allocation whose window is full is not in the table, and the header counts it.
 *
 * Who reads the table of a writer that is alive, or was killed while it moved an item, may find
 * that item twice, and loses none.
 */
#include "ext/record/recording.h"
#include "system/pause.h"

#define WINDOW UMF_RECORD_LIVE_WINDOW

void umf_record_spin(_Atomic bool *lock) {
    for (unsigned round = 0; atomic_exchange_explicit(lock, true, memory_order_acquire); round++) {
        umf_pause(round);
    }
}

typedef struct window_t {
    umf_record_live_window_t *state;
    umf_record_event_t *items;
    uint32_t home; /* where the address belongs */
} window_t;

static uint32_t home_of(uint64_t address) {
    return (uint32_t)(umf_record_hash(address >> 3) >> 8) % WINDOW;
}

static window_t window_lock(umf_recording_t *r, uint64_t address) {
    size_t number = (size_t)(umf_record_hash(address >> 3) >> 24) % r->window_count;
    window_t window = {&r->windows[number], &r->live[number * WINDOW], home_of(address)};
    umf_record_spin(&window.state->is_locked);
    return window;
}

static uint64_t address_at(const window_t *window, uint32_t i) {
    return __atomic_load_n(&window->items[i].address, __ATOMIC_RELAXED);
}

static void item_set(umf_record_event_t *item, const umf_record_event_t *event) {
    __atomic_store_n(&item->ticks, event->ticks, __ATOMIC_RELAXED);
    __atomic_store_n(&item->size, event->size, __ATOMIC_RELAXED);
    __atomic_store_n(&item->what, event->what, __ATOMIC_RELAXED);
    __atomic_store_n(&item->address, event->address, __ATOMIC_RELEASE);
}

static bool window_is_empty(const window_t *window) {
    return window->state->count == 0;
}

/* The item of the address, or the free one where it belongs, or WINDOW. */
static uint32_t find(const window_t *window, uint64_t address) {
    for (uint32_t i = 0; i < WINDOW; i++) {
        uint32_t at = (window->home + i) % WINDOW;
        uint64_t found = address_at(window, at);
        if (found == address || found == 0) {
            return at;
        }
    }
    return WINDOW;
}

/* Items behind a hole move into it if it lies between them and where they belong. */
static void close_hole(const window_t *window, uint32_t hole) {
    uint32_t i = hole;
    for (uint32_t n = 1; n < WINDOW; n++) {
        i = (i + 1) % WINDOW;
        uint64_t address = address_at(window, i);
        if (address == 0) {
            break;
        }
        if ((i - home_of(address)) % WINDOW >= (i - hole) % WINDOW) {
            item_set(&window->items[hole], &window->items[i]);
            hole = i;
        }
    }
    __atomic_store_n(&window->items[hole].address, 0, __ATOMIC_RELEASE);
}

/* An allocation ends with its pool. */
static bool is_gone(const umf_recording_t *r, const umf_record_event_t *item) {
    uint32_t object = UMF_RECORD_EVENT_OBJECT(item->what);
    return object != 0 && object < umf_record_count(r, UMF_RECORD_OBJECTS) &&
           (__atomic_load_n(&r->objects[object].flags, __ATOMIC_RELAXED) &
            UMF_RECORD_OBJECT_IS_GONE);
}

/* Adds an allocation to the sums of those that lived when their pool was destroyed, before another
 * one takes its item. */
static void count_ended(umf_recording_t *r, const umf_record_event_t *item) {
    umf_record_add(&r->header->ended_count, &r->ended_count, 1);
    umf_record_add(&r->header->ended_bytes, &r->ended_bytes, item->size);
}

/* Room for another item, from one whose pool is gone. */
static void evict_locked(umf_recording_t *r, const window_t *window) {
    for (uint32_t i = 0; i < WINDOW; i++) {
        if (is_gone(r, &window->items[i])) {
            count_ended(r, &window->items[i]);
            window->state->count--;
            close_hole(window, i);
            return;
        }
    }
}

static bool add_locked(umf_recording_t *r, const window_t *window,
                       const umf_record_event_t *event) {
    bool has_room = umf_record_touch(r, window->items, WINDOW * sizeof(*window->items));
    uint32_t at = WINDOW;
    if (has_room && window->state->count >= WINDOW) {
        evict_locked(r, window);
    }
    if (has_room) {
        at = find(window, event->address);
    }
    if (at == WINDOW) {
        return false;
    }
    bool is_new = address_at(window, at) == 0;
    window->state->count += is_new;
    if (!is_new && is_gone(r, &window->items[at])) {
        count_ended(r, &window->items[at]);
    }
    item_set(&window->items[at], event);
    return true;
}

void umf_record_live_add(umf_recording_t *r, const umf_record_event_t *event) {
    if (event->address == 0) {
        return;
    }
    window_t window = window_lock(r, event->address);
    bool is_added = add_locked(r, &window, event);
    umf_record_unspin(&window.state->is_locked);
    if (!is_added) {
        umf_record_add(&r->header->live_dropped, &r->live_dropped, 1);
    }
}

bool umf_record_live_remove(umf_recording_t *r, uint64_t address, umf_record_event_t *removed) {
    window_t window = window_lock(r, address);
    uint32_t at = window_is_empty(&window) || address == 0 ? WINDOW : find(&window, address);
    bool is_found =
        at != WINDOW && address_at(&window, at) == address && !is_gone(r, &window.items[at]);
    if (is_found) {
        *removed = window.items[at];
        window.state->count--;
        close_hole(&window, at);
    }
    umf_record_unspin(&window.state->is_locked);
    return is_found;
}

void umf_record_live_each(umf_recording_t *r, bool of_gone,
                          void (*visit)(const umf_record_event_t *item, void *arg), void *arg) {
    for (size_t i = 0; i < r->window_count * WINDOW; i++) {
        umf_record_live_window_t *window = &r->windows[i / WINDOW];
        umf_record_spin(&window->is_locked);
        umf_record_event_t item = {0};
        if (window->count > 0) {
            item = r->live[i];
        } else {
            i += WINDOW - 1 - i % WINDOW;
        }
        umf_record_unspin(&window->is_locked);
        if (item.address != 0 && is_gone(r, &item) == of_gone) {
            visit(&item, arg);
        }
    }
}

typedef struct sum_t {
    uint64_t count, bytes;
} sum_t;

static void sum_one(const umf_record_event_t *item, void *arg) {
    sum_t *sum = arg;
    sum->count++;
    sum->bytes += item->size;
}

void umf_record_live_sum(umf_recording_t *r, uint64_t *count, uint64_t *bytes) {
    sum_t sum = {0};
    umf_record_live_each(r, false, sum_one, &sum);
    *count = sum.count;
    *bytes = sum.bytes;
}
