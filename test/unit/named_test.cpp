// Named objects of shared memory: who owns them, and what crashes leave.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/text.h>

extern "C" {
#include "peer/named.h"
#include "peer/process.h"
#include "system/os.h"
}

namespace {

std::string name_of(const std::string &what) {
    return "umf_named_test_" + std::to_string(getpid()) + "_" + what;
}

std::string path_of(const std::string &name) {
    return "/dev/shm/" + name;
}

bool exists(const std::string &name) {
    return access(path_of(name).c_str(), F_OK) == 0;
}

umf_memory_provider_handle_t make(const std::string &name) {
    umf_memory_provider_handle_t provider = nullptr;
    std::string text = "os:visibility=shared,shm_name=" + name;
    EXPECT_EQ(umfMemoryProviderCreateFromText(text.c_str(), &provider), UMF_RESULT_SUCCESS);
    return provider;
}

// Another process that does `body` and then waits to be killed.
class Maker {
    pid_t pid;

  public:
    explicit Maker(const std::function<void()> &body) {
        int fds[2];
        EXPECT_EQ(pipe(fds), 0);
        pid = fork();
        if (pid == 0) {
            body();
            (void)!write(fds[1], "", 1);
            for (;;) {
                pause();
            }
        }
        char byte;
        close(fds[1]);
        EXPECT_EQ(read(fds[0], &byte, 1), 1);
        close(fds[0]);
    }
    ~Maker() {
        kill();
    }
    void kill() {
        if (pid > 0) {
            ::kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
            pid = 0;
        }
    }
};

// A file as a maker would have left it.
struct Head {
    umf_named_head_t head = {};
    off_t size = 1 << 20;

    Head() {
        head.mark = UMF_NAMED_MARK ^ static_cast<uint64_t>(size);
        umf_process_t self;
        umf_process_self(&self);
        head.boot_id = self.boot_id;
        head.start_time = self.start_time;
        head.pid = self.pid;
        head.pid_ns = self.pid_ns;
    }
    Head &gone() {
        head.start_time--;
        return *this;
    }
    void write(const std::string &name) const {
        int fd = open(path_of(name).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        ASSERT_GE(fd, 0);
        EXPECT_EQ(ftruncate(fd, size), 0);
        EXPECT_EQ(pwrite(fd, &head, sizeof(head), 0), static_cast<ssize_t>(sizeof(head)));
        close(fd);
    }
};

void reap() {
    EXPECT_EQ(umfIPCReap(nullptr), UMF_RESULT_SUCCESS);
}

TEST(Named, RemovesWhatACrashLeft) {
    std::string name = name_of("crash");
    Maker maker([&] { make(name); });
    reap();
    EXPECT_TRUE(exists(name)) << "its process lives";
    maker.kill();
    EXPECT_TRUE(exists(name));
    size_t before = 0, after = 0;
    ASSERT_EQ(umfCtlGet("umf.ipc.stats.reaped", &before, sizeof(before)), UMF_RESULT_SUCCESS);
    size_t removed = 0;
    EXPECT_EQ(umfIPCReap(&removed), UMF_RESULT_SUCCESS);
    EXPECT_FALSE(exists(name));
    EXPECT_GE(removed, 1u);
    ASSERT_EQ(umfCtlGet("umf.ipc.stats.reaped", &after, sizeof(after)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(after - before, removed);
}

// At whatever moment its maker is killed.
TEST(Named, AMakerThatIsKilledAtItLeavesNothing) {
    static const char *killed_at;
    const std::string name = name_of("killed");
    for (const char *call :
         {"shm_make", "flock", "truncate", "write_at", "shm_link", "afterwards"}) {
        killed_at = call;
        pid_t pid = fork();
        ASSERT_NE(pid, -1);
        if (pid == 0) {
            umf_os_set_fault(
                [](const char *what) { return strcmp(what, killed_at) == 0 ? raise(SIGKILL) : 0; });
            int fd;
            umf_named_create(name.c_str(), 1 << 20, &fd);
            raise(strcmp(call, "afterwards") == 0 ? SIGKILL : SIGABRT);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << call;
        EXPECT_EQ(exists(name), strcmp(call, "afterwards") == 0) << call;
        umfIPCReap(nullptr);
        EXPECT_FALSE(exists(name)) << call;
    }
}

TEST(Named, TheFirstNameOfAProcessRemovesWhatCrashesLeft) {
    std::string orphan = name_of("orphan"), name = name_of("first");
    Maker([&] { make(orphan); }).kill();
    ASSERT_TRUE(exists(orphan));
    Maker maker([&] { make(name); });
    EXPECT_FALSE(exists(orphan));
    maker.kill();
    reap();
    EXPECT_FALSE(exists(name));
}

// Where the system has no files without a name.
TEST(Named, IsMadeUnderItsNameWhereItMustBe) {
    const std::string name = name_of("plain");
    umf_os_set_fault(
        [](const char *what) { return strcmp(what, "shm_make") == 0 ? EOPNOTSUPP : 0; });
    umf_memory_provider_handle_t provider = make(name);
    umf_os_set_fault(nullptr);
    EXPECT_TRUE(exists(name));
    EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
    EXPECT_FALSE(exists(name));
}

TEST(Named, OwnOnesStay) {
    std::string name = name_of("own");
    umf_memory_provider_handle_t provider = make(name);
    reap();
    EXPECT_TRUE(exists(name));
    EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
    EXPECT_FALSE(exists(name));
}

// The lock is one sign; it can be removed by mistake.
TEST(Named, OneWhoseMakerLostItsLockStays) {
    std::string name = name_of("unlocked");
    Maker maker([&] {
        make(name);
        struct stat wanted, st;
        EXPECT_EQ(stat(path_of(name).c_str(), &wanted), 0);
        for (int fd = 3; fd < 200; fd++) {
            if (fstat(fd, &st) == 0 && st.st_ino == wanted.st_ino) {
                flock(fd, LOCK_UN);
            }
        }
    });
    int fd = open(path_of(name).c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0) << "the lock is free";
    close(fd);
    reap();
    EXPECT_TRUE(exists(name));
    maker.kill();
    reap();
    EXPECT_FALSE(exists(name));
}

// Who opens an object of a living maker must not keep its lock: later the object could not be
// removed.
TEST(Named, AnOpenTakesNoLock) {
    std::string name = name_of("opened");
    Head().write(name);
    int made = open(path_of(name).c_str(), O_RDWR | O_CLOEXEC), opened = -1;
    umf_fd_ticket_t ticket;
    ASSERT_EQ(umf_ticket_make(made, &ticket), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_named_open(name.c_str(), &ticket, &opened), UMF_RESULT_SUCCESS);
    EXPECT_EQ(flock(made, LOCK_EX | LOCK_NB), 0);
    close(opened);
    close(made);
    unlink(path_of(name).c_str());
}

// A child of a fork still uses the memory that it inherited.
TEST(Named, OneThatAChildOfItsMakerUsesStays) {
    std::string name = name_of("child");
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    Maker maker([&] {
        make(name);
        if (fork() == 0) {
            char byte;
            close(fds[1]);
            (void)!read(fds[0], &byte, 1); // until the test is done with it
            _exit(0);
        }
    });
    close(fds[0]);
    maker.kill();
    reap();
    EXPECT_TRUE(exists(name));
    close(fds[1]);
    for (int i = 0; i < 6000 && exists(name); i++) {
        usleep(10000);
        reap();
    }
    EXPECT_FALSE(exists(name));
}

TEST(Named, OneWhoseLockIsHeldStays) {
    std::string name = name_of("held");
    Head().gone().write(name);
    int fd = open(path_of(name).c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
    reap();
    EXPECT_TRUE(exists(name)) << "a child of its maker may use it";
    close(fd);
    reap();
    EXPECT_FALSE(exists(name));
}

TEST(Named, TellsMakersByMoreThanTheirNumber) {
    struct {
        const char *what;
        bool stays;
        std::function<void(umf_named_head_t &)> change;
    } const cases[] = {
        {"this process", true, [](umf_named_head_t &) {}},
        {"an earlier one of the same number", false, [](umf_named_head_t &h) { h.start_time--; }},
        {"an unused number", false, [](umf_named_head_t &h) { h.pid = 4194305; }},
        {"before the last start of the machine", false,
         [](umf_named_head_t &h) { h.boot_id ^= 1; }},
        {"another container, the lock is free", false, [](umf_named_head_t &h) { h.pid_ns ^= 1; }},
        {"one of unknown start", true, [](umf_named_head_t &h) { h.start_time = 0; }},
    };
    for (const auto &c : cases) {
        std::string name = name_of("maker");
        Head file;
        c.change(file.head);
        file.write(name);
        reap();
        EXPECT_EQ(exists(name), c.stays) << c.what;
        unlink(path_of(name).c_str());
    }
}

TEST(Named, WhatIsNotOursStays) {
    std::string name = name_of("theirs");
    auto stays = [&](const char *what) {
        reap();
        EXPECT_TRUE(exists(name)) << what;
        unlink(path_of(name).c_str());
    };
    std::ofstream(path_of(name)) << "a file of another program";
    stays("text");
    std::ofstream(path_of(name)).flush();
    stays("empty");
    Head head;
    head.gone().head.mark ^= 1;
    head.write(name);
    stays("a header of impossible size");
    head = Head();
    head.gone().size = 1 << 19;
    head.write(name);
    stays("shorter than its header");
    head = Head();
    head.gone().head.pid = 0;
    head.write(name);
    stays("a header without a maker");
    ASSERT_EQ(mkfifo(path_of(name).c_str(), 0600), 0);
    stays("a pipe");
    ASSERT_EQ(mkdir(path_of(name).c_str(), 0700), 0);
    reap();
    EXPECT_EQ(rmdir(path_of(name).c_str()), 0);
    std::string target = name_of("target");
    Head().gone().write(target);
    ASSERT_EQ(symlink(path_of(target).c_str(), path_of(name).c_str()), 0);
    reap();
    EXPECT_EQ(unlink(path_of(name).c_str()), 0) << "a link is not followed and stays";
    EXPECT_FALSE(exists(target));
}

TEST(Named, WhatIsOfAnotherUserStays) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can make a file of another user";
    }
    std::string name = name_of("user");
    Head().gone().write(name);
    ASSERT_EQ(chown(path_of(name).c_str(), 12345, 12345), 0);
    reap();
    EXPECT_TRUE(exists(name));
    unlink(path_of(name).c_str());
}

thread_local bool is_reaper = false;
std::string race_name;
std::atomic<bool> is_made;
std::thread maker_thread;
umf_memory_provider_handle_t made_provider;

// Just before the reaper removes an orphan, another process begins to make a new one of that name.
int begin_to_make(const char *call) {
    if (is_reaper && strcmp(call, "shm_unlink") == 0) {
        is_reaper = false;
        maker_thread = std::thread([] {
            made_provider = make(race_name);
            is_made = true;
        });
        for (int i = 0; i < 20 && !is_made; i++) {
            usleep(1000); // it must not come that far, however long we wait
        }
    }
    return 0;
}

TEST(Named, ANewObjectWaitsForWhoRemovesTheOldOne) {
    race_name = name_of("successor");
    Head().gone().write(race_name);
    is_reaper = true;
    umf_os_set_fault(begin_to_make);
    reap();
    umf_os_set_fault(nullptr);
    is_reaper = false;
    ASSERT_TRUE(maker_thread.joinable());
    maker_thread.join();
    EXPECT_TRUE(exists(race_name));
    EXPECT_EQ(umfMemoryProviderDestroy(made_provider), UMF_RESULT_SUCCESS);
    EXPECT_FALSE(exists(race_name));
}

// The same by chance.
TEST(Named, ReapersDoNotRemoveSuccessors) {
    std::string name = name_of("race");
    std::atomic<bool> stop{false};
    std::vector<std::thread> reapers;
    for (int i = 0; i < 2; i++) {
        reapers.emplace_back([&] {
            while (!stop) {
                reap();
            }
        });
    }
    for (int round = 0; round < 300; round++) {
        Head().gone().write(name);
        umf_memory_provider_handle_t provider = make(name);
        std::this_thread::yield();
        ASSERT_TRUE(exists(name)) << "round " << round;
        EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
    }
    stop = true;
    for (std::thread &reaper : reapers) {
        reaper.join();
    }
}

TEST(Named, SaysWhenTheFolderCannotBeRead) {
    umf_os_set_fault([](const char *call) { return strcmp(call, "shm_each") == 0 ? EACCES : 0; });
    size_t removed = 77;
    EXPECT_EQ(umfIPCReap(&removed), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(removed, 77u);
    umf_os_set_fault(nullptr);
}

// A consumer that holds a handle of a producer that was killed cleans up after it.
TEST(named, NameOfADeadProducerGoesWithItsRefusedHandle) {
    std::string name = name_of("dead"), text = "proxy over os:visibility=shared,shm_name=" + name;
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    Maker producer([&] {
        umf_memory_pool_handle_t pool = nullptr;
        umf_ipc_handle_t handle = nullptr;
        size_t size = 0;
        umfPoolCreateFromText(text.c_str(), &pool);
        umfGetIPCHandle(umfPoolMalloc(pool, 100), &handle, &size);
        (void)!write(fds[1], handle, size);
    });
    alignas(16) char handle[4096];
    ASSERT_GT(read(fds[0], handle, sizeof(handle)), 0);
    close(fds[0]);
    close(fds[1]);
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    void *ptr = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over os:visibility=shared", &pool), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfPoolGetIPCHandler(pool, &handler), UMF_RESULT_SUCCESS);
    ASSERT_TRUE(exists(name));
    producer.kill();
    EXPECT_NE(umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(handle), &ptr),
              UMF_RESULT_SUCCESS);
    EXPECT_FALSE(exists(name));
    EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
}

} // namespace
