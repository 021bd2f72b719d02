/*
 * Memory that several streams of PyTorch use (record_stream): a free waits until the work that was
 * queued on each of them then is done. Waiting is done by events, later: never in a capture.
 */
#ifndef UMF_PYTHON_HOOKS_TORCH_ORDER_HPP
#define UMF_PYTHON_HOOKS_TORCH_ORDER_HPP

#include <cstddef>

/* Notes that work on a stream uses the memory. */
void order_use(void *ptr, int device, void *stream);
/* Frees memory of a stream, at once or when the other streams that use it are done. */
void order_free(void *ptr, void *stream);
/* Frees what is done by now. Cheap if nothing waits. */
void order_poll();
/* Waits for all that waits, and frees it. Does nothing while a stream is captured. */
void order_settle();
/* Captures that are under way: no event is recorded or asked until they have ended. */
void order_capture_begins();
void order_capture_ends();

#endif
