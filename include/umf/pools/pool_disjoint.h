/** @file
 * The disjoint pool: small allocations out of slabs, large ones directly from the provider. Its
 * name is "disjoint" unless another is set.
 *
 * All of its metadata is outside the memory it serves, so the CPU need not access that memory.
 * Therefore it does not offer umfPoolCalloc and umfPoolRealloc. Sizes are rounded up to the next
 * bucket size; a size of 0 gives NULL. The control nodes of a pool (umf/experimental/ctl.h) give
 * its parameters, buckets and statistics.
 *
 * Parameters are created with defaults, set, and copied by umfPoolCreate. They may be destroyed or
 * reused directly afterwards. NULL instead of parameters means defaults. Two threads must not use
 * one parameter object at once.
 */
#ifndef UMF_DISJOINT_MEMORY_POOL_H
#define UMF_DISJOINT_MEMORY_POOL_H 1

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Smallest bucket in bytes if the provider does not report its cache line size.
#define UMF_DISJOINT_POOL_MIN_BUCKET_DEFAULT_SIZE ((size_t)8)

/// @brief A limit on unused memory that several pools share.
typedef struct umf_disjoint_pool_shared_limits_t *umf_disjoint_pool_shared_limits_handle_t;

/// @brief Parameters of a disjoint pool.
typedef struct umf_disjoint_pool_params_t *umf_disjoint_pool_params_handle_t;

/// @brief Creates a limit to be shared by pools.
///
/// @param MaxSize bytes of empty slabs that all pools using the limit may keep together
/// @param hSharedLimits [out] the limit, to be destroyed by ::umfDisjointPoolSharedLimitsDestroy
///        after all pools that use it
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hSharedLimits` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t
umfDisjointPoolSharedLimitsCreate(size_t MaxSize,
                                  umf_disjoint_pool_shared_limits_handle_t *hSharedLimits);

/// @brief Destroys a limit. The pools that use it must be destroyed before.
///
/// @param hSharedLimits the limit; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS
umf_result_t
umfDisjointPoolSharedLimitsDestroy(umf_disjoint_pool_shared_limits_handle_t hSharedLimits);

/// @brief Creates parameters with defaults.
///
/// @param hParams [out] parameters, to be destroyed by ::umfDisjointPoolParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfDisjointPoolParamsCreate(umf_disjoint_pool_params_handle_t *hParams);

/// @brief Destroys parameters. Pools made from them are not affected.
///
/// @param hParams parameters; NULL is allowed, and so is a call after the library was torn down
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfDisjointPoolParamsDestroy(umf_disjoint_pool_params_handle_t hParams);

/// @brief Sets the size of a slab: the smallest request to the provider for pooled sizes. Default:
///        64 KiB.
///
/// @param hParams parameters
/// @param slabMinSize bytes
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfDisjointPoolParamsSetSlabMinSize(umf_disjoint_pool_params_handle_t hParams,
                                                 size_t slabMinSize);

/// @brief Sets the largest size that is pooled. Larger requests go directly to the provider.
///        Default: 2 MiB.
///
/// @param hParams parameters
/// @param maxPoolableSize bytes
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfDisjointPoolParamsSetMaxPoolableSize(umf_disjoint_pool_params_handle_t hParams,
                                                     size_t maxPoolableSize);

/// @brief Sets how many empty slabs a bucket keeps. Default: 4.
///
/// Buckets of at most half a slab keep one, whatever the capacity is. While several threads free
/// slabs of one object, of up to 2 MiB, each of them may keep one beyond the capacity; at 0 none
/// does. Over a provider that caches memory freed by pools (the OS provider), a bucket of such
/// slabs that has released 64 of them keeps more, as long as they are in use now and then, until
/// the pool is trimmed.
///
/// @param hParams parameters
/// @param maxCapacity slabs per bucket
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfDisjointPoolParamsSetCapacity(umf_disjoint_pool_params_handle_t hParams,
                                              size_t maxCapacity);

/// @brief Sets the size of the smallest bucket. Default: the provider's cache line size.
///
/// Whatever it is, addresses are multiples of 8.
///
/// @param hParams parameters
/// @param minBucketSize bytes; a power of two
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or
///         `minBucketSize` is not a power of two
umf_result_t umfDisjointPoolParamsSetMinBucketSize(umf_disjoint_pool_params_handle_t hParams,
                                                   size_t minBucketSize);

/// @brief Sets the counters and logs of the pool. Default: 0.
///
/// @param hParams parameters
/// @param poolTrace 0: nothing; 1: slabs are counted; 2: also allocations and frees, with a summary
///        in the log (level debug) at the end; 3: also a log line for each operation
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfDisjointPoolParamsSetTrace(umf_disjoint_pool_params_handle_t hParams,
                                           int poolTrace);

/// @brief Sets a limit on unused memory shared with other pools. Default: none.
///
/// @param hParams parameters
/// @param hSharedLimits the limit, which must outlive the pool; NULL for none
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t
umfDisjointPoolParamsSetSharedLimits(umf_disjoint_pool_params_handle_t hParams,
                                     umf_disjoint_pool_shared_limits_handle_t hSharedLimits);

/// @brief Sets whether memory is overwritten with zeroes when it is freed. Default: 0.
///
/// The whole block is overwritten before the pool can hand it out again or return it to the
/// provider. While an IPC handle of the block exists, that is after ::umfPutIPCHandle. Each free
/// writes the block and none is served by the thread caches alone, so a free costs more. A block
/// that is freed while the pool is suspended is not overwritten, nor are blocks that are allocated
/// when the pool is destroyed.
///
/// The creation of a pool with this setting is ::UMF_RESULT_ERROR_NOT_SUPPORTED over a provider of
/// a device's memory, and with ::UMF_POOL_CREATE_FLAG_DISABLE_TRACKING. If neither the CPU nor the
/// provider can write the memory, a free is ::UMF_RESULT_ERROR_NOT_SUPPORTED and the block stays
/// allocated.
///
/// @param hParams parameters
/// @param zeroOnFree not 0: memory is overwritten
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfDisjointPoolParamsSetZeroOnFree(umf_disjoint_pool_params_handle_t hParams,
                                                int zeroOnFree);

/// @brief Sets the pool's name. Default: "disjoint".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfDisjointPoolParamsSetName(umf_disjoint_pool_params_handle_t hParams,
                                          const char *name);

/// @brief The table of this kind for ::umfPoolCreate, which takes parameters of type
///        ::umf_disjoint_pool_params_handle_t or NULL.
///
/// @return constant data of the library, never NULL
const umf_memory_pool_ops_t *umfDisjointPoolOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_DISJOINT_MEMORY_POOL_H */
