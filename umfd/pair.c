/* The pair of sockets between keeper and daemon, and how both receive. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "keeper/keeper.h"

typedef union control_t {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
} control_t;

bool umfd_pair_open(int *pair) {
    struct timeval limit = {.tv_usec = UMFD_PATIENCE * 1000};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return false;
    }
    setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    setsockopt(pair[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    return true;
}

bool umfd_pair_send(int pair, const umfd_message_t *message, int fd) {
    control_t control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof(*message)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd != -1) {
        header.msg_control = &control;
        header.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &fd, sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(pair, &header, MSG_NOSIGNAL);
    } while (sent == -1 && errno == EINTR);
    return sent == (ssize_t)sizeof(*message);
}

ssize_t umfd_receive(int fd, struct msghdr *message) {
    const struct msghdr request = *message;
    ssize_t got = recvmsg(fd, message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got == -1 && errno == ECONNRESET) {
        *message = request;
        got = recvmsg(fd, message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    }
    return got;
}
