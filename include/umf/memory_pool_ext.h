/** @file
 * Beyond umf/memory_pool.h: the cache of the calling thread.
 *
 * Pools of this library have a cache for each thread. These functions use that cache and nothing
 * else: they take no lock, call no provider and log nothing. They are for replacements of malloc,
 * which must prepare for the locks, provider calls and logs of ::umfPoolMalloc and ::umfPoolFree.
 *
 * All functions are thread-safe. None is async-signal-safe.
 */
#ifndef UMF_MEMORY_POOL_EXT_H
#define UMF_MEMORY_POOL_EXT_H 1

#include <stdbool.h>

#include <umf/base.h>
#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Allocates memory from the cache of the calling thread.
///
/// @param hPool pool
/// @param size bytes
/// @return as ::umfPoolMalloc; NULL also if the thread cache has none, if the size is above 1024
///         bytes, or if the pool has no thread caches: call ::umfPoolMalloc then. The last
///         allocation error stays as it was
void *umfPoolTryMalloc(umf_memory_pool_handle_t hPool, size_t size);

/// @brief Frees an object into the cache of the calling thread.
///
/// @param hPool pool
/// @param ptr any address
/// @return true: it was an object of the pool, and is free. false: nothing was done, because it is
///         no object of the pool (::umfPoolByPtr finds its pool) or the cache has no room:
///         ::umfPoolFree frees it, or reports the error
bool umfPoolTryFree(umf_memory_pool_handle_t hPool, void *ptr);

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMORY_POOL_EXT_H */
