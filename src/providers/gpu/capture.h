/*
 * Capture: waiting for a whole device, and captures of queues (umf/capture.h), which such a wait
 * would end, exclude each other.
 */
#ifndef UMF_SRC_PROVIDERS_GPU_CAPTURE_H
#define UMF_SRC_PROVIDERS_GPU_CAPTURE_H

#include "system/common.h"

/* Before such a wait: no capture begins until leave. false: one is under way, and `queue` is
 * captured. */
bool umf_capture_enter_wait(const void **queue);
void umf_capture_leave_wait(void);

#endif
