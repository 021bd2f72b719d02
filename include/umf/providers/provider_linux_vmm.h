/** @file
 * The linux_vmm provider: memory of the host whose physical memory can be released and brought back
 * at the same addresses (umf/suspend.h). Its name is "LINUX_VMM" unless another is set.
 *
 * Memory comes in pieces, each an anonymous memory file mapped into reserved addresses. Allocations
 * are whole pages of the system, cut out of pieces. A piece is returned to the system when nothing
 * in it is allocated any more. Fresh memory reads as zero, memory used again does not.
 *
 * After a fork parent and child have the same memory, its free parts included. So only one of the
 * two may go on with the provider and its allocations.
 *
 * An alignment is 0 (a page) or a power of two; any other gives UMF_RESULT_ERROR_INVALID_ALIGNMENT.
 * When the system has no memory or no file descriptor left, an allocation gives
 * UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY. Allocations can be split at pages and merged again.
 *
 * Memory can be shared with other processes of the machine (umf/ipc.h), which take the descriptor
 * of its piece from this one; docs/guide/sharing.md has the permissions. A piece is mapped as a
 * whole, so a consumer can access the other allocations in it. A handle is valid until its memory
 * is freed, split, merged or suspended, and is refused from then on. Memory opened before stays
 * mapped, and keeps the piece's memory, until it is closed. After a resume the producer has new
 * memory, and needs new handles. A handle that is requested while the pool is suspended gives
 * UMF_RESULT_ERROR_OUT_OF_RESOURCES.
 *
 * Parameters are created, set, and copied by umfMemoryProviderCreate. They may be destroyed or
 * reused directly afterwards. Two threads must not use one parameter object at once.
 */
#ifndef UMF_LINUX_VMM_MEMORY_PROVIDER_H
#define UMF_LINUX_VMM_MEMORY_PROVIDER_H 1

#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Parameters of a linux_vmm provider.
typedef struct umf_linux_vmm_memory_provider_params_t
    *umf_linux_vmm_memory_provider_params_handle_t;

/// @brief Creates parameters with defaults.
///
/// @param hParams [out] parameters, to be destroyed by ::umfLinuxVmmMemoryProviderParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t
umfLinuxVmmMemoryProviderParamsCreate(umf_linux_vmm_memory_provider_params_handle_t *hParams);

/// @brief Destroys parameters. Providers made from them are not affected.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS
umf_result_t
umfLinuxVmmMemoryProviderParamsDestroy(umf_linux_vmm_memory_provider_params_handle_t hParams);

/// @brief Sets the smallest piece. Default: 64 MiB.
///
/// A piece costs a file descriptor; untouched pages in it cost no memory.
///
/// @param hParams parameters
/// @param size in bytes, not 0; rounded up to pages
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or 0
umf_result_t
umfLinuxVmmMemoryProviderParamsSetPieceSize(umf_linux_vmm_memory_provider_params_handle_t hParams,
                                            size_t size);

/// @brief Sets the provider's name. Default: "LINUX_VMM".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t
umfLinuxVmmMemoryProviderParamsSetName(umf_linux_vmm_memory_provider_params_handle_t hParams,
                                       const char *name);

/// @brief The table of this kind for ::umfMemoryProviderCreate, which takes parameters of type
///        ::umf_linux_vmm_memory_provider_params_handle_t, or NULL for defaults.
///
/// @return constant data of the library; NULL if it was built for a system without this provider
const umf_memory_provider_ops_t *umfLinuxVmmMemoryProviderOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_LINUX_VMM_MEMORY_PROVIDER_H */
