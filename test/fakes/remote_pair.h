/* Tests of remote memory between processes of this machine: an owner that obeys orders, and a peer
 * in the program of the test. By UCX, and by shared memory. */
#ifndef UMF_TEST_FAKES_REMOTE_PAIR_H
#define UMF_TEST_FAKES_REMOTE_PAIR_H

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/remote.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/remote_range.h"
#include "fakes/role.h"
#include "fakes/shared_bytes.h"

// An owner: a block of its pool is published, and it obeys orders.
//   argument: <text of the pool>|<bytes>|<rights>|<deadline>|<key file>
inline int owner(Socket &socket, const std::string &argument) {
    is_local = true; // the peer decides
    std::vector<std::string> words;
    for (size_t at = 0; at <= argument.size();) {
        size_t end = std::min(argument.find('|', at), argument.size());
        words.push_back(argument.substr(at, end - at));
        at = end + 1;
    }
    size_t size = std::stoul(words[1]);
    umf_memory_pool_handle_t pool = nullptr;
    umf_remote_export_handle_t published = nullptr;
    umf_remote_handle_t remote =
        make_context(std::stoul(words[3]), words[4].empty() ? nullptr : words[4].c_str());
    if (!remote || umfPoolCreateFromText(words[0].c_str(), &pool) != OK) {
        return 1;
    }
    char *block = static_cast<char *>(umfPoolMalloc(pool, size));
    memset(block, 'a', size);
    if (umfRemotePublish(remote, block, size, static_cast<unsigned>(std::stoul(words[2])),
                         &published) != OK) {
        return 2;
    }
    socket.send(bytes_of(published));
    for (std::string command; !(command = socket.receive()).empty();) {
        umf_result_t result = OK;
        std::string answer;
        if (command == "withdraw") {
            result = umfRemoteWithdraw(published);
        } else if (command == "free") {
            result = umfFree(block);
        } else if (command == "suspend") {
            result = umfPoolsSuspend(&pool, 1, nullptr, nullptr);
        } else if (command == "resume") {
            result = umfPoolsResume(&pool, 1, nullptr, nullptr);
        } else if (command.compare(0, 5, "fill ") == 0) {
            fill_shared(block, command[5], size);
        } else if (command == "read") {
            answer = read_shared(block, std::min(size, size_t{4096}));
        } else if (command == "end") {
            result = umfRemoteDestroy(remote);
        } else {
            break;
        }
        socket.send(answer.empty() ? std::to_string(result) : answer);
    }
    return 0;
}

// A peer that gets or puts until it is killed.
inline int peer(Socket &socket, const std::string &task) {
    std::string handle = socket.receive();
    is_local = task.size() > 3;
    umf_remote_handle_t remote = make_context(10000);
    umf_remote_memory_handle_t memory = nullptr;
    if (umfRemoteOpen(remote, handle.data(), handle.size(), &memory) != OK) {
        return 1;
    }
    std::vector<char> bytes(16 * MiB);
    for (int round = 0;; round++) {
        umf_result_t result = task.compare(0, 3, "get") == 0
                                  ? umfRemoteGet(memory, 0, bytes.data(), bytes.size(), nullptr)
                                  : umfRemotePut(memory, 0, bytes.data(), bytes.size(), nullptr);
        if (result != OK || (round == 0 && !socket.send("busy"))) {
            return 2;
        }
    }
}

inline const Roles roles = {{"owner", owner}, {"peer", peer}};

class Remote : public ::testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        is_local = GetParam();
    }
    umf_remote_handle_t remote = nullptr;
    umf_remote_memory_handle_t memory = nullptr;
    std::unique_ptr<Process> other;
    std::string handle;

    void start(const std::string &pool, size_t size, unsigned rights, uint64_t deadline = 10000,
               const std::string &key = "", const std::string &owners_key = "-",
               uint64_t owners_deadline = 10000) {
        other = std::make_unique<Process>("owner", pool + "|" + std::to_string(size) + "|" +
                                                       std::to_string(rights) + "|" +
                                                       std::to_string(owners_deadline) + "|" +
                                                       (owners_key == "-" ? key : owners_key));
        handle = other->socket.receive();
        ASSERT_GT(handle.size(), 100u) << "the owner does not start";
        remote = make_context(deadline, key.empty() ? nullptr : key.c_str());
        ASSERT_NE(remote, nullptr);
    }
    umf_result_t open(const std::string &bytes) {
        return umfRemoteOpen(remote, bytes.data(), bytes.size(), &memory);
    }
    void open() {
        ASSERT_EQ(open(handle), OK);
    }
    // The deadline is so short that it may pass while a machine with much to do connects.
    void open_in_time() {
        umf_result_t result = LOST;
        for (int tries = 0; result == LOST && tries < 100; tries++) {
            result = open(handle);
        }
        ASSERT_EQ(result, OK) << umfLastErrorText();
    }
    void TearDown() override {
        if (memory) {
            EXPECT_EQ(umfRemoteClose(memory), OK);
        }
        EXPECT_EQ(umfRemoteDestroy(remote), OK);
    }
    void order(const std::string &command) {
        ASSERT_EQ(other->socket.call(command), "0") << command;
    }
    umf_result_t get(size_t offset, std::vector<char> *to) {
        return umfRemoteGet(memory, offset, to->data(), to->size(), nullptr);
    }
};

inline uint64_t now_ms() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

#endif
