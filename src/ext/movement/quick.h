/*
 * Quick: small copies between memories of the host, the usual ones. They need no queue, device or
 * message, and add 20 ns to a memcpy of 64 bytes, not 67.
 */
#ifndef UMF_SRC_EXT_MOVEMENT_QUICK_H
#define UMF_SRC_EXT_MOVEMENT_QUICK_H

#include "system/common.h"

/* Copies, if both operands are memory of pools that the CPU reaches, or memory of the host that
 * needs no question. false: nothing was done; it is another case, or must be refused. */
bool umf_quick_copy(void *to, const void *from, size_t size);

#endif
