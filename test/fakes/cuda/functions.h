/* The functions of the software CUDA driver, of the types that the lists of functions say. */
#ifndef UMF_TEST_FAKES_CUDA_FUNCTIONS_H
#define UMF_TEST_FAKES_CUDA_FUNCTIONS_H

#include <type_traits>

#include <cuda.h>
#include <cudaTypedefs.h>

// Those with a form for the default stream of the thread; the version is that of the form.
#define FAKE_CUDA_PER_THREAD(FUNCTION)                                                             \
    FUNCTION(cuMemcpyAsync, 7000)                                                                  \
    FUNCTION(cuMemcpy2DAsync, 7000)                                                                \
    FUNCTION(cuMemsetD8Async, 7000)                                                                \
    FUNCTION(cuMemPrefetchAsync, 8000)                                                             \
    FUNCTION(cuLaunchKernel, 7000)                                                                 \
    FUNCTION(cuStreamSynchronize, 7000)                                                            \
    FUNCTION(cuStreamWaitEvent, 7000)                                                              \
    FUNCTION(cuStreamIsCapturing, 10000)                                                           \
    FUNCTION(cuStreamQuery, 7000)                                                                  \
    FUNCTION(cuStreamGetFlags, 7000)                                                               \
    FUNCTION(cuStreamGetId, 12000)                                                                 \
    FUNCTION(cuEventRecord, 7000)

#pragma GCC visibility push(hidden)
extern "C" {
#define UMF_CUDA(function, version, symbol, optional)                                              \
    std::remove_pointer_t<PFN_##function##_v##version> fake_##function;
#include "../../../src/providers/cuda/driver.def"
#include "extra.def"
UMF_CUDA(cuGetProcAddress, 11030, "cuGetProcAddress", true)
#undef UMF_CUDA
#define FUNCTION(function, version)                                                                \
    std::remove_pointer_t<PFN_##function##_v##version##_ptsz> fake_##function##_ptsz;
FAKE_CUDA_PER_THREAD(FUNCTION)
#undef FUNCTION
}
#pragma GCC visibility pop

#endif
