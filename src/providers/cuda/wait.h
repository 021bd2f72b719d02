/*
 * Cuda_wait: waiting for work that others queued, without ending a capture of a stream.
 *
 * Synchronising a context ends every capture in it, so that is not done while a capture is known:
 * those that the program reports (umf/capture.h), and those of blocking streams, which the driver
 * reports.
 */
#ifndef UMF_SRC_PROVIDERS_CUDA_WAIT_H
#define UMF_SRC_PROVIDERS_CUDA_WAIT_H

#include "base/log.h"
#include "providers/cuda/context.h"

/* Where work that uses the memory may be queued: the provider's context, and all devices with
 * access. */
typedef struct umf_cuda_places_t {
    const umf_cuda_context_t *context;
    const CUmemAccessDesc *access;
    size_t access_count;
} umf_cuda_places_t;

/* Whether the call ran into a capture. Then it has waited for nothing. */
static inline bool umf_cuda_is_of_capture(CUresult result) {
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* Is the stream captured? The default stream is while a blocking one of its context is. */
bool umf_cuda_is_captured(const umf_cuda_driver_t *driver, CUstream stream);
/* Retains the primary context of a device. false: it is not in use, so it has no work. */
bool umf_cuda_primary_use(const umf_cuda_driver_t *driver, CUdevice device, CUcontext *context);

/*
 * Waits for the context, and for the primary contexts of its own device and of all devices with
 * access, as far as they are in use. Other contexts cannot be found. OUT_OF_RESOURCES: waiting
 * would end a capture, and the log says so; other results as umf_cuda_result.
 */
umf_result_t umf_cuda_wait_all(const umf_cuda_driver_t *driver, const umf_cuda_places_t *places);
/* Waits in the same way before memory is unmapped. A context that has ended or failed runs no work,
 * so a capture is the only failure. It is logged at level debug. */
umf_result_t umf_cuda_settle(const umf_cuda_driver_t *driver, const umf_cuda_places_t *places);

/* Waits for these queues and events only. OUT_OF_RESOURCES: a queue is captured. */
umf_result_t umf_cuda_wait_for(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                               void *const *queues, size_t num_queues, void *const *events,
                               size_t num_events);

#endif
