/* Suspend and resume of pools: what the core calls. */
#ifndef UMF_SRC_SUSPEND_SUSPEND_H
#define UMF_SRC_SUSPEND_SUSPEND_H

#include "core/object.h"

void umf_suspend_init(void);

/* An allocation of a pool that may be suspended went back to its provider. */
void umf_suspend_freed(umf_memory_pool_handle_t pool, const void *ptr);
/* The pool is going away; its memory is back at the provider. */
void umf_suspend_drop_pool(umf_memory_pool_handle_t pool);

#endif
