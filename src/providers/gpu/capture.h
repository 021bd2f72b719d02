/*
 * Capture: a wait for a whole device would end the captures of queues (umf/capture.h), so waits and
 * captures exclude each other.
 */
#ifndef UMF_SRC_PROVIDERS_GPU_CAPTURE_H
#define UMF_SRC_PROVIDERS_GPU_CAPTURE_H

#include "system/common.h"

/* Called before such a wait: no capture begins until leave. false: `queue` is being captured. */
bool umf_capture_enter_wait(const void **queue);
void umf_capture_leave_wait(void);

#endif
