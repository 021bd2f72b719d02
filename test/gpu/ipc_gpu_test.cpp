// Sharing GPU memory, and memory of the other providers of virtual memory, between real processes:
// the peers of fakes/peer.h, each of which starts CUDA for itself.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gpu.h"

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/providers/provider_linux_vmm.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/descriptors.h"
#include "fakes/forged.h"
#include "fakes/peer.h"
#include "fakes/threads.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t BUSY = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t MiB = size_t{1} << 20;

// --- the peer ---

struct GpuOp {
    enum : uint32_t {
        Suspend = Op::Own,
        Resume,
        Hold,      // slot -> bytes of a handle that stays out
        Put,       // puts it
        Held,      // -> value: bytes of the pool's pages
        Imports,   // -> value: how often the software driver was called to import
        Addresses, // -> value: bytes of addresses that the process has
    };
};

uint64_t size_of_addresses() {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT_EQ(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

bool is_fabric(const std::string &text) {
    return text.find("share=fabric") != std::string::npos;
}

void permit_fabric() {
    if (!driver().is_real) {
        driver().control()->fabric = FAKE_CUDA_FABRIC_PERMITTED;
    }
}

class Servant : public PoolServant {
    const bool on_host;
    umf_ipc_handle_t held = nullptr;

    static void start_cuda(int device) {
        CUcontext context;
        driver().cuInit(0);
        driver().cuDevicePrimaryCtxRetain(&context, device);
        driver().cuCtxSetCurrent(context);
    }

    bool write(void *to, const Bytes &content) override {
        return on_host ? PoolServant::write(to, content)
                       : driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(to), content.data(),
                                               content.size()) == CUDA_SUCCESS;
    }
    bool read(const void *from, Bytes &content) override {
        return on_host ? PoolServant::read(from, content)
                       : driver().cuMemcpyDtoH(content.data(), reinterpret_cast<CUdeviceptr>(from),
                                               content.size()) == CUDA_SUCCESS;
    }
    uint64_t alive() override {
        return static_cast<uint64_t>(driver().control()->objects);
    }
    uint64_t fail_at(long n) override {
        return static_cast<uint64_t>(
            fail_call(driver().control(), FAKE_CUDA_ANY, CUDA_ERROR_UNKNOWN, n));
    }

    umf_result_t suspend() {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = UMF_SUSPEND_KEEP_HOST;
        umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
        umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
        umf_result_t result = umfPoolSetSuspendPolicy(pool, &policy);
        return result == OK ? umfPoolsSuspend(&pool, 1, &params, &report) : result;
    }
    umf_result_t hold(const void *ptr, Reply &reply) {
        size_t handle_size = 0;
        umf_result_t result = umfGetIPCHandle(ptr, &held, &handle_size);
        if (result == OK) {
            reply.set(held, handle_size);
        }
        return result;
    }
    umf_result_t resume() {
        umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
        umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
        return umfPoolsResume(&pool, 1, &params, &report);
    }
    umf_result_t serve_own(const Request &request, Reply &reply) override {
        switch (request.op) {
        case GpuOp::Suspend:
            return suspend();
        case GpuOp::Resume:
            return resume();
        case GpuOp::Hold:
            return hold(slots[request.slot], reply);
        case GpuOp::Put:
            return umfPutIPCHandle(held);
        case GpuOp::Held:
            return umfCtlGet("umf.pool.by_handle.{}.stats.reserved_memory", &reply.value,
                             sizeof(reply.value), pool);
        case GpuOp::Imports:
            reply.value = static_cast<uint64_t>(
                driver().control()->calls[FAKE_cuMemImportFromShareableHandle]);
            return OK;
        case GpuOp::Addresses:
            reply.value = size_of_addresses();
            return OK;
        default:
            return UMF_RESULT_ERROR_UNKNOWN;
        }
    }

  public:
    Servant(Socket &of_test, const std::string &pool_text)
        : PoolServant(of_test, pool_text), on_host(pool_text.find("linux") != std::string::npos) {
        if (is_fabric(pool_text)) {
            permit_fabric();
        }
        if (!on_host) {
            const std::string word = ",device=";
            start_cuda(std::stoi(pool_text.substr(pool_text.find(word) + word.size())));
        }
    }
};

const Roles roles = {{"peer", serve<Servant>}};

// --- the test's side ---

struct Kind {
    const char *name;
    const char *provider; // its text but for the device
    bool is_vmm;
};

const Kind kinds[] = {
    {"linux_vmm", "linux_vmm:piece_size=8M", true}, // two allocations of most tests
    {"cuda_vmm", "cuda_vmm:share=fd,piece_size=8M", true},
    {"cuda_vmm_fabric", "cuda_vmm:share=fabric,piece_size=8M", true},
    {"cuda_vmm_anywhere", "cuda_vmm:share=fabric_anywhere,piece_size=8M", true},
    {"cuda", "cuda:memory_type=device", false},
};

class Peer : public PoolPeer {
    static std::string text_of(const Kind &kind, int device, const char *pool) {
        std::string text = std::string(pool) + " over " + kind.provider;
        return strncmp(kind.name, "cuda", 4) == 0 ? text + ",device=" + std::to_string(device)
                                                  : text;
    }

  public:
    explicit Peer(const Kind &kind, int device = 0, const char *pool = "proxy")
        : PoolPeer("peer", text_of(kind, device, pool)) {}

    umf_result_t raw_open(uint32_t slot, const Bytes &handle) {
        return PoolPeer::raw_open(slot, Bytes(handle.begin() + handle_header, handle.end()));
    }
    uint64_t imports() {
        return value_of(call(GpuOp::Imports));
    }
    uint64_t addresses() {
        return value_of(call(GpuOp::Addresses));
    }
    Bytes hold(uint32_t slot) {
        return bytes_of(call(GpuOp::Hold, slot));
    }
    umf_result_t put() {
        return result_of(call(GpuOp::Put));
    }
    uint64_t held() {
        return value_of(call(GpuOp::Held));
    }
    umf_result_t suspend() {
        return result_of(call(GpuOp::Suspend));
    }
    umf_result_t resume() {
        return result_of(call(GpuOp::Resume));
    }
};

int count_gpus() {
    int count = 0;
    driver().cuInit(0);
    driver().cuDeviceGetCount(&count);
    return count;
}

// Why this machine has no fabric handles; empty: it has them.
std::string why_no_fabric() {
    count_gpus(); // starts the driver
    permit_fabric();
    umf_memory_provider_handle_t provider = nullptr;
    umf_result_t result =
        umfMemoryProviderCreateFromText("cuda_vmm:device=0,share=fabric", &provider);
    if (result == OK) {
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        return "";
    }
    EXPECT_EQ(result, UMF_RESULT_ERROR_NOT_SUPPORTED) << umfTextError();
    return umfTextError();
}

class IpcGpu : public testing::TestWithParam<Kind> {
  protected:
    const Kind &kind = GetParam();
    static constexpr size_t size = 4 * MiB;

    void SetUp() override {
        if (is_fabric(kind.provider)) {
            static const std::string why = why_no_fabric();
            if (!why.empty()) {
                GTEST_SKIP() << why;
            }
        }
    }
};

// A description with one field changed and its sum right, as src/system/checksum.h has it.
template <class T> Bytes forged_description(Bytes handle, size_t at, T value) {
    memcpy(handle.data() + handle_header + at, &value, sizeof(value));
    uint64_t sum = 0;
    memcpy(handle.data() + handle_header + 8, &sum, sizeof(sum));
    sum = sum_of(handle.data() + handle_header, handle.size() - handle_header);
    memcpy(handle.data() + handle_header + 8, &sum, sizeof(sum));
    return handle;
}

#define NEEDS_VMM()                                                                                \
    if (!kind.is_vmm) {                                                                            \
        GTEST_SKIP() << "a statement about memory that comes and goes";                            \
    }

#define NEEDS_BOARD()                                                                              \
    if (strstr(kind.provider, "share=fabric_anywhere")) {                                          \
        GTEST_SKIP() << "a statement about handles that can be checked";                           \
    }

#define NEEDS_DESCRIPTORS()                                                                        \
    if (is_fabric(kind.provider)) {                                                                \
        GTEST_SKIP() << "a statement about descriptors";                                           \
    }

} // namespace

TEST_P(IpcGpu, CarriesContentBothWays) {
    Peer producer(kind), consumer(kind);
    expect_content_goes_both_ways(producer, consumer, size);
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

// A block on pages that have moved is opened on the other device. While its handle is out, a free
// gives no page of it to other blocks; after the put its pages serve them, and nobody opens it.
TEST_P(IpcGpu, PagesOfAnArenaStayForTheOtherGpu) {
    if (strcmp(kind.name, "cuda_vmm") != 0 || count_gpus() < 2) {
        GTEST_SKIP() << "pages that are shared by descriptors, and two GPUs";
    }
    const char *arena = "coalescing:arena=yes,watermark=0";
    for (const char *pool : {"proxy", arena}) {
        Peer producer(kind, 0, arena), consumer(kind, 1, pool);
        for (uint32_t slot = 0; slot < 6; slot++) {
            producer.alloc(slot, 4 * MiB);
        }
        producer.free(0);
        producer.free(2);
        const uint64_t pages = producer.held();
        producer.alloc(10, 6 * MiB);
        EXPECT_EQ(producer.held(), pages) << "pages of both";
        producer.fill(10, 6 * MiB, 3);
        const Bytes handle = producer.hold(10);
        consumer.open(0, handle);
        EXPECT_TRUE(consumer.check(0, 6 * MiB, 3));
        consumer.fill(0, 6 * MiB, 4);
        EXPECT_TRUE(producer.check(10, 6 * MiB, 4));

        producer.free(10);
        producer.free(4);
        producer.alloc(11, 8 * MiB);
        producer.fill(11, 8 * MiB, 5);
        EXPECT_TRUE(consumer.check(0, 6 * MiB, 4)) << "a page was given away";
        consumer.fill(0, 6 * MiB, 6);
        EXPECT_TRUE(producer.check(11, 8 * MiB, 5));
        EXPECT_EQ(consumer.close(0), OK);
        const uint64_t most = producer.held();
        EXPECT_EQ(producer.put(), OK);
        EXPECT_NE(consumer.try_open(1, handle), OK);
        producer.alloc(12, 5 * MiB);
        producer.fill(12, 5 * MiB, 7);
        EXPECT_EQ(producer.held(), most) << "no new page was needed";
        EXPECT_TRUE(producer.check(11, 8 * MiB, 5));
        EXPECT_TRUE(producer.check(12, 5 * MiB, 7));
        for (uint32_t slot : {1, 3, 5, 11, 12}) {
            producer.free(slot);
        }
    }
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
    NEEDS_BOARD()
    Peer producer(kind);
    uint64_t objects = driver().is_real ? 0 : producer.alive();
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
        EXPECT_EQ(producer.alive(), objects);
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
        if (kind.is_vmm && i >= handle_header) {
            EXPECT_EQ(consumer.raw_open(0, damaged), BAD) << i;
        }
    }
    consumer.open(0, handle);
    EXPECT_EQ(consumer.close(0), OK);
}

// An attacker with the format can get the sums right, too.
TEST_P(IpcGpu, RefusesForgedDescriptions) {
    NEEDS_VMM()
    NEEDS_DESCRIPTORS()
    Peer producer(kind), consumer(kind);
    producer.alloc(0, size);
    producer.fill(0, size, 14);
    Bytes good = producer.get(0);
    uint64_t descriptors = consumer.descriptors();
    ASSERT_EQ(forged_description(good, 252, uint32_t{0}), good) << "the forger has the format";
    const struct {
        const char *what;
        Bytes handle;
    } cases[] = {
        {"another format", forged_description(good, 4, uint16_t{1})},
        {"another kind", forged_description(good, 6, uint16_t{7})},
        {"another boot", forged_description(good, 16, uint64_t{1})},
        {"another file", forged_description(good, 40, uint64_t{1})},
        {"another process for one of the two", forged_description(good, 56, uint32_t{1})},
        {"the descriptor of the board",
         forged_description(forged_description(good, 64, field<int32_t>(good, handle_header + 160)),
                            104, field<uint64_t>(good, handle_header + 200))},
        {"no descriptor", forged_description(good, 64, int32_t{-1})},
        {"another board", forged_description(good, 136, uint64_t{1})},
        {"a piece of half the size", forged_description(good, 208, uint64_t{size})},
        {"a piece of twice the size", forged_description(good, 208, uint64_t{4 * size})},
        {"a piece of no size", forged_description(good, 208, uint64_t{0})},
        {"a piece of all memory", forged_description(good, 208, UINT64_MAX & ~(2 * MiB - 1))},
        {"an offset behind the piece", forged_description(good, 216, uint64_t{2 * size})},
        {"an offset far out", forged_description(good, 216, UINT64_MAX & ~(2 * MiB - 1))},
        {"an odd offset", forged_description(good, 216, uint64_t{1})},
        {"no size", forged_description(good, 224, uint64_t{0})},
        {"no granule", forged_description(good, 232, uint64_t{0})},
        {"an odd granule", forged_description(good, 232, uint64_t{3})},
        {"another generation", forged_description(good, 240, uint64_t{77})},
        {"no generation", forged_description(good, 240, uint64_t{0})},
        {"another word", forged_description(good, 248, uint32_t{500})},
        {"no word", forged_description(good, 248, uint32_t{0})},
        {"a word behind the board", forged_description(good, 248, uint32_t{1} << 30)},
        {"no piece", forged_description(good, 320, uint64_t{0})},
    };
    for (const auto &c : cases) {
        EXPECT_NE(consumer.raw_open(0, c.handle), OK) << c.what;
    }
    EXPECT_EQ(consumer.descriptors(), descriptors);
    // A size that differs from the one in the handle would lead to unmapping other memory later.
    EXPECT_EQ(consumer.try_open(0, forged(good, 48, uint64_t{size / 2})), BAD);
    EXPECT_EQ(consumer.try_open(0, forged(good, 48, uint64_t{2 * size})), BAD);
    consumer.open(0, good);
    EXPECT_TRUE(consumer.check(0, size, 14));

    // Nor are they believed when the piece that they name is open.
    descriptors = consumer.descriptors();
    for (const auto &c : cases) {
        EXPECT_NE(consumer.raw_open(1, c.handle), OK) << c.what;
    }
    // A false piece leads to the memory of the descriptor, and to no other mapping.
    uint64_t id = field<uint64_t>(good, handle_header + 320);
    ASSERT_EQ(consumer.raw_open(1, forged_description(good, 320, id + 1000)), OK);
    EXPECT_TRUE(consumer.check(1, size, 14));
    EXPECT_EQ(consumer.raw_close(1, size), OK);
    EXPECT_TRUE(consumer.check(0, size, 14));
    EXPECT_EQ(consumer.descriptors(), descriptors);
}

// Two allocations of two pieces, the second described as if it lay in the first.
TEST_P(IpcGpu, AForgedPieceIsNotAWayIntoAnother) {
    NEEDS_VMM()
    Peer producer(kind), consumer(kind);
    for (uint32_t slot = 0; slot < 4; slot++) {
        producer.alloc(slot, size);
        producer.fill(slot, size, slot);
    }
    Bytes first = producer.get(0), last = producer.get(3);
    uint64_t id = field<uint64_t>(first, handle_header + 320);
    ASSERT_NE(id, field<uint64_t>(last, handle_header + 320)) << "two allocations fill a piece";
    ASSERT_EQ(consumer.raw_open(0, first), OK);
    ASSERT_EQ(consumer.raw_open(1, forged_description(last, 320, id)), OK);
    EXPECT_TRUE(consumer.check(1, size, 3)) << "by its descriptor";
    ASSERT_EQ(consumer.raw_open(2, producer.get(1)), OK);
    EXPECT_TRUE(consumer.check(2, size, 1));
    for (uint32_t slot : {0u, 1u, 2u}) {
        EXPECT_EQ(consumer.raw_close(slot, size), OK);
    }
}

// A piece is imported once for all of its blocks, and takes its own size of addresses.
TEST_P(IpcGpu, BlocksOfOnePieceAreOneImport) {
    NEEDS_VMM()
    constexpr uint32_t blocks = 512;
    constexpr uint64_t block = 2 * MiB, piece = blocks * block;
    const bool is_linux = strcmp(kind.name, "linux_vmm") == 0;
    std::string text = kind.provider;
    text.replace(text.find("8M"), 2, "1G");
    const Kind large = {kind.name, text.c_str(), true};
    Peer producer(large), consumer(large);
    std::vector<Bytes> handles;
    for (uint32_t slot = 0; slot < blocks; slot++) {
        producer.alloc(slot, block);
        handles.push_back(producer.get(slot));
    }
    producer.fill(0, 1000, 1);
    producer.fill(blocks - 1, 1000, 2);
    uint64_t addresses = consumer.addresses(), alive = driver().is_real ? 0 : consumer.alive();
    uint64_t lowest = UINT64_MAX, highest = 0;
    for (uint32_t slot = 0; slot < blocks; slot++) {
        uint64_t at = consumer.open(slot, handles[slot]);
        lowest = std::min(lowest, at);
        highest = std::max(highest, at);
    }
    EXPECT_EQ(highest - lowest, piece - block);
    if (is_linux) {
        EXPECT_LT(consumer.addresses() - addresses, piece + piece / 4);
    } else if (!driver().is_real) {
        EXPECT_EQ(consumer.imports(), 1u);
    }
    EXPECT_TRUE(consumer.check(0, 1000, 1));
    EXPECT_TRUE(consumer.check(blocks - 1, 1000, 2));

    // Whatever is closed first, the rest stays; it goes with the last one.
    for (uint32_t i = 0; i < blocks - 1; i++) {
        EXPECT_EQ(consumer.close(i * 211 % (blocks - 1)), OK);
        EXPECT_TRUE(i % 100 != 0 || consumer.check(blocks - 1, 1000, 2));
    }
    EXPECT_TRUE(consumer.check(blocks - 1, 1000, 2));
    EXPECT_EQ(consumer.close(blocks - 1), OK);
    consumer.anew(); // mappings are kept for the next time, the pool's end closes them
    if (is_linux) {
        EXPECT_LT(consumer.addresses(), addresses + piece / 4);
    } else if (!driver().is_real) {
        EXPECT_EQ(consumer.alive(), alive);
    }
}

// An open mapping stays at its address when the producer cuts the piece anew: the new blocks
// overlap it, so they lie in another mapping.
TEST_P(IpcGpu, BlocksThatOverlapOlderOnesLieElsewhere) {
    NEEDS_VMM()
    Peer producer(kind), consumer(kind);
    for (uint32_t slot = 0; slot < 4; slot++) {
        producer.alloc(slot, size / 2); // one piece
        producer.fill(slot, size / 2, slot);
    }
    Bytes kept = producer.get(0);
    consumer.open(0, kept);
    uint64_t stale = consumer.open(1, producer.get(1));
    producer.free(1);
    producer.free(2);
    producer.alloc(4, size);
    producer.fill(4, size, 4);
    uint64_t fresh = consumer.open(4, producer.get(4));
    EXPECT_TRUE(fresh + size <= stale || stale + size / 2 <= fresh);
    EXPECT_TRUE(consumer.check(4, size, 4));
    EXPECT_TRUE(consumer.check(0, size / 2, 0));
    EXPECT_EQ(consumer.close(1), OK);
    EXPECT_EQ(consumer.close(0), OK);
    EXPECT_TRUE(consumer.check(4, size, 4));
    EXPECT_EQ(consumer.close(4), OK);
}

// Without cached mappings: each open is closed for itself.
TEST_P(IpcGpu, RawHandlesOpenedTwice) {
    NEEDS_VMM()
    Peer producer(kind), consumer(kind);
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    Bytes handle = producer.get(0);
    ASSERT_EQ(consumer.raw_open(0, handle), OK);
    ASSERT_EQ(consumer.raw_open(1, handle), OK);
    EXPECT_EQ(consumer.raw_close(0, size), OK);
    EXPECT_EQ(consumer.raw_close(0, size), BAD);
    EXPECT_TRUE(consumer.check(1, size, 1));
    EXPECT_EQ(consumer.raw_close(1, size), OK);
}

// A close that fails leaves its block open; with others in the mapping there is nothing to fail.
TEST_P(IpcGpu, AFailedCloseCanBeTriedAgain) {
    NEEDS_FAKE()
    if (strncmp(kind.name, "cuda_vmm", 8) != 0) {
        GTEST_SKIP() << "a statement about virtual memory of the driver";
    }
    Peer producer(kind), consumer(kind);
    uint64_t alive = consumer.alive();
    producer.alloc(0, size);
    producer.alloc(1, size);
    producer.fill(1, size, 1);
    Bytes first = producer.get(0), second = producer.get(1);
    bool was_reached = true;
    int failed = 0;
    for (uint64_t n = 1; was_reached; n++) {
        ASSERT_LT(n, 100u);
        ASSERT_EQ(consumer.raw_open(0, first), OK);
        ASSERT_EQ(consumer.raw_open(1, second), OK);
        consumer.fail_at(n);
        EXPECT_EQ(consumer.raw_close(0, size), OK);
        bool is_closed = consumer.raw_close(1, size) == OK;
        was_reached = consumer.fail_at(0);
        if (!is_closed) {
            failed++;
            EXPECT_TRUE(consumer.check(1, size, 1));
            EXPECT_EQ(consumer.raw_open(0, first), OK) << "in the mapping that is there";
            EXPECT_EQ(consumer.raw_close(1, size), OK);
            EXPECT_EQ(consumer.raw_close(0, size), OK);
        }
    }
    EXPECT_GT(failed, 0);
    EXPECT_LE(consumer.alive(), alive + 1) << "addresses that the driver did not take back";
}

TEST_P(IpcGpu, MappingsOutliveTheProducerButHandlesDoNot) {
    NEEDS_BOARD()
    NEEDS_VMM()
    Peer producer(kind), consumer(kind);
    producer.alloc(0, size);
    producer.fill(0, size, 8);
    producer.alloc(1, size);
    Bytes handle = producer.get(0), beside = producer.get(1);
    consumer.open(0, handle);
    producer.kill();
    EXPECT_TRUE(consumer.check(0, size, 8));
    EXPECT_EQ(consumer.raw_open(1, handle), BAD);
    EXPECT_EQ(consumer.raw_open(1, beside), BAD) << "though its piece is mapped";
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
    NEEDS_BOARD()
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
    NEEDS_BOARD()
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

// Other memory lies behind the piece then, even if it resembles the old memory.
TEST_P(IpcGpu, ASuspendedPieceIsImportedAnew) {
    NEEDS_VMM()
    Peer producer(kind), consumer(kind);
    for (uint32_t slot : {0u, 1u}) {
        producer.alloc(slot, size); // one piece
        producer.fill(slot, size, slot);
    }
    consumer.open(0, producer.get(0));
    ASSERT_EQ(producer.suspend(), OK);
    ASSERT_EQ(producer.resume(), OK);
    producer.fill(1, size, 11);
    consumer.open(1, producer.get(1));
    EXPECT_TRUE(consumer.check(1, size, 11));
    EXPECT_TRUE(consumer.check(0, size, 0)) << "the old memory";
    EXPECT_EQ(consumer.close(0), OK);
    EXPECT_EQ(consumer.close(1), OK);
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
    EXPECT_LE(producer.descriptors(), of_producer + 2) << "the board and the broker's socket";
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
    uint64_t objects = consumer.alive(), descriptors = consumer.descriptors();
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
        EXPECT_EQ(consumer.alive(), objects) << n;
    }

    descriptors = producer.descriptors();
    objects = producer.alive();
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
        EXPECT_EQ(producer.alive(), objects) << n;
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, IpcGpu, testing::ValuesIn(kinds),
                         [](const testing::TestParamInfo<Kind> &kind) {
                             return std::string(kind.param.name);
                         });

// --- other machines ---

namespace {

class IpcFabric : public testing::Test {
  protected:
    const Kind anywhere = {"cuda_vmm_anywhere", "cuda_vmm:share=fabric_anywhere,piece_size=8M",
                           true};
    static constexpr size_t size = 4 * MiB;

    void SetUp() override {
        static const std::string why = why_no_fabric();
        if (!why.empty()) {
            GTEST_SKIP() << why;
        }
    }

    // As it looks to a process on a machine with another boot id, where no process has that number.
    static Bytes from_elsewhere(const Bytes &handle) {
        uint64_t boot = field<uint64_t>(handle, 24);
        return forged(forged(handle, 24, boot + 1), 12, uint32_t{0x7ffffff0});
    }
};

} // namespace

TEST_F(IpcFabric, OpensOnAnotherMachine) {
    Peer producer(anywhere), consumer(anywhere);
    uint64_t alive = driver().is_real ? 0 : consumer.alive();
    producer.alloc(0, size);
    producer.alloc(1, size);
    producer.fill(0, size, 1);
    producer.fill(1, size, 2);
    Bytes first = producer.get(0), second = producer.get(1);
    EXPECT_EQ(
        std::count(first.begin() + handle_header + 16, first.begin() + handle_header + 208, 0), 192)
        << "no boot, process, descriptor, broker or secret in the description";
    consumer.open(0, from_elsewhere(first));
    consumer.open(1, from_elsewhere(second));
    EXPECT_TRUE(consumer.check(0, size, 1));
    EXPECT_TRUE(consumer.check(1, size, 2));
    consumer.fill(1, size, 3);
    EXPECT_TRUE(producer.check(1, size, 3));
    EXPECT_EQ(consumer.open(2, from_elsewhere(first)), consumer.open(3, from_elsewhere(first)));
    for (uint32_t slot : {3u, 0u, 2u}) {
        EXPECT_EQ(consumer.close(slot), OK);
    }
    producer.free(0);
    EXPECT_TRUE(consumer.check(1, size, 3));
    EXPECT_EQ(consumer.close(1), OK);
    consumer.anew();
    if (!driver().is_real) {
        EXPECT_EQ(consumer.alive(), alive);
    }
}

TEST_F(IpcFabric, NothingElseComesFromOtherMachines) {
    const Kind others[] = {
        {"linux_vmm", "linux_vmm:piece_size=8M", true},
        {"cuda_vmm", "cuda_vmm:share=fd,piece_size=8M", true},
        {"cuda_vmm_fabric", "cuda_vmm:share=fabric,piece_size=8M", true},
        {"cuda", "cuda:memory_type=device", false},
    };
    for (const Kind &other : others) {
        Peer producer(other), consumer(other), abroad(anywhere);
        producer.alloc(0, size);
        Bytes handle = producer.get(0);
        EXPECT_EQ(consumer.try_open(0, from_elsewhere(handle)), BAD) << other.name;
        EXPECT_EQ(abroad.try_open(0, from_elsewhere(handle)), BAD) << other.name;
        EXPECT_EQ(abroad.try_open(0, handle), BAD) << other.name;
        consumer.open(0, handle);
        EXPECT_EQ(consumer.close(0), OK);
        Peer here(anywhere);
        here.alloc(0, size);
        EXPECT_NE(consumer.try_open(1, here.get(0)), OK) << other.name;
        EXPECT_NE(consumer.try_open(1, from_elsewhere(here.get(0))), OK) << other.name;
    }
}

// Tokens name whole pieces: a description that says its memory lies on listed pages is no such one.
TEST_F(IpcFabric, HasNoListsOfPages) {
    const Kind tokens = {"cuda_vmm_fabric", "cuda_vmm:share=fabric,piece_size=8M", true};
    for (const Kind &kind : {tokens, anywhere}) {
        Peer producer(kind);
        producer.alloc(0, size);
        const Bytes description = producer.raw_get(0, size);
        Bytes handle = producer.get(0);
        const auto number = field<uint16_t>(handle, handle_header + 6);
        memcpy(handle.data() + handle_header, description.data(), description.size());
        handle = forged_description(handle, 6, static_cast<uint16_t>(number | 0x8000));
        const Bytes paged(handle.begin() + handle_header, handle.end());
        EXPECT_EQ(producer.raw_put(paged), BAD) << kind.name;
        EXPECT_EQ(producer.raw_put(description), OK) << kind.name;
    }
}

TEST_F(IpcFabric, AnArenaIsRefusedBeforeTheBrokerStarts) {
    const Kind tokens = {"cuda_vmm_fabric", "cuda_vmm:share=fabric,piece_size=8M", true};
    for (const Kind &kind : {tokens, anywhere}) {
        Peer producer(kind, 0, "coalescing:arena=yes");
        producer.alloc(0, size);
        const uint64_t descriptors = producer.descriptors();
        EXPECT_EQ(producer.try_get(0), UMF_RESULT_ERROR_NOT_SUPPORTED) << kind.name;
        EXPECT_EQ(producer.descriptors(), descriptors) << kind.name << ": the broker's socket";
        producer.free(0);
    }
}

// The weaker promise: the rule of the provider's header for freed memory.
TEST_F(IpcFabric, AFreedBlockIsNotToldWhileItsPieceLives) {
    Peer producer(anywhere), consumer(anywhere);
    producer.alloc(0, size);
    producer.alloc(1, size); // the same piece
    Bytes stale = from_elsewhere(producer.get(0));
    producer.free(0);
    consumer.open(0, stale);
    producer.alloc(0, size);
    producer.fill(0, size, 5);
    EXPECT_TRUE(consumer.check(0, size, 5)) << "what lies there by now";
    EXPECT_EQ(consumer.close(0), OK);
    Bytes fresh = from_elsewhere(producer.get(0));
    EXPECT_NE(fresh, stale);
    consumer.open(0, fresh);
    EXPECT_EQ(consumer.try_open(1, stale), BAD) << "a newer one for the address is known";
    EXPECT_EQ(consumer.close(0), OK);
}

TEST_F(IpcFabric, ADeadProducerOfThisMachineIsRefused) {
    Peer producer(anywhere), consumer(anywhere);
    producer.alloc(0, size);
    producer.alloc(1, size);
    producer.fill(0, size, 6);
    Bytes handle = producer.get(1);
    consumer.open(0, producer.get(0));
    producer.kill();
    EXPECT_TRUE(consumer.check(0, size, 6));
    EXPECT_EQ(consumer.try_open(1, handle), BAD);
    EXPECT_EQ(consumer.close(0), OK);
}

TEST_F(IpcFabric, RefusesForgedDescriptions) {
    Peer producer(anywhere), consumer(anywhere);
    producer.alloc(0, size);
    producer.fill(0, size, 7);
    Bytes good = producer.get(0);
    const struct {
        const char *what;
        Bytes handle;
    } cases[] = {
        {"another kind", forged_description(good, 6, uint16_t{3})},
        {"a process", forged_description(good, 56, uint32_t{1})},
        {"a descriptor", forged_description(good, 64, int32_t{3})},
        {"a board", forged_description(good, 136, uint64_t{1})},
        {"a piece of half the size", forged_description(good, 208, uint64_t{size})},
        {"a piece of twice the size", forged_description(good, 208, uint64_t{4 * size})},
        {"a piece of no size", forged_description(good, 208, uint64_t{0})},
        {"an offset behind the piece", forged_description(good, 216, uint64_t{2 * size})},
        {"an odd offset", forged_description(good, 216, uint64_t{1})},
        {"no size", forged_description(good, 224, uint64_t{0})},
        {"no granule", forged_description(good, 232, uint64_t{0})},
        {"no generation", forged_description(good, 240, uint64_t{0})},
        {"a word", forged_description(good, 248, uint32_t{1})},
        {"no maker", forged_description(good, 252, uint32_t{0})},
        {"another fabric handle", forged_description(good, 256, uint64_t{1})},
        {"no piece", forged_description(good, 320, uint64_t{0})},
    };
    for (bool is_open : {false, true}) {
        for (const auto &c : cases) {
            EXPECT_NE(consumer.raw_open(1, c.handle), OK) << c.what << is_open;
        }
        if (!is_open) {
            consumer.open(0, good);
        }
    }
    EXPECT_TRUE(consumer.check(0, size, 7));
    EXPECT_EQ(consumer.close(0), OK);
    Bytes description = producer.raw_get(0, size);
    EXPECT_EQ(consumer.raw_put(description), BAD) << "another provider's";
    EXPECT_EQ(producer.raw_put(description), OK);
}

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

// Threads that open and close blocks of one piece: who comes second uses the first one's mapping,
// or gives its own back.
TEST_F(CudaVmmShare, ThreadsThatOpenAtOnceLeaveNothingBehind) {
    NEEDS_FAKE()
    constexpr size_t blocks = 8, block = 2 * MiB;
    umf_memory_provider_handle_t producer = make(UMF_CUDA_VMM_SHARE_FD),
                                 consumer = make(UMF_CUDA_VMM_SHARE_FD);
    void *all = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(producer, blocks * block, 0, &all), OK);
    std::vector<std::vector<char>> handles(blocks, std::vector<char>(4096));
    for (size_t i = 0; i < blocks; i++) {
        char *at = static_cast<char *>(all) + i * block;
        if (i + 1 < blocks) {
            ASSERT_EQ(umfMemoryProviderAllocationSplit(producer, at, (blocks - i) * block, block),
                      OK);
        }
        ASSERT_EQ(umfMemoryProviderGetIPCHandle(producer, at, block, handles[i].data()), OK);
    }
    const long objects = driver().control()->objects;
    std::atomic<int> failures{0};
    run_threads<size_t>(4, [&](size_t thread) {
        for (size_t round = 0; round < 50; round++) {
            void *first = nullptr, *second = nullptr;
            char *one = handles[2 * thread].data(), *other = handles[2 * thread + 1].data();
            failures += umfMemoryProviderOpenIPCHandle(consumer, one, &first) != OK;
            failures += umfMemoryProviderOpenIPCHandle(consumer, other, &second) != OK;
            failures += umfMemoryProviderCloseIPCHandle(consumer, first, block) != OK;
            failures += umfMemoryProviderCloseIPCHandle(consumer, second, block) != OK;
        }
    });
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(driver().control()->objects, objects);
    for (size_t i = 0; i < blocks; i++) {
        EXPECT_EQ(umfMemoryProviderFree(producer, static_cast<char *>(all) + i * block, block), OK);
    }
    EXPECT_EQ(umfMemoryProviderDestroy(consumer), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(producer), OK);
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

// Threads that open and close blocks of a few pieces, at the same time.
TEST_F(LinuxVmmShare, ThreadsShareTheMappingsOfPieces) {
    constexpr size_t blocks = 16, threads = 4;
    make(blocks / 2 * page); // two pieces
    umf_memory_provider_handle_t producer = provider;
    make(MiB);
    std::vector<std::vector<char>> handles(blocks, std::vector<char>(4096));
    std::vector<void *> all(blocks);
    for (size_t i = 0; i < blocks; i++) {
        ASSERT_EQ(umfMemoryProviderAlloc(producer, page, 0, &all[i]), OK);
        memset(all[i], static_cast<int>(i + 1), page);
        ASSERT_EQ(umfMemoryProviderGetIPCHandle(producer, all[i], page, handles[i].data()), OK);
    }
    uint64_t addresses = size_of_addresses(), descriptors = count_open_descriptors();
    std::atomic<int> failures{0};
    auto work = [&](size_t seed) {
        for (size_t round = 0; round < 200; round++) {
            void *ptr[3] = {};
            size_t which[3];
            for (size_t k = 0; k < 3; k++) {
                which[k] = (seed * 5 + round * 3 + k * 7) % blocks;
                failures += umfMemoryProviderOpenIPCHandle(provider, handles[which[k]].data(),
                                                           &ptr[k]) != OK;
            }
            for (size_t k : {1u, 0u, 2u}) {
                auto *byte = static_cast<unsigned char *>(ptr[k]);
                failures += byte[0] != which[k] + 1 || byte[page - 1] != which[k] + 1;
                failures += umfMemoryProviderCloseIPCHandle(provider, ptr[k], page) != OK;
            }
        }
    };
    std::vector<std::thread> running;
    for (size_t i = 0; i < threads; i++) {
        running.emplace_back(work, i);
    }
    for (std::thread &thread : running) {
        thread.join();
    }
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(count_open_descriptors(), descriptors);
    EXPECT_GT(addresses + 256 * MiB, size_of_addresses());
    for (void *ptr : all) {
        EXPECT_EQ(umfMemoryProviderFree(producer, ptr, page), OK);
    }
    EXPECT_EQ(umfMemoryProviderDestroy(producer), OK);
}

// A child's use of its copy of a provider does not change its parent's handles.
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
    return run_role_or_tests(argc, argv, roles);
}
