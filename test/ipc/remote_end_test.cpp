// Processes that end in the moment in which they connect, over UCX: an owner then ends as it does
// at any other time, and the end of a peer is no harm to its owner.
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/remote.h>
#include <umf/text.h>

#include "fakes/namespaces.h"
#include "fakes/remote_range.h"
#include "fakes/role.h"
#include "fakes/scale.h"

namespace {

constexpr size_t SIZE = 65536;
constexpr int PEERS = 4;

// A context for each message, which is the number of microseconds until it ends. Answers: the
// handle, then "ended".
int brief_owner(Socket &socket, const std::string &deadline) {
    umf_memory_pool_handle_t pool = nullptr;
    is_local = false;
    if (umfPoolCreateFromText("proxy over os", &pool) != OK) {
        return 1;
    }
    void *block = umfPoolMalloc(pool, SIZE);
    for (std::string command; !(command = socket.receive()).empty();) {
        umf_remote_handle_t remote = make_context(std::stoul(deadline));
        umf_remote_export_handle_t published = nullptr;
        if (umfRemotePublish(remote, block, SIZE, UMF_REMOTE_GET, &published) != OK) {
            return 2;
        }
        socket.send(bytes_of(published));
        std::this_thread::sleep_for(std::chrono::microseconds(std::stoul(command)));
        socket.send(std::to_string(umfRemoteDestroy(remote)));
    }
    return 0;
}

// Opens the range of the first message again and again, until it is killed.
int restless_peer(Socket &socket, const std::string &) {
    is_local = false;
    umf_remote_handle_t remote = make_context(10000);
    std::string handle = socket.receive();
    for (umf_result_t result = OK; result == OK;) {
        umf_remote_memory_handle_t memory = nullptr;
        result = umfRemoteOpen(remote, handle.data(), handle.size(), &memory);
        if (result == OK) {
            umfRemoteClose(memory);
        }
    }
    return 1;
}

bool run(const char *command) {
    return system((std::string(command) + " 2>/dev/null").c_str()) == 0;
}

// In a network of its own, opens the range of a machine that does not answer. Its argument is the
// deadline. Sends the result, the reason and the milliseconds that it took, or "none" where the
// system denies such a network.
int castaway(Socket &socket, const std::string &deadline) {
    char key_file[] = "/tmp/umf_key_XXXXXX", key[32] = {1};
    bool is_there = enter_namespaces(CLONE_NEWNET | CLONE_NEWNS) && hide_mounts() &&
                    mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0 &&
                    run("ip link add umf0 type veth peer name umf1 && ip link set umf1 up && "
                        "ip addr add 10.77.0.2/24 dev umf0 && ip link set umf0 up");
    if (!is_there) {
        return socket.send("none") ? 0 : 1;
    }
    int file = mkstemp(key_file);
    EXPECT_EQ(write(file, key, sizeof(key)), static_cast<ssize_t>(sizeof(key)));
    close(file);
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    params.library = getenv("UMF_TEST_UCX");
    params.devices = "umf0";
    params.key_file = key_file;
    params.flags = UMF_REMOTE_NETWORK_ONLY;
    params.deadline_ms = std::stoul(deadline);
    umf_memory_pool_handle_t pool = nullptr;
    umf_remote_handle_t owner = nullptr, peer = nullptr;
    umf_remote_export_handle_t published = nullptr;
    umf_remote_memory_handle_t memory = nullptr;
    EXPECT_EQ(umfPoolCreateFromText("proxy over os", &pool), OK);
    EXPECT_EQ(umfRemoteCreate(&params, &owner), OK);
    EXPECT_EQ(umfRemotePublish(owner, umfPoolMalloc(pool, SIZE), SIZE, UMF_REMOTE_GET, &published),
              OK);
    std::string handle = bytes_of(published);
    EXPECT_EQ(umfRemoteDestroy(owner), OK);
    EXPECT_TRUE(run("ip addr flush dev umf0 && ip addr add 10.77.0.1/24 dev umf0 && "
                    "ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:07 dev umf0"));
    EXPECT_EQ(umfRemoteCreate(&params, &peer), OK);
    auto start = std::chrono::steady_clock::now();
    umf_result_t result = umfRemoteOpen(peer, handle.data(), handle.size(), &memory);
    umf_reason_t reason = umfLastReason();
    auto took = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(umfRemoteDestroy(peer), OK);
    unlink(key_file);
    socket.send(std::to_string(result) + " " + std::to_string(reason) + " " +
                std::to_string(std::chrono::nanoseconds(took).count() / 1000000));
    return testing::Test::HasFailure();
}

const Roles roles = {
    {"brief_owner", brief_owner}, {"restless_peer", restless_peer}, {"castaway", castaway}};

// Opens the range until its owner is gone.
void open_until_gone(umf_remote_handle_t remote, const std::string &handle,
                     std::atomic<int> &opened) {
    umf_result_t result = OK;
    while (result == OK) {
        umf_remote_memory_handle_t memory = nullptr;
        result = umfRemoteOpen(remote, handle.data(), handle.size(), &memory);
        if (result == OK) {
            opened++;
            EXPECT_EQ(umfRemoteClose(memory), OK);
        }
    }
    EXPECT_TRUE(result == LOST || result == BAD) << result;
}

} // namespace

TEST(OwnerEnds, WhilePeersConnect) {
    std::mt19937 random(1);
    std::atomic<int> opened{0};
    is_local = false;
    Process owner("brief_owner", "10000");
    std::vector<umf_remote_handle_t> remotes;
    for (int i = 0; i < PEERS; i++) {
        remotes.push_back(make_context(10000));
    }
    for (size_t round = 0; round < scaled(400); round++) {
        auto lives = round == 0 ? 500000 : random() % 6000; // once long enough for an open
        std::string handle = owner.socket.call(std::to_string(lives));
        ASSERT_GT(handle.size(), 100u) << "the owner has ended after round " << round;
        std::vector<std::thread> threads;
        for (umf_remote_handle_t remote : remotes) {
            threads.emplace_back([&, remote] { open_until_gone(remote, handle, opened); });
        }
        std::string ended = owner.socket.receive();
        for (std::thread &thread : threads) {
            thread.join();
        }
        ASSERT_EQ(ended, "0") << "the owner ended with status " << owner.wait() << " in round "
                              << round;
    }
    EXPECT_GT(opened, 0);
    for (umf_remote_handle_t remote : remotes) {
        EXPECT_EQ(umfRemoteDestroy(remote), OK);
    }
}

TEST(PeersEnd, WhileTheyConnect) {
    std::mt19937 random(2);
    is_local = false;
    Process owner("brief_owner", "10000");
    umf_remote_handle_t remote = make_context(10000);
    std::string handle = owner.socket.call("600000000");
    ASSERT_GT(handle.size(), 100u);
    for (size_t round = 0; round < scaled(200); round++) {
        std::vector<std::unique_ptr<Process>> peers;
        for (int i = 0; i < PEERS; i++) {
            peers.push_back(std::make_unique<Process>("restless_peer", ""));
            peers.back()->socket.send(handle);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(15000 + random() % 10000));
        for (auto &peer : peers) {
            EXPECT_EQ(waitpid(peer->pid, nullptr, WNOHANG), 0) << "a peer has ended by itself";
            peer->kill();
        }
        umf_remote_memory_handle_t memory = nullptr;
        ASSERT_EQ(umfRemoteOpen(remote, handle.data(), handle.size(), &memory), OK)
            << umfLastErrorText() << " in round " << round;
        EXPECT_EQ(umfRemoteClose(memory), OK);
    }
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
}

// UCX connects without waiting, so the deadline holds from the first packet.
TEST(Deadline, EndsAnAttemptToReachAMachineThatDoesNotAnswer) {
    Process process("castaway", "500");
    std::string answer = process.socket.receive();
    if (answer == "none") {
        GTEST_SKIP() << "no network of its own here";
    }
    int result = 0, reason = 0, took = 0;
    ASSERT_EQ(sscanf(answer.c_str(), "%d %d %d", &result, &reason, &took), 3) << answer;
    EXPECT_EQ(result, LOST);
    EXPECT_EQ(reason, UMF_REASON_DEADLINE);
    EXPECT_LT(took, 2000);
    EXPECT_EQ(process.wait(), 0);
}

int main(int argc, char **argv) {
    return run_remote_tests(argc, argv, roles);
}
