// Sharing memory between real processes over the OS provider.
//
// The program starts itself again, as many times as a test needs: each such peer owns a pool and
// does what it is told through a socket. A peer can be producer and consumer. What travels between
// peers are the bytes of handles, nothing else.
#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_os_memory.h>

namespace {

using Bytes = std::vector<unsigned char>;

enum class Op : uint32_t {
    Alloc,       // a: size -> value: address
    Free,        // slot
    Fill,        // slot, a: size, b: seed
    Check,       // slot, a: size, b: seed -> value: 1 if it is what Fill wrote
    Get,         // slot, a: offset -> bytes
    Open,        // bytes -> value: address
    OpenThreads, // bytes, a: threads -> value: number of different addresses
    Close,       // slot, a: added to the address
    Forget,      // destroys pool and provider
    Descriptors, // -> value: open descriptors
    Mappings,    // -> value: shared mappings; private ones come and go with metadata
    Fork,        // the peer goes on in a child; the parent only waits for it
    Quit,
};

struct Request {
    Op op;
    uint32_t slot; // where the peer keeps the address
    uint64_t a, b;
    uint32_t size;
    unsigned char bytes[2048];
};

struct Reply {
    int32_t result;
    uint32_t size;
    uint64_t value;
    unsigned char bytes[2048];
};

// --- the peer ---

unsigned char pattern(uint64_t seed, size_t i) {
    return static_cast<unsigned char>((seed + i) * 2654435761u >> 13);
}

uint64_t count_descriptors() {
    uint64_t count = 0;
    for (int fd = 0; fd < 4096; fd++) {
        count += fcntl(fd, F_GETFD) != -1;
    }
    return count;
}

uint64_t count_shared_mappings() {
    std::ifstream maps("/proc/self/maps");
    uint64_t count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += line.find("s ") == line.find(' ') + 4; // the last letter of "rw-s"
    }
    return count;
}

umf_memory_provider_handle_t make_provider(const char *shm_name, bool shared) {
    umf_os_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umfOsMemoryProviderParamsCreate(&params);
    umfOsMemoryProviderParamsSetVisibility(params,
                                           shared ? UMF_MEM_MAP_SHARED : UMF_MEM_MAP_PRIVATE);
    if (*shm_name) {
        umfOsMemoryProviderParamsSetShmName(params, shm_name);
    }
    umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider);
    umfOsMemoryProviderParamsDestroy(params);
    return provider;
}

class Servant {
    int socket;
    umf_memory_provider_handle_t provider;
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    char *slots[4096] = {};

    umf_result_t get(const Request &request, Reply &reply) {
        umf_ipc_handle_t handle = nullptr;
        size_t size = 0;
        umf_result_t result = umfGetIPCHandle(slots[request.slot] + request.a, &handle, &size);
        if (result == UMF_RESULT_SUCCESS) {
            memcpy(reply.bytes, handle, size);
            reply.size = static_cast<uint32_t>(size);
            result = umfPutIPCHandle(handle);
        }
        return result;
    }

    umf_result_t open(const Request &request, void **ptr) {
        // Exactly as long as what was sent, so that a sanitizer sees every byte read too much.
        std::vector<std::max_align_t> buffer(request.size / sizeof(std::max_align_t) + 1);
        memcpy(buffer.data(), request.bytes, request.size);
        return umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(buffer.data()), ptr);
    }

    umf_result_t open_slot(const Request &request, Reply &reply) {
        void *ptr = nullptr;
        umf_result_t result = open(request, &ptr);
        slots[request.slot] = static_cast<char *>(ptr);
        reply.value = reinterpret_cast<uintptr_t>(ptr);
        return result;
    }

    umf_result_t open_threads(const Request &request, Reply &reply) {
        std::vector<void *> pointers(request.a);
        std::vector<umf_result_t> results(request.a);
        std::vector<std::thread> threads;
        for (size_t i = 0; i < request.a; i++) {
            threads.emplace_back([&, i] { results[i] = open(request, &pointers[i]); });
        }
        for (size_t i = 0; i < request.a; i++) {
            threads[i].join();
        }
        slots[request.slot] = static_cast<char *>(pointers[0]);
        reply.value = std::set<void *>(pointers.begin(), pointers.end()).size();
        for (umf_result_t result : results) {
            if (result != UMF_RESULT_SUCCESS) {
                return result;
            }
        }
        return UMF_RESULT_SUCCESS;
    }

    bool check(const Request &request) {
        for (size_t i = 0; i < request.a; i++) {
            if (static_cast<unsigned char>(slots[request.slot][i]) != pattern(request.b, i)) {
                return false;
            }
        }
        return true;
    }

    void fill(const Request &request) {
        for (size_t i = 0; i < request.a; i++) {
            slots[request.slot][i] = static_cast<char>(pattern(request.b, i));
        }
    }

    void go_on_in_a_child() {
        pid_t child = fork();
        if (child != 0) {
            waitpid(child, nullptr, 0);
            _exit(0);
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    }

    umf_result_t forget() {
        umf_result_t result = umfPoolDestroy(pool);
        umf_result_t of_provider = umfMemoryProviderDestroy(provider);
        pool = nullptr;
        return result != UMF_RESULT_SUCCESS ? result : of_provider;
    }

    umf_result_t serve(const Request &request, Reply &reply) {
        switch (request.op) {
        case Op::Alloc:
            slots[request.slot] = static_cast<char *>(umfPoolMalloc(pool, request.a));
            reply.value = reinterpret_cast<uintptr_t>(slots[request.slot]);
            return reply.value ? UMF_RESULT_SUCCESS : umfPoolGetLastAllocationError(pool);
        case Op::Free:
            return umfFree(slots[request.slot]);
        case Op::Fill:
            fill(request);
            return UMF_RESULT_SUCCESS;
        case Op::Check:
            reply.value = check(request);
            return UMF_RESULT_SUCCESS;
        case Op::Get:
            return get(request, reply);
        case Op::Open:
            return open_slot(request, reply);
        case Op::OpenThreads:
            return open_threads(request, reply);
        case Op::Close:
            return umfCloseIPCHandle(slots[request.slot] + request.a);
        case Op::Forget:
            return forget();
        case Op::Descriptors:
            reply.value = count_descriptors();
            return UMF_RESULT_SUCCESS;
        case Op::Mappings:
            reply.value = count_shared_mappings();
            return UMF_RESULT_SUCCESS;
        case Op::Fork:
            go_on_in_a_child();
            return UMF_RESULT_SUCCESS;
        case Op::Quit:
            break;
        }
        return UMF_RESULT_ERROR_UNKNOWN;
    }

  public:
    Servant(int socket_fd, const char *shm_name, bool shared)
        : socket(socket_fd), provider(make_provider(shm_name, shared)) {
        // What an application does that lets others at its memory.
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        if (provider) {
            umfPoolCreate(umfProxyPoolOps(), provider, nullptr, UMF_POOL_CREATE_FLAG_NONE, &pool);
            umfPoolGetIPCHandler(pool, &handler);
        }
    }

    int run() {
        static Request request;
        static Reply reply;
        while (recv(socket, &request, sizeof(request), 0) == sizeof(request)) {
            if (request.op == Op::Quit) {
                return pool == nullptr || forget() == UMF_RESULT_SUCCESS ? 0 : 1;
            }
            memset(&reply, 0, sizeof(reply));
            reply.result = serve(request, reply);
            send(socket, &reply, sizeof(reply), MSG_NOSIGNAL);
        }
        return 0; // the test is gone
    }
};

constexpr int peer_socket = 100;

int serve(const char *shm_name, const char *shared) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return Servant(peer_socket, shm_name, *shared == '1').run();
}

// --- the test's side ---

class Peer {
    int socket = -1;
    std::string shm_name;
    bool was_killed = false;
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
        EXPECT_EQ(reply.result, UMF_RESULT_SUCCESS);
        return reply.value;
    }

  public:
    explicit Peer(const std::string &name = "", bool shared = true) : shm_name(name) {
        int sockets[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
        socket = sockets[0];
        // Not with fork: under ThreadSanitizer its handlers take more locks than that can follow.
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, sockets[1], peer_socket);
        std::string kind = shared ? "1" : "0";
        char program[] = "ipc_test", flag[] = "--peer";
        char *arguments[] = {program, flag, const_cast<char *>(shm_name.c_str()), kind.data(),
                             nullptr};
        EXPECT_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments, environ), 0);
        posix_spawn_file_actions_destroy(&actions);
        ::close(sockets[1]);
    }
    ~Peer() {
        if (pid != -1) {
            quit();
        }
        if (was_killed && !shm_name.empty()) {
            unlink(("/dev/shm/" + shm_name).c_str()); // its owner could not
        }
    }
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    void end(int status_wanted) {
        int status = 0;
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_EQ(status, status_wanted);
        ::close(socket);
        pid = -1;
    }
    void quit() {
        Request request = {};
        request.op = Op::Quit;
        send(socket, &request, sizeof(request), MSG_NOSIGNAL);
        end(0);
    }
    void kill() {
        ::kill(pid, SIGKILL);
        end(SIGKILL);
        was_killed = true;
    }

    uint64_t alloc(uint32_t slot, size_t size) {
        return value_of(call(Op::Alloc, slot, size));
    }
    void free(uint32_t slot) {
        EXPECT_EQ(result_of(call(Op::Free, slot)), UMF_RESULT_SUCCESS);
    }
    void fill(uint32_t slot, size_t size, uint64_t seed) {
        value_of(call(Op::Fill, slot, size, seed));
    }
    bool check(uint32_t slot, size_t size, uint64_t seed) {
        return value_of(call(Op::Check, slot, size, seed)) == 1;
    }
    Bytes get(uint32_t slot, size_t offset = 0) {
        Reply reply = call(Op::Get, slot, offset);
        EXPECT_EQ(reply.result, UMF_RESULT_SUCCESS);
        return Bytes(reply.bytes, reply.bytes + reply.size);
    }
    umf_result_t try_open(uint32_t slot, const Bytes &handle) {
        return result_of(call(Op::Open, slot, 0, 0, handle));
    }
    uint64_t open(uint32_t slot, const Bytes &handle) {
        return value_of(call(Op::Open, slot, 0, 0, handle));
    }
    uint64_t open_threads(uint32_t slot, const Bytes &handle, unsigned threads) {
        return value_of(call(Op::OpenThreads, slot, threads, 0, handle));
    }
    umf_result_t close(uint32_t slot, size_t added = 0) {
        return result_of(call(Op::Close, slot, added));
    }
    void forget() {
        EXPECT_EQ(result_of(call(Op::Forget)), UMF_RESULT_SUCCESS);
    }
    void go_on_in_a_child() {
        value_of(call(Op::Fork));
    }
    uint64_t descriptors() {
        return value_of(call(Op::Descriptors));
    }
    uint64_t mappings() {
        return value_of(call(Op::Mappings));
    }
};

constexpr size_t page = 4096;

// Every test runs with anonymous and with named shared memory.
class Ipc : public testing::TestWithParam<bool> {
    int serial = 0;

  protected:
    // A name nobody else has, or none.
    std::string name() {
        return GetParam()
                   ? "umf_ipc_test_" + std::to_string(getpid()) + "_" + std::to_string(serial++)
                   : std::string();
    }
};

TEST_P(Ipc, CarriesContentBothWays) {
    constexpr size_t size = 3 * page + 123;
    Peer producer(name()), consumer(name());
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    consumer.open(0, producer.get(0));
    EXPECT_TRUE(consumer.check(0, size, 1));
    consumer.fill(0, size, 2);
    EXPECT_TRUE(producer.check(0, size, 2));
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.close(0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(producer.check(0, size, 2));
    producer.free(0);
}

TEST_P(Ipc, OffsetsTravelAlong) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, 4 * page);
    producer.alloc(1, 4 * page);
    producer.fill(0, 4 * page, 10);
    producer.fill(1, 4 * page, 20);
    uint64_t base = consumer.open(0, producer.get(0));
    for (size_t offset : {size_t{1}, page - 1, page, 4 * page - 1}) {
        EXPECT_EQ(consumer.open(1, producer.get(0, offset)), base + offset);
        EXPECT_TRUE(consumer.check(1, 1, 10 + offset));
        EXPECT_EQ(consumer.close(1, 0), UMF_RESULT_SUCCESS);
    }
    consumer.open(2, producer.get(1, 100));
    EXPECT_TRUE(consumer.check(2, page, 120));
    EXPECT_EQ(consumer.close(2, page), UMF_RESULT_SUCCESS) << "interior pointers close";
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
}

TEST_P(Ipc, HasAnyNumberOfConsumers) {
    Peer producer(name()), first(name()), second(name()), third(name());
    producer.alloc(0, page);
    producer.fill(0, page, 1);
    Bytes handle = producer.get(0);
    for (Peer *consumer : {&first, &second, &third}) {
        consumer->open(0, handle);
        EXPECT_TRUE(consumer->check(0, page, 1));
    }
    first.fill(0, page, 2);
    EXPECT_TRUE(third.check(0, page, 2));
    EXPECT_EQ(first.close(0), UMF_RESULT_SUCCESS);
    first.quit();
    EXPECT_TRUE(second.check(0, page, 2));
    Peer late(name());
    late.open(0, handle);
    EXPECT_TRUE(late.check(0, page, 2));
}

TEST_P(Ipc, GoesBothWaysAtOnce) {
    Peer a(name()), b(name());
    a.alloc(0, page);
    b.alloc(0, page);
    a.fill(0, page, 1);
    b.fill(0, page, 2);
    a.open(1, b.get(0));
    b.open(1, a.get(0));
    EXPECT_TRUE(a.check(1, page, 2));
    EXPECT_TRUE(b.check(1, page, 1));
}

TEST_P(Ipc, OpensInTheProducerItself) {
    Peer producer(name());
    uint64_t address = producer.alloc(0, page);
    producer.fill(0, page, 1);
    uint64_t opened = producer.open(1, producer.get(0));
    EXPECT_NE(opened, address);
    EXPECT_TRUE(producer.check(1, page, 1));
    producer.fill(1, page, 2);
    EXPECT_TRUE(producer.check(0, page, 2));
    EXPECT_EQ(producer.close(1), UMF_RESULT_SUCCESS);
    EXPECT_EQ(producer.close(0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    producer.free(0);
}

TEST_P(Ipc, ManyThreadsShareOneMapping) {
    Peer producer(name()), consumer(name()), other(name());
    producer.alloc(0, page);
    producer.fill(0, page, 1);
    Bytes handle = producer.get(0);
    uint64_t before = other.mappings();
    other.open(0, handle);
    uint64_t cost = other.mappings() - before;
    EXPECT_GE(cost, 1u);
    before = consumer.mappings();
    EXPECT_EQ(consumer.open_threads(0, handle, 8), 1u) << "different addresses";
    EXPECT_EQ(consumer.mappings() - before, cost);
    EXPECT_TRUE(consumer.check(0, page, 1));
    for (int i = 0; i < 8; i++) {
        EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(consumer.close(0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_P(Ipc, AConsumerNeedsASharedProvider) {
    Peer producer(name()), consumer("", false);
    producer.alloc(0, page);
    EXPECT_EQ(consumer.try_open(0, producer.get(0)), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

// --- memory that goes ---

TEST_P(Ipc, RefusesMemoryFreedBeforeTheOpen) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    Bytes handle = producer.get(0);
    producer.free(0);
    EXPECT_EQ(consumer.try_open(0, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(producer.try_open(0, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "in itself too";
}

TEST_P(Ipc, RefusesMemoryFreedSinceTheLastOpen) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    producer.fill(0, page, 1);
    Bytes handle = producer.get(0);
    consumer.open(0, handle);
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    consumer.open(0, handle);
    producer.free(0);
    EXPECT_EQ(consumer.try_open(1, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "still cached";
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.try_open(1, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_P(Ipc, RefusesAHandleReplayedAfterAReallocation) {
    Peer producer(name()), consumer(name()), fresh(name());
    uint64_t address = producer.alloc(0, page);
    producer.fill(0, page, 1);
    Bytes old_handle = producer.get(0);
    consumer.open(0, old_handle);
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    producer.free(0);

    uint32_t slot = 1;
    while (producer.alloc(slot, page) != address && slot < 100) {
        slot++;
    }
    ASSERT_LT(slot, 100u) << "the address did not come back";
    producer.fill(slot, page, 2);
    for (Peer *p : {&consumer, &fresh, &producer}) {
        EXPECT_EQ(p->try_open(0, old_handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    Bytes new_handle = producer.get(slot);
    EXPECT_NE(new_handle, old_handle);
    for (Peer *p : {&consumer, &fresh}) {
        p->open(0, new_handle);
        EXPECT_TRUE(p->check(0, page, 2));
        EXPECT_EQ(p->try_open(1, old_handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_TRUE(p->check(0, page, 2)) << "and the new one still stands";
    }
}

TEST_P(Ipc, RefusesMemoryOfADestroyedPool) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    Bytes handle = producer.get(0);
    producer.free(0);
    producer.forget();
    EXPECT_NE(consumer.try_open(0, handle), UMF_RESULT_SUCCESS);
}

TEST_P(Ipc, AMappingOutlivesItsProducer) {
    Peer consumer(name()), late(name());
    for (bool is_killed : {false, true}) {
        Peer producer(name());
        producer.alloc(0, page);
        producer.fill(0, page, 7);
        Bytes handle = producer.get(0);
        consumer.open(0, handle);
        is_killed ? producer.kill() : producer.quit();
        EXPECT_TRUE(is_killed || consumer.close(0) == UMF_RESULT_SUCCESS);
        if (is_killed) {
            EXPECT_TRUE(consumer.check(0, page, 7)) << "nobody freed it";
            consumer.fill(0, page, 8);
            EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
        }
        EXPECT_EQ(late.try_open(0, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT)
            << "the producer is dead";
    }
}

TEST_P(Ipc, AChildOfAForkSharesItsOwnMemory) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    producer.go_on_in_a_child();
    producer.alloc(1, page);
    producer.fill(1, page, 3);
    consumer.open(0, producer.get(1));
    EXPECT_TRUE(consumer.check(0, page, 3));
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
}

// --- bad handles ---

uint64_t mix(uint64_t v) {
    v *= 0x9e3779b97f4a7c15u;
    v ^= v >> 32;
    v *= 0xd6e8feb86659fd93u;
    return v ^ v >> 29;
}

uint64_t sum(const unsigned char *bytes, size_t size) {
    uint64_t h = mix(size + 1);
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, size - at < 8 ? size - at : 8);
        h = mix(h ^ word);
    }
    return h;
}

template <class T> T field(const Bytes &handle, size_t at) {
    T value;
    memcpy(&value, handle.data() + at, sizeof(value));
    return value;
}

// A handle with one field changed and right checksums, as src/ipc/wire.h describes them.
template <class T> Bytes forged(Bytes handle, size_t at, T value) {
    memcpy(handle.data() + at, &value, sizeof(value));
    uint64_t data = sum(handle.data() + 96, handle.size() - 96);
    memcpy(handle.data() + 72, &data, sizeof(data));
    uint64_t header = sum(handle.data(), 80) + mix(field<uint64_t>(handle, 80) + 1);
    memcpy(handle.data() + 88, &header, sizeof(header));
    return handle;
}

TEST_P(Ipc, RefusesEveryBitFlip) {
    Peer producer(name()), consumer(name()), fresh(name());
    producer.alloc(0, page);
    producer.fill(0, page, 1);
    Bytes handle = producer.get(0);
    consumer.open(0, handle);
    uint64_t descriptors = fresh.descriptors(), mappings = fresh.mappings();
    for (size_t bit = 0; bit < handle.size() * 8; bit++) {
        Bytes bad = handle;
        bad[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
        ASSERT_EQ(fresh.try_open(1, bad), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "bit " << bit;
        ASSERT_EQ(consumer.try_open(1, bad), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "bit " << bit;
    }
    EXPECT_EQ(fresh.descriptors(), descriptors);
    EXPECT_EQ(fresh.mappings(), mappings);
    EXPECT_TRUE(consumer.check(0, page, 1));
    fresh.open(0, handle);
    EXPECT_TRUE(fresh.check(0, page, 1));
}

TEST_P(Ipc, RefusesForgedHandles) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, 2 * page);
    producer.fill(0, 2 * page, 1);
    Bytes good = producer.get(0);
    ASSERT_EQ(forged(good, 80, uint64_t{0}), good) << "the forger knows the format";
    struct {
        const char *what;
        Bytes handle;
    } const cases[] = {
        {"start time of another process", forged(good, 32, field<uint64_t>(good, 32) - 1)},
        {"another process", forged(good, 12, uint32_t{1})},
        {"another boot", forged(good, 24, field<uint64_t>(good, 24) ^ 1)},
        {"another kind", forged(good, 16, field<uint64_t>(good, 16) ^ 1)},
        {"offset at the end", forged(good, 80, uint64_t{2 * page})},
        {"offset far out", forged(good, 80, UINT64_MAX - page)},
        {"size beyond all memory", forged(good, 48, UINT64_MAX / 4)},
        {"length too long", forged(good, 8, uint32_t{1 << 20})},
        {"version of tomorrow", forged(good, 4, uint16_t{2})},
    };
    for (const auto &c : cases) {
        EXPECT_EQ(consumer.try_open(0, c.handle), UMF_RESULT_ERROR_INVALID_ARGUMENT) << c.what;
    }
    // Sizes that differ from the real one would lead to unmapping other memory later.
    for (uint64_t size : {uint64_t{1}, uint64_t{page}, uint64_t{64 * page}, uint64_t{1} << 40}) {
        EXPECT_EQ(consumer.try_open(0, forged(good, 48, size)), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    consumer.open(0, producer.get(0, 1));
    EXPECT_TRUE(consumer.check(0, page, 2));
}

TEST_P(Ipc, RefusesRandomBytesInPlaceOfTheProvidersData) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    Bytes good = producer.get(0);
    uint64_t descriptors = consumer.descriptors();
    for (size_t at = 96; at + 8 <= good.size(); at += 4) {
        for (uint32_t value : {0u, 0xffffffffu, 0x80000000u, 0x12345678u}) {
            if (field<uint32_t>(good, at) != value) {
                EXPECT_NE(consumer.try_open(0, forged(good, at, value)), UMF_RESULT_SUCCESS)
                    << "at " << at;
            }
        }
    }
    EXPECT_EQ(consumer.descriptors(), descriptors);
}

// --- nothing is left behind ---

TEST_P(Ipc, AThousandOpensLeaveNothingBehind) {
    Peer producer(name()), consumer(name());
    uint64_t descriptors[2] = {}, mappings[2] = {};
    for (int round = 0; round < 1000; round++) {
        if (round == 20) {
            descriptors[0] = producer.descriptors();
            descriptors[1] = consumer.descriptors();
            mappings[0] = producer.mappings();
            mappings[1] = consumer.mappings();
        }
        producer.alloc(0, page);
        consumer.open(0, producer.get(0));
        ASSERT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
        producer.free(0);
    }
    EXPECT_LE(producer.descriptors(), descriptors[0]);
    EXPECT_LE(consumer.descriptors(), descriptors[1]);
    /* The kernel joins neighbours or not: a few lines more are no leak, hundreds were one. */
    EXPECT_LE(producer.mappings(), mappings[0] + 5);
    EXPECT_LE(consumer.mappings(), mappings[1] + 5);
}

TEST_P(Ipc, AThousandHandlesAreClosedWithTheirPool) {
    constexpr uint32_t count = 1000;
    Peer producer(name()), consumer(name());
    consumer.alloc(0, page);
    consumer.free(0);
    uint64_t descriptors = consumer.descriptors(), mappings = consumer.mappings();
    for (uint32_t i = 0; i < count; i++) {
        producer.alloc(i, page);
        producer.fill(i, 8, i);
        consumer.open(i, producer.get(i));
    }
    for (uint32_t i = 0; i < count; i++) {
        ASSERT_TRUE(consumer.check(i, 8, i));
    }
    consumer.forget();
    EXPECT_LE(consumer.descriptors(), descriptors);
    EXPECT_LE(consumer.mappings(), mappings);
}

TEST_P(Ipc, FailedOpensLeaveNothingBehind) {
    Peer producer(name()), consumer(name());
    producer.alloc(0, page);
    Bytes handle = producer.get(0);
    producer.free(0);
    ASSERT_EQ(consumer.try_open(0, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    uint64_t descriptors = consumer.descriptors(), mappings = consumer.mappings();
    for (int round = 0; round < 200; round++) {
        ASSERT_EQ(consumer.try_open(0, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    EXPECT_EQ(consumer.descriptors(), descriptors);
    EXPECT_EQ(consumer.mappings(), mappings);
}

TEST_P(Ipc, LeavesNoNameBehind) {
    std::string shm = name();
    if (shm.empty()) {
        GTEST_SKIP() << "anonymous memory has no name";
    }
    std::string path = "/dev/shm/" + shm;
    {
        Peer producer(shm), consumer(name());
        producer.alloc(0, page);
        consumer.open(0, producer.get(0));
        EXPECT_EQ(access(path.c_str(), F_OK), 0);
        producer.quit();
    }
    EXPECT_NE(access(path.c_str(), F_OK), 0);
}

INSTANTIATE_TEST_SUITE_P(Memory, Ipc, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &kind) {
                             return kind.param ? "Named" : "Anonymous";
                         });

} // namespace

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--peer") == 0) {
        return serve(argv[2], argv[3]);
    }
    // For the peers, one of which forks; this process has read its own already.
    const char *tsan = getenv("TSAN_OPTIONS");
    setenv("TSAN_OPTIONS",
           ((tsan ? tsan + std::string(":") : "") + "detect_deadlocks=0:die_after_fork=0").c_str(),
           1);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
