/* Stores of suspended memory: pinned, host, file, peer. */
#include "suspend/store_own.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/meta.h"
#include "base/place.h"
#include "system/os.h"

#define STORE_FILE_SIZE ((size_t)1 << 30) /* a smaller store has one file */

bool umf_store_can(umf_memory_provider_handle_t provider, umf_suspend_keep_t keep) {
    const umf_memory_provider_ext_ops_t *ext = provider->ext;
    bool has_data =
        ext->queue_create && ext->queue_destroy && ext->queue_wait && ext->copy && ext->fill;
    const char *missing = NULL;
    if (keep != UMF_SUSPEND_DISCARD && !has_data) {
        missing = "copy memory";
    } else if (keep == UMF_SUSPEND_KEEP_PEER && !(ext->peer_alloc && ext->peer_free)) {
        missing = "keep memory on another device";
    }
    if (missing) {
        UMF_LOG_ERROR("provider %s cannot %s", provider->kind ? provider->kind->name : "", missing);
    }
    return !missing;
}

bool umf_store_reaches(umf_memory_provider_handle_t provider, int device) {
    void *trial;
    return provider->ext->peer_alloc(provider->self, device, 1, &trial) == UMF_RESULT_SUCCESS &&
           provider->ext->peer_free(provider->self, trial, 1) == UMF_RESULT_SUCCESS;
}

/* --- creation --------------------------------------------------------------------------------- */

static void store_close_files(umf_store_t *store) {
    while (store->file_count > 0) {
        umf_os_close(store->files[--store->file_count]);
    }
}

/* The files never have names, so that no crash leaves them behind. */
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
        umf_pinned_take(store->provider, store->pinned, store->units, &store->ready);
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

/* --- copying ---------------------------------------------------------------------------------- */

/* The first part that reaches beyond `offset` of the row. */
static size_t work_first_part(const umf_store_work_t *work, size_t offset) {
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

/* The end, up to `end`, of the bytes from part `i` on that are adjacent both in memory and in the
 * row. `*next` is the first part behind them. */
static size_t work_run_end(const umf_store_work_t *work, size_t i, size_t end, size_t *next) {
    const umf_store_part_t *parts = work->parts;
    while (i + 1 < work->count && parts[i + 1].offset < end &&
           parts[i + 1].offset == parts[i].offset + parts[i].size &&
           parts[i + 1].base == parts[i].base + parts[i].size) {
        i++;
    }
    *next = i + 1;
    return parts[i].offset + parts[i].size;
}

umf_result_t umf_store_copy(const umf_store_work_t *work, void *queue, size_t start, size_t end,
                            char *buffer) {
    umf_memory_provider_handle_t provider = work->store->provider;
    umf_result_t result = UMF_RESULT_SUCCESS;
    size_t i = work_first_part(work, start);
    while (i < work->count && work->parts[i].offset < end && result == UMF_RESULT_SUCCESS) {
        const umf_store_part_t *part = &work->parts[i];
        size_t run_end = work_run_end(work, i, end, &i);
        size_t from = part->offset > start ? part->offset : start;
        size_t to = run_end < end ? run_end : end;
        char *memory = part->base + (from - part->offset);
        char *kept = buffer + (from - start);
        result = work->is_load
                     ? provider->ext->copy(provider->self, queue, memory, kept, to - from)
                     : provider->ext->copy(provider->self, queue, kept, memory, to - from);
    }
    return result;
}

bool umf_store_start_thread(void *(*run)(void *), void *arg, pthread_t *thread) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

size_t umf_store_threads(size_t units) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t most = cpus > STORE_MAX_THREADS ? STORE_MAX_THREADS : cpus > 1 ? (size_t)cpus : 1;
    return most < units ? most : units;
}

/* A provider that pins host memory has a device that copies from and to it without the CPU. */
static umf_result_t store_run(umf_store_t *store, const umf_store_part_t *parts, size_t count,
                              bool is_load) {
    const umf_store_work_t work = {
        .store = store, .parts = parts, .count = count, .is_load = is_load};
    bool is_device_only =
        store->keep == UMF_SUSPEND_KEEP_PEER ||
        (store->keep == UMF_SUSPEND_KEEP_PINNED && store->provider->ext->host_pin);
    return is_device_only ? umf_store_run_queue(&work) : umf_store_run_threads(&work);
}

umf_result_t umf_store_save(umf_store_t *store, const umf_store_part_t *parts, size_t count) {
    return store_run(store, parts, count, false);
}

umf_result_t umf_store_load(umf_store_t *store, const umf_store_part_t *parts, size_t count) {
    return store_run(store, parts, count, true);
}
