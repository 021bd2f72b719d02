#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakes/pidfd_filter.h"
#include "fakes/scale.h"

#include <gtest/gtest.h>

extern "C" {
#include "system/os.h"
}

namespace {

std::string call_made;

int fail_all(const char *call) {
    call_made = call;
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
    EXPECT_EQ(umf_os_cpu_count(), static_cast<size_t>(sysconf(_SC_NPROCESSORS_ONLN)));
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

TEST(os, probe_write) {
    size_t page = umf_os_page_size();
    void *addr = nullptr;
    ASSERT_EQ(umf_os_map(&addr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
              0);
    EXPECT_EQ(umf_os_probe_write(addr), 0);
    for (int prot : {PROT_READ, PROT_NONE}) {
        ASSERT_EQ(umf_os_protect(addr, page, prot), 0);
        EXPECT_EQ(umf_os_probe_write(addr), EFAULT);
    }
    EXPECT_EQ(umf_os_unmap(addr, page), 0);
    EXPECT_EQ(umf_os_probe_write(addr), EFAULT);
}

TEST(os, probe_read) {
    size_t page = umf_os_page_size();
    void *addr = nullptr;
    ASSERT_EQ(umf_os_map(&addr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
              0);
    memset(addr, 0xFF, page);
    sigset_t before, after;
    sigprocmask(SIG_BLOCK, nullptr, &before);
    for (int prot : {PROT_READ | PROT_WRITE, PROT_READ}) {
        ASSERT_EQ(umf_os_protect(addr, page, prot), 0);
        EXPECT_EQ(umf_os_probe_read(addr), 0);
    }
    sigprocmask(SIG_BLOCK, nullptr, &after);
    for (int signal = 1; signal < 64; signal++) {
        EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
    }
    ASSERT_EQ(umf_os_protect(addr, page, PROT_NONE), 0);
    EXPECT_EQ(umf_os_probe_read(addr), EFAULT);
    EXPECT_EQ(umf_os_unmap(addr, page), 0);
    EXPECT_EQ(umf_os_probe_read(addr), EFAULT);
}

TEST(os, probe_change) {
    size_t page = umf_os_page_size();
    void *addr = nullptr;
    ASSERT_EQ(
        umf_os_map(&addr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 0);
    char *bytes = static_cast<char *>(addr);
    memset(bytes, 0xFE, page);
    EXPECT_EQ(umf_os_probe_change(bytes + 5), 0);
    EXPECT_EQ(std::count(bytes, bytes + page, static_cast<char>(0xFE)),
              static_cast<ptrdiff_t>(page));
    for (int prot : {PROT_READ, PROT_NONE}) {
        ASSERT_EQ(umf_os_protect(addr, page, prot), 0);
        EXPECT_EQ(umf_os_probe_change(addr), EFAULT);
    }
    EXPECT_TRUE(umf_os_is_mapped(reinterpret_cast<uintptr_t>(addr) + 1, 3 * page - 1));
    EXPECT_EQ(umf_os_unmap(bytes + page, page), 0);
    EXPECT_FALSE(umf_os_is_mapped(reinterpret_cast<uintptr_t>(addr) + 1, 3 * page - 1));
    EXPECT_TRUE(umf_os_is_mapped(reinterpret_cast<uintptr_t>(addr), page));
    EXPECT_EQ(umf_os_unmap(addr, page), 0);
    EXPECT_EQ(umf_os_probe_change(addr), EFAULT);
    EXPECT_EQ(umf_os_unmap(bytes + 2 * page, page), 0);
}

int variable = 1;
char zeroed[100000];
const int constant[] = {1, 2};

TEST(os, variables_of_the_program_are_known) {
    auto is_in_data = [](const void *ptr, size_t size) {
        return umf_os_is_in_data(reinterpret_cast<uintptr_t>(ptr), size);
    };
    char on_stack = 0;
    EXPECT_TRUE(is_in_data(&variable, sizeof(variable)));
    EXPECT_TRUE(is_in_data(zeroed, sizeof(zeroed)));
    EXPECT_FALSE(is_in_data(zeroed, SIZE_MAX));
    EXPECT_FALSE(is_in_data(zeroed, size_t{1} << 30));
    EXPECT_FALSE(is_in_data(constant, sizeof(constant)));
    EXPECT_FALSE(is_in_data(&on_stack, 1));
    EXPECT_FALSE(is_in_data(nullptr, 1));
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

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

// Some filters of system calls end a process for a call that they do not know.
TEST(os, many_are_closed_under_a_filter) {
    pid_t child = fork();
    if (child == 0) {
        int fds[40];
        for (int &fd : fds) {
            fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        }
        if (!deny_call(SYS_close_range, SECCOMP_RET_KILL_PROCESS)) {
            _exit(77);
        }
        umf_os_close_many(fds, 40);
        bool is_open = std::any_of(std::begin(fds), std::end(fds),
                                   [](int fd) { return fcntl(fd, F_GETFD) != -1; });
        _exit(is_open ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        GTEST_SKIP() << "no filters of system calls here";
    }
    EXPECT_EQ(status, 0);
}

TEST(os, a_range_is_closed_in_one_call) {
    int fds[40], after = -1;
    for (int &fd : fds) {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    after = open("/dev/null", O_RDONLY | O_CLOEXEC);
    umf_os_close_many(fds, 40);
    for (int fd : fds) {
        EXPECT_EQ(fcntl(fd, F_GETFD), -1) << fd;
    }
    EXPECT_EQ(umf_os_close(after), 0);
}

TEST(os, many_are_closed_at_once) {
    int fds[7], left;
    ASSERT_EQ(umf_os_open("/dev/null", O_RDONLY, 0, &left), 0);
    for (int &fd : fds) {
        ASSERT_EQ(umf_os_dup(left, &fd), 0);
    }
    int kept[] = {fds[2], fds[6]};
    fds[2] = -1;
    std::swap(fds[3], fds[5]);
    umf_os_close_many(fds, 6);
    umf_os_close_many(fds, 0);
    for (int i : {0, 1, 3, 4, 5}) {
        EXPECT_EQ(fcntl(fds[i], F_GETFD), -1) << i;
    }
    for (int fd : {kept[0], kept[1]}) {
        EXPECT_EQ(umf_os_close(fd), 0);
    }
    // 0 is a number like the others.
    int input = fcntl(0, F_DUPFD_CLOEXEC, 3), behind_none[] = {-1, 0};
    ASSERT_EQ(dup2(left, 0), 0);
    umf_os_close_many(behind_none, 2);
    EXPECT_EQ(fcntl(0, F_GETFD), -1);
    if (input != -1) {
        EXPECT_EQ(dup2(input, 0), 0);
        EXPECT_EQ(umf_os_close(input), 0);
    }
    EXPECT_EQ(umf_os_close(left), 0);
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

TEST(os, allocate_makes_space_and_keeps_what_is_there) {
    int fd = file_with("abc");
    EXPECT_EQ(umf_os_allocate(fd, 8192, 65536), 0);
    uint64_t dev, ino, size;
    EXPECT_EQ(umf_os_file_id(fd, &dev, &ino, &size), 0);
    EXPECT_EQ(size, 8192u + 65536);
    EXPECT_GE(blocks_of(fd), 65536u);
    EXPECT_EQ(umf_os_allocate(fd, 0, 4096), 0);
    EXPECT_EQ(umf_os_file_id(fd, &dev, &ino, &size), 0);
    EXPECT_EQ(size, 8192u + 65536) << "not shorter";
    char text[4] = {};
    EXPECT_EQ(umf_os_read_at(fd, text, 3, 0), 0);
    EXPECT_STREQ(text, "abc");
    EXPECT_EQ(umf_os_allocate(fd, UINT64_MAX, 1), EFBIG);
    EXPECT_EQ(umf_os_allocate(fd, 4096, UINT64_MAX), EFBIG);
    EXPECT_EQ(umf_os_allocate(fd, INT64_MAX, 4096), EFBIG);
    EXPECT_EQ(umf_os_close(fd), 0);
    EXPECT_EQ(umf_os_allocate(fd, 0, 4096), EBADF);
}

TEST(os, write_at_writes_all_of_it) {
    int fd = -1;
    ASSERT_EQ(umf_os_memfd("write", false, &fd), 0);
    EXPECT_EQ(umf_os_write_at(fd, "abcdef", 6, 100), 0);
    char text[7] = "";
    EXPECT_EQ(umf_os_read_at(fd, text, 6, 100), 0);
    EXPECT_STREQ(text, "abcdef");
    EXPECT_EQ(umf_os_write_at(fd, text, 1, UINT64_MAX), EFBIG);
    EXPECT_EQ(umf_os_write_at(fd, text, SIZE_MAX, 1), EFBIG);
    ASSERT_EQ(umf_os_close(fd), 0);
    EXPECT_EQ(umf_os_write_at(fd, text, 1, 0), EBADF);
}

/* Signals that come faster than the whole can be done. */
TEST(os, allocate_gets_through_between_signals) {
    struct sigaction action = {}, before;
    action.sa_handler = [](int) {};
    ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
    int fd = file_with("");
    itimerval timer = {{0, 5000}, {0, 5000}}, off = {};
    setitimer(ITIMER_REAL, &timer, nullptr);
    EXPECT_EQ(umf_os_allocate(fd, 0, 256u << 20), 0);
    setitimer(ITIMER_REAL, &off, nullptr);
    sigaction(SIGALRM, &before, nullptr);
    EXPECT_EQ(blocks_of(fd), 256u << 20);
    EXPECT_EQ(umf_os_close(fd), 0);
}

TEST(os, extend_never_shrinks) {
    int fd = file_with("abc");
    uint64_t dev, ino, size;
    EXPECT_EQ(umf_os_extend(fd, 100000), 0);
    EXPECT_EQ(umf_os_extend(fd, 50000), 0);
    EXPECT_EQ(umf_os_extend(fd, 100000), 0);
    EXPECT_EQ(umf_os_file_id(fd, &dev, &ino, &size), 0);
    EXPECT_EQ(size, 100000u);
    EXPECT_EQ(umf_os_extend(fd, UINT64_MAX), EFBIG);
    EXPECT_EQ(umf_os_close(fd), 0);
}

TEST(os, limit_of_file_sizes_is_an_error_and_no_signal) {
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {8192, 8192};
        int fd = file_with("");
        bool good = setrlimit(RLIMIT_FSIZE, &limit) == 0 && umf_os_allocate(fd, 0, 8192) == 0 &&
                    umf_os_allocate(fd, 4096, 8192) == EFBIG && umf_os_extend(fd, 8193) == EFBIG;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
}

TEST(os, zero_keeps_the_space_or_says_that_it_cannot) {
    char path[] = "/var/tmp/umf_os_test_XXXXXX";
    int fd = mkstemp(path);
    ASSERT_GE(fd, 0);
    unlink(path);
    std::string text(8192, 'x');
    ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    int error = umf_os_zero(fd, 4096, 4096);
    if (error != EOPNOTSUPP) {
        EXPECT_EQ(error, 0);
        char bytes[2];
        EXPECT_EQ(umf_os_read_at(fd, bytes, 2, 4095), 0);
        EXPECT_EQ(bytes[0], 'x');
        EXPECT_EQ(bytes[1], 0);
        EXPECT_GE(blocks_of(fd), 8192u);
    }
    close(fd);
}

TEST(os, free_space) {
    uint64_t bytes = 0;
    int fd = -1;
    ASSERT_EQ(umf_os_open("/var/tmp", O_RDONLY, 0, &fd), 0);
    EXPECT_EQ(umf_os_free_space(fd, &bytes), 0);
    EXPECT_GT(bytes, 0u);
    close(fd);
    ASSERT_EQ(umf_os_open("/proc/self/status", O_RDONLY, 0, &fd), 0);
    EXPECT_EQ(umf_os_free_space(fd, &bytes), 0);
    EXPECT_EQ(bytes, UINT64_MAX) << "a file system without a limit";
    close(fd);
}

TEST(os, regular_files) {
    const struct {
        const char *path;
        int error;
    } cases[] = {{"/proc/self/exe", 0}, {"/tmp", EISDIR}, {"/dev/null", ENODEV}};
    for (const auto &c : cases) {
        int fd = -1;
        ASSERT_EQ(umf_os_open(c.path, O_RDONLY, 0, &fd), 0);
        EXPECT_EQ(umf_os_check_regular(fd), c.error) << c.path;
        close(fd);
    }
}

TEST(os, getcwd) {
    char path[PATH_MAX], expected[PATH_MAX];
    EXPECT_EQ(umf_os_getcwd(path, sizeof(path)), 0);
    EXPECT_STREQ(path, ::getcwd(expected, sizeof(expected)));
    EXPECT_EQ(umf_os_getcwd(path, 1), ERANGE);
}

TEST(os, a_folder_in_the_place_of_dax_devices) {
    char folder[] = "/var/tmp/umf_os_test_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    umf_os_dax_t info;
    int fd = -1;
    ASSERT_EQ(umf_os_open("/dev/null", O_RDWR, 0, &fd), 0);
    EXPECT_EQ(umf_os_dax_info(fd, &info), 0);
    EXPECT_EQ(info.size, 0u) << "the system has no size";
    close(fd);
    umf_os_set_dax_dir(folder);
    EXPECT_EQ(umf_os_dax_probe(), ENOENT);
    EXPECT_EQ(umf_os_dax_open("/dev/dax0.0", O_RDWR, &fd), ENOENT);
    EXPECT_EQ(umf_os_dax_open(("/dev/" + std::string(PATH_MAX, 'x')).c_str(), O_RDWR, &fd),
              ENAMETOOLONG);
    std::string file = std::string(folder) + "/dax0.0";
    std::ofstream(file) << std::string(8192, 'x');
    EXPECT_EQ(umf_os_dax_probe(), 0);
    ASSERT_EQ(umf_os_dax_open("/dev/dax0.0", O_RDWR, &fd), 0);
    EXPECT_EQ(umf_os_dax_info(fd, &info), 0);
    EXPECT_EQ(info.size, 8192u);
    void *ptr = nullptr;
    EXPECT_EQ(umf_os_map_sync(&ptr, 8192, PROT_READ, 0, fd, 0), 0);
    EXPECT_EQ(umf_os_unmap(ptr, 8192), 0);
    umf_os_set_dax_dir(nullptr);
    EXPECT_EQ(umf_os_dax_info(fd, &info), ENODEV) << "a file is no device";
    EXPECT_EQ(umf_os_map_sync(&ptr, 8192, PROT_READ, 0, fd, 0), EOPNOTSUPP);
    close(fd);
    unlink(file.c_str());
    rmdir(folder);
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
    uint64_t sent = 0, seen = 1;
    EXPECT_EQ(read(pipes[0], &sent, sizeof(sent)), static_cast<ssize_t>(sizeof(sent)));
    EXPECT_EQ(umf_os_start_time(child, &seen), 0);
    EXPECT_EQ(sent, seen);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(pipes[0]), close(pipes[1]);
}

TEST(os, a_number_of_one_process_for_ever) {
    int fd, again;
    uint64_t own = 0, same = 0, word = 77;
    if (umf_os_pidfd_open(getpid(), &fd) == ENOSYS) {
        GTEST_SKIP() << "no descriptors of processes here";
    }
    ASSERT_EQ(umf_os_pidfd_open(getpid(), &again), 0);
    int error = umf_os_pidfd_id(fd, &own);
    if (error == 0) {
        EXPECT_TRUE(own & UMF_OS_PIDFD_ID);
        EXPECT_EQ(umf_os_pidfd_id(again, &same), 0);
        EXPECT_EQ(own, same);
        int other;
        ASSERT_EQ(umf_os_pidfd_open(getppid(), &other), 0);
        EXPECT_EQ(umf_os_pidfd_id(other, &same), 0);
        EXPECT_NE(own, same);
        umf_os_close(other);
    } else {
        EXPECT_EQ(error, ENOSYS) << "a kernel before 6.9";
    }
    umf_os_close(again);
    umf_os_close(fd);
    ASSERT_EQ(umf_os_open("/dev/null", O_RDONLY, 0, &fd), 0);
    EXPECT_EQ(umf_os_pidfd_id(fd, &word), ENOSYS) << "no process";
    EXPECT_EQ(umf_os_pidfd_id(-1, &word), EBADF);
    EXPECT_EQ(word, 77u);
    umf_os_close(fd);
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
    EXPECT_EQ(call_made, #name)
    FAILS(map, &addr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(unmap, addr, 4096);
    FAILS(protect, addr, 4096, PROT_NONE);
    FAILS(advise, addr, 4096, MADV_NORMAL);
    FAILS(probe_write, &byte);
    FAILS(probe_read, &byte);
    FAILS(mbind, addr, 4096, 0, nullptr, 0);
    FAILS(open, "/dev/null", O_RDONLY, 0, &fd);
    FAILS(allocate, 0, 0, 1);
    FAILS(zero, 0, 0, 1);
    FAILS(extend, 0, 1);
    FAILS(free_space, 0, nullptr);
    FAILS(check_regular, 0);
    FAILS(getcwd, nullptr, 0);
    FAILS(dax_info, 0, nullptr);
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
    FAILS(pidfd_id, 0, &word);
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

// The mode of a socket is changed, and that of nothing else that has its name.
TEST(os, chmod_of_a_socket_follows_no_link) {
    char folder[] = "/tmp/umf_os_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    std::string path = std::string(folder) + "/s", secret = std::string(folder) + "/secret";
    int fd = open(secret.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(symlink(secret.c_str(), path.c_str()), 0);
    EXPECT_EQ(umf_os_chmod_socket(path.c_str(), 0666), ENOTSOCK);
    unlink(path.c_str());
    ASSERT_EQ(link(secret.c_str(), path.c_str()), 0);
    EXPECT_EQ(umf_os_chmod_socket(path.c_str(), 0666), ENOTSOCK);
    unlink(path.c_str());
    struct stat info;
    ASSERT_EQ(fstat(fd, &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    ASSERT_EQ(mknod(path.c_str(), S_IFSOCK | 0600, 0), 0);
    EXPECT_EQ(umf_os_chmod_socket(path.c_str(), 0666), 0);
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0666u);
    std::string other = path + "_link"; // also to a socket, which may be another's
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    ASSERT_EQ(symlink(path.c_str(), other.c_str()), 0);
    EXPECT_EQ(umf_os_chmod_socket(other.c_str(), 0666), ENOTSOCK);
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    unlink(other.c_str());
    unlink(path.c_str());
    unlink(secret.c_str());
    close(fd);
    rmdir(folder);
}

TEST(os, folders_where_all_users_replace_files) {
    char folder[] = "/tmp/umf_os_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    EXPECT_EQ(umf_os_check_shared_folder(folder), 0);
    ASSERT_EQ(chmod(folder, 01777), 0);
    EXPECT_EQ(umf_os_check_shared_folder(folder), 0);
    ASSERT_EQ(chmod(folder, 0777), 0);
    EXPECT_EQ(umf_os_check_shared_folder(folder), EPERM);
    rmdir(folder);
    EXPECT_EQ(umf_os_check_shared_folder(folder), ENOENT);
}

// In a namespace without a map every user has the number of "nobody".
TEST(os, a_number_that_stands_for_all_users_is_nobodys_own) {
    EXPECT_TRUE(umf_os_is_own_user(geteuid()));
    EXPECT_FALSE(umf_os_is_own_user(geteuid() + 1));
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWUSER) != 0) {
            _exit(77);
        }
        int file = memfd_create("own", MFD_CLOEXEC);
        bool is_safe = !umf_os_is_own_user(geteuid()) && !umf_os_is_own_file(file) &&
                       !umf_os_is_own_unlinked(file);
        _exit(is_safe ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        GTEST_SKIP() << "no user namespaces here";
    }
    EXPECT_EQ(status, 0);
}

// Each child has two threads of the library, which begin at once, and a first thread that ends.
TEST(os, threads_of_the_library_that_begin_at_once_are_counted) {
    if (UMF_TEST_TSAN) {
        GTEST_SKIP() << "a child of a fork that starts threads may hang under the sanitizer";
    }
    if (getenv("UMF_TEST_EMULATOR")) {
        GTEST_SKIP() << "a child of a fork cannot start threads there";
    }
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            static std::atomic<int> ready{0}, begun{0};
            auto begin = [] {
                ready++;
                while (ready < 2) {
                }
                umf_os_own_thread_begins();
                begun++;
            };
            std::thread([begin] {
                begin();
                pause();
            }).detach();
            std::thread([begin] {
                begin();
                while (begun < 2 || !umf_os_is_last_thread()) {
                    usleep(100);
                }
                _exit(0);
            }).detach();
            syscall(SYS_exit, 0); // this thread alone; an unwinding would be caught
        }
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0) << "child " << i;
    }
}
