/** @file
 * The DevDax provider: memory of a DAX device such as /dev/dax0.0, that is persistent memory, CXL
 * memory or memory reserved at boot. Its name is "DEVDAX" unless another is set.
 *
 * The provider maps the device when it is created, the requested size in whole pages of 2 MiB (of 1
 * GiB if the device has such), and cuts allocations out of it from its start. The provider neither
 * clears nor writes the memory: it reads as it was left.
 *
 * Only one provider, in one process, may allocate from a device at a time, and nothing checks that.
 * Other processes that can open the device can open the memory through umf/ipc.h, for which they
 * need a DevDax provider, too. The handle names the path and the number of the device.
 *
 * Memory is handed out in pages of 2 MiB. An alignment is 0 (a page) or a power of two; any other
 * gives UMF_RESULT_ERROR_INVALID_ALIGNMENT. No room gives UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY.
 * Freeing, splitting or merging anything but an allocation of that size gives
 * UMF_RESULT_ERROR_INVALID_ARGUMENT. The provider cannot purge lazily. Purging by force unmaps the
 * pages from the process; the device keeps their content.
 *
 * Parameters are created, set, and copied by umfMemoryProviderCreate. They may be destroyed or
 * reused directly afterwards. Two threads must not use one parameter object at once.
 */
#ifndef UMF_DEVDAX_MEMORY_PROVIDER_H
#define UMF_DEVDAX_MEMORY_PROVIDER_H 1

#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief First native code of this kind of provider.
#define UMF_DEVDAX_RESULTS_START_FROM 2000

/// @brief Parameters of a DevDax provider.
typedef struct umf_devdax_memory_provider_params_t *umf_devdax_memory_provider_params_handle_t;

/// @brief Native codes, as ::umfMemoryProviderGetLastNativeError gives them.
typedef enum umf_devdax_memory_provider_native_error {
    /// "success"
    UMF_DEVDAX_RESULT_SUCCESS = UMF_DEVDAX_RESULTS_START_FROM,
    /// "memory allocation failed": mapping the memory of an IPC handle
    UMF_DEVDAX_RESULT_ERROR_ALLOC_FAILED = 2001,
    /// "allocated address is not aligned"; not used by this library
    UMF_DEVDAX_RESULT_ERROR_ADDRESS_NOT_ALIGNED = 2002,
    /// "memory deallocation failed": closing opened memory
    UMF_DEVDAX_RESULT_ERROR_FREE_FAILED = 2003,
    /// "force purging failed"
    UMF_DEVDAX_RESULT_ERROR_PURGE_FORCE_FAILED = 2004
} umf_devdax_memory_provider_native_error_t;

/// @brief Creates parameters: read and write, named "DEVDAX".
///
/// @param path of the device; copied. It is opened when a provider is created.
/// @param size bytes of the device that are used; checked when a provider is created
/// @param hParams [out] parameters, to be destroyed by ::umfDevDaxMemoryProviderParamsDestroy;
///        written only on success
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or the
///         path is empty; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t
umfDevDaxMemoryProviderParamsCreate(const char *path, size_t size,
                                    umf_devdax_memory_provider_params_handle_t *hParams);

/// @brief Destroys parameters. Providers made from them are not affected.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS
umf_result_t
umfDevDaxMemoryProviderParamsDestroy(umf_devdax_memory_provider_params_handle_t hParams);

/// @brief Sets another device.
///
/// @param hParams parameters
/// @param path of the device; copied
/// @param size bytes of the device that are used; checked when a provider is created
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` or `path` is NULL
///         or the path is empty; nothing is changed then
umf_result_t
umfDevDaxMemoryProviderParamsSetDeviceDax(umf_devdax_memory_provider_params_handle_t hParams,
                                          const char *path, size_t size);

/// @brief Sets how the memory may be accessed. Default: ::UMF_PROTECTION_READ and
///        ::UMF_PROTECTION_WRITE.
///
/// @param hParams parameters
/// @param protection combination of ::umf_mem_protection_flag_t, not 0
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or
///         `protection` is 0 or has other bits
umf_result_t
umfDevDaxMemoryProviderParamsSetProtection(umf_devdax_memory_provider_params_handle_t hParams,
                                           unsigned protection);

/// @brief Sets the provider's name. Default: "DEVDAX".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t
umfDevDaxMemoryProviderParamsSetName(umf_devdax_memory_provider_params_handle_t hParams,
                                     const char *name);

/// @brief The table of this kind for ::umfMemoryProviderCreate, which needs parameters of type
///        ::umf_devdax_memory_provider_params_handle_t.
///
/// Creation gives ::UMF_RESULT_ERROR_INVALID_ARGUMENT if the size is 0, less than a page or more
/// than the device has, if the path does not begin with /dev/dax, or if there is no character
/// device that can be opened; ::UMF_RESULT_ERROR_UNKNOWN if it cannot be mapped synchronously.
///
/// @return constant data of the library; NULL on systems other than Linux
const umf_memory_provider_ops_t *umfDevDaxMemoryProviderOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_DEVDAX_MEMORY_PROVIDER_H */
