/*
 * Attaching: other programs of the same user, and of root, look at this process
 * (umf/record_attach.h). They find its socket by its number; the broker (peer/broker.h) is found
 * only by those who have a handle.
 */
#ifndef UMF_SRC_RECORD_ATTACH_H
#define UMF_SRC_RECORD_ATTACH_H

#include "system/common.h"

/* Called at each start of the library. From now on the first pool opens the attach socket
 * and its thread. In a program whose malloc the library is a tick does (core/reclaim.h), so
 * that programs that end at once do not pay for it. */
void umf_attach_init(void);

/* The setting "umf.record.attach". Unset, the attach socket is opened unless a filter of system
 * calls watches this process, which may not expect it. */
void umf_attach_set(bool may);
bool umf_attach_get(void);

/* Closes the attach socket, and ends what its clients have started. */
void umf_attach_stop(void);

#endif
