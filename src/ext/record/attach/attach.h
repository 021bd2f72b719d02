/*
 * Attaching: programs that may ptrace this process look at it
 * (umf/record_attach.h). They find its socket by its number; the broker (peer/broker.h) is found
 * only by those who have a handle.
 */
#ifndef UMF_SRC_EXT_RECORD_ATTACH_ATTACH_H
#define UMF_SRC_EXT_RECORD_ATTACH_ATTACH_H

#include "system/common.h"

/* Called at each start of the library. */
void umf_attach_init(void);

/* The setting "umf.record.attach". Nothing is opened unless it is on: written while the
 * library runs at once, read at its start by the first pool, and in a child of fork by the next
 * pool. No thread is created in an allocation or a free. NOT_SUPPORTED: the process may not be
 * looked at; OUT_OF_RESOURCES: no socket or thread; both are logged. */
umf_result_t umf_attach_set(bool may);
/* false: also if the attach socket could not be opened, or is closed. */
bool umf_attach_get(void);

/* Closes the attach socket, and ends what its clients have started. */
void umf_attach_stop(void);

#endif
