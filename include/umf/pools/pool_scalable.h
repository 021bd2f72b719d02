/** @file
 * The scalable pool: oneTBB's allocator over a provider. Its name is "scalable" unless another is
 * set.
 *
 * oneTBB is not part of this library: libtbbmalloc.so.2 (on Debian and Ubuntu the package
 * libtbbmalloc2) is loaded when the first pool is created.
 * Limits:
 *
 * - It keeps its metadata inside the memory it serves, so the CPU must be able to read and write
 *   that memory. Over memory that a child of fork shares with its parent (an os provider with
 *   UMF_MEM_MAP_SHARED) only one of the two may go on using the pool.
 * - It takes memory in blocks, often four at once, and releases a block only when nothing in it is
 * in use or cached. By itself it does so late or never. The exception: blocks of 64 MiB and more,
 * and of at least the granularity, that are allocated without an alignment. Each is an allocation
 * of the provider, and is returned when it is freed.
 * - Small objects are in slabs (16 KiB) of the thread that first allocated from them. A slab whose
 *   last objects other threads have freed is free again only when its thread next uses the pool, or
 *   ends: neither a trim nor decay by another thread can release it.
 * - umfPoolTrimMemory empties the caches of oneTBB and ignores its byte count. If then nothing at
 *   all is in use or cached, everything is released. Otherwise these blocks are still held: those
 *   with an object in use, however small; those with the slabs (16 KiB) that a thread using the
 *   pool allocated from last; those with objects in other threads' caches of this library, until
 *   these threads next use the pool or end. Where the provider can purge, the whole pages of free
 *   memory in such blocks are dropped, three of four in a slab. While one thread trims, others may
 *   take more memory from the provider than otherwise.
 * - If the provider has no memory for a request, the request is served from the free memory of the
 *   pool as far as oneTBB can join it: a block with one small object in use serves no large
 *   request, and up to a tenth of the memory stays with slabs of sizes that are in use no longer.
 * - With "keep all memory" nothing is released, and umfPoolTrimMemory gives
 *   UMF_RESULT_ERROR_NOT_SUPPORTED.
 * - Each pool takes one of the 1024 thread-specific keys of the process (pthread_key_create), so
 *   that about 1,000 pools can exist at once. Beyond that creation fails with
 *   UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC.
 * - oneTBB calls the provider with its locks held. An operation of the provider that calls the pool
 *   in the same thread gets objects from the cache of the thread, and NULL where oneTBB would be
 *   called; objects that it frees are given to oneTBB after the operation, and umfPoolTrimMemory
 *   releases nothing. An operation must not wait for another thread that uses the pool: that thread
 *   may wait for a lock of oneTBB.
 * - oneTBB does not support fork. A fork waits until no thread is inside oneTBB, so that the child
 *   can use the pools, but only for about a second, and for some milliseconds if an operation of a
 *   provider forks. If operations of a provider, called on behalf of such a pool by other threads,
 *   take longer, the child must not use scalable pools. A new thread of the child that frees small
 *   objects of the parent needs a little memory of the provider for that; if there is none, their
 *   memory can be used again when no object of the pool is in use any more.
 *
 * Parameters are created with defaults, set, and copied by umfPoolCreate. They may be destroyed or
 * reused directly afterwards. NULL instead of parameters means defaults. Two threads must not use
 * one parameter object at once.
 */
#ifndef UMF_SCALABLE_MEMORY_POOL_H
#define UMF_SCALABLE_MEMORY_POOL_H 1

#include <stdbool.h>

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Parameters of a scalable pool.
typedef struct umf_scalable_pool_params_t *umf_scalable_pool_params_handle_t;

/// @brief Creates parameters with defaults.
///
/// @param hParams [out] parameters, to be destroyed by ::umfScalablePoolParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfScalablePoolParamsCreate(umf_scalable_pool_params_handle_t *hParams);

/// @brief Destroys parameters. Pools made from them are not affected.
///
/// @param hParams parameters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL (unlike
///         for the other kinds)
umf_result_t umfScalablePoolParamsDestroy(umf_scalable_pool_params_handle_t hParams);

/// @brief Sets the granularity of the requests to the provider. Default: 2 MiB.
///
/// Small allocations make requests of exactly that size, with alignment 0, if it is at least 2 MiB.
/// Those above 8,128 bytes make requests of multiples of it if that adds at most a quarter, else of
/// whole pages of the provider, because oneTBB would use no more.
///
/// @param hParams parameters
/// @param granularity in bytes; above a quarter of the address space the creation of the pool gives
///        ::UMF_RESULT_ERROR_INVALID_ARGUMENT
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or
///         `granularity` is 0
umf_result_t umfScalablePoolParamsSetGranularity(umf_scalable_pool_params_handle_t hParams,
                                                 size_t granularity);

/// @brief Sets whether all memory is kept until the pool is destroyed. Default: false.
///
/// @param hParams parameters
/// @param keepAllMemory true: nothing is returned to the provider before
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfScalablePoolParamsSetKeepAllMemory(umf_scalable_pool_params_handle_t hParams,
                                                   bool keepAllMemory);

/// @brief Sets the pool's name. Default: "scalable".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfScalablePoolParamsSetName(umf_scalable_pool_params_handle_t hParams,
                                          const char *name);

/// @brief The table of this kind for ::umfPoolCreate, which takes parameters of type
///        ::umf_scalable_pool_params_handle_t or NULL.
///
/// Creating a pool answers ::UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE if libtbbmalloc.so.2 or a
/// symbol of it is missing (the log says which), and ::UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC if
/// oneTBB cannot set the pool up.
///
/// The last allocation error is ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY if the provider refused
/// memory, otherwise ::UMF_RESULT_ERROR_UNKNOWN. An allocation whose memory the provider does not
/// take back counts as freed; it is offered to the provider again by umfPoolTrimMemory and at the
/// end of the pool. Memory that it then still refuses makes umfPoolDestroy return
/// ::UMF_RESULT_ERROR_UNKNOWN.
///
/// @return constant data of the library, never NULL
const umf_memory_pool_ops_t *umfScalablePoolOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_SCALABLE_MEMORY_POOL_H */
