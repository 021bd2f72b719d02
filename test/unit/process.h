/* Facts of the kernel about a test's own process. */
#ifndef UMF_TEST_PROCESS_H
#define UMF_TEST_PROCESS_H

#include <cstddef>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

/* The kernel's own check: whether the process may read there. */
inline bool can_read(const void *ptr) {
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    bool can = write(fds[1], ptr, 1) == 1;
    close(fds[0]);
    close(fds[1]);
    return can;
}

/* The same for writing; it writes 'x'. */
inline bool can_write(void *ptr) {
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    EXPECT_EQ(write(fds[1], "x", 1), 1);
    bool can = read(fds[0], ptr, 1) == 1;
    close(fds[0]);
    close(fds[1]);
    return can;
}

inline int count_descriptors() {
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count;
}

/* Lines of /proc/self/maps that contain `of`. */
inline size_t count_mappings(const std::string &of) {
    std::ifstream maps("/proc/self/maps");
    std::string line;
    size_t count = 0;
    while (std::getline(maps, line)) {
        count += line.find(of) != std::string::npos;
    }
    return count;
}

/* Bytes of addresses in use. */
inline size_t address_space() {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

inline bool all_are(const char *ptr, size_t size, char value) {
    return ptr[0] == value && memcmp(ptr, ptr + 1, size - 1) == 0;
}

#endif
