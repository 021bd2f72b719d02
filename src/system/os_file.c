/* The system: open files, their identity and permissions. See os.h. */

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "system/os_own.h"

/* Newer than some C libraries; the number is the same on all architectures. */
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

int umf_os_open(const char *path, int flags, mode_t mode, int *fd) {
    int error = os_fault("open");
    return error != 0 ? error : os_open(path, flags, mode, fd);
}

int umf_os_close(int fd) {
    int error = os_result(close(fd));
    int fault = os_fault("close");
    /* After EINTR the descriptor is closed all the same. */
    return fault != 0 ? fault : (error == EINTR ? 0 : error);
}

int umf_os_dup(int fd, int *copy) {
    int error = os_fault("dup");
    return error != 0 ? error : os_result_fd(fcntl(fd, F_DUPFD_CLOEXEC, 0), copy);
}

int umf_os_flock(int fd) {
    int error = os_fault("flock");
    return error != 0 ? error : os_result(flock(fd, LOCK_EX | LOCK_NB));
}

int umf_os_unlock_file(int fd) {
    int error = os_fault("unlock_file");
    return error != 0 ? error : os_result(flock(fd, LOCK_UN));
}

int umf_os_memfd(const char *name, bool secret, int *fd) {
    int error = os_fault("memfd");
    if (error != 0) {
        return error;
    }
    if (secret) {
        return os_result_fd(syscall(SYS_memfd_secret, O_CLOEXEC), fd);
    }
    return os_result_fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), fd);
}

int umf_os_file_id(int fd, uint64_t *dev, uint64_t *ino, uint64_t *size) {
    struct stat info;
    int error = os_fault("file_id");
    if (error == 0) {
        error = os_result(fstat(fd, &info));
    }
    if (error != 0) {
        return error;
    }
    *dev = info.st_dev;
    *ino = info.st_ino;
    *size = (uint64_t)info.st_size;
    return 0;
}

int umf_os_check_regular(int fd) {
    struct stat info;
    int error = os_fault("check_regular");
    if (error == 0) {
        error = os_result(fstat(fd, &info));
    }
    if (error != 0 || S_ISREG(info.st_mode)) {
        return error;
    }
    return S_ISDIR(info.st_mode) ? EISDIR : ENODEV;
}

bool umf_os_is_own_file(int fd) {
    struct stat info;
    return os_fault("is_own_file") == 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
           info.st_uid == geteuid();
}

int umf_os_fchmod(int fd, mode_t mode) {
    int error = os_fault("fchmod");
    return error != 0 ? error : os_result(fchmod(fd, mode));
}

bool umf_os_is_own_unlinked(int fd) {
    struct stat file;
    return fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 0 &&
           file.st_uid == geteuid();
}

int umf_os_add_seals(int fd, int seals) {
    int error = os_fault("add_seals");
    return error != 0 ? error : os_result(fcntl(fd, F_ADD_SEALS, seals));
}

#ifndef SECRETMEM_MAGIC
#define SECRETMEM_MAGIC 0x5345434d
#endif

/* Files of memfd_secret have no seals, but their size can be set only once. */
int umf_os_check_seals(int fd) {
    struct statfs system;
    int error = os_fault("check_seals");
    if (error != 0) {
        return error;
    }
    int seals = fcntl(fd, F_GET_SEALS);
    bool is_sealed = seals != -1 && (seals & F_SEAL_SHRINK);
    return is_sealed || (fstatfs(fd, &system) == 0 && system.f_type == SECRETMEM_MAGIC) ? 0 : EPERM;
}
