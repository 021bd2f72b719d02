#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

extern "C" {
#include "base/os.h"
}

namespace {

std::string asked;

int fail_all(const char *call) {
    asked = call;
    return EDOM;
}

bool is_cloexec(int fd) {
    return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

/* A file in memory with this content. */
int file_with(const std::string &text) {
    int fd = -1;
    EXPECT_EQ(umf_os_memfd("umf_test", false, &fd), 0);
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    return fd;
}

uint64_t blocks_of(int fd) {
    struct stat info;
    EXPECT_EQ(fstat(fd, &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
}

} // namespace

TEST(os, sizes) {
    EXPECT_EQ(umf_os_page_size(), static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    size_t line = umf_os_cache_line_size();
    EXPECT_GE(line, 16u);
    EXPECT_EQ(line & (line - 1), 0u);
}

TEST(os, error_text) {
    char buffer[64];
    EXPECT_STREQ(umf_os_error_text(ENOENT, buffer, sizeof(buffer)), "No such file or directory");
    EXPECT_STREQ(umf_os_error_text(99999, buffer, sizeof(buffer)), "Unknown error 99999");
}

TEST(os, map_protect_advise_unmap) {
    size_t page = umf_os_page_size();
    void *addr = nullptr;
    ASSERT_EQ(
        umf_os_map(&addr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 0);
    ASSERT_NE(addr, nullptr);
    static_cast<char *>(addr)[page] = 1;
    EXPECT_EQ(umf_os_advise(addr, 2 * page, MADV_DONTNEED), 0);
    EXPECT_EQ(static_cast<char *>(addr)[page], 0);
    EXPECT_EQ(umf_os_protect(addr, page, PROT_READ), 0);
    EXPECT_EQ(umf_os_protect(addr, page, -1), EINVAL);
    EXPECT_EQ(umf_os_unmap(addr, 2 * page), 0);
    EXPECT_EQ(umf_os_advise(addr, page, MADV_NORMAL), ENOMEM);
    EXPECT_EQ(umf_os_unmap(static_cast<char *>(addr) + 1, page), EINVAL);
}

TEST(os, failed_map_keeps_the_address) {
    char place;
    void *addr = &place;
    EXPECT_EQ(umf_os_map(&addr, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EINVAL);
    EXPECT_EQ(umf_os_map(&addr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, SIZE_MAX),
              EOVERFLOW);
    EXPECT_EQ(addr, &place);
}

TEST(os, mbind_reads_the_whole_mask) {
    size_t page = umf_os_page_size();
    void *addr = nullptr;
    unsigned long mask = 1;
    const int bind = 2;
    ASSERT_EQ(umf_os_map(&addr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
              0);
    int error = umf_os_mbind(addr, page, bind, &mask, 1);
    if (error != ENOSYS && error != EPERM) {
        /* With the last bit lost the mask would be empty, which "bind" refuses. */
        EXPECT_EQ(error, 0);
        EXPECT_EQ(umf_os_mbind(addr, page, bind, nullptr, 0), EINVAL);
    }
    EXPECT_EQ(umf_os_unmap(addr, page), 0);
}

TEST(os, open_and_close) {
    int fd = -1;
    EXPECT_EQ(umf_os_open("/no/such/file", O_RDONLY, 0, &fd), ENOENT);
    EXPECT_EQ(fd, -1);
    ASSERT_EQ(umf_os_open("/dev/null", O_RDWR, 0, &fd), 0);
    EXPECT_TRUE(is_cloexec(fd));
    EXPECT_EQ(umf_os_close(fd), 0);
    EXPECT_EQ(umf_os_close(fd), EBADF);
}

TEST(os, memfd_grows_and_takes_seals) {
    int fd = -1;
    ASSERT_EQ(umf_os_memfd("umf_test", false, &fd), 0);
    EXPECT_TRUE(is_cloexec(fd));
    EXPECT_EQ(umf_os_truncate(fd, 8192), 0);
    uint64_t dev, ino, size;
    EXPECT_EQ(umf_os_file_id(fd, &dev, &ino, &size), 0);
    EXPECT_EQ(size, 8192u);
    EXPECT_EQ(umf_os_add_seals(fd, F_SEAL_SHRINK), 0);
    EXPECT_EQ(umf_os_truncate(fd, 4096), EPERM);
    EXPECT_EQ(umf_os_truncate(fd, UINT64_MAX), EFBIG);
    EXPECT_EQ(umf_os_close(fd), 0);
}

TEST(os, secret_memfd_works_or_is_not_offered) {
    int fd = -1;
    int error = umf_os_memfd("umf_test", true, &fd);
    if (error != 0) {
        EXPECT_EQ(error, ENOSYS);
        return;
    }
    EXPECT_TRUE(is_cloexec(fd));
    EXPECT_EQ(umf_os_close(fd), 0);
}

TEST(os, punch_gives_memory_back) {
    const uint64_t size = 1 << 20;
    int fd = file_with(std::string(size, 'x'));
    EXPECT_GE(blocks_of(fd), size);
    EXPECT_EQ(umf_os_punch(fd, 4096, size - 4096), 0);
    EXPECT_LE(blocks_of(fd), 8192u);
    EXPECT_EQ(umf_os_punch(fd, UINT64_MAX, 1), EFBIG);
    EXPECT_EQ(umf_os_punch(fd, 0, 0), EINVAL);
    uint64_t dev, ino, now;
    EXPECT_EQ(umf_os_file_id(fd, &dev, &ino, &now), 0);
    EXPECT_EQ(now, size);
    umf_os_close(fd);
}

TEST(os, read_at) {
    int fd = file_with("0123456789");
    char text[8] = "";
    EXPECT_EQ(umf_os_read_at(fd, text, 4, 3), 0);
    EXPECT_STREQ(text, "3456");
    EXPECT_EQ(umf_os_read_at(fd, text, 4, 8), EIO);
    EXPECT_EQ(umf_os_read_at(fd, text, 0, 100), 0);
    EXPECT_EQ(umf_os_read_at(fd, text, 1, UINT64_MAX), EFBIG);
    umf_os_close(fd);
    EXPECT_EQ(umf_os_read_at(fd, text, 1, 0), EBADF);
}

TEST(os, file_id_tells_files_apart) {
    int a = file_with("a");
    int b = file_with("bb");
    int c = dup(a);
    uint64_t dev[3], ino[3], size[3];
    EXPECT_EQ(umf_os_file_id(a, &dev[0], &ino[0], &size[0]), 0);
    EXPECT_EQ(umf_os_file_id(b, &dev[1], &ino[1], &size[1]), 0);
    EXPECT_EQ(umf_os_file_id(c, &dev[2], &ino[2], &size[2]), 0);
    EXPECT_NE(ino[0], ino[1]);
    EXPECT_EQ(ino[0], ino[2]);
    EXPECT_EQ(size[1], 2u);
    umf_os_close(a), umf_os_close(b), umf_os_close(c);
    EXPECT_EQ(umf_os_file_id(a, &dev[0], &ino[0], &size[0]), EBADF);
}

TEST(os, named_object) {
    std::string name = "umf_os_test_" + std::to_string(getpid());
    int fd = -1;
    int other = -1;
    ASSERT_EQ(umf_os_shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, &fd), 0);
    EXPECT_TRUE(is_cloexec(fd));
    EXPECT_EQ(umf_os_shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, &other), EEXIST);
    ASSERT_EQ(umf_os_shm_open(name.c_str(), O_RDWR, 0, &other), 0);
    /* The C library's shm_open finds the same object. */
    int theirs = shm_open(("/" + name).c_str(), O_RDWR, 0);
    EXPECT_NE(theirs, -1);
    close(theirs);
    umf_os_close(fd), umf_os_close(other);
    EXPECT_EQ(umf_os_shm_unlink(name.c_str()), 0);
    EXPECT_EQ(umf_os_shm_unlink(name.c_str()), ENOENT);
    EXPECT_EQ(umf_os_shm_open(name.c_str(), O_RDWR, 0, &fd), ENOENT);
}

TEST(os, names_that_are_none_are_refused) {
    int fd = -1;
    for (const char *name : {"", ".", "..", "/x", "a/b", "../shm/x"}) {
        EXPECT_EQ(umf_os_shm_open(name, O_RDWR | O_CREAT, 0600, &fd), EINVAL) << name;
        EXPECT_EQ(umf_os_shm_unlink(name), EINVAL) << name;
    }
    std::string too_long(NAME_MAX + 1, 'x');
    EXPECT_EQ(umf_os_shm_open(too_long.c_str(), O_RDWR | O_CREAT, 0600, &fd), ENAMETOOLONG);
    EXPECT_EQ(umf_os_shm_unlink(too_long.c_str()), ENAMETOOLONG);
    std::string longest(NAME_MAX, 'x');
    EXPECT_EQ(umf_os_shm_open(longest.c_str(), O_RDWR | O_CREAT, 0600, &fd), 0);
    umf_os_close(fd);
    EXPECT_EQ(umf_os_shm_unlink(longest.c_str()), 0);
}

TEST(os, pid_and_tid) {
    EXPECT_EQ(umf_os_pid(), getpid());
    EXPECT_EQ(umf_os_tid(), getpid());
    std::thread([] { EXPECT_NE(umf_os_tid(), getpid()); }).join();
}

TEST(os, start_time_of_living_processes) {
    uint64_t own = 0, again = 0, first = 0;
    ASSERT_EQ(umf_os_start_time(getpid(), &own), 0);
    ASSERT_EQ(umf_os_start_time(getpid(), &again), 0);
    EXPECT_EQ(own, again);
    EXPECT_GT(own, 0u);
    ASSERT_EQ(umf_os_start_time(getppid(), &first), 0);
    EXPECT_LE(first, own);
}

TEST(os, start_time_is_read_again_after_fork) {
    uint64_t own = 0;
    ASSERT_EQ(umf_os_start_time(getpid(), &own), 0);
    usleep(30000); /* more than one tick */
    pid_t child = fork();
    if (child == 0) {
        uint64_t mine = 0;
        _exit(umf_os_start_time(getpid(), &mine) == 0 && mine > own ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(os, start_time_of_a_child_is_the_one_it_sees_itself) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        uint64_t mine = 0;
        umf_os_start_time(getpid(), &mine);
        _exit(write(pipes[1], &mine, sizeof(mine)) == sizeof(mine) ? (pause(), 0) : 1);
    }
    uint64_t told = 0, seen = 1;
    EXPECT_EQ(read(pipes[0], &told, sizeof(told)), static_cast<ssize_t>(sizeof(told)));
    EXPECT_EQ(umf_os_start_time(child, &seen), 0);
    EXPECT_EQ(told, seen);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(pipes[0]), close(pipes[1]);
}

TEST(os, start_time_of_the_dead) {
    uint64_t ticks = 42;
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(umf_os_start_time(child, &ticks), ESRCH) << "only an exit status is left";
    waitpid(child, nullptr, 0);
    EXPECT_EQ(umf_os_start_time(child, &ticks), ESRCH);
    EXPECT_EQ(umf_os_start_time(-1, &ticks), ESRCH);
    EXPECT_EQ(ticks, 42u);
}

TEST(os, start_time_when_only_the_first_thread_is_dead) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        static int ready = pipes[1];
        new std::thread([] {
            usleep(50000);
            (void)!write(ready, "x", 1);
            pause();
        });
        syscall(SYS_exit, 0); /* this thread only */
    }
    char byte = 0;
    ASSERT_EQ(read(pipes[0], &byte, 1), 1);
    uint64_t ticks = 0;
    EXPECT_EQ(umf_os_start_time(child, &ticks), 0);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(pipes[0]), close(pipes[1]);
}

TEST(os, a_name_full_of_brackets_does_not_confuse) {
    pid_t child = fork();
    if (child == 0) {
        FILE *comm = fopen("/proc/self/comm", "w");
        if (!comm || fputs("a) Z 1 (b) c", comm) < 0 || fclose(comm) != 0) {
            _exit(2);
        }
        uint64_t ticks = 0;
        FILE *uptime = fopen("/proc/uptime", "r");
        double seconds = 0;
        if (umf_os_start_time(getpid(), &ticks) != 0 || fscanf(uptime, "%lf", &seconds) != 1) {
            _exit(3);
        }
        double started = static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
        _exit(started > seconds - 60 && started < seconds + 1 ? 0 : 4);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(os, boot_id_is_known_and_does_not_change) {
    uint64_t id = umf_os_boot_id();
    EXPECT_NE(id, 0u);
    EXPECT_EQ(id, umf_os_boot_id());
}

TEST(os, pidfd_fetches_a_descriptor) {
    int source = file_with("through the pidfd");
    int pidfd = -1;
    int fd = -1;
    ASSERT_EQ(umf_os_pidfd_open(getpid(), &pidfd), 0);
    EXPECT_TRUE(is_cloexec(pidfd));
    int error = umf_os_pidfd_getfd(pidfd, source, &fd);
    if (error != EPERM && error != ENOSYS) {
        ASSERT_EQ(error, 0);
        EXPECT_TRUE(is_cloexec(fd));
        char text[8] = "";
        EXPECT_EQ(umf_os_read_at(fd, text, 7, 0), 0);
        EXPECT_STREQ(text, "through");
        EXPECT_EQ(umf_os_pidfd_getfd(pidfd, 1 << 20, &pidfd), EBADF);
        umf_os_close(fd);
    }
    umf_os_close(pidfd), umf_os_close(source);
    EXPECT_EQ(umf_os_pidfd_open(-1, &fd), EINVAL);
}

TEST(os, the_fault_hook_can_fail_every_call) {
    int fd = 77;
    uint64_t word = 77;
    void *addr = nullptr;
    char byte;
    umf_os_set_fault(fail_all);
#define FAILS(name, ...)                                                                           \
    EXPECT_EQ(umf_os_##name(__VA_ARGS__), EDOM);                                                   \
    EXPECT_EQ(asked, #name)
    FAILS(map, &addr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(unmap, addr, 4096);
    FAILS(protect, addr, 4096, PROT_NONE);
    FAILS(advise, addr, 4096, MADV_NORMAL);
    FAILS(mbind, addr, 4096, 0, nullptr, 0);
    FAILS(open, "/dev/null", O_RDONLY, 0, &fd);
    FAILS(memfd, "x", false, &fd);
    FAILS(shm_open, "x", O_RDONLY, 0, &fd);
    FAILS(shm_unlink, "x");
    FAILS(truncate, 0, 0);
    FAILS(punch, 0, 0, 0);
    FAILS(add_seals, 0, 0);
    FAILS(read_at, 0, &byte, 1, 0);
    FAILS(file_id, 0, &word, &word, &word);
    FAILS(start_time, 1, &word);
    FAILS(pidfd_open, getpid(), &fd);
    FAILS(pidfd_getfd, 0, 0, &fd);
#undef FAILS
    umf_os_set_fault(nullptr);
    EXPECT_EQ(fd, 77);
    EXPECT_EQ(word, 77u);
    EXPECT_EQ(addr, nullptr);
}

TEST(os, a_close_that_is_made_to_fail_still_closes) {
    int fd = file_with("");
    umf_os_set_fault(fail_all);
    EXPECT_EQ(umf_os_close(fd), EDOM);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}
