/*
 * Kernels that fill memory and check it, on the real driver and on the software one.
 */
#ifndef UMF_TEST_GPU_KERNELS_H
#define UMF_TEST_GPU_KERNELS_H

#include "fakes/cuda/kernels.h"
#include "gpu.h"

class Kernels {
  public:
    // In the context that is current.
    void load() {
        CU(cuModuleLoadData(&module, umf_test_kernels));
        CU(cuModuleGetFunction(&fill_words, module, "umf_test_fill"));
        CU(cuModuleGetFunction(&check_words, module, "umf_test_check"));
    }
    void unload() {
        CU(cuModuleUnload(module));
    }
    void fill(CUdeviceptr at, uint64_t words, uint32_t value, uint32_t delay,
              CUstream stream) const {
        void *arguments[] = {&at, &words, &value, &delay};
        launch(fill_words, arguments, stream);
    }
    // Adds to the word `bad` how many differ.
    void check(CUdeviceptr at, uint64_t words, uint32_t value, CUdeviceptr bad,
               CUstream stream) const {
        void *arguments[] = {&at, &words, &value, &bad};
        launch(check_words, arguments, stream);
    }

  private:
    CUmodule module = nullptr;
    CUfunction fill_words = nullptr, check_words = nullptr;

    static void launch(CUfunction kernel, void **arguments, CUstream stream) {
        CU(cuLaunchKernel(kernel, 16, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr));
    }
};

#endif
