// umf/copy.h on command lists and events of Level Zero.

#include <cstring>
#include <vector>

#include "fakes/content.h"
#include "level_zero.h"

#include <umf.h>
#include <umf/copy.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_level_zero.h>
#include <umf/queue.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t SIZE = 1 << 20;

class LevelZeroCopy : public LevelZero {
  protected:
    umf_memory_provider_handle_t providers[2] = {};
    umf_memory_pool_handle_t pools[2] = {}; // of the device, of the host
    ze_command_list_handle_t list = nullptr;
    ze_event_pool_handle_t event_pool = nullptr;
    ze_event_handle_t event = nullptr;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    char *device_ptr = nullptr, *host_ptr = nullptr;

    void SetUp() override {
        LevelZero::SetUp();
        for (int i = 0; i < 2; i++) {
            umf_level_zero_memory_provider_params_handle_t made = nullptr;
            umfLevelZeroMemoryProviderParamsCreate(&made);
            umfLevelZeroMemoryProviderParamsSetContext(made, context);
            if (i == 0) {
                umfLevelZeroMemoryProviderParamsSetDevice(made, device);
            }
            umfLevelZeroMemoryProviderParamsSetMemoryType(made, i == 0 ? UMF_MEMORY_TYPE_DEVICE
                                                                       : UMF_MEMORY_TYPE_HOST);
            ASSERT_EQ(umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), made, &providers[i]),
                      OK);
            umfLevelZeroMemoryProviderParamsDestroy(made);
            ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), providers[i], nullptr, 0, &pools[i]), OK);
        }
        device_ptr = static_cast<char *>(umfPoolMalloc(pools[0], SIZE));
        host_ptr = static_cast<char *>(umfPoolMalloc(pools[1], SIZE));
        ze_command_queue_desc_t wanted = {};
        wanted.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
        wanted.mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
        ZE(zeCommandListCreateImmediate(context, device, &wanted, &list));
        ze_event_pool_desc_t for_pool = {};
        for_pool.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC;
        for_pool.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
        for_pool.count = 1;
        ZE(zeEventPoolCreate(context, &for_pool, 1, &device, &event_pool));
        ze_event_desc_t for_event = {};
        for_event.stype = ZE_STRUCTURE_TYPE_EVENT_DESC;
        ZE(zeEventCreate(event_pool, &for_event, &event));
        params.queue = list;
    }
    void TearDown() override {
        ze().zeEventDestroy(event);
        ze().zeEventPoolDestroy(event_pool);
        ze().zeCommandListDestroy(list);
        umfPoolFree(pools[0], device_ptr);
        umfPoolFree(pools[1], host_ptr);
        for (int i = 0; i < 2; i++) {
            EXPECT_EQ(umfPoolDestroy(pools[i]), OK);
            EXPECT_EQ(umfMemoryProviderDestroy(providers[i]), OK);
        }
        LevelZero::TearDown();
    }
};

TEST_F(LevelZeroCopy, WorksOnAListOfTheCaller) {
    std::vector<char> back(SIZE);
    fill(host_ptr, SIZE, 1);
    ASSERT_EQ(umfCopy(device_ptr, host_ptr, SIZE, &params), OK);
    ASSERT_EQ(umfCopy(back.data(), device_ptr, SIZE, &params), OK);
    EXPECT_TRUE(is_filled(back.data(), SIZE, 1));
    ASSERT_EQ(umfFill(device_ptr, "xyz", 3, SIZE, &params), OK);
    ASSERT_EQ(umfCopy(back.data(), device_ptr, SIZE, nullptr), OK);
    EXPECT_EQ(back[SIZE - 1], "xyz"[(SIZE - 1) % 3]);
}

TEST_F(LevelZeroCopy, SignalsAnEventAndWaitsForIt) {
    void *events[] = {event};
    params.event = event;
    EXPECT_EQ(ze().zeEventQueryStatus(event), ZE_RESULT_NOT_READY);
    ASSERT_EQ(umfCopy(device_ptr, host_ptr, SIZE, &params), OK);
    EXPECT_EQ(ze().zeEventQueryStatus(event), ZE_RESULT_SUCCESS);
    umf_copy_params_t waits = UMF_COPY_PARAMS_INIT;
    waits.wait_events = events;
    waits.num_wait_events = 1;
    ASSERT_EQ(umfCopy(host_ptr, device_ptr, SIZE, &waits), OK);
    waits.queue = list;
    ASSERT_EQ(umfFill(device_ptr, "", 1, SIZE, &waits), OK);
}

// Signals what the CPU has done, without a list of the caller.
TEST_F(LevelZeroCopy, SignalsAnEventBehindWorkOfTheCpu) {
    char plain[16] = "plain";
    umf_copy_params_t signals = UMF_COPY_PARAMS_INIT;
    signals.event = event;
    signals.provider = providers[0];
    ASSERT_EQ(umfCopy(host_ptr, plain, sizeof(plain), &signals), OK);
    EXPECT_EQ(ze().zeEventQueryStatus(event), ZE_RESULT_SUCCESS);
    EXPECT_STREQ(host_ptr, "plain");
}

TEST_F(LevelZeroCopy, EachCallOfTheDriverMayFail) {
    NEEDS_FAKE_ZE();
    std::vector<char> plain(SIZE);
    for (int way = 0; way < 3; way++) {
        auto call = [&] {
            return way == 0   ? umfCopy(device_ptr, plain.data(), SIZE, nullptr)
                   : way == 1 ? umfCopy(plain.data(), device_ptr, SIZE, &params)
                              : umfFill(device_ptr, "0123456", 7, SIZE, nullptr);
        };
        bool came = true;
        for (long n = 1; came; n++) {
            ASSERT_LT(n, 100);
            fail(FAKE_ZE_ANY, ZE_RESULT_ERROR_UNKNOWN, n);
            umf_result_t result = call();
            came = ze().control()->fail_at == 0;
            ze().control()->fail_at = 0;
            ASSERT_TRUE(came || result == OK) << n;
        }
        EXPECT_EQ(call(), OK);
    }
    EXPECT_EQ(umfCopy(device_ptr, plain.data(), SIZE + 1, nullptr), BAD);
}

// Pools over Level Zero have queues: immediate command lists.
TEST_F(LevelZeroCopy, MemoryIsFreedOnAList) {
    ze_command_list_handle_t other = nullptr;
    ze_command_queue_desc_t late = {};
    late.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    late.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
    ZE(zeCommandListCreateImmediate(context, device, &late, &other));
    for (int round = 0; round < 4; round++) {
        void *ptr = umfPoolMallocOn(pools[0], SIZE, 0, other);
        ASSERT_NE(ptr, nullptr);
        ZE(zeCommandListAppendMemoryFill(other, ptr, "x", 1, SIZE, nullptr, 0, nullptr));
        EXPECT_EQ(umfFreeOn(ptr, other), OK);
        EXPECT_EQ(umfPoolMallocOn(pools[0], SIZE, 0, other), ptr);
        EXPECT_EQ(umfFreeOn(ptr, other), OK);
        void *elsewhere = umfPoolMallocOn(pools[0], SIZE, 0, list);
        ASSERT_NE(elsewhere, nullptr);
        EXPECT_EQ(umfFreeOn(elsewhere, list), OK);
        EXPECT_EQ(umfPoolWaitPending(pools[0], UINT64_MAX, nullptr), OK);
        umfPoolTrimMemory(pools[0], 0);
    }
    EXPECT_EQ(umfPoolMallocOn(pools[0], SIZE, 0, nullptr), nullptr) << "there is no default list";
    if (!ze().is_real) {
        EXPECT_EQ(ze().control()->unordered_frees, 0);
    }
    EXPECT_EQ(umfQueueEnds(other), OK);
    EXPECT_EQ(umfQueueEnds(list), OK);
    ZE(zeCommandListDestroy(other));
}

// The driver's answer leaves open whether the work goes on: then it does.
TEST_F(LevelZeroCopy, AMarkThatGivesErrorsHasNotPassed) {
    NEEDS_FAKE_ZE();
    ze_command_list_handle_t other = nullptr;
    ze_command_queue_desc_t late = {};
    late.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    late.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
    ZE(zeCommandListCreateImmediate(context, device, &late, &other));
    void *ptr = umfPoolMallocOn(pools[0], SIZE, 0, other);
    ASSERT_NE(ptr, nullptr);
    EXPECT_EQ(umfFreeOn(ptr, other), OK);
    ze().control()->fail_on = 1;
    fail(FAKE_zeEventHostSynchronize, ZE_RESULT_ERROR_UNKNOWN);
    void *elsewhere = umfPoolMallocOn(pools[0], SIZE, 0, list);
    ze().control()->fail_on = 0;
    ze().control()->fail_at = 0;
    EXPECT_NE(elsewhere, ptr);
    EXPECT_EQ(umfFreeOn(elsewhere, list), OK);
    EXPECT_EQ(umfPoolWaitPending(pools[0], UINT64_MAX, nullptr), OK);
    EXPECT_EQ(umfQueueEnds(other), OK);
    EXPECT_EQ(umfQueueEnds(list), OK);
    ZE(zeCommandListDestroy(other));
}

} // namespace
