/* Stores of suspended memory: pinned, host, file, peer. */
#include "suspend/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "ds/list.h"

#define STORE_MAX_THREADS 12

/* A unit of pinned memory, in use by a store or held ready. */
typedef struct store_chunk_t {
    umf_list_t link;
    umf_memory_provider_handle_t provider;
    char *base;
} store_chunk_t;

struct umf_store_t {
    umf_memory_provider_handle_t provider; /* Immutable, as all without a note */
    umf_suspend_keep_t keep;
    size_t size;
    size_t units;
    store_chunk_t **chunks; /* PINNED: one for each unit. Sync: the thread that does the unit */
    char *memory;           /* HOST, PEER */
    int fd;                 /* FILE: already without a name */
};

UMF_LOCK_STATIC(store_lock, UMF_RANK_SUSPEND);
/* Pinned chunks held ready. Sync: store_lock */
static umf_list_t store_ready = {&store_ready, &store_ready};

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

/* --- pinned chunks ---------------------------------------------------------------------------- */

/* Pages are made before they are pinned: that is several times faster than pinning makes them. */
static void *store_map(size_t size) {
    void *base = NULL;
    int error = umf_os_map(&base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (error) {
        errno = error;
        UMF_LOG_PERROR("no %zu bytes of host memory to keep content in", size);
        return NULL;
    }
    umf_os_advise(base, size, MADV_HUGEPAGE);
    return base;
}

static void store_touch(char *base, size_t size) {
    size_t page = umf_os_page_size();
    for (size_t at = 0; at < size; at += page) {
        ((volatile char *)base)[at] = 0;
    }
}

static store_chunk_t *chunk_take_ready(umf_memory_provider_handle_t provider) {
    store_chunk_t *found = NULL;
    umf_lock(&store_lock);
    for (umf_list_t *at = store_ready.next; at != &store_ready && !found; at = at->next) {
        store_chunk_t *chunk = UMF_CONTAINER_OF(at, store_chunk_t, link);
        if (chunk->provider == provider) {
            umf_list_remove(&chunk->link);
            found = chunk;
        }
    }
    umf_unlock(&store_lock);
    return found;
}

static store_chunk_t *chunk_make(umf_memory_provider_handle_t provider) {
    store_chunk_t *chunk = umf_meta_alloc(sizeof(*chunk));
    if (!chunk) {
        return NULL;
    }
    chunk->provider = provider;
    chunk->base = store_map(UMF_STORE_UNIT);
    if (!chunk->base) {
        goto free_chunk;
    }
    store_touch(chunk->base, UMF_STORE_UNIT);
    if (provider->ext->host_pin && provider->ext->host_pin(provider->self, chunk->base,
                                                           UMF_STORE_UNIT) != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("no pinned memory left; another way to keep content needs less of it");
        goto unmap;
    }
    return chunk;

unmap:
    umf_os_unmap(chunk->base, UMF_STORE_UNIT);
free_chunk:
    umf_meta_free(chunk, sizeof(*chunk));
    return NULL;
}

static store_chunk_t *chunk_get(umf_memory_provider_handle_t provider) {
    store_chunk_t *chunk = chunk_take_ready(provider);
    return chunk ? chunk : chunk_make(provider);
}

static void chunk_put(store_chunk_t *chunk) {
    umf_lock(&store_lock);
    umf_list_add(&store_ready, &chunk->link);
    umf_unlock(&store_lock);
}

static void chunk_destroy(store_chunk_t *chunk) {
    umf_memory_provider_handle_t provider = chunk->provider;
    if (provider->ext->host_unpin) {
        provider->ext->host_unpin(provider->self, chunk->base, UMF_STORE_UNIT);
    }
    umf_os_unmap(chunk->base, UMF_STORE_UNIT);
    umf_meta_free(chunk, sizeof(*chunk));
}

void umf_store_trim(umf_memory_provider_handle_t provider) {
    umf_list_t gone;
    umf_list_init(&gone);
    umf_lock(&store_lock);
    for (umf_list_t *at = store_ready.next, *next; at != &store_ready; at = next) {
        next = at->next;
        store_chunk_t *chunk = UMF_CONTAINER_OF(at, store_chunk_t, link);
        if (!provider || chunk->provider == provider) {
            umf_list_remove(at);
            umf_list_add(&gone, at);
        }
    }
    umf_unlock(&store_lock);
    while (!umf_list_is_empty(&gone)) {
        umf_list_t *at = gone.next;
        umf_list_remove(at);
        chunk_destroy(UMF_CONTAINER_OF(at, store_chunk_t, link));
    }
}

/* --- creation --------------------------------------------------------------------------------- */

/* Without a name from the start, so that no crash leaves it behind; its blocks are reserved, so
 * that a full disk is found before anything is given up. */
static umf_result_t store_open_file(umf_store_t *store, const char *folder) {
    int error = umf_os_open(folder, O_TMPFILE | O_RDWR, 0600, &store->fd);
    if (error) {
        errno = error;
        UMF_LOG_PERROR("no file can be made in %s to keep content in", folder);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    error = posix_fallocate(store->fd, 0, (off_t)store->size);
    if (error) {
        errno = error;
        UMF_LOG_PERROR("%s has no room for %zu bytes of content", folder, store->size);
        umf_os_close(store->fd);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t store_make_room(umf_store_t *store, const umf_suspend_policy_t *policy) {
    umf_memory_provider_handle_t provider = store->provider;
    void *memory = NULL;
    umf_result_t result = UMF_RESULT_SUCCESS;
    switch (store->keep) {
    case UMF_SUSPEND_KEEP_PINNED:
        store->chunks = umf_meta_alloc(store->units * sizeof(*store->chunks));
        return store->chunks ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    case UMF_SUSPEND_KEEP_HOST:
        store->memory = store_map(store->size);
        return store->memory ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    case UMF_SUSPEND_KEEP_FILE:
        return store_open_file(store, policy->folder);
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

static void store_put_chunks(umf_store_t *store) {
    for (size_t i = 0; i < store->units; i++) {
        if (store->chunks[i]) {
            chunk_put(store->chunks[i]);
        }
    }
    umf_meta_free(store->chunks, store->units * sizeof(*store->chunks));
}

void umf_store_destroy(umf_store_t *store) {
    if (!store) {
        return;
    }
    switch (store->keep) {
    case UMF_SUSPEND_KEEP_PINNED:
        store_put_chunks(store);
        break;
    case UMF_SUSPEND_KEEP_HOST:
        umf_os_unmap(store->memory, store->size);
        break;
    case UMF_SUSPEND_KEEP_FILE:
        umf_os_close(store->fd);
        break;
    default:
        store->provider->ext->peer_free(store->provider->self, store->memory, store->size);
    }
    umf_meta_free(store, sizeof(*store));
}

/* --- units ------------------------------------------------------------------------------------ */

/* One saving or loading, shared by its threads. */
typedef struct store_work_t {
    umf_store_t *store;
    const umf_store_part_t *parts;
    size_t count;
    bool is_load;
    _Atomic size_t next_unit;
    _Atomic int result; /* the first failure: nobody begins another unit then */
} store_work_t;

/* What one thread has. */
typedef struct store_worker_t {
    store_work_t *work;
    void *queue;
    store_chunk_t *buffer; /* HOST and FILE */
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

/* All of the bytes, whatever the system does at once. */
static umf_result_t unit_file(const umf_store_t *store, char *buffer, size_t start, size_t size,
                              bool is_load) {
    for (size_t done = 0; done < size;) {
        ssize_t n = is_load ? pread(store->fd, buffer + done, size - done, (off_t)(start + done))
                            : pwrite(store->fd, buffer + done, size - done, (off_t)(start + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            UMF_LOG_PERROR("%s the file that keeps content failed",
                           is_load ? "reading" : "writing");
            return UMF_RESULT_ERROR_UNKNOWN;
        }
        done += (size_t)n;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t unit_bounce(umf_store_t *store, char *buffer, size_t start, size_t size,
                                bool is_load) {
    if (store->keep == UMF_SUSPEND_KEEP_FILE) {
        return unit_file(store, buffer, start, size, is_load);
    }
    if (is_load) {
        memcpy(buffer, store->memory + start, size);
    } else {
        memcpy(store->memory + start, buffer, size);
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
        if (!store->chunks[unit]) {
            store->chunks[unit] = chunk_get(store->provider);
        }
        return store->chunks[unit] ? unit_copy(worker, start, end, store->chunks[unit]->base)
                                   : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (work->is_load) {
        result = unit_bounce(store, worker->buffer->base, start, end - start, true);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = unit_copy(worker, start, end, worker->buffer->base);
    }
    if (result == UMF_RESULT_SUCCESS && !work->is_load) {
        result = unit_bounce(store, worker->buffer->base, start, end - start, false);
    }
    return result;
}

/* --- threads ---------------------------------------------------------------------------------- */

static void work_fail(store_work_t *work, umf_result_t result) {
    int none = UMF_RESULT_SUCCESS;
    atomic_compare_exchange_strong(&work->result, &none, (int)result);
}

static void work_units(store_worker_t *worker) {
    store_work_t *work = worker->work;
    while (atomic_load(&work->result) == UMF_RESULT_SUCCESS) {
        size_t unit = atomic_fetch_add(&work->next_unit, 1);
        if (unit >= work->store->units) {
            return;
        }
        umf_result_t result = unit_do(worker, unit);
        if (result != UMF_RESULT_SUCCESS) {
            work_fail(work, result);
        }
    }
}

static void *work_thread(void *arg) {
    store_work_t *work = arg;
    umf_memory_provider_handle_t provider = work->store->provider;
    store_worker_t worker = {.work = work};
    bool needs_buffer =
        work->store->keep == UMF_SUSPEND_KEEP_HOST || work->store->keep == UMF_SUSPEND_KEEP_FILE;
    umf_result_t result = provider->ext->queue_create(provider->self, &worker.queue);
    if (result != UMF_RESULT_SUCCESS) {
        work_fail(work, result);
        return NULL;
    }
    if (needs_buffer) {
        worker.buffer = chunk_get(provider);
    }
    if (needs_buffer && !worker.buffer) {
        work_fail(work, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    } else {
        work_units(&worker);
    }
    result = provider->ext->queue_destroy(provider->self, worker.queue);
    if (result != UMF_RESULT_SUCCESS) {
        work_fail(work, result);
    }
    if (worker.buffer) {
        chunk_put(worker.buffer);
    }
    return NULL;
}

static size_t work_threads(const umf_store_t *store) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t most = cpus > STORE_MAX_THREADS ? STORE_MAX_THREADS : cpus > 1 ? (size_t)cpus : 1;
    return most < store->units ? most : store->units;
}

/* The caller works as well. Fewer threads than wished are no failure. */
static umf_result_t store_run(store_work_t *work) {
    pthread_t threads[STORE_MAX_THREADS];
    size_t wished = work_threads(work->store), started = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the application's */
    while (started + 1 < wished &&
           pthread_create(&threads[started], NULL, work_thread, work) == 0) {
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work_thread(work);
    for (size_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    return (umf_result_t)atomic_load(&work->result);
}

umf_result_t umf_store_save(umf_store_t *store, const umf_store_part_t *parts, size_t count) {
    store_work_t work = {.store = store, .parts = parts, .count = count};
    return store_run(&work);
}

umf_result_t umf_store_load(umf_store_t *store, const umf_store_part_t *parts, size_t count) {
    store_work_t work = {.store = store, .parts = parts, .count = count, .is_load = true};
    return store_run(&work);
}
