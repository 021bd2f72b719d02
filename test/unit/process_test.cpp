// Who a process is.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

extern "C" {
#include "peer/process.h"
#include "system/os.h"
}

namespace {

umf_process_t self() {
    umf_process_t process = {};
    umf_process_self(&process);
    return process;
}

// A child that sleeps until it is killed.
umf_process_t sleeping() {
    pid_t child = -1;
    char name[] = "sleep", time[] = "100", *arguments[] = {name, time, nullptr};
    EXPECT_EQ(posix_spawnp(&child, name, nullptr, nullptr, arguments, environ), 0);
    umf_process_t process = self();
    process.pid = static_cast<uint32_t>(child);
    EXPECT_EQ(umf_process_inspect(process.pid, process.start_time, &process.start_time), 0);
    return process;
}

TEST(Process, KnowsItself) {
    umf_process_t process = self(), again = self();
    EXPECT_EQ(process.pid, static_cast<uint32_t>(getpid()));
    EXPECT_EQ(umf_process_pid(), process.pid);
    EXPECT_NE(process.start_time, 0u);
    EXPECT_NE(process.boot_id, 0u);
    EXPECT_NE(process.pid_ns, 0u);
    EXPECT_EQ(again.start_time, process.start_time);
    EXPECT_EQ(again.boot_id, process.boot_id);
    EXPECT_EQ(umf_process_check(&process), UMF_RESULT_SUCCESS);
}

TEST(Process, RefusesTheDead) {
    umf_process_t process = sleeping();
    auto child = static_cast<pid_t>(process.pid);
    EXPECT_EQ(umf_process_check(&process), UMF_RESULT_SUCCESS);
    umf_process_known_t known = {}, none = {};
    ASSERT_EQ(umf_process_meet(&process, &known), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(umf_process_is_known(&known, &process));
    umf_process_t other = process;
    other.start_time++;
    EXPECT_FALSE(umf_process_is_known(&known, &other));
    EXPECT_FALSE(umf_process_is_known(&none, &process));

    kill(child, SIGKILL);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
    EXPECT_FALSE(umf_process_is_known(&known, &process)) << "dead, though not waited for";
    EXPECT_EQ(umf_process_meet(&process, &none), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(none.process.pid, 0u);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_FALSE(umf_process_is_known(&known, &process));
    umf_process_forget(&known);
    EXPECT_EQ(umf_process_check(&process), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_process_meet(&process, &none), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

// A program may close every number. The end of such a process is not noticed: it is met anew.
TEST(Process, WhoseDescriptorWasClosedIsForgotten) {
    umf_process_t process = sleeping();
    auto child = static_cast<pid_t>(process.pid);
    umf_process_known_t known = {};
    ASSERT_EQ(umf_process_meet(&process, &known), UMF_RESULT_SUCCESS);
    const umf_process_known_t *one = &known;
    EXPECT_EQ(umf_process_ended(&one, 1), 0u);
    close(known.file.number);
    EXPECT_EQ(umf_process_ended(&one, 1), 1u);
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// A process that cannot open descriptors of processes uses start times, others use a number.
TEST(Process, KnowsOthersByEitherKindOfNumber) {
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    umf_process_t process = self();
    process.pid = static_cast<uint32_t>(child);
    for (uint64_t like : {uint64_t{0}, UMF_OS_PIDFD_ID}) {
        int error = umf_process_inspect(process.pid, like, &process.start_time);
        if (like != 0 && error == ENOSYS) {
            printf("no descriptors of processes here\n");
            continue;
        }
        ASSERT_EQ(error, 0);
        if (process.start_time == 0) {
            printf("this kernel numbers no processes\n");
            process.start_time = UMF_OS_PIDFD_ID | 1;
            EXPECT_EQ(umf_process_check(&process), UMF_RESULT_ERROR_INVALID_ARGUMENT);
            continue;
        }
        EXPECT_EQ(process.start_time & UMF_OS_PIDFD_ID, like);
        umf_process_known_t known = {};
        EXPECT_EQ(umf_process_check(&process), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umf_process_meet(&process, &known), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umf_process_is_known(&known, &process), known.process.pid != 0);
        umf_process_forget(&known);
        process.start_time++;
        EXPECT_EQ(umf_process_check(&process), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(umf_process_meet(&process, &known), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(known.process.pid, 0u);
    }
    kill(child, SIGKILL);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
    for (uint64_t like : {uint64_t{0}, UMF_OS_PIDFD_ID}) {
        uint64_t start_time = 77;
        int error = umf_process_inspect(process.pid, like, &start_time);
        EXPECT_TRUE(error == ESRCH || (like != 0 && error == ENOSYS)) << "not waited for";
        EXPECT_EQ(start_time, 77u);
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

// In a new namespace of process ids, so that no other /proc changes: another user looks at the
// first process there, for which /proc has no entry, and at one that ended. 77: it cannot be tried.
int look_where_proc_hides() {
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("proc", "/proc", "proc", 0, "hidepid=2") != 0) {
        return 77;
    }
    pid_t zombie = fork();
    if (zombie == 0) {
        _exit(0);
    }
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT);
    pid_t child = fork();
    if (child == 0) {
        uint64_t start_time = 0;
        if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0 ||
            access("/proc/1/stat", F_OK) == 0) {
            _exit(77);
        }
        umf_process_t first = self(), ended = self();
        first.pid = 1;
        first.start_time = 1; // ticks
        ended.pid = static_cast<uint32_t>(zombie);
        ended.start_time = 1;
        umf_process_known_t known = {};
        bool is_hidden = umf_process_inspect(1, 0, &start_time) == EACCES &&
                         umf_process_check(&first) == UMF_RESULT_SUCCESS &&
                         umf_process_meet(&first, &known) == UMF_RESULT_SUCCESS &&
                         umf_process_is_known(&known, &first);
        bool is_ended = umf_process_inspect(ended.pid, 0, &start_time) == ESRCH &&
                        umf_process_check(&ended) == UMF_RESULT_ERROR_INVALID_ARGUMENT;
        _exit(is_hidden && is_ended ? 0 : is_hidden ? 2 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

TEST(Process, LivesThoughProcHidesIt) {
    pid_t child = fork();
    if (child == 0) {
        pid_t first = unshare(CLONE_NEWPID | CLONE_NEWNS) == 0 ? fork() : -1;
        if (first == 0) {
            _exit(look_where_proc_hides());
        }
        int status = -1;
        bool has_run = first > 0 && waitpid(first, &status, 0) == first && WIFEXITED(status);
        _exit(has_run ? WEXITSTATUS(status) : 77);
    }
    int status = -1, pidfd = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77 || umf_os_pidfd_open(getpid(), &pidfd) != 0) {
        GTEST_SKIP() << "no /proc that hides processes, or no descriptors of processes, here";
    }
    umf_os_close(pidfd);
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Process, DoesNotOpenItselfUnderAFilterOfSystemCalls) {
    pid_t child = fork();
    if (child == 0) {
        sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        sock_fprog program = {1, &allow};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
            _exit(77);
        }
        umf_process_t process = self();
        bool ok = process.start_time != 0 && !(process.start_time & UMF_OS_PIDFD_ID) &&
                  umf_process_check(&process) == UMF_RESULT_SUCCESS;
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        GTEST_SKIP() << "no filters of system calls here";
    }
    EXPECT_EQ(status, 0);
}

TEST(Process, TrustsWhatWasJustFoundOut) {
    umf_process_t process = self();
    process.start_time--;
    umf_process_known_t trusted = {process, {}};
    int number = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(umf_kept_fd_take(&trusted.file, number), 0);
    umf_process_trust(&trusted);
    EXPECT_EQ(umf_process_check(&process), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_process_trusted_pidfd(&process), number);
    umf_process_t other = process;
    other.start_time--;
    EXPECT_EQ(umf_process_check(&other), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_process_trusted_pidfd(&other), -1);
    umf_kept_fd_close(&trusted.file);
    EXPECT_EQ(umf_process_trusted_pidfd(&process), -1);
    umf_process_distrust();
    EXPECT_EQ(umf_process_trusted_pidfd(&process), -1);
    EXPECT_EQ(umf_process_check(&process), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST(Process, MeetsItselfWithoutADescriptor) {
    umf_process_t process = self();
    umf_process_known_t known = {};
    EXPECT_EQ(umf_process_meet(&process, &known), UMF_RESULT_SUCCESS);
    EXPECT_EQ(known.process.pid, 0u);
}

TEST(Process, RefusesStrangers) {
    umf_process_t process = self();
    process.start_time--;
    EXPECT_EQ(umf_process_check(&process), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "a number reused";
    process = self();
    process.boot_id++;
    EXPECT_EQ(umf_process_check(&process), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "another boot";
    process = self();
    process.pid = UINT32_MAX;
    EXPECT_EQ(umf_process_check(&process), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "no process";
}

TEST(Process, CannotLookIntoOtherNamespaces) {
    umf_process_t process = self();
    process.pid = UINT32_MAX;
    process.pid_ns++;
    EXPECT_EQ(umf_process_check(&process), UMF_RESULT_SUCCESS);
    process.pid_ns = 0;
    EXPECT_EQ(umf_process_check(&process), UMF_RESULT_SUCCESS);
}

} // namespace
