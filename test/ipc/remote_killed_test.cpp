// The other process is killed within a call of the system that UCX makes, at any of those of a
// transfer: of an owner, which must live, and of a peer, whose operation ends.
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <sys/syscall.h>

#include <gtest/gtest.h>

#include "fakes/remote_pair.h"
#include "fakes/scale.h"

namespace {

constexpr size_t SIZE = 16 * MiB;
constexpr unsigned CALLS = 400; // of a transfer of this size, about

std::atomic<pid_t> victim{0};
std::atomic<int> calls_left{0};
std::atomic<bool> is_dead{false};

void kill_within(pid_t pid, int calls) {
    is_dead = false;
    calls_left = calls;
    victim = pid;
}

// The kernel has closed the connections of a process that waitid finds.
void called(int fd) {
    int domain = 0;
    socklen_t size = sizeof(domain);
    if (!victim || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
        domain != AF_INET || calls_left-- != 0) {
        return;
    }
    siginfo_t info = {};
    pid_t pid = victim.exchange(0);
    EXPECT_EQ(::kill(pid, SIGKILL), 0);
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
    is_dead = true;
}

} // namespace

// UCX finds these before those of the C library.
extern "C" {
__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr *message, int flags) {
    called(fd);
    return syscall(SYS_sendmsg, fd, message, flags);
}

__attribute__((visibility("default"))) ssize_t send(int fd, const void *data, size_t size,
                                                    int flags) {
    called(fd);
    return syscall(SYS_sendto, fd, data, size, flags, nullptr, 0);
}

__attribute__((visibility("default"))) ssize_t recv(int fd, void *data, size_t size, int flags) {
    called(fd);
    return syscall(SYS_recvfrom, fd, data, size, flags, nullptr, nullptr);
}
}

class Killed : public ::testing::TestWithParam<const char *> {
  protected:
    std::string task = GetParam();
    std::mt19937 random{1};

    void SetUp() override {
        is_local = false;
    }
    int some_calls() {
        return static_cast<int>(random() % CALLS);
    }
};

TEST_P(Killed, APeerWithinACallOfItsOwner) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_remote_export_handle_t published = nullptr;
    umf_remote_memory_handle_t memory = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over os", &pool), OK);
    void *block = umfPoolMalloc(pool, SIZE);
    memset(block, 'a', SIZE);
    umf_remote_handle_t remote = make_context(10000);
    ASSERT_EQ(umfRemotePublish(remote, block, SIZE, UMF_REMOTE_GET | UMF_REMOTE_PUT, &published),
              OK);
    for (size_t round = 0; round < scaled(200); round++) {
        Process busy("peer", task);
        ASSERT_TRUE(busy.socket.send(bytes_of(published)));
        ASSERT_EQ(busy.socket.receive(), "busy");
        kill_within(busy.pid, some_calls());
        while (!is_dead) {
            usleep(100);
        }
        busy.kill();
    }
    std::string handle = bytes_of(published);
    ASSERT_EQ(umfRemoteOpen(remote, handle.data(), handle.size(), &memory), OK)
        << umfLastErrorText();
    std::vector<char> bytes(SIZE);
    EXPECT_EQ(umfRemoteGet(memory, 0, bytes.data(), SIZE, nullptr), OK) << umfLastErrorText();
    EXPECT_EQ(umfRemoteClose(memory), OK);
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_P(Killed, AnOwnerWithinACallOfItsPeer) {
    umf_remote_handle_t remote = make_context(10000);
    std::vector<char> bytes(SIZE);
    for (size_t round = 0; round < scaled(200); round++) {
        umf_remote_memory_handle_t memory = nullptr;
        Process other("owner", "proxy over os|" + std::to_string(SIZE) + "|3|10000|");
        std::string handle = other.socket.receive();
        ASSERT_EQ(umfRemoteOpen(remote, handle.data(), handle.size(), &memory), OK)
            << umfLastErrorText();
        kill_within(other.pid, some_calls());
        umf_result_t result = OK;
        while (result == OK) {
            result = task == "get" ? umfRemoteGet(memory, 0, bytes.data(), SIZE, nullptr)
                                   : umfRemotePut(memory, 0, bytes.data(), SIZE, nullptr);
        }
        EXPECT_EQ(result, LOST);
        EXPECT_EQ(umfLastReason(), UMF_REASON_GONE);
        EXPECT_EQ(umfRemoteClose(memory), OK);
        other.kill();
    }
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
}

INSTANTIATE_TEST_SUITE_P(By, Killed, ::testing::Values("get", "put"),
                         [](const auto &one) { return std::string(one.param); });

int main(int argc, char **argv) {
    setenv("UCX_TCP_SNDBUF", "32k", 1); // one call seldom sends all
    return run_remote_tests(argc, argv, roles);
}
