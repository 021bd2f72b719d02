// Descriptors that are kept (base/kept_fd.c): their numbers are not trusted.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

extern "C" {
#include "base/kept_fd.h"
#include "base/log.h"
}

namespace {

int memory() {
    return memfd_create("kept", MFD_CLOEXEC);
}

int unix_socket() {
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

int temporary() {
    return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

int null_device() {
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

// Puts what `open` gives under the number of `kept`, as a program does that closed it before.
void replace(const umf_kept_fd_t &kept, int fd) {
    ASSERT_EQ(close(kept.number), 0);
    if (fd != kept.number) {
        ASSERT_EQ(dup2(fd, kept.number), kept.number);
        close(fd);
    }
}

void expect_is_ours(const umf_kept_fd_t &kept) {
    EXPECT_TRUE(umf_kept_fd_is_open(&kept));
    EXPECT_EQ(umf_kept_fd_check(&kept, "a file"), 0);
}

// The number is the program's now.
void expect_is_not_ours(umf_kept_fd_t kept) {
    umf_log_heard_t heard;
    umf_log_hear(&heard);
    EXPECT_FALSE(umf_kept_fd_is_open(&kept));
    EXPECT_EQ(umf_kept_fd_check(&kept, "the file of a test"), EBADF);
    umf_log_hear_end(&heard);
    std::string said =
        "descriptor " + std::to_string(kept.number) + " is no longer the file of a test";
    EXPECT_NE(std::string(heard.text).find(said), std::string::npos) << heard.text;
    umf_kept_fd_close(&kept);
    EXPECT_NE(fcntl(kept.number, F_GETFD), -1);
}

TEST(KeptFd, ZeroedThereIsNone) {
    umf_kept_fd_t none = {};
    EXPECT_FALSE(umf_kept_fd_is_open(&none));
    EXPECT_EQ(umf_kept_fd_check(&none, "a file"), EBADF);
    umf_kept_fd_close(&none);
    EXPECT_NE(fcntl(0, F_GETFD), -1);
}

TEST(KeptFd, ClosesItsOwnFileOnce) {
    umf_kept_fd_t kept = {};
    ASSERT_EQ(umf_kept_fd_take(&kept, memory()), 0);
    expect_is_ours(kept);
    umf_kept_fd_close(&kept);
    EXPECT_EQ(fcntl(kept.number, F_GETFD), -1);
    int other = memory();
    EXPECT_EQ(other, kept.number);
    umf_kept_fd_close(&kept);
    EXPECT_NE(fcntl(other, F_GETFD), -1);
    close(other);
}

TEST(KeptFd, TellsFilesOfEachKindApart) {
    const std::function<int()> kinds[] = {memory, unix_socket, temporary, null_device};
    for (const auto &own : kinds) {
        for (const auto &other : kinds) {
            umf_kept_fd_t kept = {};
            ASSERT_EQ(umf_kept_fd_take(&kept, own()), 0);
            int fd = other();
            if (fd < 0 || (&own == &other && &own == &kinds[3])) { // one device is one file
                umf_kept_fd_close(&kept);
                continue;
            }
            replace(kept, fd);
            expect_is_not_ours(kept);
            close(kept.number);
        }
    }
}

// The inode of a file without a name may be given again at once.
TEST(KeptFd, TellsALaterFileOfTheSameInode) {
    for (int i = 0; i < 3; i++) {
        umf_kept_fd_t kept = {};
        ASSERT_EQ(umf_kept_fd_take(&kept, temporary()), 0);
        usleep(20000); // the clock of file systems has steps of up to 10 ms
        close(kept.number);
        ASSERT_EQ(temporary(), kept.number);
        expect_is_not_ours(kept);
        close(kept.number);
    }
}

int pidfd_of(pid_t pid) {
    return (int)syscall(434 /* pidfd_open */, pid, 0);
}

int refuse_pidfs(const char *call) {
    return strcmp(call, "pidfs") == 0 ? ENOSYS : 0;
}

void expect_processes_differ(pid_t child) {
    umf_kept_fd_t kept = {};
    int fd = pidfd_of(child);
    if (fd < 0) {
        GTEST_SKIP() << "no process descriptors: " << strerror(errno);
    }
    ASSERT_EQ(umf_kept_fd_take(&kept, fd), 0);
    expect_is_ours(kept);
    replace(kept, pidfd_of(getpid()));
    expect_is_not_ours(kept);
    close(kept.number);
}

TEST(KeptFd, TellsProcessesApart) {
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    expect_processes_differ(child);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

// Before Linux 6.9 all process descriptors have one inode.
TEST(KeptFd, TellsProcessesOfOneInodeApart) {
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    umf_kept_fd_t kept = {}, other = {};
    umf_os_set_fault(refuse_pidfs);
    int fd = pidfd_of(child);
    if (fd >= 0) {
        ASSERT_EQ(umf_kept_fd_take(&kept, fd), 0);
        ASSERT_EQ(umf_kept_fd_take(&other, pidfd_of(getpid())), 0);
        EXPECT_EQ(kept.identity.process, (uint64_t)child);
        EXPECT_EQ(other.identity.process, (uint64_t)getpid());
        expect_is_ours(kept);
        other.identity.dev = kept.identity.dev;
        other.identity.ino = kept.identity.ino;
        other.identity.born = kept.identity.born;
        EXPECT_FALSE(umf_os_has_identity(kept.number, &other.identity));
        close(kept.number);
        close(other.number);
    }
    umf_os_set_fault(nullptr);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

int refuse_identity(const char *call) {
    return strcmp(call, "identity") == 0 ? EIO : 0;
}

TEST(KeptFd, AFileThatCannotBeIdentifiedIsNotKept) {
    umf_kept_fd_t kept = {};
    int fd = memory();
    umf_os_set_fault(refuse_identity);
    EXPECT_EQ(umf_kept_fd_take(&kept, fd), EIO);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(fcntl(fd, F_GETFD), -1);
    EXPECT_FALSE(kept.is_kept);
}

} // namespace
