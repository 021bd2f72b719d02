/*
 * Import: the consumer's side of IPC. A pool's handler opens handles through the pool's provider.
 */
#ifndef UMF_SRC_IPC_IMPORT_H
#define UMF_SRC_IPC_IMPORT_H

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#include "track/span.h"

/* Closes all mappings that the pool's handler has opened, in use or not, and destroys the handler.
 * Called when the pool is destroyed, while its provider still exists. Calls the provider: no lock
 * may be held. */
void umf_import_drop(umf_memory_pool_handle_t pool);

/* The provider through which the memory of a span of kind UMF_SPAN_IMPORT was opened. */
umf_memory_provider_handle_t umf_import_provider(const umf_span_t *span);
/* false: every open was closed, and the mapping is kept for the next one. */
bool umf_import_is_open(const umf_span_t *span);

/* Called at every start of the library. At most `limit` mappings are kept; 0: any number. */
void umf_import_init(size_t limit);

#endif
