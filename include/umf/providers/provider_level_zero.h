/** @file
 * The Level Zero provider: host, device and shared memory of one Level Zero context, through the
 * loader, libze_loader.so.1. Its name is "LEVEL_ZERO" unless another is set.
 *
 * The loader is found at run time and never linked. Where it is missing, creating a provider gives
 * UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE; parameters work without it. In a library that was built
 * without this provider every function here gives UMF_RESULT_ERROR_NOT_SUPPORTED and the table is
 * NULL.
 *
 * Device memory can be shared with other processes (umf/ipc.h) by handles of the driver, or, with
 * the setting params.use_import_export_for_IPC (umf/experimental/ctl.h), as an exported DMA buffer.
 * Either way a descriptor travels, for which the consumer needs the permission to attach to the
 * producer, or to reach its broker (the setting umf.ipc.transports). A handle of memory that was
 * freed is refused; opened memory stays usable.
 *
 * After ::UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC, ::umfMemoryProviderGetLastNativeError gives
 * the `ze_result_t` with its name and meaning.
 *
 * Parameters are created, set, and copied by umfMemoryProviderCreate. They may be destroyed or
 * reused directly afterwards. Two threads must not use one parameter object at once.
 */
#ifndef UMF_LEVEL_ZERO_PROVIDER_H
#define UMF_LEVEL_ZERO_PROVIDER_H 1

#include <stdbool.h>

#include <umf/memory_provider_gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A device, as in Level Zero's own header.
typedef struct _ze_device_handle_t *ze_device_handle_t;

/// @brief A context, as in Level Zero's own header.
typedef struct _ze_context_handle_t *ze_context_handle_t;

/// @brief Parameters of a Level Zero provider.
typedef struct umf_level_zero_memory_provider_params_t
    *umf_level_zero_memory_provider_params_handle_t;

/// @brief Policy of a free for memory that work on the device still uses.
typedef enum umf_level_zero_memory_provider_free_policy_t {
    /// The driver's own policy: wait before you free.
    UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFAULT = 0,
    /// A free waits for that work.
    UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_BLOCKING_FREE = 1,
    /// A free returns at once; the memory is released when that work has completed.
    UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFER_FREE = 2
} umf_level_zero_memory_provider_free_policy_t;

/// @brief Creates parameters: no context, no device, no memory type.
///
/// @param hParams [out] parameters, to be destroyed by ::umfLevelZeroMemoryProviderParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t
umfLevelZeroMemoryProviderParamsCreate(umf_level_zero_memory_provider_params_handle_t *hParams);

/// @brief Destroys parameters. Providers made from them are not affected.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t
umfLevelZeroMemoryProviderParamsDestroy(umf_level_zero_memory_provider_params_handle_t hParams);

/// @brief Sets the context whose memory is allocated.
///
/// @param hParams parameters
/// @param hContext not NULL; it must outlive the providers made from these parameters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t
umfLevelZeroMemoryProviderParamsSetContext(umf_level_zero_memory_provider_params_handle_t hParams,
                                           ze_context_handle_t hContext);

/// @brief Sets the device whose memory is allocated.
///
/// @param hParams parameters
/// @param hDevice NULL for host memory, which belongs to no device
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t
umfLevelZeroMemoryProviderParamsSetDevice(umf_level_zero_memory_provider_params_handle_t hParams,
                                          ze_device_handle_t hDevice);

/// @brief Sets the kind of memory: host, device or shared.
///
/// @param hParams parameters
/// @param memoryType not ::UMF_MEMORY_TYPE_UNKNOWN, which is the default and which creation
///        refuses; checked when a provider is created
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t umfLevelZeroMemoryProviderParamsSetMemoryType(
    umf_level_zero_memory_provider_params_handle_t hParams, umf_usm_memory_type_t memoryType);

/// @brief Sets the devices on which every allocation is made resident. Default: none.
///
/// @param hParams parameters
/// @param hDevices read when a provider is created: the caller keeps the array until then
/// @param deviceCount length of the array; 0 for none
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL, if the
///         array is NULL with a count above 0, or if it names a device twice;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t umfLevelZeroMemoryProviderParamsSetResidentDevices(
    umf_level_zero_memory_provider_params_handle_t hParams, ze_device_handle_t *hDevices,
    uint32_t deviceCount);

/// @brief Sets the policy of a free for memory that work still uses.
///
/// @param hParams parameters
/// @param policy default: ::UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFAULT
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t umfLevelZeroMemoryProviderParamsSetFreePolicy(
    umf_level_zero_memory_provider_params_handle_t hParams,
    umf_level_zero_memory_provider_free_policy_t policy);

/// @brief Sets which memory of the device is used, by its ordinal. Default: 0.
///
/// @param hParams parameters
/// @param deviceOrdinal ordinal of the memory
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t umfLevelZeroMemoryProviderParamsSetDeviceOrdinal(
    umf_level_zero_memory_provider_params_handle_t hParams, uint32_t deviceOrdinal);

/// @brief Sets the provider's name. Default: "LEVEL_ZERO".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t
umfLevelZeroMemoryProviderParamsSetName(umf_level_zero_memory_provider_params_handle_t hParams,
                                        const char *name);

/// @brief Adds a device to those on which memory is resident, or removes one.
///
/// Every living allocation of the provider that a tracking pool made is made resident on the device
/// or evicted from it; later allocations follow. Memory allocated directly from the provider, or by
/// a pool that does not track, stays as it is. If the driver fails for one allocation the others
/// still follow, and the device counts as added or removed.
///
/// Thread-safe; changes of one provider are made one after the other. An allocation that runs at
/// the same time follows the devices before or after the change.
///
/// @param provider a Level Zero provider
/// @param device to add or to remove
/// @param is_adding true to add
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, if the
///         provider is of another kind, if the device is there already or is not there;
///         ::UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC if the driver fails;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, and nothing has changed;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t umfLevelZeroMemoryProviderResidentDeviceChange(umf_memory_provider_handle_t provider,
                                                            ze_device_handle_t device,
                                                            bool is_adding);

/// @brief The table of this kind for ::umfMemoryProviderCreate, which needs parameters of type
///        ::umf_level_zero_memory_provider_params_handle_t.
///
/// @return constant data of the library; NULL if it was built without this provider
const umf_memory_provider_ops_t *umfLevelZeroMemoryProviderOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_LEVEL_ZERO_PROVIDER_H */
