/*
 * Events: from their sites into blocks of threads.
 *
 * A thread says in a plain store that it is inside of the recording. Who ends the recording takes
 * it from `umf_recording`, makes all threads pass a fence, and waits for those that are inside. An
 * event that comes while its thread is inside is one of the recorder's own, or of a signal handler,
 * and is left out.
 */
#include <string.h>

#include "base/log.h"
#include "ext/record/recording.h"
#include "object/recorded.h"
#include "system/keep_errno.h"
#include "system/os.h"
#include "system/pause.h"

#define EVENTS UMF_RECORD_BLOCK_EVENTS
#define ORPHAN_ROUNDS 1000u

_Atomic(umf_recording_t *) umf_recording;
UMF_LOCK_STATIC(record_lock, UMF_RANK_RECORD);

static umf_thread_slot_owner_t owner; /* Immutable after the first start */
static bool has_owner;
static bool needs_fence; /* the kernel has no fence for all threads */
/* For threads that are ending, one of them at a time. It keeps its block. */
static umf_record_thread_t orphan;

umf_lock_t *umf_record_lock(void) {
    return &record_lock;
}

/* --- blocks --- */

static void block_give_up(umf_recording_t *r, umf_record_thread_t *thread) {
    if (thread->generation == r->generation && thread->block) {
        atomic_store_explicit(&r->owned[thread->block_index], 0, memory_order_release);
    }
    thread->block = NULL;
}

/* As the file says, where another program may have written. */
static uint32_t events_of(const umf_record_block_t *block) {
    uint32_t count = __atomic_load_n(&block->count, __ATOMIC_RELAXED);
    return count < EVENTS ? count : EVENTS;
}

/* The disk is full: the blocks that there are serve from now on. */
static void blocks_end_locked(umf_recording_t *r, uint32_t count) {
    umf_assert_locked(umf_record_lock());
    UMF_LOG_WARN("there is no space for more of the recording: it goes on with %u blocks of %u "
                 "events",
                 count, EVENTS);
    r->block_count = count;
    r->block_next = 0;
}

/* Takes the next unused block. UINT32_MAX: there is none. */
static uint32_t block_take_locked(umf_recording_t *r) {
    umf_assert_locked(umf_record_lock());
    for (uint32_t tries = 0; tries < r->block_count; tries++) {
        uint32_t i = r->block_next;
        r->block_next = i + 1 < r->block_count ? i + 1 : 0;
        if (atomic_load_explicit(&r->owned[i], memory_order_acquire)) {
            continue;
        }
        if (umf_record_touch(r, &r->blocks[i], sizeof(r->blocks[i]))) {
            return i;
        }
        blocks_end_locked(r, i);
        tries = 0;
    }
    return UINT32_MAX;
}

static void block_begin_locked(umf_recording_t *r, umf_record_thread_t *thread, uint32_t index) {
    umf_assert_locked(umf_record_lock());
    umf_record_block_t *block = &r->blocks[index];
    if (index < umf_record_count(r, UMF_RECORD_BLOCKS)) {
        umf_record_add(&r->header->dropped, &r->dropped, events_of(block));
    }
    /* Before all that follows; an exchange, because ThreadSanitizer does not support fences. */
    (void)__atomic_exchange_n(&block->number, 0, __ATOMIC_ACQ_REL);
    __atomic_store_n(&block->count, 0, __ATOMIC_RELAXED);
    block->thread = thread->tid;
    umf_record_now(&r->clock, &block->ticks, &block->ns);
    __atomic_store_n(&block->number, ++r->block_number, __ATOMIC_RELEASE);
    __atomic_store_n(&r->header->ticks[1], block->ticks, __ATOMIC_RELAXED);
    __atomic_store_n(&r->header->ns[1], block->ns, __ATOMIC_RELAXED);
    uint64_t begun = umf_record_count(r, UMF_RECORD_BLOCKS);
    if (begun <= index) {
        umf_record_item_done(r, UMF_RECORD_BLOCKS, index + 1 - begun);
    }
    atomic_store_explicit(&r->owned[index], 1, memory_order_relaxed);
    thread->block = block;
    thread->block_index = index;
    thread->count = 0;
}

UMF_COLD static bool block_next(umf_recording_t *r, umf_record_thread_t *thread) {
    block_give_up(r, thread);
    umf_lock(umf_record_lock());
    uint32_t index = block_take_locked(r), next = r->block_next;
    if (index != UINT32_MAX) {
        block_begin_locked(r, thread, index);
    }
    umf_unlock(umf_record_lock());
    if (thread->block) {
        /* Space for the next one, without the lock: a slow disk keeps few threads waiting. */
        umf_record_touch(r, &r->blocks[next], sizeof(r->blocks[next]));
        umf_record_modules_again(r, thread->block->ns);
    }
    return thread->block != NULL;
}

UMF_INLINE void put(umf_recording_t *r, umf_record_thread_t *thread,
                    const umf_record_event_t *event) {
    bool has_room = thread->block && thread->count < EVENTS;
    if (umf_unlikely(!has_room) && !block_next(r, thread)) {
        umf_record_add(&r->header->dropped, &r->dropped, 1);
        return;
    }
    umf_record_event_t *to = &thread->block->events[thread->count];
    __atomic_store_n(&to->ticks, event->ticks, __ATOMIC_RELAXED);
    __atomic_store_n(&to->address, event->address, __ATOMIC_RELAXED);
    __atomic_store_n(&to->size, event->size, __ATOMIC_RELAXED);
    __atomic_store_n(&to->what, event->what, __ATOMIC_RELAXED);
    __atomic_store_n(&thread->block->count, ++thread->count, __ATOMIC_RELEASE);
}

uint64_t umf_record_events_count(const umf_recording_t *r) {
    uint64_t count = atomic_load_explicit(&r->dropped, memory_order_relaxed);
    uint64_t blocks = umf_record_count(r, UMF_RECORD_BLOCKS);
    for (uint64_t i = 0; i < blocks; i++) {
        count += events_of(&r->blocks[i]);
    }
    return count;
}

/* --- the filter of events --- */

static bool is_of_rate(const umf_recording_t *r, uint64_t address) {
    return umf_likely(r->rate == 1) || (umf_record_hash(address >> 4) >> 16) % r->rate == 0;
}

static bool is_of_size(const umf_recording_t *r, uint64_t size) {
    return size >= r->min_size && (r->max_size == 0 || size <= r->max_size);
}

/* The part of the filter that needs no stack. */
static bool may_be_requested(const umf_recording_t *r, const umf_event_t *event) {
    switch (event->kind) {
    case UMF_RECORD_ALLOC:
        return is_of_size(r, event->size) && is_of_rate(r, event->address);
    case UMF_RECORD_FREE:
    case UMF_RECORD_FREE_REFUSED:
        return is_of_rate(r, event->address);
    default:
        return true;
    }
}

/* With limits of the size only allocations in the table were recorded. */
static bool free_is_requested(umf_recording_t *r, umf_record_thread_t *thread,
                              umf_record_event_t *event) {
    bool is_requested = true;
    thread->freed.address = 0;
    if (r->keeps_live) {
        bool is_known = umf_record_live_remove(r, event->address, &thread->freed);
        event->size = is_known ? thread->freed.size : 0;
        is_requested = is_known || (r->min_size == 0 && r->max_size == 0);
    }
    thread->freed_address = is_requested ? event->address : 0;
    return is_requested;
}

static bool refusal_is_requested(umf_recording_t *r, umf_record_thread_t *thread,
                                 const umf_record_event_t *event) {
    bool is_requested = event->address != 0 && thread->freed_address == event->address;
    if (is_requested && thread->freed.address == event->address) {
        umf_record_live_add(r, &thread->freed);
    }
    thread->freed_address = 0;
    return is_requested;
}

UMF_INLINE bool is_requested(umf_recording_t *r, umf_record_thread_t *thread,
                             umf_record_event_t *event, umf_record_event_kind_t kind) {
    switch (kind) {
    case UMF_RECORD_ALLOC:
        if (r->keeps_live) {
            umf_record_live_add(r, event);
        }
        return true;
    case UMF_RECORD_FREE:
        return free_is_requested(r, thread, event);
    case UMF_RECORD_FREE_REFUSED:
        return refusal_is_requested(r, thread, event);
    default:
        return true;
    }
}

UMF_COLD static void thread_begin(umf_recording_t *r, umf_record_thread_t *thread) {
    thread->generation = r->generation;
    thread->block = NULL;
    thread->queue = NULL;
    thread->freed_address = 0;
    memset(thread->seen, 0, sizeof(thread->seen));
    thread->tid = thread == &orphan ? 0 : (uint32_t)umf_os_tid();
}

/* The number of the object, as umf_record_object says; most events are of pools that have one. */
UMF_INLINE uint32_t object_of(umf_recording_t *r, const umf_event_t *event) {
    bool is_usual = event->pool && event->kind < UMF_RECORD_CREATE;
    uint32_t number =
        is_usual ? atomic_load_explicit(&r->pool_numbers[event->pool->index], memory_order_relaxed)
                 : 0;
    return umf_likely(number != 0) ? number : umf_record_object(r, event);
}

UMF_INLINE void note(umf_recording_t *r, umf_record_thread_t *thread, const umf_event_t *event,
                     const umf_record_frame_t *frame) {
    umf_record_event_t item = {.address = event->address, .size = event->size};
    if (umf_unlikely(thread->generation != r->generation)) {
        thread_begin(r, thread);
    }
    uint32_t object = object_of(r, event), stack = 0;
    if (object == UMF_RECORD_NUMBER_IGNORED ||
        (umf_unlikely(r->has_limits) && !may_be_requested(r, event))) {
        return;
    }
    uint8_t queue = event->queue ? umf_record_queue(r, thread, event->queue) : 0;
    item.ticks = umf_record_ticks(&r->clock);
    if (r->stack_depth > 0 && thread != &orphan) {
        stack = umf_record_walk(r, thread, frame);
    }
    item.what = UMF_RECORD_WHAT(event->kind, queue, object, stack);
    if (is_requested(r, thread, &item, event->kind)) {
        put(r, thread, &item);
    }
    if (umf_unlikely(event->kind == UMF_RECORD_CREATE && event->pool)) {
        umf_recorded_begin(event->pool);
    }
}

/* --- threads --- */

UMF_INLINE bool enter(umf_record_thread_t *thread) {
    if (atomic_load_explicit(&thread->is_inside, memory_order_relaxed)) {
        return false;
    }
    if (umf_unlikely(needs_fence)) {
        atomic_exchange(&thread->is_inside, true);
    } else {
        atomic_store_explicit(&thread->is_inside, true, memory_order_relaxed);
    }
    atomic_signal_fence(memory_order_seq_cst);
    return true;
}

UMF_INLINE void leave(umf_record_thread_t *thread) {
    atomic_store_explicit(&thread->is_inside, false, memory_order_release);
}

UMF_INLINE umf_recording_t *running(void) {
    umf_recording_t *r = atomic_load_explicit(&umf_recording, memory_order_acquire);
    return r && r->is_running ? r : NULL;
}

static void thread_exit(umf_thread_slot_owner_t *of, umf_thread_slot_t *block) {
    umf_record_thread_t *thread = (umf_record_thread_t *)block;
    (void)of;
    if (enter(thread)) {
        umf_recording_t *r = running();
        if (r) {
            block_give_up(r, thread);
        }
        leave(thread);
    }
}

UMF_INLINE umf_record_thread_t *thread_get(void) {
    umf_thread_slot_t *slot = umf_thread_slot_get(owner.index);
    if (umf_unlikely(!slot->owner)) {
        slot = umf_thread_slot_make(&owner);
    }
    return (umf_record_thread_t *)slot;
}

/* A signal handler may have interrupted the thread that has it. */
UMF_COLD static bool orphan_enter(void) {
    for (unsigned round = 0; round < ORPHAN_ROUNDS; round++) {
        if (!atomic_exchange(&orphan.is_inside, true)) {
            return true;
        }
        umf_pause(round);
    }
    return false;
}

/* The thread's part, inside of which it is now; NULL: it was inside already. */
UMF_INLINE umf_record_thread_t *begin(void) {
    umf_record_thread_t *thread = thread_get();
    bool is_in = thread ? enter(thread) : orphan_enter();
    return !is_in ? NULL : thread ? thread : &orphan;
}

void umf_record_on_event(const umf_event_t *event) { /* umf_event_emit keeps errno */
    umf_record_frame_t frame = UMF_RECORD_FRAME_HERE;
    umf_record_thread_t *thread = begin();
    if (umf_likely(thread != NULL)) {
        umf_recording_t *r = running();
        if (umf_likely(r != NULL)) {
            note(r, thread, event, &frame);
        }
        leave(thread);
    }
}

static umf_result_t mark(umf_recording_t *r, umf_record_thread_t *thread, const char *name,
                         size_t length, const umf_record_frame_t *frame) {
    uint64_t text = umf_record_text(r, name, length);
    if (text == UINT64_MAX) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_event_t event = {.kind = UMF_RECORD_MARK, .address = text};
    umf_record_modules_again(r, umf_record_ns(CLOCK_MONOTONIC));
    note(r, thread, &event, frame);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_record_mark(const char *name, size_t length) {
    UMF_KEEP_ERRNO;
    umf_result_t result = UMF_RESULT_SUCCESS;
    umf_record_frame_t frame = UMF_RECORD_FRAME_HERE;
    umf_record_thread_t *thread = umf_event_is_enabled() ? begin() : NULL;
    if (thread) {
        umf_recording_t *r = running();
        if (r) {
            result = mark(r, thread, name, length, &frame);
        }
        leave(thread);
    }
    return result;
}

static void look_inside(umf_thread_slot_t *block, void *arg) {
    umf_record_thread_t *thread = (umf_record_thread_t *)block;
    *(bool *)arg |= atomic_load_explicit(&thread->is_inside, memory_order_acquire);
}

void umf_record_settle(void) {
    bool is_inside = true;
    umf_os_fence_all();
    for (unsigned round = 0; is_inside; round++) {
        is_inside = atomic_load(&orphan.is_inside);
        umf_thread_slot_each(&owner, look_inside, &is_inside);
        if (is_inside) {
            umf_pause(round);
        }
    }
}

umf_result_t umf_record_events_init(void) {
    if (has_owner) {
        return UMF_RESULT_SUCCESS;
    }
    needs_fence = !umf_os_fence_all();
    umf_result_t result =
        umf_thread_slot_owner_init(&owner, 0, sizeof(umf_record_thread_t), thread_exit);
    has_owner = result == UMF_RESULT_SUCCESS;
    return result;
}

static void put_outside(umf_thread_slot_t *block, void *arg) {
    (void)arg;
    atomic_store(&((umf_record_thread_t *)block)->is_inside, false);
}

/* Threads of the parent that were inside do not exist. */
void umf_record_events_forked(void) {
    atomic_store(&orphan.is_inside, false);
    if (has_owner) {
        umf_thread_slot_each(&owner, put_outside, NULL);
    }
}
