// The Level Zero provider, statement by statement, through the real loader.

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "level_zero.h"

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/ipc.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/providers/provider_level_zero.h>
#include <umf/providers/provider_os_memory.h>
#include <umf/text.h>

#include "fakes/calls.h"
#include "fakes/log_file.h"
#include "fakes/properties.h"
#include "fakes/threads.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr umf_result_t NATIVE = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
constexpr umf_result_t MISSING = UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;

const umf_usm_memory_type_t types[] = {UMF_MEMORY_TYPE_HOST, UMF_MEMORY_TYPE_DEVICE,
                                       UMF_MEMORY_TYPE_SHARED};

class Ze : public LevelZero {
  protected:
    umf_level_zero_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;

    void SetUp() override {
        LevelZero::SetUp();
        if (!ze().is_real) {
            ze().control()->touchable = 1;
        }
        ASSERT_EQ(umfLevelZeroMemoryProviderParamsCreate(&params), OK);
        ASSERT_EQ(umfLevelZeroMemoryProviderParamsSetContext(params, context), OK);
        set_type(UMF_MEMORY_TYPE_DEVICE);
    }

    void TearDown() override {
        if (!ze().is_real) {
            ze().control()->fail_at = 0;
            ze().control()->lost = ZE_RESULT_SUCCESS;
        }
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        umfLevelZeroMemoryProviderParamsDestroy(params);
        LevelZero::TearDown();
    }

    void set_type(umf_usm_memory_type_t type) {
        EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetMemoryType(params, type), OK);
        EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetDevice(
                      params, type == UMF_MEMORY_TYPE_HOST ? nullptr : device),
                  OK);
    }
    umf_result_t create() {
        return umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), params, &provider);
    }
    void create_of(umf_usm_memory_type_t type) {
        set_type(type);
        ASSERT_EQ(create(), OK);
    }
    void destroy() {
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        provider = nullptr;
    }
    void *alloc(size_t size, size_t alignment = 0) {
        void *ptr = nullptr;
        EXPECT_EQ(umfMemoryProviderAlloc(provider, size, alignment, &ptr), OK);
        return ptr;
    }
    void free(void *ptr) {
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 0), OK);
    }
    size_t allocated() {
        return allocated_of(provider);
    }
    std::string native(int32_t *code) {
        const char *text = nullptr;
        EXPECT_EQ(umfMemoryProviderGetLastNativeError(provider, &text, code), OK);
        return text ? text : "";
    }
    umf_memory_pool_handle_t proxy(umf_pool_create_flags_t flags = 0) {
        return proxy_over(provider, flags);
    }
    static void watch_order() {
        ze().control()->ordered = 0;
    }
    // The calls since then; several in a row of the same function count as one.
    static std::vector<int> order() {
        const fake_ze_t *control = ze().control();
        std::vector<int> calls(control->order, control->order + control->ordered);
        calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
        return calls;
    }
    // What memory of the device holds.
    std::vector<unsigned char> read(const void *ptr, size_t size) {
        std::vector<unsigned char> content(size, 0xee);
        ze_command_queue_desc_t wanted = {};
        wanted.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
        wanted.mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
        ze_command_list_handle_t list = nullptr;
        EXPECT_EQ(ze().zeCommandListCreateImmediate(context, device, &wanted, &list),
                  ZE_RESULT_SUCCESS);
        EXPECT_EQ(ze().zeCommandListAppendMemoryCopy(list, content.data(), ptr, size, nullptr, 0,
                                                     nullptr),
                  ZE_RESULT_SUCCESS);
        EXPECT_EQ(ze().zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
        return content;
    }
    static bool resident(const void *ptr, int on) {
        return ze().is_resident(ptr, on) != 0;
    }
};

} // namespace

// --- parameters ----------------------------------------------------------------------------------

TEST_F(Ze, ParametersAreChecked) {
    ze_device_handle_t twice[] = {device, device};
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsCreate(nullptr), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsDestroy(nullptr), OK);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetContext(nullptr, context), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetContext(params, nullptr), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetDevice(nullptr, device), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetDevice(params, nullptr), OK);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetMemoryType(nullptr, UMF_MEMORY_TYPE_HOST), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetFreePolicy(
                  nullptr, UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFAULT),
              BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetDeviceOrdinal(nullptr, 0), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetName(nullptr, "x"), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetName(params, nullptr), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetResidentDevices(nullptr, twice, 1), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetResidentDevices(params, nullptr, 1), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetResidentDevices(params, twice, 2), BAD);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetResidentDevices(params, twice, 1), OK);
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetResidentDevices(params, nullptr, 0), OK);
}

TEST_F(Ze, CreationRefusesAndSaysWhy) {
    LogFile log;
    auto refused = [&](umf_result_t expected, const char *why) {
        EXPECT_EQ(create(), expected) << why;
        EXPECT_EQ(provider, nullptr);
        EXPECT_NE(log.count(why), 0u) << why << " not in:\n" << log.text();
    };
    umf_level_zero_memory_provider_params_handle_t whole = params;
    EXPECT_EQ(umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), nullptr, &provider), BAD);
    EXPECT_NE(log.count("umfLevelZeroMemoryProviderParamsCreate"), 0u);

    ASSERT_EQ(umfLevelZeroMemoryProviderParamsCreate(&params), OK);
    umfLevelZeroMemoryProviderParamsSetDevice(params, device);
    umfLevelZeroMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_DEVICE);
    refused(BAD, "there is no context");
    umfLevelZeroMemoryProviderParamsDestroy(params);

    params = whole;
    umfLevelZeroMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_HOST);
    refused(BAD, "memory of the host belongs to no device");
    umfLevelZeroMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_UNKNOWN);
    refused(BAD, "memory type 0 is none of");
    // In C++ an enum cannot hold it, so it goes by an int as a caller in C would have it.
    auto set =
        reinterpret_cast<umf_result_t (*)(umf_level_zero_memory_provider_params_handle_t, int)>(
            umfLevelZeroMemoryProviderParamsSetMemoryType);
    EXPECT_EQ(set(params, UMF_MEMORY_TYPE_SHARED + 1), OK);
    refused(BAD, "memory type 4 is none of");
    for (umf_usm_memory_type_t type : {UMF_MEMORY_TYPE_DEVICE, UMF_MEMORY_TYPE_SHARED}) {
        set_type(type);
        umfLevelZeroMemoryProviderParamsSetDevice(params, nullptr);
        refused(BAD, "there is no device");
    }
    set_type(UMF_MEMORY_TYPE_DEVICE);
    auto set_policy =
        reinterpret_cast<umf_result_t (*)(umf_level_zero_memory_provider_params_handle_t, int)>(
            umfLevelZeroMemoryProviderParamsSetFreePolicy);
    EXPECT_EQ(set_policy(params, 3), OK);
    refused(BAD, "free policy 3 is none of");
    set_policy(params, 0);

    // The array is read now, and may have changed since.
    ze_device_handle_t list[] = {device, nullptr};
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetResidentDevices(params, list, 2), OK);
    refused(BAD, "resident device 1 of 2 is NULL");
    list[1] = device;
    refused(BAD, "is listed twice, at 0 and 1");
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetResidentDevices(params, nullptr, 0), OK);
    EXPECT_EQ(create(), OK);
}

TEST_F(Ze, Names) {
    const char *name = nullptr;
    EXPECT_EQ(umfLevelZeroMemoryProviderOps()->get_name(nullptr, &name), OK);
    EXPECT_STREQ(name, "LEVEL_ZERO");
    EXPECT_EQ(umfLevelZeroMemoryProviderOps()->get_name(nullptr, nullptr), BAD);
    ASSERT_EQ(create(), OK);
    ASSERT_EQ(umfMemoryProviderGetName(provider, &name), OK);
    EXPECT_STREQ(name, "LEVEL_ZERO");
    destroy();
    EXPECT_EQ(umfLevelZeroMemoryProviderParamsSetName(params, std::string(100, 'n').c_str()), OK);
    ASSERT_EQ(create(), OK);
    ASSERT_EQ(umfMemoryProviderGetName(provider, &name), OK);
    EXPECT_EQ(name, std::string(63, 'n'));
}

// A device that is lost stays lost: its memory is not requested again.
TEST_F(Ze, FailedResidencyIsOneAllocationAndOneFree) {
    NEEDS_FAKE_ZE();
    umfLevelZeroMemoryProviderParamsSetResidentDevices(params, &device, 1);
    ASSERT_EQ(create(), OK);
    const umf_memory_pool_ops_t *pools[] = {umfProxyPoolOps(), umfDisjointPoolOps(),
                                            umfCoalescingPoolOps()};
    const fake_ze_t *control = ze().control();
    for (const umf_memory_pool_ops_t *ops : pools) {
        for (size_t size : {size_t{100}, size_t{16} << 20}) {
            umf_memory_pool_handle_t pool = nullptr;
            ASSERT_EQ(umfPoolCreate(ops, provider, nullptr, 0, &pool), OK);
            long allocs = control->calls[FAKE_zeMemAllocDevice];
            long frees = control->calls[FAKE_zeMemFree];
            fail(FAKE_zeContextMakeMemoryResident, ZE_RESULT_ERROR_DEVICE_LOST);
            EXPECT_EQ(umfPoolMalloc(pool, size), nullptr);
            EXPECT_EQ(umfPoolGetLastAllocationError(pool), NATIVE);
            EXPECT_EQ(control->calls[FAKE_zeMemAllocDevice], allocs + 1) << size;
            EXPECT_EQ(control->calls[FAKE_zeMemFree], frees + 1) << size;
            // A lack of device memory is one: the same request is repeated and served.
            fail(FAKE_zeContextMakeMemoryResident, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
            void *ptr = umfPoolMalloc(pool, size);
            EXPECT_NE(ptr, nullptr) << size;
            EXPECT_EQ(umfPoolFree(pool, ptr), OK);
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
    }
}

// --- the order of calls --------------------------------------------------------------------------

TEST_F(Ze, CallsOfACreation) {
    NEEDS_FAKE_ZE();
    std::vector<ze_device_handle_t> both(devices.begin(), devices.begin() + 2);
    umfLevelZeroMemoryProviderParamsSetResidentDevices(params, both.data(), 2);
    for (umf_usm_memory_type_t type : types) {
        set_type(type);
        watch_order();
        long before = ze().control()->calls[FAKE_zeContextMakeMemoryResident];
        ASSERT_EQ(create(), OK);
        std::vector<int> expected;
        if (type != UMF_MEMORY_TYPE_HOST) {
            expected.push_back(FAKE_zeDeviceGetProperties);
        }
        int allocates = type == UMF_MEMORY_TYPE_HOST     ? FAKE_zeMemAllocHost
                        : type == UMF_MEMORY_TYPE_DEVICE ? FAKE_zeMemAllocDevice
                                                         : FAKE_zeMemAllocShared;
        for (int call : {int{FAKE_zeDriverGet}, int{FAKE_zeDriverGetExtensionProperties},
                         int{FAKE_zeDeviceGet}, int{FAKE_zeDeviceGetCacheProperties}, allocates,
                         int{FAKE_zeContextMakeMemoryResident}, int{FAKE_zeMemGetAllocProperties},
                         int{FAKE_zeMemFree}}) {
            expected.push_back(call);
        }
        EXPECT_EQ(order(), expected) << type;
        EXPECT_EQ(ze().control()->calls[FAKE_zeContextMakeMemoryResident], before + 2);
        EXPECT_EQ(ze().control()->last.size, 1u);
        EXPECT_EQ(ze().control()->last.alignment, 0u);
        EXPECT_EQ(allocated(), 0u) << "the probe does not count";
        destroy();
    }
}

TEST_F(Ze, WithoutDriversNothingIsAskedAboutCacheLines) {
    NEEDS_FAKE_ZE();
    set_type(UMF_MEMORY_TYPE_HOST);
    ze().control()->drivers = 0;
    watch_order();
    EXPECT_EQ(create(), OK);
    EXPECT_EQ(order(), (std::vector<int>{FAKE_zeDriverGet, FAKE_zeMemAllocHost,
                                         FAKE_zeMemGetAllocProperties, FAKE_zeMemFree}));
    ze().control()->drivers = 1;
}

TEST_F(Ze, EachFailureOfACreation) {
    NEEDS_FAKE_ZE();
    const struct {
        ze_result_t driver;
        umf_result_t ours;
    } failures[] = {
        {ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY},
        {ZE_RESULT_ERROR_INVALID_ARGUMENT, BAD},
        {ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, NATIVE},
        {ZE_RESULT_ERROR_DEVICE_LOST, NATIVE},
        {ZE_RESULT_ERROR_UNKNOWN, NATIVE},
    };
    umfLevelZeroMemoryProviderParamsSetResidentDevices(params, devices.data(), 2);
    for (umf_usm_memory_type_t type : types) {
        set_type(type);
        for (const auto &failure : failures) {
            bool passed = false;
            for (long n = 1; !passed; n++) {
                fail(FAKE_ZE_ANY, failure.driver, n);
                umf_result_t result = create();
                passed = ze().control()->fail_at > 0;
                ze().control()->fail_at = 0;
                EXPECT_EQ(result, passed ? OK : failure.ours) << n;
                if (provider) {
                    destroy();
                } else if (ze().control()->allocations) {
                    // The one that failed was the free of the probe.
                    EXPECT_EQ(ze().control()->calls[FAKE_zeMemFree], 1) << n;
                    ze().reset();
                    LevelZero::SetUp();
                    umfLevelZeroMemoryProviderParamsSetContext(params, context);
                }
                EXPECT_EQ(ze().control()->allocations, 0) << n;
                ze().control()->calls[FAKE_zeMemFree] = 0;
                ASSERT_LT(n, 50);
            }
        }
    }
}

// --- memory --------------------------------------------------------------------------------------

TEST_F(Ze, EachTypeOfMemory) {
    for (umf_usm_memory_type_t type : types) {
        create_of(type);
        void *ptr = alloc(100000);
        EXPECT_EQ(allocated(), 100000u);
        ze_memory_allocation_properties_t properties = {};
        properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
        ze_device_handle_t of = nullptr;
        ZE(zeMemGetAllocProperties(context, ptr, &properties, &of));
        EXPECT_EQ(properties.type, type == UMF_MEMORY_TYPE_HOST     ? ZE_MEMORY_TYPE_HOST
                                   : type == UMF_MEMORY_TYPE_DEVICE ? ZE_MEMORY_TYPE_DEVICE
                                                                    : ZE_MEMORY_TYPE_SHARED);
        if (type != UMF_MEMORY_TYPE_DEVICE) {
            memset(ptr, 1, 100000);
        }
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 100000), OK);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 100000), BAD) << "freed already";
        EXPECT_EQ(umfMemoryProviderFree(provider, nullptr, 0), OK);
        EXPECT_EQ(umfMemoryProviderFree(provider, &properties, 0), BAD) << "not ours";
        EXPECT_EQ(allocated(), 0u);
        ptr = alloc(5);
        free(ptr); // the size is known
        EXPECT_EQ(umfMemoryProviderPurgeLazy(provider, this, 1), NONE);
        EXPECT_EQ(umfMemoryProviderPurgeForce(provider, this, 1), NONE);
        EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, this, 2, 1), NONE);
        EXPECT_EQ(umfMemoryProviderAllocationMerge(provider, devices.data(), devices.data() + 1,
                                                   2 * sizeof(device)),
                  NONE);
        destroy();
    }
}

TEST_F(Ze, WhatTheDriverIsAskedFor) {
    NEEDS_FAKE_ZE();
    fake_ze_t *control = ze().control();
    control->memories = 4;
    control->max_alloc_size = 1 << 20;
    umfLevelZeroMemoryProviderParamsSetDeviceOrdinal(params, 3);
    for (umf_usm_memory_type_t type : types) {
        create_of(type);
        bool is_host = type == UMF_MEMORY_TYPE_HOST;
        uint32_t max_size = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE;
        free(alloc(1 << 20, 128));
        EXPECT_EQ(control->last.size, size_t{1} << 20);
        EXPECT_EQ(control->last.alignment, 128u);
        EXPECT_EQ(control->last.relaxed, is_host ? max_size : 0) << "it is not above the limit";
        EXPECT_EQ(control->last.ordinal, is_host ? 0u : 3u);
        EXPECT_EQ(control->last.exports, 0u);
        EXPECT_EQ(control->last.host_flags, 0u);
        EXPECT_EQ(control->last.device_flags, 0u);
        free(alloc((1 << 20) + 1));
        EXPECT_EQ(control->last.relaxed, max_size);
        int on = 1;
        ASSERT_EQ(umfCtlSet("umf.provider.by_handle.{}.params.use_import_export_for_IPC", &on,
                            sizeof(on), provider),
                  OK);
        free(alloc((1 << 20) + 1));
        EXPECT_EQ(control->last.relaxed, max_size);
        EXPECT_EQ(control->last.exports, type == UMF_MEMORY_TYPE_DEVICE
                                             ? uint32_t{ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF}
                                             : 0u);
        destroy();
    }
    umfLevelZeroMemoryProviderParamsSetDeviceOrdinal(params, 4);
    set_type(UMF_MEMORY_TYPE_DEVICE);
    EXPECT_EQ(create(), BAD) << "there is no such memory";
}

TEST_F(Ze, FreePolicies) {
    NEEDS_FAKE_ZE();
    const struct {
        umf_level_zero_memory_provider_free_policy_t policy;
        int function;
    } policies[] = {
        {UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFAULT, FAKE_zeMemFree},
        {UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_BLOCKING_FREE, FAKE_zeMemFreeExt},
        {UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFER_FREE, FAKE_zeMemFreeExt},
    };
    for (const auto &one : policies) {
        umfLevelZeroMemoryProviderParamsSetFreePolicy(params, one.policy);
        ASSERT_EQ(create(), OK);
        watch_order();
        free(alloc(4096));
        EXPECT_EQ(order(), (std::vector<int>{FAKE_zeMemAllocDevice, one.function}));
        EXPECT_EQ(ze().control()->allocations, 0);
        destroy();
    }
}

TEST_F(Ze, BadRequests) {
    void *untouched = this, *ptr = untouched;
    for (umf_usm_memory_type_t type : types) {
        create_of(type);
        EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, 3, &ptr),
                  UMF_RESULT_ERROR_INVALID_ALIGNMENT);
        EXPECT_EQ(umfMemoryProviderAlloc(provider, 0, 0, &ptr), NATIVE);
        int32_t code = 0;
        EXPECT_EQ(native(&code),
                  "ZE_RESULT_ERROR_UNSUPPORTED_SIZE: the device cannot do this size");
        EXPECT_EQ(code, ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
        EXPECT_NE(umfMemoryProviderAlloc(provider, SIZE_MAX, 0, &ptr), OK);
        EXPECT_NE(umfMemoryProviderAlloc(provider, SIZE_MAX / 2, 0, &ptr), OK);
        EXPECT_EQ(ptr, untouched);
        destroy();
    }
}

TEST_F(Ze, NativeErrors) {
    NEEDS_FAKE_ZE();
    ASSERT_EQ(create(), OK);
    const struct {
        ze_result_t code;
        const char *text;
    } errors[] = {
        {ZE_RESULT_ERROR_DEVICE_LOST, "ZE_RESULT_ERROR_DEVICE_LOST: "},
        {ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
         "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY: the device has too little memory"},
        {ZE_RESULT_ERROR_UNKNOWN, "ZE_RESULT_ERROR_UNKNOWN: "},
        {static_cast<ze_result_t>(0x12345), "an error of Level Zero, see ze_result_t"},
    };
    for (const auto &error : errors) {
        LogFile log;
        void *ptr = this;
        int32_t code = 0;
        fail(FAKE_zeMemAllocDevice, error.code);
        EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), NATIVE);
        EXPECT_EQ(ptr, this);
        EXPECT_EQ(native(&code).rfind(error.text, 0), 0u) << native(&code);
        EXPECT_EQ(code, static_cast<int32_t>(error.code));
        EXPECT_EQ(log.count("allocating memory failed"), 1u) << log.text();
        std::thread([&] {
            native(&code);
            EXPECT_EQ(code, 0) << "it is the thread's own";
        }).join();
    }
    const char *text = nullptr;
    EXPECT_EQ(umfMemoryProviderGetLastNativeError(provider, &text, nullptr), BAD);
    umf_memory_provider_handle_t failed = nullptr;
    EXPECT_EQ(umfGetLastFailedMemoryProvider(&failed), OK);
    EXPECT_EQ(failed, provider);
}

TEST_F(Ze, WhatIsAsked) {
    NEEDS_FAKE_ZE();
    for (umf_usm_memory_type_t type : types) {
        create_of(type);
        size_t expected = type == UMF_MEMORY_TYPE_HOST ? 4096 : 64 << 10, size = 0;
        long calls = ze().control()->calls[FAKE_zeMemGetAllocProperties];
        EXPECT_EQ(umfMemoryProviderGetMinPageSize(provider, nullptr, &size), OK);
        EXPECT_EQ(size, expected);
        EXPECT_EQ(umfMemoryProviderGetRecommendedPageSize(provider, 1, &size), OK);
        EXPECT_EQ(size, expected);
        EXPECT_EQ(ze().control()->calls[FAKE_zeMemGetAllocProperties], calls) << "it is cached";
        void *ptr = alloc(1);
        size = 0;
        EXPECT_EQ(umfMemoryProviderGetMinPageSize(provider, ptr, &size), OK);
        EXPECT_EQ(size, expected);
        EXPECT_EQ(ze().control()->calls[FAKE_zeMemGetAllocProperties], calls + 1);
        free(ptr);
        EXPECT_EQ(umfMemoryProviderGetMinPageSize(provider, &size, &size), BAD);
        EXPECT_EQ(umfMemoryProviderGetCacheLineSize(provider, &size), OK);
        EXPECT_EQ(size, 64u);
        destroy();
    }
}

TEST_F(Ze, CacheLines) {
    NEEDS_FAKE_ZE();
    auto line_size = [this] {
        size_t size = 0;
        EXPECT_EQ(create(), OK);
        EXPECT_EQ(umfMemoryProviderGetCacheLineSize(provider, &size), OK);
        destroy();
        return size;
    };
    ze().control()->cache_line = 256;
    EXPECT_EQ(line_size(), 256u);
    ze().control()->cache_line = 100; // nonsense
    EXPECT_EQ(line_size(), 128u);
    ze().control()->cache_line = 0; // the driver has no such extension
    watch_order();
    EXPECT_EQ(line_size(), 128u);
    EXPECT_EQ(ze().control()->calls[FAKE_zeDeviceGetCacheProperties], 2);
    ze().control()->cache_line = 256;
    fail(FAKE_zeDeviceGetCacheProperties, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    EXPECT_EQ(line_size(), 128u);
}

// Two drivers: the device is queried by its own.
TEST_F(Ze, ADeviceOfTheSecondDriver) {
    NEEDS_FAKE_ZE();
    ze().control()->drivers = 2;
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero:driver=1,resident_devices=1", &provider),
              OK);
    void *ptr = alloc(4096);
    EXPECT_GT(ze().control()->used[FAKE_ZE_DEVICES], 0u);
    EXPECT_TRUE(resident(ptr, FAKE_ZE_DEVICES + 1)) << "its own driver's";
    free(ptr);
    destroy();
    for (const char *wrong :
         {"level_zero:device=2", "level_zero:driver=2", "level_zero:driver=1,resident_devices=2"}) {
        EXPECT_EQ(umfMemoryProviderCreateFromText(wrong, &provider), BAD) << wrong;
    }
    ze().control()->drivers = 1;
}

// An NPU beside the GPUs, first of another driver, then of the same.
TEST_F(Ze, AnNpuIsSkippedUnlessAskedFor) {
    NEEDS_FAKE_ZE();
    fake_ze_t *control = ze().control();
    control->drivers = 2;
    control->types[0] = control->types[1] = ZE_DEVICE_TYPE_VPU;
    ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero:resident_devices=1", &provider), OK);
    void *ptr = alloc(4096);
    EXPECT_GT(control->used[FAKE_ZE_DEVICES], 0u) << "the first GPU is of the second driver";
    EXPECT_TRUE(resident(ptr, FAKE_ZE_DEVICES + 1));
    free(ptr);
    destroy();

    control->types[1] = ZE_DEVICE_TYPE_GPU;
    ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero", &provider), OK);
    ptr = alloc(4096);
    EXPECT_GT(control->used[1], 0u) << "the number 0 of its driver";
    free(ptr);
    destroy();
    EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero:resident_devices=1", &provider), BAD);
    ASSERT_EQ(
        umfMemoryProviderCreateFromText("level_zero:any_device=yes,resident_devices=1", &provider),
        OK);
    ptr = alloc(4096);
    EXPECT_GT(control->used[0], 0u);
    EXPECT_TRUE(resident(ptr, 1));
    free(ptr);
    destroy();
    EXPECT_EQ(control->wrong_handles, 0);
    control->drivers = 1;
}

// --- residency -----------------------------------------------------------------------------------

TEST_F(Ze, AllocationsAreResident) {
    NEEDS_FAKE_ZE();
    std::vector<ze_device_handle_t> list(devices.begin(), devices.begin() + 2);
    umfLevelZeroMemoryProviderParamsSetResidentDevices(params, list.data(), 2);
    for (umf_usm_memory_type_t type : types) {
        create_of(type);
        list.assign(2, nullptr); // it was copied
        void *ptr = alloc(4096);
        EXPECT_TRUE(resident(ptr, 0) && resident(ptr, 1));
        free(ptr);

        // A failure leaves nothing.
        for (long n : {1, 2}) {
            void *none = this;
            long live = ze().control()->allocations;
            fail(FAKE_zeContextMakeMemoryResident, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, n);
            EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &none), NATIVE);
            EXPECT_EQ(none, this);
            EXPECT_EQ(ze().control()->allocations, live);
        }
        EXPECT_EQ(allocated(), 0u);
        destroy();
        list.assign(devices.begin(), devices.begin() + 2);
    }
}

TEST_F(Ze, ResidentDeviceChange) {
    NEEDS_FAKE_ZE();
    ASSERT_EQ(create(), OK);
    auto change = [&](int on, bool adds) {
        return umfLevelZeroMemoryProviderResidentDeviceChange(
            provider, devices[static_cast<size_t>(on)], adds);
    };
    umf_memory_pool_handle_t pool = proxy();
    umf_memory_pool_handle_t untracked = proxy(UMF_POOL_CREATE_FLAG_DISABLE_TRACKING);
    void *tracked = umfPoolMalloc(pool, 4096), *other = umfPoolMalloc(untracked, 4096);
    void *direct = alloc(4096);

    // A pool on top of the memory does not hide it.
    umf_fixed_memory_provider_params_handle_t fixed = nullptr;
    umf_memory_provider_handle_t inner = nullptr;
    umf_memory_pool_handle_t on_top = nullptr;
    ASSERT_EQ(umfFixedMemoryProviderParamsCreate(tracked, 4096, &fixed), OK);
    ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), fixed, &inner), OK);
    umfFixedMemoryProviderParamsDestroy(fixed);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), inner, nullptr, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                            &on_top),
              OK);
    void *nested = umfPoolMalloc(on_top, 4096);
    EXPECT_EQ(nested, tracked);

    EXPECT_EQ(change(1, false), BAD) << "it is not there";
    EXPECT_EQ(change(1, true), OK);
    EXPECT_EQ(change(1, true), BAD) << "it is there";
    EXPECT_TRUE(resident(tracked, 1));
    EXPECT_FALSE(resident(tracked, 0));
    EXPECT_FALSE(resident(other, 1)) << "not tracked";
    EXPECT_FALSE(resident(direct, 1)) << "not of a pool";
    void *later = alloc(4096);
    EXPECT_TRUE(resident(later, 1));

    EXPECT_EQ(change(0, true), OK);
    EXPECT_TRUE(resident(tracked, 0) && resident(tracked, 1));
    EXPECT_EQ(change(1, false), OK);
    EXPECT_TRUE(resident(tracked, 0));
    EXPECT_FALSE(resident(tracked, 1));
    EXPECT_TRUE(resident(later, 1)) << "not tracked";
    void *last = umfPoolMalloc(pool, 4096);
    EXPECT_TRUE(resident(last, 0));
    EXPECT_FALSE(resident(last, 1));

    EXPECT_EQ(umfFree(nested), OK);
    EXPECT_EQ(umfPoolDestroy(on_top), OK);
    EXPECT_EQ(umfPoolFree(untracked, other), OK);
    EXPECT_EQ(umfFree(tracked), OK);
    EXPECT_EQ(umfFree(last), OK);
    free(direct);
    free(later);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfPoolDestroy(untracked), OK);
}

TEST_F(Ze, ResidentDeviceChangeRefuses) {
    EXPECT_EQ(umfLevelZeroMemoryProviderResidentDeviceChange(nullptr, device, true), BAD);
    umf_os_memory_provider_params_handle_t os = nullptr;
    ASSERT_EQ(umfOsMemoryProviderParamsCreate(&os), OK);
    umf_memory_provider_handle_t another = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(umfOsMemoryProviderOps(), os, &another), OK);
    umfOsMemoryProviderParamsDestroy(os);
    EXPECT_EQ(umfLevelZeroMemoryProviderResidentDeviceChange(another, device, true), BAD);
    umfMemoryProviderDestroy(another);
    ASSERT_EQ(create(), OK);
    EXPECT_EQ(umfLevelZeroMemoryProviderResidentDeviceChange(provider, nullptr, true), BAD);
}

// Whatever the driver says, the set has changed, and the others follow it.
TEST_F(Ze, ResidentDeviceChangeGoesOnAfterAFailure) {
    NEEDS_FAKE_ZE();
    for (ze_result_t error : {ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, ZE_RESULT_ERROR_DEVICE_LOST}) {
        ASSERT_EQ(create(), OK);
        umf_memory_pool_handle_t pool = proxy();
        std::vector<void *> blocks;
        for (int i = 0; i < 5; i++) {
            blocks.push_back(umfPoolMalloc(pool, 4096));
        }
        auto residents = [&] {
            return std::count_if(blocks.begin(), blocks.end(),
                                 [](void *block) { return resident(block, 1); });
        };
        fail(FAKE_zeContextMakeMemoryResident, error, 2);
        EXPECT_EQ(umfLevelZeroMemoryProviderResidentDeviceChange(provider, devices[1], true),
                  NATIVE);
        int32_t code = 0;
        native(&code);
        EXPECT_EQ(code, error);
        EXPECT_EQ(residents(), 4);
        EXPECT_EQ(umfLevelZeroMemoryProviderResidentDeviceChange(provider, devices[1], true), BAD);
        fail(FAKE_zeContextEvictMemory, error, 1);
        EXPECT_EQ(umfLevelZeroMemoryProviderResidentDeviceChange(provider, devices[1], false),
                  NATIVE);
        EXPECT_LE(residents(), 1);
        for (void *block : blocks) {
            EXPECT_EQ(umfFree(block), OK);
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        destroy();
    }
}

TEST_F(Ze, ResidentDeviceChangesWhileOthersAllocate) {
    NEEDS_FAKE_ZE();
    ASSERT_EQ(create(), OK);
    umf_memory_pool_handle_t pool = proxy();
    std::vector<void *> kept;
    for (int i = 0; i < 50; i++) {
        kept.push_back(umfPoolMalloc(pool, 4096));
    }
    std::atomic<bool> stop{false};
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++) {
        threads.emplace_back([&] {
            // A free often meets a change that is just at the block.
            std::vector<void *> blocks(100, nullptr);
            for (size_t i = 0; !stop; i++) {
                void *&block = blocks[i * 37 % blocks.size()];
                failures += block && umfFree(block) != OK;
                block = umfPoolMalloc(pool, 4096);
                failures += block == nullptr;
            }
            for (void *block : blocks) {
                failures += block && umfFree(block) != OK;
            }
        });
    }
    // Each thread turns a device of its own on and off.
    run_threads<size_t>(2, [&](size_t on) {
        for (int i = 0; i < 41; i++) {
            failures += umfLevelZeroMemoryProviderResidentDeviceChange(provider, devices[on],
                                                                       i % 2 == 0) != OK;
        }
    });
    stop = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(ze().control()->wrong_handles, 0);
    for (void *ptr : kept) {
        EXPECT_TRUE(resident(ptr, 0) && resident(ptr, 1));
        EXPECT_EQ(umfFree(ptr), OK);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(allocated(), 0u);
}

// --- properties, settings ------------------------------------------------------------------------

TEST_F(Ze, Properties) {
    for (umf_usm_memory_type_t type : types) {
        create_of(type);
        umf_memory_pool_handle_t pool = proxy();
        void *ptr = umfPoolMalloc(pool, 4096);
        ASSERT_NE(ptr, nullptr);
        EXPECT_EQ(property<umf_usm_memory_type_t>(ptr, UMF_MEMORY_PROPERTY_POINTER_TYPE), type);
        EXPECT_EQ(property<ze_context_handle_t>(ptr, UMF_MEMORY_PROPERTY_CONTEXT), context);
        EXPECT_EQ(property<ze_device_handle_t>(ptr, UMF_MEMORY_PROPERTY_DEVICE),
                  type == UMF_MEMORY_TYPE_HOST ? nullptr : device);
        umf_memory_properties_handle_t properties = properties_of(ptr);
        size_t size = 0;
        auto unknown = static_cast<umf_memory_property_id_t>(23);
        EXPECT_EQ(umfGetMemoryPropertySize(properties, unknown, &size), BAD);
        const umf_memory_provider_ops_t *ops = umfLevelZeroMemoryProviderOps();
        EXPECT_EQ(ops->ext_get_allocation_properties_size(nullptr, UMF_MEMORY_PROPERTY_POINTER_TYPE,
                                                          &size),
                  OK);
        EXPECT_EQ(size, sizeof(umf_usm_memory_type_t));
        EXPECT_EQ(umfGetMemoryProperty(properties, unknown, &size, sizeof(size)), BAD);
        EXPECT_EQ(umfFree(ptr), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        destroy();
    }
}

TEST_F(Ze, Settings) {
    const char *path = "umf.provider.by_handle.{}.params.use_import_export_for_IPC";
    ASSERT_EQ(create(), OK);
    int value = 7;
    int64_t wide = 1;
    EXPECT_EQ(umfCtlGet(path, &value, sizeof(value), provider), OK);
    EXPECT_EQ(value, 0);
    value = 1;
    EXPECT_EQ(umfCtlSet(path, &value, sizeof(value), provider), OK);
    EXPECT_EQ(umfCtlSet(path, &wide, sizeof(wide), provider), BAD);
    EXPECT_EQ(umfCtlSet(path, &value, 1, provider), BAD);
    EXPECT_EQ(umfCtlGet(path, &value, 1, provider), BAD);
    EXPECT_EQ(umfCtlExec(path, nullptr, 0, provider), BAD);
    value = 0;
    EXPECT_EQ(umfCtlGet(path, &value, sizeof(value), provider), OK);
    EXPECT_EQ(value, 1);
    EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.params.other", &value, sizeof(value), provider),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
    destroy();

    // By a default for all that have the name.
    umfLevelZeroMemoryProviderParamsSetName(params, "exporting");
    ASSERT_EQ(umfCtlSet("umf.provider.default.exporting.params.use_import_export_for_IPC", &value,
                        sizeof(value)),
              OK);
    ASSERT_EQ(create(), OK);
    value = 0;
    EXPECT_EQ(umfCtlGet(path, &value, sizeof(value), provider), OK);
    EXPECT_EQ(value, 1);
}

// --- text ----------------------------------------------------------------------------------------

TEST_F(Ze, FromText) {
    NEEDS_FAKE_ZE();
    ASSERT_EQ(
        umfMemoryProviderCreateFromText(
            "level_zero:device=1,memory_type=shared,resident_devices=0+1,free_policy=blocking,"
            "device_ordinal=0,name=both",
            &provider),
        OK)
        << umfTextError();
    const char *name = nullptr;
    ASSERT_EQ(umfMemoryProviderGetName(provider, &name), OK);
    EXPECT_STREQ(name, "both");
    void *ptr = alloc(4096);
    memset(ptr, 1, 4096);
    EXPECT_GT(ze().control()->used[1], 0u);
    EXPECT_TRUE(resident(ptr, 0) && resident(ptr, 1));
    watch_order();
    free(ptr);
    EXPECT_EQ(order(), std::vector<int>{FAKE_zeMemFreeExt});
    EXPECT_EQ(ze().control()->contexts, 2) << "it has one of its own";
    destroy();
    EXPECT_EQ(ze().control()->contexts, 1);

    ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero:memory_type=host", &provider), OK);
    free(alloc(1));
    destroy();
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("disjoint over level_zero", &pool), OK) << umfTextError();
    EXPECT_EQ(umfPoolDestroy(pool), OK);

    for (const char *wrong : {"level_zero:memory_type=fast", "level_zero:device=99",
                              "level_zero:device=-1", "level_zero:resident_devices=0+0",
                              "level_zero:resident_devices=", "level_zero:resident_devices=a",
                              "level_zero:resident_devices=0+", "level_zero:resident_devices=99",
                              "level_zero:free_policy=never", "level_zero:device_ordinal=5"}) {
        EXPECT_EQ(umfMemoryProviderCreateFromText(wrong, &provider), BAD) << wrong;
        EXPECT_EQ(ze().control()->contexts, 1) << wrong;
    }
}

TEST_F(Ze, FromTextWithoutADriver) {
    NEEDS_FAKE_ZE();
    LogFile log;
    for (int which : {0, 1}) {
        (which ? ze().control()->drivers : ze().control()->devices) = 0;
        EXPECT_EQ(umfMemoryProviderCreateFromText("level_zero", &provider), MISSING);
        EXPECT_EQ(log.count("finds no device: install the driver"), 1u + which) << log.text();
        bool seen = false;
        EXPECT_EQ(umfProviderKinds(
                      [](const char *name, int available, const char *why, void *found) {
                          if (strcmp(name, "level_zero") == 0) {
                              EXPECT_EQ(available, 0);
                              EXPECT_NE(strstr(why, "finds no device"), nullptr) << why;
                              *static_cast<bool *>(found) = true;
                          }
                          return 0;
                      },
                      &seen),
                  OK);
        EXPECT_TRUE(seen);
        ze().control()->drivers = 1;
        ze().control()->devices = 2;
    }
}

TEST_F(Ze, EachFailureOfACreationFromText) {
    NEEDS_FAKE_ZE();
    bool passed = false;
    for (long n = 1; !passed; n++) {
        fail(FAKE_ZE_ANY, ZE_RESULT_ERROR_DEVICE_LOST, n);
        umf_result_t result =
            umfMemoryProviderCreateFromText("level_zero:resident_devices=1", &provider);
        passed = ze().control()->fail_at > 0;
        ze().control()->fail_at = 0;
        if (passed) {
            EXPECT_EQ(result, OK);
            destroy();
        }
        EXPECT_EQ(passed, result == OK) << n;
        if (ze().control()->allocations) { // the free of the probe has failed
            ze().reset();
            LevelZero::SetUp();
        }
        EXPECT_EQ(ze().control()->contexts, 1) << n;
        ASSERT_LT(n, 60);
    }
}

// --- pools ---------------------------------------------------------------------------------------

// Metadata stays out of memory that the CPU cannot touch, and the device copies.
TEST_F(Ze, PoolsOnMemoryOfADevice) {
    NEEDS_FAKE_ZE();
    ze().control()->touchable = 0;
    ASSERT_EQ(create(), OK);
    const umf_memory_pool_ops_t *kinds[] = {umfDisjointPoolOps(), umfCoalescingPoolOps()};
    for (const umf_memory_pool_ops_t *kind : kinds) {
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreate(kind, provider, nullptr, 0, &pool), OK);
        std::vector<void *> blocks;
        for (size_t i = 0; i < 500; i++) {
            blocks.push_back(umfPoolMalloc(pool, size_t{64} << i % 12));
            ASSERT_NE(blocks.back(), nullptr);
        }
        for (void *block : blocks) {
            EXPECT_EQ(umfFree(block), OK);
        }
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfCoalescingPoolOps(), provider, nullptr, 0, &pool), OK);
    void *zeroed = umfPoolCalloc(pool, 100, 100);
    ASSERT_NE(zeroed, nullptr);
    EXPECT_EQ(read(zeroed, 10000), std::vector<unsigned char>(10000, 0));
    void *grown = umfPoolRealloc(pool, zeroed, 5 << 20);
    ASSERT_NE(grown, nullptr);
    EXPECT_EQ(read(grown, 10000), std::vector<unsigned char>(10000, 0));
    EXPECT_GE(ze().control()->calls[FAKE_zeCommandListAppendMemoryFill], 1);
    EXPECT_GE(ze().control()->calls[FAKE_zeCommandListAppendMemoryCopy], 1);
    EXPECT_EQ(umfFree(grown), OK);

    // A failure of the device is reported and leaves nothing.
    fail(FAKE_zeCommandListAppendMemoryFill, ZE_RESULT_ERROR_DEVICE_LOST);
    EXPECT_EQ(umfPoolCalloc(pool, 100, 100), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), NATIVE);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(allocated(), 0u);
    EXPECT_EQ(ze().control()->lists, 1); // the provider keeps it for the next copy
    destroy();
    EXPECT_EQ(ze().control()->lists, 0);
}

// --- failures -----------------------------------------------------------------------------------

TEST_F(Ze, OfAnotherDriver) {
    NEEDS_FAKE_ZE();
    ze().control()->drivers = 2;
    ze_driver_handle_t drivers[2] = {};
    uint32_t count = 2;
    ZE(zeDriverGet(&count, drivers));
    ze_device_handle_t foreign = nullptr;
    count = 1;
    ZE(zeDeviceGet(drivers[1], &count, &foreign));
    LogFile log;
    umfLevelZeroMemoryProviderParamsSetDevice(params, foreign);
    EXPECT_EQ(create(), BAD);
    EXPECT_EQ(log.count("ZE_RESULT_ERROR_INVALID_ARGUMENT"), 1u) << log.text();

    // Found when it is first needed.
    set_type(UMF_MEMORY_TYPE_DEVICE);
    umfLevelZeroMemoryProviderParamsSetResidentDevices(params, &foreign, 1);
    EXPECT_EQ(create(), BAD);
    umfLevelZeroMemoryProviderParamsSetResidentDevices(params, nullptr, 0);
    ASSERT_EQ(create(), OK);
    umf_memory_pool_handle_t pool = proxy();
    void *ptr = umfPoolMalloc(pool, 4096);
    EXPECT_EQ(umfLevelZeroMemoryProviderResidentDeviceChange(provider, foreign, true), NATIVE);
    EXPECT_EQ(umfPoolMalloc(pool, 4096), nullptr);
    EXPECT_EQ(umfLevelZeroMemoryProviderResidentDeviceChange(provider, foreign, false), NATIVE);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(ze().control()->allocations, 0);
}

TEST_F(Ze, WhenTheContextIsGone) {
    NEEDS_FAKE_ZE();
    ze_context_desc_t wanted = {};
    wanted.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
    ze_context_handle_t doomed = nullptr;
    ZE(zeContextCreate(driver, &wanted, &doomed));
    umfLevelZeroMemoryProviderParamsSetContext(params, doomed);
    ASSERT_EQ(create(), OK);
    ZE(zeContextDestroy(doomed));
    void *ptr = this;
    EXPECT_NE(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
    EXPECT_EQ(ptr, this);
    destroy();
    EXPECT_EQ(create(), BAD) << "nor is another one made in it";
}

// The driver gives back what it can, and says of everything else that the device is lost.
TEST_F(Ze, WhenTheDeviceIsLost) {
    NEEDS_FAKE_ZE();
    ASSERT_EQ(create(), OK);
    umf_memory_pool_handle_t pool = proxy();
    void *ptr = umfPoolMalloc(pool, 4096), *other = alloc(4096);
    LogFile log;
    ze().control()->lost = ZE_RESULT_ERROR_DEVICE_LOST;
    EXPECT_EQ(umfPoolMalloc(pool, 4096), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), NATIVE);
    EXPECT_EQ(umfLevelZeroMemoryProviderResidentDeviceChange(provider, devices[1], true), NATIVE);
    EXPECT_EQ(umfFree(ptr), NATIVE);
    EXPECT_EQ(umfMemoryProviderFree(provider, other, 4096), NATIVE);
    int32_t code = 0;
    EXPECT_EQ(native(&code).rfind("ZE_RESULT_ERROR_DEVICE_LOST: the device hung", 0), 0u);
    EXPECT_EQ(code, ZE_RESULT_ERROR_DEVICE_LOST);
    EXPECT_NE(log.count("ZE_RESULT_ERROR_DEVICE_LOST"), 0u);
    EXPECT_EQ(create(), NATIVE);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(ze().control()->allocations, 0);
}

// The end of a process, when the loader has ended before: no log, and no error for what is
// given back.
TEST_F(Ze, AfterTheDriverHasShutDown) {
    NEEDS_FAKE_ZE();
    ASSERT_EQ(umfMemoryProviderCreateFromText("level_zero", &provider), OK);
    umf_memory_pool_handle_t pool = proxy();
    void *ptr = umfPoolMalloc(pool, 4096), *more = alloc(4096);
    LogFile log(1);
    ze().control()->lost = ZE_RESULT_ERROR_UNINITIALIZED;
    EXPECT_EQ(umfPoolMalloc(pool, 4096), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), NATIVE);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, more, 4096), OK);
    EXPECT_EQ(allocated(), 0u);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    destroy();
    EXPECT_EQ(log.count("ERROR"), 0u) << log.text();
    ze().control()->lost = ZE_RESULT_SUCCESS;
}

// At each call: nothing is left, and the log says what failed.
TEST_F(Ze, LostInTheMiddle) {
    NEEDS_FAKE_ZE();
    bool passed = false;
    umfLevelZeroMemoryProviderParamsSetResidentDevices(params, devices.data(), 1);
    for (long n = 1; !passed; n++) {
        ASSERT_EQ(create(), OK);
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreate(umfCoalescingPoolOps(), provider, nullptr, 0, &pool), OK);
        fail(FAKE_ZE_ANY, ZE_RESULT_ERROR_DEVICE_LOST, n);
        ze().control()->fail_stays = 1;
        {
            LogFile log;
            void *ptr = umfPoolCalloc(pool, 1, 10000);
            umf_ipc_handle_t handle = nullptr;
            size_t size = 0;
            if (ptr) {
                umfLevelZeroMemoryProviderResidentDeviceChange(provider, devices[1], true);
                if (umfGetIPCHandle(ptr, &handle, &size) == OK) {
                    umf_ipc_handler_handle_t handler = nullptr;
                    void *opened = nullptr;
                    if (umfPoolGetIPCHandler(pool, &handler) == OK &&
                        umfOpenIPCHandle(handler, handle, &opened) == OK) {
                        umfCloseIPCHandle(opened);
                    }
                    EXPECT_EQ(umfPutIPCHandle(handle), OK);
                }
                umfFree(ptr);
            }
            umfPoolDestroy(pool);
            passed = ze().control()->fail_at > 0;
            EXPECT_TRUE(passed || log.count("ZE_RESULT_ERROR_DEVICE_LOST") > 0) << n << log.text();
        }
        ze().control()->fail_at = 0;
        ze().control()->fail_stays = 0;
        destroy();
        // A call that fails before it does anything keeps its memory; only those can.
        EXPECT_LE(ze().control()->allocations + ze().control()->imports + ze().control()->lists, 1)
            << n;
        ze().reset();
        LevelZero::SetUp();
        ze().control()->touchable = 1;
        umfLevelZeroMemoryProviderParamsSetContext(params, context);
        ASSERT_LT(n, 100);
    }
}
