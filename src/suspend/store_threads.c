/*
 * Copies that need the CPU: the units are divided among threads. Each thread has a queue of the
 * provider and, if content passes through pinned memory, a unit of that.
 */
#include "suspend/store_own.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "movement/stream.h"
#include "system/os.h"

typedef struct threads_t {
    const umf_store_work_t *work;
    _Atomic size_t next; /* unit */
    _Atomic int result;  /* the first failure; after it no thread begins another unit */
} threads_t;

/* Whether content passes through a unit of pinned memory. */
static bool store_bounces(const umf_store_t *store) {
    return store->keep == UMF_SUSPEND_KEEP_FILE ||
           (store->keep == UMF_SUSPEND_KEEP_HOST && store->provider->ext->host_pin);
}

/* Units are distributed over the files in turn, because a file lets one thread write at a time. */
static umf_result_t unit_file(const umf_store_t *store, char *buffer, size_t unit, size_t size,
                              bool is_load) {
    int fd = store->files[unit % store->file_count];
    uint64_t at = unit / store->file_count * UMF_STORE_UNIT;
    int error = 0;
    if (is_load) {
        error = umf_os_read_at(fd, buffer, size, at);
    } else {
        /* If the file system cannot reserve space, a lack of it shows at the write. */
        error = umf_os_allocate(fd, at, size);
        error = error == 0 || error == EOPNOTSUPP ? umf_os_write_at(fd, buffer, size, at) : error;
    }
    if (error) {
        errno = error;
        UMF_LOG_PERROR("%s %zu bytes of content in %s failed", is_load ? "reading" : "keeping",
                       size, store->folder);
        return error == ENOSPC || error == EFBIG ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
                                                 : UMF_RESULT_ERROR_UNKNOWN;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t unit_bounce(const umf_store_work_t *work, char *buffer, size_t unit,
                                size_t size) {
    const umf_store_t *store = work->store;
    if (store->keep == UMF_SUSPEND_KEEP_FILE) {
        return unit_file(store, buffer, unit, size, work->is_load);
    }
    char *memory = store->memory + unit * UMF_STORE_UNIT;
    if (work->is_load) {
        memcpy(buffer, memory, size);
    } else {
        umf_stream_copy(memory, buffer, size); /* nobody reads it soon */
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t unit_copy(const umf_store_work_t *work, void *queue, size_t start, size_t end,
                              char *buffer) {
    umf_memory_provider_handle_t provider = work->store->provider;
    umf_result_t result = umf_store_copy(work, queue, start, end, buffer);
    umf_result_t waited = provider->ext->queue_wait(provider->self, queue);
    return result ? result : waited;
}

static umf_result_t unit_do(const umf_store_work_t *work, void *queue, size_t unit,
                            umf_pinned_t *by_way) {
    const umf_store_t *store = work->store;
    size_t start = unit * UMF_STORE_UNIT;
    size_t end = start + UMF_STORE_UNIT < store->size ? start + UMF_STORE_UNIT : store->size;
    char *place =
        by_way ? by_way->base : (store->pinned ? store->pinned[unit]->base : store->memory + start);
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (by_way && work->is_load) {
        result = unit_bounce(work, place, unit, end - start);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = unit_copy(work, queue, start, end, place);
    }
    if (result == UMF_RESULT_SUCCESS && by_way && !work->is_load) {
        result = unit_bounce(work, place, unit, end - start);
    }
    return result;
}

/* --- threads ---------------------------------------------------------------------------------- */

static void threads_fail(threads_t *all, umf_result_t result) {
    int none = UMF_RESULT_SUCCESS;
    atomic_compare_exchange_strong(&all->result, &none, (int)result);
}

static umf_result_t take_unit(umf_memory_provider_handle_t provider, umf_pinned_t **unit) {
    umf_pinned_t *taken;
    size_t ready, count;
    umf_result_t result = umf_pinned_take(provider, &taken, 1, &ready);
    if (result == UMF_RESULT_SUCCESS && ready == 0) {
        umf_pinned_touch(taken);
        result = umf_pinned_pin(taken, &count);
        if (result != UMF_RESULT_SUCCESS) {
            umf_pinned_put(taken);
        }
    }
    if (result == UMF_RESULT_SUCCESS) {
        *unit = taken;
    }
    return result;
}

static umf_result_t thread_units(threads_t *all, void *queue) {
    const umf_store_work_t *work = all->work;
    umf_pinned_t *by_way = NULL;
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (store_bounces(work->store)) {
        result = take_unit(work->store->provider, &by_way);
    }
    while (result == UMF_RESULT_SUCCESS && atomic_load(&all->result) == UMF_RESULT_SUCCESS) {
        size_t unit = atomic_fetch_add(&all->next, 1);
        if (unit >= work->store->units) {
            break;
        }
        result = unit_do(work, queue, unit, by_way);
    }
    if (by_way) {
        umf_pinned_put(by_way);
    }
    return result;
}

static void *thread_run(void *arg) {
    threads_t *all = arg;
    umf_memory_provider_handle_t provider = all->work->store->provider;
    void *queue;
    umf_result_t result = provider->ext->queue_create(provider->self, &queue);
    if (result == UMF_RESULT_SUCCESS) {
        umf_result_t done = thread_units(all, queue);
        result = provider->ext->queue_destroy(provider->self, queue);
        result = done ? done : result;
    }
    if (result != UMF_RESULT_SUCCESS) {
        threads_fail(all, result);
    }
    return NULL;
}

/* Marks new units as usable. This way of copying does not pin them. */
static umf_result_t settle_pinned(const umf_store_work_t *work) {
    umf_store_t *store = work->store;
    size_t unit =
        store->keep == UMF_SUSPEND_KEEP_PINNED && !work->is_load ? store->ready : store->units;
    umf_result_t result = UMF_RESULT_SUCCESS;
    while (unit < store->units && result == UMF_RESULT_SUCCESS) {
        size_t count = 0;
        result = umf_pinned_pin(store->pinned[unit], &count);
        unit += count;
    }
    return result;
}

/* The calling thread works, too. Fewer threads than requested are no failure. */
umf_result_t umf_store_run_threads(const umf_store_work_t *work) {
    threads_t all = {.work = work};
    pthread_t threads[STORE_MAX_THREADS];
    size_t wished = umf_store_threads(work->store->units), started = 0;
    umf_result_t result = settle_pinned(work);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    while (started + 1 < wished && umf_store_start_thread(thread_run, &all, &threads[started])) {
        started++;
    }
    thread_run(&all);
    while (started > 0) {
        pthread_join(threads[--started], NULL);
    }
    return (umf_result_t)atomic_load(&all.result);
}
