/*
 * Marks: a mark stands in front of each handle given to the user, so that umfPutIPCHandle
 * recognises what it was given. The places where marks were ever written are known, and nothing
 * else is read: the arena keeps small blocks mapped. The cookie shows whether a mark is there now.
 */
#ifndef UMF_SRC_IPC_EXPORT_MARK_H
#define UMF_SRC_IPC_EXPORT_MARK_H

#include "object/pin.h"
#include "system/atomic.h"

typedef struct umf_export_mark_t {
    _Atomic(uint64_t) cookie;
    uint64_t bytes; /* of the whole block */
} umf_export_mark_t;

/* The mark of a new handle of so many bytes, which are behind it. NULL: no memory, logged. */
umf_export_mark_t *umf_export_mark_new(size_t handle_size);
/* From now on umfPutIPCHandle takes the handle. */
void umf_export_mark_set(umf_export_mark_t *mark);
/* Removes the mark of a handle. false: there is none. It may read memory that is no longer part of
 * a handle. */
bool umf_export_mark_remove(umf_export_mark_t *mark);
/* Frees the handle, too. */
void umf_export_mark_free(umf_export_mark_t *mark);
/* The pin behind the handle. While the handle exists, the memory it names is not reused. */
umf_pin_t *umf_export_mark_pin(umf_export_mark_t *mark);

#endif
