/*
 * The CUDA driver, libcuda.so.1: found at run time, never linked.
 *
 * Its functions come from one list (cuda_driver.def), are typed by the toolkit's cudaTypedefs.h and
 * resolved by cuGetProcAddress in the form of the version that the list names; drivers older than
 * 11.3 have no such function and give their symbols to dlsym.
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
 * Looks the driver up once: among the libraries the process has loaded, then on the system. NULL if
 * it or a function that cannot be missed is not there; `why` (may be NULL) then receives the reason
 * and what to do.
 */
const umf_cuda_driver_t *umf_cuda_driver(char *why, size_t why_size);

/* The same driver, whose default stream is that of the calling thread: the functions that take a
 * stream are those which programs built with CUDA_API_PER_THREAD_DEFAULT_STREAM call. Only after
 * umf_cuda_driver has found one. */
const umf_cuda_driver_t *umf_cuda_driver_per_thread(void);

/*
 * Result of a driver call, CUDA_SUCCESS included. A failure is kept for the thread and
 * logged with `what` was tried; a driver that is shutting down is no news and logged as
 * debug only.
 */
umf_result_t umf_cuda_result(const umf_cuda_driver_t *driver, CUresult result, const char *what);

/*
 * The same where something was given back: if the driver or its context is gone, that is gone with
 * it, and all is well.
 */
umf_result_t umf_cuda_given_back(const umf_cuda_driver_t *driver, CUresult result,
                                 const char *what);

/* For both kinds of provider over the driver: thread-local memory is dear. */
extern __thread umf_native_t umf_cuda_native;

/* Whether there is a driver that starts and finds a GPU; for a descriptor's probe. */
umf_result_t umf_cuda_probe(char *why, size_t why_size);

/* Of the device memory of all current GPUs. */
#define UMF_CUDA_CACHE_LINE_SIZE 128
umf_result_t umf_cuda_op_cache_line_size(void *provider, size_t *size);

/* The body of get_last_native_error: "<name> - <description>", which holds until the thread asks
 * again. `driver` is NULL where no provider is asked. */
umf_result_t umf_cuda_native_error(const umf_cuda_driver_t *driver, const char **message,
                                   int32_t *code);

#endif
