/*
 * Copies between memory and a store. A device that reaches the store by itself copies all on one
 * queue, which is as fast as the bus. Otherwise the work is staged (ext/staging/stage.h).
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "ext/staging/queue.h"
#include "ext/staging/stage.h"
#include "ext/staging/stream.h"
#include "ext/suspend/store_own.h"
#include "system/os.h"

/* One save or load. */
typedef struct work_t {
    umf_store_t *store;
    const umf_store_part_t *parts;
    size_t count;
    bool is_load;
    umf_operand_t operand; /* names the provider */
    void *queue;           /* where one does all */
} work_t;

/* --- parts of memory ----------------------------------------------------------------------------
 */

/* The first part that reaches beyond `offset` of the row. */
static size_t work_first_part(const work_t *work, size_t offset) {
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
static size_t work_run_end(const work_t *work, size_t i, size_t end, size_t *next) {
    const umf_store_part_t *parts = work->parts;
    while (i + 1 < work->count && parts[i + 1].offset < end &&
           parts[i + 1].offset == parts[i].offset + parts[i].size &&
           parts[i + 1].base == parts[i].base + parts[i].size) {
        i++;
    }
    *next = i + 1;
    return parts[i].offset + parts[i].size;
}

/* Queues the copies between the parts and `buffer`, which holds `size` bytes at `at` of the row. */
static umf_result_t parts_copy(const work_t *work, void *queue, size_t at, size_t size,
                               char *buffer) {
    umf_memory_provider_handle_t provider = work->store->provider;
    umf_result_t result = UMF_RESULT_SUCCESS;
    size_t i = work_first_part(work, at), end = at + size;
    while (i < work->count && work->parts[i].offset < end && result == UMF_RESULT_SUCCESS) {
        const umf_store_part_t *part = &work->parts[i];
        size_t run_end = work_run_end(work, i, end, &i);
        size_t from = part->offset > at ? part->offset : at;
        size_t to = run_end < end ? run_end : end;
        char *memory = part->base + (from - part->offset);
        char *kept = buffer + (from - at);
        result = work->is_load
                     ? provider->ext->copy(provider->self, queue, memory, kept, to - from)
                     : provider->ext->copy(provider->self, queue, kept, memory, to - from);
    }
    return result;
}

/* --- one queue: the host queues all and waits once ----------------------------------------------
 */

static umf_result_t queue_unit(void *arg, size_t unit) {
    const work_t *work = arg;
    const umf_store_t *store = work->store;
    size_t at = unit * UMF_PINNED_UNIT, rest = store->size - at;
    return parts_copy(work, work->queue, at, rest < UMF_PINNED_UNIT ? rest : UMF_PINNED_UNIT,
                      store->units[unit]->base);
}

/* New units pass a pipeline: some threads touch them, this one pins them, the device copies. */
static umf_result_t queue_units(work_t *work) {
    umf_store_t *store = work->store;
    size_t ready = work->is_load ? store->unit_count : store->ready;
    return umf_pinned_make(store->units, store->unit_count, ready, queue_unit, work);
}

static umf_result_t queue_chunks(const work_t *work) {
    umf_store_t *store = work->store;
    umf_memory_provider_handle_t provider = store->provider;
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < store->chunk_count && result == UMF_RESULT_SUCCESS; i++) {
        size_t size = umf_store_chunk_size(store, i);
        if (!store->chunks[i]) {
            result =
                provider->ext->peer_alloc(provider->self, store->device, size, &store->chunks[i]);
        }
        if (result == UMF_RESULT_SUCCESS) {
            result = parts_copy(work, work->queue, i * STORE_CHUNK, size, store->chunks[i]);
        }
    }
    return result;
}

static umf_result_t queue_all(const umf_operand_t *operand, void *queue, void *arg) {
    work_t *work = arg;
    (void)operand;
    work->queue = queue;
    return work->store->keep == UMF_SUSPEND_KEEP_PEER ? queue_chunks(work) : queue_units(work);
}

/* --- stages -------------------------------------------------------------------------------------
 */

static umf_result_t parts_end(const umf_stage_end_t *end, void *queue, size_t at, size_t size,
                              char *buffer, bool is_into_buffer) {
    (void)is_into_buffer; /* work->is_load says so, too */
    return parts_copy(end->what, queue, at, size, buffer);
}

static char *unit_at(const umf_stage_end_t *end, size_t at) {
    const umf_store_t *store = ((const work_t *)end->what)->store;
    return store->units[at / UMF_PINNED_UNIT]->base + at % UMF_PINNED_UNIT;
}

static umf_result_t units_end(const umf_stage_end_t *end, void *queue, size_t at, size_t size,
                              char *buffer, bool is_into_buffer) {
    (void)queue;
    if (is_into_buffer) {
        memcpy(buffer, unit_at(end, at), size);
    } else {
        umf_stream_copy(unit_at(end, at), buffer, size); /* it is not read soon */
    }
    return UMF_RESULT_SUCCESS;
}

static int file_read_or_write(const umf_kept_fd_t *file, char *buffer, size_t size, uint64_t at,
                              bool is_load) {
    int fd = file->number;
    int closed = umf_kept_fd_check(file, "a file with the content of a suspended pool");
    if (closed) {
        return closed;
    }
    if (is_load) {
        return umf_os_read_at(fd, buffer, size, at);
    }
    /* If the file system cannot reserve space, a lack of it shows at the write. */
    int error = umf_os_allocate(fd, at, size);
    return error == 0 || error == EOPNOTSUPP ? umf_os_write_at(fd, buffer, size, at) : error;
}

/* Parts are distributed over the files in turn, because a file lets one thread write at a time. */
static umf_result_t files_end(const umf_stage_end_t *end, void *queue, size_t at, size_t size,
                              char *buffer, bool is_load) {
    const umf_store_t *store = ((const work_t *)end->what)->store;
    size_t part = at / UMF_STAGE_PART;
    uint64_t place = part / store->file_count * UMF_STAGE_PART + at % UMF_STAGE_PART;
    int error =
        file_read_or_write(&store->files[part % store->file_count], buffer, size, place, is_load);
    (void)queue;
    if (error) {
        errno = error;
        UMF_LOG_PERROR("%s %zu bytes of content in %s failed", is_load ? "reading" : "keeping",
                       size, store->folder);
        return error == ENOSPC || error == EFBIG ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
                                                 : UMF_RESULT_ERROR_UNKNOWN;
    }
    return UMF_RESULT_SUCCESS;
}

/* A provider that does not pin copies straight to and from memory of the host. */
static umf_result_t run_stages(const work_t *work) {
    umf_store_t *store = work->store;
    bool is_file = store->keep == UMF_SUSPEND_KEEP_FILE;
    umf_stage_end_t memory = {.operand = &work->operand, .what = work, .copy = parts_end};
    umf_stage_end_t kept = {.what = work, .copy = is_file ? files_end : units_end};
    size_t done;
    if (!is_file && !store->provider->ext->host_pin) {
        kept.locate = unit_at;
        kept.memory = &store->memory;
    }
    return work->is_load ? umf_stage_run(&memory, &kept, store->size, &done)
                         : umf_stage_run(&kept, &memory, store->size, &done);
}

/* --- both ---------------------------------------------------------------------------------------
 */

static umf_result_t store_run(umf_store_t *store, const umf_store_part_t *parts, size_t count,
                              bool is_load) {
    work_t work = {.store = store, .parts = parts, .count = count, .is_load = is_load};
    umf_operand_of_provider(&work.operand, store->provider);
    return store->keep == UMF_SUSPEND_KEEP_PEER || store->is_pinned
               ? umf_queue_run(&work.operand, queue_all, &work, &store->memory)
               : run_stages(&work);
}

umf_result_t umf_store_save(umf_store_t *store, const umf_store_part_t *parts, size_t count) {
    return store_run(store, parts, count, false);
}

umf_result_t umf_store_load(umf_store_t *store, const umf_store_part_t *parts, size_t count) {
    return store_run(store, parts, count, true);
}
