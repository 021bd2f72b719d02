/* Queues of an arena: how far they are, and their order. */
#include "pools/coalescing/arena/arena.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "base/thread_slot.h"
#include "system/pause.h"

/* --- the driver lock: a forked child has no other threads --- */

bool umf_arena_driver_try_lock(umf_arena_t *arena) {
    unsigned mine = umf_fork_count() + 1, now = atomic_load(&arena->driver_lock);
    return now != mine && atomic_compare_exchange_strong(&arena->driver_lock, &now, mine);
}

void umf_arena_driver_lock(umf_arena_t *arena) {
    for (unsigned round = 0; !umf_arena_driver_try_lock(arena); round++) {
        umf_pause(round);
    }
}

void umf_arena_driver_unlock(umf_arena_t *arena) {
    umf_arena_record_sums(arena);
    atomic_store(&arena->driver_lock, 0);
}

/* --- how far (the lock is held) --- */

bool umf_arena_is_idle_locked(const umf_arena_t *arena, const umf_uses_t *uses) {
    unsigned at = 0, queue;
    for (uint64_t count; umf_uses_next(uses, &at, &queue, &count);) {
        if (arena->queues[queue].passed < count) {
            return false;
        }
    }
    return true;
}

/* The host has waited for frees that name no queue. */
bool umf_arena_is_ordered_locked(const umf_arena_t *arena, const umf_uses_t *uses, unsigned queue) {
    unsigned at = 0, other;
    for (uint64_t count; umf_uses_next(uses, &at, &other, &count);) {
        if (other != UMF_USES_DEVICE && other != queue && arena->queues[other].passed < count &&
            arena->queues[queue].follows[other] < count) {
            return false;
        }
    }
    return true;
}

/* --- marks (driver lock held) --- */

static void set_passed(umf_arena_t *arena, umf_arena_queue_t *queue, uint64_t count) {
    umf_lock(&arena->lock);
    umf_uses_raise(&queue->passed, count);
    umf_unlock(&arena->lock);
}

static uint64_t passed_of(umf_arena_t *arena, const umf_arena_queue_t *queue) {
    umf_lock(&arena->lock);
    uint64_t passed = queue->passed;
    umf_unlock(&arena->lock);
    return passed;
}

static bool wait_mark(umf_arena_t *arena, const umf_arena_mark_t *mark, bool waits) {
    const umf_tracked_ops_t *provider = &arena->provider;
    return (mark->is_of_all ? provider->ext->mark_all_wait
                            : provider->ext->mark_wait)(provider->self, mark->mark, waits) != 0;
}

static void pop_mark(umf_arena_t *arena, umf_arena_queue_t *queue) {
    uint64_t count = queue->marks[0].count;
    queue->mark_count--;
    memmove(queue->marks, queue->marks + 1, queue->mark_count * sizeof(*queue->marks));
    set_passed(arena, queue, count);
}

/* Ends the marks that have passed; `until`: waits for those that are needed for this count. */
static void look_at(umf_arena_t *arena, umf_arena_queue_t *queue, uint64_t until) {
    while (queue->mark_count) {
        bool waits = passed_of(arena, queue) < until;
        if (!wait_mark(arena, &queue->marks[0], waits)) {
            return;
        }
        pop_mark(arena, queue);
    }
}

static bool may_be_marked(const umf_arena_queue_t *queue) {
    return queue->state == UMF_ARENA_QUEUE_OPEN &&
           (queue->thread == 0 || queue->thread == umf_thread_slot_number());
}

/* A queue that cannot be marked itself is marked with the whole device: one that was destroyed or
 * has no number (UMF_USES_REST), or for whose mark there is no memory. A captured one is not. */
static umf_result_t make_mark(umf_arena_t *arena, const umf_arena_queue_t *queue, bool is_device,
                              umf_arena_mark_t *mark) {
    const umf_tracked_ops_t *provider = &arena->provider;
    if (!is_device && may_be_marked(queue) &&
        provider->ext->queue_mark(provider->self, queue->handle, &mark->mark) ==
            UMF_RESULT_SUCCESS) {
        return mark->mark ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    mark->is_of_all = true;
    mark->mark = NULL;
    return provider->ext->mark_all ? provider->ext->mark_all(provider->self, &mark->mark)
                                   : UMF_RESULT_SUCCESS;
}

/* Has room for one more mark, after a wait for the oldest if there are too many. */
static bool make_room(umf_arena_t *arena, umf_arena_queue_t *queue) {
    unsigned more = queue->mark_room ? 2 * queue->mark_room : 8;
    if (queue->mark_count < queue->mark_room) {
        return true;
    }
    umf_arena_mark_t *made = more <= UMF_ARENA_MARKS ? umf_meta_alloc(more * sizeof(*made)) : NULL;
    if (made) {
        if (queue->mark_count) {
            memcpy(made, queue->marks, queue->mark_count * sizeof(*made));
        }
        umf_meta_free(queue->marks, queue->mark_room * sizeof(*made));
        queue->marks = made;
        queue->mark_room = more;
        return true;
    }
    if (!queue->mark_count || !wait_mark(arena, &queue->marks[0], true)) {
        return false;
    }
    pop_mark(arena, queue);
    return true;
}

/* Marks the work queued now. false: not possible now. */
static bool mark_now(umf_arena_t *arena, unsigned index) {
    umf_arena_queue_t *queue = &arena->queues[index];
    umf_arena_mark_t mark = {0};
    umf_lock(&arena->lock);
    mark.count = arena->clock;
    umf_unlock(&arena->lock);
    if (!make_room(arena, queue)) {
        return false;
    }
    if (make_mark(arena, queue, index == UMF_USES_DEVICE, &mark) != UMF_RESULT_SUCCESS) {
        return false;
    }
    if (mark.mark) {
        queue->marks[queue->mark_count++] = mark;
    } else {
        set_passed(arena, queue, mark.count);
    }
    return true;
}

/* The oldest mark behind the free with this count. NULL: there is none. */
static const umf_arena_mark_t *mark_behind(const umf_arena_queue_t *queue, uint64_t count) {
    for (unsigned i = 0; i < queue->mark_count; i++) {
        if (queue->marks[i].count >= count) {
            return &queue->marks[i];
        }
    }
    return NULL;
}

void umf_arena_look(umf_arena_t *arena, const umf_uses_t *uses, bool marks, bool waits) {
    unsigned at = 0, index;
    for (uint64_t count; umf_uses_next(uses, &at, &index, &count);) {
        umf_arena_queue_t *queue = &arena->queues[index];
        look_at(arena, queue, 0);
        if (passed_of(arena, queue) >= count) {
            continue;
        }
        if (marks && !mark_behind(queue, count)) {
            mark_now(arena, index);
        }
        look_at(arena, queue, waits ? count : 0);
    }
}

void umf_arena_poll(umf_arena_t *arena) {
    for (unsigned i = 0; i < UMF_USES_QUEUES; i++) {
        look_at(arena, &arena->queues[i], 0);
    }
}

/* --- order (driver lock held) --- */

static bool follow(umf_arena_t *arena, unsigned index, unsigned other, uint64_t count) {
    const umf_tracked_ops_t *provider = &arena->provider;
    umf_arena_queue_t *first = &arena->queues[other], *then = &arena->queues[index];
    if (!mark_behind(first, count) && !mark_now(arena, other)) {
        return false;
    }
    const umf_arena_mark_t *mark = mark_behind(first, count);
    if (!mark) { /* it had completed at once */
        return true;
    }
    uint64_t behind = mark->count;
    if (index != UMF_USES_DEVICE && !mark->is_of_all && provider->ext->queue_follow &&
        provider->ext->queue_follow(provider->self, then->handle, mark->mark) ==
            UMF_RESULT_SUCCESS) {
        umf_lock(&arena->lock);
        umf_uses_raise(&then->follows[other], behind);
        umf_unlock(&arena->lock);
        return true;
    }
    look_at(arena, first, count);
    return passed_of(arena, first) >= count;
}

bool umf_arena_order(umf_arena_t *arena, const umf_uses_t *uses, unsigned queue) {
    unsigned at = 0, other;
    for (uint64_t count; umf_uses_next(uses, &at, &other, &count);) {
        umf_uses_t one = {0};
        umf_uses_add(&one, other, count);
        if (other != UMF_USES_DEVICE && other != queue) {
            look_at(arena, &arena->queues[other], 0);
        }
        umf_lock(&arena->lock);
        bool is_ordered = umf_arena_is_ordered_locked(arena, &one, queue);
        umf_unlock(&arena->lock);
        if (!is_ordered && !follow(arena, queue, other, count)) {
            return false;
        }
    }
    return true;
}

/* --- which queue --- */

/* The provider's answer on a queue. */
typedef struct facts_t {
    void *handle;
    uint64_t id, thread;
} facts_t;

static bool is_it(const umf_arena_queue_t *queue, const facts_t *facts) {
    return queue->state == UMF_ARENA_QUEUE_OPEN && queue->thread == facts->thread &&
           (queue->id && facts->id ? queue->id == facts->id : queue->handle == facts->handle);
}

static unsigned find_locked(umf_arena_t *arena, const facts_t *facts) {
    unsigned found = 0;
    for (unsigned i = 1; i <= arena->queues_opened; i++) {
        umf_arena_queue_t *queue = &arena->queues[i];
        if (is_it(queue, facts)) {
            queue->id = queue->id ? queue->id : facts->id;
            found = i;
        } else if (queue->state == UMF_ARENA_QUEUE_OPEN && queue->handle == facts->handle &&
                   !queue->thread && !facts->thread) {
            queue->state = UMF_ARENA_QUEUE_LOST; /* another queue has its handle now */
        }
    }
    return found;
}

static void open_locked(umf_arena_t *arena, unsigned index, const facts_t *facts) {
    umf_arena_queue_t *queue = &arena->queues[index];
    arena->queues_opened = arena->queues_opened < index ? index : arena->queues_opened;
    *queue = (umf_arena_queue_t){.state = UMF_ARENA_QUEUE_OPEN,
                                 .handle = facts->handle,
                                 .id = facts->id,
                                 .thread = facts->thread,
                                 .freed = arena->clock,
                                 .passed = arena->clock,
                                 .marks = queue->marks,
                                 .mark_room = queue->mark_room};
    for (unsigned i = 0; i < UMF_USES_QUEUES; i++) {
        arena->queues[i].follows[index] = 0;
    }
}

void umf_arena_name_locked(umf_arena_t *arena, umf_segment_t *block, unsigned queue) {
    arena->queues[queue].named += !umf_uses_has(&block->uses, queue);
    umf_uses_add(&block->uses, queue, 0);
}

void umf_arena_unname_locked(umf_arena_t *arena, const umf_segment_t *block) {
    unsigned at = 0, queue;
    for (uint64_t count; umf_uses_next(&block->uses, &at, &queue, &count);) {
        arena->queues[queue].named--;
    }
}

/* Live blocks that name the queue name UMF_USES_REST from now on. */
static void rename_locked(umf_arena_t *arena, unsigned index) {
    for (size_t i = 0; i < UMF_ARENA_AREAS && arena->queues[index].named; i++) {
        umf_segment_t *at = arena->areas[i].first;
        for (; at && arena->queues[index].named; at = at->next) {
            if (at->kind == UMF_SEGMENT_LIVE && umf_uses_has(&at->uses, index)) {
                arena->queues[UMF_USES_REST].named += !umf_uses_has(&at->uses, UMF_USES_REST);
                arena->queues[index].named--;
                umf_uses_rename(&at->uses, index);
            }
        }
    }
}

/* A number that no queue has, or whose queue has ended, has come as far as its last free, and is
 * named by no live block: work that was put on it later is waited for under this number. */
static unsigned unused_locked(umf_arena_t *arena) {
    for (unsigned i = 1; i < UMF_USES_REST; i++) {
        const umf_arena_queue_t *queue = &arena->queues[i];
        if (queue->state == UMF_ARENA_QUEUE_UNUSED ||
            (queue->state != UMF_ARENA_QUEUE_OPEN && queue->passed >= queue->freed &&
             queue->mark_count == 0 && queue->pins == 0 && queue->named == 0)) {
            return i;
        }
    }
    return 0;
}

static bool try_close(umf_arena_t *arena, unsigned index, bool renames) {
    umf_arena_queue_t *queue = &arena->queues[index];
    umf_lock(&arena->lock);
    uint64_t count = queue->freed;
    bool is_meant = renames || queue->named == 0;
    umf_unlock(&arena->lock);
    if (!is_meant) {
        return false;
    }
    umf_uses_t one = {0};
    umf_uses_add(&one, index, count);
    umf_arena_look(arena, &one, true, true);
    look_at(arena, queue, UINT64_MAX);
    umf_lock(&arena->lock);
    bool is_closed = queue->passed >= queue->freed && queue->mark_count == 0 && queue->pins == 0;
    if (is_closed && renames) {
        rename_locked(arena, index);
    }
    is_closed = is_closed && queue->named == 0;
    queue->state = is_closed ? UMF_ARENA_QUEUE_ENDED : queue->state;
    umf_unlock(&arena->lock);
    return is_closed;
}

/* All numbers are taken: the work of a queue is waited for, and it is closed, one that no live
 * block names if there is one. A queue that is met again gets a new number. */
static bool close_one(umf_arena_t *arena) {
    for (int renames = 0; renames < 2; renames++) {
        for (unsigned i = 1; i < UMF_USES_REST; i++) {
            if (try_close(arena, i, renames != 0)) {
                return true;
            }
        }
    }
    UMF_LOG_ERROR("an arena serves at most %u queues at once, and none of them can be waited for "
                  "now",
                  UMF_USES_REST - 1);
    return false;
}

/* Marks of a number belong to the thread with the driver lock, so that opens it. */
static umf_result_t open_new(umf_arena_t *arena, const facts_t *facts, unsigned *found) {
    umf_arena_driver_lock(arena);
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (bool is_over = false; !is_over;) {
        umf_lock(&arena->lock);
        *found = find_locked(arena, facts);
        if (!*found && (*found = unused_locked(arena)) != 0) {
            open_locked(arena, *found, facts);
        }
        arena->queues[*found].pins++;
        umf_unlock(&arena->lock);
        is_over = *found || !close_one(arena);
    }
    umf_arena_driver_unlock(arena);
    return *found ? result : UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

umf_result_t umf_arena_queue(umf_arena_t *arena, void *handle, unsigned *queue, bool *is_captured) {
    const umf_tracked_ops_t *provider = &arena->provider;
    int is_of_thread = 0, is_in_capture = 0;
    facts_t facts = {.handle = handle, .id = (uintptr_t)handle + 1};
    if (provider->ext->queue_id) {
        umf_result_t result = provider->ext->queue_id(provider->self, handle, &facts.id,
                                                      &is_of_thread, &is_in_capture);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    facts.thread = is_of_thread ? umf_thread_slot_number() : 0;
    *is_captured = is_in_capture != 0;
    umf_lock(&arena->lock);
    *queue = find_locked(arena, &facts);
    arena->queues[*queue].pins++;
    umf_unlock(&arena->lock);
    return *queue ? UMF_RESULT_SUCCESS : open_new(arena, &facts, queue);
}

void umf_arena_unpin(umf_arena_t *arena, unsigned queue) {
    umf_lock(&arena->lock);
    arena->queues[queue].pins--;
    umf_unlock(&arena->lock);
}

void umf_arena_queue_ends(umf_arena_t *arena, unsigned index) {
    umf_arena_queue_t *queue = &arena->queues[index];
    umf_lock(&arena->lock);
    uint64_t freed = queue->freed;
    umf_unlock(&arena->lock);
    look_at(arena, queue, 0);
    bool is_marked =
        passed_of(arena, queue) >= freed || mark_behind(queue, freed) || mark_now(arena, index);
    umf_lock(&arena->lock);
    queue->state = is_marked ? UMF_ARENA_QUEUE_ENDED : UMF_ARENA_QUEUE_LOST;
    umf_unlock(&arena->lock);
}

void umf_arena_queues_fini(umf_arena_t *arena) {
    for (unsigned i = 0; i < UMF_USES_QUEUES; i++) {
        look_at(arena, &arena->queues[i], UINT64_MAX);
    }
}

void umf_arena_queues_free(umf_arena_t *arena) {
    for (unsigned i = 0; i < UMF_USES_QUEUES; i++) {
        umf_arena_queue_t *queue = &arena->queues[i];
        umf_meta_free(queue->marks, queue->mark_room * sizeof(*queue->marks));
    }
}
