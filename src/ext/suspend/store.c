/* Stores of suspended memory: what they are made of. */
#include "ext/suspend/store_own.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/meta.h"
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
        store->file_count--;
        umf_kept_fd_close(&store->files[store->file_count]);
        umf_os_unmap(store->pins[store->file_count], umf_os_page_size());
    }
}

/* A file without a name, so that it does not survive a crash. */
static int store_open_file(umf_store_t *store, const char *folder) {
    umf_kept_fd_t *file = &store->files[store->file_count];
    void **pin = &store->pins[store->file_count];
    int fd;
    int error = umf_os_open(folder, O_TMPFILE | O_RDWR, 0600, &fd);
    if (!error) {
        error = umf_kept_fd_take(file, fd);
    }
    if (error) {
        return error;
    }
    *pin = NULL;
    error = umf_os_truncate(fd, umf_os_page_size()); /* emulators refuse a mapping beyond the end */
    if (!error) {
        error = umf_os_map(pin, umf_os_page_size(), PROT_NONE, MAP_SHARED, fd, 0);
    }
    if (error) {
        umf_kept_fd_close(file);
    }
    return error;
}

static umf_result_t store_open_files(umf_store_t *store, const char *folder) {
    size_t wished = 1 + store->size / STORE_FILE_SIZE;
    wished = wished < STORE_MAX_FILES ? wished : STORE_MAX_FILES;
    store->folder = folder;
    while (store->file_count < wished) {
        int error = store_open_file(store, folder);
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

static umf_result_t store_take_units(umf_store_t *store) {
    size_t count = (store->size + UMF_PINNED_UNIT - 1) / UMF_PINNED_UNIT;
    store->units = umf_meta_alloc(count * sizeof(*store->units));
    if (!store->units) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    store->unit_count = count;
    store->is_pinned = store->keep == UMF_SUSPEND_KEEP_PINNED && store->provider->ext->host_pin;
    umf_result_t result = store->is_pinned
                              ? umf_pinned_take(store->provider, store->units, count, &store->ready)
                              : umf_pinned_take_plain(store->provider, store->units, count);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(store->units, count * sizeof(*store->units));
    }
    return result;
}

static umf_result_t store_plan_chunks(umf_store_t *store) {
    size_t count = (store->size + STORE_CHUNK - 1) / STORE_CHUNK;
    store->chunks = umf_meta_alloc(count * sizeof(*store->chunks));
    if (!store->chunks) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    store->chunk_count = count;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t store_make_room(umf_store_t *store, const umf_suspend_policy_t *policy) {
    switch (store->keep) {
    case UMF_SUSPEND_KEEP_PINNED:
    case UMF_SUSPEND_KEEP_HOST:
        return store_take_units(store);
    case UMF_SUSPEND_KEEP_FILE:
        return store_open_files(store, policy->folder);
    default:
        store->device = policy->device;
        return store_plan_chunks(store);
    }
}

/* --- release --------------------------------------------------------------------------------- */

static void store_put_units(umf_store_t *store) {
    umf_pinned_put(store->units, store->unit_count);
    umf_meta_free(store->units, store->unit_count * sizeof(*store->units));
}

static void store_free_chunks(umf_store_t *store) {
    umf_memory_provider_handle_t provider = store->provider;
    for (size_t i = 0; i < store->chunk_count && store->chunks[i]; i++) {
        provider->ext->peer_free(provider->self, store->chunks[i], umf_store_chunk_size(store, i));
    }
    umf_meta_free(store->chunks, store->chunk_count * sizeof(*store->chunks));
}

static void store_release(umf_undone_memory_t *memory) {
    umf_store_t *store = UMF_CONTAINER_OF(memory, umf_store_t, memory);
    switch (store->keep) {
    case UMF_SUSPEND_KEEP_PINNED:
    case UMF_SUSPEND_KEEP_HOST:
        store_put_units(store);
        break;
    case UMF_SUSPEND_KEEP_FILE:
        store_close_files(store);
        break;
    default:
        store_free_chunks(store);
    }
    umf_meta_free(store, sizeof(*store));
}

/* --- both ------------------------------------------------------------------------------------ */

umf_result_t umf_store_create(umf_memory_provider_handle_t provider,
                              const umf_suspend_policy_t *policy, size_t size,
                              umf_store_t **store) {
    umf_store_t *made = umf_meta_alloc(sizeof(*made));
    if (!made) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made->memory.users = 1;
    made->memory.release = store_release;
    made->provider = provider;
    made->keep = policy->keep;
    made->size = size;
    umf_result_t result = store_make_room(made, policy);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(made, sizeof(*made));
        return result;
    }
    *store = made;
    return UMF_RESULT_SUCCESS;
}

void umf_store_destroy(umf_store_t *store) {
    if (store) {
        umf_undone_drop(&store->memory);
    }
}
