/** @file
 * The jemalloc pool: a general allocator over a provider. Its name is "jemalloc" unless another is
 * set.
 *
 * It needs a provider that can split allocations. It keeps no metadata in the memory it serves, so
 * it works with memory that the CPU cannot access. Only umfPoolCalloc and umfPoolRealloc touch the
 * memory. Where the memory is of a device (its property UMF_MEMORY_PROPERTY_POINTER_TYPE says
 * UMF_MEMORY_TYPE_DEVICE), these two use the operations `fill` and `copy` of the provider
 * (umf/plugin.h) and wait for them. Without these operations they give NULL, and the last error is
 * UMF_RESULT_ERROR_NOT_SUPPORTED. Work that was queued on an allocation must be done before
 * umfPoolRealloc of it.
 *
 * The first pool of a process starts the allocator, which takes 8 MiB of addresses for a moment.
 * Where they are missing (ulimit -v), creation gives UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY. It also
 * takes a thread-specific key (pthread_key_create); where none is left, creation gives
 * UMF_RESULT_ERROR_OUT_OF_RESOURCES.
 *
 * umfPoolTrimMemory returns unused memory and ignores its byte count.
 *
 * Pages that hold a live object keep the span around them, which is released only as a whole. Under
 * a limit (umfPoolGroupCreate, or a provider that is full) a few live objects in many spans can so
 * keep most of it, and a large block is refused although little is live: with 3 MiB live in four
 * threads and trims all the time, a block of 20 MiB was refused in 4 to 17 of 40 tries under a
 * limit of 64 MiB. The pools `disjoint` and `coalescing` serve such blocks.
 *
 * The pool may have been compiled out. Then umfJemallocPoolOps gives NULL and the other functions
 * give UMF_RESULT_ERROR_NOT_SUPPORTED whatever their arguments.
 *
 * Parameters are created with defaults, set, and copied by umfPoolCreate. They may be destroyed or
 * reused directly afterwards. NULL instead of parameters means defaults. Two threads must not use
 * one parameter object at once.
 */
#ifndef UMF_JEMALLOC_MEMORY_POOL_H
#define UMF_JEMALLOC_MEMORY_POOL_H 1

#include <umf/memory_pool_ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Parameters of a jemalloc pool.
typedef struct umf_jemalloc_pool_params_t *umf_jemalloc_pool_params_handle_t;

/// @brief Creates parameters with defaults.
///
/// @param hParams [out] parameters, to be destroyed by ::umfJemallocPoolParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfJemallocPoolParamsCreate(umf_jemalloc_pool_params_handle_t *hParams);

/// @brief Destroys parameters. Pools made from them are not affected.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfJemallocPoolParamsDestroy(umf_jemalloc_pool_params_handle_t hParams);

/// @brief Sets the largest number of arenas, which threads can use without waiting for each other.
///        Arenas are made when they are needed. Default: 0, the library chooses by the number of
///        CPUs.
///
/// @param hParams parameters
/// @param numArenas above 4095 the creation of the pool gives ::UMF_RESULT_ERROR_INVALID_ARGUMENT
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfJemallocPoolParamsSetNumArenas(umf_jemalloc_pool_params_handle_t hParams,
                                               size_t numArenas);

/// @brief Sets the pool's name. Default: "jemalloc".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfJemallocPoolParamsSetName(umf_jemalloc_pool_params_handle_t hParams,
                                          const char *name);

/// @brief The table of this kind for ::umfPoolCreate, which takes parameters of type
///        ::umf_jemalloc_pool_params_handle_t or NULL.
///
/// Creating a pool answers ::UMF_RESULT_ERROR_NOT_SUPPORTED if the provider cannot split, or if the
/// machine's pages are larger than those that the library was built for, and
/// ::UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC if an arena cannot be set up.
///
/// @return constant data of the library; NULL if the pool was compiled out
const umf_memory_pool_ops_t *umfJemallocPoolOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_JEMALLOC_MEMORY_POOL_H */
