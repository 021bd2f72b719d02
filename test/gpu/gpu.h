/*
 * The CUDA driver for the tests of this folder: the software driver of test/fakes/cuda, or the real
 * one where UMF_TEST_GPU=real. Tests of failures on demand need the software one and skip
 * otherwise.
 */
#ifndef UMF_TEST_GPU_GPU_H
#define UMF_TEST_GPU_GPU_H

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include <gtest/gtest.h>

#include "fakes/cuda/fake_cuda.h"
#include "fakes/cuda/path.h"

struct Driver {
#define UMF_CUDA(function, version, symbol, optional) PFN_##function##_v##version function;
#include "../../src/providers/cuda/driver.def"
#include "../fakes/cuda/extra.def"
#undef UMF_CUDA
    bool is_real = false;
    fake_cuda_t *(*control)() = nullptr;
    void (*reset)() = nullptr;
};

// Loads it at the first call; the library under test then finds it among the loaded ones.
inline Driver &driver() {
    static Driver made = [] {
        Driver d;
        const char *wish = getenv("UMF_TEST_GPU");
        d.is_real = wish && strcmp(wish, "real") == 0;
        const char *path = d.is_real ? "libcuda.so.1" : fake_cuda_path();
        void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (!library) {
            fprintf(stderr, "%s: %s\n", path, dlerror());
            exit(1);
        }
        auto load = [library](const char *symbol, auto *function) {
            void *address = dlsym(library, symbol);
            if (!address) {
                fprintf(stderr, "the driver has no %s\n", symbol);
                exit(1);
            }
            memcpy(static_cast<void *>(function), &address, sizeof(address));
        };
#define UMF_CUDA(function, version, symbol, optional) load(symbol, &d.function);
#include "../../src/providers/cuda/driver.def"
#include "../fakes/cuda/extra.def"
#undef UMF_CUDA
        if (!d.is_real) {
            load("fake_cuda", &d.control);
            load("fake_cuda_reset", &d.reset);
        }
        return d;
    }();
    return made;
}

#define NEEDS_FAKE()                                                                               \
    if (driver().is_real) {                                                                        \
        GTEST_SKIP() << "failures on demand need the software driver";                             \
    }

#define CU(call) ASSERT_EQ(driver().call, CUDA_SUCCESS) << #call

// A started driver, with a context of device 0 current in the calling thread.
class Gpu : public ::testing::Test {
  protected:
    CUcontext context = nullptr;

    void SetUp() override {
        if (!driver().is_real) {
            driver().reset();
        }
        CU(cuInit(0));
        CU(cuCtxCreate(&context, 0, 0));
        ASSERT_NE(context, nullptr);
    }

    void TearDown() override {
        if (context) {
            driver().cuCtxDestroy(context);
        }
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->unordered_unmaps, 0);
            driver().reset();
        }
    }

    static CUcontext current() {
        CUcontext now = nullptr;
        driver().cuCtxGetCurrent(&now);
        return now;
    }

    // The n-th next call of a function (FAKE_CUDA_ANY: of any) gives `result`.
    static void fail(int function, CUresult result, long n = 1) {
        fake_cuda_t *control = driver().control();
        control->fail_function = function;
        control->fail_with = result;
        control->fail_at = n;
    }
};

#endif
