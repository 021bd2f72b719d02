// A CUDA graph that was captured before its memory slept replays right after the resume: it has
// addresses, and those stay.

#include <algorithm>
#include <vector>

#include "fakes/content.h"
#include "fakes/vmm_kinds.h"
#include "gpu.h"

#include <umf/pools/pool_proxy.h>
#include <umf/suspend.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t size = size_t{8} << 20;

class Graph : public testing::TestWithParam<umf_suspend_keep_t> {
  protected:
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    CUdeviceptr from = 0, to = 0;
    CUstream stream = nullptr;
    CUgraphExec graph = nullptr;

    void SetUp() override {
        ASSERT_EQ(start_cuda_vmm(), "");
        provider = create_cuda_vmm(0);
        ASSERT_NE(provider, nullptr);
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
        from = reinterpret_cast<CUdeviceptr>(umfPoolMalloc(pool, size));
        to = reinterpret_cast<CUdeviceptr>(umfPoolMalloc(pool, size));
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    void TearDown() override {
        if (graph) {
            driver().cuGraphExecDestroy(graph);
        }
        driver().cuStreamDestroy(stream);
        EXPECT_EQ(umfPoolFree(pool, reinterpret_cast<void *>(from)), OK);
        EXPECT_EQ(umfPoolFree(pool, reinterpret_cast<void *>(to)), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->illegal_accesses, 0);
            EXPECT_EQ(driver().control()->unordered_unmaps, 0);
        }
        stop_cuda_vmm();
    }

    // Fills the one, copies it to the other, and changes the one.
    void capture() {
        CUgraph captured = nullptr;
        CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CU(cuMemsetD8Async(from, 0x11, size, stream));
        CU(cuMemcpyAsync(to, from, size, stream));
        CU(cuMemsetD8Async(from, 0x22, size / 2, stream));
        CU(cuStreamEndCapture(stream, &captured));
        CU(cuGraphInstantiateWithFlags(&graph, captured, 0));
        CU(cuGraphDestroy(captured));
    }
    static bool is_all(CUdeviceptr ptr, char value, size_t length) {
        std::vector<char> now(length);
        read_cuda(now.data(), reinterpret_cast<const void *>(ptr), length);
        return are_all(now.data(), now.size(), value);
    }
    void replay() {
        CU(cuGraphLaunch(graph, stream));
        CU(cuStreamSynchronize(stream));
        EXPECT_TRUE(is_all(to, 0x11, size));
        EXPECT_TRUE(is_all(from, 0x22, size / 2));
        EXPECT_TRUE(is_all(from + size / 2, 0x11, size / 2));
    }
};

// The addresses that a graph captured are valid after a resume, in the first replay and in each
// later one.
TEST_P(Graph, ReplaysRightAfterTheWake) {
    capture();
    replay();
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    policy.keep = GetParam();
    ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
    for (int cycle = 0; cycle < 3; cycle++) {
        CU(cuMemsetD8(from, 0x33, size));
        CU(cuMemsetD8(to, 0x44, size));
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        // Somebody has the physical memory in the meantime, and after.
        umf_memory_provider_handle_t other = create_cuda_vmm(0);
        void *theirs = nullptr;
        ASSERT_EQ(umfMemoryProviderAlloc(other, 2 * size, 0, &theirs), OK);
        CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(theirs), 0x55, 2 * size));
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        replay();
        EXPECT_TRUE(is_all(reinterpret_cast<CUdeviceptr>(theirs), 0x55, 2 * size));
        EXPECT_EQ(umfMemoryProviderFree(other, theirs, 2 * size), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(other), OK);
    }
}

// A graph that still runs when its memory is to sleep is waited for.
TEST_P(Graph, IsWaitedFor) {
    capture();
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    policy.keep = GetParam();
    ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
    CU(cuMemsetD8(to, 0x44, size));
    CU(cuGraphLaunch(graph, stream));
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    if (GetParam() != UMF_SUSPEND_DISCARD) {
        EXPECT_TRUE(is_all(to, 0x11, size));
    }
    replay();
}

INSTANTIATE_TEST_SUITE_P(Each, Graph,
                         testing::Values(UMF_SUSPEND_KEEP_PINNED, UMF_SUSPEND_KEEP_HOST,
                                         UMF_SUSPEND_DISCARD),
                         [](const auto &policy) {
                             return policy.param == UMF_SUSPEND_DISCARD       ? "discard"
                                    : policy.param == UMF_SUSPEND_KEEP_PINNED ? "pinned"
                                                                              : "host";
                         });

} // namespace
