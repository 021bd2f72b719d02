// An arena that two devices reach: what one of them works on while its pages move, and where
// content stays while the memory is away. Needs two GPUs that reach each other; the software driver
// has them.

#include <cstring>
#include <string>
#include <vector>

#include "fakes/vmm_kinds.h"
#include "kernels.h"

#include <umf/copy.h>
#include <umf/experimental/ctl.h>
#include <umf/memory_pool.h>
#include <umf/memory_pool_ext.h>
#include <umf/queue.h>
#include <umf/reason.h>
#include <umf/suspend.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t MiB = size_t{1} << 20;
constexpr uint32_t SLOW = 1U << 14; // a delay of a kernel

CUdeviceptr address(const void *ptr) {
    return reinterpret_cast<CUdeviceptr>(ptr);
}

// What each of the two devices has: a context, the kernels, a stream, and a word that counts what
// is wrong.
struct Device {
    CUcontext context = nullptr;
    Kernels kernels;
    CUstream stream = nullptr;
    CUdeviceptr bad = 0;

    void start(int number) {
        CU(cuDevicePrimaryCtxRetain(&context, number));
        enter();
        kernels.load();
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CU(cuMemAlloc(&bad, sizeof(uint32_t)));
        CU(cuMemsetD8Async(bad, 0, sizeof(uint32_t), stream));
    }
    void enter() const {
        CU(cuCtxSetCurrent(context));
    }
    void fill(void *ptr, size_t size, uint32_t value, uint32_t delay = 0) const {
        enter();
        kernels.fill(address(ptr), size / sizeof(uint32_t), value, delay, stream);
    }
    void check(const void *ptr, size_t size, uint32_t value) const {
        enter();
        kernels.check(address(ptr), size / sizeof(uint32_t), value, bad, stream);
    }
    // After all work. How many words were not as expected.
    uint32_t wrong() const {
        uint32_t count = UINT32_MAX;
        enter();
        EXPECT_EQ(driver().cuStreamSynchronize(stream), CUDA_SUCCESS);
        EXPECT_EQ(driver().cuMemcpyDtoH(&count, bad, sizeof(count)), CUDA_SUCCESS);
        return count;
    }
    void stop(int number) {
        enter();
        CU(cuStreamSynchronize(stream));
        CU(cuStreamDestroy(stream));
        CU(cuMemFree(bad));
        kernels.unload();
        CU(cuCtxSetCurrent(nullptr));
        CU(cuDevicePrimaryCtxRelease(number));
    }
};

class TwoDevices : public testing::Test {
  protected:
    Device devices[2];
    umf_memory_pool_handle_t pool = nullptr;
    bool is_started = false;

    void SetUp() override {
        if (!driver().is_real) {
            driver().reset();
        }
        CU(cuInit(0));
        int count = 0, there = 0, back = 0;
        CU(cuDeviceGetCount(&count));
        if (count < 2 || driver().cuDeviceCanAccessPeer(&there, 0, 1) != CUDA_SUCCESS ||
            driver().cuDeviceCanAccessPeer(&back, 1, 0) != CUDA_SUCCESS || !there || !back) {
            GTEST_SKIP() << "needs two GPUs that reach each other";
        }
        devices[1].start(1);
        devices[0].start(0);
        is_started = true;
        ASSERT_EQ(umfPoolCreateFromText("coalescing:arena=yes,watermark=0 over "
                                        "cuda_vmm:device=0,peers=1",
                                        &pool),
                  OK)
            << umfTextError();
    }
    void TearDown() override {
        if (pool) {
            devices[0].enter();
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        if (is_started) {
            devices[0].stop(0);
            devices[1].stop(1);
        }
        if (!driver().is_real) {
            EXPECT_STREQ(driver().faults(), "");
            EXPECT_EQ(driver().control()->unordered_unmaps, 0);
            EXPECT_EQ(driver().control()->illegal_accesses, 0);
            driver().reset();
        }
    }
    size_t counter(const std::string &name) {
        size_t value = SIZE_MAX;
        EXPECT_EQ(
            umfCtlGet(("umf.pool.by_handle.{}.stats." + name).c_str(), &value, sizeof(value), pool),
            OK)
            << name;
        return value;
    }
    void *take(const Device &device, size_t size) {
        device.enter();
        void *ptr = umfPoolMallocOn(pool, size, 0, device.stream);
        EXPECT_NE(ptr, nullptr);
        return ptr;
    }
    // What is queued on `device` from now on comes after what `other` has got.
    static void follow(const Device &device, const Device &other) {
        CUevent event = nullptr;
        other.enter();
        CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CU(cuEventRecord(event, other.stream));
        device.enter();
        CU(cuStreamWaitEvent(device.stream, event, 0));
        CU(cuEventDestroy(event));
    }
    static void drop(const Device &device, void *ptr) {
        device.enter();
        EXPECT_EQ(umfFreeOn(ptr, device.stream), OK);
    }
};

} // namespace

// Pages of blocks that the second device reads, or writes, serve another stream behind that work:
// the stream of the free follows it by an event.
TEST_F(TwoDevices, PagesMoveBehindTheWorkOfAPeer) {
    const Device &own = devices[0], &peer = devices[1];
    Device next = own; // another stream of the same device
    own.enter();
    CU(cuStreamCreate(&next.stream, CU_STREAM_NON_BLOCKING));
    CU(cuMemAlloc(&next.bad, sizeof(uint32_t)));
    CU(cuMemsetD8Async(next.bad, 0, sizeof(uint32_t), next.stream));
    for (uint32_t round = 0; round < 4; round++) {
        std::vector<void *> blocks;
        for (uint32_t i = 0; i < 8; i++) {
            blocks.push_back(take(own, 4 * MiB));
            own.fill(blocks.back(), 4 * MiB, 100 * round + i, SLOW);
        }
        follow(peer, own);
        for (uint32_t i = 0; i < 8; i++) {
            peer.check(blocks[i], 4 * MiB, 100 * round + i);
            peer.fill(blocks[i], 4 * MiB, 50 + i, SLOW);
            peer.check(blocks[i], 4 * MiB, 50 + i);
        }
        follow(own, peer);
        const size_t held = counter("reserved_memory"), before = counter("donated_memory");
        for (size_t i = 0; i < blocks.size(); i += 2) {
            drop(own, blocks[i]);
        }
        void *large = take(next, 14 * MiB);
        next.fill(large, 14 * MiB, 7);
        next.check(large, 14 * MiB, 7);
        EXPECT_GT(counter("donated_memory"), before + 8 * MiB);
        EXPECT_LE(counter("reserved_memory"), held + 4 * MiB);
        follow(peer, next);
        peer.check(large, 14 * MiB, 7);
        for (uint32_t i = 1; i < 8; i += 2) {
            own.check(blocks[i], 4 * MiB, 50 + i);
            drop(own, blocks[i]);
        }
        follow(next, peer);
        drop(next, large);
        EXPECT_EQ(own.wrong(), 0U) << round;
        EXPECT_EQ(next.wrong(), 0U) << round;
        EXPECT_EQ(peer.wrong(), 0U) << round;
        size_t bytes = 0;
        EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, &bytes), OK);
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(counter("reserved_memory"), 0U);
    }
    own.enter();
    CU(cuMemFree(next.bad));
    CU(cuStreamDestroy(next.stream));
}

// A second device that reaches the pages costs no call of the driver, neither for new pages nor for
// pages that move.
TEST_F(TwoDevices, AccessOfASecondDeviceCostsNoCall) {
    if (driver().is_real) {
        GTEST_SKIP() << "counts calls of the software driver";
    }
    umf_memory_pool_handle_t alone = nullptr;
    ASSERT_EQ(
        umfPoolCreateFromText("coalescing:arena=yes,watermark=0 over cuda_vmm:device=0", &alone),
        OK)
        << umfTextError();
    const auto calls = [&](umf_memory_pool_handle_t of) {
        const long *count = driver().control()->calls;
        const long maps = count[FAKE_cuMemMap], accesses = count[FAKE_cuMemSetAccess];
        void *blocks[8];
        devices[0].enter();
        for (void *&block : blocks) {
            block = umfPoolMallocOn(of, 4 * MiB, 0, devices[0].stream);
            EXPECT_NE(block, nullptr);
        }
        for (size_t i = 0; i < 8; i += 2) {
            EXPECT_EQ(umfFreeOn(blocks[i], devices[0].stream), OK);
        }
        void *large = umfPoolMallocOn(of, 14 * MiB, 0, devices[0].stream);
        EXPECT_NE(large, nullptr);
        for (void *block : {blocks[1], blocks[3], blocks[5], blocks[7], large}) {
            EXPECT_EQ(umfFreeOn(block, devices[0].stream), OK);
        }
        return std::make_pair(count[FAKE_cuMemMap] - maps, count[FAKE_cuMemSetAccess] - accesses);
    };
    const auto one = calls(alone), both = calls(pool);
    EXPECT_GT(counter("donated_memory"), 8 * MiB);
    EXPECT_GT(one.second, 0);
    EXPECT_LE(one.second, one.first) << "one for each run of pages";
    EXPECT_EQ(both, one);
    EXPECT_EQ(umfPoolDestroy(alone), OK);
}

// A stream of another device is no queue of the pool, and the message says whose it is.
TEST_F(TwoDevices, AStreamOfAnotherDeviceIsRefused) {
    void *ptr = take(devices[0], MiB);
    EXPECT_EQ(umfPoolMallocOn(pool, MiB, 0, devices[1].stream), nullptr);
    EXPECT_EQ(umfFreeOn(ptr, devices[1].stream), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(strstr(umfLastErrorText(), "use a stream of that one"), nullptr)
        << umfLastErrorText();
    drop(devices[0], ptr);
}

// Each device reads what the other wrote before the suspend, at the same addresses, and may write.
TEST_F(TwoDevices, BothReachAnArenaAfterEachResume) {
    void *blocks[3];
    for (void *&block : blocks) {
        block = take(devices[0], 4 * MiB);
    }
    drop(devices[0], blocks[1]);
    void *large = take(devices[0], 6 * MiB); // of donated pages
    EXPECT_GT(counter("donated_memory"), 0U);
    for (auto keep : {UMF_SUSPEND_KEEP_HOST, UMF_SUSPEND_KEEP_PEER}) {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = keep;
        policy.device = 1;
        ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
        devices[1].fill(large, 6 * MiB, 20U + static_cast<uint32_t>(keep), SLOW);
        devices[0].fill(blocks[0], 4 * MiB, 40U + static_cast<uint32_t>(keep), SLOW);
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        devices[0].check(large, 6 * MiB, 20U + static_cast<uint32_t>(keep));
        devices[1].check(blocks[0], 4 * MiB, 40U + static_cast<uint32_t>(keep));
        EXPECT_EQ(devices[0].wrong(), 0U) << keep;
        EXPECT_EQ(devices[1].wrong(), 0U) << keep;
    }
    for (void *ptr : {blocks[0], blocks[2], large}) {
        drop(devices[0], ptr);
    }
}

// From the arena of one device to a pool of the other one, and back.
TEST_F(TwoDevices, CopiesGoFromOneToTheOther) {
    umf_memory_pool_handle_t other = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("coalescing:arena=yes over cuda_vmm:device=1,peers=0", &other),
              OK)
        << umfTextError();
    void *own = take(devices[0], 8 * MiB), *back = take(devices[0], 8 * MiB);
    void *far = umfPoolMalloc(other, 8 * MiB);
    ASSERT_NE(far, nullptr);
    devices[0].fill(own, 8 * MiB, 9);
    EXPECT_EQ(devices[0].wrong(), 0U);
    ASSERT_EQ(umfCopy(far, own, 8 * MiB, nullptr), OK);
    devices[1].check(far, 8 * MiB, 9);
    EXPECT_EQ(devices[1].wrong(), 0U);
    ASSERT_EQ(umfCopy(back, far, 8 * MiB, nullptr), OK);
    devices[0].check(back, 8 * MiB, 9);
    EXPECT_EQ(devices[0].wrong(), 0U);
    EXPECT_EQ(umfPoolFree(other, far), OK);
    EXPECT_EQ(umfPoolDestroy(other), OK);
    drop(devices[0], own);
    drop(devices[0], back);
}
