// The level_zero_vmm provider: its own features. Promises of all providers of virtual memory are in
// test/conformance.

#include <cstdint>
#include <string>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/capture.h>
#include <umf/experimental/memory_properties.h>
#include <umf/ipc.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_level_zero_vmm.h>
#include <umf/reason.h>
#include <umf/suspend.h>
#include <umf/text.h>
#include <umf/vault.h>

#include "fakes/calls.h"
#include "fakes/log_file.h"
#include "level_zero/level_zero.h"

extern char **environ;

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr umf_result_t NATIVE = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
constexpr umf_result_t ABSENT = UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
constexpr size_t MiB = size_t{1} << 20;

using Params = umf_level_zero_vmm_memory_provider_params_handle_t;

class Vmm : public LevelZero {
  protected:
    fake_ze_t *control = nullptr;

    void SetUp() override {
        NEEDS_FAKE_ZE();
        LevelZero::SetUp();
        control = ze().control();
    }

    void TearDown() override {
        EXPECT_EQ(control->illegal_accesses, 0);
        EXPECT_EQ(control->wrong_handles, 0);
        LevelZero::TearDown();
    }

    umf_result_t try_create(umf_memory_provider_handle_t *provider) {
        Params params = nullptr;
        EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsCreate(&params), OK);
        EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetContext(params, context, device), OK);
        umf_result_t result =
            umfMemoryProviderCreate(umfLevelZeroVmmMemoryProviderOps(), params, provider);
        EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsDestroy(params), OK);
        return result;
    }

    umf_memory_provider_handle_t create() {
        umf_memory_provider_handle_t provider = nullptr;
        EXPECT_EQ(try_create(&provider), OK);
        return provider;
    }

    // Content that a suspend copies to another device.
    static umf_suspend_policy_t keep_on(int other_device) {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = UMF_SUSPEND_KEEP_PEER;
        policy.device = other_device;
        return policy;
    }

    // The error that the provider remembers for this thread.
    static int32_t native_error(umf_memory_provider_handle_t provider) {
        const char *text = nullptr;
        int32_t code = 0;
        umfMemoryProviderGetLastNativeError(provider, &text, &code);
        EXPECT_NE(text, nullptr);
        return code;
    }
};

} // namespace

// --- creation ------------------------------------------------------------------------------------

// Whether its physical memory may be mapped at two addresses at once is not known.
TEST_F(Vmm, RefusesAnArena) {
    LogFile log;
    umf_memory_provider_handle_t provider = create();
    umf_memory_pool_handle_t pool = nullptr;
    EXPECT_EQ(umfPoolCreateFromTextOver("coalescing:arena=yes", provider, &pool), NONE);
    EXPECT_EQ(pool, nullptr);
    EXPECT_EQ(log.count("use one of these, or arena=no"), 1u) << log.text();
    EXPECT_EQ(umfPoolCreateFromTextOver("coalescing", provider, &pool), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// A vault keeps descriptors, and Level Zero makes none of this memory.
TEST_F(Vmm, AVaultKeepsNoneOfItsMemory) {
    char place[] = "/tmp/umf_vmm_vault_XXXXXX";
    ASSERT_NE(mkdtemp(place), nullptr);
    umf_vault_handle_t vault = nullptr;
    umf_vault_draft_handle_t draft = nullptr;
    umf_memory_pool_handle_t pool;
    umf_result_t opened = umfVaultOpen((std::string("file:") + place).c_str(), nullptr, &vault);
    if (opened == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        rmdir(place);
        GTEST_SKIP() << "this build has no vaults";
    }
    ASSERT_EQ(opened, UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfVaultBegin(vault, nullptr, &draft), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultDraftPool(draft, "proxy over level_zero_vmm", &pool),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_NE(std::string(umfLastErrorText()).find("descriptors"), std::string::npos);
    EXPECT_EQ(umfVaultClose(vault), UMF_RESULT_SUCCESS);
    unlink((std::string(place) + "/lock").c_str());
    EXPECT_EQ(rmdir(place), 0);
}

TEST_F(Vmm, Params) {
    Params params = nullptr;
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsCreate(nullptr), BAD);
    ASSERT_EQ(umfLevelZeroVmmMemoryProviderParamsCreate(&params), OK);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetContext(nullptr, context, device), BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetContext(params, nullptr, device), BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetContext(params, context, nullptr), BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetDevice(nullptr, 0), BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetDriver(nullptr, 0), BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetAnyDevice(nullptr, 0), BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetFreePolicy(nullptr,
                                                               UMF_LEVEL_ZERO_VMM_FREE_POLICY_WAIT),
              BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetPieceSize(nullptr, 1), BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetPieceSize(params, 0), BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetName(nullptr, "x"), BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetName(params, nullptr), BAD);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsDestroy(params), OK);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsDestroy(nullptr), OK);
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfMemoryProviderCreate(umfLevelZeroVmmMemoryProviderOps(), nullptr, &provider), BAD);
}

TEST_F(Vmm, MemoryIsInTheGivenContext) {
    control->cache_line = 256;
    umf_memory_provider_handle_t provider = create();
    EXPECT_EQ(control->contexts, 1);
    const char *name = nullptr;
    EXPECT_EQ(umfMemoryProviderGetName(provider, &name), OK);
    EXPECT_STREQ(name, "LEVEL_ZERO_VMM");
    size_t size = 0;
    EXPECT_EQ(umfMemoryProviderGetMinPageSize(provider, nullptr, &size), OK);
    EXPECT_EQ(size, 2 * MiB) << "the page size of large memory, not that of small";
    EXPECT_EQ(umfMemoryProviderGetCacheLineSize(provider, &size), OK);
    EXPECT_EQ(size, 256u);

    umf_memory_pool_handle_t pool = proxy_over(provider);
    void *ptr = umfPoolMalloc(pool, 3 * MiB);
    ASSERT_NE(ptr, nullptr);
    EXPECT_EQ(control->used[0], 4 * MiB);
    umf_memory_properties_handle_t properties = nullptr;
    ASSERT_EQ(umfGetMemoryPropertiesHandle(ptr, &properties), OK);
    umf_usm_memory_type_t type = UMF_MEMORY_TYPE_UNKNOWN;
    ze_context_handle_t in_context = nullptr;
    ze_device_handle_t on_device = nullptr;
    EXPECT_EQ(
        umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_POINTER_TYPE, &type, sizeof(type)),
        OK);
    EXPECT_EQ(umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_CONTEXT, &in_context,
                                   sizeof(in_context)),
              OK);
    EXPECT_EQ(
        umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_DEVICE, &on_device, sizeof(on_device)),
        OK);
    EXPECT_EQ(type, UMF_MEMORY_TYPE_DEVICE);
    EXPECT_EQ(in_context, context);
    EXPECT_EQ(on_device, device);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(control->used[0], 0u);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST_F(Vmm, MakesAContextForANumber) {
    control->drivers = 2;
    umf_memory_provider_handle_t provider = nullptr;
    // The second device of the second driver.
    ASSERT_EQ(umfMemoryProviderCreateFromText(
                  "level_zero_vmm:driver=1,device=1,piece_size=3M,name=far", &provider),
              OK);
    EXPECT_EQ(control->contexts, 2);
    const char *name = nullptr;
    EXPECT_EQ(umfMemoryProviderGetName(provider, &name), OK);
    EXPECT_STREQ(name, "far");
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 1, 0, &ptr), OK);
    EXPECT_EQ(control->used[FAKE_ZE_DEVICES + 1], 4 * MiB);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 1), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    EXPECT_EQ(control->contexts, 1);

    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm:device=2", &provider), BAD)
        << "numbers of one driver do not go on in the next";
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm:device=4", &provider), BAD);
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm:driver=2", &provider), BAD);
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm:device=-1", &provider), BAD);
    control->drivers = 0;
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm", &provider), ABSENT);
    control->drivers = 1;
}

// The driver of an NPU comes first: its device is none of ours, whatever the number.
TEST_F(Vmm, TheNpuOfAnotherDriverIsNotCounted) {
    control->drivers = 2;
    control->types[0] = control->types[1] = ZE_DEVICE_TYPE_VPU;
    umf_memory_provider_handle_t provider = nullptr;
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm:device=1", &provider), OK);
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 2 * MiB, 0, &ptr), OK);
    EXPECT_EQ(control->used[FAKE_ZE_DEVICES + 1], 2 * MiB);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 2 * MiB), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);

    LogFile log;
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm:driver=0", &provider), BAD);
    EXPECT_EQ(log.count("no device 0 among the 0 GPUs of its driver"), 1u) << log.text();
    control->drivers = 1;
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm", &provider), ABSENT);
    EXPECT_EQ(log.count("finds 2 devices and no GPU"), 1u) << log.text();
    EXPECT_EQ(control->contexts, 1);
}

TEST_F(Vmm, AnNpuIsCountedIfAskedFor) {
    control->drivers = 2;
    control->types[1] = ZE_DEVICE_TYPE_VPU; // beside a GPU of the same driver
    umf_memory_provider_handle_t provider = nullptr;
    void *ptr = nullptr;
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm:device=1", &provider), BAD);
    for (bool by_text : {true, false}) {
        if (by_text) {
            ASSERT_EQ(umfMemoryProviderCreateFromText(
                          "level_zero_vmm:driver=0,device=1,any_device=yes", &provider),
                      OK);
        } else {
            Params params = nullptr;
            ASSERT_EQ(umfLevelZeroVmmMemoryProviderParamsCreate(&params), OK);
            EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetDriver(params, 0), OK);
            EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetDevice(params, 1), OK);
            EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetAnyDevice(params, 1), OK);
            EXPECT_EQ(
                umfMemoryProviderCreate(umfLevelZeroVmmMemoryProviderOps(), params, &provider), OK);
            EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsDestroy(params), OK);
        }
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 2 * MiB, 0, &ptr), OK);
        EXPECT_EQ(control->used[1], 2 * MiB);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 2 * MiB), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
}

TEST_F(Vmm, EveryCallOfACreationMayFail) {
    for (bool by_number : {false, true}) {
        for (long n = 1;; n++) {
            ASSERT_LT(n, 50);
            umf_memory_provider_handle_t provider = nullptr;
            fail(FAKE_ZE_ANY, ZE_RESULT_ERROR_UNKNOWN, n);
            umf_result_t result = by_number
                                      ? umfMemoryProviderCreateFromText("level_zero_vmm", &provider)
                                      : try_create(&provider);
            bool was_reached = control->fail_at == 0;
            control->fail_at = 0;
            if (!was_reached) {
                EXPECT_EQ(result, OK);
                EXPECT_GT(n, 2);
                EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
                break;
            }
            EXPECT_EQ(result, NATIVE) << n;
            EXPECT_EQ(provider, nullptr);
            EXPECT_EQ(control->contexts, 1) << n;
        }
    }
}

// --- allocation ----------------------------------------------------------------------------------

TEST_F(Vmm, AlignsWhateverTheDriverGives) {
    for (int deaf : {0, 1}) {
        control->deaf = deaf;
        umf_memory_provider_handle_t provider = create();
        for (size_t alignment : {size_t{0}, 2 * MiB, 64 * MiB, 1024 * MiB}) {
            void *ptr = nullptr;
            ASSERT_EQ(umfMemoryProviderAlloc(provider, 2 * MiB, alignment, &ptr), OK);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % (alignment ? alignment : 2 * MiB), 0u);
            EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 2 * MiB), OK);
            EXPECT_EQ(control->reservations, 0);
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
}

TEST_F(Vmm, EveryCallOfAnAllocationMayFail) {
    for (int deaf : {0, 1}) {
        control->deaf = deaf;
        umf_memory_provider_handle_t provider = create();
        for (long n = 1;; n++) {
            ASSERT_LT(n, 20);
            void *ptr = nullptr;
            fail(FAKE_ZE_ANY, ZE_RESULT_ERROR_UNKNOWN, n);
            umf_result_t result = umfMemoryProviderAlloc(provider, 2 * MiB, 1024 * MiB, &ptr);
            bool was_reached = control->fail_at == 0;
            control->fail_at = 0;
            if (!was_reached) {
                EXPECT_EQ(result, OK);
                EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 2 * MiB), OK);
                break;
            }
            EXPECT_EQ(result, NATIVE) << n;
            EXPECT_EQ(ptr, nullptr);
            EXPECT_EQ(control->physicals + control->mappings, 0) << n;
            EXPECT_LE(control->reservations, control->refused) << n;
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    if (control->refused > 0) { // a reservation was not taken back, on demand
        ze().reset();
        context = nullptr;
    }
}

TEST_F(Vmm, NoMemoryOfTheDeviceIsAResultOfItsOwn) {
    umf_memory_provider_handle_t provider = create();
    control->device_memory[0] = 4 * MiB;
    void *ptr = nullptr, *more = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4 * MiB, 0, &ptr), OK);
    EXPECT_EQ(umfMemoryProviderAlloc(provider, 1, 0, &more), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(native_error(provider), static_cast<int32_t>(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY));
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4 * MiB), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST_F(Vmm, ALostDeviceLeavesNothingBehind) {
    umf_memory_provider_handle_t provider = create();
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &pool), OK);
    void *small = umfPoolMalloc(pool, 100), *large = umfPoolMalloc(pool, 8 * MiB);
    ASSERT_TRUE(small && large);
    control->lost = ZE_RESULT_ERROR_DEVICE_LOST;
    EXPECT_EQ(umfPoolMalloc(pool, 16 * MiB), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), NATIVE);
    EXPECT_EQ(native_error(provider), static_cast<int32_t>(ZE_RESULT_ERROR_DEVICE_LOST));
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), NATIVE);
    EXPECT_EQ(umfFree(large), OK);
    EXPECT_EQ(umfFree(small), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    EXPECT_EQ(ze().alive(), 1) << "the context of the test";
    control->lost = ZE_RESULT_SUCCESS;
}

// At the end of a process: no log for a failure without a remedy.
TEST_F(Vmm, ADriverThatShutsDownHasEverythingBack) {
    umf_memory_provider_handle_t provider = create();
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4 * MiB, 0, &ptr), OK);
    control->lost = ZE_RESULT_ERROR_UNINITIALIZED;
    LogFile log(2); // warnings and errors
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4 * MiB), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    EXPECT_EQ(log.text(), "");
    control->lost = ZE_RESULT_SUCCESS;
}

// --- sharing -------------------------------------------------------------------------------------

TEST_F(Vmm, IsNotShared) {
    umf_memory_provider_handle_t provider = create();
    umf_memory_pool_handle_t pool = proxy_over(provider);
    void *ptr = umfPoolMalloc(pool, 2 * MiB);
    size_t size = 0;
    char data[256] = {};
    void *opened = nullptr;
    {
        LogFile log;
        EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &size), NONE);
        EXPECT_NE(log.text().find("use the provider level_zero"), std::string::npos) << log.text();
    }
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 2 * MiB, data), NONE);
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, data), NONE);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, data, &opened), NONE);
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, ptr, 2 * MiB), NONE);
    umf_ipc_handle_t handle = nullptr;
    EXPECT_EQ(umfGetIPCHandle(ptr, &handle, &size), NONE);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// --- sleep ---------------------------------------------------------------------------------------

namespace {

// A copy into `memory` that a queue does late; `event` is signaled after it.
class LateCopy {
  public:
    ze_command_queue_handle_t queue = nullptr;
    ze_event_handle_t event = nullptr;

    LateCopy(ze_context_handle_t context, ze_device_handle_t device, void *memory,
             const void *source, size_t size) {
        ze_command_queue_desc_t for_queue = {};
        for_queue.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
        for_queue.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
        EXPECT_EQ(ze().zeCommandQueueCreate(context, device, &for_queue, &queue), 0);
        ze_command_list_desc_t for_list = {};
        for_list.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
        EXPECT_EQ(ze().zeCommandListCreate(context, device, &for_list, &list), 0);
        ze_event_pool_desc_t for_pool = {};
        for_pool.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC;
        for_pool.count = 1;
        EXPECT_EQ(ze().zeEventPoolCreate(context, &for_pool, 0, nullptr, &pool), 0);
        ze_event_desc_t for_event = {};
        for_event.stype = ZE_STRUCTURE_TYPE_EVENT_DESC;
        EXPECT_EQ(ze().zeEventCreate(pool, &for_event, &event), 0);
        EXPECT_EQ(ze().zeCommandListAppendMemoryCopy(list, memory, source, size, event, 0, nullptr),
                  0);
        EXPECT_EQ(ze().zeCommandListClose(list), 0);
        EXPECT_EQ(ze().zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr), 0);
    }
    ~LateCopy() {
        EXPECT_EQ(ze().zeEventDestroy(event), 0);
        EXPECT_EQ(ze().zeEventPoolDestroy(pool), 0);
        EXPECT_EQ(ze().zeCommandListDestroy(list), 0);
        EXPECT_EQ(ze().zeCommandQueueDestroy(queue), 0);
    }

  private:
    ze_command_list_handle_t list = nullptr;
    ze_event_pool_handle_t pool = nullptr;
};

} // namespace

namespace {

// What gives memory back that `ptr` lies in.
struct WayBack {
    const char *name;
    const umf_memory_pool_ops_t *pool;
    size_t size;
    void (*go)(umf_memory_pool_handle_t *pool, void *ptr);
};

const WayBack ways_back[] = {
    {"a free of proxy", umfProxyPoolOps(), 4 * MiB,
     [](umf_memory_pool_handle_t *, void *ptr) { EXPECT_EQ(umfFree(ptr), OK); }},
    {"a trim of disjoint", umfDisjointPoolOps(), 1000,
     [](umf_memory_pool_handle_t *pool, void *ptr) {
         EXPECT_EQ(umfFree(ptr), OK);
         EXPECT_EQ(umfPoolTrimMemory(*pool, 0), OK);
     }},
    {"a trim of coalescing", umfCoalescingPoolOps(), 4 * MiB,
     [](umf_memory_pool_handle_t *pool, void *ptr) {
         EXPECT_EQ(umfFree(ptr), OK);
         EXPECT_EQ(umfPoolTrimMemory(*pool, 0), OK);
     }},
    {"the end of a pool", umfDisjointPoolOps(), 1000,
     [](umf_memory_pool_handle_t *pool, void *ptr) {
         EXPECT_EQ(umfFree(ptr), OK);
         EXPECT_EQ(umfPoolDestroy(*pool), OK);
         *pool = nullptr;
     }},
    {"a suspend without names", umfProxyPoolOps(), 4 * MiB,
     [](umf_memory_pool_handle_t *pool, void *ptr) {
         EXPECT_EQ(umfPoolsSuspend(pool, 1, nullptr, nullptr), OK);
         EXPECT_EQ(umfPoolsResume(pool, 1, nullptr, nullptr), OK);
         EXPECT_EQ(umfFree(ptr), OK);
     }},
};

} // namespace

// Also when it is work of another device that reaches the memory.
TEST_F(Vmm, NothingIsUnmappedUnderQueuedWork) {
    for (const WayBack &way : ways_back) {
        for (ze_device_handle_t worker : {devices[0], devices[1]}) {
            umf_memory_provider_handle_t provider = create();
            umf_memory_pool_handle_t pool = nullptr;
            ASSERT_EQ(umfPoolCreate(way.pool, provider, nullptr, 0, &pool), OK) << way.name;
            void *ptr = umfPoolMalloc(pool, way.size);
            ASSERT_NE(ptr, nullptr);
            long waits = control->device_waits;
            {
                LateCopy copy(context, worker, ptr, "late", 5);
                way.go(&pool, ptr);
                EXPECT_EQ(control->unordered_frees, 0) << way.name;
                EXPECT_GT(control->device_waits, waits) << way.name;
            }
            EXPECT_TRUE(!pool || umfPoolDestroy(pool) == OK);
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
            EXPECT_EQ(control->mappings, 0) << way.name;
        }
    }
}

// The end of a provider releases memory that was never freed.
TEST_F(Vmm, TheEndOfAProviderWaits) {
    umf_memory_provider_handle_t provider = create();
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 2 * MiB, 0, &ptr), OK);
    LateCopy copy(context, device, ptr, "late", 5);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    EXPECT_EQ(control->unordered_frees, 0);
    EXPECT_EQ(control->mappings, 0);
}

TEST_F(Vmm, WhoHasWaitedNeedNotWaitAgain) {
    for (bool by_text : {true, false}) {
        umf_memory_provider_handle_t provider = nullptr;
        if (by_text) {
            ASSERT_EQ(
                umfMemoryProviderCreateFromText("level_zero_vmm:free_policy=immediate", &provider),
                OK);
        } else {
            Params params = nullptr;
            ASSERT_EQ(umfLevelZeroVmmMemoryProviderParamsCreate(&params), OK);
            EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsSetFreePolicy(
                          params, UMF_LEVEL_ZERO_VMM_FREE_POLICY_IMMEDIATE),
                      OK);
            EXPECT_EQ(
                umfMemoryProviderCreate(umfLevelZeroVmmMemoryProviderOps(), params, &provider), OK);
            EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsDestroy(params), OK);
        }
        void *ptr = nullptr;
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 2 * MiB, 0, &ptr), OK);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 2 * MiB), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    EXPECT_EQ(control->device_waits, 0);
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm:free_policy=never", &provider), BAD);
}

// A wait would end the capture.
TEST_F(Vmm, NothingIsWaitedForWhileAQueueIsCaptured) {
    umf_memory_provider_handle_t provider = create();
    umf_memory_pool_handle_t pool = proxy_over(provider);
    void *first = umfPoolMalloc(pool, 2 * MiB), *second = umfPoolMalloc(pool, 2 * MiB);
    ASSERT_EQ(umfCaptureBegins(this), OK);
    EXPECT_EQ(umfFree(first), OK);
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(control->device_waits, 0);
    EXPECT_EQ(control->mappings, 2) << "freed memory is still mapped";
    ASSERT_EQ(umfCaptureEnds(this), OK);
    EXPECT_EQ(umfFree(second), OK);
    EXPECT_EQ(control->mappings, 0);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// The limit of the header: then memory is unmapped at once, and the program must have waited.
TEST_F(Vmm, ADriverThatCannotWaitIsNotWaitedFor) {
    control->waits = 0;
    LogFile log;
    umf_memory_provider_handle_t provider = create();
    EXPECT_EQ(log.count("cannot wait for a whole device"), 1u) << log.text();
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 2 * MiB, 0, &ptr), OK);
    {
        LateCopy copy(context, device, ptr, "late", 5);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 2 * MiB), OK);
        EXPECT_EQ(control->unordered_frees, 1);
        EXPECT_EQ(ze().zeCommandQueueSynchronize(copy.queue, UINT64_MAX),
                  ZE_RESULT_ERROR_DEVICE_LOST);
        EXPECT_EQ(control->illegal_accesses, 1);
        control->illegal_accesses = 0;
        control->lost = ZE_RESULT_SUCCESS;
    }
    EXPECT_EQ(control->device_waits, 0);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST_F(Vmm, SleepsAfterTheNamedWork) {
    control->touchable = 1;
    umf_memory_provider_handle_t provider = create();
    umf_memory_pool_handle_t pool = proxy_over(provider);
    char *ptr = static_cast<char *>(umfPoolMalloc(pool, 2 * MiB));
    for (bool by_event : {false, true}) {
        std::string source = by_event ? "by an event" : "by a queue";
        LateCopy copy(context, device, ptr, source.c_str(), source.size() + 1);
        void *queue = copy.queue, *event = copy.event;
        umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
        (by_event ? params.events : params.queues) = by_event ? &event : &queue;
        (by_event ? params.num_events : params.num_queues) = 1;
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, &params, nullptr), OK);
        EXPECT_EQ(control->used[0], 0u);
        EXPECT_EQ(control->unordered_frees, 0);
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(ptr, source);
    }
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// Pieces side by side: each is unmapped by a call of its own.
TEST_F(Vmm, SleepsPieceByPiece) {
    umf_memory_provider_handle_t provider = create();
    umf_memory_pool_handle_t pool = proxy_over(provider);
    std::vector<void *> all;
    for (int i = 0; i < 16; i++) {
        all.push_back(umfPoolMalloc(pool, 2 * MiB));
    }
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(control->calls[FAKE_zeVirtualMemUnmap], 16);
    EXPECT_EQ(control->physicals, 0);
    EXPECT_EQ(control->reservations, 16);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    for (void *ptr : all) {
        EXPECT_EQ(umfFree(ptr), OK);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

TEST_F(Vmm, KeepsContentOnlyOnADeviceItReaches) {
    umf_memory_provider_handle_t provider = create();
    umf_memory_pool_handle_t pool = proxy_over(provider);
    umf_suspend_policy_t policy = keep_on(7);
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), NONE);
    policy.device = 1;
    control->peers = 0;
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), NONE);
    control->peers = 1;
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
    control->max_alloc_size = MiB; // limits are relaxed for cached memory
    void *ptr = umfPoolMalloc(pool, 4 * MiB);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(control->used[1], 4 * MiB);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(control->used[1], 0u);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// Numbers of peers are those of the provider's driver, also if that is not the first, and if the
// program gave a part of a device. The fake counts a foreign device as a wrong handle in
// the context.
TEST_F(Vmm, ContentIsNeverKeptOnADeviceOfAnotherDriver) {
    control->drivers = 2;
    control->parts = 1;
    control->types[0] = ZE_DEVICE_TYPE_VPU; // the first driver's
    uint32_t count = 2;
    ze_driver_handle_t drivers[2] = {};
    ZE(zeDriverGet(&count, drivers));
    ze_device_handle_t first = nullptr, part = nullptr;
    count = 1;
    ZE(zeDeviceGet(drivers[1], &count, &first));
    count = 1;
    ZE(zeDeviceGetSubDevices(first, &count, &part));
    ze_context_desc_t wanted = {};
    wanted.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
    ze_context_handle_t own = context;
    ZE(zeContextCreate(drivers[1], &wanted, &context));
    for (ze_device_handle_t given : {first, part}) {
        device = given;
        umf_memory_provider_handle_t provider = create();
        umf_memory_pool_handle_t pool = proxy_over(provider);
        umf_suspend_policy_t policy = keep_on(2);
        EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), NONE) << "its driver has two";
        policy.device = 1;
        EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
        void *ptr = umfPoolMalloc(pool, 4 * MiB);
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(control->used[FAKE_ZE_DEVICES + 1], 4 * MiB);
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(umfFree(ptr), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    ZE(zeContextDestroy(context));
    context = own;
}

TEST_F(Vmm, NoDriverListsTheDevice) {
    umf_memory_provider_handle_t provider = create();
    umf_memory_pool_handle_t pool = proxy_over(provider);
    umf_suspend_policy_t policy = keep_on(1);
    control->devices = 0;
    LogFile log;
    EXPECT_EQ(umfPoolSetSuspendPolicy(pool, &policy), NONE);
    EXPECT_EQ(log.count("no Level Zero driver of this machine lists the device"), 1u) << log.text();
    control->devices = 2;
    for (long n = 1; n <= 3; n++) {
        fail(FAKE_ZE_ANY, ZE_RESULT_ERROR_UNKNOWN, n);
        EXPECT_NE(umfPoolSetSuspendPolicy(pool, &policy), OK) << n;
        EXPECT_EQ(control->fail_at, 0) << n;
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
}

// --- without virtual memory ----------------------------------------------------------------------

// Another process, since the loader is looked up once.
TEST_F(Vmm, NeedsALoaderWithVirtualMemory) {
    std::string path = "/proc/self/exe", filter = "--gtest_filter=OldLoader.DISABLED_*";
    std::string all = "--gtest_also_run_disabled_tests";
    char *arguments[] = {path.data(), filter.data(), all.data(), nullptr};
    setenv("UMF_ZE_LOADER_LIB_NAME", UMF_TEST_ZE_LOADER_DIR "/ze_loader.so", 1);
    pid_t child = 0;
    ASSERT_EQ(posix_spawn(&child, path.c_str(), nullptr, nullptr, arguments, environ), 0);
    unsetenv("UMF_ZE_LOADER_LIB_NAME");
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST(OldLoader, DISABLED_Refuses) {
    umf_memory_provider_handle_t provider = nullptr;
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero_vmm", &provider), ABSENT);
    const umf_memory_provider_ops_t *ops = umfLevelZeroVmmMemoryProviderOps();
    Params params = nullptr;
    ASSERT_EQ(umfLevelZeroVmmMemoryProviderParamsCreate(&params), OK);
    EXPECT_EQ(umfMemoryProviderCreate(ops, params, &provider), ABSENT);
    EXPECT_EQ(umfLevelZeroVmmMemoryProviderParamsDestroy(params), OK);
}
