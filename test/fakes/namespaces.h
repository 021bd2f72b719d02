/*
 * Processes that go where another one cannot reach into them: other users, other namespaces. A
 * machine that does not let them is no failure: the function returns false, and errno says why.
 */
#ifndef UMF_TEST_FAKES_NAMESPACES_H
#define UMF_TEST_FAKES_NAMESPACES_H

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <string>

constexpr uid_t unprivileged = 65534;

inline bool write_to(const char *path, const std::string &text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(fd);
    return ok;
}

// With a map the process is root in it.
inline bool enter_user_namespace(bool is_mapped) {
    std::string user = "0 " + std::to_string(geteuid()) + " 1\n";
    std::string group = "0 " + std::to_string(getegid()) + " 1\n";
    return unshare(CLONE_NEWUSER) == 0 &&
           (!is_mapped ||
            (write_to("/proc/self/uid_map", user) && write_to("/proc/self/setgroups", "deny") &&
             write_to("/proc/self/gid_map", group)));
}

// Who is not the administrator may have them in a user namespace of his own.
inline bool enter_namespaces(int flags) {
    return unshare(flags) == 0 ||
           (errno == EPERM && enter_user_namespace(true) && unshare(flags) == 0);
}

// The first process in a new namespace of process ids is a child, in which this one goes on. The
// parent calls `before_waiting`, and ends as the child does.
inline bool enter_pid_namespace(int more_flags, const std::function<void()> &before_waiting) {
    if (!enter_namespaces(CLONE_NEWPID | more_flags)) {
        return false;
    }
    pid_t pid = fork();
    if (pid != 0) {
        before_waiting();
        int status = -1;
        waitpid(pid, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return true;
}

// Mounts of this process do not show outside of its namespace.
inline bool hide_mounts() {
    return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

inline bool become_nobody() {
    return setgid(unprivileged) == 0 && setuid(unprivileged) == 0;
}

#endif
