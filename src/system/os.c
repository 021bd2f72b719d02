/*
 * The system behind a few primitives (Linux).
 *
 * Every function asks the fault hook under its own name before it does anything. Closing is the
 * exception: a descriptor is gone after close() whatever it answers, so it is really closed first.
 */
#include "system/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "system/common.h"

/* Newer than some C libraries; the numbers are the same on all architectures. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

#define OS_SHM_DIR "/dev/shm/"
#define OS_DEV_DIR "/dev/"

/* What is tried at once at the least when signals interrupt the making of space. */
#define OS_ALLOCATE_MIN ((off_t)1 << 20)

_Atomic(umf_os_fault_t) umf_os_fault;

void umf_os_set_fault(umf_os_fault_t fault) {
    atomic_store(&umf_os_fault, fault);
}

static int os_fault(const char *call) {
    umf_os_fault_t fault = atomic_load_explicit(&umf_os_fault, memory_order_relaxed);
    return umf_unlikely(fault != NULL) ? fault(call) : 0;
}

/* The errno value of a call that answers -1 for failure. */
static int os_result(long answer) {
    return answer == -1 ? errno : 0;
}

static int os_result_fd(long answer, int *fd) {
    if (answer == -1) {
        return errno;
    }
    *fd = (int)answer;
    return 0;
}

static bool os_to_off(uint64_t value, off_t *offset) {
    *offset = (off_t)value;
    return value <= INT64_MAX && sizeof(off_t) == sizeof(int64_t);
}

const char *umf_os_error_text(int error, char *buffer, size_t size) {
#ifndef __GLIBC__
    const char *text = strerror_r(error, buffer, size) == 0 ? buffer : NULL;
#elif __GLIBC__ > 2 || __GLIBC_MINOR__ >= 32
    /* strerror() would translate, which locks and allocates. */
    const char *text = strerrordesc_np(error);
#else
    const char *text = strerror_r(error, buffer, size);
#endif
    if (!text) {
        snprintf(buffer, size, "Unknown error %d", error);
        text = buffer;
    }
    return text;
}

/* --- facts about the machine --- */

/* Remembers the first good answer of sysconf; threads that race store the same. */
static size_t os_sysconf(atomic_size_t *cache, int name, size_t fallback) {
    size_t value = atomic_load_explicit(cache, memory_order_relaxed);
    if (umf_unlikely(value == 0)) {
        long answer = sysconf(name);
        value = answer > 0 ? (size_t)answer : fallback;
        atomic_store_explicit(cache, value, memory_order_relaxed);
    }
    return value;
}

size_t umf_os_page_size(void) {
    static atomic_size_t cache;
    return os_sysconf(&cache, _SC_PAGESIZE, 4096);
}

size_t umf_os_cache_line_size(void) {
#ifdef _SC_LEVEL1_DCACHE_LINESIZE
    static atomic_size_t cache;
    return os_sysconf(&cache, _SC_LEVEL1_DCACHE_LINESIZE, 64);
#else
    return 64; /* musl does not tell */
#endif
}

size_t umf_os_cpu_count(void) {
    static atomic_size_t cache;
    return os_sysconf(&cache, _SC_NPROCESSORS_ONLN, 1);
}

/* --- memory --- */

int umf_os_map(void **addr, size_t size, int prot, int flags, int fd, size_t offset) {
    int error = os_fault("map");
    off_t off;
    if (error != 0) {
        return error;
    }
    if (!os_to_off(offset, &off)) {
        return EOVERFLOW;
    }
    void *ptr = mmap(*addr, size, prot, flags, fd, off);
    if (ptr == MAP_FAILED) {
        return errno;
    }
    *addr = ptr;
    return 0;
}

int umf_os_unmap(void *addr, size_t size) {
    int error = os_fault("unmap");
    return error != 0 ? error : os_result(munmap(addr, size));
}

int umf_os_protect(void *addr, size_t size, int prot) {
    int error = os_fault("protect");
    return error != 0 ? error : os_result(mprotect(addr, size, prot));
}

size_t umf_os_address_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0) {
        return 0;
    }
    return limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)limit.rlim_cur;
}

int umf_os_advise(void *addr, size_t size, int advice) {
    int error = os_fault("advise");
    return error != 0 ? error : os_result(madvise(addr, size, advice));
}

/* Any call will do that writes so much and has no other effect. */
int umf_os_probe_write(void *addr) {
    int error = os_fault("probe_write");
    return error != 0 ? error : os_result(syscall(SYS_getcpu, addr, NULL, NULL));
}

/* The set is read before anybody sees that there is no such operation. */
int umf_os_probe_read(void *addr) {
    int error = os_fault("probe_read");
    if (error == 0) {
        error = os_result(syscall(SYS_rt_sigprocmask, -1, addr, NULL, sizeof(uint64_t)));
    }
    return error == EINVAL ? 0 : error;
}

enum { OS_NODE_WORDS = 64, OS_WORD_BITS = 8 * sizeof(unsigned long) };

/* Of nodes that do not exist, have no memory or are not allowed the kernel says nothing if one
 * other is among them. A system that does not tell which there are gets the benefit of the doubt.
 */
static bool os_has_nodes(const unsigned long *mask, unsigned long max_node) {
    unsigned long there[OS_NODE_WORDS] = {0};
    if (!mask || max_node > OS_NODE_WORDS * OS_WORD_BITS ||
        syscall(SYS_get_mempolicy, NULL, there, OS_NODE_WORDS * OS_WORD_BITS, NULL,
                MPOL_F_MEMS_ALLOWED) != 0) {
        return true;
    }
    unsigned long missing = 0;
    for (unsigned long i = 0; i * OS_WORD_BITS < max_node; i++) {
        missing |= mask[i] & ~there[i];
    }
    return missing == 0;
}

int umf_os_mbind(void *addr, size_t size, int mode, const unsigned long *mask,
                 unsigned long max_node) {
    int error = os_fault("mbind");
    if (error != 0) {
        return error;
    }
    if (!os_has_nodes(mask, max_node)) {
        return ENODEV;
    }
    /* The kernel reads one bit less than it is told. */
    return os_result(syscall(SYS_mbind, addr, size, mode, mask, mask ? max_node + 1 : 0, 0));
}

/* --- files --- */

static int os_open(const char *path, int flags, mode_t mode, int *fd) {
    int answer;
    do {
        answer = open(path, flags | O_CLOEXEC, mode);
    } while (answer == -1 && errno == EINTR);
    return os_result_fd(answer, fd);
}

int umf_os_open(const char *path, int flags, mode_t mode, int *fd) {
    int error = os_fault("open");
    return error != 0 ? error : os_open(path, flags, mode, fd);
}

int umf_os_close(int fd) {
    int error = os_result(close(fd));
    int fault = os_fault("close");
    /* Interrupted means closed all the same. */
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

/* The file behind a named object: what shm_open() of the C library does, without its library. */
static int os_shm_path(const char *name, char *path, size_t size) {
    if (name[0] == '\0' || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return EINVAL;
    }
    int length = snprintf(path, size, OS_SHM_DIR "%s", name);
    return length < 0 || (size_t)length >= size ? ENAMETOOLONG : 0;
}

int umf_os_shm_open(const char *name, int flags, mode_t mode, int *fd) {
    char path[sizeof(OS_SHM_DIR) + NAME_MAX];
    int error = os_fault("shm_open");
    if (error == 0) {
        error = os_shm_path(name, path, sizeof(path));
    }
    return error != 0 ? error : os_open(path, flags | O_NOFOLLOW, mode, fd);
}

int umf_os_shm_make(mode_t mode, int *fd) {
    int error = os_fault("shm_make");
    return error != 0 ? error : os_open(OS_SHM_DIR, O_TMPFILE | O_RDWR, mode, fd);
}

int umf_os_shm_link(int fd, const char *name) {
    char path[sizeof(OS_SHM_DIR) + NAME_MAX], own[32];
    int error = os_fault("shm_link");
    if (error == 0) {
        error = os_shm_path(name, path, sizeof(path));
    }
    if (error != 0) {
        return error;
    }
    snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
    return os_result(linkat(AT_FDCWD, own, AT_FDCWD, path, AT_SYMLINK_FOLLOW));
}

int umf_os_shm_unlink(const char *name) {
    char path[sizeof(OS_SHM_DIR) + NAME_MAX];
    int error = os_fault("shm_unlink");
    if (error == 0) {
        error = os_shm_path(name, path, sizeof(path));
    }
    return error != 0 ? error : os_result(unlink(path));
}

/* An entry of a folder, as the kernel writes it. */
typedef struct os_entry_t {
    uint64_t ino;
    int64_t next;
    uint16_t length;
    uint8_t type;
    char name[];
} os_entry_t;

/* Until `visit` has seen enough. Directory streams of the C library would allocate. */
static int os_each_entry(int fd, bool (*visit)(const char *name, void *arg), void *arg) {
    _Alignas(os_entry_t) char entries[4096];
    long size;
    bool goes_on = true;
    while (goes_on && (size = syscall(SYS_getdents64, fd, entries, sizeof(entries))) > 0) {
        for (long at = 0; goes_on && at < size;) {
            const os_entry_t *entry = (const void *)(entries + at);
            goes_on = visit(entry->name, arg);
            at += entry->length;
        }
    }
    return goes_on ? os_result(size) : 0;
}

int umf_os_shm_each(bool (*visit)(const char *name, void *arg), void *arg) {
    int fd = -1;
    int error = os_fault("shm_each");
    if (error == 0) {
        error = os_open(OS_SHM_DIR, O_RDONLY | O_DIRECTORY, 0, &fd);
    }
    if (error != 0) {
        return error;
    }
    error = os_each_entry(fd, visit, arg);
    close(fd);
    return error;
}

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

int umf_os_punch(int fd, uint64_t offset, uint64_t size) {
    int error = os_fault("punch");
    off_t off, length;
    if (error != 0) {
        return error;
    }
    if (!os_to_off(offset, &off) || !os_to_off(size, &length)) {
        return EFBIG;
    }
    do {
        error = os_result(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, length));
    } while (error == EINTR);
    return error;
}

/* To write beyond this limit is answered with a signal that ends the process. */
static int os_check_file_limit(int fd, uint64_t end) {
    struct rlimit limit;
    struct stat info;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && end > limit.rlim_cur &&
        (fstat(fd, &info) != 0 || end > (uint64_t)info.st_size)) {
        return EFBIG;
    }
    return 0;
}

/* Some file systems undo all they did when a signal comes, so a repeated one would never let a
 * large request through: after each the pieces get smaller. */
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

int umf_os_zero(int fd, uint64_t offset, uint64_t size) {
    int error = os_fault("zero");
    off_t off, length;
    if (error != 0) {
        return error;
    }
    if (!os_to_off(offset, &off) || !os_to_off(size, &length)) {
        return EFBIG;
    }
    do {
        error = os_result(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, off, length));
    } while (error == EINTR);
    return error;
}

/* Truncating could shrink the file if another process makes it longer just now; writing its last
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

int umf_os_add_seals(int fd, int seals) {
    int error = os_fault("add_seals");
    return error != 0 ? error : os_result(fcntl(fd, F_ADD_SEALS, seals));
}

#ifndef SECRETMEM_MAGIC
#define SECRETMEM_MAGIC 0x5345434d
#endif

/* Files of memfd_secret have no seals; they get their size once. */
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

bool umf_os_is_own_unlinked(int fd) {
    struct stat file;
    return fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 0 &&
           file.st_uid == geteuid();
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

int umf_os_getcwd(char *path, size_t size) {
    int error = os_fault("getcwd");
    return error != 0 ? error : getcwd(path, size) ? 0 : errno;
}

int umf_os_chmod(const char *path, mode_t mode) {
    int error = os_fault("chmod");
    return error != 0 ? error : os_result(chmod(path, mode));
}

int umf_os_fchmod(int fd, mode_t mode) {
    int error = os_fault("fchmod");
    return error != 0 ? error : os_result(fchmod(fd, mode));
}

int umf_os_rename(const char *from, const char *to) {
    int error = os_fault("rename");
    return error != 0 ? error : os_result(rename(from, to));
}

int umf_os_unlink(const char *path) {
    int error = os_fault("unlink");
    return error != 0 ? error : os_result(unlink(path));
}

int umf_os_socket_age(const char *path, uint64_t *seconds) {
    struct stat info;
    int error = os_fault("socket_age");
    if (error == 0) {
        error = os_result(lstat(path, &info));
    }
    if (error != 0) {
        return error;
    }
    if (!S_ISSOCK(info.st_mode)) {
        return ENOTSOCK;
    }
    time_t now = time(NULL);
    *seconds = now > info.st_ctime ? (uint64_t)(now - info.st_ctime) : 0;
    return 0;
}

int umf_os_each_entry(const char *path, bool (*visit)(const char *name, void *arg), void *arg) {
    int fd = -1;
    int error = umf_os_open(path, O_RDONLY | O_DIRECTORY, 0, &fd);
    if (error != 0) {
        return error;
    }
    error = os_each_entry(fd, visit, arg);
    close(fd);
    return error;
}

/* --- processes --- */

int umf_os_pid(void) {
    return (int)getpid();
}

int umf_os_tid(void) {
    return (int)syscall(SYS_gettid);
}

uint32_t umf_os_user(void) {
    return (uint32_t)geteuid();
}

int umf_os_random(void *bytes, size_t size) {
    int error = os_fault("random");
    if (error != 0) {
        return error;
    }
    ssize_t got = getrandom(bytes, size, GRND_NONBLOCK);
    return got == (ssize_t)size ? 0 : (got == -1 ? errno : EAGAIN);
}

/* Reads a small text file of the kernel, cut to what fits. */
static int os_read_text(const char *path, char *text, size_t size) {
    size_t length = 0;
    ssize_t count;
    int fd = -1;
    int error = os_open(path, O_RDONLY, 0, &fd);
    if (error != 0) {
        return error;
    }
    do {
        count = read(fd, text + length, size - 1 - length);
        length += count > 0 ? (size_t)count : 0;
    } while (count > 0 || (count == -1 && errno == EINTR));
    error = os_result(count);
    text[length] = '\0';
    close(fd);
    return error;
}

/*
 * Field `number` of a process' stat line, counted as in proc(5); NULL if it is not there. Fields
 * before the third cannot be asked for: the program's name may contain anything, so counting starts
 * after the last bracket.
 */
static const char *os_stat_field(const char *line, int number) {
    const char *at = strrchr(line, ')');
    for (int i = 3; at && i <= number; i++) {
        at = strchr(at + 1, ' ');
    }
    return at ? at + 1 : NULL;
}

/* All that is left of it is an exit status. A dead first thread with others alive is not that. */
static bool os_is_zombie(const char *line) {
    const char *state = os_stat_field(line, 3);
    const char *threads = os_stat_field(line, 20);
    return state && threads && (*state == 'Z' || *state == 'X') && atoi(threads) <= 1;
}

bool umf_os_is_last_thread(void) {
    char line[1024];
    if (os_fault("is_last_thread") != 0 ||
        os_read_text("/proc/self/stat", line, sizeof(line)) != 0) {
        return false;
    }
    const char *state = os_stat_field(line, 3);
    const char *threads = os_stat_field(line, 20);
    return state && threads && *state == 'Z' && atoi(threads) <= 2;
}

static int os_read_start_time(const char *path, uint64_t *ticks) {
    char line[1024];
    int error = os_read_text(path, line, sizeof(line));
    if (error != 0) {
        return error == ENOENT ? ESRCH : error;
    }
    const char *field = os_stat_field(line, 22);
    if (!field) {
        return EIO;
    }
    if (os_is_zombie(line)) {
        return ESRCH;
    }
    *ticks = strtoull(field, NULL, 10);
    return 0;
}

/*
 * Our own start time, remembered together with the pid it belongs to, so that a forked child does
 * not take its parent's. One word: 22 bits of pid (the kernel's limit), 42 bits of ticks.
 */
static int os_own_start_time(int pid, uint64_t *ticks) {
    static _Atomic uint64_t cache;
    uint64_t word = atomic_load_explicit(&cache, memory_order_relaxed);
    if (word >> 42 != (uint64_t)pid) {
        uint64_t read_ticks;
        /* /proc may show another pid namespace than ours; "self" is right in any. */
        int error = os_read_start_time("/proc/self/stat", &read_ticks);
        if (error != 0) {
            return error;
        }
        word = (uint64_t)pid << 42 | (read_ticks & ((UINT64_C(1) << 42) - 1));
        atomic_store_explicit(&cache, word, memory_order_relaxed);
    }
    *ticks = word & ((UINT64_C(1) << 42) - 1);
    return 0;
}

int umf_os_start_time(int pid, uint64_t *ticks) {
    char path[32];
    int error = os_fault("start_time");
    if (error != 0) {
        return error;
    }
    if (pid == umf_os_pid()) {
        return os_own_start_time(pid, ticks);
    }
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    return os_read_start_time(path, ticks);
}

/* FNV-1a, 64 bits. */
static uint64_t os_hash_text(const char *text) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return hash;
}

uint64_t umf_os_boot_id(void) {
    static _Atomic uint64_t cache;
    char text[64];
    uint64_t id = atomic_load_explicit(&cache, memory_order_relaxed);
    if (id == 0 && os_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text)) == 0) {
        id = os_hash_text(text) | 1;
        atomic_store_explicit(&cache, id, memory_order_relaxed);
    }
    return id;
}

bool umf_os_has_filter(void) {
    char status[4096];
    return os_fault("has_filter") != 0 ||
           os_read_text("/proc/self/status", status, sizeof(status)) != 0 ||
           strstr(status, "\nSeccomp:\t0\n") == NULL;
}

bool umf_os_may_attach(void) {
    char scope[8];
    int error = os_fault("may_attach");
    if (error == 0) {
        error = os_read_text("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope));
    }
    bool is_free = error == 0 ? scope[0] == '0' : error == ENOENT;
    return is_free && !umf_os_has_filter();
}

int umf_os_pidfd_open(int pid, int *fd) {
    int error = os_fault("pidfd_open");
    return error != 0 ? error : os_result_fd(syscall(SYS_pidfd_open, pid, 0), fd);
}

int umf_os_pidfd_getfd(int pidfd, int target, int *fd) {
    int error = os_fault("pidfd_getfd");
    return error != 0 ? error : os_result_fd(syscall(SYS_pidfd_getfd, pidfd, target, 0), fd);
}

#ifndef PID_FS_MAGIC
#define PID_FS_MAGIC 0x50494446
#endif

/* Before there was a file system of processes, all descriptors had one inode. */
static bool os_is_pidfs(int pidfd, const struct stat *info) {
    static _Atomic uint64_t pidfs_dev; /* 0: not met yet. Sync: atomic, relaxed */
    struct statfs system;
    if (atomic_load_explicit(&pidfs_dev, memory_order_relaxed) == info->st_dev) {
        return true;
    }
    if (fstatfs(pidfd, &system) != 0 || system.f_type != PID_FS_MAGIC) {
        return false;
    }
    atomic_store_explicit(&pidfs_dev, info->st_dev, memory_order_relaxed);
    return true;
}

int umf_os_pidfd_id(int pidfd, uint64_t *id) {
    struct stat info;
    int error = os_fault("pidfd_id");
    if (error == 0) {
        error = os_result(fstat(pidfd, &info));
    }
    if (error != 0) {
        return error;
    }
    /* Where inodes have 32 bits they are used again. */
    if (sizeof(long) < sizeof(uint64_t) || info.st_ino == 0 || !os_is_pidfs(pidfd, &info)) {
        return ENOSYS;
    }
    *id = info.st_ino | UMF_OS_PIDFD_ID;
    return 0;
}

/* --- DAX --- */

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

/* A number that the kernel tells of a device, 0 if it does not. */
static uint64_t os_device_number(dev_t device, const char *name) {
    char path[64], text[32];
    snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/%s", major(device), minor(device), name);
    return os_read_text(path, text, sizeof(text)) == 0 ? strtoull(text, NULL, 0) : 0;
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
    /* "." and ".." take 24 bytes each. */
    return error != 0 ? error : size > 2 * 24 ? 0 : ENOENT;
}
