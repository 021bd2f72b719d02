/*
 * Provider queries: facts on handles and pools for in-tree providers. Its own public
 * functions, which take a provider handle, need this.
 */
#ifndef UMF_SRC_OBJECT_PROVIDER_PROVIDER_QUERY_H
#define UMF_SRC_OBJECT_PROVIDER_PROVIDER_QUERY_H

#include <stdbool.h>

#include <umf/memory_provider.h>

/* The pointer that `initialize` stored if the provider was created from the table `ops`, else
 * NULL. */
void *umf_provider_self(umf_memory_provider_handle_t provider,
                        const umf_memory_provider_ops_t *ops);

/* Does the allocation at `ptr` belong to a pool that tracks? The answer is valid as long as the
 * caller keeps the provider from freeing the allocation. */
bool umf_provider_is_tracked(umf_memory_provider_handle_t provider, const void *ptr);

/* Waits until no thread reads a tracked provider whose spans were withdrawn before the call. */
void umf_tracked_settle(void);

#endif
