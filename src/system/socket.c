/* Unix sockets that carry descriptors (Linux). Each function calls the fault hook, as in
 * system/os.c. */
#include "system/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "system/os.h"

static int socket_fault(const char *call) {
    umf_os_fault_t fault = atomic_load_explicit(&umf_os_fault, memory_order_relaxed);
    return umf_unlikely(fault != NULL) ? fault(call) : 0;
}

/* The errno value of a call that returns -1 on failure. */
static int socket_result(long answer) {
    return answer == -1 ? errno : 0;
}

/* --- addresses --- */

static int socket_address(const char *text, size_t skip, umf_socket_address_t *address) {
    size_t length = strlen(text);
    if (length == 0 || skip + length >= sizeof(address->name.sun_path)) {
        return ENAMETOOLONG;
    }
    *address = (umf_socket_address_t){.name.sun_family = AF_UNIX};
    memcpy(address->name.sun_path + skip, text, length);
    /* An abstract name ends by its length, that of a file by a NUL. */
    size_t bytes = skip + length + (skip ? 0 : 1);
    address->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    return 0;
}

int umf_socket_abstract(const char *name, umf_socket_address_t *address) {
    return socket_address(name, 1, address);
}

int umf_socket_path(const char *path, umf_socket_address_t *address) {
    return socket_address(path, 0, address);
}

/* --- connections --- */

int umf_socket_open(int *fd) {
    int error = socket_fault("socket");
    if (error != 0) {
        return error;
    }
    int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    error = socket_result(made);
    if (error == 0) {
        *fd = made;
    }
    return error;
}

int umf_socket_bind(int fd, const umf_socket_address_t *address) {
    int error = socket_fault("bind");
    return error != 0
               ? error
               : socket_result(bind(fd, (const struct sockaddr *)&address->name, address->length));
}

int umf_socket_listen(int fd, int backlog) {
    int error = socket_fault("listen");
    return error != 0 ? error : socket_result(listen(fd, backlog));
}

int umf_socket_accept(int fd, int *connection) {
    int error = socket_fault("accept");
    if (error != 0) {
        return error;
    }
    int made;
    do {
        made = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    } while (made == -1 && errno == EINTR);
    error = socket_result(made);
    if (error == 0) {
        *connection = made;
    }
    return error;
}

int umf_socket_connect(int fd, const umf_socket_address_t *address) {
    int error = socket_fault("connect");
    while (error == 0 &&
           connect(fd, (const struct sockaddr *)&address->name, address->length) == -1) {
        error = errno == EINTR ? 0 : errno;
    }
    return error;
}

int umf_socket_shutdown(int fd) {
    int error = socket_fault("shutdown");
    return error != 0 ? error : socket_result(shutdown(fd, SHUT_RDWR));
}

int umf_socket_peer_ids(int fd, uint32_t *uid, uint32_t *gid, uint32_t *pid) {
    struct ucred peer;
    socklen_t length = sizeof(peer);
    int error = socket_fault("peer");
    if (error == 0) {
        error = socket_result(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length));
    }
    if (error != 0) {
        return error;
    }
    *uid = (uint32_t)peer.uid;
    *gid = (uint32_t)peer.gid;
    *pid = (uint32_t)peer.pid;
    return 0;
}

int umf_socket_peer(int fd, uint32_t *uid, uint32_t *pid) {
    uint32_t gid;
    return umf_socket_peer_ids(fd, uid, &gid, pid);
}

/* --- messages --- */

typedef union socket_control_t {
    char bytes[CMSG_SPACE(UMF_SOCKET_PASS_MAX * sizeof(int))];
    struct cmsghdr align;
} socket_control_t;

int umf_socket_send_parts(int fd, const struct iovec *parts, unsigned count, const int *pass,
                          unsigned passes) {
    int error = socket_fault("send");
    if (error != 0) {
        return error;
    }
    socket_control_t control;
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = count};
    if (passes > 0) {
        memset(&control, 0, CMSG_SPACE(passes * sizeof(int)));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(passes * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(passes * sizeof(int));
        memcpy(CMSG_DATA(header), pass, passes * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent == -1 && errno == EINTR);
    return socket_result(sent);
}

int umf_socket_send(int fd, const void *data, size_t size, int pass) {
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    return umf_socket_send_parts(fd, &part, 1, &pass, pass != -1);
}

/* Takes the first descriptors of a message and closes the others. */
static unsigned socket_take(struct msghdr *message, int *passed, unsigned room) {
    unsigned taken = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            if (taken < room) {
                passed[taken++] = fd;
            } else {
                close(fd);
            }
        }
    }
    return taken;
}

int umf_socket_receive_parts(int fd, const struct iovec *parts, unsigned count, size_t *got,
                             int *passed, unsigned *passes) {
    int error = socket_fault("receive");
    if (error != 0) {
        return error;
    }
    socket_control_t control;
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = count};
    if (passes) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
    }
    ssize_t size;
    do {
        size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (size == -1 && errno == EINTR);
    if (size == -1) {
        return errno;
    }
    bool is_cut = message.msg_flags & MSG_TRUNC;
    unsigned taken = passes ? socket_take(&message, passed, is_cut ? 0 : *passes) : 0;
    if (is_cut) {
        return EMSGSIZE;
    }
    /* The kernel could not install a descriptor: the process has no room for it. */
    if (passes && (message.msg_flags & MSG_CTRUNC)) {
        while (taken > 0) {
            close(passed[--taken]);
        }
        return EMFILE;
    }
    if (passes) {
        *passes = taken;
    }
    *got = (size_t)size;
    return 0;
}

int umf_socket_receive(int fd, void *data, size_t size, size_t *got, int *passed) {
    struct iovec part = {.iov_base = data, .iov_len = size};
    unsigned passes = 1;
    int taken = -1;
    int error = umf_socket_receive_parts(fd, &part, 1, got, &taken, passed ? &passes : NULL);
    if (error == 0 && passed) {
        *passed = passes ? taken : -1;
    }
    return error;
}

/* --- waiting --- */

uint64_t umf_socket_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int umf_socket_wait(int fd, uint64_t deadline) {
    int error = socket_fault("wait");
    while (error == 0) {
        uint64_t now = umf_socket_now();
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        uint64_t left = now < deadline ? deadline - now : 0;
        int count = poll(&wait, 1, left < INT32_MAX ? (int)left : INT32_MAX);
        if (count == 1) {
            return wait.revents & POLLNVAL ? EBADF : 0;
        }
        error = count == 0 ? (left == 0 ? ETIMEDOUT : 0) : (errno == EINTR ? 0 : errno);
    }
    return error;
}
