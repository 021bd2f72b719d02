/* The processes of clients with claims: their end is what a new holder waits for. */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve/serve.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

bool umfd_process_open(umfd_t *daemon, uint32_t place) {
    const umfd_lease_t *lease = &daemon->state->leases[place];
    if (daemon->processes[place] != -1) {
        return true;
    }
    if (daemon->open >= daemon->open_limit) {
        return false;
    }
    int fd = -1;
    socklen_t size = sizeof(fd);
    if (getsockopt(daemon->leases[place], SOL_SOCKET, SO_PEERPIDFD, &fd, &size) != 0) {
        fd = -1;
        /* An older kernel. The connection is there, so its process is, and has this number still.
         * A newer one says itself that the process has ended, and another may have its number. */
        if ((errno == ENOPROTOOPT || errno == EOPNOTSUPP) && lease->pid) {
            fd = (int)syscall(SYS_pidfd_open, (pid_t)lease->pid, 0);
        }
    }
    if (fd == -1) {
        /* A process of another namespace, or one that has ended and left its connection to another:
         * the end of the connection counts. */
        return errno != EMFILE && errno != ENFILE && errno != ENOMEM;
    }
    if (!umfd_keep_fd(daemon, UMFD_SLOT_PROCESS + place, lease->serial, fd)) {
        close(fd);
        return false;
    }
    daemon->processes[place] = fd;
    daemon->open++;
    return true;
}

void umfd_process_close(umfd_t *daemon, uint32_t place) {
    if (daemon->processes[place] == -1) {
        return;
    }
    umfd_forget_fd(daemon, UMFD_SLOT_PROCESS + place, daemon->state->leases[place].serial);
    epoll_ctl(daemon->events, EPOLL_CTL_DEL, daemon->processes[place], NULL);
    close(daemon->processes[place]);
    daemon->processes[place] = -1;
    daemon->open--;
}

bool umfd_process_watch(umfd_t *daemon, uint32_t place) {
    struct pollfd ended = {.fd = daemon->processes[place], .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = UMFD_EVENT_PROCESS + place};
    if (daemon->processes[place] == -1 || poll(&ended, 1, 0) == 1) {
        return false;
    }
    return epoll_ctl(daemon->events, EPOLL_CTL_ADD, daemon->processes[place], &event) == 0;
}

bool umfd_process_signal(umfd_t *daemon, uint32_t place, int number) {
    struct pollfd ended = {.fd = daemon->processes[place], .events = POLLIN};
    return daemon->processes[place] != -1 &&
           (syscall(SYS_pidfd_send_signal, daemon->processes[place], number, NULL, 0) == 0 ||
            poll(&ended, 1, 0) == 1);
}
