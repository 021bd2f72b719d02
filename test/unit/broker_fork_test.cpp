/* peer/broker: a process forks while its broker answers a request. Parent and child have the right
 * content, and the child never answers for its parent. */
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umf.h>

extern "C" {
#include "peer/broker.h"
#include "peer/transport.h"
#include "system/os.h"
}

#include "fakes/fork_at_rest.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

int make_file(const std::string &text) {
    int fd = memfd_create("broker_fork", MFD_CLOEXEC);
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    return fd;
}

umf_fd_ticket_t publish(int fd) {
    umf_fd_ticket_t ticket = {};
    EXPECT_EQ(umf_ticket_make(fd, &ticket), OK);
    umf_ticket_prepare();
    umf_ticket_publish(&ticket);
    return ticket;
}

/* "" if it is refused. */
std::string content_of(const umf_fd_ticket_t &ticket) {
    char text[32] = {};
    int fd = -1;
    if (umf_ticket_redeem(&ticket, &fd) != OK) {
        return "";
    }
    EXPECT_GE(pread(fd, text, sizeof(text) - 1, 0), 0);
    close(fd);
    return text;
}

/* --- the broker of this process is held within a call --- */

const char *held_call;
std::atomic<bool> is_held{false};
int hold[2]; // what the broker reads from while it is held

int hook(const char *call) {
    char name[16] = {}, byte;
    pthread_getname_np(pthread_self(), name, sizeof(name));
    if (strcmp(call, held_call) == 0 && strcmp(name, "umf-broker") == 0 &&
        !is_held.exchange(true)) {
        EXPECT_EQ(read(hold[0], &byte, 1), 1);
    }
    return 0;
}

void let_go() {
    EXPECT_EQ(write(hold[1], "", 1), 1);
}

/* The state of a thread by the kernel, without memory that a fork of it may have locked. */
bool sleeps(pid_t thread) {
    char path[64], text[128] = {};
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    const char *end = got > 0 ? strrchr(text, ')') : nullptr;
    return end && end[2] == 'S';
}

struct Held {
    const char *call;
    bool has_lock; // of the table, which a fork takes
};

void PrintTo(const Held &held, std::ostream *out) {
    *out << held.call;
}

class BrokerFork : public testing::TestWithParam<Held> {
  protected:
    umf_fd_ticket_t ticket{};
    int file = -1;
    int to_child[2], from_child[2];

    void SetUp() override {
        ASSERT_EQ(umfInit(), OK);
        ASSERT_EQ(umf_transport_set_order("broker"), OK);
        ASSERT_EQ(umf_broker_set_timeout(60000), OK);
        ASSERT_EQ(pipe2(hold, O_CLOEXEC), 0);
        ASSERT_EQ(pipe2(to_child, O_CLOEXEC), 0);
        ASSERT_EQ(pipe2(from_child, O_CLOEXEC), 0);
        file = make_file("of the parent");
        ticket = publish(file);
        is_held = false;
        held_call = GetParam().call;
        umf_os_set_fault(hook);
    }
    void TearDown() override {
        umf_os_set_fault(nullptr);
        umf_broker_stop();
        umf_ticket_drop(&ticket);
        for (int fd :
             {file, hold[0], hold[1], to_child[0], to_child[1], from_child[0], from_child[1]}) {
            close(fd);
        }
        umf_broker_set_timeout(5000);
        umf_transport_set_order("self,proc,pidfd,broker");
    }

    /* As a process of its own, beside the request that its parent answers. */
    int child() {
        char byte;
        alarm(60); // instead of a wait for ever
        umf_os_set_fault(nullptr);
        umf_fd_ticket_t own = publish(make_file("of the child"));
        EXPECT_EQ(content_of(own), "of the child");
        if (!GetParam().has_lock) { // the parent is held, and nobody answers in its place
            EXPECT_EQ(umf_broker_set_timeout(100), OK);
            EXPECT_EQ(content_of(ticket), "");
            EXPECT_EQ(umf_broker_set_timeout(60000), OK);
        }
        EXPECT_EQ(write(from_child[1], "", 1), 1);
        EXPECT_EQ(read(to_child[0], &byte, 1), 1);
        EXPECT_EQ(content_of(ticket), "of the parent");
        EXPECT_EQ(content_of(own), "of the child");
        umf_broker_stop();
        return HasFailure() ? 1 : 0;
    }

    /* With the lock the fork waits until the broker has answered. */
    pid_t fork_now() {
        if (!GetParam().has_lock) {
            return fork_at_rest();
        }
        std::atomic<bool> begins{false};
        const pid_t self = static_cast<pid_t>(syscall(SYS_gettid));
        std::thread frees([&] {
            while (!begins || !sleeps(self)) {
                sched_yield();
            }
            let_go();
        });
        begins = true;
        pid_t pid = fork();
        if (pid == 0) {
            frees.detach(); // it is a thread of the parent
        } else {
            frees.join();
        }
        return pid;
    }
};

TEST_P(BrokerFork, WhileARequestIsAnswered) {
    if (UMF_TEST_TSAN || (UMF_TEST_ASAN && GetParam().has_lock)) {
        GTEST_SKIP() << "a child of a fork beside running threads may hang under the sanitizer";
    }
    char byte;
    std::string got;
    std::thread consumer([&] { got = content_of(ticket); });
    while (!is_held) {
        sched_yield();
    }
    pid_t pid = fork_now();
    if (pid == 0) {
        _exit(child());
    }
    EXPECT_EQ(read(from_child[0], &byte, 1), 1);
    if (!GetParam().has_lock) {
        let_go();
    }
    consumer.join();
    EXPECT_EQ(got, "of the parent");
    EXPECT_EQ(content_of(ticket), "of the parent");
    EXPECT_EQ(write(to_child[1], "", 1), 1);
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(content_of(ticket), "of the parent") << "the end of the child ends no connection";
}

INSTANTIATE_TEST_SUITE_P(Each, BrokerFork,
                         testing::Values(Held{"receive", false}, Held{"identity", true},
                                         Held{"send", true}),
                         [](const auto &param) { return std::string(param.param.call); });

} // namespace
