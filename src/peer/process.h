/*
 * Process: the identity of a process. Its number is not enough, because the system reuses it.
 */
#ifndef UMF_SRC_PEER_PROCESS_H
#define UMF_SRC_PEER_PROCESS_H

#include "base/kept_fd.h"

typedef struct umf_process_t {
    uint64_t boot_id;
    /* Identifies one process together with pid and boot: umf_os_pidfd_id, or ticks on
     * old systems. */
    uint64_t start_time;
    uint32_t pid;
    uint32_t pid_ns; /* the namespace of pid; 0: unknown */
} umf_process_t;

/* The calling process, also right after a fork. Cheap: the system is queried once for
 * each process. */
void umf_process_self(umf_process_t *self);

/* The calling process's id without a system call. */
uint32_t umf_process_pid(void);

/*
 * INVALID_ARGUMENT with a message if the process is known to have ended, or to belong to another
 * boot or machine. A process of another pid namespace cannot be inspected, and passes.
 */
umf_result_t umf_process_check(const umf_process_t *process);

/* A process that was found running, so that the next question is one system call. Zeroed: none. */
typedef struct umf_process_known_t {
    umf_process_t process; /* pid 0: none */
    umf_kept_fd_t file;    /* becomes readable when the process ends */
} umf_process_known_t;

/* The start time of a running process, of the same kind as `like`. ESRCH: the process has ended,
 * even if its parent has not waited for it yet; other errors: it cannot be inspected. */
int umf_process_inspect(uint32_t pid, uint64_t like, uint64_t *start_time);

bool umf_process_is_same(const umf_process_t *a, const umf_process_t *b);

#define UMF_PROCESS_ASK_MAX 8u

/* Which of up to UMF_PROCESS_ASK_MAX processes have ended: one bit for each. The bit of a process
 * whose descriptor the program has closed is set, too. */
uint32_t umf_process_ended(const umf_process_known_t *const *known, uint32_t count);

/* Whether `known` is that process and it still runs. */
bool umf_process_is_known(const umf_process_known_t *known, const umf_process_t *process);

/*
 * As umf_process_check, but also refuses a process that has ended and was not waited for yet. On
 * success `known` gets the process, or none if the system has no process descriptors.
 */
umf_result_t umf_process_meet(const umf_process_t *process, umf_process_known_t *known);
void umf_process_forget(umf_process_known_t *known);

/*
 * Between trust and distrust, checks of the process by this thread succeed at once, because the
 * caller has just made them. `known` must stay until distrust; it need not have a descriptor.
 */
void umf_process_trust(const umf_process_known_t *known);
void umf_process_distrust(void);

/* The descriptor of a process that this thread trusts. The caller must not close it. -1: none, or
 * the program has closed it. */
int umf_process_trusted_pidfd(const umf_process_t *process);

#endif
