/*
 * Cuda_wait: waiting for work that others queued, without ending a capture of a stream.
 *
 * Synchronising a context ends every capture in it, so that is not done while one is known: those
 * the program tells of (umf/capture.h), and those of blocking streams, for which the driver
 * answers.
 */
#ifndef UMF_SRC_PROVIDERS_CUDA_WAIT_H
#define UMF_SRC_PROVIDERS_CUDA_WAIT_H

#include "base/log.h"
#include "providers/cuda/context.h"

/* Where work may be queued that uses memory: a provider's context, and all devices with access. */
typedef struct umf_cuda_places_t {
    const umf_cuda_context_t *context;
    const CUmemAccessDesc *access;
    size_t access_count;
} umf_cuda_places_t;

/*
 * Waits for the context, and for the primary contexts of its own and of all devices with access, as
 * far as they are in use. Other contexts cannot be found. OUT_OF_RESOURCES: it would have ended a
 * capture, which the log tells; others as umf_cuda_result.
 */
umf_result_t umf_cuda_wait_all(const umf_cuda_driver_t *driver, const umf_cuda_places_t *places);
/* The same before memory is unmapped: a context that is gone or has failed runs nothing any more,
 * so only a capture is a failure, and told at level debug. */
umf_result_t umf_cuda_settle(const umf_cuda_driver_t *driver, const umf_cuda_places_t *places);

/* Waits for these alone. OUT_OF_RESOURCES: one is captured. */
umf_result_t umf_cuda_wait_for(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                               void *const *queues, size_t num_queues, void *const *events,
                               size_t num_events);

#endif
