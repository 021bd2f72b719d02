/* The system: open files, their identity and permissions; DAX files and devices. See os.h. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "system/annotate.h"
#include "system/os_own.h"

/* musl has it from 1.2.5 on, its function too. */
#ifndef STATX_BASIC_STATS
#include <linux/stat.h>
#endif

/* Newer than some C libraries; the number is the same on all architectures. */
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
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

/* From here on one call takes less time, together with the look for a filter. A filter may come at
 * any time, so the answer is not kept. */
#define CLOSE_MANY 32

static bool os_close_range(int first, int last) {
    /* ThreadSanitizer does not see this call: it would report the next use of the numbers. */
    return !UMF_IS_TSAN && last - first >= CLOSE_MANY - 1 && !umf_os_has_filter() &&
           syscall(SYS_close_range, first, last, 0) == 0;
}

void umf_os_close_many(const int *fds, unsigned count) {
    for (unsigned i = 0, next; i < count; i = next) {
        next = i + 1;
        if (fds[i] == -1) { /* 0 may be behind it, and is not adjacent */
            continue;
        }
        while (next < count && fds[next] == fds[next - 1] + 1) {
            next++;
        }
        if (os_close_range(fds[i], fds[next - 1])) {
            continue;
        }
        for (unsigned n = i; n < next; n++) {
            close(fds[n]);
        }
    }
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

/* The process of a process descriptor; 0 after its end, and for other files. */
static uint64_t os_described_process(int fd) {
    char path[40], text[512];
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    const char *line =
        umf_os_read_text(path, text, sizeof(text)) == 0 ? strstr(text, "\nPid:") : NULL;
    long process = line ? strtol(line + sizeof("\nPid:") - 1, NULL, 10) : 0;
    return process > 0 ? (uint64_t)process : 0;
}

/* Files without a type are those of the kernel that have one inode for all, except in pidfs. */
static bool os_shares_inode(int fd, mode_t mode, uint64_t dev) {
    return (mode & S_IFMT) == 0 && !umf_os_is_pidfs(fd, dev);
}

static int os_identity(int fd, umf_os_identity_t *identity) {
    struct statx info;
    struct stat plain;
    mode_t mode;
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &info) == 0) {
        bool has_birth = info.stx_mask & STATX_BTIME;
        *identity = (umf_os_identity_t){
            .dev = makedev(info.stx_dev_major, info.stx_dev_minor),
            .ino = info.stx_ino,
            .born = has_birth
                        ? (uint64_t)info.stx_btime.tv_sec * 1000000000 + info.stx_btime.tv_nsec
                        : 0,
        };
        mode = info.stx_mode;
    } else if (fstat(fd, &plain) == 0) { /* a sandbox may refuse the newer call */
        *identity = (umf_os_identity_t){.dev = plain.st_dev, .ino = plain.st_ino};
        mode = plain.st_mode;
    } else {
        return errno;
    }
    identity->process = os_shares_inode(fd, mode, identity->dev) ? os_described_process(fd) : 0;
    return 0;
}

int umf_os_identity(int fd, umf_os_identity_t *identity) {
    int error = os_fault("identity");
    return error != 0 ? error : os_identity(fd, identity);
}

static bool os_is_same(uint64_t a, uint64_t b) {
    return a == b || a == 0 || b == 0;
}

bool umf_os_is_identity(const umf_os_identity_t *a, const umf_os_identity_t *b) {
    return a->dev == b->dev && a->ino == b->ino && os_is_same(a->born, b->born) &&
           os_is_same(a->process, b->process);
}

bool umf_os_has_identity(int fd, const umf_os_identity_t *identity) {
    umf_os_identity_t now;
    return fd >= 0 && os_identity(fd, &now) == 0 && umf_os_is_identity(&now, identity);
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
           umf_os_is_own_user(info.st_uid);
}

int umf_os_fchmod(int fd, mode_t mode) {
    int error = os_fault("fchmod");
    return error != 0 ? error : os_result(fchmod(fd, mode));
}

bool umf_os_is_own_unlinked(int fd) {
    struct stat file;
    return fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 0 &&
           umf_os_is_own_user(file.st_uid);
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

#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6u
#endif

bool umf_os_is_huge(int fd) {
    struct statfs system;
    return fstatfs(fd, &system) != 0 || (uint32_t)system.f_type == HUGETLBFS_MAGIC;
}

int umf_os_check_path(const char *path) {
    struct stat info;
    int error = os_fault("check_path");
    if (error == 0) {
        error = os_result(lstat(path, &info));
    }
    return error != 0 ? error : S_ISREG(info.st_mode) ? 0 : EEXIST;
}

uint64_t umf_os_next_data(int fd, uint64_t offset, uint64_t *end) {
    off_t data = os_fault("next_data") == 0 ? lseek(fd, (off_t)offset, SEEK_DATA) : -1;
    int error = data == -1 ? errno : 0;
    off_t hole = data != -1 ? lseek(fd, data, SEEK_HOLE) : -1;
    if (error == ENXIO) {
        *end = UINT64_MAX;
        return UINT64_MAX;
    }
    *end = hole != -1 ? (uint64_t)hole : UINT64_MAX;
    return data != -1 ? (uint64_t)data : offset;
}

/* --- DAX files and devices --- */

#define OS_DEV_DIR "/dev/"

static _Atomic(const char *) os_dax_dir;

void umf_os_set_dax_dir(const char *dir) {
    atomic_store(&os_dax_dir, dir);
}

static const char *os_get_dax_dir(void) {
    return atomic_load_explicit(&os_dax_dir, memory_order_relaxed);
}

int umf_os_map_sync(void **addr, size_t size, int prot, int flags, int fd, size_t offset) {
    int how = os_get_dax_dir() ? MAP_SHARED : MAP_SHARED_VALIDATE | MAP_SYNC;
    return umf_os_map(addr, size, prot, flags | how, fd, offset);
}

int umf_os_dax_open(const char *path, int flags, int *fd) {
    char other[PATH_MAX];
    const char *dir = os_get_dax_dir();
    if (dir && strncmp(path, OS_DEV_DIR, strlen(OS_DEV_DIR)) == 0) {
        int length = snprintf(other, sizeof(other), "%s/%s", dir, path + strlen(OS_DEV_DIR));
        if (length < 0 || (size_t)length >= sizeof(other)) {
            return ENAMETOOLONG;
        }
        path = other;
    }
    return umf_os_open(path, flags, 0, fd);
}

/* A number that the kernel publishes for a device. 0: there is none. */
static uint64_t os_device_number(dev_t device, const char *name) {
    char path[64], text[32];
    snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/%s", major(device), minor(device), name);
    return umf_os_read_text(path, text, sizeof(text)) == 0 ? strtoull(text, NULL, 0) : 0;
}

int umf_os_dax_info(int fd, umf_os_dax_t *dax) {
    struct stat info;
    int error = os_fault("dax_info");
    if (error == 0) {
        error = os_result(fstat(fd, &info));
    }
    if (error != 0) {
        return error;
    }
    if (S_ISCHR(info.st_mode)) {
        *dax = (umf_os_dax_t){
            .dev = info.st_rdev,
            .size = os_device_number(info.st_rdev, "size"),
            .align = os_device_number(info.st_rdev, "align"),
        };
        return 0;
    }
    if (os_get_dax_dir() && S_ISREG(info.st_mode) && info.st_size != 0) {
        *dax = (umf_os_dax_t){.dev = info.st_ino, .size = (uint64_t)info.st_size};
        return 0;
    }
    return ENODEV;
}

/* Every device is an entry of a folder. Directory streams of the C library would allocate. */
int umf_os_dax_probe(void) {
    char entries[1024];
    const char *dir = os_get_dax_dir();
    int fd = -1;
    int error = umf_os_open(dir ? dir : "/sys/bus/dax/devices", O_RDONLY | O_DIRECTORY, 0, &fd);
    if (error != 0) {
        return error;
    }
    long size = syscall(SYS_getdents64, fd, entries, sizeof(entries));
    error = os_result(size);
    close(fd);
    /* "." and ".." take 24 bytes each, so more means that there is a device. */
    return error != 0 ? error : size > 2 * 24 ? 0 : ENOENT;
}
