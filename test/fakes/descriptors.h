/*
 * How many descriptors this process has open. A connection whose other side has closed is not
 * counted: the thread of a broker, which closes it, may not have seen that yet.
 */
#ifndef UMF_TEST_FAKES_DESCRIPTORS_H
#define UMF_TEST_FAKES_DESCRIPTORS_H

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <ctime>

// By plain system calls: the thread sanitizer would report that the thread closes it meanwhile.
inline bool is_socket(int fd) {
    int type = 0;
    socklen_t size = sizeof(type);
    return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

// Needs no descriptor to count them. Polls many at once, because tests count after each step.
inline size_t count_open_descriptors() {
    size_t count = 0;
    for (int first = 0; first < 4096; first += 256) {
        pollfd some[256];
        for (int i = 0; i < 256; i++) {
            some[i] = {first + i, POLLRDHUP, 0};
        }
        timespec no_time = {};
        if (syscall(SYS_ppoll, some, 256, &no_time, nullptr, 0) < 0) {
            abort(); // the limit of descriptors is below 256
        }
        for (const pollfd &one : some) {
            bool has_left = (one.revents & (POLLHUP | POLLRDHUP)) != 0 && is_socket(one.fd);
            count += !(one.revents & POLLNVAL) && !has_left;
        }
    }
    return count;
}

#endif
