/*
 * Other processes for tests: the program starts itself again in a role, which is a function of the
 * test with a socket. What travels over it is up to the two.
 *
 *     int sleeper(Socket &socket, const std::string &argument) { ... return 0; }
 *     const Roles roles = {{"sleeper", sleeper}};
 *
 *     Process process("sleeper", "argument");
 *     process.socket.send("hello");
 *
 *     int main(int argc, char **argv) { return run_role_or_tests(argc, argv, roles); }
 */
#ifndef UMF_TEST_FAKES_ROLE_H
#define UMF_TEST_FAKES_ROLE_H

#include <fcntl.h>
#include <linux/sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "fakes/fork_at_rest.h"
#include "fakes/self.h"

// Whole messages of at most 64 KiB; "" says that the other side is gone.
class Socket {
    int fd = -1;

  public:
    Socket() = default;
    explicit Socket(int descriptor) : fd(descriptor) {}
    ~Socket() {
        close();
    }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;

    void set(int descriptor) {
        close();
        fd = descriptor;
    }
    int get() const {
        return fd;
    }
    void close() {
        if (fd != -1) {
            ::close(fd);
            fd = -1;
        }
    }
    bool send(const std::string &message) const {
        return ::send(fd, message.data(), message.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(message.size());
    }
    std::string receive(int flags = 0) const {
        std::string message(65536, '\0');
        ssize_t size;
        do {
            size = ::recv(fd, message.data(), message.size(), flags);
        } while (size < 0 && (errno == EINTR || errno == ECONNRESET)); // it left something unread
        message.resize(size > 0 ? static_cast<size_t>(size) : 0);
        return message;
    }
    std::string call(const std::string &message) const {
        return send(message) ? receive() : "";
    }
};

using Roles = std::map<std::string, int (*)(Socket &socket, const std::string &argument)>;

constexpr int role_socket = 100;

// One such process; killed at the end unless it was waited for.
class Process {
    // The other side's end.
    int connect() {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
            abort();
        }
        socket.set(ends[0]);
        return ends[1];
    }

  public:
    Socket socket;
    pid_t pid = -1;

    Process(const std::string &role, const std::string &argument) {
        int theirs = connect();
        // Not with fork: under ThreadSanitizer its handlers take more locks than that can follow.
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, theirs, role_socket);
        SelfCommand self({"role", "--role", role, argument});
        if (posix_spawnp(&pid, self.file(), &actions, nullptr, self.arguments(), environ) != 0) {
            pid = -1;
        }
        posix_spawn_file_actions_destroy(&actions);
        ::close(theirs);
    }
    // With a number that another one had before; `pid` stays -1 if this system does not let us
    // choose.
    Process(pid_t wanted, const std::string &role, const std::string &argument) {
        int theirs = connect();
        SelfCommand self({"role", "--role", role, argument});
        clone_args args = {};
        args.exit_signal = SIGCHLD;
        args.set_tid = reinterpret_cast<uintptr_t>(&wanted);
        args.set_tid_size = 1;
        pid = static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof(args)));
        if (pid == 0) {
            dup2(theirs, role_socket);
            execvp(self.file(), self.arguments());
            _exit(1);
        }
        ::close(theirs);
    }
    ~Process() {
        kill();
    }
    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;

    // How it ended, as of waitpid; -1 if it is gone already.
    int wait() {
        int status = -1;
        if (pid != -1) {
            waitpid(pid, &status, 0);
            pid = -1;
        }
        return status;
    }
    void kill() {
        if (pid != -1) {
            ::kill(pid, SIGKILL);
            wait();
        }
    }
};

// What an application does that lets others at its memory.
inline void let_others_at_its_memory() {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

// The role goes on in a child; the parent ends, or waits for the child.
inline void go_on_in_a_child(bool parent_ends) {
    pid_t child = fork_at_rest();
    if (child != 0) {
        if (!parent_ends) {
            waitpid(child, nullptr, 0);
        }
        _exit(0);
    }
    if (!parent_ends) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    let_others_at_its_memory();
}

// For processes that fork; this one has read its own environment already.
inline void prepare_for_roles() {
    const char *tsan = getenv("TSAN_OPTIONS");
    setenv("TSAN_OPTIONS",
           ((tsan ? tsan + std::string(":") : "") + "detect_deadlocks=0:die_after_fork=0").c_str(),
           1);
}

// The whole of a role that was started by Process, and true, if this is one. Prepares for roles
// otherwise.
inline bool run_role(int argc, char **argv, const Roles &roles, int *status) {
    if (argc != 4 || strcmp(argv[1], "--role") != 0) {
        prepare_for_roles();
        return false;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    let_others_at_its_memory();
    fcntl(role_socket, F_SETFD, FD_CLOEXEC);
    Socket socket(role_socket);
    auto role = roles.find(argv[2]);
    *status = role == roles.end() ? 99 : role->second(socket, argv[3]);
    return true;
}

// The whole of a program of tests with roles; a test whose kind `is_absent` here is skipped.
inline int run_role_or_tests(int argc, char **argv, const Roles &roles, bool is_absent = false) {
    int status;
    if (run_role(argc, argv, roles, &status)) {
        return status;
    }
    if (is_absent) {
        return 77;
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}

#endif
