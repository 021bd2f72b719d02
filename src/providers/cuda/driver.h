/*
 * The CUDA driver, libcuda.so.1: found at run time, never linked.
 *
 * One list (driver.def) names its functions. The toolkit's cudaTypedefs.h gives their types.
 * cuGetProcAddress resolves them in the form of the version that the list names; drivers older than
 * 11.3 do not have it, and dlsym finds the symbols.
 */
#ifndef UMF_SRC_PROVIDERS_CUDA_DRIVER_H
#define UMF_SRC_PROVIDERS_CUDA_DRIVER_H

#include <stdbool.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include <umf/base.h>

#include "base/native.h"

typedef struct umf_cuda_driver_t {
#define UMF_CUDA(function, version, symbol, optional) PFN_##function##_v##version function;
#include "providers/cuda/driver.def"
#undef UMF_CUDA
} umf_cuda_driver_t;

/*
 * Looks the driver up once: among the libraries that the process has loaded, then on the system.
 * NULL if the driver or a required function is missing; `why` (may be NULL) then receives the
 * reason and what to do.
 */
const umf_cuda_driver_t *umf_cuda_driver(char *why, size_t why_size);

/* The same if the process has loaded the driver already, else NULL. */
const umf_cuda_driver_t *umf_cuda_driver_if_loaded(void);

/* The same driver with the default stream of the calling thread. Its functions that take a stream
 * are those that programs built with CUDA_API_PER_THREAD_DEFAULT_STREAM call. Valid only after
 * umf_cuda_driver has found the driver. */
const umf_cuda_driver_t *umf_cuda_driver_per_thread(void);

/*
 * Converts the result of a driver call, CUDA_SUCCESS included. A failure is stored for the thread
 * and logged with `what` was tried. While the driver shuts down, it is logged at level debug only.
 */
umf_result_t umf_cuda_result(CUresult result, const char *what);

/* Logs a failure that is no failure of the operation. */
void umf_cuda_tell(CUresult result, const char *what);

/*
 * Converts the result of a call that gave something back. If the driver or its context has ended,
 * the memory ended with it: that is a success.
 */
umf_result_t umf_cuda_given_back(CUresult result, const char *what);

/* The driver's last error. One for both kinds of provider, because thread-local memory is scarce.
 */
extern __thread int32_t umf_cuda_native;

/* Whether there is a driver that starts and finds a GPU; for a descriptor's probe. */
umf_result_t umf_cuda_probe(char *why, size_t why_size);

/* Cache line of the device memory of all current GPUs. */
#define UMF_CUDA_CACHE_LINE_SIZE 128
umf_result_t umf_cuda_op_cache_line_size(void *provider, size_t *size);

/* The operation get_last_native_error: "<name> - <description>", valid until the thread's next
 * call.
 */
umf_result_t umf_cuda_op_native_error(void *provider, const char **message, int32_t *code);

#endif
