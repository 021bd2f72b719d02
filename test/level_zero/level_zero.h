/*
 * Level Zero for the tests of this folder: the real loader, which loads the software driver of
 * test/fakes/level_zero, or the drivers of the machine where UMF_TEST_LEVEL_ZERO=real. Tests of
 * failures on demand need the software one and skip otherwise.
 */
#ifndef UMF_TEST_LEVEL_ZERO_LEVEL_ZERO_H
#define UMF_TEST_LEVEL_ZERO_LEVEL_ZERO_H

#include <string>
#include <vector>

#include <dlfcn.h>

#include <level_zero/ze_api.h>

#include <gtest/gtest.h>

#include "fakes/level_zero/fake_level_zero.h"
#include "fakes/library.h"

struct LevelZeroLoader {
#define FAKE_ZE(function, table, member) decltype(&::function) function;
#include "fakes/level_zero/functions.def"
#undef FAKE_ZE
    bool is_real = false;
    bool is_validated = false; // the loader looks at all arguments
    fake_ze_t *(*control)() = nullptr;
    void (*reset)() = nullptr;
    long (*alive)() = nullptr;
    int (*is_resident)(const void *ptr, int device) = nullptr;
};

// "", or the missing file that the first call of ze() would load.
inline std::string ze_is_missing() {
    std::vector<const char *> paths = {"libze_loader.so.1"};
    if (!wants_real("UMF_TEST_LEVEL_ZERO")) {
        paths.push_back(UMF_TEST_FAKE_LEVEL_ZERO);
    }
    for (const char *path : paths) {
        void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        if (!library) {
            return std::string("there is no Level Zero here: ") + dlerror();
        }
        dlclose(library);
    }
    return "";
}

// Loads and starts it at the first call; the library under test then finds it among the loaded
// ones.
inline LevelZeroLoader &ze() {
    static LevelZeroLoader made = [] {
        LevelZeroLoader z;
        const char *validates = getenv("ZE_ENABLE_PARAMETER_VALIDATION");
        z.is_real = wants_real("UMF_TEST_LEVEL_ZERO");
        z.is_validated = validates && strcmp(validates, "1") == 0;
        if (!z.is_real) {
            setenv("ZE_ENABLE_ALT_DRIVERS", UMF_TEST_FAKE_LEVEL_ZERO, 1);
            void *fake = must_open(UMF_TEST_FAKE_LEVEL_ZERO, 0);
            must_find(fake, "fake_ze", &z.control);
            must_find(fake, "fake_ze_reset", &z.reset);
            must_find(fake, "fake_ze_alive", &z.alive);
            must_find(fake, "fake_ze_is_resident", &z.is_resident);
        }
        void *loader = must_open("libze_loader.so.1", RTLD_GLOBAL);
#define FAKE_ZE(function, table, member) must_find(loader, #function, &z.function);
#include "fakes/level_zero/functions.def"
#undef FAKE_ZE
        if (z.zeInit(0) != ZE_RESULT_SUCCESS) {
            fprintf(stderr, "Level Zero does not start\n");
            exit(1);
        }
        return z;
    }();
    return made;
}

#define NEEDS_FAKE_ZE()                                                                            \
    if (ze().is_real) {                                                                            \
        GTEST_SKIP() << "failures on demand need the software driver";                             \
    }

#define ZE(call) ASSERT_EQ(ze().call, ZE_RESULT_SUCCESS) << #call

// A context of the first driver, and its devices; nothing may be alive at the end.
class LevelZero : public ::testing::Test {
  protected:
    ze_driver_handle_t driver = nullptr;
    std::vector<ze_device_handle_t> devices;
    ze_device_handle_t device = nullptr; // the first one
    ze_context_handle_t context = nullptr;

    void SetUp() override {
        if (!ze().is_real) {
            ze().reset();
        }
        uint32_t count = 1;
        ZE(zeDriverGet(&count, &driver));
        count = 0;
        ZE(zeDeviceGet(driver, &count, nullptr));
        devices.resize(count);
        ZE(zeDeviceGet(driver, &count, devices.data()));
        ASSERT_GT(count, 0u);
        device = devices[0];
        ze_context_desc_t wanted = {};
        wanted.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
        ZE(zeContextCreate(driver, &wanted, &context));
    }

    void TearDown() override {
        if (!ze().is_real) {
            ze().control()->fail_at = 0;
            ze().control()->lost = ZE_RESULT_SUCCESS;
        }
        if (context) {
            EXPECT_EQ(ze().zeContextDestroy(context), ZE_RESULT_SUCCESS);
        }
        if (!ze().is_real) {
            EXPECT_EQ(ze().alive(), 0);
            ze().reset();
        }
    }

    // The n-th next call of a function (FAKE_ZE_ANY: of any) gives `result`.
    static void fail(int function, ze_result_t result, long n = 1) {
        fail_call(ze().control(), function, result, n);
    }
};

#endif
