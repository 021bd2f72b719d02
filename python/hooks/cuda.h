/*
 * The functions of the CUDA driver that the hooks call. The driver is found when the first is
 * needed and never linked. A driver that has shut down answers with an error, which callers take as
 * "nothing left to do".
 */
#ifndef UMF_PYTHON_HOOKS_CUDA_H
#define UMF_PYTHON_HOOKS_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_t {
#define CUDA_FUNCTION(member, symbol, result, arguments) result(*member) arguments;
#include "cuda.def"
#undef CUDA_FUNCTION
} cuda_t;

/* NULL if there is no driver, or it lacks a function. Starts it. */
const cuda_t *cuda(void);
/* The driver's name of a result. */
const char *cuda_text(CUresult result);
/* The device of the thread's current context; that of the CUDA runtime if there is none. */
int cuda_current_device(void);
/* Makes the primary context of a device current in this thread until cuda_leave. */
CUresult cuda_enter(int device);
void cuda_leave(void);
/* The NUMA node of the host that is nearest to a device; -1 if it is not known. */
int cuda_host_node(int device);
/* Waits for all work on a device. */
CUresult cuda_drain(int device);

#ifdef __cplusplus
}
#endif

#endif
