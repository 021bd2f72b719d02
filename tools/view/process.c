/*
 * The memory of a process, read with process_vm_readv. A page of it may be one that the process
 * itself has to supply (userfaultfd, a file system of its own), and then the kernel waits for it.
 * So a child reads, which is ended when the time is over.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "view/view.h"

#define BYTES_MOST ((uint64_t)2 << 30) /* that are read of a process in one look */
#define OBJECTS_MOST 4096u             /* ELF objects that are looked at */
#define LINES_MOST 200000u             /* of /proc/PID/maps */
#define TABLES_MOST 8u

/* --- in a child ------------------------------------------------------------------------------- */

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A child that the kernel does not let go at once is left alone. */
static void child_end(pid_t child) {
    kill(child, SIGKILL);
    for (int i = 0; i < 100 && waitpid(child, NULL, WNOHANG) == 0; i++) {
        poll(NULL, 0, 1);
    }
}

/* Calls `work` in a child, which writes what it finds into `shared`. child 0: there is none. */
static umf_view_child_t aside_begin(void (*work)(void *shared, void *arg), void *shared, void *arg,
                                    uint64_t end) {
    umf_view_child_t aside = {.fd = -1, .end = end, .shared = shared};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return aside;
    }
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            work(shared, arg);
        }
        bool is_told = write(ends[1], "", 1) == 1;
        _exit(is_told ? 0 : 1);
    }
    close(ends[1]);
    aside.fd = ends[0];
    aside.child = child > 0 ? (int)child : 0;
    return aside;
}

/* false: it was not done in time. */
static bool aside_end(umf_view_child_t *aside) {
    struct pollfd wait = {.fd = aside->fd, .events = POLLIN};
    char done;
    int ready = 0;
    for (bool is_over = false; aside->child && ready <= 0 && !is_over;) {
        uint64_t now = now_ns();
        is_over = now >= aside->end; /* then it may have ended in time all the same */
        ready = poll(&wait, 1, is_over ? 0 : (int)((aside->end - now) / 1000000 + 1));
    }
    bool is_done = ready > 0 && read(aside->fd, &done, 1) == 1;
    if (aside->fd != -1) {
        close(aside->fd);
    }
    if (aside->child) {
        child_end(aside->child);
    }
    return is_done;
}

static void *shared_new(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* --- one process ------------------------------------------------------------------------------ */

typedef struct memory_t {
    uint32_t pid;
    int error; /* the last one that says something of the whole process */
} memory_t;

static bool memory_read(void *arg, uint64_t at, void *to, size_t size) {
    memory_t *memory = arg;
    struct iovec local = {to, size}, remote = {(void *)(uintptr_t)at, size};
    errno = 0;
    ssize_t got = process_vm_readv((pid_t)memory->pid, &local, 1, &remote, 1, 0);
    if (got < 0 && errno != EFAULT) {
        memory->error = errno;
    }
    return got == (ssize_t)size;
}

static void fail(umf_view_rows_t *rows, const char *text, uint32_t pid) {
    snprintf(rows->error, sizeof(rows->error), text, pid);
}

static void fail_memory(umf_view_rows_t *rows, uint32_t pid, int error) {
    if (error == EPERM || error == EACCES) {
        fail(rows,
             "the kernel does not let this user read process %u (ptrace: another user, not "
             "dumpable, or "
             "kernel.yama.ptrace_scope); look as root, or start it as 'umfctl top -- PROGRAM' or "
             "with "
             "UMF_RECORD_ATTACH=yes",
             pid);
    } else if (error == ESRCH || error == ENOENT) {
        fail(rows, "there is no process %u", pid);
    } else if (error == ENOSYS) {
        fail(rows, "this kernel cannot read the memory of process %u", pid);
    } else {
        snprintf(rows->error, sizeof(rows->error), "process %u cannot be read: %s", pid,
                 strerror(error));
    }
}

static FILE *maps_open(uint32_t pid) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/maps", pid);
    return fopen(path, "re");
}

/* The beginnings of mapped files. A path is long at most as a line; what follows is skipped. */
static bool mapping_next(FILE *maps, uint64_t *start, char *line, size_t size) {
    unsigned long long from, to, offset, inode;
    char rights[8];
    for (unsigned i = 0; i < LINES_MOST && fgets(line, (int)size, maps); i++) {
        if (sscanf(line, "%llx-%llx %7s %llx %*x:%*x %llu", &from, &to, rights, &offset, &inode) ==
                5 &&
            rights[0] == 'r' && offset == 0 && inode != 0) {
            *start = from;
            return true;
        }
    }
    return false;
}

typedef struct look_t {
    memory_t memory;
    uint64_t end;
} look_t;

static void tables_add(look_t *look, FILE *maps, umf_view_rows_t *rows) {
    umf_view_source_t source = {memory_read, &look->memory, BYTES_MOST, look->end};
    uint64_t start, table;
    char line[4600];
    unsigned found = 0, read = 0;
    for (unsigned i = 0; i < OBJECTS_MOST && found < TABLES_MOST && look->memory.error == 0 &&
                         mapping_next(maps, &start, line, sizeof(line));
         i++) {
        table = umf_view_find(&source, start);
        found += table != 0;
        read += table != 0 && umf_view_add(&source, table, rows);
    }
    rows->is_out |= source.left == 0;
    if (look->memory.error) {
        rows->count = 0;
        fail_memory(rows, look->memory.pid, look->memory.error);
    } else if (found == 0 && rows->is_out) {
        fail(rows, "process %u cannot be read in time", look->memory.pid);
    } else if (found == 0) {
        fail(rows, "process %u does not use libumf, or one that says nothing of itself",
             look->memory.pid);
    } else if (read > 0) {
        rows->error[0] = '\0';
    }
}

static void process_read(void *shared, void *arg) {
    umf_view_rows_t *rows = shared;
    look_t *look = arg;
    FILE *maps = maps_open(look->memory.pid);
    if (maps) {
        tables_add(look, maps, rows);
        fclose(maps);
    } else {
        fail_memory(rows, look->memory.pid, errno);
    }
}

umf_view_child_t umf_view_begin(uint32_t pid, unsigned ms) {
    umf_view_rows_t *shared = shared_new(sizeof(*shared));
    uint64_t end = now_ns() + (uint64_t)ms * 1000000u;
    look_t look = {.memory = {.pid = pid}, .end = end - (uint64_t)ms * 200000u};
    return shared ? aside_begin(process_read, shared, &look, end) : (umf_view_child_t){.fd = -1};
}

bool umf_view_end(umf_view_child_t *child, uint32_t pid, umf_view_rows_t *rows) {
    rows->count = 0;
    if (!aside_end(child)) {
        fail(rows,
             child->child ? "process %u cannot be read in time"
                          : "there is no memory or process to look at process %u",
             pid);
    } else {
        memcpy(rows, child->shared, sizeof(*rows));
    }
    if (child->shared) {
        munmap(child->shared, sizeof(*rows));
    }
    return rows->error[0] == '\0';
}

/* --- all processes ---------------------------------------------------------------------------- */

#define LIST_MOST 4096u

typedef struct list_t {
    size_t count;
    uint32_t pids[LIST_MOST];
} list_t;

static bool is_named_libumf(const char *line) {
    const char *name = strrchr(line, '/');
    return name && strncmp(name, "/libumf", 7) == 0;
}

static bool has_libumf(uint32_t pid) {
    FILE *maps = maps_open(pid);
    char line[4600];
    uint64_t start;
    bool is_found = false;
    for (unsigned i = 0;
         maps && !is_found && i < OBJECTS_MOST && mapping_next(maps, &start, line, sizeof(line));
         i++) {
        is_found = is_named_libumf(line);
    }
    if (maps) {
        fclose(maps);
    }
    return is_found;
}

static bool is_own(const char *name) {
    char path[280];
    struct stat process;
    snprintf(path, sizeof(path), "/proc/%s", name);
    return stat(path, &process) == 0 && (getuid() == 0 || process.st_uid == getuid());
}

/* Processes found until the time is over count. */
static void list_make(void *shared, void *arg) {
    list_t *list = shared;
    (void)arg;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes)) != NULL;) {
        unsigned long pid = strtoul(entry->d_name, NULL, 10);
        if (pid > 0 && pid <= INT32_MAX && pid != (unsigned long)getppid() &&
            pid != (unsigned long)getpid() && is_own(entry->d_name) && has_libumf((uint32_t)pid) &&
            list->count < LIST_MOST) {
            list->pids[list->count] = (uint32_t)pid;
            list->count++;
        }
    }
    if (processes) {
        closedir(processes);
    }
}

size_t umf_view_list(uint32_t *pids, size_t most, unsigned ms) {
    list_t *list = shared_new(sizeof(*list));
    if (!list) {
        return 0;
    }
    umf_view_child_t child = aside_begin(list_make, list, NULL, now_ns() + (uint64_t)ms * 1000000u);
    aside_end(&child);
    size_t count = list->count < most ? list->count : most;
    memcpy(pids, list->pids, count * sizeof(*pids));
    munmap(list, sizeof(*list));
    return count;
}
