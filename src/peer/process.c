/*
 * Process: the identity of this process and of others.
 *
 * The own identity is stored in a page that the kernel clears in a forked child. So a child cannot
 * take itself for its parent, however it was forked.
 */
#include "peer/process.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/log.h"
#include "system/os.h"

/* Sync: atomic; every writer writes the same values, `pid` last */
typedef struct process_memo_t {
    _Atomic uint64_t boot_id;
    _Atomic uint64_t start_time;
    _Atomic uint32_t pid_ns;
    _Atomic uint32_t pid; /* 0: not known yet */
} process_memo_t;

static _Atomic(process_memo_t *) process_memo;

#ifdef MADV_WIPEONFORK
static UMF_COLD process_memo_t *process_make_memo(void) {
    void *page = NULL;
    size_t size = umf_os_page_size();
    if (!umf_os_knows_advice(MADV_WIPEONFORK) ||
        umf_os_map(&page, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != 0) {
        return NULL;
    }
    process_memo_t *known = NULL;
    if (umf_os_advise(page, size, MADV_WIPEONFORK) != 0 ||
        !atomic_compare_exchange_strong(&process_memo, &known, (process_memo_t *)page)) {
        umf_os_unmap(page, size);
        return known;
    }
    return page;
}
#else
static process_memo_t *process_make_memo(void) {
    return NULL;
}
#endif

static uint32_t process_pid_namespace(void) {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint32_t)st.st_ino : 0;
}

/* A process descriptor becomes readable when its process ends. */
uint32_t umf_process_ended(const umf_process_known_t *const *known, uint32_t count) {
    struct pollfd wait[UMF_PROCESS_ASK_MAX];
    uint32_t ended = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool is_open = umf_kept_fd_is_open(&known[i]->file);
        wait[i] = (struct pollfd){.fd = is_open ? known[i]->file.number : -1, .events = POLLIN};
        ended |= (uint32_t)!is_open << i;
    }
    bool is_any = poll(wait, count, 0) > 0;
    for (uint32_t i = 0; i < count && is_any; i++) {
        ended |= (uint32_t) !!(wait[i].revents & POLLIN) << i;
    }
    return ended;
}

static bool process_has_ended(int pidfd) {
    struct pollfd wait = {.fd = pidfd, .events = POLLIN};
    return poll(&wait, 1, 0) > 0 && wait.revents & POLLIN;
}

/* `pidfd`: -1 if none is open. */
static bool process_lives(uint32_t pid, int pidfd) {
    int mine = -1;
    if (pidfd == -1 && umf_os_pidfd_open((int)pid, &mine) != 0) {
        return false;
    }
    bool lives = !process_has_ended(pidfd == -1 ? mine : pidfd);
    if (mine != -1) {
        umf_os_close(mine);
    }
    return lives;
}

/* A /proc with hidepid=2 hides running processes. EACCES: this process is hidden. */
static int process_inspect_in_proc(uint32_t pid, int pidfd, uint64_t *start_time) {
    int error = umf_os_start_time((int)pid, start_time);
    return error == ESRCH && process_lives(pid, pidfd) ? EACCES : error;
}

/* `*start_time` is 0 if this system has no start times of the kind of `like`. A question to a
 * descriptor costs a third of reading /proc. */
static int process_inspect(uint32_t pid, int pidfd, uint64_t like, uint64_t *start_time) {
    if (pid > INT32_MAX) {
        return ESRCH;
    }
    if (!(like & UMF_OS_PIDFD_ID)) {
        return process_inspect_in_proc(pid, pidfd, start_time);
    }
    int mine = -1;
    int error = pidfd == -1 ? umf_os_pidfd_open((int)pid, &mine) : 0;
    if (error == 0) {
        int fd = pidfd == -1 ? mine : pidfd;
        error = process_has_ended(fd) ? ESRCH : umf_os_pidfd_id(fd, start_time);
        if (error == ENOSYS) { /* this kernel has no such identities */
            *start_time = 0;
            error = 0;
        }
    }
    if (mine != -1) {
        umf_os_close(mine);
    }
    return error;
}

int umf_process_inspect(uint32_t pid, uint64_t like, uint64_t *start_time) {
    return process_inspect(pid, -1, like, start_time);
}

/* Under a system call filter /proc is read instead: a process that only shares memory opens no
 * process descriptors otherwise, and the filter may not expect it. */
static uint64_t process_own_start_time(uint32_t pid) {
    uint64_t start_time = 0;
    if (!umf_os_has_filter() && process_inspect(pid, -1, UMF_OS_PIDFD_ID, &start_time) == 0 &&
        start_time != 0) {
        return start_time;
    }
    return umf_os_start_time((int)pid, &start_time) == 0 ? start_time : 0;
}

static UMF_COLD void process_ask(umf_process_t *self) {
    *self = (umf_process_t){
        .boot_id = umf_os_boot_id(),
        .pid = (uint32_t)umf_os_pid(),
        .pid_ns = process_pid_namespace(),
    };
    self->start_time = process_own_start_time(self->pid);
    process_memo_t *memo = atomic_load_explicit(&process_memo, memory_order_acquire);
    if (memo == NULL && (memo = process_make_memo()) == NULL) {
        return;
    }
    atomic_store_explicit(&memo->boot_id, self->boot_id, memory_order_relaxed);
    atomic_store_explicit(&memo->start_time, self->start_time, memory_order_relaxed);
    atomic_store_explicit(&memo->pid_ns, self->pid_ns, memory_order_relaxed);
    atomic_store_explicit(&memo->pid, self->pid, memory_order_release);
}

void umf_process_self(umf_process_t *self) {
    process_memo_t *memo = atomic_load_explicit(&process_memo, memory_order_acquire);
    uint32_t pid = memo ? atomic_load_explicit(&memo->pid, memory_order_acquire) : 0;
    if (umf_unlikely(pid == 0)) {
        process_ask(self);
        return;
    }
    *self = (umf_process_t){
        .boot_id = atomic_load_explicit(&memo->boot_id, memory_order_relaxed),
        .start_time = atomic_load_explicit(&memo->start_time, memory_order_relaxed),
        .pid = pid,
        .pid_ns = atomic_load_explicit(&memo->pid_ns, memory_order_relaxed),
    };
}

uint32_t umf_process_pid(void) {
    process_memo_t *memo = atomic_load_explicit(&process_memo, memory_order_acquire);
    uint32_t pid = memo ? atomic_load_explicit(&memo->pid, memory_order_acquire) : 0;
    if (umf_unlikely(pid == 0)) {
        umf_process_t self;
        process_ask(&self);
        return self.pid;
    }
    return pid;
}

bool umf_process_is_same(const umf_process_t *a, const umf_process_t *b) {
    return a->pid == b->pid && a->start_time == b->start_time && a->pid_ns == b->pid_ns &&
           a->boot_id == b->boot_id;
}

static __thread const umf_process_known_t *process_trusted; /* NULL: none */

void umf_process_trust(const umf_process_known_t *known) {
    process_trusted = known;
}

void umf_process_distrust(void) {
    process_trusted = NULL;
}

static bool process_is_trusted(const umf_process_t *process) {
    return process_trusted && process->pid != 0 &&
           umf_process_is_same(process, &process_trusted->process);
}

int umf_process_trusted_pidfd(const umf_process_t *process) {
    return process_is_trusted(process) && umf_kept_fd_is_open(&process_trusted->file)
               ? process_trusted->file.number
               : -1;
}

/* `pidfd`: of the process that has this pid now; -1 if none is open. */
static umf_result_t process_check(const umf_process_t *process, int pidfd) {
    umf_process_t self;
    umf_process_self(&self);
    if (process->boot_id != self.boot_id) {
        UMF_LOG_ERROR("the IPC handle was made on another machine or before its last start (boot "
                      "%016llx, here %016llx)",
                      (unsigned long long)process->boot_id, (unsigned long long)self.boot_id);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (process->pid_ns == 0 || process->pid_ns != self.pid_ns) {
        return UMF_RESULT_SUCCESS;
    }
    uint64_t start_time = self.start_time;
    int error = 0;
    if (process->pid != self.pid) {
        error = process_inspect(process->pid, pidfd, process->start_time, &start_time);
    }
    if (error == ESRCH || error == ENOENT) {
        UMF_LOG_ERROR("the process %u that made the IPC handle has ended; its memory is gone",
                      process->pid);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    /* If the process cannot be inspected (hidepid), the transport decides. */
    if (error == 0 && start_time != process->start_time) {
        UMF_LOG_ERROR("the IPC handle is not from process %u: that number was given to another "
                      "process (%llu, the producer was %llu)",
                      process->pid, (unsigned long long)(start_time & ~UMF_OS_PIDFD_ID),
                      (unsigned long long)(process->start_time & ~UMF_OS_PIDFD_ID));
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_process_check(const umf_process_t *process) {
    return process_is_trusted(process) ? UMF_RESULT_SUCCESS : process_check(process, -1);
}

bool umf_process_is_known(const umf_process_known_t *known, const umf_process_t *process) {
    return known->process.pid != 0 && umf_process_is_same(&known->process, process) &&
           umf_process_ended(&known, 1) == 0;
}

umf_result_t umf_process_meet(const umf_process_t *process, umf_process_known_t *known) {
    *known = (umf_process_known_t){0};
    umf_process_t self;
    umf_process_self(&self);
    int pidfd = -1;
    if (process->pid != self.pid && process->pid <= INT32_MAX && process->pid_ns == self.pid_ns &&
        umf_os_pidfd_open((int)process->pid, &pidfd) != 0) {
        pidfd = -1;
    }
    /* The check follows the open, so the descriptor belongs to the process that is checked. */
    umf_result_t result = process_check(process, pidfd);
    if (pidfd == -1) {
        return result;
    }
    bool is_by_pidfd = process->start_time & UMF_OS_PIDFD_ID;
    if (result == UMF_RESULT_SUCCESS && !is_by_pidfd && process_has_ended(pidfd)) {
        UMF_LOG_ERROR("the process %u that made the IPC handle has ended; its memory is gone",
                      process->pid);
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_os_close(pidfd);
        return result;
    }
    if (umf_kept_fd_take(&known->file, pidfd) == 0) {
        known->process = *process;
    }
    return UMF_RESULT_SUCCESS;
}

void umf_process_forget(umf_process_known_t *known) {
    umf_kept_fd_close(&known->file);
    known->process.pid = 0;
}
