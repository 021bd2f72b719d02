/* The system: the space and the content of open files. See os.h. */

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "system/os_own.h"

/* The smallest step when signals interrupt the allocation of space. */
#define OS_ALLOCATE_MIN ((off_t)1 << 20)

int umf_os_truncate(int fd, uint64_t size) {
    int error = os_fault("truncate");
    off_t off;
    if (error != 0) {
        return error;
    }
    if (!os_to_off(size, &off)) {
        return EFBIG;
    }
    do {
        error = os_result(ftruncate(fd, off));
    } while (error == EINTR);
    return error;
}

/* What fallocate does to a range in the given mode. */
static int os_change(const char *call, int mode, int fd, uint64_t offset, uint64_t size) {
    int error = os_fault(call);
    off_t off, length;
    if (error != 0) {
        return error;
    }
    if (!os_to_off(offset, &off) || !os_to_off(size, &length)) {
        return EFBIG;
    }
    do {
        error = os_result(fallocate(fd, mode | FALLOC_FL_KEEP_SIZE, off, length));
    } while (error == EINTR);
    return error;
}

int umf_os_punch(int fd, uint64_t offset, uint64_t size) {
    return os_change("punch", FALLOC_FL_PUNCH_HOLE, fd, offset, size);
}

int umf_os_zero(int fd, uint64_t offset, uint64_t size) {
    return os_change("zero", FALLOC_FL_ZERO_RANGE, fd, offset, size);
}

/* A write beyond this limit raises a signal that ends the process, so the limit is
 * checked first. */
static int os_check_file_limit(int fd, uint64_t end) {
    struct rlimit limit;
    struct stat info;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && end > limit.rlim_cur &&
        (fstat(fd, &info) != 0 || end > (uint64_t)info.st_size)) {
        return EFBIG;
    }
    return 0;
}

/* Some file systems undo everything when a signal arrives, so repeated signals would never let a
 * large request finish. The steps get smaller after each signal. */
static int os_allocate(int fd, off_t offset, off_t size) {
    off_t piece = size;
    while (size > 0) {
        piece = piece < size ? piece : size;
        int error = os_result(fallocate(fd, 0, offset, piece));
        if (error == 0) {
            offset += piece;
            size -= piece;
        } else if (error == EINTR) {
            piece = piece / 2 > OS_ALLOCATE_MIN ? piece / 2 : OS_ALLOCATE_MIN;
        } else {
            return error;
        }
    }
    return 0;
}

int umf_os_allocate(int fd, uint64_t offset, uint64_t size) {
    int error = os_fault("allocate");
    off_t off, length, end;
    if (error != 0) {
        return error;
    }
    if (!os_to_off(offset, &off) || !os_to_off(size, &length) ||
        __builtin_add_overflow(off, length, &end)) {
        return EFBIG;
    }
    error = os_check_file_limit(fd, (uint64_t)end);
    return error != 0 ? error : os_allocate(fd, off, length);
}

/* Truncating could shrink the file if another process grows it at the same time. Writing its last
 * byte cannot. */
int umf_os_extend(int fd, uint64_t size) {
    struct stat info;
    off_t last;
    int error = os_fault("extend");
    if (error == 0) {
        error = os_result(fstat(fd, &info));
    }
    if (error != 0 || (uint64_t)info.st_size >= size) {
        return error;
    }
    if (!os_to_off(size - 1, &last)) {
        return EFBIG;
    }
    error = os_check_file_limit(fd, size);
    while (error == 0 && pwrite(fd, "", 1, last) != 1) {
        error = errno == EINTR ? 0 : errno;
    }
    return error;
}

int umf_os_free_space(int fd, uint64_t *bytes) {
    struct statvfs info;
    int error = os_fault("free_space");
    if (error == 0) {
        error = os_result(fstatvfs(fd, &info));
    }
    if (error != 0) {
        return error;
    }
    if (info.f_blocks == 0 || __builtin_mul_overflow(info.f_bfree, info.f_frsize, bytes)) {
        *bytes = UINT64_MAX;
    }
    return 0;
}

int umf_os_read_at(int fd, void *buffer, size_t size, uint64_t offset) {
    int error = os_fault("read_at");
    char *to = buffer;
    off_t off;
    if (error != 0) {
        return error;
    }
    if (!os_to_off(offset, &off)) {
        return EFBIG;
    }
    while (size > 0) {
        ssize_t count = pread(fd, to, size, off);
        if (count == 0) {
            return EIO;
        }
        if (count > 0) {
            to += count;
            off += count;
            size -= (size_t)count;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

int umf_os_write_at(int fd, const void *buffer, size_t size, uint64_t offset) {
    int error = os_fault("write_at");
    const char *from = buffer;
    off_t off, length, end;
    if (error != 0) {
        return error;
    }
    if (!os_to_off(offset, &off) || !os_to_off(size, &length) ||
        __builtin_add_overflow(off, length, &end)) {
        return EFBIG;
    }
    error = os_check_file_limit(fd, (uint64_t)end);
    while (error == 0 && size > 0) {
        ssize_t count = pwrite(fd, from, size, off);
        if (count > 0) {
            from += count;
            off += count;
            size -= (size_t)count;
        } else if (count == 0 || errno != EINTR) {
            error = count == 0 ? EIO : errno;
        }
    }
    return error;
}

int umf_os_sync(int fd) {
    int error = os_fault("sync");
    if (error == 0) {
        do {
            error = os_result(fsync(fd));
        } while (error == EINTR);
    }
    return error == EINVAL || error == EROFS ? 0 : error; /* a file that has no disk */
}
