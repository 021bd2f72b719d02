// Sharing GPU memory, and memory of the other providers of virtual memory, between real processes.
//
// The program starts itself again, as many times as a test needs: each such peer starts CUDA for
// itself, owns a pool and does what it is told through a socket. What travels between peers are the
// bytes of handles, nothing else.
#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "gpu.h"

#include <umf.h>
#include <umf/ipc.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/providers/provider_linux_vmm.h>
#include <umf/suspend.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t BUSY = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t MiB = size_t{1} << 20;
constexpr size_t header = 96; // bytes in front of the provider's own

using Bytes = std::vector<unsigned char>;

enum class Op : uint32_t {
    Alloc,       // a: size -> value: address
    Free,        // slot
    Fill,        // slot, a: size, b: seed
    Check,       // slot, a: size, b: seed -> value: 1 if it is what Fill wrote
    Get,         // slot, a: offset -> bytes
    Open,        // bytes -> value: address
    RawOpen,     // bytes of the provider -> value: address
    RawClose,    // slot, a: size
    Close,       // slot
    Suspend,     //
    Resume,      //
    Anew,        // destroys pool and provider and makes them again
    Descriptors, // -> value: open descriptors
    Objects,     // -> value: what is alive in the software driver
    Fail, // a: the n-th next call of the software driver fails -> value: failures not had yet
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

Bytes pattern(size_t size, uint64_t seed) {
    Bytes made(size);
    for (size_t i = 0; i < size; i++) {
        made[i] = static_cast<unsigned char>((seed + i) * 2654435761u >> 13);
    }
    return made;
}

class Servant {
    int socket;
    std::string text;
    bool on_host;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    void *slots[512] = {};

    umf_result_t create() {
        umf_result_t result = umfPoolCreateFromText(text.c_str(), &pool);
        if (result == OK) {
            umfPoolGetMemoryProvider(pool, &provider);
            result = umfPoolGetIPCHandler(pool, &handler);
        }
        return result;
    }

    umf_result_t destroy() {
        umf_result_t result = pool ? umfPoolDestroy(pool) : OK;
        pool = nullptr;
        return result;
    }

    void start_cuda(int device) {
        CUcontext context;
        driver().cuInit(0);
        driver().cuDevicePrimaryCtxRetain(&context, device);
        driver().cuCtxSetCurrent(context);
    }

    umf_result_t get(const Request &request, Reply &reply) {
        umf_ipc_handle_t handle = nullptr;
        size_t size = 0;
        umf_result_t result =
            umfGetIPCHandle(static_cast<char *>(slots[request.slot]) + request.a, &handle, &size);
        if (result == OK) {
            memcpy(reply.bytes, handle, size);
            reply.size = static_cast<uint32_t>(size);
            result = umfPutIPCHandle(handle);
        }
        return result;
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
        slots[request.slot] = ptr;
        reply.value = reinterpret_cast<uintptr_t>(ptr);
        return result;
    }

    umf_result_t write(const Request &request) {
        Bytes made = pattern(request.a, request.b);
        void *to = slots[request.slot];
        if (on_host) {
            memcpy(to, made.data(), made.size());
            return OK;
        }
        return driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(to), made.data(), made.size()) ==
                       CUDA_SUCCESS
                   ? OK
                   : UMF_RESULT_ERROR_UNKNOWN;
    }

    bool check(const Request &request) {
        Bytes seen(request.a);
        const void *from = slots[request.slot];
        if (on_host) {
            memcpy(seen.data(), from, seen.size());
        } else if (driver().cuMemcpyDtoH(seen.data(), reinterpret_cast<CUdeviceptr>(from),
                                         seen.size()) != CUDA_SUCCESS) {
            return false;
        }
        return seen == pattern(request.a, request.b);
    }

    umf_result_t sleep(bool awake) {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = UMF_SUSPEND_KEEP_HOST;
        umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
        umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
        umf_result_t result = awake ? OK : umfPoolSetSuspendPolicy(pool, &policy);
        if (result != OK) {
            return result;
        }
        return awake ? umfPoolsResume(&pool, 1, &params, &report)
                     : umfPoolsSuspend(&pool, 1, &params, &report);
    }

    static uint64_t count_descriptors() {
        uint64_t count = 0;
        for (int fd = 0; fd < 1024; fd++) {
            count += fcntl(fd, F_GETFD) != -1;
        }
        return count;
    }

    static uint64_t fail_at(long n) {
        fake_cuda_t *control = driver().control();
        long left = control->fail_at;
        control->fail_function = FAKE_CUDA_ANY;
        control->fail_with = CUDA_ERROR_UNKNOWN;
        control->fail_at = n;
        return static_cast<uint64_t>(left);
    }

    umf_result_t serve(const Request &request, Reply &reply) {
        switch (request.op) {
        case Op::Alloc:
            slots[request.slot] = umfPoolMalloc(pool, request.a);
            reply.value = reinterpret_cast<uintptr_t>(slots[request.slot]);
            return reply.value ? OK : umfPoolGetLastAllocationError(pool);
        case Op::Free:
            return umfFree(slots[request.slot]);
        case Op::Fill:
            return write(request);
        case Op::Check:
            reply.value = check(request);
            return OK;
        case Op::Get:
            return get(request, reply);
        case Op::Open:
        case Op::RawOpen:
            return open(request, reply);
        case Op::RawClose:
            return umfMemoryProviderCloseIPCHandle(provider, slots[request.slot], request.a);
        case Op::Close:
            return umfCloseIPCHandle(slots[request.slot]);
        case Op::Suspend:
            return sleep(false);
        case Op::Resume:
            return sleep(true);
        case Op::Anew:
            destroy();
            return create();
        case Op::Descriptors:
            reply.value = count_descriptors();
            return OK;
        case Op::Objects:
            reply.value = static_cast<uint64_t>(driver().control()->objects);
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
    Servant(int socket_fd, const char *pool_text, int device)
        : socket(socket_fd), text(pool_text), on_host(text.find("linux") != std::string::npos) {
        // What an application does that lets others at its memory.
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        if (!on_host) {
            start_cuda(device);
        }
        if (create() != OK) {
            fprintf(stderr, "%s: not created\n", pool_text);
        }
    }

    int run() {
        static Request request;
        static Reply reply;
        while (recv(socket, &request, sizeof(request), 0) == sizeof(request)) {
            if (request.op == Op::Quit) {
                return destroy() == OK ? 0 : 1;
            }
            memset(&reply, 0, sizeof(reply));
            reply.result = serve(request, reply);
            send(socket, &reply, sizeof(reply), MSG_NOSIGNAL);
        }
        return 0; // the test is gone
    }
};

constexpr int peer_socket = 100;

int serve(const char *text, const char *device) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return Servant(peer_socket, text, atoi(device)).run();
}

// --- the test's side ---

struct Kind {
    const char *name;
    const char *provider; // its text but for the device
    bool is_vmm;
};

const Kind kinds[] = {
    {"linux_vmm", "linux_vmm:piece_size=8M", true}, // two allocations of most tests
    {"cuda_vmm", "cuda_vmm:share=fd,piece_size=8M", true},
    {"cuda", "cuda:memory_type=device", false},
};

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

    void end(int status_wanted) {
        int status = 0;
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_EQ(status, status_wanted);
        ::close(socket);
        pid = -1;
    }

  public:
    explicit Peer(const Kind &kind, int device = 0, const char *pool = "proxy") {
        int sockets[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
        socket = sockets[0];
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, sockets[1], peer_socket);
        std::string number = std::to_string(device);
        std::string text = std::string(pool) + " over " + kind.provider;
        if (strncmp(kind.name, "cuda", 4) == 0) {
            text += ",device=" + number;
        }
        char program[] = "ipc_gpu_test", flag[] = "--peer";
        char *arguments[] = {program, flag, text.data(), number.data(), nullptr};
        EXPECT_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments, environ), 0);
        posix_spawn_file_actions_destroy(&actions);
        ::close(sockets[1]);
    }
    ~Peer() {
        if (pid != -1) {
            quit();
        }
    }
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    void quit() {
        Request request = {};
        request.op = Op::Quit;
        send(socket, &request, sizeof(request), MSG_NOSIGNAL);
        end(0);
    }
    void kill() {
        ::kill(pid, SIGKILL);
        end(SIGKILL);
    }

    uint64_t alloc(uint32_t slot, size_t size) {
        return value_of(call(Op::Alloc, slot, size));
    }
    umf_result_t try_alloc(uint32_t slot, size_t size) {
        return result_of(call(Op::Alloc, slot, size));
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
    umf_result_t try_get(uint32_t slot) {
        return result_of(call(Op::Get, slot));
    }
    Bytes get(uint32_t slot, size_t offset = 0) {
        Reply reply = call(Op::Get, slot, offset);
        EXPECT_EQ(reply.result, OK);
        return Bytes(reply.bytes, reply.bytes + reply.size);
    }
    umf_result_t try_open(uint32_t slot, const Bytes &handle) {
        return result_of(call(Op::Open, slot, 0, 0, handle));
    }
    uint64_t open(uint32_t slot, const Bytes &handle) {
        return value_of(call(Op::Open, slot, 0, 0, handle));
    }
    umf_result_t raw_open(uint32_t slot, const Bytes &handle) {
        return result_of(
            call(Op::RawOpen, slot, 0, 0, Bytes(handle.begin() + header, handle.end())));
    }
    umf_result_t raw_close(uint32_t slot, size_t size) {
        return result_of(call(Op::RawClose, slot, size));
    }
    umf_result_t close(uint32_t slot) {
        return result_of(call(Op::Close, slot));
    }
    umf_result_t suspend() {
        return result_of(call(Op::Suspend));
    }
    umf_result_t resume() {
        return result_of(call(Op::Resume));
    }
    void anew() {
        value_of(call(Op::Anew));
    }
    uint64_t descriptors() {
        return value_of(call(Op::Descriptors));
    }
    uint64_t objects() {
        return value_of(call(Op::Objects));
    }
    // The n-th next call fails. Tells whether the last one that was to fail did.
    bool fail_at(uint64_t n) {
        return value_of(call(Op::Fail, 0, n)) == 0;
    }
};

int count_gpus() {
    int count = 0;
    driver().cuInit(0);
    driver().cuDeviceGetCount(&count);
    return count;
}

class IpcGpu : public testing::TestWithParam<Kind> {
  protected:
    const Kind &kind = GetParam();
    static constexpr size_t size = 4 * MiB;
};

// What stands at `at` in the provider's bytes.
template <class T> T field(const Bytes &handle, size_t at) {
    T value;
    memcpy(&value, handle.data() + header + at, sizeof(value));
    return value;
}

// A description with one field changed and its sum right, as src/base/sum.c has it.
template <class T> Bytes forged_description(Bytes handle, size_t at, T value) {
    memcpy(handle.data() + header + at, &value, sizeof(value));
    uint64_t sum = 0;
    memcpy(handle.data() + header + 8, &sum, sizeof(sum));
    sum = 0xcbf29ce484222325 + (handle.size() - header);
    for (size_t i = header; i < handle.size(); i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, handle.data() + i, sizeof(word));
        sum = (sum ^ word) * 0x9E3779B97F4A7C15;
        sum ^= sum >> 29;
    }
    memcpy(handle.data() + header + 8, &sum, sizeof(sum));
    return handle;
}

uint64_t mix(uint64_t v) {
    v *= 0x9e3779b97f4a7c15u;
    v ^= v >> 32;
    v *= 0xd6e8feb86659fd93u;
    return v ^ v >> 29;
}

// A handle of another size with a right sum, as src/ipc/wire.h describes it.
Bytes forged_size(Bytes handle, uint64_t bytes) {
    memcpy(handle.data() + 48, &bytes, sizeof(bytes));
    uint64_t sum = mix(80 + 1), word;
    for (size_t at = 0; at < 80; at += sizeof(word)) {
        memcpy(&word, handle.data() + at, sizeof(word));
        sum = mix(sum ^ word);
    }
    memcpy(&word, handle.data() + 80, sizeof(word));
    sum += mix(word + 1);
    memcpy(handle.data() + 88, &sum, sizeof(sum));
    return handle;
}

#define NEEDS_VMM()                                                                                \
    if (!kind.is_vmm) {                                                                            \
        GTEST_SKIP() << "a statement about memory that comes and goes";                            \
    }

} // namespace

TEST_P(IpcGpu, CarriesContentBothWays) {
    Peer producer(kind), consumer(kind);
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    consumer.open(0, producer.get(0));
    EXPECT_TRUE(consumer.check(0, size, 1));
    consumer.fill(0, size, 2);
    EXPECT_TRUE(producer.check(0, size, 2));
    EXPECT_EQ(consumer.close(0), OK);
    EXPECT_EQ(consumer.close(0), BAD);
    EXPECT_TRUE(producer.check(0, size, 2));
    producer.free(0);
}

TEST_P(IpcGpu, TheConsumerMayBeOnAnotherGpu) {
    if (strcmp(kind.name, "linux_vmm") == 0 || count_gpus() < 2) {
        GTEST_SKIP() << "one GPU, or none needed";
    }
    Peer producer(kind, 0), consumer(kind, 1);
    producer.alloc(0, size);
    producer.fill(0, size, 3);
    consumer.open(0, producer.get(0));
    EXPECT_TRUE(consumer.check(0, size, 3));
    consumer.fill(0, size, 4);
    EXPECT_TRUE(producer.check(0, size, 4));
    EXPECT_EQ(consumer.close(0), OK);
    producer.free(0);
}

TEST_P(IpcGpu, PoolsAndOffsetsTravelAlong) {
    Peer producer(kind, 0, "disjoint"), consumer(kind, 0, "disjoint");
    for (uint32_t slot = 0; slot < 8; slot++) {
        producer.alloc(slot, 4096);
        producer.fill(slot, 4096, slot + 10);
    }
    for (uint32_t slot = 0; slot < 8; slot++) {
        consumer.open(slot, producer.get(slot));
        EXPECT_TRUE(consumer.check(slot, 4096, slot + 10)) << slot;
    }
    uint64_t inside = consumer.open(8, producer.get(0, 1000));
    EXPECT_EQ(inside, consumer.open(9, producer.get(0)) + 1000);
    for (uint32_t slot = 0; slot < 10; slot++) {
        EXPECT_EQ(consumer.close(slot), OK) << slot;
    }
    consumer.alloc(10, 4096); // its own memory is another
    consumer.fill(10, 4096, 99);
    EXPECT_TRUE(producer.check(0, 4096, 10));
    consumer.free(10);
    for (uint32_t slot = 0; slot < 8; slot++) {
        producer.free(slot);
    }
}

TEST_P(IpcGpu, OpensInTheProducerItself) {
    Peer producer(kind);
    uint64_t objects = driver().is_real ? 0 : producer.objects();
    uint64_t address = producer.alloc(0, size);
    producer.fill(0, size, 5);
    Bytes handle = producer.get(0);
    uint64_t opened = producer.open(1, handle);
    EXPECT_EQ(producer.open(2, handle), opened);
    EXPECT_EQ(opened == address, !kind.is_vmm);
    EXPECT_TRUE(producer.check(1, size, 5));
    producer.fill(1, size, 6);
    EXPECT_TRUE(producer.check(0, size, 6));
    // Closing leaves the producer its memory, freeing leaves the opened one.
    EXPECT_EQ(producer.close(1), OK);
    EXPECT_TRUE(producer.check(0, size, 6));
    producer.free(0);
    EXPECT_TRUE(producer.check(2, size, 6));
    EXPECT_EQ(producer.try_open(3, handle), BAD);
    EXPECT_EQ(producer.close(2), OK);
    EXPECT_EQ(producer.close(2), BAD);
    EXPECT_NE(producer.try_open(3, handle), OK);
    if (!driver().is_real) {
        EXPECT_EQ(producer.objects(), objects);
    }

    // The same once more: an address may be used again.
    producer.alloc(0, size);
    producer.fill(0, size, 7);
    producer.open(1, producer.get(0));
    EXPECT_TRUE(producer.check(1, size, 7));
    EXPECT_EQ(producer.close(1), OK);
    producer.free(0);
}

TEST_P(IpcGpu, ClosesInAnyOrder) {
    Peer producer(kind), consumer(kind);
    for (uint32_t slot = 0; slot < 4; slot++) {
        producer.alloc(slot, size);
        producer.fill(slot, size, slot);
        consumer.open(slot, producer.get(slot));
    }
    for (uint32_t slot : {2u, 0u, 3u}) {
        EXPECT_EQ(consumer.close(slot), OK);
        EXPECT_TRUE(consumer.check(1, size, 1));
        producer.free(slot);
        EXPECT_TRUE(consumer.check(1, size, 1));
    }
    EXPECT_EQ(consumer.close(1), OK);
    producer.free(1);
}

TEST_P(IpcGpu, RefusesEveryDamagedByte) {
    Peer producer(kind), consumer(kind);
    producer.alloc(0, size);
    Bytes handle = producer.get(0);
    for (size_t i = 0; i < handle.size(); i++) {
        Bytes damaged = handle;
        damaged[i] ^= 0xff;
        EXPECT_NE(consumer.try_open(0, damaged), OK) << i;
        if (kind.is_vmm && i >= header) {
            EXPECT_EQ(consumer.raw_open(0, damaged), BAD) << i;
        }
    }
    consumer.open(0, handle);
    EXPECT_EQ(consumer.close(0), OK);
}

// Whoever knows the format can get the sums right, too.
TEST_P(IpcGpu, RefusesForgedDescriptions) {
    NEEDS_VMM()
    Peer producer(kind), consumer(kind);
    producer.alloc(0, size);
    producer.fill(0, size, 14);
    Bytes good = producer.get(0);
    uint64_t descriptors = consumer.descriptors();
    ASSERT_EQ(forged_description(good, 236, uint32_t{0}), good) << "the forger knows the format";
    const struct {
        const char *what;
        Bytes handle;
    } cases[] = {
        {"another format", forged_description(good, 4, uint16_t{1})},
        {"another kind", forged_description(good, 6, uint16_t{7})},
        {"another boot", forged_description(good, 16, uint64_t{1})},
        {"another file", forged_description(good, 40, uint64_t{1})},
        {"another process for one of the two", forged_description(good, 48, uint32_t{1})},
        {"the descriptor of the board",
         forged_description(forged_description(good, 56, field<int32_t>(good, 144)), 96,
                            field<uint64_t>(good, 184))},
        {"no descriptor", forged_description(good, 56, int32_t{-1})},
        {"another board", forged_description(good, 128, uint64_t{1})},
        {"a piece of half the size", forged_description(good, 192, uint64_t{size})},
        {"a piece of twice the size", forged_description(good, 192, uint64_t{4 * size})},
        {"a piece of no size", forged_description(good, 192, uint64_t{0})},
        {"a piece of all memory", forged_description(good, 192, UINT64_MAX & ~(2 * MiB - 1))},
        {"an offset behind the piece", forged_description(good, 200, uint64_t{2 * size})},
        {"an offset far out", forged_description(good, 200, UINT64_MAX & ~(2 * MiB - 1))},
        {"an odd offset", forged_description(good, 200, uint64_t{1})},
        {"no size", forged_description(good, 208, uint64_t{0})},
        {"no granule", forged_description(good, 216, uint64_t{0})},
        {"an odd granule", forged_description(good, 216, uint64_t{3})},
        {"another generation", forged_description(good, 224, uint64_t{77})},
        {"no generation", forged_description(good, 224, uint64_t{0})},
        {"another word", forged_description(good, 232, uint32_t{500})},
        {"no word", forged_description(good, 232, uint32_t{0})},
        {"a word behind the board", forged_description(good, 232, uint32_t{1} << 30)},
    };
    for (const auto &c : cases) {
        EXPECT_NE(consumer.raw_open(0, c.handle), OK) << c.what;
    }
    EXPECT_EQ(consumer.descriptors(), descriptors);
    // A size that differs from the one in the handle would lead to unmapping other memory later.
    EXPECT_EQ(consumer.try_open(0, forged_size(good, size / 2)), BAD);
    EXPECT_EQ(consumer.try_open(0, forged_size(good, 2 * size)), BAD);
    consumer.open(0, good);
    EXPECT_TRUE(consumer.check(0, size, 14));
}

TEST_P(IpcGpu, MappingsOutliveTheProducerButHandlesDoNot) {
    NEEDS_VMM()
    Peer producer(kind), consumer(kind);
    producer.alloc(0, size);
    producer.fill(0, size, 8);
    Bytes handle = producer.get(0);
    consumer.open(0, handle);
    producer.kill();
    EXPECT_TRUE(consumer.check(0, size, 8));
    EXPECT_EQ(consumer.raw_open(1, handle), BAD);
    EXPECT_EQ(consumer.close(0), OK);
    consumer.anew();
    EXPECT_EQ(consumer.try_open(1, handle), BAD);
}

TEST_P(IpcGpu, RefusesHandlesOfAProducerThatIsGone) {
    Peer producer(kind), consumer(kind);
    producer.alloc(0, size);
    Bytes handle = producer.get(0);
    producer.kill();
    EXPECT_EQ(consumer.try_open(0, handle), BAD);
}

// Descriptors of device memory all name one file, and their numbers come again.
TEST_P(IpcGpu, RefusesHandlesOfFreedMemory) {
    NEEDS_VMM()
    Peer producer(kind), consumer(kind);
    producer.alloc(0, size);
    Bytes handle = producer.get(0);
    producer.free(0);
    EXPECT_EQ(consumer.raw_open(0, handle), BAD);
    producer.alloc(0, size);
    producer.get(0);
    EXPECT_EQ(consumer.raw_open(0, handle), BAD);
    EXPECT_EQ(consumer.try_open(0, handle), BAD);

    // Also when the piece stays, because something else is in it.
    producer.alloc(1, size);
    producer.fill(1, size, 9);
    handle = producer.get(0);
    Bytes neighbour = producer.get(1);
    producer.free(0);
    EXPECT_EQ(consumer.raw_open(0, handle), BAD);
    ASSERT_EQ(consumer.raw_open(1, neighbour), OK);
    EXPECT_TRUE(consumer.check(1, size, 9));
    EXPECT_EQ(consumer.raw_close(1, size), OK);
}

TEST_P(IpcGpu, SuspendedMemoryIsSharedAnew) {
    NEEDS_VMM()
    Peer producer(kind), consumer(kind), second(kind);
    producer.alloc(0, size);
    producer.fill(0, size, 11);
    Bytes before = producer.get(0);
    consumer.open(0, before);
    ASSERT_EQ(producer.suspend(), OK);
    EXPECT_EQ(producer.try_get(0), BUSY);
    EXPECT_TRUE(consumer.check(0, size, 11));
    EXPECT_EQ(second.try_open(0, before), BAD);
    EXPECT_EQ(consumer.try_open(1, before), BAD);
    ASSERT_EQ(producer.resume(), OK);
    EXPECT_TRUE(producer.check(0, size, 11));
    producer.fill(0, size, 12);
    EXPECT_TRUE(consumer.check(0, size, 11)); // still the old memory
    EXPECT_EQ(second.try_open(0, before), BAD);
    EXPECT_EQ(second.raw_open(0, before), BAD);
    Bytes after = producer.get(0);
    EXPECT_NE(before, after);
    consumer.open(1, after);
    EXPECT_TRUE(consumer.check(1, size, 12));
    second.open(0, after);
    EXPECT_TRUE(second.check(0, size, 12));
    EXPECT_EQ(consumer.close(0), OK);
    EXPECT_EQ(consumer.close(1), OK);
    EXPECT_TRUE(second.check(0, size, 12));
}

TEST_P(IpcGpu, ManyOpensLeaveNothingBehind) {
    NEEDS_VMM()
    Peer producer(kind), consumer(kind);
    uint64_t of_producer = producer.descriptors();
    uint64_t of_consumer = consumer.descriptors();
    for (int i = 0; i < 50; i++) {
        producer.alloc(0, size);
        Bytes handle = producer.get(0);
        ASSERT_EQ(consumer.raw_open(0, handle), OK);
        EXPECT_EQ(consumer.raw_close(0, size / 2), BAD);
        EXPECT_EQ(consumer.raw_close(0, size), OK);
        EXPECT_EQ(consumer.raw_close(0, size), BAD);
        producer.free(0);
    }
    EXPECT_LE(producer.descriptors(), of_producer + 2); // the board, the broker's socket
    EXPECT_EQ(consumer.descriptors(), of_consumer);
    consumer.anew();
    producer.anew();
    EXPECT_LE(producer.descriptors(), of_producer + 1);
}

TEST_P(IpcGpu, WhicheverCallFailsNothingIsLeft) {
    NEEDS_FAKE()
    if (strcmp(kind.name, "linux_vmm") == 0) {
        GTEST_SKIP() << "has no driver";
    }
    Peer producer(kind), consumer(kind);
    uint64_t objects = consumer.objects(), descriptors = consumer.descriptors();
    producer.alloc(0, size);
    producer.fill(0, size, 13);
    Bytes handle = producer.get(0);
    bool was_reached = true;
    for (uint64_t n = 1; was_reached; n++) {
        ASSERT_LT(n, 100u);
        consumer.fail_at(n);
        umf_result_t result = consumer.try_open(0, handle);
        was_reached = consumer.fail_at(0);
        EXPECT_TRUE(was_reached || result == OK);
        if (result == OK) {
            EXPECT_TRUE(consumer.check(0, size, 13));
            EXPECT_EQ(consumer.close(0), OK);
            consumer.anew();
        } else {
            EXPECT_EQ(consumer.descriptors(), descriptors) << n;
        }
        EXPECT_EQ(consumer.objects(), objects) << n;
    }

    descriptors = producer.descriptors();
    objects = producer.objects();
    was_reached = true;
    for (uint64_t n = 1; was_reached; n++) {
        ASSERT_LT(n, 100u);
        producer.alloc(1, size);
        producer.fail_at(n);
        umf_result_t result = producer.try_get(1);
        was_reached = producer.fail_at(0);
        EXPECT_TRUE(was_reached || result == OK);
        EXPECT_EQ(producer.try_get(1), OK);
        producer.free(1);
        EXPECT_EQ(producer.descriptors(), descriptors) << n;
        EXPECT_EQ(producer.objects(), objects) << n;
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, IpcGpu, testing::ValuesIn(kinds),
                         [](const testing::TestParamInfo<Kind> &kind) {
                             return std::string(kind.param.name);
                         });

// --- one process ---

// In the primary context, which stays until the program ends.
class CudaVmmShare : public testing::Test {
  protected:
    void SetUp() override {
        CUcontext context = nullptr;
        CU(cuInit(0));
        CU(cuDevicePrimaryCtxRetain(&context, 0));
        CU(cuCtxSetCurrent(context));
    }

    static umf_memory_provider_handle_t make(umf_cuda_vmm_share_t share) {
        umf_cuda_vmm_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t provider = nullptr;
        EXPECT_EQ(umfCUDAVmmMemoryProviderParamsCreate(0, &params), OK);
        EXPECT_EQ(umfCUDAVmmMemoryProviderParamsSetShare(params, share), OK);
        EXPECT_EQ(umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, &provider), OK);
        umfCUDAVmmMemoryProviderParamsDestroy(params);
        return provider;
    }
};

TEST_F(CudaVmmShare, IsAskedForAtCreation) {
    umf_memory_provider_handle_t sharing = make(UMF_CUDA_VMM_SHARE_FD);
    umf_memory_provider_handle_t provider = make(UMF_CUDA_VMM_SHARE_NONE);
    void *ptr = nullptr, *shared = nullptr;
    size_t bytes = 0;
    alignas(16) char data[4096] = {};
    ASSERT_EQ(umfMemoryProviderAlloc(sharing, 2 * MiB, 0, &shared), OK);
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 2 * MiB, 0, &ptr), OK);
    EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &bytes), BAD);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 2 * MiB, data), BAD);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(sharing, shared, 2 * MiB, data), OK);
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, data), BAD);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, data, &ptr), BAD);
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, ptr, 2 * MiB), BAD);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 2 * MiB), OK);
    EXPECT_EQ(umfMemoryProviderFree(sharing, shared, 2 * MiB), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(sharing), OK);
}

// A piece is exported once, however many allocations in it are shared and how often.
TEST_F(CudaVmmShare, ExportsAPieceOnce) {
    NEEDS_FAKE()
    umf_memory_provider_handle_t provider = make(UMF_CUDA_VMM_SHARE_FD);
    const long &exports = driver().control()->calls[FAKE_cuMemExportToShareableHandle];
    const long before = exports;
    void *ptr = nullptr;
    alignas(16) char first[4096] = {}, again[4096] = {}, part[4096] = {};
    size_t bytes = 0;
    ASSERT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &bytes), OK);
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4 * MiB, 0, &ptr), OK);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 4 * MiB, first), OK);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 4 * MiB, again), OK);
    EXPECT_EQ(memcmp(first, again, bytes), 0);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 2 * MiB, part), BAD);

    // A part of it is another allocation, and what described the whole is void.
    ASSERT_EQ(umfMemoryProviderAllocationSplit(provider, ptr, 4 * MiB, 2 * MiB), OK);
    void *opened = nullptr, *high = static_cast<char *>(ptr) + 2 * MiB;
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, first, &opened), BAD);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, high, 2 * MiB, part), OK);
    CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(high), 0x5a, 2 * MiB));
    ASSERT_EQ(umfMemoryProviderOpenIPCHandle(provider, part, &opened), OK);
    unsigned char seen[16] = {};
    CU(cuMemcpyDtoH(seen, reinterpret_cast<CUdeviceptr>(opened), sizeof(seen)));
    EXPECT_EQ(seen[15], 0x5a);
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, opened, 2 * MiB), OK);
    ASSERT_EQ(umfMemoryProviderAllocationMerge(provider, ptr, high, 4 * MiB), OK);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, part, &opened), BAD);

    EXPECT_EQ(exports, before + 1);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4 * MiB), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

class LinuxVmmShare : public testing::Test {
  protected:
    umf_memory_provider_handle_t provider = nullptr;
    alignas(16) char data[4096] = {};
    static constexpr size_t page = 4096;

    void make(size_t piece_size) {
        umf_linux_vmm_memory_provider_params_handle_t params = nullptr;
        ASSERT_EQ(umfLinuxVmmMemoryProviderParamsCreate(&params), OK);
        ASSERT_EQ(umfLinuxVmmMemoryProviderParamsSetPieceSize(params, piece_size), OK);
        ASSERT_EQ(umfMemoryProviderCreate(umfLinuxVmmMemoryProviderOps(), params, &provider), OK);
        umfLinuxVmmMemoryProviderParamsDestroy(params);
    }

    void TearDown() override {
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }

    bool opens(const char *handle) {
        void *ptr = nullptr;
        alignas(16) char copy[4096];
        memcpy(copy, handle, sizeof(copy));
        return umfMemoryProviderOpenIPCHandle(provider, copy, &ptr) == OK &&
               umfMemoryProviderCloseIPCHandle(provider, ptr, page) == OK;
    }
};

// What a child of a fork does with its copy of a provider is nothing to its parent's handles.
TEST_F(LinuxVmmShare, AChildHasHandlesOfItsOwn) {
    make(MiB);
    void *ptr = nullptr, *other = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, page, 0, &ptr), OK);
    ASSERT_EQ(umfMemoryProviderAlloc(provider, page, 0, &other), OK);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, page, data), OK);
    pid_t child = fork();
    if (child == 0) {
        alignas(16) char mine[4096] = {};
        bool is_good = umfMemoryProviderPutIPCHandle(provider, data) == BAD &&
                       umfMemoryProviderGetIPCHandle(provider, ptr, page, mine) == OK &&
                       memcmp(mine, data, 160) != 0 && opens(mine) &&
                       umfMemoryProviderFree(provider, ptr, page) == OK && !opens(mine);
        _exit(is_good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(opens(data));
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, data), OK);
}

TEST_F(LinuxVmmShare, ThereIsAnEndToWhatCanBeShared) {
    constexpr size_t words = MiB / sizeof(uint64_t); // of which the first is none
    make(words * page);
    std::vector<void *> all(words);
    for (void *&ptr : all) {
        ASSERT_EQ(umfMemoryProviderAlloc(provider, page, 0, &ptr), OK);
    }
    for (size_t i = 0; i < words - 1; i++) {
        ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, all[i], page, data), OK) << i;
    }
    EXPECT_TRUE(opens(data));
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, all.back(), page, data), BUSY);
    ASSERT_EQ(umfMemoryProviderFree(provider, all[77], page), OK);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, all.back(), page, data), OK);
    EXPECT_TRUE(opens(data));
    umf_memory_provider_handle_t late = provider;
    make(MiB);
    EXPECT_TRUE(opens(data)); // by any provider of the kind
    EXPECT_EQ(umfMemoryProviderDestroy(late), OK);
    EXPECT_FALSE(opens(data));
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--peer") == 0) {
        return serve(argv[2], argv[3]);
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
