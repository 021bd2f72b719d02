/*
 * Cuda_own: opening an IPC handle in the process that made it, which the driver refuses. It gives
 * the very memory; freeing it is put off until the last one who opened it has closed it.
 *
 * One table for the process, because one provider may open what another one shares. Thread-safe.
 */
#ifndef UMF_SRC_PROVIDERS_CUDA_OWN_H
#define UMF_SRC_PROVIDERS_CUDA_OWN_H

#include "providers/cuda/context.h"

/* A handle was made for the allocation at `ptr`, which lives in `context`. Without memory for it
 * the handle cannot be opened here, nothing else. */
void umf_cuda_own_add(const CUipcMemHandle *handle, void *ptr, const umf_cuda_context_t *context);

/* The allocation, with one more user; NULL if the handle was not made here or its memory freed. */
void *umf_cuda_own_open(const CUipcMemHandle *handle);

/*
 * One user less; false if `ptr` is not open here. `context->handle` is not NULL if it was the last
 * one and the memory was freed meanwhile: the caller frees it there.
 */
bool umf_cuda_own_close(const void *ptr, umf_cuda_context_t *context);

/* The producer frees `ptr`: no handle opens it any more. true if it is open: it is freed later. */
bool umf_cuda_own_retire(const void *ptr);

/* A word that reads as 1 until the memory is freed, valid while it is open; NULL if it is not. */
const uint64_t *umf_cuda_own_watch(const CUipcMemHandle *handle);

#endif
