/** @file
 * The level_zero_vmm provider: memory of one device, through Level Zero's virtual memory. Its name
 * is "LEVEL_ZERO_VMM" unless another is set.
 *
 * Addresses and physical memory are separate: pools on this provider can be suspended and resumed
 * (umf/suspend.h), and allocations can be split and merged. The memory cannot be shared with other
 * processes, since Level Zero has no way to give physical memory to another process: IPC gives
 * UMF_RESULT_ERROR_NOT_SUPPORTED. The Level Zero provider can share.
 *
 * Sizes are rounded up to the driver's page size for large memory, 2 MiB on current GPUs. Memory
 * comes in pieces, each one physical memory of the driver: a large allocation is one piece, small
 * ones share pieces of the piece size. A piece is returned to the driver when nothing in it is
 * allocated any more.
 *
 * If memory is released while work uses it, the device is lost. So before freed memory is returned
 * to the driver, the provider waits for all work on its device, and on the devices of the driver
 * that can access it. A suspend that names neither queues (`ze_command_queue_handle_t`) nor events
 * (`ze_event_handle_t`) waits in the same way. The specification of Level Zero has no such wait: it
 * needs a driver with the extension function `zeDeviceSynchronize`, which Intel's newer ones have,
 * and a loader from 1.3 on. With other drivers the provider waits only for the queues and events
 * named in a suspend:
 * the thread that frees, trims or destroys a pool, or suspends without names, must have waited
 * before. While a capture that the program has announced (umf/capture.h) is under way, the provider
 * does not wait, and freed memory stays mapped until it can.
 *
 * A wait does not return while work on the device waits for an event that only the waiting thread
 * would signal. ::UMF_LEVEL_ZERO_VMM_FREE_POLICY_IMMEDIATE is for programs that do so, and for all
 * that have waited when they free.
 *
 * The loader, libze_loader.so.1, is found at run time and never linked. Where it is missing, or too
 * old for virtual memory, creating a provider gives UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE. In a
 * library that was built without Level Zero every function here gives
 * UMF_RESULT_ERROR_NOT_SUPPORTED and the table is NULL.
 *
 * Too little memory of the device gives UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY. All other results of
 * the driver are those of the Level Zero provider (umf/providers/provider_level_zero.h).
 *
 * Parameters are created, set, and copied by umfMemoryProviderCreate. They may be destroyed or
 * reused directly afterwards. Two threads must not use one parameter object at once.
 */
#ifndef UMF_LEVEL_ZERO_VMM_MEMORY_PROVIDER_H
#define UMF_LEVEL_ZERO_VMM_MEMORY_PROVIDER_H 1

#include <umf/providers/provider_level_zero.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Parameters of a level_zero_vmm provider.
typedef struct umf_level_zero_vmm_memory_provider_params_t
    *umf_level_zero_vmm_memory_provider_params_handle_t;

/// @brief Policy for freed memory before it is returned to the driver.
typedef enum umf_level_zero_vmm_free_policy_t {
    /// The provider waits for the device, if the driver can: see the head of this file.
    UMF_LEVEL_ZERO_VMM_FREE_POLICY_WAIT = 0,
    /// Nothing: the thread that frees has waited for all work that uses the memory.
    UMF_LEVEL_ZERO_VMM_FREE_POLICY_IMMEDIATE = 1
} umf_level_zero_vmm_free_policy_t;

/// @brief Creates parameters: memory of the first GPU, in a context of the provider's own.
///
/// @param hParams [out] parameters, to be destroyed by
///        ::umfLevelZeroVmmMemoryProviderParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without Level Zero
umf_result_t umfLevelZeroVmmMemoryProviderParamsCreate(
    umf_level_zero_vmm_memory_provider_params_handle_t *hParams);

/// @brief Destroys parameters. Providers made from them are not affected.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without Level Zero
umf_result_t umfLevelZeroVmmMemoryProviderParamsDestroy(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams);

/// @brief Takes memory of a device of the program's, in its context: the one in which the program
///        uses the memory.
///
/// @param hParams parameters
/// @param hContext outlives the provider
/// @param hDevice of the context's driver
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without Level Zero
umf_result_t umfLevelZeroVmmMemoryProviderParamsSetContext(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, ze_context_handle_t hContext,
    ze_device_handle_t hDevice);

/// @brief Takes memory of a device by its number, in a context that the provider makes; the
///        property ::UMF_MEMORY_PROPERTY_CONTEXT of its memory is this context. A context that was
///        set before is dropped.
///
/// @param hParams parameters
/// @param number of the device, counted from 0 over the GPUs of its driver
///        (::umfLevelZeroVmmMemoryProviderParamsSetDriver), as that lists them; checked when a
///        provider is created
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without Level Zero
umf_result_t umfLevelZeroVmmMemoryProviderParamsSetDevice(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, unsigned number);

/// @brief Sets the driver that the numbers of devices belong to. Default: the first driver that has
///        a GPU. A context that was set before is dropped.
///
/// Devices of two drivers share no context, so each driver has numbers of its own: those of this
/// provider's device and of other devices that keep content while a pool is suspended
/// (umf_suspend_policy_t).
///
/// @param hParams parameters
/// @param number of the driver, counted from 0 as the loader lists them; checked when a provider is
///        created
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without Level Zero
umf_result_t umfLevelZeroVmmMemoryProviderParamsSetDriver(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, unsigned number);

/// @brief Whether numbers count devices that are no GPUs, too, such as an NPU. Default: no.
///
/// @param hParams parameters
/// @param isCounted not 0: they count
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without Level Zero
umf_result_t umfLevelZeroVmmMemoryProviderParamsSetAnyDevice(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, int isCounted);

/// @brief Sets the policy for freed memory before it is returned to the driver.
///
/// @param hParams parameters
/// @param policy default: ::UMF_LEVEL_ZERO_VMM_FREE_POLICY_WAIT
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or the
///         value none of the enum;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without Level Zero
umf_result_t umfLevelZeroVmmMemoryProviderParamsSetFreePolicy(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams,
    umf_level_zero_vmm_free_policy_t policy);

/// @brief Sets the smallest piece. Default: the driver's page size.
///
/// Large pieces are faster to map. Free memory in a piece is held until all of the piece is free.
///
/// @param hParams parameters
/// @param size in bytes, not 0; rounded up to the page size
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or 0;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without Level Zero
umf_result_t umfLevelZeroVmmMemoryProviderParamsSetPieceSize(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, size_t size);

/// @brief Sets the provider's name. Default: "LEVEL_ZERO_VMM".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without Level Zero
umf_result_t umfLevelZeroVmmMemoryProviderParamsSetName(
    umf_level_zero_vmm_memory_provider_params_handle_t hParams, const char *name);

/// @brief The table of this kind for ::umfMemoryProviderCreate, which needs parameters of type
///        ::umf_level_zero_vmm_memory_provider_params_handle_t.
///
/// @return constant data of the library; NULL if it was built without Level Zero
const umf_memory_provider_ops_t *umfLevelZeroVmmMemoryProviderOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_LEVEL_ZERO_VMM_MEMORY_PROVIDER_H */
