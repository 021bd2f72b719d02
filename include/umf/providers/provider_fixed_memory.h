/** @file
 * The fixed provider: cuts allocations out of a range of memory that the caller has. Its name is
 * "FIXED" unless another is set.
 *
 * The range may be any memory, aligned or not, also an allocation of another pool or a part of one.
 * It stays the caller's and must outlive the provider. The provider never writes it, so the CPU
 * need not access it. A pool over the provider finds that out when it first zeroes or copies
 * content: calloc and realloc then give NULL with UMF_RESULT_ERROR_NOT_SUPPORTED.
 *
 * Memory is handed out in whole pages of the system, upwards in a fresh range; free neighbours are
 * joined and used again. The bytes before the first page boundary of the range and after the last
 * one are not used, so an array of 1 MiB serves 1 MiB only if it begins at a page. An alignment is
 * 0 (a page) or a power of two; any other gives UMF_RESULT_ERROR_INVALID_ALIGNMENT. No room gives
 * UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY. Freeing, splitting or merging anything but an allocation of
 * that size gives UMF_RESULT_ERROR_INVALID_ARGUMENT. The provider cannot purge lazily and cannot
 * share memory.
 *
 * Parameters are created, set, and copied by umfMemoryProviderCreate. They may be destroyed or
 * reused directly afterwards. Two threads must not use one parameter object at once.
 */
#ifndef UMF_FIXED_MEMORY_PROVIDER_H
#define UMF_FIXED_MEMORY_PROVIDER_H 1

#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief First native code of this kind of provider.
#define UMF_FIXED_RESULTS_START_FROM 4000

/// @brief Parameters of a fixed provider.
typedef struct umf_fixed_memory_provider_params_t *umf_fixed_memory_provider_params_handle_t;

/// @brief Native codes, as ::umfMemoryProviderGetLastNativeError gives them.
typedef enum umf_fixed_memory_provider_native_error {
    /// "success"
    UMF_FIXED_RESULT_SUCCESS = UMF_FIXED_RESULTS_START_FROM,
    /// "force purging failed"
    UMF_FIXED_RESULT_ERROR_PURGE_FORCE_FAILED = 4001
} umf_fixed_memory_provider_native_error_t;

/// @brief Creates parameters for a range.
///
/// @param ptr start of the range; not NULL
/// @param size of the range in bytes; not 0
/// @param hParams [out] parameters, to be destroyed by ::umfFixedMemoryProviderParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or 0;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfFixedMemoryProviderParamsCreate(void *ptr, size_t size,
                                                umf_fixed_memory_provider_params_handle_t *hParams);

/// @brief Sets another range.
///
/// @param hParams parameters
/// @param ptr start of the range; not NULL
/// @param size of the range in bytes; not 0
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or 0
umf_result_t
umfFixedMemoryProviderParamsSetMemory(umf_fixed_memory_provider_params_handle_t hParams, void *ptr,
                                      size_t size);

/// @brief Destroys parameters. Providers made from them are not affected, nor is the range.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfFixedMemoryProviderParamsDestroy(umf_fixed_memory_provider_params_handle_t hParams);

/// @brief The table of this kind for ::umfMemoryProviderCreate, which needs parameters of type
///        ::umf_fixed_memory_provider_params_handle_t.
///
/// @return constant data of the library, never NULL
const umf_memory_provider_ops_t *umfFixedMemoryProviderOps(void);

/// @brief Sets the provider's name. Default: "FIXED".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfFixedMemoryProviderParamsSetName(umf_fixed_memory_provider_params_handle_t hParams,
                                                 const char *name);

#ifdef __cplusplus
}
#endif

#endif /* UMF_FIXED_MEMORY_PROVIDER_H */
