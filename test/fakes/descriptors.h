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
#include <cstdlib>
#include <ctime>

// By plain system calls: the thread sanitizer would report that the thread closes it meanwhile.
inline bool is_socket(int fd) {
    int type = 0;
    socklen_t size = sizeof(type);
    return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

// Needs no descriptor to count them. Polls some at once, because tests count after each step. There
// are fewer in a poll than the lowest limit of descriptors under which a test counts: above the
// limit a poll fails.
inline size_t count_open_descriptors() {
    constexpr int AT_ONCE = 64;
    size_t count = 0;
    bool are_all_open = true; // of the numbers before
    for (int first = 0; first < 4096; first += AT_ONCE) {
        pollfd some[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            some[i] = {first + i, POLLRDHUP, 0};
        }
        timespec no_time = {};
        if (syscall(SYS_ppoll, some, AT_ONCE, &no_time, nullptr, 0) < 0) {
            abort();
        }
        int open = 0, left = 0;
        for (const pollfd &one : some) {
            open += !(one.revents & POLLNVAL);
            left += (one.revents & (POLLHUP | POLLRDHUP)) != 0 && is_socket(one.fd);
        }
        // A poll does not know descriptors of O_PATH. As the lowest free number is taken, they are
        // next to others.
        for (int i = 0, others = open; i < AT_ONCE && (others || are_all_open); i++) {
            open += (some[i].revents & POLLNVAL) && fcntl(some[i].fd, F_GETFD) != -1;
        }
        are_all_open = open == AT_ONCE;
        count += static_cast<size_t>(open - left);
    }
    return count;
}

#endif
