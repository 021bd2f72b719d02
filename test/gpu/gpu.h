/*
 * The CUDA driver for the tests of this folder: the software driver of test/fakes/cuda, or the real
 * one where UMF_TEST_GPU=real. Tests of failures on demand need the software one and skip
 * otherwise.
 */
#ifndef UMF_TEST_GPU_GPU_H
#define UMF_TEST_GPU_GPU_H

#include <cuda.h>
#include <cudaTypedefs.h>

#include <gtest/gtest.h>

#include "fakes/cuda/fake_cuda.h"
#include "fakes/cuda/path.h"
#include "fakes/library.h"

struct Driver {
#define UMF_CUDA(function, version, symbol, optional) PFN_##function##_v##version function;
#include "../../src/providers/cuda/driver.def"
#include "../fakes/cuda/extra.def"
#undef UMF_CUDA
    bool is_real = false;
    fake_cuda_t *(*control)() = nullptr;
    void (*reset)() = nullptr;
    const char *(*faults)() = nullptr;
    decltype(&fake_cuda_launch) launch = nullptr;
    decltype(&oracle_handed_out) handed_out = nullptr;
    decltype(&oracle_handed_out_to_all) handed_out_to_all = nullptr;
    decltype(&oracle_given_back) given_back = nullptr;
    decltype(&oracle_takes_away) takes_away = nullptr;
};

// Loads it at the first call; the library under test then finds it among the loaded ones.
inline Driver &driver() {
    static Driver made = [] {
        Driver d;
        d.is_real = wants_real("UMF_TEST_GPU");
        void *library = must_open(d.is_real ? "libcuda.so.1" : fake_cuda_path(), RTLD_GLOBAL);
#define UMF_CUDA(function, version, symbol, optional) must_find(library, symbol, &d.function);
#include "../../src/providers/cuda/driver.def"
#include "../fakes/cuda/extra.def"
#undef UMF_CUDA
        if (!d.is_real) {
            must_find(library, "fake_cuda", &d.control);
            must_find(library, "fake_cuda_reset", &d.reset);
            must_find(library, "fake_cuda_faults", &d.faults);
            must_find(library, "fake_cuda_launch", &d.launch);
            must_find(library, "oracle_handed_out", &d.handed_out);
            must_find(library, "oracle_handed_out_to_all", &d.handed_out_to_all);
            must_find(library, "oracle_given_back", &d.given_back);
            must_find(library, "oracle_takes_away", &d.takes_away);
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
            EXPECT_STREQ(driver().faults(), "");
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
        fail_call(driver().control(), function, result, n);
    }
};

#endif
