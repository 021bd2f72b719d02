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
///         no object of the pool (::umfPoolByPtr finds its pool), the cache has no room, or, for
///         every few thousandth object, because ::umfPoolFree also does the periodic work of
///         pools. ::umfPoolFree frees it then, or reports the error
bool umfPoolTryFree(umf_memory_pool_handle_t hPool, void *ptr);

/// @brief Sets the pool that ::umfCurrentPoolMalloc and ::umfCurrentPoolFree of the calling thread
///        use. A thread has none at its start, and none any more when its thread-specific data is
///        destroyed.
///
/// @param hPool pool, which must not be destroyed while it is a thread's current pool; its handle
///        is not checked. NULL: the thread has none
void umfCurrentPoolSet(umf_memory_pool_handle_t hPool);

/// @brief Allocates memory from the calling thread's cache of its current pool: the body of a
///        malloc, in one call.
///
/// @param size bytes
/// @param otherwise called where ::umfPoolTryMalloc would return NULL, or if the thread has no
///        current pool. Must not be NULL
/// @return memory of `size` bytes, or the result of `otherwise`
void *umfCurrentPoolMalloc(size_t size, void *(*otherwise)(size_t size));

/// @brief Frees an object into the calling thread's cache of its current pool: the body of a free,
///        in one call.
///
/// @param ptr any address. NULL: nothing is done
/// @param otherwise called where ::umfPoolTryFree would return false, or if the thread has no
///        current pool, and for every few thousandth object: it is not free then, and
///        ::umfPoolFree, which also does the periodic work of pools, frees it. Must not be NULL
void umfCurrentPoolFree(void *ptr, void (*otherwise)(void *ptr));

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMORY_POOL_EXT_H */
