/*
 * How many descriptors this process has open. A connection whose other side has closed is not
 * counted: the thread of a broker, which closes it, may not have seen that yet.
 */
#ifndef UMF_TEST_FAKES_DESCRIPTORS_H
#define UMF_TEST_FAKES_DESCRIPTORS_H

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <cstddef>

inline bool is_left_connection(int fd) {
    struct stat status = {};
    pollfd other_side = {fd, POLLRDHUP, 0};
    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) && poll(&other_side, 1, 0) == 1 &&
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
