/*
 * How many descriptors this process has open. A connection whose other side has closed is not
 * counted: the thread of a broker, which closes it, may not have seen that yet.
 */
#ifndef UMF_TEST_FAKES_DESCRIPTORS_H
#define UMF_TEST_FAKES_DESCRIPTORS_H

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <ctime>

// By plain system calls: the thread sanitizer would report that the thread closes it meanwhile.
inline bool is_left_connection(int fd) {
    int type = 0;
    socklen_t size = sizeof(type);
    pollfd other_side = {fd, POLLRDHUP, 0};
    timespec no_time = {};
    return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           syscall(SYS_ppoll, &other_side, 1, &no_time, nullptr, 0) == 1 &&
           (other_side.revents & (POLLHUP | POLLRDHUP | POLLNVAL)) != 0;
}

// Needs no descriptor to count them.
inline size_t count_open_descriptors() {
    size_t count = 0;
    for (int fd = 0; fd < 4096; fd++) {
        count += fcntl(fd, F_GETFD) != -1 && !is_left_connection(fd);
    }
    return count;
}

#endif
