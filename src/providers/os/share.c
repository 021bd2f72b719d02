/* The file behind shared memory. */
#include "providers/os/share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/aligned_map.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "peer/process.h"
#include "system/os.h"

/* The file grows by at least this much. It is sparse, so growth costs nothing. */
#define SHARE_STEP_MIN ((uint64_t)64 << 20)
#define SHARE_STEP_MAX ((uint64_t)1 << 30)

/* A larger size is an error of the caller; it stays away from the limits of file systems. */
#define SHARE_SIZE_MAX ((uint64_t)1 << 46)

/* The size of a secret file can be set once only. Mapped secret memory counts as locked, so the
 * header is small. */
#define SHARE_SECRET_SIZE ((uint64_t)1 << 40)
#define SHARE_SECRET_HEADER ((size_t)16 << 10)

/* --- making the file -------------------------------------------------------------------------- */

/* Only on request: memory of memfd_secret is locked, and an ordinary user may lock little. */
static bool share_is_secret_requested(void) {
    const char *request = secure_getenv("UMF_MEM_FD_FUNC");
    return request && strstr(request, "memfd_secret");
}

static int share_make_anonymous(umf_os_share_t *share, int *fd) {
    share->secret = share_is_secret_requested();
    if (share->secret) {
        int error = umf_os_memfd("umf", true, fd);
        if (error) {
            umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                          "memfd_secret failed (requested by UMF_MEM_FD_FUNC; the kernel may need "
                          "secretmem.enable=1)");
        }
        return error;
    }
    int error = umf_memory_file("umf", fd);
    if (error) {
        return error;
    }
    share->is_limited = umf_memory_file_is_limited();
    /* A process that maps the file then relies on its length. */
    int sealed = umf_memory_file_seal(*fd, UMF_OS_SEALS);
    if (sealed) {
        UMF_LOG_DEBUG("the shared file cannot be sealed against shrinking (errno %d)", sealed);
    }
    return 0;
}

static int share_make_file(umf_os_share_t *share) {
    int fd;
    int error = share->name[0] ? umf_named_create(share->name, UMF_OS_SHARE_HEADER_MAX, &fd)
                               : share_make_anonymous(share, &fd);
    if (error) {
        return error;
    }
    error = umf_kept_fd_take(&share->file, fd);
    if (error && share->name[0]) {
        umf_os_shm_unlink(share->name);
    }
    return error;
}

static void share_close(umf_os_share_t *share) {
    if (share->name[0] && umf_os_share_is_mine(share)) {
        umf_named_remove(share->name, &share->ticket);
    }
    umf_ticket_drop(&share->ticket);
    umf_kept_fd_close(&share->file);
}

int umf_os_share_check(const umf_os_share_t *share) {
    return umf_kept_fd_check(&share->file, "the file of shared memory");
}

int umf_os_share_map(const umf_os_share_t *share, uint64_t offset, size_t size, size_t alignment,
                     int prot, void **ptr) {
    int error = umf_os_share_check(share);
    return error ? error
                 : umf_os_map_aligned_file(size, alignment, prot, share->file.number, offset, ptr);
}

/* Sets the space of a range aside. A write to memory without space ends the process. */
static int share_reserve(const umf_os_share_t *share, uint64_t offset, uint64_t size) {
    int error = share->is_limited ? umf_os_allocate(share->file.number, offset, size) : 0;
    return error == EOPNOTSUPP ? 0 : error;
}

static int share_map_header(umf_os_share_t *share) {
    share->header_size = share->secret ? SHARE_SECRET_HEADER : UMF_OS_SHARE_HEADER_MAX;
    share->file_size = share->secret ? SHARE_SECRET_SIZE : share->header_size;
    share->range_end = share->header_size;
    int error = umf_os_truncate(share->file.number, share->file_size);
    void *header = NULL;
    if (!error) {
        error = share_reserve(share, 0, share->header_size);
    }
    if (!error) {
        error = umf_os_map(&header, share->header_size, PROT_READ | PROT_WRITE, MAP_SHARED,
                           share->file.number, 0);
    }
    if (error) {
        umf_log_write(
            UMF_LOG_LEVEL_ERROR, error, __func__, "making the header of a shared file failed%s",
            share->secret ? " (memfd_secret memory is locked: RLIMIT_MEMLOCK, ulimit -l)" : "");
        return error;
    }
    share->board = (umf_board_t){
        .words = header,
        .first = UMF_OS_SHARE_FIRST_SLOT,
        .count = (uint32_t)(share->header_size / sizeof(uint64_t)),
    };
    umf_named_sign(header, share->header_size);
    return 0;
}

/* NOT_SUPPORTED: this machine or a sandbox forbids such files. */
static umf_result_t share_result(int error) {
    bool is_denied = error == EPERM || error == EACCES || error == ENOSYS || error == EROFS ||
                     error == ENOENT || error == EOPNOTSUPP;
    return is_denied ? UMF_RESULT_ERROR_NOT_SUPPORTED : UMF_RESULT_ERROR_UNKNOWN;
}

umf_result_t umf_os_share_create(const char *name, umf_os_share_t **result) {
    umf_os_share_t *share = umf_meta_alloc(sizeof(*share));
    if (!share) {
        UMF_LOG_ERROR("no memory for a shared file");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    share->owner = (int)umf_process_pid();
    if (name) {
        memcpy(share->name, name, strnlen(name, UMF_OS_SHM_NAME_MAX));
        share->is_limited = share->name[0] != 0;
    }
    umf_result_t failed = UMF_RESULT_ERROR_UNKNOWN;
    int error = share_make_file(share);
    if (error) {
        failed = share_result(error);
        goto free_share;
    }
    if (umf_ticket_make(share->file.number, &share->ticket) != UMF_RESULT_SUCCESS ||
        share_map_header(share) != 0) {
        goto close_file;
    }
    *result = share;
    return UMF_RESULT_SUCCESS;

close_file:
    share_close(share);
free_share:
    umf_meta_free(share, sizeof(*share));
    return failed;
}

void umf_os_share_destroy(umf_os_share_t *share) {
    if (umf_os_share_is_mine(share)) {
        umf_board_retire_all(&share->board);
    }
    umf_os_unmap(share->board.words, share->header_size);
    share_close(share);
    if (share->range) {
        umf_range_destroy(share->range);
    }
    umf_meta_free(share, sizeof(*share));
}

bool umf_os_share_is_mine(const umf_os_share_t *share) {
    return share->owner == (int)umf_process_pid();
}

/* --- ranges ----------------------------------------------------------------------------------- */

static int share_add_range(umf_os_share_t *share, uint64_t more) {
    if (!share->range && !(share->range = umf_range_create())) {
        return ENOMEM;
    }
    umf_result_t result = umf_range_total_bytes(share->range)
                              ? umf_range_grow(share->range, share->range_end, more)
                              : umf_range_add(share->range, share->range_end, more);
    if (result != UMF_RESULT_SUCCESS) {
        return ENOMEM;
    }
    share->range_end += more;
    return 0;
}

/* A consumer may have made the file longer meanwhile; the seals then refuse to shorten it, which
 * is no failure. */
static int share_truncate(const umf_os_share_t *share, uint64_t size) {
    uint64_t dev, ino, now;
    int fd = share->file.number;
    int error = umf_os_share_check(share);
    if (error) {
        return error;
    }
    error = umf_os_truncate(fd, size);
    bool is_longer = error == EPERM && umf_os_file_id(fd, &dev, &ino, &now) == 0 && now >= size;
    return is_longer ? 0 : error;
}

static int share_grow_by(umf_os_share_t *share, uint64_t more) {
    uint64_t requested = share->range_end + more;
    if (more > SHARE_SIZE_MAX || requested > SHARE_SIZE_MAX) {
        return ENOMEM;
    }
    if (requested > share->file_size) {
        int error = share->secret ? ENOMEM : share_truncate(share, requested);
        if (error) {
            return error;
        }
        share->file_size = requested;
    }
    return share_add_range(share, more);
}

/* Grows in large steps that double the file, or by `size` alone if the system refuses the step. */
static int share_grow(umf_os_share_t *share, size_t size) {
    uint64_t step = share->range_end;
    step = step < SHARE_STEP_MIN ? SHARE_STEP_MIN : step > SHARE_STEP_MAX ? SHARE_STEP_MAX : step;
    if (size >= step || share_grow_by(share, umf_align_up(step, umf_os_page_size())) != 0) {
        return share_grow_by(share, size);
    }
    return 0;
}

int umf_os_share_take(umf_os_share_t *share, size_t size, uint64_t *offset) {
    size_t page_size = umf_os_page_size();
    uintptr_t base;
    umf_result_t result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    if (share->range) {
        result = umf_range_alloc(share->range, size, page_size, &base);
    }
    if (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) {
        int error = share_grow(share, size);
        if (error) {
            return error;
        }
        result = umf_range_alloc(share->range, size, page_size, &base);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return ENOMEM;
    }
    int error = umf_os_share_check(share);
    if (!error) {
        error = share_reserve(share, base, size);
    }
    if (error) {
        umf_range_free(share->range, base, 0, NULL);
        return error;
    }
    *offset = base;
    return 0;
}

/* Holes cannot be punched into a secret file, so it is zeroed through a mapping. */
static int share_clear_secret(const umf_os_share_t *share, uint64_t offset, size_t size) {
    void *base = NULL;
    int error = umf_os_map(&base, size, PROT_READ | PROT_WRITE, MAP_SHARED, share->file.number,
                           (size_t)offset);
    if (!error) {
        memset(base, 0, size);
        error = umf_os_unmap(base, size);
    }
    return error;
}

bool umf_os_share_clear(const umf_os_share_t *share, uint64_t offset, size_t size) {
    int error = umf_os_share_check(share);
    if (!error) {
        error = share->secret ? share_clear_secret(share, offset, size)
                              : umf_os_punch(share->file.number, offset, size);
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_WARNING, error, __func__,
                      "%zu bytes of a shared file could not be cleared; they stay taken until the "
                      "provider is destroyed",
                      size);
    }
    return error == 0;
}

void umf_os_share_give(umf_os_share_t *share, uint64_t offset) {
    umf_range_free(share->range, (uintptr_t)offset, 0, NULL);
}

umf_result_t umf_os_share_split(umf_os_share_t *share, uint64_t offset, size_t total,
                                size_t first) {
    return umf_range_split(share->range, (uintptr_t)offset, total, first);
}

umf_result_t umf_os_share_merge(umf_os_share_t *share, uint64_t low, uint64_t high, size_t total) {
    return umf_range_merge(share->range, (uintptr_t)low, (uintptr_t)high, total);
}
