/* The inside of the system layer, shared by its files. Every function calls the fault hook under
 * its own name before it does anything. Closing is the exception: a descriptor is closed after
 * close(), whatever it returns, so the file is closed first. */
#ifndef UMF_SRC_SYSTEM_OS_OWN_H
#define UMF_SRC_SYSTEM_OS_OWN_H

#include <errno.h>
#include <fcntl.h>

#include "system/atomic.h"
#include "system/common.h"
#include "system/os.h"

UMF_INLINE int os_fault(const char *call) {
    umf_os_fault_t fault = atomic_load_explicit(&umf_os_fault, memory_order_relaxed);
    return umf_unlikely(fault != NULL) ? fault(call) : 0;
}

/* The errno value of a call that returns -1 on failure. */
UMF_INLINE int os_result(long answer) {
    return answer == -1 ? errno : 0;
}

static inline int os_result_fd(long answer, int *fd) {
    if (answer == -1) {
        return errno;
    }
    *fd = (int)answer;
    return 0;
}

static inline bool os_to_off(uint64_t value, off_t *offset) {
    *offset = (off_t)value;
    return value <= INT64_MAX && sizeof(off_t) == sizeof(int64_t);
}

/* Opens a file without the fault hook. */
static inline int os_open(const char *path, int flags, mode_t mode, int *fd) {
    int answer;
    do {
        answer = open(path, flags | O_CLOEXEC, mode);
    } while (answer == -1 && errno == EINTR);
    return os_result_fd(answer, fd);
}

/* Reads a small text file of the kernel, cut to `size`. Does not call the fault hook. */
int umf_os_read_text(const char *path, char *text, size_t size);

/* Whether a descriptor of that device is a process descriptor in a file system of its own, where
 * each process has an inode. */
bool umf_os_is_pidfs(int fd, uint64_t dev);

#endif
