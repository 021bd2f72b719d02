/** @file
 * The proxy pool: every allocation is one allocation of the provider. Its name is "proxy".
 *
 * It is for tracking, sharing and freeing by pointer without an allocator in between. An allocation
 * passes its size (also 0) and alignment on to the provider; an error is the provider's.
 * umfPoolCalloc, umfPoolRealloc and umfPoolMallocUsableSize are not supported. umfPoolTrimMemory
 * gives the same result, but releases the memory that the pool caches. It has no parameters.
 *
 * The exception is reuse, over a provider that offers `reuse_count` (umf/plugin.h; of the library's
 * own, the OS provider with private memory and no NUMA policy): a pool that frees often caches
 * allocations of up to 256 KiB for its next ones. These are not calls of the provider then, and
 * their memory has any content. Cached memory counts as free. It is released when it was unused for
 * a while, by a trim, and before an allocation fails. Each thread caches up to 256 KiB of each size
 * (1 MiB where threads meet) or two allocations.
 */
#ifndef UMF_PROXY_MEMORY_POOL_H
#define UMF_PROXY_MEMORY_POOL_H 1

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief The table of this kind for ::umfPoolCreate.
///
/// @return constant data of the library, never NULL
const umf_memory_pool_ops_t *umfProxyPoolOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_PROXY_MEMORY_POOL_H */
