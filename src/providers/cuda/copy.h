/* Copying and filling memory by streams of CUDA: the queues of umf_memory_provider_ext_ops_t. */
#ifndef UMF_SRC_PROVIDERS_CUDA_COPY_H
#define UMF_SRC_PROVIDERS_CUDA_COPY_H

#include "providers/cuda/context.h"

/* NOT_SUPPORTED: the driver is too old. */
umf_result_t umf_cuda_queue_create(const umf_cuda_driver_t *driver,
                                   const umf_cuda_context_t *context, void **queue);
umf_result_t umf_cuda_queue_destroy(const umf_cuda_driver_t *driver,
                                    const umf_cuda_context_t *context, void *queue);
umf_result_t umf_cuda_queue_wait(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                 void *queue);
umf_result_t umf_cuda_copy(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                           void *queue, void *dst, const void *src, size_t size);
umf_result_t umf_cuda_fill(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                           void *queue, void *dst, uint8_t value, size_t size);

#endif
