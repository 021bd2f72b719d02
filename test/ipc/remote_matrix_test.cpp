// What happens to an owner and to its range (umf/remote.h), while a peer gets or puts and while it
// does not, by UCX and by shared memory. Each case has 20 rounds in a long run, and with
// UMF_TEST_SCALE=1000 there are 200.
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/remote.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/remote_range.h"
#include "fakes/role.h"
#include "fakes/scale.h"
#include "fakes/shared_bytes.h"

namespace {

constexpr size_t SIZE = 2 * MiB;
constexpr size_t LARGE = 64 * MiB;
constexpr size_t AT = 4096, PART = SIZE - 2 * AT; // a transfer leaves both ends alone

// Publishes a range of a pool, and obeys orders. Answers: the handle, or a result.
//   argument: <deadline in ms> <text of the pool, or "large">
int owner(Socket &socket, const std::string &argument) {
    size_t space = argument.find(' ');
    std::string text = argument.substr(space + 1);
    is_local = true; // the peer decides
    size_t size = SIZE;
    umf_memory_pool_handle_t pool = nullptr;
    umf_remote_handle_t remote = nullptr;
    umf_remote_export_handle_t published = nullptr;
    char *block = nullptr;
    if (text == "large") {
        text = "proxy over os";
        size = LARGE;
    }
    if (umfPoolCreateFromText(text.c_str(), &pool) != OK) {
        return 1;
    }
    for (std::string command; !(command = socket.receive()).empty();) {
        std::string answer = std::to_string(OK);
        if (command == "publish") { // anew
            umfRemoteWithdraw(published);
            umfFree(block);
            remote = remote ? remote : make_context(std::stoul(argument));
            block = static_cast<char *>(umfPoolMalloc(pool, size));
            memset(block, 'a', size);
            if (umfRemotePublish(remote, block, size, UMF_REMOTE_GET | UMF_REMOTE_PUT,
                                 &published) != OK) {
                return 2;
            }
            answer = bytes_of(published);
        } else if (command == "withdraw") {
            answer = std::to_string(umfRemoteWithdraw(published));
            published = nullptr;
        } else if (command == "free") {
            answer = std::to_string(umfFree(block));
            block = nullptr;
        } else if (command == "suspend") {
            answer = std::to_string(umfPoolsSuspend(&pool, 1, nullptr, nullptr));
        } else if (command == "resume") {
            answer = std::to_string(umfPoolsResume(&pool, 1, nullptr, nullptr));
        } else if (command == "end") {
            answer = std::to_string(umfRemoteDestroy(remote));
            remote = nullptr;
            published = nullptr;
        } else if (command == "ends") { // what lies around the transfers
            answer = read_shared(block, AT) + read_shared(block + AT + PART, AT);
        } else if (command == "middle") {
            answer = read_shared(block + AT, AT);
        }
        socket.send(answer);
    }
    return 0;
}

const Roles roles = {{"owner", owner}};

struct Row {
    const char *name, *pool;
    const char *order; // NULL: a signal
    int signal;
    umf_result_t result; // of an operation that begins later
    umf_reason_t reason;
};

constexpr Row rows[] = {
    {"Killed", "proxy over os", nullptr, SIGKILL, LOST, UMF_REASON_GONE},
    {"Stopped", "proxy over os", nullptr, SIGSTOP, LOST, UMF_REASON_DEADLINE},
    {"ContextEnds", "proxy over os", "end", 0, LOST, UMF_REASON_GONE},
    {"Withdrawn", "disjoint over os", "withdraw", 0, BAD, UMF_REASON_STALE},
    {"Freed", "proxy over os", "free", 0, BAD, UMF_REASON_STALE},
    {"Suspended", "disjoint over linux_vmm", "suspend", 0, BAD, UMF_REASON_STALE},
    {"Resumed", "disjoint over linux_vmm", "suspend", 0, BAD, UMF_REASON_STALE},
};

// row, put, while it is under way, by shared memory
class Matrix : public ::testing::TestWithParam<std::tuple<Row, bool, bool, bool>> {
  protected:
    umf_remote_handle_t remote = nullptr;
    umf_remote_memory_handle_t memory = nullptr;
    std::unique_ptr<Process> other;
    std::vector<char> bytes = std::vector<char>(PART);

    void TearDown() override {
        EXPECT_EQ(umfRemoteDestroy(remote), OK);
    }
    void order(const std::string &command) {
        ASSERT_EQ(other->socket.call(command), "0") << command;
    }
    // Opens a new range of the owner, which is started if there is none.
    void open(const Row &row) {
        if (!other) {
            // A peer that gives up in the middle keeps an owner waiting, over UCX.
            other = std::make_unique<Process>(
                "owner", std::string(row.signal == SIGSTOP ? "500 " : "20000 ") + row.pool);
        }
        std::string handle = other->socket.call("publish");
        ASSERT_GT(handle.size(), 100u);
        umf_result_t result = LOST;
        for (int tries = 0; result == LOST && tries < 100; tries++) { // its deadline is short
            result = umfRemoteOpen(remote, handle.data(), handle.size(), &memory);
        }
        ASSERT_EQ(result, OK) << umfLastErrorText();
    }
    umf_result_t transfer(bool is_put, umf_remote_op_handle_t *op) {
        memset(bytes.data(), 'p', PART);
        return is_put ? umfRemotePut(memory, AT, bytes.data(), PART, op)
                      : umfRemoteGet(memory, AT, bytes.data(), PART, op);
    }
    void check_success(bool is_put) {
        if (!is_put) {
            EXPECT_TRUE(is_all(bytes, 'a'));
        }
    }
    void strike(const Row &row) {
        if (row.signal == SIGSTOP) {
            stop(other->pid);
        } else if (row.signal) {
            ASSERT_EQ(::kill(other->pid, row.signal), 0);
        } else {
            order(row.order);
        }
    }
    void recover(const Row &row, bool is_put) {
        if (row.signal == SIGKILL) {
            other->kill();
            other.reset();
        } else if (row.signal == SIGSTOP) {
            ASSERT_EQ(::kill(other->pid, SIGCONT), 0);
        } else if (std::string(row.order) == "suspend") {
            order("resume");
        }
        if (std::string(row.name) == "Resumed") {
            umf_result_t result = transfer(is_put, nullptr); // the new generation
            EXPECT_EQ(result, OK) << umfLastErrorText();
            check_success(is_put);
            ASSERT_EQ(other->socket.call("middle"), std::string(AT, is_put ? 'p' : 'a'));
        }
        bool has_block = !row.signal && std::string(row.order) != "free";
        if (has_block) {
            ASSERT_EQ(other->socket.call("ends"), std::string(2 * AT, 'a'));
        }
    }
};

} // namespace

TEST_P(Matrix, Case) {
    const auto &[row, is_put, is_midway, by_memory] = GetParam();
    is_local = by_memory;
    remote = make_context(row.signal == SIGSTOP ? 100 : 20000);
    ASSERT_NE(remote, nullptr);
    for (size_t round = 0; round < scaled(20); round++) {
        umf_remote_op_handle_t op = nullptr;
        open(row);
        if (HasFatalFailure()) {
            return;
        }
        if (row.signal != SIGSTOP) { // its deadline may pass on a machine with much to do
            ASSERT_EQ(transfer(is_put, nullptr), OK) << umfLastErrorText();
            check_success(is_put);
        }
        if (is_midway) {
            ASSERT_EQ(transfer(is_put, &op), OK);
        }
        strike(row);
        if (is_midway) { // it may have been done before, or failed for the same reason
            umf_result_t result = umfRemoteWait(op, UINT64_MAX);
            ASSERT_TRUE(result == OK || result == row.result) << umfLastErrorText();
            if (result == OK) {
                check_success(is_put);
            }
        }
        EXPECT_EQ(transfer(is_put, nullptr), row.result) << umfLastErrorText();
        umf_reason_t reason = umfLastReason();
        bool gave_up = row.signal == SIGSTOP && is_midway && reason == UMF_REASON_GONE;
        EXPECT_TRUE(reason == row.reason || gave_up) << umfLastErrorText();
        recover(row, is_put);
        EXPECT_EQ(umfRemoteClose(memory), OK);
        if (HasFailure()) {
            return;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Of, Matrix,
                         ::testing::Combine(::testing::ValuesIn(rows), ::testing::Bool(),
                                            ::testing::Bool(), ::testing::Bool()),
                         [](const auto &one) {
                             return std::string(std::get<0>(one.param).name) +
                                    (std::get<1>(one.param) ? "_Put" : "_Get") +
                                    (std::get<2>(one.param) ? "_Midway" : "_Idle") +
                                    (std::get<3>(one.param) ? "_SharedMemory" : "_Ucx");
                         });

namespace {

// Opens a range of an owner that is stopped, in vain. Only this side knows of the attempt.
void open_in_vain(umf_remote_handle_t remote, const Process &owner, const std::string &handle) {
    umf_remote_memory_handle_t memory = nullptr;
    stop(owner.pid);
    ASSERT_EQ(umfRemoteOpen(remote, handle.data(), handle.size(), &memory), LOST);
    ASSERT_EQ(::kill(owner.pid, SIGCONT), 0);
}

// Stops the owner when the first byte of a get has arrived. The result of the get.
umf_result_t get_and_stop(umf_remote_memory_handle_t memory, const Process &owner) {
    std::vector<char> bytes(LARGE, 'p');
    umf_remote_op_handle_t op = nullptr;
    umf_result_t result = umfRemoteGet(memory, 0, bytes.data(), LARGE, &op);
    EXPECT_EQ(result, OK);
    do {
        result = umfRemoteWait(op, 1);
    } while (result == UMF_RESULT_ERROR_NOT_SUPPORTED && read_shared(bytes.data(), 1) == "p");
    stop(owner.pid);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        result = umfRemoteWait(op, 20000);
    }
    EXPECT_EQ(::kill(owner.pid, SIGCONT), 0);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) { // the buffer must outlive the operation
        EXPECT_NE(umfRemoteWait(op, UINT64_MAX), result);
    }
    return result;
}

} // namespace

// UCX counts the endpoints of two workers to find those that belong together.
TEST(Deadline, EndsAGetAfterAnAttemptToConnectThatFailed) {
    is_local = false;
    Process owner("owner", "20000 large");
    umf_remote_handle_t remote = make_context(100);
    std::string handle = owner.socket.call("publish");
    for (int round = 0; round < 2; round++) {
        umf_remote_memory_handle_t memory = nullptr;
        open_in_vain(remote, owner, handle);
        for (int tries = 0; !memory && tries < 200; tries++) { // its deadline is short
            umfRemoteOpen(remote, handle.data(), handle.size(), &memory);
        }
        ASSERT_NE(memory, nullptr) << umfLastErrorText();
        umf_result_t result = get_and_stop(memory, owner);
        EXPECT_TRUE(result == OK || result == LOST) << result;
        EXPECT_EQ(umfRemoteClose(memory), OK);
    }
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
}

int main(int argc, char **argv) {
    return run_remote_tests(argc, argv, roles);
}
