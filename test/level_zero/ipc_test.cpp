// Sharing memory of Level Zero between real processes, by handles of the driver and by export and
// import.
//
// The program starts itself again, as many times as a test needs: each such peer starts Level Zero
// for itself, owns a pool and does what it is told through a socket. What travels between peers are
// the bytes of handles, nothing else.
#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

#include "level_zero.h"

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/providers/provider_level_zero.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t header = 96; // bytes in front of the provider's own

using Bytes = std::vector<unsigned char>;

enum class Op : uint32_t {
    Alloc,       // a: size -> value: address
    Free,        // slot
    Fill,        // slot, a: size, b: seed
    Check,       // slot, a: size, b: seed -> value: 1 if it is what Fill wrote
    Get,         // slot, a: offset -> bytes
    Open,        // bytes -> value: address
    Close,       // slot
    RawGet,      // slot, a: size -> bytes of the provider
    RawPut,      // bytes of the provider
    RawOpen,     // bytes of the provider -> value: address
    RawClose,    // slot, a: size
    Descriptors, // -> value: open descriptors
    Alive,       // -> value: what is alive in the software driver
    Opens,       // -> value: how often the driver was told to open or to import
    Fail,        // a: the n-th next call of the software driver fails -> value: failures to come
    Quit,
};

struct Request {
    Op op;
    uint32_t slot; // where the peer keeps the address
    uint64_t a, b;
    uint32_t size;
    unsigned char bytes[1024];
};

struct Reply {
    int32_t result;
    uint32_t size;
    uint64_t value;
    unsigned char bytes[1024];
};

// --- the peer ------------------------------------------------------------------------------------

unsigned char pattern(uint64_t seed, size_t i) {
    return static_cast<unsigned char>((seed + i) * 2654435761u >> 13);
}

class Servant {
    int socket;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    unsigned char *slots[64] = {};

    umf_result_t get(const Request &request, Reply &reply) {
        umf_ipc_handle_t handle = nullptr;
        size_t size = 0;
        umf_result_t result = umfGetIPCHandle(slots[request.slot] + request.a, &handle, &size);
        if (result == OK) {
            memcpy(reply.bytes, handle, size);
            reply.size = static_cast<uint32_t>(size);
            result = umfPutIPCHandle(handle);
        }
        return result;
    }

    umf_result_t raw_get(const Request &request, Reply &reply) {
        size_t size = 0;
        umf_result_t result = umfMemoryProviderGetIPCHandleSize(provider, &size);
        reply.size = static_cast<uint32_t>(size);
        return result == OK ? umfMemoryProviderGetIPCHandle(provider, slots[request.slot],
                                                            request.a, reply.bytes)
                            : result;
    }

    umf_result_t open(const Request &request, Reply &reply) {
        // Exactly as long as what was sent, so that a sanitizer sees every byte read too much.
        std::vector<std::max_align_t> buffer(request.size / sizeof(std::max_align_t) + 1);
        memcpy(buffer.data(), request.bytes, request.size);
        void *ptr = nullptr;
        umf_result_t result =
            request.op == Op::Open
                ? umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(buffer.data()), &ptr)
                : umfMemoryProviderOpenIPCHandle(provider, buffer.data(), &ptr);
        slots[request.slot] = static_cast<unsigned char *>(ptr);
        reply.value = reinterpret_cast<uintptr_t>(ptr);
        return result;
    }

    bool check(const Request &request) {
        for (size_t i = 0; i < request.a; i++) {
            if (slots[request.slot][i] != pattern(request.b, i)) {
                return false;
            }
        }
        return true;
    }

    static uint64_t count_descriptors() {
        uint64_t count = 0;
        for (int fd = 0; fd < 1024; fd++) {
            count += fcntl(fd, F_GETFD) != -1;
        }
        return count;
    }

    static uint64_t opens() {
        const fake_ze_t *control = ze().control();
        return static_cast<uint64_t>(control->calls[FAKE_zeMemOpenIpcHandle] +
                                     (control->last.imports != 0));
    }

    static uint64_t fail_at(long n) {
        fake_ze_t *control = ze().control();
        long left = control->fail_at;
        control->fail_function = FAKE_ZE_ANY;
        control->fail_with = ZE_RESULT_ERROR_UNKNOWN;
        control->fail_at = n;
        return static_cast<uint64_t>(left);
    }

    umf_result_t serve(Request &request, Reply &reply) {
        switch (request.op) {
        case Op::Alloc:
            slots[request.slot] = static_cast<unsigned char *>(umfPoolMalloc(pool, request.a));
            reply.value = reinterpret_cast<uintptr_t>(slots[request.slot]);
            return reply.value ? OK : umfPoolGetLastAllocationError(pool);
        case Op::Free:
            return umfFree(slots[request.slot]);
        case Op::Fill:
            for (size_t i = 0; i < request.a; i++) {
                slots[request.slot][i] = pattern(request.b, i);
            }
            return OK;
        case Op::Check:
            reply.value = check(request);
            return OK;
        case Op::Get:
            return get(request, reply);
        case Op::Open:
        case Op::RawOpen:
            return open(request, reply);
        case Op::Close:
            return umfCloseIPCHandle(slots[request.slot]);
        case Op::RawGet:
            return raw_get(request, reply);
        case Op::RawPut:
            return umfMemoryProviderPutIPCHandle(provider, request.bytes);
        case Op::RawClose:
            return umfMemoryProviderCloseIPCHandle(provider, slots[request.slot], request.a);
        case Op::Descriptors:
            reply.value = count_descriptors();
            return OK;
        case Op::Alive:
            reply.value = static_cast<uint64_t>(ze().alive());
            return OK;
        case Op::Opens:
            reply.value = opens();
            return OK;
        case Op::Fail:
            reply.value = fail_at(static_cast<long>(request.a));
            return OK;
        case Op::Quit:
            break;
        }
        return UMF_RESULT_ERROR_UNKNOWN;
    }

  public:
    Servant(int socket_fd, const char *text, bool exports) : socket(socket_fd) {
        // What an application does that lets others at its memory.
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        ze().control()->touchable = 1;
        int on = exports;
        umfCtlSet("umf.provider.default.LEVEL_ZERO.params.use_import_export_for_IPC", &on,
                  sizeof(on));
        umf_result_t result = umfPoolCreateFromText(text, &pool);
        if (result == OK) {
            umfPoolGetMemoryProvider(pool, &provider);
            result = umfPoolGetIPCHandler(pool, &handler);
        }
        if (result != OK) {
            fprintf(stderr, "%s: not created: %s\n", text, umfTextError());
        }
    }

    int run() {
        static Request request;
        static Reply reply;
        while (recv(socket, &request, sizeof(request), 0) == sizeof(request)) {
            if (request.op == Op::Quit) {
                return umfPoolDestroy(pool) == OK ? 0 : 1;
            }
            memset(&reply, 0, sizeof(reply));
            reply.result = serve(request, reply);
            send(socket, &reply, sizeof(reply), MSG_NOSIGNAL);
        }
        return 0; // the test is gone
    }
};

constexpr int peer_socket = 100;

// --- the test's side -----------------------------------------------------------------------------

class Peer {
    int socket = -1;
    pid_t pid = -1;

    Reply call(Op op, uint32_t slot = 0, uint64_t a = 0, uint64_t b = 0, const Bytes &bytes = {}) {
        Request request = {};
        request.op = op;
        request.slot = slot;
        request.a = a;
        request.b = b;
        request.size = static_cast<uint32_t>(bytes.size());
        std::copy(bytes.begin(), bytes.end(), request.bytes);
        Reply reply = {};
        reply.result = -1; // the peer is gone: it crashed
        send(socket, &request, sizeof(request), MSG_NOSIGNAL);
        recv(socket, &reply, sizeof(reply), 0);
        return reply;
    }
    umf_result_t result_of(const Reply &reply) {
        EXPECT_GE(reply.result, 0) << "the peer has crashed";
        return static_cast<umf_result_t>(reply.result);
    }
    uint64_t value_of(const Reply &reply) {
        EXPECT_EQ(reply.result, OK);
        return reply.value;
    }
    Bytes bytes_of(const Reply &reply) {
        EXPECT_EQ(reply.result, OK);
        return Bytes(reply.bytes, reply.bytes + reply.size);
    }
    void end(int status_wanted) {
        int status = 0;
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_EQ(status, status_wanted);
        ::close(socket);
        pid = -1;
    }

  public:
    explicit Peer(bool exports, const char *text = "proxy over level_zero") {
        int sockets[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
        socket = sockets[0];
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, sockets[1], peer_socket);
        std::string copy = text, way = exports ? "1" : "0";
        char program[] = "ipc_test", flag[] = "--peer";
        char *arguments[] = {program, flag, copy.data(), way.data(), nullptr};
        EXPECT_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments, environ), 0);
        posix_spawn_file_actions_destroy(&actions);
        ::close(sockets[1]);
    }
    // The peer fails, too, if its driver finds something alive at the end.
    ~Peer() {
        if (pid != -1) {
            Request request = {};
            request.op = Op::Quit;
            send(socket, &request, sizeof(request), MSG_NOSIGNAL);
            end(0);
        }
    }
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    void kill() {
        ::kill(pid, SIGKILL);
        end(SIGKILL);
    }
    uint64_t alloc(uint32_t slot, size_t size) {
        return value_of(call(Op::Alloc, slot, size));
    }
    void free(uint32_t slot) {
        EXPECT_EQ(result_of(call(Op::Free, slot)), OK);
    }
    void fill(uint32_t slot, size_t size, uint64_t seed) {
        value_of(call(Op::Fill, slot, size, seed));
    }
    bool check(uint32_t slot, size_t size, uint64_t seed) {
        return value_of(call(Op::Check, slot, size, seed)) == 1;
    }
    Bytes get(uint32_t slot, size_t offset = 0) {
        return bytes_of(call(Op::Get, slot, offset));
    }
    umf_result_t try_get(uint32_t slot) {
        return result_of(call(Op::Get, slot));
    }
    uint64_t open(uint32_t slot, const Bytes &handle) {
        return value_of(call(Op::Open, slot, 0, 0, handle));
    }
    umf_result_t try_open(uint32_t slot, const Bytes &handle) {
        return result_of(call(Op::Open, slot, 0, 0, handle));
    }
    umf_result_t close(uint32_t slot) {
        return result_of(call(Op::Close, slot));
    }
    Bytes raw_get(uint32_t slot, size_t size) {
        return bytes_of(call(Op::RawGet, slot, size));
    }
    umf_result_t raw_put(const Bytes &data) {
        return result_of(call(Op::RawPut, 0, 0, 0, data));
    }
    umf_result_t raw_open(uint32_t slot, const Bytes &data) {
        return result_of(call(Op::RawOpen, slot, 0, 0, data));
    }
    umf_result_t raw_close(uint32_t slot, size_t size) {
        return result_of(call(Op::RawClose, slot, size));
    }
    uint64_t descriptors() {
        return value_of(call(Op::Descriptors));
    }
    uint64_t alive() {
        return value_of(call(Op::Alive));
    }
    uint64_t opens() {
        return value_of(call(Op::Opens));
    }
    // The n-th next call fails. Tells whether the last one that was to fail did.
    bool fail_at(uint64_t n) {
        return value_of(call(Op::Fail, 0, n)) == 0;
    }
};

class Ipc : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        NEEDS_FAKE_ZE(); // the CPU reads the memory
    }
    bool exports() const {
        return GetParam();
    }
};

constexpr size_t size = 100000;

} // namespace

TEST_P(Ipc, BothSeeWhatTheOtherWrites) {
    Peer producer(exports()), consumer(exports());
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    Bytes handle = producer.get(0);
    consumer.open(0, handle);
    EXPECT_TRUE(consumer.check(0, size, 1));
    consumer.fill(0, size, 2);
    EXPECT_TRUE(producer.check(0, size, 2));
    EXPECT_EQ(consumer.close(0), OK);
    EXPECT_EQ(consumer.close(0), BAD);
    producer.free(0);
}

// What a handle says counts, not how its consumer is set.
TEST_P(Ipc, TheConsumerNeedNotBeSetAlike) {
    Peer producer(exports()), consumer(!exports());
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    consumer.open(0, producer.get(0));
    EXPECT_TRUE(consumer.check(0, size, 1));
    EXPECT_EQ(consumer.close(0), OK);
    producer.free(0);
}

TEST_P(Ipc, ManyPlacesOfOneAllocationAreOpenedOnce) {
    Peer producer(exports(), "disjoint over level_zero"), consumer(exports());
    producer.alloc(0, 1000);
    producer.alloc(1, 1000);
    producer.fill(0, 1000, 1);
    producer.fill(1, 1000, 2);
    uint64_t first = consumer.open(0, producer.get(0));
    uint64_t inside = consumer.open(2, producer.get(0, 100));
    consumer.open(1, producer.get(1));
    EXPECT_EQ(inside, first + 100);
    EXPECT_EQ(consumer.opens(), 1u);
    EXPECT_TRUE(consumer.check(0, 1000, 1));
    EXPECT_TRUE(consumer.check(1, 1000, 2));
    EXPECT_TRUE(consumer.check(2, 900, 101));
    for (uint32_t slot : {0u, 1u, 2u}) {
        EXPECT_EQ(consumer.close(slot), OK);
    }
    producer.free(0);
    producer.free(1);
}

TEST_P(Ipc, InTheProcessThatMadeIt) {
    Peer peer(exports());
    uint64_t address = peer.alloc(0, size);
    peer.fill(0, size, 1);
    EXPECT_NE(peer.open(1, peer.get(0)), address);
    EXPECT_TRUE(peer.check(1, size, 1));
    peer.fill(1, size, 2);
    EXPECT_TRUE(peer.check(0, size, 2));
    EXPECT_EQ(peer.close(1), OK);
    peer.free(0);
}

TEST_P(Ipc, NothingIsLeftAfterManyRounds) {
    Peer producer(exports()), consumer(exports());
    uint64_t before = 0, alive = 0, at_consumer = 0, alive_there = 0;
    for (int round = 0; round < 20; round++) {
        producer.alloc(0, size);
        producer.fill(0, size, static_cast<uint64_t>(round));
        consumer.open(0, producer.get(0));
        EXPECT_TRUE(consumer.check(0, size, static_cast<uint64_t>(round))) << round;
        EXPECT_EQ(consumer.close(0), OK);
        producer.free(0);
        if (round == 0) {
            before = producer.descriptors();
            alive = producer.alive();
            at_consumer = consumer.descriptors();
            alive_there = consumer.alive();
        }
    }
    EXPECT_EQ(producer.descriptors(), before);
    EXPECT_EQ(producer.alive(), alive);
    // Mappings are kept for the next time; those of what was freed go when something is opened at
    // their place, or with the pool.
    EXPECT_LE(consumer.descriptors(), at_consumer + 20);
    EXPECT_LE(consumer.alive(), alive_there + 20);
}

TEST_P(Ipc, FreedMemoryIsNotOpened) {
    Peer producer(exports()), consumer(exports());
    producer.alloc(0, size);
    Bytes handle = producer.get(0);
    producer.free(0);
    EXPECT_EQ(consumer.try_open(0, handle), BAD);
    EXPECT_EQ(producer.try_open(1, handle), BAD);

    // Nor is what is there now, at the same address and with the same descriptor.
    producer.alloc(0, size);
    producer.fill(0, size, 3);
    Bytes other = producer.get(0);
    EXPECT_EQ(consumer.try_open(0, handle), BAD);
    consumer.open(0, other);
    EXPECT_TRUE(consumer.check(0, size, 3));
    EXPECT_EQ(consumer.close(0), OK);
    producer.free(0);
}

TEST_P(Ipc, TheProducerDies) {
    Peer consumer(exports());
    Bytes handle, late;
    {
        Peer producer(exports());
        producer.alloc(0, size);
        producer.alloc(1, size);
        producer.fill(0, size, 1);
        handle = producer.get(0);
        late = producer.get(1);
        consumer.open(0, handle);
        producer.kill();
    }
    EXPECT_TRUE(consumer.check(0, size, 1)) << "what is open stays";
    EXPECT_EQ(consumer.try_open(1, late), BAD);
    EXPECT_EQ(consumer.close(0), OK);
}

TEST_P(Ipc, DamagedHandlesAreRefused) {
    Peer producer(exports()), consumer(exports());
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    Bytes data = producer.raw_get(0, size);
    for (size_t at = 0; at < data.size(); at++) {
        for (int change : {1, 0x80, 0xff}) {
            Bytes damaged = data;
            damaged[at] = static_cast<unsigned char>(damaged[at] ^ change);
            EXPECT_EQ(consumer.raw_open(0, damaged), BAD) << at;
            EXPECT_EQ(producer.raw_put(damaged), BAD) << at;
        }
    }
    EXPECT_EQ(consumer.raw_open(0, Bytes(data.size(), 0)), BAD);
    EXPECT_EQ(consumer.raw_open(0, Bytes(data.size(), 0xff)), BAD);
    EXPECT_EQ(consumer.alive(), 1u) << "the context";

    // With the library's own part around it a wrong size is found, too.
    Bytes whole = producer.get(0);
    ASSERT_EQ(whole.size(), header + data.size());
    for (size_t at = 0; at < whole.size(); at++) {
        Bytes damaged = whole;
        damaged[at] = static_cast<unsigned char>(damaged[at] ^ 4);
        EXPECT_EQ(consumer.try_open(0, damaged), BAD) << at;
    }
    EXPECT_EQ(consumer.raw_open(0, data), OK);
    EXPECT_TRUE(consumer.check(0, size, 1));
    EXPECT_EQ(consumer.raw_close(0, size), OK);
    EXPECT_EQ(consumer.raw_close(0, size), BAD) << "it is closed";
    EXPECT_EQ(producer.raw_close(0, size), BAD) << "it was not opened";
    EXPECT_EQ(producer.raw_put(data), OK);
    if (exports()) {
        EXPECT_EQ(producer.raw_put(data), BAD) << "its descriptor is closed";
    }
    EXPECT_EQ(consumer.raw_put(data), BAD) << "it is another process's";
    producer.free(0);
}

// The same handle opened again is another mapping, closed for itself.
TEST_P(Ipc, RawHandlesOpenedTwice) {
    Peer producer(exports()), consumer(exports());
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    Bytes data = producer.raw_get(0, size);
    EXPECT_EQ(consumer.raw_open(0, data), OK);
    EXPECT_EQ(consumer.raw_open(1, data), OK);
    EXPECT_EQ(consumer.raw_close(0, size), OK);
    EXPECT_TRUE(consumer.check(1, size, 1));
    EXPECT_EQ(consumer.raw_close(1, size), OK);
    EXPECT_EQ(producer.raw_put(data), OK);
    producer.free(0);
}

TEST_P(Ipc, EachFailureOfAConsumer) {
    Peer producer(exports()), consumer(exports());
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    Bytes data = producer.raw_get(0, size);
    uint64_t descriptors = consumer.descriptors();
    bool passed = false;
    for (uint64_t n = 1; !passed; n++) {
        consumer.fail_at(n);
        bool opened = consumer.raw_open(0, data) == OK;
        bool closed = opened && consumer.raw_close(0, size) == OK;
        passed = !consumer.fail_at(0);
        EXPECT_EQ(passed, opened && closed) << n;
        if (opened && !closed) {
            EXPECT_TRUE(consumer.check(0, size, 1)) << "a close that fails leaves it open";
            EXPECT_EQ(consumer.raw_close(0, size), OK);
        }
        EXPECT_EQ(consumer.descriptors(), descriptors) << n;
        EXPECT_EQ(consumer.alive(), 1u) << n;
        ASSERT_LT(n, 20u);
    }
    EXPECT_EQ(producer.raw_put(data), OK);
    producer.free(0);
}

TEST_P(Ipc, EachFailureOfAProducer) {
    Peer producer(exports());
    producer.alloc(1, size);
    producer.get(1); // the broker has a socket
    producer.free(1);
    producer.alloc(0, size);
    uint64_t descriptors = producer.descriptors();
    bool passed = false;
    for (uint64_t n = 1; !passed; n++) {
        producer.fail_at(n);
        bool got = producer.try_get(0) == OK;
        passed = !producer.fail_at(0);
        EXPECT_EQ(passed, got) << n;
        EXPECT_EQ(producer.descriptors(), descriptors + got) << n;
        ASSERT_LT(n, 20u);
    }
    producer.free(0);
    EXPECT_EQ(producer.descriptors(), descriptors - 1) << "nor is the memory's own left";
}

INSTANTIATE_TEST_SUITE_P(By, Ipc, testing::Bool(), [](const auto &way) {
    return std::string(way.param ? "export" : "handle");
});

// Memory that was not made for it is not exported; a device is needed to open it.
TEST_F(LevelZero, WhatCannotBeShared) {
    NEEDS_FAKE_ZE();
    umf_memory_provider_handle_t made = nullptr, host = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero", &made), OK);
    ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero:memory_type=host", &host), OK);
    void *ptr = nullptr, *opened = this;
    unsigned char data[512], other[512];
    ASSERT_EQ(umfMemoryProviderAlloc(made, 4096, 0, &ptr), OK);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(made, ptr, 4096, data), OK);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(host, data, &opened), BAD);
    EXPECT_EQ(opened, this);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(made, data, 4096, other), BAD) << "not an allocation";
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(made, data), OK);
    int on = 1;
    ASSERT_EQ(umfCtlSet("umf.provider.by_handle.{}.params.use_import_export_for_IPC", &on,
                        sizeof(on), made),
              OK);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(made, ptr, 4096, data),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(umfMemoryProviderFree(made, ptr, 4096), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(made), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(host), OK);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--peer") == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return Servant(peer_socket, argv[2], argv[3][0] == '1').run();
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
