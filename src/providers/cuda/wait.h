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

/* Whether the call ran into a capture. Then it has waited for nothing. */
static inline bool umf_cuda_is_of_capture(CUresult result) {
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* Is the stream captured? The default stream is while a blocking one of its context is. */
bool umf_cuda_is_captured(const umf_cuda_driver_t *driver, CUstream stream);
/* The same, with the error of a stream that is none. */
CUresult umf_cuda_ask_capture(const umf_cuda_driver_t *driver, CUstream stream, bool *is_captured);
/* Retains the primary context of a device. false: it is not in use, so it has no work. */
bool umf_cuda_primary_use(const umf_cuda_driver_t *driver, CUdevice device, CUcontext *context);

/* Asks an event, or waits for it. Twice if the first answer is an error, which may be that of other
 * work. */
CUresult umf_cuda_ask_event(const umf_cuda_driver_t *driver, CUevent event, bool waits);

/* Waits before memory is unmapped, for all that the operation wait waits for without names. A
 * context that has ended or is unusable runs no work, which is a success. A capture is logged at
 * level debug. Other contexts cannot be found. */
umf_result_t umf_cuda_op_settle(void *provider);

/*
 * Waits for these queues and events only. OUT_OF_RESOURCES: a queue is captured. Without any: for
 * the context, and for the primary contexts of its own device and of all devices with access, as
 * far as they are in use. OUT_OF_RESOURCES: waiting would end a capture, and the log says so; other
 * results as umf_cuda_result.
 */
umf_result_t umf_cuda_op_wait(void *provider, void *const *queues, size_t num_queues,
                              void *const *events, size_t num_events);
/* The same, for these only. */
umf_result_t umf_cuda_op_wait_for(void *provider, void *const *queues, size_t num_queues,
                                  void *const *events, size_t num_events);

#endif
