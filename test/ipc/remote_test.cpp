// Remote memory (umf/remote.h) between processes of this machine: transfers, forged handles, ranges
// that end or are suspended, and processes that are killed or stopped.
#include <atomic>
#include <thread>

#include "fakes/remote_pair.h"
#include "fakes/sum.h"

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

// Requests that a silent owner gets later are no progress of earlier ones.
TEST_P(Remote, FurtherAttemptsToOpenDoNotPutOffADeadline) {
    constexpr uint64_t DEADLINE = 400;
    start("proxy over os", MiB, UMF_REMOTE_GET, DEADLINE);
    ASSERT_NO_FATAL_FAILURE(open_in_time());
    stop(other->pid);
    std::vector<std::thread> attempts;
    std::atomic<bool> has_ended{false};
    uint64_t begin = now_ms();
    while (!has_ended && now_ms() - begin < 20 * DEADLINE) {
        attempts.emplace_back([&] {
            umf_remote_memory_handle_t opened; // those that begin last find an owner that goes on
            if (umfRemoteOpen(remote, handle.data(), handle.size(), &opened) == OK) {
                EXPECT_EQ(umfRemoteClose(opened), OK);
            }
            has_ended = true;
        });
        usleep(DEADLINE * 1000 / 4);
    }
    EXPECT_TRUE(has_ended) << "no attempt ends while others begin";
    ASSERT_EQ(::kill(other->pid, SIGCONT), 0);
    for (std::thread &attempt : attempts) {
        attempt.join();
    }
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

TEST_P(Remote, AFunctionEndsTheWaitOfAnOpen) {
    int calls = 0;
    auto third = [](void *arg) -> int { return ++*static_cast<int *>(arg) == 3; };
    start("proxy over os", MiB, UMF_REMOTE_GET, 600000);
    stop(other->pid);
    uint64_t begin = now_ms();
    EXPECT_EQ(umfRemoteOpenUntil(remote, handle.data(), handle.size(), third, &calls, &memory),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_LT(now_ms() - begin, 60000u);
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(memory, nullptr);
    ASSERT_EQ(::kill(other->pid, SIGCONT), 0);
    calls = 3; // so it goes on
    ASSERT_EQ(umfRemoteOpenUntil(remote, handle.data(), handle.size(), third, &calls, &memory), OK)
        << umfLastErrorText();
    std::vector<char> bytes(MiB);
    EXPECT_EQ(get(0, &bytes), OK) << umfLastErrorText();
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

INSTANTIATE_TEST_SUITE_P(By, Remote, ::testing::Bool(), [](const auto &by) {
    return std::string(by.param ? "SharedMemory" : "Ucx");
});

int main(int argc, char **argv) {
    return run_remote_tests(argc, argv, roles);
}
