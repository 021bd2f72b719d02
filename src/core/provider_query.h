/*
 * Tracked: what a provider of the tree may ask about handles and pools, for public functions of its
 * own that take a provider's handle.
 */
#ifndef UMF_SRC_CORE_PROVIDER_QUERY_H
#define UMF_SRC_CORE_PROVIDER_QUERY_H

#include <stdbool.h>

#include <umf/memory_provider.h>

/* What `initialize` stored, if the provider was created from the table `ops`; NULL otherwise. */
void *umf_provider_self(umf_memory_provider_handle_t provider,
                        const umf_memory_provider_ops_t *ops);

/* Whether a pool that tracks has got the allocation that begins at `ptr` from the provider. The
 * answer holds as long as the caller keeps the provider from freeing it. */
bool umf_provider_is_tracked(umf_memory_provider_handle_t provider, const void *ptr);

/* Waits until nobody can be looking at a tracked provider whose spans were withdrawn before. */
void umf_tracked_settle(void);

#endif
