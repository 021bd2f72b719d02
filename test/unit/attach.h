// What tests of the attach socket share: a pool, and children.
#ifndef UMF_TEST_UNIT_ATTACH_H
#define UMF_TEST_UNIT_ATTACH_H

#include <fstream>
#include <functional>
#include <string>

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/memory_pool_ext.h>
#include <umf/text.h>

#include <gtest/gtest.h>

#include "fakes/attach.h"
#include "fakes/snapshot.h"

struct Pool {
    umf_memory_pool_handle_t handle = nullptr;
    explicit Pool(const char *text = "disjoint over os") {
        EXPECT_EQ(umfPoolCreateFromText(text, &handle), UMF_RESULT_SUCCESS);
    }
    ~Pool() {
        umfPoolDestroy(handle);
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;
};

// The setting "umf.record.attach".
inline umf_result_t attach_set(bool may) {
    return umfCtlSet("umf.record.attach", &may, sizeof(may));
}
inline bool attach_get() {
    bool may = false;
    EXPECT_EQ(umfCtlGet("umf.record.attach", &may, sizeof(may)), UMF_RESULT_SUCCESS);
    return may;
}

// Those that the library has started.
inline size_t threads_of_the_library() {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/task");
    while (dirent *entry = readdir(folder)) {
        std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
        std::string name;
        count += std::getline(file, name) && name.rfind("umf-", 0) == 0;
    }
    closedir(folder);
    return count;
}

// The kernel wakes who joins a thread before the thread leaves the list of tasks.
inline bool all_threads_end() {
    for (int i = 0; i < 60000 && threads_of_the_library(); i++) {
        usleep(1000);
    }
    return threads_of_the_library() == 0;
}

// Runs it in a child; its result is the exit status.
inline pid_t in_child(const std::function<int()> &run) {
    pid_t pid = fork();
    if (pid == 0) {
        _exit(run());
    }
    return pid;
}

inline int status_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#endif
