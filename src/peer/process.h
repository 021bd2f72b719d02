/*
 * Process: who a process is, beyond its number, which is used again after its end.
 */
#ifndef UMF_SRC_PEER_PROCESS_H
#define UMF_SRC_PEER_PROCESS_H

#include "system/common.h"

typedef struct umf_process_t {
    uint64_t boot_id;
    uint64_t start_time; /* with pid and boot: one process. umf_os_pidfd_id, in old systems ticks */
    uint32_t pid;
    uint32_t pid_ns; /* the namespace in which pid holds; 0 if unknown */
} umf_process_t;

/* The calling process, also right after a fork. Cheap: asked from the system once per process. */
void umf_process_self(umf_process_t *self);

/* The calling process's id without a system call. */
uint32_t umf_process_pid(void);

/*
 * INVALID_ARGUMENT, with a message, if that process is known to be gone or to be of another boot or
 * machine. A process of another pid namespace cannot be looked at and passes.
 */
umf_result_t umf_process_check(const umf_process_t *process);

/* A process that was found alive, so that asking again is one system call. Zeroed: none. */
typedef struct umf_process_known_t {
    umf_process_t process; /* pid 0: none */
    int pidfd;
} umf_process_known_t;

/* The start time of a living process, of the kind that `like` is. ESRCH: it is gone, also when it
 * was not yet waited for; other errors: it cannot be looked at. */
int umf_process_inspect(uint32_t pid, uint64_t like, uint64_t *start_time);

bool umf_process_is_same(const umf_process_t *a, const umf_process_t *b);

/* Whether `known` is that process and it still runs. */
bool umf_process_is_known(const umf_process_known_t *known, const umf_process_t *process);

/*
 * As umf_process_check, and also refuses a process that has ended but was not yet waited for. On
 * success `known` gets the process, or none where the system offers no such descriptors.
 */
umf_result_t umf_process_meet(const umf_process_t *process, umf_process_known_t *known);
void umf_process_forget(umf_process_known_t *known);

/*
 * From trust to distrust, checks of the process by this thread succeed at once: what is called in
 * between need not ask again what was just found out. `known` must stay until then; its descriptor
 * is -1 if there is none.
 */
void umf_process_trust(const umf_process_known_t *known);
void umf_process_distrust(void);

/* The descriptor of a process that this thread trusts, the caller's to use but not to close; -1 if
 * there is none. */
int umf_process_trusted_pidfd(const umf_process_t *process);

#endif
