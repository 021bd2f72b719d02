// umf/copy.h on queues and events of CUDA, and what holds memory meanwhile.

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fakes/content.h"
#include "fakes/places.h"
#include "gpu.h"

#include <umf.h>
#include <umf/copy.h>
#include <umf/suspend.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr umf_result_t BUSY = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t MiB = size_t{1} << 20;

class CopyOnQueue : public testing::Test {
  protected:
    std::unique_ptr<Places> all = std::make_unique<Places>();
    CUstream stream = nullptr, other = nullptr;
    CUevent event = nullptr, after = nullptr;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    std::vector<char> model = std::vector<char>(MiB);

    void SetUp() override {
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
        CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CU(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));
        params.queue = stream;
        ::fill(model.data(), model.size(), 7);
    }
    void TearDown() override {
        driver().cuEventDestroy(event);
        driver().cuEventDestroy(after);
        driver().cuStreamDestroy(stream);
        driver().cuStreamDestroy(other);
        all.reset();
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->illegal_accesses, 0);
            EXPECT_EQ(driver().control()->dead_uses, 0);
        }
    }
    char *take(const char *place) {
        void *ptr = all->at(place).take(MiB);
        EXPECT_NE(ptr, nullptr);
        return static_cast<char *>(ptr);
    }
    char *take_filled(const char *place) {
        char *ptr = take(place);
        all->at(place).write(ptr, model.data(), MiB);
        return ptr;
    }
    void give(const char *place, void *ptr) {
        all->at(place).give(ptr);
    }
    bool is_filled_at(const char *place, const void *ptr) {
        std::vector<char> now(MiB);
        all->at(place).read(now.data(), ptr, MiB);
        return now == model;
    }
    // Ends pending queries of copies on the queue.
    void settle(char *device, char *pinned) {
        for (int i = 0; i < 20; i++) {
            CU(cuStreamSynchronize(stream));
            ASSERT_EQ(umfCopy(device, pinned, 1, &params), OK);
        }
        CU(cuStreamSynchronize(stream));
    }
    // The n-th call of a function fails, for all n.
    static void fail_each(int function, const std::function<umf_result_t()> &call) {
        bool came = true;
        for (long n = 1; came; n++) {
            ASSERT_LT(n, 100);
            fail_call(driver().control(), function, CUDA_ERROR_UNKNOWN, n);
            umf_result_t result = call();
            came = fail_call(driver().control(), function, 0, 0) == 0;
            ASSERT_TRUE(came || result == OK) << function << " " << n;
        }
    }
    // Work on `on` that ends when `gate` opens.
    static void CUDA_CB wait_for_gate(void *gate) {
        while (!static_cast<std::atomic<bool> *>(gate)->load()) {
            std::this_thread::yield();
        }
    }
};

TEST_F(CopyOnQueue, work_on_one_queue_is_done_in_order) {
    char *pinned = take_filled("cuda_host"), *device = take("cuda_device"),
         *second = take("cuda_vmm"), *back = take("cuda_host");
    ASSERT_EQ(umfCopy(device, pinned, MiB, &params), OK);
    ASSERT_EQ(umfCopy(second, device, MiB, &params), OK);
    ASSERT_EQ(umfFill(device, "x", 1, MiB, &params), OK);
    ASSERT_EQ(umfCopy(back, second, MiB, &params), OK);
    CU(cuStreamSynchronize(stream));
    EXPECT_EQ(memcmp(back, model.data(), MiB), 0);
    ASSERT_EQ(umfCopy(back, device, MiB, nullptr), OK);
    EXPECT_TRUE(are_all(back, MiB, 'x'));
    give("cuda_host", pinned);
    give("cuda_host", back);
    give("cuda_device", device);
    give("cuda_vmm", second);
}

TEST_F(CopyOnQueue, an_event_is_waited_for_and_one_is_recorded_behind) {
    char *pinned = take_filled("cuda_host"), *device = take("cuda_device");
    void *waits[] = {event};
    umf_copy_params_t first = params, then = UMF_COPY_PARAMS_INIT;
    first.event = event;
    then.queue = other;
    then.wait_events = waits;
    then.num_wait_events = 1;
    for (int round = 0; round < 10; round++) {
        char *back = take("cuda_host");
        ASSERT_EQ(umfFill(device, "y", 1, MiB, nullptr), OK);
        ASSERT_EQ(umfCopy(device, pinned, MiB, &first), OK);
        ASSERT_EQ(umfCopy(back, device, MiB, &then), OK);
        CU(cuStreamSynchronize(other));
        EXPECT_EQ(memcmp(back, model.data(), MiB), 0);
        give("cuda_host", back);
    }
    give("cuda_host", pinned);
    give("cuda_device", device);
}

TEST_F(CopyOnQueue, events_serve_copies_of_the_cpu_and_of_no_bytes) {
    char *pinned = take_filled("cuda_host"), *back = take("cuda_host");
    std::vector<char> plain(MiB);
    umf_copy_params_t records = UMF_COPY_PARAMS_INIT, waits = UMF_COPY_PARAMS_INIT;
    void *events[] = {event};
    records.event = event;
    waits.wait_events = events;
    waits.num_wait_events = 1;
    ASSERT_EQ(umfCopy(plain.data(), pinned, MiB, &records), OK);
    CU(cuEventSynchronize(event));
    EXPECT_EQ(plain, model);
    ASSERT_EQ(umfCopy(back, plain.data(), MiB, &waits), OK);
    EXPECT_EQ(memcmp(back, model.data(), MiB), 0);
    records.queue = stream;
    ASSERT_EQ(umfCopy(pinned, back, 0, &records), OK);
    CU(cuEventSynchronize(event));
    // Neither side has a provider with queues, unless one is named.
    EXPECT_EQ(umfCopy(plain.data(), model.data(), 1, &records), NONE);
    umfPoolGetMemoryProvider(all->at("cuda_device").pool, &records.provider);
    EXPECT_EQ(umfCopy(plain.data(), model.data(), 1, &records), OK);
    CU(cuEventSynchronize(event));
    give("cuda_host", pinned);
    give("cuda_host", back);
}

TEST_F(CopyOnQueue, a_copy_with_pageable_memory_is_done_when_it_returns) {
    char *device = take("cuda_device");
    std::vector<char> source = model, back(MiB);
    ASSERT_EQ(umfCopy(device, source.data(), MiB, &params), OK);
    std::fill(source.begin(), source.end(), 'z'); // it has been read
    ASSERT_EQ(umfCopy(back.data(), device, MiB, &params), OK);
    EXPECT_EQ(back, model);
    give("cuda_device", device);
}

TEST_F(CopyOnQueue, data_between_two_drivers_goes_through_the_host_behind_the_queue) {
    char *pinned = take_filled("cuda_host"), *device = take("cuda_device"), *far = take("far");
    ASSERT_EQ(umfCopy(device, pinned, MiB, &params), OK);
    umf_copy_params_t staged = params;
    umfPoolGetMemoryProvider(all->at("cuda_device").pool, &staged.provider);
    ASSERT_EQ(umfCopy(far, device, MiB, &staged), OK);
    EXPECT_TRUE(is_filled_at("far", far));
    give("cuda_host", pinned);
    give("cuda_device", device);
    give("far", far);
}

TEST_F(CopyOnQueue, more_than_2_gib_is_copied_and_filled) {
    if (!driver().is_real) {
        GTEST_SKIP() << "takes 6 GiB of memory of a GPU and of the host";
    }
    constexpr size_t size = (size_t{2} << 30) + 1;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over cuda_vmm", &pool), OK);
    char *near = static_cast<char *>(malloc(size)), *back = static_cast<char *>(malloc(size)),
         *far[2];
    for (char *&ptr : far) {
        ptr = static_cast<char *>(umfPoolMalloc(pool, size));
        ASSERT_NE(ptr, nullptr);
    }
    ::fill(near, size, 11);
    memset(back, 0, size);
    ASSERT_EQ(umfCopy(far[0], near, size, nullptr), OK);
    ASSERT_EQ(umfFill(far[1], "abc", 3, size, nullptr), OK);
    ASSERT_EQ(umfCopy(back, far[1], size, nullptr), OK);
    EXPECT_EQ(memcmp(back, "abc", 3), 0);
    EXPECT_EQ(memcmp(back, back + 3, size - 3), 0);
    ASSERT_EQ(umfCopy(far[1], far[0], size, nullptr), OK);
    ASSERT_EQ(umfCopy(back, far[1], size, nullptr), OK);
    EXPECT_EQ(memcmp(back, near, size), 0);
    for (char *ptr : far) {
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    free(near);
    free(back);
}

// Nobody has given one device access to the virtual memory of the other.
TEST_F(CopyOnQueue, virtual_memory_of_devices_without_access_goes_through_the_host) {
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2) {
        GTEST_SKIP() << "one GPU";
    }
    constexpr size_t large = 20 * MiB;
    umf_memory_pool_handle_t pools[3] = {};
    ASSERT_EQ(umfPoolCreateFromText("proxy over cuda_vmm:device=0", &pools[0]), OK);
    ASSERT_EQ(umfPoolCreateFromText("proxy over cuda_vmm:device=1", &pools[1]), OK);
    ASSERT_EQ(umfPoolCreateFromText("proxy over cuda:device=1", &pools[2]), OK);
    Bytes data(large), now(large);
    ::fill(data.data(), large, 9);
    for (umf_memory_pool_handle_t from : pools) {
        for (umf_memory_pool_handle_t to : pools) {
            void *source = umfPoolMalloc(from, large), *target = umfPoolMalloc(to, large);
            ASSERT_EQ(umfCopy(source, data.data(), large, nullptr), OK);
            for (size_t size : {size_t{100}, large}) {
                umf_copy_route_t route = UMF_COPY_ROUTE_NONE;
                ASSERT_EQ(umfFill(target, "", 1, large, nullptr), OK);
                ASSERT_EQ(umfCopyRoute(target, source, size, nullptr, &route), OK);
                bool is_apart = from != to && from != pools[2] && to != pools[2];
                EXPECT_EQ(route == UMF_COPY_ROUTE_STAGED, is_apart) << size;
                ASSERT_EQ(umfCopy(target, source, size, nullptr), OK);
                ASSERT_EQ(umfCopy(now.data(), target, size, nullptr), OK);
                EXPECT_EQ(memcmp(now.data(), data.data(), size), 0);
            }
            EXPECT_EQ(umfPoolFree(from, source), OK);
            EXPECT_EQ(umfPoolFree(to, target), OK);
        }
    }
    for (umf_memory_pool_handle_t pool : pools) {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
}

// A proxy pool gives each object back to its provider.
TEST_F(CopyOnQueue, a_free_waits_for_the_queue) {
    for (const char *to : {"cuda_device", "cuda_vmm"}) {
        char *pinned = take_filled("cuda_host"), *device = take(to);
        umf_memory_pool_handle_t pool = all->at(to).pool;
        std::atomic<bool> gate{false};
        std::thread opener;
        if (driver().is_real) {
            CU(cuLaunchHostFunc(stream, wait_for_gate, &gate));
            opener = std::thread([&] { gate = true; });
        }
        ASSERT_EQ(umfCopy(device, pinned, MiB, &params), OK);
        ASSERT_EQ(umfPoolFree(pool, device), OK);
        ASSERT_EQ(umfPoolTrimMemory(pool, 0), NONE);
        give("cuda_host", pinned);
        if (opener.joinable()) {
            opener.join();
        }
        CU(cuStreamSynchronize(stream));
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->unordered_unmaps, 0) << to;
        }
    }
}

// The driver's answer leaves open whether the work goes on: then it does.
TEST_F(CopyOnQueue, a_free_waits_until_a_wait_succeeds) {
    NEEDS_FAKE();
    char *pinned = take_filled("cuda_host"), *device = take("cuda_device");
    fake_cuda_t *control = driver().control();
    const long before = control->calls[FAKE_cuCtxSynchronize];
    ASSERT_EQ(umfCopy(device, pinned, MiB, &params), OK);
    control->fail_function = FAKE_cuEventSynchronize;
    control->fail_with = CUDA_ERROR_UNKNOWN;
    control->fail_on = 1;
    control->fail_at = 1;
    give("cuda_device", device);
    EXPECT_GT(control->calls[FAKE_cuCtxSynchronize], before) << "freed without a wait";
    control->fail_on = 0;
    control->fail_at = 0;
    give("cuda_host", pinned);
}

TEST_F(CopyOnQueue, the_queue_may_be_destroyed_before_the_memory) {
    char *pinned = take_filled("cuda_host"), *device = take("cuda_device");
    CUstream brief = nullptr;
    CU(cuStreamCreate(&brief, CU_STREAM_NON_BLOCKING));
    params.queue = brief;
    ASSERT_EQ(umfCopy(device, pinned, MiB, &params), OK);
    CU(cuStreamSynchronize(brief));
    CU(cuStreamDestroy(brief));
    EXPECT_TRUE(is_filled_at("cuda_device", device));
    give("cuda_device", device);
    give("cuda_host", pinned);
}

TEST_F(CopyOnQueue, a_suspend_waits_for_the_queue_and_then_nothing_is_copied) {
    char *pinned = take_filled("cuda_host"), *device = take("cuda_vmm");
    umf_memory_pool_handle_t pool = all->at("cuda_vmm").pool;
    umf_suspend_params_t named = UMF_SUSPEND_PARAMS_INIT;
    void *queues[] = {other}; // not the one that copies
    named.queues = queues;
    named.num_queues = 1;
    ASSERT_EQ(umfCopy(device, pinned, MiB, &params), OK);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, &named, nullptr), OK);
    umf_place_t place = UMF_PLACE_INIT;
    EXPECT_EQ(umfPlaceOf(device, &place), OK);
    EXPECT_EQ(place.is_suspended, 1);
    EXPECT_EQ(place.is_reachable, 0);
    EXPECT_EQ(umfCopy(device, pinned, MiB, nullptr), BUSY);
    EXPECT_EQ(umfCopy(pinned, device, 1, &params), BUSY);
    EXPECT_EQ(umfFill(device, "a", 1, 1, nullptr), BUSY);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_TRUE(is_filled_at("cuda_vmm", device));
    give("cuda_vmm", device);
    give("cuda_host", pinned);
}

TEST_F(CopyOnQueue, a_copy_can_be_captured) {
    char *pinned = take_filled("cuda_host"), *device = take("cuda_device");
    CUgraph graph = nullptr;
    CUgraphExec ready = nullptr;
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASSERT_EQ(umfCopy(device, pinned, MiB, &params), OK);
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphInstantiateWithFlags(&ready, graph, 0));
    CU(cuGraphLaunch(ready, stream));
    CU(cuStreamSynchronize(stream));
    EXPECT_TRUE(is_filled_at("cuda_device", device));
    CU(cuGraphExecDestroy(ready));
    CU(cuGraphDestroy(graph));
    give("cuda_device", device);
    give("cuda_host", pinned);
}

// A copy of this size passes buffers of the host elsewhere, which waits for the queue.
TEST_F(CopyOnQueue, a_long_copy_from_pageable_memory_does_not_end_a_capture) {
    const size_t size = 64 * MiB;
    Place &device = all->at("cuda_device");
    std::vector<char> from(size, 'x');
    void *to = device.take(size);
    CUgraph graph = nullptr;
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(umfCopy(to, from.data(), size, &params), OK);
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphDestroy(graph));
    device.give(to);
}

// Memory of another library, as that of a vault's view: it belongs to no context.
TEST_F(CopyOnQueue, virtual_memory_of_others_is_copied_where_no_context_is_current) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const size_t size = 2 * MiB;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = 0;
    CUcontext primary = nullptr;
    CU(cuDevicePrimaryCtxRetain(&primary, 0));
    CU(cuMemCreate(&handle, size, &properties, 0));
    CU(cuMemAddressReserve(&at, size, 0, 0, 0));
    CU(cuMemMap(at, size, 0, handle, 0));
    CU(cuMemSetAccess(at, size, &access, 1));
    std::vector<char> back(MiB);
    std::thread([&] {
        void *ptr = reinterpret_cast<void *>(at);
        CUcontext current = nullptr;
        driver().cuCtxGetCurrent(&current);
        EXPECT_EQ(current, nullptr);
        EXPECT_EQ(umfCopy(ptr, model.data(), MiB, nullptr), OK);
        EXPECT_EQ(umfCopy(back.data(), ptr, MiB, nullptr), OK);
    }).join();
    EXPECT_EQ(back, model);
    CU(cuMemUnmap(at, size));
    CU(cuMemRelease(handle));
    CU(cuMemAddressFree(at, size));
    CU(cuDevicePrimaryCtxRelease(0));
}

TEST_F(CopyOnQueue, a_second_gpu_is_asked_for_access_once) {
    NEEDS_FAKE()
    const long &enabled = driver().control()->calls[FAKE_cuCtxEnablePeerAccess];
    for (bool lacks_peers : {false, true}) {
        driver().control()->lacks_peers = lacks_peers;
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreateFromText("proxy over cuda:device=1", &pool), OK);
        char *near = take_filled("cuda_device"), *back = take("cuda_device");
        void *peer = umfPoolMalloc(pool, MiB);
        const long before = enabled;
        for (int round = 0; round < 3; round++) {
            ASSERT_EQ(umfCopy(peer, near, MiB, nullptr), OK);
            ASSERT_EQ(umfCopy(back, peer, MiB, nullptr), OK);
        }
        EXPECT_TRUE(is_filled_at("cuda_device", back));
        EXPECT_EQ(enabled - before, lacks_peers ? 0 : 2) << "the context of each destination";
        EXPECT_EQ(driver().control()->staged_copies > 0, lacks_peers);
        give("cuda_device", near);
        give("cuda_device", back);
        umfPoolFree(pool, peer);
        umfPoolDestroy(pool);
    }
    driver().control()->lacks_peers = 0;
}

TEST_F(CopyOnQueue, a_second_gpu_is_copied_to_and_from) {
    if (!has_second_gpu()) {
        GTEST_SKIP() << "no second GPU that reaches the first";
    }
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromText("cuda:device=1,memory_type=device", &provider), OK);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
    char *near = take_filled("cuda_device"), *back = take("cuda_vmm");
    char *peer = static_cast<char *>(umfPoolMalloc(pool, MiB));
    umf_place_t place = UMF_PLACE_INIT;
    ASSERT_EQ(umfPlaceOf(peer, &place), OK);
    EXPECT_EQ(place.device, 1);
    ASSERT_EQ(umfCopy(peer, near, MiB, nullptr), OK);
    ASSERT_EQ(umfCopy(back, peer, MiB, nullptr), OK);
    EXPECT_TRUE(is_filled_at("cuda_vmm", back));
    if (!driver().is_real) {
        EXPECT_EQ(driver().control()->staged_copies, 0) << "from peer to peer";
    }
    give("cuda_device", near);
    give("cuda_vmm", back);
    umfPoolFree(pool, peer);
    umfPoolDestroy(pool);
    umfMemoryProviderDestroy(provider);
}

// Every call of the driver fails in turn: the result says so, or all bytes are right; nothing is
// left behind, and the next copy works.
TEST_F(CopyOnQueue, each_call_of_the_driver_may_fail) {
    NEEDS_FAKE();
    char *pinned = take_filled("cuda_host"), *device = take("cuda_device"), *vmm = take("cuda_vmm"),
         *foreign = take("cuda_foreign");
    std::vector<char> plain = model, back(MiB);
    params.event = after;
    void *waits[] = {event};
    params.wait_events = waits;
    params.num_wait_events = 1;
    struct {
        const char *name;
        std::function<umf_result_t()> call;
    } calls[] = {
        {"to the device", [&] { return umfCopy(device, plain.data(), MiB, nullptr); }},
        {"between", [&] { return umfCopy(vmm, device, MiB, nullptr); }},
        {"back", [&] { return umfCopy(back.data(), vmm, MiB, nullptr); }},
        {"on a queue", [&] { return umfCopy(device, pinned, MiB, &params); }},
        {"foreign", [&] { return umfCopy(foreign, plain.data(), MiB, nullptr); }},
        {"fill", [&] { return umfFill(device, "0", 1, MiB, nullptr); }},
        {"pattern", [&] { return umfFill(device, "0123456", 7, MiB, nullptr); }},
    };
    for (auto &each : calls) {
        SCOPED_TRACE(each.name);
        CU(cuEventRecord(event, other));
        ASSERT_EQ(each.call(), OK);
        settle(device, pinned);
        long before = driver().control()->objects;
        for (int function = 0; function < FAKE_CUDA_FUNCTIONS; function++) {
            if (function != FAKE_cuEventDestroy && function != FAKE_cuStreamDestroy) {
                fail_each(function, each.call);
            }
        }
        ASSERT_EQ(each.call(), OK);
        settle(device, pinned);
        EXPECT_LE(driver().control()->objects, before);
    }
    give("cuda_device", device);
    give("cuda_vmm", vmm);
    give("cuda_foreign", foreign);
    give("cuda_host", pinned);
}

} // namespace
