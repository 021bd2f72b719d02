/* Opening shared memory of other processes. */
#include "providers/os/import.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/kept_fd.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "providers/os/params.h"
#include "providers/os/share.h"
#include "providers/shared/protection.h"
#include "providers/shared/table.h"
#include "system/os.h"

typedef struct source_t {
    umf_board_source_t board; /* the header of the file */
    umf_kept_fd_t file;       /* Immutable after open */
    uint64_t size;    /* of the file at the last query; it only grows. Sync: atomic, relaxed */
    uintptr_t layout; /* see below; 0: none. Sync: atomic; written with the provider's lock */
} source_t;

typedef struct description_t {
    umf_os_handle_t handle;
    const char *name;
} description_t;

typedef struct opened_t {
    source_t *source;
    size_t size;
} opened_t;

/* --- layouts ---------------------------------------------------------------------------------- */

/*
 * A layout is a range of addresses for one file. Allocations of the file are mapped in it at their
 * offset in the file, if those addresses are free. The kernel then merges neighbours into one
 * mapping, which costs two thirds of a separate mapping, and memory that is closed and opened again
 * returns to its address. Layouts are reused, so that mappings do not spread over the address
 * space.
 */
#define LAYOUT_SIZE ((uintptr_t)4 << 30)
#define LAYOUT_COUNT 64 /* further files have no layout */

static _Atomic uint64_t layout_taken;   /* one bit for each layout. Sync: atomic */
static _Atomic uintptr_t layout_lowest; /* 0: not known yet. Sync: atomic, written once */

/* The lowest layout. Layouts lie below the addresses where the kernel places mappings; `near` is
 * one of these. 0: there is no room below. */
static uintptr_t layout_find_lowest(uintptr_t near) {
    uintptr_t all = LAYOUT_SIZE * LAYOUT_COUNT;
    uintptr_t lowest = atomic_load_explicit(&layout_lowest, memory_order_relaxed);
    uintptr_t mine = near > 2 * all ? umf_align_down(near, LAYOUT_SIZE) - all : 0;
    if (lowest == 0 && mine && atomic_compare_exchange_strong(&layout_lowest, &lowest, mine)) {
        lowest = mine;
    }
    return lowest;
}

static uintptr_t layout_take(uintptr_t near) {
    uintptr_t lowest = layout_find_lowest(near);
    uint64_t taken = atomic_load_explicit(&layout_taken, memory_order_relaxed);
    while (lowest && ~taken) {
        int place = __builtin_ctzll(~taken);
        if (atomic_compare_exchange_weak(&layout_taken, &taken, taken | (uint64_t)1 << place)) {
            return lowest + (uintptr_t)place * LAYOUT_SIZE;
        }
    }
    return 0;
}

static void layout_give(uintptr_t layout) {
    if (layout) {
        uintptr_t place = (layout - atomic_load(&layout_lowest)) / LAYOUT_SIZE;
        atomic_fetch_and(&layout_taken, ~((uint64_t)1 << place));
    }
}

/* The address to request. NULL: the kernel chooses. */
static void *layout_request(uintptr_t layout, uint64_t offset) {
    return layout ? (void *)(layout + offset % LAYOUT_SIZE) : NULL;
}

/* --- sources ---------------------------------------------------------------------------------- */

static void source_close(umf_board_source_t *board) {
    source_t *source = (source_t *)board;
    layout_give(source->layout);
    umf_kept_fd_close(&source->file);
}

static int source_check_file(const source_t *source) {
    return umf_kept_fd_check(&source->file, "the file of a producer's shared memory");
}

/* An access behind the end of the file would be a bus error, so the range must lie inside. */
static umf_result_t source_check_size(source_t *source, uint64_t end) {
    if (end <= __atomic_load_n(&source->size, __ATOMIC_RELAXED)) {
        return UMF_RESULT_SUCCESS;
    }
    uint64_t dev, ino, size;
    int error = source_check_file(source);
    if (!error) {
        error = umf_os_file_id(source->file.number, &dev, &ino, &size);
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "asking for the size of a producer's file failed");
        return umf_os_native_fail(UMF_OS_RESULT_ERROR_ALLOC_FAILED, error);
    }
    if (end > size) {
        UMF_LOG_ERROR("the description reaches to byte %llu, behind the end of the producer's file",
                      (unsigned long long)end);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    __atomic_store_n(&source->size, size, __ATOMIC_RELAXED);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t source_map_header(source_t *source, size_t header_size) {
    umf_result_t result = source_check_size(source, header_size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    void *header = NULL;
    int error = umf_os_map(&header, header_size, PROT_READ, MAP_SHARED, source->file.number, 0);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "mapping the header of a producer's file failed");
        return umf_os_native_fail(UMF_OS_RESULT_ERROR_ALLOC_FAILED, error);
    }
    if (__atomic_load_n((const uint64_t *)header, __ATOMIC_ACQUIRE) !=
        umf_os_share_word0(header_size)) {
        UMF_LOG_ERROR("the producer's file is not one of shared memory of an OS provider with a "
                      "header of %zu bytes",
                      header_size);
        umf_os_unmap(header, header_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    source->board.words = header;
    source->board.size = header_size;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t source_open_file(source_t *source, const umf_fd_ticket_t *ticket,
                                     const char *name) {
    int fd;
    umf_result_t opened =
        *name ? umf_named_open(name, ticket, &fd) : umf_ticket_redeem(ticket, &fd);
    if (opened != UMF_RESULT_SUCCESS) {
        return opened;
    }
    int error = umf_kept_fd_take(&source->file, fd);
    return error ? umf_os_native_fail(UMF_OS_RESULT_ERROR_ALLOC_FAILED, error) : UMF_RESULT_SUCCESS;
}

static umf_result_t source_open(umf_board_source_t *board, const umf_fd_ticket_t *ticket,
                                const void *arg) {
    source_t *source = (source_t *)board;
    const description_t *description = arg;
    umf_result_t result = source_open_file(source, ticket, description->name);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!*description->name && umf_memory_file_check(source->file.number) != 0) {
        UMF_LOG_ERROR("the producer's file may become shorter while it is mapped; those of an OS "
                      "provider cannot");
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = source_map_header(source, description->handle.header_size);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_kept_fd_close(&source->file);
    }
    return result;
}

/* The second allocation of the file; the first may stay the only one. */
static void source_join_locked(umf_board_source_t *board) {
    source_t *source = (source_t *)board;
    if (source->layout == 0) {
        uintptr_t layout = layout_take((uintptr_t)board->words);
        __atomic_store_n(&source->layout, layout, __ATOMIC_RELAXED);
    }
}

void umf_os_import_init(umf_os_import_t *import, umf_lock_t *lock) {
    static const umf_board_ops_t ops = {
        .source_size = sizeof(source_t),
        .open = source_open,
        .close = source_close,
        .join_locked = source_join_locked,
    };
    *import = (umf_os_import_t){
        .lock = lock, .sources = {.lock = lock, .ops = &ops}, .page_size = umf_os_page_size()};
}

/* --- open ------------------------------------------------------------------------------------- */

static umf_result_t source_check_generation(const source_t *source, const umf_os_handle_t *handle) {
    if (handle->header_size != source->board.size) {
        UMF_LOG_ERROR("the description does not fit its file: a header of %u instead of %zu bytes",
                      handle->header_size, source->board.size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_board_check(&source->board, handle->slot, handle->generation);
}

static umf_result_t import_remember(umf_os_import_t *import, source_t *source, void *ptr,
                                    size_t size) {
    opened_t *opened = umf_meta_alloc(sizeof(*opened));
    if (!opened) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *opened = (opened_t){.source = source, .size = size};
    if (!umf_table_put(import->lock, &import->opened, ptr, opened)) {
        umf_meta_free(opened, sizeof(*opened));
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return UMF_RESULT_SUCCESS;
}

/* The generation is checked again after the mapping: a producer clears the slot before it reuses
 * the memory, so only this check proves that the mapping shows the memory that was described. */
static umf_result_t import_map(umf_os_import_t *import, source_t *source,
                               const umf_os_handle_t *handle, void **ptr) {
    uintptr_t layout = __atomic_load_n(&source->layout, __ATOMIC_RELAXED);
    void *base = layout_request(layout, handle->offset);
    int error = source_check_file(source);
    if (!error) {
        error = umf_os_map(&base, (size_t)handle->size, umf_protection_bits(handle->protection),
                           MAP_SHARED, source->file.number, (size_t)handle->offset);
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "mapping %llu bytes of a producer's file failed",
                      (unsigned long long)handle->size);
        return umf_os_native_fail(UMF_OS_RESULT_ERROR_ALLOC_FAILED, error);
    }
    umf_result_t result = source_check_generation(source, handle);
    if (result == UMF_RESULT_SUCCESS) {
        result = import_remember(import, source, base, (size_t)handle->size);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_os_unmap(base, (size_t)handle->size);
        return result;
    }
    *ptr = base;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_os_import_open(umf_os_import_t *import, const void *data, void **ptr) {
    description_t description;
    const umf_os_handle_t *handle = &description.handle;
    umf_board_source_t *board;
    umf_result_t result = umf_os_handle_read(data, &description.handle, &description.name);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_board_get(&import->sources, &handle->ticket, &description, &board);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    source_t *source = (source_t *)board;
    result = source_check_generation(source, handle);
    if (result == UMF_RESULT_SUCCESS) {
        result = source_check_size(source, handle->offset + handle->size);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = import_map(import, source, handle, ptr);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_board_put(&import->sources, board);
    }
    return result;
}

/* --- close and watch -------------------------------------------------------------------------- */

static bool opened_fits(const void *value, size_t size) {
    const opened_t *opened = value;
    size_t rounded;
    return umf_round_up(size, umf_os_page_size(), &rounded) && rounded == opened->size;
}

int umf_os_import_close(umf_os_import_t *import, void *ptr, size_t size) {
    opened_t *opened = umf_table_take_if(import->lock, &import->opened, ptr, opened_fits, size);
    if (!opened) {
        UMF_LOG_ERROR("%zu bytes at %p were not opened by this provider", size, ptr);
        return EINVAL;
    }
    int error = umf_os_unmap(ptr, opened->size);
    if (error && umf_table_put_back(import->lock, &import->opened, ptr, opened)) {
        return error;
    }
    umf_board_put(&import->sources, &opened->source->board);
    umf_meta_free(opened, sizeof(*opened));
    return error;
}

umf_result_t umf_os_import_check(const umf_os_import_t *import, const void *data, size_t size) {
    umf_os_handle_t handle;
    const char *name;
    umf_result_t result = umf_os_handle_read(data, &handle, &name);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    size_t rounded;
    if (!umf_round_up(size, import->page_size, &rounded) || rounded != handle.size) {
        UMF_LOG_ERROR("%zu bytes are to be opened, but %llu were described", size,
                      (unsigned long long)handle.size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_os_import_watch(umf_os_import_t *import, const void *data, const uint64_t **word,
                                 uint64_t *expected) {
    umf_os_handle_t handle;
    umf_result_t result = umf_os_handle_peek(data, &handle);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    *expected = handle.generation;
    return umf_board_watch(&import->sources, &handle.ticket, handle.slot, word);
}

void umf_os_import_fini(umf_os_import_t *import) {
    umf_table_fini(&import->opened, sizeof(opened_t));
    umf_board_sources_fini(&import->sources);
}
