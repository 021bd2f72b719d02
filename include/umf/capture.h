/** @file
 * Captures of queues into graphs: announcing them to the library.
 *
 * While a queue is captured (`cuStreamBeginCapture`), waiting for a whole device or context ends
 * the capture, in every mode and from every thread. The library waits in this way before memory of
 * a cuda_vmm provider is returned to the driver, and before a suspend without queues and events.
 * The driver has no query for captures of queues unknown to the library. So the program announces
 * captures:
 *
 *     umfCaptureBegins(stream);
 *     cuStreamBeginCapture(stream, mode);
 *     ...
 *     cuStreamEndCapture(stream, &graph);
 *     umfCaptureEnds(stream);
 *
 * Between the two calls nothing waits for a device. Freed memory is free for its pool as always.
 * Memory to be returned to the driver stays mapped. The provider returns it with the next release
 * of memory after the last capture has ended. A suspend without queues and events gives
 * ::UMF_RESULT_ERROR_OUT_OF_RESOURCES.
 *
 * Everything else may be called while a queue is captured, by any thread: providers and pools are
 * created, memory is allocated, freed and trimmed, pools are suspended with queues or events that
 * are named, and resumed. The exception that needs no announcement: the library finds captures of
 * *blocking* streams (`CU_STREAM_DEFAULT`) of the context of a provider by itself.
 *
 * Both functions are thread-safe and work in every build.
 */
#ifndef UMF_CAPTURE_H
#define UMF_CAPTURE_H 1

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Announces that a queue is about to be captured.
///
/// Returns when waits of the library for a whole device that are in flight have ended. A queue may
/// be named more than once, and then counts as captured until ::umfCaptureEnds has named it as
/// often.
///
/// @param queue the native queue (a `CUstream`), for messages; it is not used. NULL is allowed.
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, and nothing is announced
///         then
umf_result_t umfCaptureBegins(const void *queue);

/// @brief Announces that the capture of a queue has ended, whether it succeeded or not.
///
/// @param queue as given to ::umfCaptureBegins
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if no capture of that queue
///         has begun
umf_result_t umfCaptureEnds(const void *queue);

#ifdef __cplusplus
}
#endif

#endif /* UMF_CAPTURE_H */
