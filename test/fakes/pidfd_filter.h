/*
 * Filters of system calls: as Docker's profile has it, no process gets at another one's descriptors
 * with pidfd_getfd; as some browsers and services have it, no memory files.
 */
#ifndef UMF_TEST_FAKES_PIDFD_FILTER_H
#define UMF_TEST_FAKES_PIDFD_FILTER_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

// False where this machine does not let a process filter its calls.
inline bool deny_call(unsigned number, unsigned action = SECCOMP_RET_ERRNO | EPERM) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

inline bool deny_pidfd_getfd() {
    return deny_call(SYS_pidfd_getfd);
}

inline bool is_pidfd_getfd_denied() {
    return syscall(SYS_pidfd_getfd, -1, -1, 0) == -1 && errno == EPERM;
}

#endif
