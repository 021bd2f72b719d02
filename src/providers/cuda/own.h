/*
 * Cuda_own: opening an IPC handle in the process that made it, which the driver refuses. Opening
 * gives the original memory. A free of that memory is deferred until the last user has closed it.
 *
 * There is one table for the process, because one provider may open what another one shares.
 * Thread-safe.
 */
#ifndef UMF_SRC_PROVIDERS_CUDA_OWN_H
#define UMF_SRC_PROVIDERS_CUDA_OWN_H

#include "providers/cuda/context.h"

/* Records a handle of the allocation at `ptr` in `context`. Without memory for the record the
 * handle cannot be opened in this process; that is all. */
void umf_cuda_own_add(const CUipcMemHandle *handle, void *ptr, const umf_cuda_context_t *context);

/* The allocation, with one more user. NULL: this process did not make the handle, or the memory is
 * freed. */
void *umf_cuda_own_open(const CUipcMemHandle *handle);

/*
 * Removes a user. false: `ptr` is not open here. If this was the last user of memory that was freed
 * meanwhile, `context->handle` is not NULL and the caller frees the memory there.
 */
bool umf_cuda_own_close(const void *ptr, umf_cuda_context_t *context);

/* The producer frees `ptr`, so its handles can no longer be opened. true: it is still open, and the
 * last close frees it. */
bool umf_cuda_own_retire(const void *ptr);

/* A word that is 1 until the memory is freed, valid while it is open. NULL: it is not open. */
const uint64_t *umf_cuda_own_watch(const CUipcMemHandle *handle);

#endif
