/*
 * Copies of a device that needs no CPU for them: one thread queues all and waits once, which is as
 * fast as the bus. New pinned memory passes a pipeline of three stages: other threads touch it,
 * this thread pins each block as soon as it is touched, and the device copies.
 */
#include "suspend/store_own.h"

#include <stdatomic.h>

#include "base/event_count.h"

/* The threads that touch. */
typedef struct touchers_t {
    const umf_store_t *store;
    _Atomic size_t next; /* unit */
    _Atomic bool stop;
    umf_event_count_t turn; /* advances with every touched unit */
    pthread_t threads[STORE_MAX_THREADS];
    size_t count;
} touchers_t;

static bool touchers_touch_one(touchers_t *all) {
    size_t unit = atomic_fetch_add(&all->next, 1);
    if (unit >= all->store->units) {
        return false;
    }
    umf_pinned_touch(all->store->pinned[unit]);
    umf_event_count_advance(&all->turn);
    return true;
}

static void *touchers_thread(void *arg) {
    touchers_t *all = arg;
    while (!atomic_load(&all->stop) && touchers_touch_one(all)) {
    }
    return NULL;
}

static void touchers_start(touchers_t *all) {
    size_t wished = umf_store_threads(all->store->units - all->store->ready);
    while (all->count < wished &&
           umf_store_start_thread(touchers_thread, all, &all->threads[all->count])) {
        all->count++;
    }
}

static void touchers_stop(touchers_t *all) {
    atomic_store(&all->stop, true);
    while (all->count > 0) {
        pthread_join(all->threads[--all->count], NULL);
    }
}

static void touchers_wait(touchers_t *all, const umf_pinned_t *unit) {
    for (;;) {
        uint32_t seen = umf_event_count_read(&all->turn);
        if (umf_pinned_is_touched(unit)) {
            return;
        }
        if (all->count == 0) { /* no thread could be created */
            touchers_touch_one(all);
        } else {
            umf_event_count_wait(&all->turn, seen);
        }
    }
}

static umf_result_t queue_unit(const umf_store_work_t *work, void *queue, size_t unit) {
    const umf_store_t *store = work->store;
    size_t start = unit * UMF_STORE_UNIT;
    size_t end = start + UMF_STORE_UNIT < store->size ? start + UMF_STORE_UNIT : store->size;
    return umf_store_copy(work, queue, start, end, store->pinned[unit]->base);
}

static umf_result_t queue_pinned(const umf_store_work_t *work, void *queue) {
    const umf_store_t *store = work->store;
    size_t usable = work->is_load ? store->units : store->ready;
    touchers_t touchers = {.store = store, .next = usable};
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (usable < store->units) {
        touchers_start(&touchers);
    }
    for (size_t unit = 0; unit < store->units && result == UMF_RESULT_SUCCESS; unit++) {
        if (unit == usable) {
            size_t count = 0;
            touchers_wait(&touchers, store->pinned[unit]);
            result = umf_pinned_pin(store->pinned[unit], &count);
            usable += count;
        }
        if (result == UMF_RESULT_SUCCESS) {
            result = queue_unit(work, queue, unit);
        }
    }
    touchers_stop(&touchers);
    return result;
}

umf_result_t umf_store_run_queue(const umf_store_work_t *work) {
    const umf_store_t *store = work->store;
    umf_memory_provider_handle_t provider = store->provider;
    void *queue;
    umf_result_t result = provider->ext->queue_create(provider->self, &queue);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = store->keep == UMF_SUSPEND_KEEP_PINNED
                 ? queue_pinned(work, queue)
                 : umf_store_copy(work, queue, 0, store->size, store->memory);
    umf_result_t waited = provider->ext->queue_wait(provider->self, queue);
    umf_result_t destroyed = provider->ext->queue_destroy(provider->self, queue);
    return result ? result : waited ? waited : destroyed;
}
