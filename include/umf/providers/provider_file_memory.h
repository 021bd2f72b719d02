/** @file
 * The file provider: memory in a file, on a disk, in memory (tmpfs) or on persistent memory. Its
 * name is "FILE" unless another is set.
 *
 * The provider opens the file when it is created, and makes it with mode 0600 if there is none. The
 * file is 2 MiB long at first and grows as needed. It never becomes shorter, not even at the end,
 * and is never removed. A longer file keeps its length and content: allocations begin at its start
 * and show its content, so memory does not in general read as zero.
 *
 * With visibility UMF_MEM_MAP_PRIVATE (the default) writes stay in the process, and the file itself
 * is never written. With UMF_MEM_MAP_SHARED they change the file, and other processes that can open
 * its path can open the memory through umf/ipc.h. The handle names the path, made absolute at
 * creation, and the file's identity: a file that has taken its place is refused.
 *
 * Only one provider, in one process, may allocate from a file at a time. Others, also on the same
 * path, may open handles. After a fork that means either the parent or the child. Nothing checks
 * that: two that allocate from one file get the same bytes.
 *
 * Each allocation has its space on the disk. If the disk is full, allocating fails, allocations are
 * not affected, and allocating works again after room was made. File systems that cannot reserve
 * space (NFS before 4.2) are the exception: there a write to memory may end the process with
 * SIGBUS. So does memory of a file that another program shortens.
 *
 * Memory is handed out in whole pages: of 2 MiB if it is shared and the file system is on
 * persistent memory and mapped directly (FSDAX), otherwise of the system. An alignment is 0 (a
 * page) or a power of two; any other gives UMF_RESULT_ERROR_INVALID_ALIGNMENT. Size 0 and a size
 * that cannot be rounded up give UMF_RESULT_ERROR_INVALID_ARGUMENT, a file that cannot grow
 * UMF_RESULT_ERROR_UNKNOWN. Freeing, splitting or merging anything but an allocation of that size
 * gives UMF_RESULT_ERROR_INVALID_ARGUMENT. Freed memory is used again.
 *
 * The provider cannot purge lazily. Purging by force makes whole pages of shared memory read as
 * zero, and those of private memory as the file.
 *
 * Parameters are created, set, and copied by umfMemoryProviderCreate. They may be destroyed or
 * reused directly afterwards. Two threads must not use one parameter object at once.
 */
#ifndef UMF_FILE_MEMORY_PROVIDER_H
#define UMF_FILE_MEMORY_PROVIDER_H 1

#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief First native code of this kind of provider.
#define UMF_FILE_RESULTS_START_FROM 3000

/// @brief Parameters of a file provider.
typedef struct umf_file_memory_provider_params_t *umf_file_memory_provider_params_handle_t;

/// @brief Native codes, as ::umfMemoryProviderGetLastNativeError gives them.
typedef enum umf_file_memory_provider_native_error {
    /// "success"
    UMF_FILE_RESULT_SUCCESS = UMF_FILE_RESULTS_START_FROM,
    /// "memory allocation failed": mapping the memory of an IPC handle
    UMF_FILE_RESULT_ERROR_ALLOC_FAILED = 3001,
    /// "memory deallocation failed": closing opened memory
    UMF_FILE_RESULT_ERROR_FREE_FAILED = 3002,
    /// "force purging failed"
    UMF_FILE_RESULT_ERROR_PURGE_FORCE_FAILED = 3003
} umf_file_memory_provider_native_error_t;

/// @brief Creates parameters: read and write, private, named "FILE".
///
/// @param path of the file; copied. It is opened when a provider is created.
/// @param hParams [out] parameters, to be destroyed by ::umfFileMemoryProviderParamsDestroy;
///        written only on success
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or the
///         path is empty; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfFileMemoryProviderParamsCreate(const char *path,
                                               umf_file_memory_provider_params_handle_t *hParams);

/// @brief Destroys parameters. Providers made from them are not affected, nor is the file.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfFileMemoryProviderParamsDestroy(umf_file_memory_provider_params_handle_t hParams);

/// @brief Sets another path.
///
/// @param hParams parameters
/// @param path of the file; copied
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or the
///         path is empty; the old path stays then
umf_result_t umfFileMemoryProviderParamsSetPath(umf_file_memory_provider_params_handle_t hParams,
                                                const char *path);

/// @brief Sets how the memory may be accessed. Default: ::UMF_PROTECTION_READ and
///        ::UMF_PROTECTION_WRITE.
///
/// @param hParams parameters
/// @param protection combination of ::umf_mem_protection_flag_t; checked when a provider is
///        created. 0 is no access.
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t
umfFileMemoryProviderParamsSetProtection(umf_file_memory_provider_params_handle_t hParams,
                                         unsigned protection);

/// @brief Sets whether the memory is the file's own. Default: ::UMF_MEM_MAP_PRIVATE.
///
/// @param hParams parameters
/// @param visibility ::UMF_MEM_MAP_PRIVATE or ::UMF_MEM_MAP_SHARED; checked when a provider is
///        created
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t
umfFileMemoryProviderParamsSetVisibility(umf_file_memory_provider_params_handle_t hParams,
                                         umf_memory_visibility_t visibility);

/// @brief The table of this kind for ::umfMemoryProviderCreate, which needs parameters of type
///        ::umf_file_memory_provider_params_handle_t.
///
/// Creation gives ::UMF_RESULT_ERROR_INVALID_ARGUMENT if protection or visibility are none, or the
/// file cannot be opened to read and write or is not a regular file; ::UMF_RESULT_ERROR_UNKNOWN if
/// it cannot be given its first 2 MiB.
///
/// @return constant data of the library; NULL on systems other than Linux
const umf_memory_provider_ops_t *umfFileMemoryProviderOps(void);

/// @brief Sets the provider's name. Default: "FILE".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfFileMemoryProviderParamsSetName(umf_file_memory_provider_params_handle_t hParams,
                                                const char *name);

#ifdef __cplusplus
}
#endif

#endif /* UMF_FILE_MEMORY_PROVIDER_H */
