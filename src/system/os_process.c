/* The system: processes and threads. See os.h. */

#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "system/keep_errno.h"
#include "system/os_own.h"

/* Newer than some C libraries; the numbers are the same on all architectures. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

int umf_os_pid(void) {
    return (int)getpid();
}

int umf_os_tid(void) {
    return (int)syscall(SYS_gettid);
}

bool umf_os_thread_has_ended(int tid) {
    UMF_KEEP_ERRNO;
    return syscall(SYS_tgkill, getpid(), tid, 0) != 0 && errno == ESRCH;
}

/* Numbers of linux/membarrier.h, which old C libraries lack. */
#define FENCE_ALL (1 << 3)
#define FENCE_REGISTER (1 << 4)

static bool os_membarrier(int command) {
    return syscall(SYS_membarrier, command, 0) == 0;
}

bool umf_os_fence_all(void) {
    int saved_errno = errno;
    bool is_done = os_fault("membarrier") == 0 &&
                   (os_membarrier(FENCE_ALL) ||
                    (errno == EPERM && os_membarrier(FENCE_REGISTER) && os_membarrier(FENCE_ALL)));
    errno = saved_errno;
    return is_done;
}

uint32_t umf_os_user(void) {
    return (uint32_t)geteuid();
}

/* The kernel's default, where /proc has no value. */
#define OVERFLOW_USER 65534u

static uint32_t os_overflow_user(void) {
    char text[16];
    int error = umf_os_read_text("/proc/sys/kernel/overflowuid", text, sizeof(text));
    return error == 0 ? (uint32_t)strtoul(text, NULL, 10) : OVERFLOW_USER;
}

/* Whether every user of the machine has a number in this namespace: one line maps all. */
static bool os_knows_all_users(void) {
    char text[128];
    unsigned inside, outside, count;
    return umf_os_read_text("/proc/self/uid_map", text, sizeof(text)) == 0 &&
           sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 &&
           count == UINT32_MAX;
}

bool umf_os_connecting_ports(unsigned *low, unsigned *high) {
    char text[32];
    return umf_os_read_text("/proc/sys/net/ipv4/ip_local_port_range", text, sizeof(text)) == 0 &&
           sscanf(text, "%u %u", low, high) == 2;
}

bool umf_os_is_own_user(uint32_t uid) {
    return uid == umf_os_user() && os_fault("is_own_user") == 0 &&
           (uid != os_overflow_user() || os_knows_all_users());
}

bool umf_os_is_privileged(void) {
    return getauxval(AT_SECURE) != 0 || os_fault("is_privileged") != 0;
}

/*
 * Field `number` of a process's stat line, counted as in proc(5). NULL: it is not there. The fields
 * before the third are not available: the program's name may contain anything, so counting starts
 * after the last bracket.
 */
static const char *os_stat_field(const char *line, int number) {
    const char *at = strrchr(line, ')');
    for (int i = 3; at && i <= number; i++) {
        at = strchr(at + 1, ' ');
    }
    return at ? at + 1 : NULL;
}

/* Whether only an exit status is left of the process. A dead first thread does not count while
 * others are alive. */
static bool os_is_zombie(const char *line) {
    const char *state = os_stat_field(line, 3);
    const char *threads = os_stat_field(line, 20);
    return state && threads && (*state == 'Z' || *state == 'X') && atoi(threads) <= 1;
}

/* The start of the heap; UINTPTR_MAX: unknown. */
static uintptr_t os_read_heap(void) {
    char line[1024];
    const char *field = umf_os_read_text("/proc/self/stat", line, sizeof(line)) == 0
                            ? os_stat_field(line, 47)
                            : NULL;
    uintptr_t start = field ? (uintptr_t)strtoull(field, NULL, 10) : 0;
    return start ? start : UINTPTR_MAX;
}

bool umf_os_is_in_heap(uintptr_t addr, size_t size) {
    static _Atomic uintptr_t heap; /* 0: not read yet; it never changes */
    uintptr_t start = atomic_load_explicit(&heap, memory_order_relaxed);
    if (umf_unlikely(start == 0)) {
        start = os_read_heap();
        atomic_store_explicit(&heap, start, memory_order_relaxed);
    }
    if (addr < start) {
        return false;
    }
    uintptr_t end = (uintptr_t)sbrk(0);
    return addr < end && size <= end - addr;
}

typedef struct os_range_t {
    uintptr_t begin, end;
} os_range_t;

/* The largest segment that is written, without the part at its begin that the loader makes
 * read-only. */
static int os_find_data(struct dl_phdr_info *program, size_t size, void *found) {
    os_range_t *data = found;
    uintptr_t read_only = 0;
    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &program->dlpi_phdr[i];
        uintptr_t begin = program->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type == PT_LOAD && part->p_flags & PF_W &&
            end - begin > data->end - data->begin) {
            *data = (os_range_t){.begin = begin, .end = end};
        }
        read_only = part->p_type == PT_GNU_RELRO ? end : read_only;
    }
    if (read_only > data->begin && read_only <= data->end) {
        data->begin = umf_align_up(read_only, umf_os_page_size());
    }
    return 1; /* the program is the first */
}

bool umf_os_is_in_data(uintptr_t addr, size_t size) {
    static _Atomic uintptr_t begin, end; /* begin 0: not read yet. They never change */
    uintptr_t start = atomic_load_explicit(&begin, memory_order_acquire);
    if (umf_unlikely(start == 0)) {
        os_range_t data = {0};
        dl_iterate_phdr(os_find_data, &data);
        start = data.begin ? data.begin : UINTPTR_MAX;
        atomic_store_explicit(&end, data.end, memory_order_relaxed);
        atomic_store_explicit(&begin, start, memory_order_release);
    }
    uintptr_t last = atomic_load_explicit(&end, memory_order_relaxed);
    return addr >= start && addr < last && size <= last - addr;
}

/* The process in the high half, since a child of a fork has none of these threads; their number in
 * the low one. */
static _Atomic uint64_t own_threads;

static uint32_t own_threads_in(uint64_t word) {
    return word >> 32 == (uint32_t)umf_os_pid() ? (uint32_t)word : 0;
}

static int own_thread_count(void) {
    return (int)own_threads_in(atomic_load(&own_threads));
}

static void own_threads_add(int change) {
    uint64_t word = atomic_load(&own_threads), changed;
    do {
        uint32_t count = own_threads_in(word) + (uint32_t)change;
        changed = (uint64_t)(uint32_t)umf_os_pid() << 32 | count;
    } while (!atomic_compare_exchange_weak(&own_threads, &word, changed));
}

void umf_os_own_thread_begins(void) {
    own_threads_add(1);
}

void umf_os_own_thread_ends(void) {
    own_threads_add(-1);
}

bool umf_os_is_last_thread(void) {
    char line[1024];
    if (os_fault("is_last_thread") != 0 ||
        umf_os_read_text("/proc/self/stat", line, sizeof(line)) != 0) {
        return false;
    }
    const char *state = os_stat_field(line, 3);
    const char *threads = os_stat_field(line, 20);
    return state && threads && *state == 'Z' && atoi(threads) <= 1 + own_thread_count();
}

static int os_read_start_time(const char *path, uint64_t *ticks) {
    char line[1024];
    int error = umf_os_read_text(path, line, sizeof(line));
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

int umf_os_start_time(int pid, uint64_t *ticks) {
    char path[32];
    int error = os_fault("start_time");
    if (error != 0) {
        return error;
    }
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    /* /proc may show another pid namespace than ours; "self" is correct in every one. */
    return os_read_start_time(pid == umf_os_pid() ? "/proc/self/stat" : path, ticks);
}

bool umf_os_has_filter(void) {
    char status[4096];
    return os_fault("has_filter") != 0 ||
           umf_os_read_text("/proc/self/status", status, sizeof(status)) != 0 ||
           strstr(status, "\nSeccomp:\t0\n") == NULL;
}

bool umf_os_may_attach(void) {
    char scope[8];
    int error = os_fault("may_attach");
    if (error == 0) {
        error = umf_os_read_text("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope));
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

/* Kernels without pidfs have one inode for all process descriptors. */
bool umf_os_is_pidfs(int pidfd, uint64_t dev) {
    static _Atomic uint64_t pidfs_dev; /* 0: not known yet. Sync: atomic, relaxed */
    struct statfs system;
    if (os_fault("pidfs") != 0) {
        return false;
    }
    if (atomic_load_explicit(&pidfs_dev, memory_order_relaxed) == dev) {
        return true;
    }
    if (fstatfs(pidfd, &system) != 0 || system.f_type != PID_FS_MAGIC) {
        return false;
    }
    atomic_store_explicit(&pidfs_dev, dev, memory_order_relaxed);
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
    /* Inodes of 32 bits are reused, so they do not identify a process. */
    if (sizeof(long) < sizeof(uint64_t) || info.st_ino == 0 ||
        !umf_os_is_pidfs(pidfd, info.st_dev)) {
        return ENOSYS;
    }
    *id = info.st_ino | UMF_OS_PIDFD_ID;
    return 0;
}

/* --- mappings --- */

/* "7f12a000-7f12c000 r-xp 00001000 08:01 1234    /usr/lib/x.so" */
static bool os_mapping_parse(const char *line, umf_os_region_t *mapping) {
    char *at;
    mapping->base = strtoull(line, &at, 16);
    mapping->size = *at == '-' ? strtoull(at + 1, &at, 16) - mapping->base : 0;
    if (mapping->size == 0 || strlen(at) < 6) {
        return false;
    }
    mapping->is_code = at[3] == 'x';
    mapping->offset = strtoull(at + 6, &at, 16);
    for (int fields = 0; fields < 2; fields++) { /* device and inode */
        at += strspn(at, " ");
        at += strcspn(at, " ");
    }
    mapping->path = at + strspn(at, " ");
    return true;
}

/* Visits the whole lines of a text; the number of bytes they have. 0: there is none, or it shall
 * end. */
static size_t os_mapping_lines(char *text, size_t length,
                               bool (*visit)(const umf_os_region_t *, void *), void *arg) {
    umf_os_region_t mapping;
    size_t done = 0;
    char *end;
    while ((end = memchr(text + done, '\n', length - done)) != NULL) {
        *end = 0;
        if (os_mapping_parse(text + done, &mapping) && !visit(&mapping, arg)) {
            return 0;
        }
        done = (size_t)(end - text) + 1;
    }
    return done;
}

int umf_os_each_region(char *buffer, size_t size,
                       bool (*visit)(const umf_os_region_t *mapping, void *arg), void *arg) {
    int fd;
    size_t length = 0;
    int error = umf_os_open("/proc/self/maps", O_RDONLY, 0, &fd);
    while (error == 0) {
        ssize_t got = read(fd, buffer + length, size - length);
        if (got <= 0) {
            break;
        }
        length += (size_t)got;
        size_t done = os_mapping_lines(buffer, length, visit, arg);
        if (done == 0) {
            break;
        }
        length -= done;
        memmove(buffer, buffer + done, length);
    }
    if (error == 0) {
        umf_os_close(fd);
    }
    return error;
}

int umf_os_read_memory(uint64_t address, void *buffer, size_t size) {
    struct iovec to = {buffer, size}, from = {(void *)(uintptr_t)address, size};
    int error = os_fault("read_memory");
    ssize_t got = error == 0 ? process_vm_readv(getpid(), &to, 1, &from, 1, 0) : -1;
    return error != 0 ? error : got == -1 ? errno : (size_t)got == size ? 0 : EFAULT;
}
