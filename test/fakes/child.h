/* Work in a child of the test program. A child that hangs ends after five minutes. */
#ifndef UMF_TEST_FAKES_CHILD_H
#define UMF_TEST_FAKES_CHILD_H

#include <csignal>
#include <functional>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

// Its exit status is what `body` returns; 1000 and the number of the signal that ended it.
inline int exit_of_child(const std::function<int()> &body, pid_t (*start)() = fork) {
    pid_t pid = start();
    EXPECT_GE(pid, 0);
    if (pid == 0) {
        alarm(300);
        _exit(body());
    }
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// True if `body` is.
inline bool in_child(const std::function<bool()> &body, pid_t (*start)() = fork) {
    return exit_of_child([&] { return body() ? 0 : 1; }, start) == 0;
}

// Expectations of `work` are those of the test.
inline void expect_in_child(const std::function<void()> &work) {
    EXPECT_EQ(exit_of_child([&] {
                  work();
                  return testing::Test::HasFailure() ? 1 : 0;
              }),
              0);
}

#endif
