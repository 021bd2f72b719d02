// Level Zero loaders that are not what they should be, each in a process of its own: the answer of
// the first look is remembered.
//
// The program runs itself again with UMF_ZE_LOADER_LIB_NAME set; what such a child does is a
// function below. A child prints its log.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/providers/provider_level_zero.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t MISSING = UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;

// --- children ------------------------------------------------------------------------------------

#define MUST(condition)                                                                            \
    if (!(condition)) {                                                                            \
        printf("line %d: %s\n", __LINE__, #condition);                                             \
        return 1;                                                                                  \
    }

// No loader looks behind these handles.
int somewhere[2];
auto a_context = reinterpret_cast<ze_context_handle_t>(&somewhere[0]);
auto a_device = reinterpret_cast<ze_device_handle_t>(&somewhere[1]);

umf_result_t create(umf_usm_memory_type_t type, umf_level_zero_memory_provider_free_policy_t policy,
                    umf_memory_provider_handle_t *provider) {
    umf_level_zero_memory_provider_params_handle_t params = nullptr;
    umfLevelZeroMemoryProviderParamsCreate(&params);
    umfLevelZeroMemoryProviderParamsSetContext(params, a_context);
    umfLevelZeroMemoryProviderParamsSetDevice(params,
                                              type == UMF_MEMORY_TYPE_HOST ? nullptr : a_device);
    umfLevelZeroMemoryProviderParamsSetMemoryType(params, type);
    umfLevelZeroMemoryProviderParamsSetFreePolicy(params, policy);
    umf_result_t result =
        umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), params, provider);
    umfLevelZeroMemoryProviderParamsDestroy(params);
    return result;
}

constexpr auto DEFAULT = UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFAULT;
constexpr auto DEFER = UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFER_FREE;

// Parameters need no loader; errors in them are reported first.
int is_missing() {
    umf_level_zero_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    MUST(umfLevelZeroMemoryProviderParamsCreate(&params) == OK);
    MUST(umfLevelZeroMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_HOST) == OK);
    MUST(umfLevelZeroMemoryProviderParamsSetResidentDevices(params, &a_device, 1) == OK);
    MUST(umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), params, &provider) == BAD);
    MUST(umfLevelZeroMemoryProviderParamsSetContext(params, a_context) == OK);
    MUST(umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), params, &provider) == MISSING);
    MUST(umfLevelZeroMemoryProviderParamsDestroy(params) == OK);
    MUST(create(UMF_MEMORY_TYPE_DEVICE, DEFAULT, &provider) == MISSING);
    MUST(umfMemoryProviderCreateFromText("level_zero", &provider) == MISSING);
    MUST(provider == nullptr);
    const char *text = nullptr;
    int32_t code = -1;
    MUST(umfLevelZeroMemoryProviderOps()->get_last_native_error(nullptr, &text, &code) == OK);
    MUST(code == 0);
    return 0;
}

int allocates(umf_usm_memory_type_t type) {
    umf_memory_provider_handle_t provider = nullptr;
    void *ptr = nullptr;
    size_t size = 0;
    MUST(create(type, DEFAULT, &provider) == OK);
    MUST(umfMemoryProviderAlloc(provider, 10000, 0, &ptr) == OK);
    memset(ptr, 1, 10000);
    MUST(umfMemoryProviderGetMinPageSize(provider, ptr, &size) == OK && size == 4096);
    MUST(umfMemoryProviderGetCacheLineSize(provider, &size) == OK && size == 128);
    MUST(umfLevelZeroMemoryProviderResidentDeviceChange(provider, a_device, true) == OK);
    char data[256];
    MUST(umfMemoryProviderGetIPCHandleSize(provider, &size) == OK && size <= sizeof(data));
    MUST(umfMemoryProviderGetIPCHandle(provider, ptr, 10000, data) ==
         UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    MUST(umfMemoryProviderFree(provider, ptr, 10000) == OK);
    MUST(umfMemoryProviderDestroy(provider) == OK);
    return 0;
}

// With the functions that are required and no other.
int is_minimal() {
    for (umf_usm_memory_type_t type :
         {UMF_MEMORY_TYPE_HOST, UMF_MEMORY_TYPE_DEVICE, UMF_MEMORY_TYPE_SHARED}) {
        MUST(allocates(type) == 0);
    }
    umf_memory_provider_handle_t provider = nullptr;
    MUST(create(UMF_MEMORY_TYPE_HOST, DEFER, &provider) == MISSING);
    MUST(umfMemoryProviderCreateFromText("level_zero", &provider) == MISSING);

    // Nothing can zero memory of a device.
    umf_memory_pool_handle_t pool = nullptr;
    MUST(create(UMF_MEMORY_TYPE_DEVICE, DEFAULT, &provider) == OK);
    MUST(umfPoolCreate(umfCoalescingPoolOps(), provider, nullptr, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                       &pool) == OK);
    void *ptr = umfPoolMalloc(pool, 100);
    MUST(ptr != nullptr && umfFree(ptr) == OK);
    MUST(umfPoolCalloc(pool, 1, 100) == nullptr);
    MUST(umfPoolGetLastAllocationError(pool) == UMF_RESULT_ERROR_NOT_SUPPORTED);
    MUST(umfPoolDestroy(pool) == OK);
    return 0;
}

// That of this machine, with its drivers or without one.
int is_the_systems() {
    umf_memory_provider_handle_t provider = nullptr;
    umf_result_t result = umfMemoryProviderCreateFromText("level_zero", &provider);
    MUST(result == OK || result == MISSING);
    puts(result == OK ? "works" : "does not");
    return umfMemoryProviderDestroy(provider);
}

const struct {
    const char *name;
    int (*run)();
} children[] = {{"missing", is_missing}, {"minimal", is_minimal}, {"systems", is_the_systems}};

// --- parents -------------------------------------------------------------------------------------

struct Ended {
    int status;
    std::string text;
};

Ended run(const char *child, const char *loader) {
    std::string command = std::string("UMF_LOG='level:debug;output:stdout' ") +
                          (loader ? "UMF_ZE_LOADER_LIB_NAME='" + std::string(loader) + "' "
                                  : std::string("env -u UMF_ZE_LOADER_LIB_NAME ")) +
                          "/proc/" + std::to_string(getpid()) + "/exe child " + child;
    Ended ended{-1, ""};
    FILE *pipe = popen(command.c_str(), "r");
    char part[512];
    while (pipe && fgets(part, sizeof(part), pipe)) {
        ended.text += part;
    }
    ended.status = pipe ? pclose(pipe) : -1;
    return ended;
}

bool has(const Ended &ended, const std::string &text) {
    return ended.text.find(text) != std::string::npos;
}

} // namespace

TEST(LevelZeroLoader, IsNotThere) {
    Ended ended = run("missing", "libnot_there.so.1");
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_TRUE(has(ended, "no Level Zero loader: libnot_there.so.1")) << ended.text;
    EXPECT_TRUE(has(ended, "install it (libze1)")) << ended.text;
    EXPECT_TRUE(has(ended, "in UMF_ZE_LOADER_LIB_NAME")) << ended.text;
}

TEST(LevelZeroLoader, HasANameTooLongForAnyMessage) {
    Ended ended = run("missing", std::string(5000, 'x').c_str());
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_TRUE(has(ended, "no Level Zero loader: ")) << ended.text;
}

TEST(LevelZeroLoader, LacksARequiredFunction) {
    for (const char *function : {
#define REQUIRED(name) #name,
#include "fakes/level_zero/required.def"
#undef REQUIRED
         }) {
        std::string name = std::string("ze_loader_without_") + function + ".so";
        Ended ended = run("missing", (std::string(UMF_TEST_ZE_LOADER_DIR "/") + name).c_str());
        EXPECT_EQ(ended.status, 0) << function << ended.text;
        EXPECT_TRUE(has(ended, name + " has no function " + function +
                                   ": install a newer Level Zero loader"))
            << ended.text;
    }
}

TEST(LevelZeroLoader, HasTheRequiredFunctionsOnly) {
    Ended ended = run("minimal", UMF_TEST_ZE_LOADER_DIR "/ze_loader.so");
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_TRUE(has(ended, "has no function zeMemFreeExt")) << ended.text;
    EXPECT_TRUE(has(ended, "cannot list devices (zeInit, zeDriverGet, zeDeviceGet)")) << ended.text;
    EXPECT_TRUE(has(ended, "no immediate command lists")) << ended.text;
}

// An empty name is none, and then it is the loader of the system.
TEST(LevelZeroLoader, HasNoName) {
    for (const char *name : {"", static_cast<const char *>(nullptr)}) {
        Ended ended = run("systems", name);
        EXPECT_EQ(ended.status, 0) << ended.text;
        EXPECT_TRUE(has(ended, "works") || has(ended, "finds no device: install the driver") ||
                    has(ended, "no Level Zero loader: libze_loader.so.1"))
            << ended.text;
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "child") == 0) {
        for (const auto &child : children) {
            if (strcmp(child.name, argv[2]) == 0) {
                return child.run();
            }
        }
        return 2;
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
