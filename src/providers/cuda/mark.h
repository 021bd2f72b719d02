/*
 * Cuda_mark: an event behind all that is queued where memory of a provider may be used. It is
 * recorded for whole contexts, which ends every capture in them, so none is made while a capture is
 * known.
 */
#ifndef UMF_SRC_PROVIDERS_CUDA_MARK_H
#define UMF_SRC_PROVIDERS_CUDA_MARK_H

#include "providers/cuda/wait.h"

/* NOT_SUPPORTED: a wait is needed, as with a driver older than 12.5. OUT_OF_RESOURCES: it would end
 * a capture, and the log says so. */
umf_result_t umf_cuda_mark_all(const umf_cuda_context_t *context, void **mark);
/* true: all has passed, or runs no more, and the mark is ended. */
bool umf_cuda_mark_completed(void *provider, void *mark, bool waits);

#endif
