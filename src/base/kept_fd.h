/*
 * A descriptor that the library keeps from one call to the next.
 *
 * Its number is never trusted. Programs close all inherited descriptors, as daemons do at
 * their start, and then open files of their own, which get the same numbers. So the file is
 * compared before each use, and before the descriptor is closed. A number that has another file is
 * the program's: nothing is done with it, and the use fails with a message.
 *
 * One case cannot be detected: the program has opened the very same file under the same number.
 *
 * The caller locks, where threads share one.
 */
#ifndef UMF_SRC_BASE_KEPT_FD_H
#define UMF_SRC_BASE_KEPT_FD_H

#include "system/os.h"

/* Zeroed: none. */
typedef struct umf_kept_fd_t {
    umf_os_identity_t identity;
    int number;   /* use it only after a check */
    bool is_kept; /* it was taken, and not closed since */
} umf_kept_fd_t;

/* Takes a descriptor over. After a failure, which is an errno value, it is closed. */
int umf_kept_fd_take(umf_kept_fd_t *kept, int fd);

/* Whether it still is the file that was taken. One or two system calls. */
bool umf_kept_fd_is_open(const umf_kept_fd_t *kept);

/* 0, or EBADF with a message that says so; `what` names the file for it. */
int umf_kept_fd_check(const umf_kept_fd_t *kept, const char *what);

/* Closes it, if it is still open. Then there is none. No effect if there was none. */
void umf_kept_fd_close(umf_kept_fd_t *kept);

#endif
