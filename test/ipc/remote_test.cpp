// Remote memory (umf/remote.h) between processes of this machine, over UCX: success,
// ends, and what must be refused.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/remote.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/remote_range.h"
#include "fakes/role.h"
#include "fakes/shared_bytes.h"
#include "fakes/sum.h"

namespace {

// An owner: a block of its pool is published, and it obeys orders.
//   argument: <text of the pool>|<bytes>|<rights>|<deadline>|<key file>
int owner(Socket &socket, const std::string &argument) {
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
int peer(Socket &socket, const std::string &task) {
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

const Roles roles = {{"owner", owner}, {"peer", peer}};

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

uint64_t now_ms() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

} // namespace

TEST_P(Remote, GetAndPut) {
    for (const char *pool : {"disjoint over linux_vmm", "proxy over os", "coalescing over os"}) {
        SCOPED_TRACE(pool);
        start(pool, 9 * MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT);
        open();
        size_t size = 0;
        EXPECT_EQ(umfRemoteGetSize(memory, &size), OK);
        EXPECT_EQ(size, 9 * MiB);
        std::vector<char> bytes(9 * MiB);
        EXPECT_EQ(get(0, &bytes), OK);
        EXPECT_TRUE(is_all(bytes, 'a'));
        for (size_t part : {1, 64, 9000, 100000, 5000000}) {
            std::vector<char> sent(part, static_cast<char>('b' + part % 20)), got(part);
            EXPECT_EQ(umfRemotePut(memory, 12345, sent.data(), part, nullptr), OK) << part;
            EXPECT_EQ(get(12345, &got), OK) << part;
            EXPECT_EQ(got, sent) << part;
        }
        std::vector<char> before(12345);
        EXPECT_EQ(get(0, &before), OK);
        EXPECT_TRUE(is_all(before, 'a'));
        EXPECT_EQ(umfRemoteGet(memory, 9 * MiB, nullptr, 0, nullptr), OK) << "nothing";
        EXPECT_EQ(umfRemoteClose(memory), OK);
        memory = nullptr;
        EXPECT_EQ(umfRemoteDestroy(remote), OK);
        remote = nullptr;
    }
}

TEST_P(Remote, ManyOperationsAtOnce) {
    start("disjoint over os", 8 * MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT);
    open();
    constexpr size_t N = 64, PART = 8 * MiB / N;
    std::vector<std::vector<char>> sent(N), got(N, std::vector<char>(PART));
    std::vector<umf_remote_op_handle_t> ops(N);
    for (size_t i = 0; i < N; i++) {
        sent[i].assign(PART, static_cast<char>(i));
        ASSERT_EQ(umfRemotePut(memory, i * PART, sent[i].data(), PART, &ops[i]), OK);
    }
    for (umf_remote_op_handle_t op : ops) {
        EXPECT_EQ(umfRemoteWait(op, UINT64_MAX), OK);
    }
    for (size_t i = 0; i < N; i++) {
        ASSERT_EQ(umfRemoteGet(memory, i * PART, got[i].data(), PART, &ops[i]), OK);
    }
    for (size_t i = 0; i < N; i++) {
        EXPECT_EQ(umfRemoteWait(ops[i], UINT64_MAX), OK);
        EXPECT_EQ(got[i], sent[i]);
    }
    EXPECT_EQ(umfRemoteWait(ops[0], 0), BAD) << "it was ended";
}

TEST_P(Remote, WrongArguments) {
    start("proxy over os", MiB, UMF_REMOTE_GET);
    open();
    std::vector<char> bytes(MiB + 1);
    EXPECT_EQ(get(0, &bytes), BAD) << "beyond the end";
    EXPECT_EQ(umfRemoteGet(memory, MiB + 1, bytes.data(), 0, nullptr), BAD);
    EXPECT_EQ(umfRemoteGet(memory, SIZE_MAX, bytes.data(), 2, nullptr), BAD);
    EXPECT_EQ(umfRemoteGet(memory, 2, bytes.data(), SIZE_MAX, nullptr), BAD);
    EXPECT_EQ(umfRemoteGet(memory, 0, nullptr, 1, nullptr), BAD);
    EXPECT_EQ(umfRemoteGet(nullptr, 0, bytes.data(), 1, nullptr), BAD);
    EXPECT_EQ(umfRemotePut(memory, 0, bytes.data(), 1, nullptr), BAD) << "no right";
    EXPECT_EQ(umfLastReason(), UMF_REASON_DENIED);
    umf_remote_export_handle_t published = nullptr;
    EXPECT_EQ(umfRemotePublish(remote, bytes.data(), 1, UMF_REMOTE_GET, &published), BAD)
        << "of no pool";
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over os", &pool), OK);
    char *block = static_cast<char *>(umfPoolMalloc(pool, 4096));
    EXPECT_EQ(umfRemotePublish(remote, block, 1 << 20, UMF_REMOTE_GET, &published), BAD);
    EXPECT_EQ(umfRemotePublish(remote, block, 0, UMF_REMOTE_GET, &published), BAD);
    EXPECT_EQ(umfRemotePublish(remote, block, 1, 0, &published), BAD);
    EXPECT_EQ(umfRemotePublish(remote, block, 1, 4, &published), BAD);
    ASSERT_EQ(umfRemotePublish(remote, block, 4096, UMF_REMOTE_GET, &published), OK);
    size_t size = 10;
    EXPECT_EQ(umfRemoteGetHandle(published, bytes.data(), &size), BAD);
    EXPECT_LE(size, size_t{UMF_REMOTE_HANDLE_MAX});
    EXPECT_GT(size, 100u);
    size = 0;
    EXPECT_EQ(umfRemoteGetHandle(published, nullptr, &size), OK);
    EXPECT_EQ(umfRemoteWithdraw(published), OK);
    EXPECT_EQ(umfRemoteWithdraw(published), BAD);
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    umf_remote_handle_t second = nullptr;
    EXPECT_EQ(umfRemoteCreate(nullptr, nullptr), BAD);
    params.devices = "eth0";
    EXPECT_EQ(umfRemoteCreate(&params, &second), BAD) << "no key";
    params.devices = nullptr;
    params.library = "libno_such_ucx.so";
    EXPECT_EQ(umfRemoteCreate(&params, &second), UMF_RESULT_ERROR_NOT_SUPPORTED);
    params.library = nullptr;
    params.key_file = "/no/such/key";
    EXPECT_EQ(umfRemoteCreate(&params, &second), BAD);
    params.struct_size = 8;
    EXPECT_EQ(umfRemoteCreate(&params, &second), BAD);
}

TEST_P(Remote, ForgedHandles) {
    start("proxy over os", MiB, UMF_REMOTE_GET);
    for (size_t i = 0; i < handle.size(); i++) { // one bit
        std::string forged = handle;
        forged[i] = static_cast<char>(forged[i] ^ 1 << i % 8);
        ASSERT_EQ(open(forged), BAD) << i;
        ASSERT_EQ(open(handle.substr(0, i)), BAD) << i;
    }
    EXPECT_EQ(open(handle + "x"), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN);
    EXPECT_EQ(open(""), BAD);
    open();
    std::vector<char> bytes(100);
    EXPECT_EQ(get(0, &bytes), OK);
}

// Whoever makes handles can make the sum, too. The members are those of src/ext/remote/own.h.
TEST_P(Remote, ForgedHandlesWithARightSum) {
    constexpr size_t CHECK = 8, OWNER = 24, EXPORT = 40, GENERATION = 48, SECRET = 56, SIZE = 72,
                     RIGHTS = 80;
    start("proxy over os", MiB, UMF_REMOTE_GET);
    auto forge = [this](size_t at, unsigned char change) {
        std::string forged = handle;
        forged[at] = static_cast<char>(forged[at] ^ change);
        memset(&forged[CHECK], 0, 8);
        uint64_t sum =
            sum_of(reinterpret_cast<const unsigned char *>(forged.data()), forged.size());
        memcpy(&forged[CHECK], &sum, sizeof(sum));
        return forged;
    };
    ASSERT_EQ(forge(SIZE, 0), handle) << "the test forges other bytes";
    for (size_t at : {OWNER, OWNER + 15, EXPORT, EXPORT + 7, SECRET, SECRET + 15}) {
        EXPECT_EQ(open(forge(at, 1)), BAD) << at;
        EXPECT_EQ(umfLastReason(), at < SECRET ? UMF_REASON_STALE : UMF_REASON_DENIED) << at;
    }
    std::vector<char> bytes(4096);
    for (size_t at : {GENERATION, SIZE + 5, RIGHTS}) { // the owner reports these itself
        ASSERT_EQ(open(forge(at, 2)), OK) << at;
        size_t size = 0;
        EXPECT_EQ(umfRemoteGetSize(memory, &size), OK);
        EXPECT_EQ(size, MiB);
        EXPECT_EQ(umfRemotePut(memory, 0, bytes.data(), 1, nullptr), BAD) << "no right";
        EXPECT_EQ(get(0, &bytes), OK);
        EXPECT_EQ(umfRemoteClose(memory), OK);
        memory = nullptr;
    }
}

TEST_P(Remote, WithdrawnAndFreed) {
    start("disjoint over os", MiB, UMF_REMOTE_GET);
    open();
    std::vector<char> bytes(MiB);
    order("free"); // the block is set aside
    EXPECT_EQ(get(0, &bytes), OK);
    EXPECT_TRUE(is_all(bytes, 'a'));
    order("withdraw");
    EXPECT_EQ(get(0, &bytes), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
    EXPECT_EQ(get(0, &bytes), BAD);
    EXPECT_EQ(umfRemoteClose(memory), OK);
    memory = nullptr;
    EXPECT_EQ(open(handle), BAD) << "withdrawn";
}

TEST_P(Remote, FreedMemoryOfTheProviderIsNotServed) {
    start("proxy over os", 4 * MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT);
    open();
    std::vector<char> bytes(MiB);
    EXPECT_EQ(get(0, &bytes), OK);
    order("free");
    EXPECT_EQ(get(0, &bytes), BAD);
    EXPECT_EQ(umfRemotePut(memory, 0, bytes.data(), bytes.size(), nullptr), BAD);
    order("withdraw");
}

TEST_P(Remote, SuspendedMemoryIsStaleOnce) {
    start("disjoint over linux_vmm", 4 * MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT);
    open();
    std::vector<char> bytes(4 * MiB);
    EXPECT_EQ(get(0, &bytes), OK);
    order("suspend");
    EXPECT_EQ(get(0, &bytes), BAD);
    EXPECT_EQ(umfRemotePut(memory, 0, bytes.data(), 10, nullptr), BAD);
    order("resume");
    order("fill n");
    EXPECT_EQ(get(0, &bytes), OK) << "renewed";
    EXPECT_TRUE(is_all(bytes, 'n'));
    order("suspend");
    order("resume");
    EXPECT_EQ(get(0, &bytes), BAD) << "of another generation";
    EXPECT_EQ(get(0, &bytes), OK);
}

// A suspend comes between a thousand gets: each has the content of one generation, or is stale.
TEST_P(Remote, ASuspendUnderAThousandGets) {
    constexpr size_t N = 1000, PART = 4096;
    start("disjoint over linux_vmm", 4 * MiB, UMF_REMOTE_GET);
    open();
    std::vector<std::vector<char>> bytes(N, std::vector<char>(PART));
    std::vector<umf_remote_op_handle_t> ops(N);
    char content = 'a';
    for (const char *command : {"suspend", "resume", "suspend"}) {
        size_t served = 0;
        for (size_t i = 0; i < N; i++) {
            ASSERT_EQ(umfRemoteGet(memory, i % 1024 * PART, bytes[i].data(), PART, &ops[i]), OK);
            if (i == N / 2) {
                order(command);
            }
        }
        for (size_t i = 0; i < N; i++) {
            umf_result_t result = umfRemoteWait(ops[i], UINT64_MAX);
            ASSERT_TRUE(result == OK || result == BAD) << result << umfLastErrorText();
            ASSERT_TRUE(result == OK || umfLastReason() == UMF_REASON_STALE);
            ASSERT_TRUE(result == BAD || is_all(bytes[i], content)) << i;
            ASSERT_TRUE(result == BAD || i <= N / 2 || strcmp(command, "suspend") != 0)
                << i << " was served after the pages went";
            served += result == OK;
        }
        printf("%s: %zu of %zu gets were served\n", command, served, N);
        if (strcmp(command, "resume") == 0) {
            order("fill b");
            content = 'b';
        }
    }
    order("resume");
    if (get(0, &bytes[0]) != OK) { // the first one finds the new generation
        EXPECT_EQ(get(0, &bytes[0]), OK);
    }
    EXPECT_TRUE(is_all(bytes[0], 'b'));
}

// The ports on which this process listens.
std::vector<unsigned> listening_ports() {
    std::vector<unsigned> ports;
    std::set<unsigned long> own;
    for (int fd = 0; fd < 1024; fd++) {
        struct stat file;
        if (fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode)) {
            own.insert(file.st_ino);
        }
    }
    for (const char *table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
        std::ifstream lines(table);
        for (std::string line; std::getline(lines, line);) {
            unsigned port, state;
            unsigned long file;
            if (sscanf(line.c_str(), "%*s %*[^:]:%x %*s %x %*s %*s %*s %*s %*s %lu", &port, &state,
                       &file) == 3 &&
                state == 0x0a && own.count(file) > 0) {
                ports.push_back(port);
            }
        }
    }
    return ports;
}

// Else a connection to an owner that has ended may come back to the process that makes it.
TEST_P(Remote, ListensOnNoPortOfThoseThatConnect) {
    unsigned low = 0, high = 0;
    std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
    if (getenv("UCX_TCP_PORT_RANGE") || (low < 13000 && high > 63000)) {
        GTEST_SKIP() << "the ports are chosen by the environment";
    }
    start("proxy over os", MiB, UMF_REMOTE_GET);
    open();
    const std::vector<unsigned> ports = listening_ports();
    EXPECT_FALSE(ports.empty());
    for (unsigned port : ports) {
        EXPECT_TRUE(port < low || port > high) << port;
    }
}

TEST_P(Remote, TheOwnerIsKilled) {
    start("proxy over os", 64 * MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT);
    open();
    std::vector<char> bytes(64 * MiB), more(64 * MiB);
    EXPECT_EQ(get(0, &bytes), OK);
    umf_remote_op_handle_t ops[2] = {};
    ASSERT_EQ(umfRemoteGet(memory, 0, bytes.data(), bytes.size(), &ops[0]), OK);
    ASSERT_EQ(umfRemotePut(memory, 0, more.data(), more.size(), &ops[1]), OK);
    other->kill();
    for (umf_remote_op_handle_t op : ops) { // the transfer may have been done before
        umf_result_t result = umfRemoteWait(op, UINT64_MAX);
        EXPECT_TRUE(result == LOST || result == OK) << result;
    }
    EXPECT_EQ(get(0, &bytes), LOST);
    EXPECT_EQ(umfLastReason(), UMF_REASON_GONE) << umfLastErrorText();
    EXPECT_EQ(get(0, &bytes), LOST);
    EXPECT_EQ(umfRemoteClose(memory), OK);
    memory = nullptr;
    EXPECT_EQ(open(handle), LOST);
}

// An owner that goes on finds attempts to connect whose processes have given up.
TEST_P(Remote, AttemptsWhileItIsStoppedDoNotEndAnOwner) {
    start("proxy over os", MiB, UMF_REMOTE_GET, 100);
    stop(other->pid);
    for (int i = 0; i < 4; i++) {
        EXPECT_EQ(open(handle), LOST);
    }
    ASSERT_EQ(::kill(other->pid, SIGCONT), 0);
    ASSERT_NO_FATAL_FAILURE(open_in_time());
    std::vector<char> bytes(1000);
    EXPECT_EQ(get(0, &bytes), OK) << umfLastErrorText();
}

TEST_P(Remote, AStoppedOwnerIsGivenUp) {
    start("proxy over os", 64 * MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT, 300);
    ASSERT_NO_FATAL_FAILURE(open_in_time());
    std::vector<char> bytes(64 * MiB);
    stop(other->pid);
    uint64_t begin = now_ms();
    EXPECT_EQ(get(0, &bytes), LOST);
    EXPECT_EQ(umfLastReason(), UMF_REASON_DEADLINE) << umfLastErrorText();
    EXPECT_GE(now_ms() - begin, 290u) << "before its deadline";
    memset(bytes.data(), 'z', bytes.size());
    EXPECT_EQ(get(0, &bytes), LOST) << "the connection is closed";
    ASSERT_EQ(::kill(other->pid, SIGCONT), 0);
    std::vector<char> few(1000);
    umf_result_t result = LOST;
    for (int tries = 0; result == LOST && tries < 100; tries++) {
        EXPECT_EQ(umfRemoteClose(memory), OK);
        memory = nullptr;
        ASSERT_NO_FATAL_FAILURE(open_in_time());
        result = get(0, &few);
    }
    EXPECT_EQ(result, OK); // the owner has served the requests made while it was stopped
    EXPECT_TRUE(is_all(few, 'a'));
    EXPECT_TRUE(is_all(bytes, 'z')) << "written after its end";
}

// On a slow network the last of many transfers takes longer than the deadline, while others end.
TEST_P(Remote, ADeadlineIsOneWithoutProgress) {
    constexpr size_t N = 64;
    constexpr uint64_t DEADLINE = 4000;
    if (is_local) {
        GTEST_SKIP() << "an owner copies what it is asked for at once";
    }
    start("proxy over os", N * MiB, UMF_REMOTE_GET, 10000, "", "-", DEADLINE);
    open();
    std::vector<char> bytes(N * MiB);
    std::vector<umf_remote_op_handle_t> ops(N);
    uint64_t begin = now_ms();
    for (size_t i = 0; i < N; i++) {
        ASSERT_EQ(umfRemoteGet(memory, i * MiB, &bytes[i * MiB], MiB, &ops[i]), OK);
    }
    for (umf_remote_op_handle_t op : ops) {
        umf_result_t result = umfRemoteWait(op, 0);
        if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
            if (now_ms() - begin < DEADLINE + 1000) { // the owner goes on until this one has ended
                stop(other->pid);
                usleep(400000);
                ASSERT_EQ(::kill(other->pid, SIGCONT), 0);
            }
            result = umfRemoteWait(op, UINT64_MAX);
        }
        ASSERT_EQ(result, OK) << umfLastErrorText();
    }
    EXPECT_TRUE(is_all(bytes, 'a'));
}

TEST_P(Remote, ADeadlineMayBeOfAnyLength) {
    start("proxy over os", MiB, UMF_REMOTE_GET, UINT64_MAX, "", "-", UINT64_MAX);
    open();
    std::vector<char> bytes(MiB);
    EXPECT_EQ(get(0, &bytes), OK) << umfLastErrorText();
    EXPECT_TRUE(is_all(bytes, 'a'));
}

TEST_P(Remote, APeerIsKilled) { // memory held for it is free again
    umf_memory_pool_handle_t pool = nullptr;
    umf_remote_export_handle_t published = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over os", &pool), OK);
    void *block = umfPoolMalloc(pool, 16 * MiB);
    ASSERT_NE(block, nullptr);
    remote = make_context(10000);
    ASSERT_EQ(
        umfRemotePublish(remote, block, 16 * MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT, &published), OK);
    for (const char *task : {"get", "put"}) {
        for (int round = 0; round < 3; round++) {
            Process busy("peer", std::string(task) + (is_local ? " local" : ""));
            ASSERT_TRUE(busy.socket.send(bytes_of(published)));
            ASSERT_EQ(busy.socket.receive(), "busy");
            busy.kill();
        }
    }
    uint64_t begin = now_ms();
    EXPECT_EQ(umfFree(block), OK) << "which waits for transfers";
    EXPECT_EQ(umfRemoteWithdraw(published), OK);
    EXPECT_LT(now_ms() - begin, 9000u) << "no end was noticed";
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

TEST_P(Remote, CanceledAndWaitedForInSteps) {
    start("proxy over os", 64 * MiB, UMF_REMOTE_GET, 3000);
    open();
    std::vector<char> bytes(64 * MiB);
    umf_remote_op_handle_t op = nullptr;
    stop(other->pid);
    ASSERT_EQ(umfRemoteGet(memory, 0, bytes.data(), bytes.size(), &op), OK);
    EXPECT_EQ(umfRemoteWait(op, 0), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfRemoteWait(op, 1), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfRemoteCancel(op), OK);
    ASSERT_EQ(::kill(other->pid, SIGCONT), 0);
    umf_result_t result = umfRemoteWait(op, UINT64_MAX);
    EXPECT_TRUE(result == LOST || result == OK);
}

TEST_P(Remote, KeysOfAGroup) {
    auto write_key = [](const char *name, char value, mode_t mode) {
        std::string path = testing::TempDir() + name + std::to_string(getpid());
        FILE *file = fopen(path.c_str(), "w");
        std::string bytes(32, value);
        fwrite(bytes.data(), 1, bytes.size(), file);
        fclose(file);
        chmod(path.c_str(), mode);
        return path;
    };
    std::string key = write_key("umf_key_a", 'k', 0600),
                another = write_key("umf_key_b", 'l', 0600);
    std::string open_key = write_key("umf_key_c", 'k', 0644);
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    params.key_file = open_key.c_str();
    EXPECT_EQ(umfRemoteCreate(&params, &remote), BAD) << "others can read it";
    params.key_file = key.c_str();
    umf_result_t result = umfRemoteCreate(&params, &remote);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        GTEST_SKIP() << "no libcrypto here";
    }
    ASSERT_EQ(result, OK);
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
    remote = nullptr;
    struct {
        std::string owner, peer;
        umf_result_t result;
    } cases[] = {
        {key, key, OK}, {key, another, BAD}, {another, key, BAD}, {key, "", BAD}, {"", key, BAD}};
    for (const auto &now : cases) {
        start("proxy over os", MiB, UMF_REMOTE_GET, 10000, now.peer, now.owner);
        EXPECT_EQ(open(handle), now.result) << now.owner << " " << now.peer;
        if (memory) {
            std::vector<char> bytes(MiB);
            EXPECT_EQ(get(0, &bytes), OK);
            EXPECT_EQ(umfRemoteClose(memory), OK);
            memory = nullptr;
        }
        EXPECT_EQ(umfRemoteDestroy(remote), OK);
        remote = nullptr;
    }
    for (const std::string &path : {key, another, open_key}) {
        unlink(path.c_str());
    }
}

// Numbers of the pipes of this process. Not with fstat: ThreadSanitizer takes it for a use of
// descriptors that the thread of a context opens and closes.
std::vector<int> pipes() {
    std::vector<int> found;
    for (int fd = 3; fd < 1024; fd++) {
        char target[8] = "";
        std::string path = "/proc/self/fd/" + std::to_string(fd);
        if (readlink(path.c_str(), target, 5) == 5 && strcmp(target, "pipe:") == 0) {
            found.push_back(fd);
        }
    }
    return found;
}

TEST_P(Remote, AProgramThatHasClosedThePipesKeepsItsOwn) {
    std::vector<int> before = pipes(), own;
    start("disjoint over os", MiB, UMF_REMOTE_GET);
    for (int fd : pipes()) {
        int pair[2];
        char byte = 'x';
        // The context opens its pipe first; UCX opens others.
        if (std::find(before.begin(), before.end(), fd) != before.end() || own.size() == 4) {
            continue;
        }
        ASSERT_EQ(pipe(pair), 0);
        ASSERT_EQ(write(pair[1], &byte, 1), 1);
        ASSERT_EQ(dup2(pair[0], fd), fd); // the number is the program's now
        close(pair[0]);
        own.push_back(pair[1]);
        own.push_back(fd);
    }
    ASSERT_EQ(own.size(), 4u) << "the context has two ends of a pipe";
    open();
    std::vector<char> bytes(MiB);
    for (int round = 0; round < 3; round++) {
        EXPECT_EQ(umfRemoteGet(memory, 0, bytes.data(), bytes.size(), nullptr), OK);
    }
    EXPECT_EQ(bytes[MiB - 1], 'a');
    EXPECT_EQ(umfRemoteClose(memory), OK);
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
    memory = nullptr;
    remote = nullptr;
    for (size_t i = 0; i < own.size(); i += 2) {
        int waiting = 0;
        EXPECT_EQ(ioctl(own[i + 1], FIONREAD, &waiting), 0) << "it was closed";
        EXPECT_EQ(waiting, 1) << "it was read or written";
        close(own[i]);
        close(own[i + 1]);
    }
}

TEST_P(Remote, PeersComeAndGo) { // more than an owner serves at a time
    start("proxy over os", MiB, UMF_REMOTE_GET);
    std::vector<char> bytes(100);
    for (int i = 0; i < 300; i++) {
        ASSERT_EQ(open(handle), OK) << i;
        ASSERT_EQ(get(0, &bytes), OK) << i;
        ASSERT_EQ(umfRemoteClose(memory), OK);
        memory = nullptr;
    }
}

// Is shared memory of a local connection mapped here?
bool has_window() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:umf-window") != std::string::npos) {
            return true;
        }
    }
    return false;
}

TEST_P(Remote, TheWayIsTheOneThatWasChosen) {
    start("proxy over os", MiB, UMF_REMOTE_GET);
    open();
    std::vector<char> bytes(MiB);
    EXPECT_EQ(get(0, &bytes), OK);
    EXPECT_EQ(has_window(), is_local);
    EXPECT_EQ(umfRemoteClose(memory), OK);
    memory = nullptr;
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
    remote = nullptr;
    EXPECT_FALSE(has_window());
}

// Members of a handle and of a message, as in src/ext/remote/own.h.
constexpr size_t HANDLE_OWNER = 24, MESSAGE = 128, MESSAGE_KIND = 6, MESSAGE_NUMBER = 8,
                 MESSAGE_SESSION = 16, MESSAGE_EXPORT = 24, MESSAGE_LENGTH = 48, MESSAGE_ID = 64;
enum : uint16_t { HELLO = 1, WELCOME = 4, GET = 7, PUT = 9 };

std::string message_of(uint16_t kind) {
    std::string message(MESSAGE, '\0');
    memcpy(&message[0], "UFMR\1", 5);
    memcpy(&message[MESSAGE_KIND], &kind, sizeof(kind));
    return message;
}

// The socket of an owner, by the bytes of its handle.
sockaddr_un name_of(const std::string &handle, socklen_t *length) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    std::string text = "umf-remote-";
    for (size_t i = 0; i < 16; i++) {
        char digits[3];
        snprintf(digits, sizeof(digits), "%02x",
                 static_cast<unsigned char>(handle[HANDLE_OWNER + i]));
        text += digits;
    }
    text.copy(name.sun_path + 1, text.size());
    *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return name;
}

int connect_to(const std::string &handle) {
    socklen_t length;
    sockaddr_un name = name_of(handle, &length);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr *>(&name), length), 0);
    return fd;
}

// An answer with its descriptor. Empty: the other side has closed.
std::string receive_from(int fd, int *passed = nullptr) {
    std::string got(MESSAGE + 1, '\0');
    char control[CMSG_SPACE(sizeof(int))];
    iovec part = {&got[0], got.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (rights && passed) {
        memcpy(passed, CMSG_DATA(rights), sizeof(int));
    }
    got.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return got;
}

std::string greet(int fd, const std::string &handle, int *window) {
    std::string hello = message_of(HELLO);
    handle.copy(&hello[MESSAGE_ID], 16, HANDLE_OWNER);
    EXPECT_EQ(send(fd, hello.data(), hello.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    std::string welcome = receive_from(fd, window);
    EXPECT_EQ(welcome.size(), MESSAGE);
    return welcome;
}

// A good request of 100 bytes.
std::string request_of(uint16_t kind, const std::string &handle, const std::string &welcome) {
    std::string request = message_of(kind);
    uint64_t length = 100;
    welcome.copy(&request[MESSAGE_SESSION], 8, MESSAGE_SESSION);
    handle.copy(&request[MESSAGE_EXPORT], 16, 40); // number and generation
    handle.copy(&request[MESSAGE_ID], 16, 56);     // its secret
    memcpy(&request[MESSAGE_LENGTH], &length, sizeof(length));
    return request;
}

// It announces a put and sends no data. Its gets end, so the connection stays beyond the deadline,
// but not when the owner takes the memory back.
TEST_P(Remote, APeerWithProgressHoldsNoMemory) {
    if (!is_local) {
        GTEST_SKIP() << "the socket is for processes of this machine";
    }
    start("disjoint over os", MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT, 10000, "", "-", 1000);
    int window = -1, fd = connect_to(handle);
    std::string welcome = greet(fd, handle, &window);
    auto ask = [&](uint16_t kind) {
        std::string request = request_of(kind, handle, welcome);
        send(fd, request.data(), request.size(), MSG_NOSIGNAL);
        return receive_from(fd).size();
    };
    EXPECT_EQ(ask(PUT), MESSAGE);
    for (uint64_t begin = now_ms(); now_ms() - begin < 2000; usleep(20000)) {
        ASSERT_EQ(ask(GET), MESSAGE) << "after " << now_ms() - begin << " ms";
    }
    std::thread goes_on([&] {
        while (ask(GET) == MESSAGE) {
            usleep(20000);
        }
    });
    uint64_t begin = now_ms();
    order("withdraw");
    EXPECT_LT(now_ms() - begin, 9000u); // of 16 deadlines
    goes_on.join();
    close(fd);
    close(window);
}

TEST_P(Remote, AnOwnerSurvivesWhatArrivesAtItsSocket) {
    if (!is_local) {
        GTEST_SKIP() << "the socket is for processes of this machine";
    }
    start("disjoint over os", 4 * MiB, UMF_REMOTE_GET);
    int window = -1, second = -1;
    int good = connect_to(handle), other_one = connect_to(handle);
    std::string welcome = greet(good, handle, &window),
                other_welcome = greet(other_one, handle, &second);
    ASSERT_NE(window, -1);
    EXPECT_NE(ftruncate(window, 0), 0) << "it can be shortened";
    std::string get = request_of(GET, handle, welcome);
    ASSERT_EQ(send(good, get.data(), get.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    EXPECT_EQ(receive_from(good).size(), MESSAGE);
    char data[101] = {};
    EXPECT_EQ(pread(window, data, 101, 0), 101);
    EXPECT_EQ(std::string(data, 101), std::string(100, 'a') + std::string(1, '\0'));
    // The session of another connection does not count: this one is answered nothing.
    std::string stolen = request_of(GET, handle, other_welcome);
    ASSERT_EQ(send(good, stolen.data(), stolen.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    ASSERT_EQ(send(good, get.data(), get.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    EXPECT_EQ(receive_from(good).substr(MESSAGE_SESSION, 8), welcome.substr(MESSAGE_SESSION, 8));
    // More than a slot, short and long messages, and requests before a greeting.
    uint64_t much = 2 * MiB;
    memcpy(&get[MESSAGE_LENGTH], &much, sizeof(much));
    ASSERT_EQ(send(good, get.data(), get.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    EXPECT_EQ(receive_from(good), "") << "the connection is not closed";
    for (size_t size : {size_t{1}, MESSAGE - 1, MESSAGE + 1, size_t{4000}}) {
        int fd = connect_to(handle);
        std::string junk(size, 'j');
        EXPECT_EQ(send(fd, junk.data(), size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
        EXPECT_EQ(receive_from(fd), "") << size;
        close(fd);
    }
    int silent = connect_to(handle);
    EXPECT_EQ(send(silent, get.data(), get.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    open();
    std::vector<char> bytes(4 * MiB);
    EXPECT_EQ(this->get(0, &bytes), OK);
    EXPECT_TRUE(is_all(bytes, 'a'));
    for (int fd : {good, other_one, window, second, silent}) {
        close(fd);
    }
}

// A process that has the name of an owner greets as a peer does, which has no answer. It sends a
// window that it can shorten; then a good one, and a limit of 0 bytes.
TEST_P(Remote, AForgedWelcomeIsRefused) {
    if (!is_local) {
        GTEST_SKIP() << "only processes of this machine send windows";
    }
    start("proxy over os", MiB, UMF_REMOTE_GET);
    std::string forged = handle;
    forged[HANDLE_OWNER] = static_cast<char>(forged[HANDLE_OWNER] ^ 1);
    memset(&forged[8], 0, 8);
    uint64_t sum = sum_of(reinterpret_cast<const unsigned char *>(forged.data()), forged.size());
    memcpy(&forged[8], &sum, sizeof(sum));
    socklen_t length;
    sockaddr_un name = name_of(forged, &length);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr *>(&name), length), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    std::thread liar([listener] {
        for (int seals : {0, F_SEAL_SHRINK}) {
            int fd = accept(listener, nullptr, nullptr);
            std::string hello = receive_from(fd), welcome = message_of(WELCOME);
            hello.copy(&welcome[MESSAGE_NUMBER], 8, MESSAGE_NUMBER);
            const std::string greeting = message_of(HELLO);
            EXPECT_EQ(send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
            int window = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            EXPECT_EQ(ftruncate(window, 64 * MiB), 0);
            EXPECT_EQ(fcntl(window, F_ADD_SEALS, seals), 0);
            iovec part = {&welcome[0], welcome.size()};
            alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
            msghdr message = {};
            message.msg_iov = &part;
            message.msg_iovlen = 1;
            message.msg_control = control;
            message.msg_controllen = sizeof(control);
            cmsghdr *rights = CMSG_FIRSTHDR(&message);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(rights), &window, sizeof(int));
            EXPECT_EQ(sendmsg(fd, &message, MSG_NOSIGNAL), ssize_t{MESSAGE});
            EXPECT_EQ(receive_from(fd), "") << "an answer or a request came";
            close(window);
            close(fd);
        }
    });
    EXPECT_EQ(open(forged), BAD); // the owner behind the address of UCX is another one
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE) << umfLastErrorText();
    EXPECT_EQ(open(forged), LOST);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
    liar.join();
    close(listener);
}

// The loader would mix the parts of two.
TEST_P(Remote, AProcessHasOneUcx) {
    std::ifstream maps("/proc/self/maps");
    remote = make_context(10000);
    ASSERT_NE(remote, nullptr);
    std::string file;
    for (std::string line; std::getline(maps, line) && file.empty();) {
        file = line.find("/libucp.so") == std::string::npos ? "" : line.substr(line.find('/'));
    }
    ASSERT_FALSE(file.empty());
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    umf_remote_handle_t second = nullptr;
    params.library = file.c_str();
    EXPECT_EQ(umfRemoteCreate(&params, &second), OK) << "the same file";
    EXPECT_EQ(umfRemoteDestroy(second), OK);
    std::string copy = testing::TempDir() + "umf_ucp_" + std::to_string(getpid()) + ".so";
    std::ofstream(copy, std::ios::binary) << std::ifstream(file, std::ios::binary).rdbuf();
    params.library = copy.c_str();
    EXPECT_EQ(umfRemoteCreate(&params, &second), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_NE(std::string(umfLastErrorText()).find("can have only one"), std::string::npos)
        << umfLastErrorText();
    unlink(copy.c_str());
}

TEST_P(Remote, AnOpenedRangeEndsWithItsContext) {
    start("proxy over os", MiB, UMF_REMOTE_GET);
    open();
    ASSERT_EQ(umfRemoteDestroy(remote), OK);
    remote = nullptr;
    std::vector<char> bytes(100);
    EXPECT_EQ(get(0, &bytes), BAD);
    EXPECT_NE(std::string(umfLastErrorText()).find("range of umfRemoteOpen"), std::string::npos)
        << umfLastErrorText();
    EXPECT_EQ(umfRemoteClose(memory), BAD);
    memory = nullptr;
}

TEST_P(Remote, TheContextOfAnOwnerEnds) {
    start("proxy over os", MiB, UMF_REMOTE_GET);
    open();
    std::vector<char> bytes(MiB);
    EXPECT_EQ(get(0, &bytes), OK);
    order("end");
    EXPECT_EQ(get(0, &bytes), LOST);
}

INSTANTIATE_TEST_SUITE_P(By, Remote, ::testing::Bool(), [](const auto &by) {
    return std::string(by.param ? "SharedMemory" : "Ucx");
});

int main(int argc, char **argv) {
    return run_remote_tests(argc, argv, roles);
}
