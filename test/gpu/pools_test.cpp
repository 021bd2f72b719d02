// Pools on GPU memory, which the CPU cannot touch: every kind that keeps its data elsewhere.

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "fakes/content.h"
#include "fakes/kinds.h"
#include "fakes/scale.h"
#include "fakes/vmm_kinds.h"
#include "gpu.h"

#include <umf/providers/provider_cuda.h>
#include <umf/suspend.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

struct Pair {
    PoolKind pool;
    std::string provider;
};

std::ostream &operator<<(std::ostream &out, const Pair &pair) {
    return out << pair.pool.id << " on " << pair.provider;
}

class GpuPool : public testing::TestWithParam<Pair> {
  protected:
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    size_t held = 0;

    void SetUp() override {
        start_cuda_vmm();
        held = held_cuda();
        provider = GetParam().provider == "cuda" ? create_cuda() : create_cuda_vmm(0);
        ASSERT_NE(provider, nullptr);
        ASSERT_EQ(umfPoolCreate(GetParam().pool.ops(), provider, nullptr, 0, &pool), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(held_cuda(), held);
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->illegal_accesses, 0);
        }
        stop_cuda_vmm();
    }
    static umf_memory_provider_handle_t create_cuda() {
        umf_cuda_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t made = nullptr;
        umfCUDAMemoryProviderParamsCreate(&params);
        umfCUDAMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_DEVICE);
        umfCUDAMemoryProviderParamsSetDevice(params, 0);
        umfMemoryProviderCreate(umfCUDAMemoryProviderOps(), params, &made);
        umfCUDAMemoryProviderParamsDestroy(params);
        return made;
    }
    static void fill(void *ptr, unsigned char value, size_t size) {
        CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(ptr), value, size));
    }
    static bool is_all(const void *ptr, char value, size_t size) {
        std::vector<char> now(size);
        read_cuda(now.data(), ptr, size);
        return are_all(now.data(), now.size(), value);
    }
};

std::vector<Pair> pairs() {
    std::vector<Pair> list;
    for (const PoolKind &kind : pool_kinds()) {
        if (!kind.touches_memory) {
            list.push_back({kind, "cuda_vmm"});
        }
        if (!kind.touches_memory && std::string(kind.id) != "jemalloc") { // which needs to split
            list.push_back({kind, "cuda"});
        }
    }
    return list;
}

} // namespace

TEST_P(GpuPool, AllocationsDoNotOverlap) {
    ONE_THREAD_ONLY()
    std::mt19937 random(1);
    std::vector<std::pair<char *, size_t>> live;
    bool is_proxy = std::string(GetParam().pool.id) == "proxy";
    for (unsigned i = 0; i < (is_proxy ? 100 : 1500); i++) {
        size_t size = 1 + random() % (size_t{1} << random() % 21);
        char *p = static_cast<char *>(umfPoolMalloc(pool, size));
        ASSERT_NE(p, nullptr);
        live.push_back({p, size});
        fill(p, static_cast<unsigned char>(live.size()), size);
        if (live.size() > 60) {
            for (size_t n = 0; n < live.size(); n++) {
                ASSERT_TRUE(is_all(live[n].first, static_cast<char>(n + 1), live[n].second));
                ASSERT_EQ(umfFree(live[n].first), OK);
            }
            live.clear();
        }
    }
    for (auto &block : live) {
        EXPECT_EQ(umfFree(block.first), OK);
    }
}

// calloc and realloc use the provider's fill and copy, because the CPU cannot reach the memory.
TEST_P(GpuPool, CallocAndRealloc) {
    if (!GetParam().pool.callocs) {
        GTEST_SKIP() << "the pool offers neither";
    }
    for (size_t size : {100, 5000, 200000, 5 << 20}) {
        void *p = umfPoolMalloc(pool, size);
        ASSERT_NE(p, nullptr);
        fill(p, 0x5A, size);
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        p = umfPoolCalloc(pool, size, 1);
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(is_all(p, 0, size));
        fill(p, 0x3C, size);
        p = umfPoolRealloc(pool, p, size * 3);
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(is_all(p, 0x3C, size));
        p = umfPoolRealloc(pool, p, size / 3);
        ASSERT_NE(p, nullptr);
        EXPECT_TRUE(is_all(p, 0x3C, size / 3));
        EXPECT_EQ(umfPoolFree(pool, p), OK);
    }
}

TEST_P(GpuPool, TheDriverFailsToCopy) {
    NEEDS_FAKE();
    if (!GetParam().pool.callocs) {
        GTEST_SKIP() << "the pool offers neither";
    }
    fake_cuda_t *control = driver().control();
    void *p = umfPoolMalloc(pool, 1000);
    fill(p, 0x3C, 1000);
    for (int function : {FAKE_cuStreamCreate, FAKE_cuMemcpyAsync, FAKE_cuStreamSynchronize}) {
        control->fail_function = function;
        control->fail_with = CUDA_ERROR_UNKNOWN;
        control->fail_at = 1;
        EXPECT_EQ(umfPoolRealloc(pool, p, 100000), nullptr);
        EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(control->fail_at, 0);
        EXPECT_TRUE(is_all(p, 0x3C, 1000));
    }
    control->fail_function = FAKE_cuMemsetD8Async;
    control->fail_at = 1;
    EXPECT_EQ(umfPoolCalloc(pool, 100, 100), nullptr);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
    EXPECT_EQ(alloc_count(pool), 0u);
}

TEST_P(GpuPool, SleepsAndWakes) {
    if (GetParam().provider == "cuda") {
        GTEST_SKIP() << "memory of cuMemAlloc cannot go and come back";
    }
    if (UMF_TEST_ASAN && std::string(GetParam().pool.id) == "disjoint") {
        GTEST_SKIP() << "the software driver copies whole spans, free parts included";
    }
    std::vector<char *> live;
    for (size_t i = 0; i < 40; i++) {
        live.push_back(static_cast<char *>(umfPoolMalloc(pool, 1000 << i % 8)));
        ASSERT_NE(live.back(), nullptr);
        fill(live.back(), static_cast<unsigned char>(i), 1000);
    }
    size_t awake = held_cuda();
    umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, &params, &report), OK);
    EXPECT_LT(held_cuda(), awake);
    EXPECT_EQ(umfPoolMalloc(pool, 100), nullptr);
    EXPECT_EQ(umfPoolFree(pool, live.back()), OK);
    live.pop_back();
    ASSERT_EQ(umfPoolsResume(&pool, 1, &params, &report), OK);
    for (size_t i = 0; i < live.size(); i++) {
        EXPECT_TRUE(is_all(live[i], static_cast<char>(i), 1000));
        EXPECT_EQ(umfPoolFree(pool, live[i]), OK);
    }
    void *p = umfPoolMalloc(pool, 100);
    EXPECT_NE(p, nullptr);
    EXPECT_EQ(umfPoolFree(pool, p), OK);
}

// --- memory that queued work uses is not unmapped ------------------------------------------------

// For each way of release: the software driver counts memory unmapped under work, the real one
// ends the context.
TEST_P(GpuPool, FreesAndTrimsAfterQueuedWork) {
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t size : {size_t{1000}, size_t{1} << 20, size_t{24} << 20}) {
        void *blocks[4] = {};
        for (void *&block : blocks) {
            block = umfPoolMalloc(pool, size);
            ASSERT_NE(block, nullptr);
            CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(block), 0x77, size, stream));
        }
        for (void *block : blocks) {
            EXPECT_EQ(umfPoolFree(pool, block), OK);
        }
        umfPoolTrimMemory(pool, 0);
    }
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy(stream));
}

TEST_P(GpuPool, GrowsAfterQueuedWork) {
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t size = 1 << 20; size <= size_t{32} << 20; size *= 2) {
        void *block = umfPoolMalloc(pool, size + 1000);
        ASSERT_NE(block, nullptr);
        CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(block), 0x77, size, stream));
        EXPECT_EQ(umfPoolFree(pool, block), OK);
    }
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy(stream));
}

TEST_P(GpuPool, EndsAfterQueuedWork) {
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 40; i++) {
        void *block = umfPoolMalloc(pool, size_t{1000} << i % 12);
        ASSERT_NE(block, nullptr);
        CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(block), 0x77, 1000, stream));
        EXPECT_EQ(umfPoolFree(pool, block), OK);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy(stream));
    ASSERT_EQ(umfPoolCreate(GetParam().pool.ops(), provider, nullptr, 0, &pool), OK);
}

// Pieces that go together wait behind one mark, and the device is not waited for.
TEST_P(GpuPool, ATrimMarksOnce) {
    NEEDS_FAKE();
    if (GetParam().provider == "cuda" || std::string(GetParam().pool.id) != "coalescing") {
        GTEST_SKIP() << "no other trim gives several pieces back by itself";
    }
    std::vector<void *> blocks;
    for (int i = 0; i < 8; i++) {
        blocks.push_back(umfPoolMalloc(pool, size_t{8} << 20));
        ASSERT_NE(blocks.back(), nullptr);
    }
    for (void *block : blocks) {
        EXPECT_EQ(umfPoolFree(pool, block), OK);
    }
    const fake_cuda_t before = *driver().control();
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_GE(driver().control()->calls[FAKE_cuMemUnmap] - before.calls[FAKE_cuMemUnmap], 4);
    EXPECT_EQ(
        driver().control()->calls[FAKE_cuCtxRecordEvent] - before.calls[FAKE_cuCtxRecordEvent], 1);
    EXPECT_EQ(driver().control()->calls[FAKE_cuCtxSynchronize],
              before.calls[FAKE_cuCtxSynchronize]);
    EXPECT_EQ(held_cuda(), held);
}

// All of the device's memory can be used, also after other sizes.
TEST_P(GpuPool, TheDeviceIsFull) {
    NEEDS_FAKE();
    if (std::string(GetParam().pool.id) != "coalescing") {
        GTEST_SKIP() << "other pools hold their sizes apart";
    }
    limit_cuda(64u << 20);
    for (size_t size : {1u << 20, 3u << 20, 30u << 20, 60u << 20, 64u << 20, 1u << 20}) {
        std::vector<void *> live;
        while (void *p = umfPoolMalloc(pool, size)) {
            live.push_back(p);
        }
        EXPECT_GE(live.size() * size, (64u << 20) / 5 * 4) << size;
        for (void *p : live) {
            EXPECT_EQ(umfPoolFree(pool, p), OK);
        }
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(held_cuda(), held);
    limit_cuda(SIZE_MAX);
}

INSTANTIATE_TEST_SUITE_P(Each, GpuPool, testing::ValuesIn(pairs()), [](const auto &pair) {
    return std::string(pair.param.pool.id) + "_on_" + pair.param.provider;
});
