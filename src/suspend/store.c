/* Stores of suspended memory: pinned, host, file, peer. */
#include "suspend/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "ipc/turn.h"
#include "providers/os_place.h"
#include "suspend/pinned.h"

#define STORE_MAX_THREADS 12
#define STORE_COPYING_THREADS 4 /* so many copies at once are as fast as the bus */
#define STORE_MAX_FILES 8
#define STORE_FILE_SIZE ((size_t)1 << 30) /* a smaller store has one file */

struct umf_store_t {
    umf_memory_provider_handle_t provider; /* Immutable after create, as all without a note */
    umf_suspend_keep_t keep;
    size_t size;
    size_t units;
    umf_pinned_t **pinned;      /* PINNED: one for each unit */
    size_t pinned_count;        /* so many are pinned, from the first on. Sync: the end of a save */
    char *memory;               /* HOST, PEER */
    const char *folder;         /* FILE: of the policy, which outlives the store */
    int files[STORE_MAX_FILES]; /* already without names */
    size_t file_count;
};

static bool peer_is_reached(umf_memory_provider_handle_t provider, int device) {
    void *trial;
    return provider->ext->peer_alloc(provider->self, device, 1, &trial) == UMF_RESULT_SUCCESS &&
           provider->ext->peer_free(provider->self, trial, 1) == UMF_RESULT_SUCCESS;
}

bool umf_store_can(umf_memory_provider_handle_t provider, const umf_suspend_policy_t *policy) {
    const umf_memory_provider_ext_ops_t *ext = provider->ext;
    umf_suspend_keep_t keep = policy->keep;
    bool has_data =
        ext->queue_create && ext->queue_destroy && ext->queue_wait && ext->copy && ext->fill;
    const char *missing = NULL;
    if (keep != UMF_SUSPEND_DISCARD && !has_data) {
        missing = "copy memory";
    } else if (keep == UMF_SUSPEND_KEEP_PEER &&
               !(ext->peer_alloc && ext->peer_free && peer_is_reached(provider, policy->device))) {
        missing = "keep memory on another device";
    }
    if (missing) {
        UMF_LOG_ERROR("provider %s cannot %s", provider->kind ? provider->kind->name : "", missing);
    }
    return !missing;
}

/* --- creation --------------------------------------------------------------------------------- */

static void store_close_files(umf_store_t *store) {
    while (store->file_count > 0) {
        umf_os_close(store->files[--store->file_count]);
    }
}

/* Without names from the start, so that no crash leaves them behind. */
static umf_result_t store_open_files(umf_store_t *store, const char *folder) {
    size_t wished = 1 + store->size / STORE_FILE_SIZE;
    wished = wished < STORE_MAX_FILES ? wished : STORE_MAX_FILES;
    store->folder = folder;
    while (store->file_count < wished) {
        int *fd = &store->files[store->file_count];
        int error = umf_os_open(folder, O_TMPFILE | O_RDWR, 0600, fd);
        if (error) {
            errno = error;
            UMF_LOG_PERROR("no file can be made in %s to keep content in", folder);
            store_close_files(store);
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        store->file_count++;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t store_take_pinned(umf_store_t *store) {
    size_t bytes = store->units * sizeof(*store->pinned);
    store->pinned = umf_meta_alloc(bytes);
    if (!store->pinned) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result =
        umf_pinned_take(store->provider, store->pinned, store->units, &store->pinned_count);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(store->pinned, bytes);
    }
    return result;
}

static umf_result_t store_map(umf_store_t *store) {
    void *memory;
    size_t size = store->units * UMF_STORE_UNIT;
    int error = umf_os_place(size, 0, PROT_READ | PROT_WRITE, &memory);
    if (error) {
        errno = error;
        UMF_LOG_PERROR("no %zu bytes of host memory to keep content in", size);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    store->memory = memory;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t store_make_room(umf_store_t *store, const umf_suspend_policy_t *policy) {
    umf_memory_provider_handle_t provider = store->provider;
    void *memory = NULL;
    umf_result_t result;
    switch (store->keep) {
    case UMF_SUSPEND_KEEP_PINNED:
        return store_take_pinned(store);
    case UMF_SUSPEND_KEEP_HOST:
        return store_map(store);
    case UMF_SUSPEND_KEEP_FILE:
        return store_open_files(store, policy->folder);
    default:
        result = provider->ext->peer_alloc(provider->self, policy->device, store->size, &memory);
        store->memory = memory;
        return result;
    }
}

umf_result_t umf_store_create(umf_memory_provider_handle_t provider,
                              const umf_suspend_policy_t *policy, size_t size,
                              umf_store_t **store) {
    umf_store_t *made = umf_meta_alloc(sizeof(*made));
    if (!made) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made->provider = provider;
    made->keep = policy->keep;
    made->size = size;
    made->units = (size + UMF_STORE_UNIT - 1) / UMF_STORE_UNIT;
    umf_result_t result = store_make_room(made, policy);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(made, sizeof(*made));
        return result;
    }
    *store = made;
    return UMF_RESULT_SUCCESS;
}

static void store_put_pinned(umf_store_t *store) {
    for (size_t i = 0; i < store->units; i++) {
        umf_pinned_put(store->pinned[i]);
    }
    umf_meta_free(store->pinned, store->units * sizeof(*store->pinned));
}

void umf_store_destroy(umf_store_t *store) {
    if (!store) {
        return;
    }
    switch (store->keep) {
    case UMF_SUSPEND_KEEP_PINNED:
        store_put_pinned(store);
        break;
    case UMF_SUSPEND_KEEP_HOST:
        umf_os_unmap(store->memory, store->units * UMF_STORE_UNIT);
        umf_os_place_freed(store->memory, store->units * UMF_STORE_UNIT);
        break;
    case UMF_SUSPEND_KEEP_FILE:
        store_close_files(store);
        break;
    default:
        store->provider->ext->peer_free(store->provider->self, store->memory, store->size);
    }
    umf_meta_free(store, sizeof(*store));
}

/* --- units ------------------------------------------------------------------------------------ */

/*
 * One saving or loading, shared by its threads. Units of pinned memory that are fresh go through
 * three hands: touched by any thread, pinned in blocks by one thread at a time, copied by any.
 */
typedef struct store_work_t {
    umf_store_t *store;
    const umf_store_part_t *parts;
    size_t count;
    bool is_load;
    _Atomic size_t usable;     /* units that can be copied, from the first on */
    _Atomic size_t next_unit;  /* to copy */
    _Atomic size_t next_fresh; /* to touch */
    _Atomic bool is_pinning;   /* by some thread */
    _Atomic int result;        /* the first failure: nobody begins another step then */
    umf_turn_t turn;           /* counts what others may wait for */
} store_work_t;

/* What one thread has. */
typedef struct store_worker_t {
    store_work_t *work;
    bool copies_first; /* rather than to touch: a few threads keep the device busy */
    void *queue;
    umf_pinned_t *buffer; /* HOST and FILE */
} store_worker_t;

/* The first part that reaches beyond `offset` of the row. */
static size_t work_first_part(const store_work_t *work, size_t offset) {
    size_t low = 0, high = work->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (work->parts[middle].offset + work->parts[middle].size > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* Copies between the memory of the parts and `buffer`, which stands for the unit, and waits. */
static umf_result_t unit_copy(store_worker_t *worker, size_t start, size_t end, char *buffer) {
    const store_work_t *work = worker->work;
    umf_memory_provider_handle_t provider = work->store->provider;
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = work_first_part(work, start);
         i < work->count && work->parts[i].offset < end && result == UMF_RESULT_SUCCESS; i++) {
        const umf_store_part_t *part = &work->parts[i];
        size_t from = part->offset > start ? part->offset : start;
        size_t to = part->offset + part->size < end ? part->offset + part->size : end;
        char *memory = part->base + (from - part->offset);
        char *kept = buffer + (from - start);
        result = work->is_load
                     ? provider->ext->copy(provider->self, worker->queue, memory, kept, to - from)
                     : provider->ext->copy(provider->self, worker->queue, kept, memory, to - from);
    }
    umf_result_t waited = provider->ext->queue_wait(provider->self, worker->queue);
    return result != UMF_RESULT_SUCCESS ? result : waited;
}

/* Units go to the files in turn: a file lets one thread write at a time. */
static umf_result_t unit_file(const umf_store_t *store, char *buffer, size_t unit, size_t size,
                              bool is_load) {
    int fd = store->files[unit % store->file_count];
    uint64_t at = unit / store->file_count * UMF_STORE_UNIT;
    int error = 0;
    if (is_load) {
        error = umf_os_read_at(fd, buffer, size, at);
    } else {
        /* A file system that cannot reserve finds out while it writes. */
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

static umf_result_t unit_bounce(umf_store_t *store, char *buffer, size_t unit, size_t size,
                                bool is_load) {
    if (store->keep == UMF_SUSPEND_KEEP_FILE) {
        return unit_file(store, buffer, unit, size, is_load);
    }
    char *memory = store->memory + unit * UMF_STORE_UNIT;
    if (is_load) {
        memcpy(buffer, memory, size);
    } else {
        memcpy(memory, buffer, size);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t unit_do(store_worker_t *worker, size_t unit) {
    const store_work_t *work = worker->work;
    umf_store_t *store = work->store;
    size_t start = unit * UMF_STORE_UNIT;
    size_t end = start + UMF_STORE_UNIT < store->size ? start + UMF_STORE_UNIT : store->size;
    if (store->keep == UMF_SUSPEND_KEEP_PEER) {
        return unit_copy(worker, start, end, store->memory + start);
    }
    if (store->keep == UMF_SUSPEND_KEEP_PINNED) {
        return unit_copy(worker, start, end, store->pinned[unit]->base);
    }
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (work->is_load) {
        result = unit_bounce(store, worker->buffer->base, unit, end - start, true);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = unit_copy(worker, start, end, worker->buffer->base);
    }
    if (result == UMF_RESULT_SUCCESS && !work->is_load) {
        result = unit_bounce(store, worker->buffer->base, unit, end - start, false);
    }
    return result;
}

/* --- threads ---------------------------------------------------------------------------------- */

static void work_fail(store_work_t *work, umf_result_t result) {
    int none = UMF_RESULT_SUCCESS;
    atomic_compare_exchange_strong(&work->result, &none, (int)result);
    umf_turn_next(&work->turn);
}

static bool work_claim(_Atomic size_t *next, size_t end, size_t *unit) {
    size_t at = atomic_load(next);
    while (at < end) {
        if (atomic_compare_exchange_weak(next, &at, at + 1)) {
            *unit = at;
            return true;
        }
    }
    return false;
}

static bool work_has_block_to_pin(const store_work_t *work) {
    size_t usable = atomic_load(&work->usable);
    return usable < work->store->units && umf_pinned_is_touched(work->store->pinned[usable]);
}

/* Pins the next block if it is ready and nobody else does. */
static bool work_pin(store_work_t *work) {
    if (!work_has_block_to_pin(work) || atomic_exchange(&work->is_pinning, true)) {
        return false;
    }
    bool has_block = work_has_block_to_pin(work);
    if (has_block) {
        size_t count, usable = atomic_load(&work->usable);
        umf_result_t result = umf_pinned_pin(work->store->pinned[usable], &count);
        if (result == UMF_RESULT_SUCCESS) {
            atomic_store(&work->usable, usable + count);
            umf_turn_next(&work->turn);
        } else {
            work_fail(work, result);
        }
    }
    atomic_store(&work->is_pinning, false);
    return has_block;
}

static bool work_touch(store_work_t *work) {
    size_t unit;
    if (!work_claim(&work->next_fresh, work->store->units, &unit)) {
        return false;
    }
    umf_pinned_touch(work->store->pinned[unit]);
    umf_turn_next(&work->turn);
    return true;
}

static bool work_copy(store_worker_t *worker) {
    store_work_t *work = worker->work;
    size_t unit;
    if (!work_claim(&work->next_unit, atomic_load(&work->usable), &unit)) {
        return false;
    }
    umf_result_t result = unit_do(worker, unit);
    if (result != UMF_RESULT_SUCCESS) {
        work_fail(work, result);
    }
    return true;
}

static void work_steps(store_worker_t *worker) {
    store_work_t *work = worker->work;
    while (atomic_load(&work->result) == UMF_RESULT_SUCCESS) {
        uint32_t seen = umf_turn_look(&work->turn);
        if (work_pin(work) || (worker->copies_first && work_copy(worker)) || work_touch(work) ||
            work_copy(worker)) {
            continue;
        }
        if (atomic_load(&work->next_unit) == work->store->units) {
            return;
        }
        umf_turn_wait(&work->turn, seen);
    }
}

/* One unit of pinned memory for the way to and from memory that is not. */
static umf_result_t worker_take_buffer(store_worker_t *worker) {
    size_t ready, count;
    umf_result_t result =
        umf_pinned_take(worker->work->store->provider, &worker->buffer, 1, &ready);
    if (result != UMF_RESULT_SUCCESS || ready == 1) {
        return result;
    }
    umf_pinned_touch(worker->buffer);
    result = umf_pinned_pin(worker->buffer, &count);
    if (result != UMF_RESULT_SUCCESS) {
        umf_pinned_put(worker->buffer);
    }
    return result;
}

static bool store_needs_buffers(const umf_store_t *store) {
    return store->keep == UMF_SUSPEND_KEEP_HOST || store->keep == UMF_SUSPEND_KEEP_FILE;
}

static umf_result_t worker_run(store_worker_t *worker) {
    if (!store_needs_buffers(worker->work->store)) {
        work_steps(worker);
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = worker_take_buffer(worker);
    if (result == UMF_RESULT_SUCCESS) {
        work_steps(worker);
        umf_pinned_put(worker->buffer);
    }
    return result;
}

static void *work_thread(void *arg) {
    store_worker_t *worker = arg;
    store_work_t *work = worker->work;
    umf_memory_provider_handle_t provider = work->store->provider;
    umf_result_t result = provider->ext->queue_create(provider->self, &worker->queue);
    if (result == UMF_RESULT_SUCCESS) {
        umf_result_t done = worker_run(worker);
        result = provider->ext->queue_destroy(provider->self, worker->queue);
        result = done != UMF_RESULT_SUCCESS ? done : result;
    }
    if (result != UMF_RESULT_SUCCESS) {
        work_fail(work, result);
    }
    return NULL;
}

/* Where there is nothing to do but to wait for copies, more threads only meet in the driver. */
static size_t work_threads(const store_work_t *work) {
    const umf_store_t *store = work->store;
    bool only_copies = !store_needs_buffers(store) && work->usable == store->units;
    size_t most = only_copies ? STORE_COPYING_THREADS : STORE_MAX_THREADS;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    most = cpus > (long)most ? most : cpus > 1 ? (size_t)cpus : 1;
    return most < store->units ? most : store->units;
}

/* The caller works as well. Fewer threads than wished are no failure. */
static umf_result_t store_run(store_work_t *work) {
    pthread_t threads[STORE_MAX_THREADS];
    store_worker_t workers[STORE_MAX_THREADS];
    size_t wished = work_threads(work), started = 1;
    for (size_t i = 0; i < wished; i++) {
        workers[i] = (store_worker_t){.work = work, .copies_first = i < STORE_COPYING_THREADS};
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the application's */
    while (started < wished &&
           pthread_create(&threads[started], NULL, work_thread, &workers[started]) == 0) {
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work_thread(&workers[0]);
    for (size_t i = 1; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    return (umf_result_t)atomic_load(&work->result);
}

static size_t store_usable(const umf_store_t *store) {
    return store->keep == UMF_SUSPEND_KEEP_PINNED ? store->pinned_count : store->units;
}

umf_result_t umf_store_save(umf_store_t *store, const umf_store_part_t *parts, size_t count) {
    size_t usable = store_usable(store);
    store_work_t work = {
        .store = store, .parts = parts, .count = count, .usable = usable, .next_fresh = usable};
    umf_result_t result = store_run(&work);
    if (store->keep == UMF_SUSPEND_KEEP_PINNED) {
        store->pinned_count = atomic_load(&work.usable);
    }
    return result;
}

umf_result_t umf_store_load(umf_store_t *store, const umf_store_part_t *parts, size_t count) {
    size_t usable = store_usable(store);
    store_work_t work = {.store = store,
                         .parts = parts,
                         .count = count,
                         .is_load = true,
                         .usable = usable,
                         .next_fresh = store->units};
    return store_run(&work);
}
