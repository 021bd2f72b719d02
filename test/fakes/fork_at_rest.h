/*
 * A fork that the child survives under AddressSanitizer, whose allocator does not handle forks
 * (libasan 8 of GCC 12): a lock that another thread has while we fork stays locked in the child for
 * ever. A thread that has just been started takes such locks; so a fork waits until all others
 * sleep.
 */
#ifndef UMF_TEST_FAKES_FORK_AT_REST_H
#define UMF_TEST_FAKES_FORK_AT_REST_H

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

inline bool other_threads_sleep() {
    bool sleep = true;
    DIR *folder = opendir("/proc/self/task");
    while (dirent *entry = folder ? readdir(folder) : nullptr) {
        long tid = atol(entry->d_name);
        char path[64], state = 'S';
        snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", tid);
        FILE *file = tid != 0 && tid != gettid() ? fopen(path, "re") : nullptr;
        if (file) {
            sleep &= fscanf(file, "%*d (%*[^)]) %c", &state) != 1 || state == 'S';
            fclose(file);
        }
    }
    if (folder) {
        closedir(folder);
    }
    return sleep;
}

// A thread that could run does not sleep: one that waits for another has arrived there.
inline void wait_for_rest() {
    for (int in_a_row = 0, tries = 0; in_a_row < 3 && tries < 30000; tries++) {
        in_a_row = other_threads_sleep() ? in_a_row + 1 : 0;
        usleep(1000);
    }
}

inline pid_t fork_at_rest() {
    wait_for_rest();
    return fork();
}

#endif
