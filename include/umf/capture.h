/** @file
 * Captures of queues into graphs: what the library must know of them.
 *
 * While a queue is captured (`cuStreamBeginCapture`), waiting for a whole device or context ends
 * the capture, in every mode and from every thread. The library waits so before memory of a
 * cuda_vmm provider is given back to the driver and before a suspend without queues and events. It
 * cannot ask the driver whether a queue that it does not know is captured, so who captures says so:
 *
 *     umfCaptureBegins(stream);
 *     cuStreamBeginCapture(stream, mode);
 *     ...
 *     cuStreamEndCapture(stream, &graph);
 *     umfCaptureEnds(stream);
 *
 * Between the two calls nothing waits for a device. What is freed is free for its pool as always,
 * but what would go back to the driver stays mapped until the provider gives something back after
 * the last capture has ended, and a suspend without queues and events gives
 * ::UMF_RESULT_ERROR_OUT_OF_RESOURCES.
 *
 * Everything else may be called while a queue is captured, by any thread: providers and pools are
 * created, memory is allocated, freed and trimmed, pools are suspended with queues or events that
 * are named, and resumed. Captures of *blocking* streams (`CU_STREAM_DEFAULT`) of the context of a
 * provider are found without being told of.
 *
 * Both functions are thread-safe and work in every build.
 */
#ifndef UMF_CAPTURE_H
#define UMF_CAPTURE_H 1

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Tells that a queue is about to be captured.
///
/// Waits until waits of the library for a whole device that are under way have ended. A queue may
/// be named more than once, and is then captured until it was named by ::umfCaptureEnds as often.
///
/// @param queue the native queue (a `CUstream`), for messages; it is not used. NULL is allowed.
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, and nothing is told then
umf_result_t umfCaptureBegins(const void *queue);

/// @brief Tells that the capture of a queue has ended, well or not.
///
/// @param queue as given to ::umfCaptureBegins
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if no capture of that queue
///         has begun
umf_result_t umfCaptureEnds(const void *queue);

#ifdef __cplusplus
}
#endif

#endif /* UMF_CAPTURE_H */
