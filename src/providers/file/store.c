/* The file behind memory: opening it, growing it, finding offsets in it. */
#include "providers/file/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/meta.h"
#include "providers/shared/protection.h"
#include "system/os.h"

/* The size of a new file, of the pages of a DAX file, and of the smallest step. */
#define STORE_2M ((size_t)2 << 20)
#define STORE_STEP_MAX ((uint64_t)64 << 20)

#define STORE_WINDOW_MIN ((size_t)1 << 30)
#define STORE_WINDOW_MAX ((size_t)1 << 40)

typedef struct umf_file_window_t {
    /* The next older one. Immutable after publication, as window and offset. */
    struct umf_file_window_t *next;
    umf_window_t window;
    uint64_t offset; /* of its first byte in the file */
    size_t used;     /* bytes mapped. Sync: the carve's lock; changes need the store's, too */
} file_window_t;

/* --- opening ---------------------------------------------------------------------------------- */

/* Opens first and creates only if needed: some systems refuse O_CREAT for files of other users in
 * shared folders, even if they exist. */
static int store_open_path(const char *path, int *fd) {
    const int flags = O_RDWR | O_NOCTTY | O_NONBLOCK;
    int error = umf_os_open(path, flags, 0, fd);
    return error == ENOENT ? umf_os_open(path, flags | O_CREAT, S_IRUSR | S_IWUSR, fd) : error;
}

static const char *store_open_advice(int error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return " (the folder must exist)";
    case EROFS:
        return " (choose a path on a file system that is not read-only)";
    case ENOSPC:
    case EDQUOT:
        return " (disk full: free space there, or choose another path)";
    case ENODEV:
    case EISDIR:
        return " (it is not a regular file)";
    default:
        return "";
    }
}

static umf_result_t store_open(umf_file_store_t *store, const char *path) {
    int fd = -1;
    int error = umf_path_is_too_long(path) ? ENAMETOOLONG : store_open_path(path, &fd);
    if (!error) {
        error = umf_kept_fd_take(&store->kept, fd);
    }
    if (!error) {
        error = umf_os_check_regular(fd);
        if (error) {
            umf_kept_fd_close(&store->kept);
        }
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "opening the file \"%s\" failed%s",
                      path, store_open_advice(error));
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    store->file.fd = fd;
    return UMF_RESULT_SUCCESS;
}

/* Other processes open shared memory by its path from any working directory, so it is made
 * absolute.
 */
static umf_result_t store_set_path(umf_file_store_t *store, const char *path, bool is_shared) {
    size_t length = 0;
    if (is_shared && path[0] != '/') {
        int error = umf_os_getcwd(store->path, PATH_MAX);
        length = strnlen(store->path, PATH_MAX);
        if (!error && length + 1 + strnlen(path, PATH_MAX) >= PATH_MAX) {
            error = ENAMETOOLONG;
        }
        if (error) {
            umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                          "making \"%s\" an absolute path failed: give an absolute one", path);
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        store->path[length++] = '/';
    }
    memcpy(store->path + length, path, strlen(path) + 1);
    return UMF_RESULT_SUCCESS;
}

/* Any failure counts as no: an error of the file shows when it is mapped for use. */
static bool store_is_dax(const umf_file_store_t *store) {
    umf_window_file_t file = store->file;
    void *probe;
    file.how = UMF_WINDOW_SYNC;
    if (umf_window_map_anywhere(STORE_2M, &file, 0, &probe) != 0) {
        return false;
    }
    umf_os_unmap(probe, STORE_2M);
    return true;
}

/* --- growing ---------------------------------------------------------------------------------- */

static int store_check_file(const umf_file_store_t *store) {
    return umf_kept_fd_check(&store->kept, "the file of a file provider");
}

/* Reserves disk space for a range that may overlap the end of the file. */
static int store_take_space(const umf_file_store_t *store, uint64_t offset, size_t more) {
    uint64_t dev, ino, size, space, end = offset + more;
    int fd = store->file.fd;
    int error = store_check_file(store);
    if (!error) {
        error = umf_os_file_id(fd, &dev, &ino, &size);
    }
    if (error) {
        return error;
    }
    /* The free space is queried first: many file systems fill the disk completely
     * before they fail. */
    uint64_t start = size > offset ? size : offset;
    uint64_t fresh = end > start ? end - start : 0;
    if (fresh && umf_os_free_space(fd, &space) == 0 && space < fresh) {
        return ENOSPC;
    }
    error = umf_os_allocate(fd, offset, more);
    if (error == EOPNOTSUPP || error == ENOSYS) {
        UMF_LOG_DEBUG("the file system of \"%s\" cannot set space aside: if the disk gets full, "
                      "writing to the memory ends the process",
                      store->path);
        return umf_os_extend(fd, end);
    }
    if (error && fresh) {
        umf_os_punch(fd, start, fresh);
    }
    return error;
}

static void window_add_used_locked(umf_file_store_t *store, file_window_t *window, size_t more) {
    umf_assert_locked(&store->carve.lock);
    if (window->used == 0) {
        window->next = store->windows;
        store->windows = window;
    }
    window->used += more;
}

static void window_sub_used_locked(umf_file_store_t *store, file_window_t *window, size_t less) {
    umf_assert_locked(&store->carve.lock);
    window->used -= less;
    if (window->used == 0) {
        store->windows = window->next;
    }
}

/* Publishes mapped memory, first to the lookups of offsets in the file, then to the allocations. */
static int window_publish(umf_file_store_t *store, file_window_t *window, size_t more) {
    uintptr_t end = window->window.base + window->used;
    bool is_new = window->used == 0;
    umf_lock(&store->carve.lock);
    window_add_used_locked(store, window, more);
    umf_unlock(&store->carve.lock);
    umf_result_t result =
        is_new ? umf_carve_add(&store->carve, end, more) : umf_carve_grow(&store->carve, end, more);
    if (result != UMF_RESULT_SUCCESS) {
        umf_lock(&store->carve.lock);
        window_sub_used_locked(store, window, more);
        umf_unlock(&store->carve.lock);
        return ENOMEM;
    }
    store->end += more;
    return 0;
}

static int window_grow_locked(umf_file_store_t *store, file_window_t *window, size_t more) {
    umf_assert_locked(&store->lock);
    uint64_t offset = window->offset + window->used;
    int error = more > INT64_MAX - offset ? EFBIG : store_take_space(store, offset, more);
    if (!error) {
        error = umf_window_map(&window->window, window->used, more, &store->file, offset);
    }
    return error ? error : window_publish(store, window, more);
}

static int store_add_window(const umf_file_store_t *store, size_t size, size_t alignment,
                            file_window_t **result) {
    file_window_t *window = umf_meta_alloc(sizeof(*window));
    if (!window) {
        return ENOMEM;
    }
    size_t request = STORE_WINDOW_MIN;
    if (store->windows) {
        request = store->windows->window.size;
        request = request < STORE_WINDOW_MAX ? request * 2 : STORE_WINDOW_MAX;
    }
    request = request > size ? request : size;
    alignment = alignment > STORE_2M ? alignment : STORE_2M;
    int error = umf_window_open(&window->window, request, alignment);
    if (error && request > size) {
        error = umf_window_open(&window->window, size, alignment);
    }
    if (error) {
        umf_meta_free(window, sizeof(*window));
        return error;
    }
    window->offset = store->end;
    *result = window;
    return 0;
}

static void window_destroy(file_window_t *window) {
    umf_window_close(&window->window);
    umf_meta_free(window, sizeof(*window));
}

/* The least growth of the newest window that makes room for such an allocation, which may begin in
 * its free end. 0: the window has no room. */
static size_t store_missing_locked(umf_file_store_t *store, size_t size, size_t alignment) {
    umf_assert_locked(&store->lock);
    const file_window_t *window = store->windows;
    if (!window) {
        return 0;
    }
    uintptr_t last = window->window.base + window->window.size;
    uintptr_t end = window->window.base + window->used;
    uintptr_t start = end - umf_carve_free_tail(&store->carve, end);
    if (start > UINTPTR_MAX - alignment) {
        return 0;
    }
    start = umf_align_up(start, alignment);
    if (start > last || size > last - start) {
        return 0;
    }
    uintptr_t requested = start + size;
    /* Another thread has freed memory meanwhile. Growth does no harm all the same. */
    if (requested <= end) {
        requested = end + store->carve.page_size;
    }
    return requested <= last ? requested - end : 0;
}

/* The growth step: it doubles the file, but is never less than the needed size. */
static size_t store_step_locked(const umf_file_store_t *store, const file_window_t *window,
                                size_t needed) {
    size_t room = window->window.size - window->used;
    uint64_t step = store->end < STORE_STEP_MAX ? store->end : STORE_STEP_MAX;
    step = umf_align_up(step > needed ? step : needed, STORE_2M);
    return step < room ? (size_t)step : room;
}

static void store_log_failure(const umf_file_store_t *store, int error, size_t needed) {
    const char *what = "growing", *advice = "";
    switch (error) {
    case ENOSPC:
        what = "disk full: growing";
        advice = "; free space on its file system and try again";
        break;
    case EDQUOT:
        what = "disk full for this user (quota): growing";
        advice = "; free space and try again";
        break;
    case EROFS:
        advice = "; its file system has become read-only";
        break;
    case EFBIG:
        advice = "; the file system or the limit for files (ulimit -f) allows no larger file";
        break;
    }
    umf_log_write(UMF_LOG_LEVEL_ERROR, error, "file_provider",
                  "%s \"%s\" by %zu bytes from %llu failed; allocated memory is not affected%s",
                  what, store->path, needed, (unsigned long long)store->end, advice);
}

/* Makes room for one allocation. Returns 0 or an errno value. */
static int store_make_room_locked(umf_file_store_t *store, size_t size, size_t alignment) {
    umf_assert_locked(&store->lock);
    size_t needed = store_missing_locked(store, size, alignment);
    file_window_t *window = store->windows, *added = NULL;
    int error = 0;
    if (needed == 0) {
        needed = size;
        error = store_add_window(store, size, alignment, &added);
        window = added;
    }
    if (!error) {
        size_t step = store_step_locked(store, window, needed);
        error = window_grow_locked(store, window, step);
        if (error && step > needed) {
            error = window_grow_locked(store, window, needed);
        }
        if (error && added) {
            window_destroy(added);
        }
    }
    if (error) {
        store_log_failure(store, error, needed);
    }
    return error;
}

/* --- life ------------------------------------------------------------------------------------- */

/* The first step is exactly the size of a new file. */
static umf_result_t store_start(umf_file_store_t *store) {
    file_window_t *window;
    umf_lock(&store->lock);
    int error = store_add_window(store, STORE_2M, STORE_2M, &window);
    if (!error) {
        error = window_grow_locked(store, window, STORE_2M);
        if (error) {
            window_destroy(window);
        }
    }
    umf_unlock(&store->lock);
    if (error) {
        store_log_failure(store, error, STORE_2M);
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_file_store_init(umf_file_store_t *store, const char *path, unsigned protection,
                                 umf_memory_visibility_t visibility) {
    bool is_shared = visibility == UMF_MEM_MAP_SHARED;
    *store = (umf_file_store_t){.file.prot = umf_protection_bits(protection)};
    umf_result_t result = store_open(store, path);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = store_set_path(store, path, is_shared);
    if (result != UMF_RESULT_SUCCESS) {
        goto close_file;
    }
    size_t page_size = umf_os_page_size();
    store->file.how = is_shared ? UMF_WINDOW_SHARED : UMF_WINDOW_PRIVATE;
    if (is_shared && store_is_dax(store)) {
        store->file.how = UMF_WINDOW_SYNC;
        page_size = STORE_2M;
    }
    result = umf_carve_init(&store->carve, page_size);
    if (result != UMF_RESULT_SUCCESS) {
        goto close_file;
    }
    umf_lock_init(&store->lock, UMF_RANK_GROW);
    result = store_start(store);
    if (result != UMF_RESULT_SUCCESS) {
        goto fini_carve;
    }
    return UMF_RESULT_SUCCESS;

fini_carve:
    umf_lock_destroy(&store->lock);
    umf_carve_fini(&store->carve);
close_file:
    umf_kept_fd_close(&store->kept);
    return result;
}

void umf_file_store_fini(umf_file_store_t *store) {
    for (file_window_t *window = store->windows, *next; window; window = next) {
        next = window->next;
        window_destroy(window);
    }
    umf_lock_destroy(&store->lock);
    umf_carve_fini(&store->carve);
    umf_kept_fd_close(&store->kept);
}

/* --- use -------------------------------------------------------------------------------------- */

umf_result_t umf_file_store_alloc(umf_file_store_t *store, size_t size, size_t alignment,
                                  void **ptr, int *failed) {
    umf_result_t result = umf_carve_alloc(&store->carve, size, alignment, ptr);
    if (umf_likely(result != UMF_RESULT_ERROR_OUT_OF_RESOURCES)) {
        return result;
    }
    size_t page_size = store->carve.page_size;
    size_t rounded = umf_align_up(size, page_size); /* cannot overflow: carve has checked */
    int error = 0;
    alignment = alignment > page_size ? alignment : page_size;
    umf_lock(&store->lock);
    do {
        result = umf_carve_alloc(&store->carve, size, alignment, ptr);
        if (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) {
            error = store_make_room_locked(store, rounded, alignment);
        }
    } while (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES && !error);
    umf_unlock(&store->lock);
    *failed = error ? error : *failed;
    return error ? UMF_RESULT_ERROR_UNKNOWN : result;
}

bool umf_file_store_locate(umf_file_store_t *store, const void *ptr, size_t size,
                           uint64_t *offset) {
    uintptr_t address = (uintptr_t)ptr;
    umf_lock(&store->carve.lock);
    const file_window_t *window = store->windows;
    while (window &&
           (address < window->window.base || address - window->window.base >= window->used)) {
        window = window->next;
    }
    size_t at = window ? address - window->window.base : 0;
    bool found = window && size <= window->used - at;
    if (found) {
        *offset = window->offset + at;
    }
    umf_unlock(&store->carve.lock);
    return found;
}

#define STORE_ZEROES ((size_t)64 << 10)

static int store_write_zeroes(const umf_file_store_t *store, uint64_t offset, size_t size) {
    void *zeroes = umf_meta_alloc(STORE_ZEROES);
    int error = zeroes ? 0 : ENOMEM;
    for (size_t at = 0; at < size && !error; at += STORE_ZEROES) {
        size_t rest = size - at < STORE_ZEROES ? size - at : STORE_ZEROES;
        error = umf_os_write_at(store->file.fd, zeroes, rest, offset + at);
    }
    umf_meta_free(zeroes, STORE_ZEROES);
    return error;
}

/* Zeroes a range, whose space stays. If the file system cannot do that, zeroes are written: space
 * that is punched out may be taken by others before it can be reserved again. */
static int store_zero(const umf_file_store_t *store, uint64_t offset, size_t size) {
    int error = store_check_file(store);
    if (!error) {
        error = umf_os_zero(store->file.fd, offset, size);
    }
    return error == EOPNOTSUPP ? store_write_zeroes(store, offset, size) : error;
}

int umf_file_store_purge(umf_file_store_t *store, void *ptr, size_t size) {
    uint64_t offset;
    if (!umf_file_store_locate(store, ptr, size, &offset)) {
        return EINVAL;
    }
    size_t page_size = store->carve.page_size;
    size_t skipped = (size_t) - (uintptr_t)ptr & (page_size - 1);
    if (size < skipped || size - skipped < page_size) {
        return 0;
    }
    size = umf_align_down(size - skipped, page_size);
    return store->file.how == UMF_WINDOW_PRIVATE
               ? umf_os_advise((char *)ptr + skipped, size, MADV_DONTNEED)
               : store_zero(store, offset + skipped, size);
}
