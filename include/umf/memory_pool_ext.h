/** @file
 * Beyond umf/memory_pool.h: the part of a pool that the calling thread has at hand.
 *
 * Pools of this library keep objects for each thread. These functions look there and nowhere else:
 * they take no lock, call no provider and log nothing. They are for those who stand in for malloc
 * and have to prepare for what ::umfPoolMalloc and ::umfPoolFree may do.
 *
 * All functions are thread-safe.
 */
#ifndef UMF_MEMORY_POOL_EXT_H
#define UMF_MEMORY_POOL_EXT_H 1

#include <stdbool.h>

#include <umf/base.h>
#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Allocates memory that the calling thread has at hand.
///
/// @param hPool pool
/// @param size bytes
/// @return as ::umfPoolMalloc; NULL also if the thread has none at hand, if the size is above 1024
///         bytes, or if the pool keeps nothing for threads: ask ::umfPoolMalloc then. The last
///         allocation error stays as it was
void *umfPoolTryMalloc(umf_memory_pool_handle_t hPool, size_t size);

/// @brief Frees an object into what the calling thread has at hand.
///
/// @param hPool pool
/// @param ptr any address
/// @return true: it was an object of the pool, and is free. false: nothing was done, because it is
///         no object of the pool (::umfPoolByPtr tells whose it is) or there is no room for it:
///         ::umfPoolFree does it, or says what is wrong
bool umfPoolTryFree(umf_memory_pool_handle_t hPool, void *ptr);

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMORY_POOL_EXT_H */
