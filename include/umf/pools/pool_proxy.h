/** @file
 * The proxy pool: every allocation is one allocation of the provider. Its name is "proxy".
 *
 * For tracking, sharing and freeing by pointer without an allocator in between. An allocation
 * passes its size (also 0) and alignment on to the provider; an error is the provider's.
 * umfPoolCalloc, umfPoolRealloc, umfPoolMallocUsableSize and umfPoolTrimMemory are not supported.
 * It has no parameters.
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
