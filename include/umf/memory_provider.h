/** @file
 * Memory providers: sources of memory in whole pages.
 *
 * Use one directly, or put a pool on top (umf/memory_pool.h). The kinds that come with the library
 * are in umf/providers/; umf/memory_provider_ops.h shows how to write another.
 *
 * Rules for all functions here:
 * - Several threads may use a provider at once, if its own operations allow it (those of the
 *   library do). Destroying it while another thread uses it is not allowed.
 * - No function is async-signal-safe.
 * - Sizes and alignments are in bytes.
 * - A NULL handle or a NULL output pointer gives UMF_RESULT_ERROR_INVALID_ARGUMENT, and so do the
 *   arguments each function lists. Otherwise the result is the provider's own.
 * - Outputs are written only on success.
 * - A function whose operation fails in the provider records it for umfGetLastFailedMemoryProvider.
 */
#ifndef UMF_MEMORY_PROVIDER_H
#define UMF_MEMORY_PROVIDER_H 1

#include <umf/memory_provider_ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A memory provider.
typedef struct umf_memory_provider_t *umf_memory_provider_handle_t;

/// @brief Visibility of writes to mapped memory.
typedef enum umf_memory_visibility_t {
    /// Only this process.
    UMF_MEM_MAP_PRIVATE = 1,
    /// Every process that maps it; needed to share memory through umf/ipc.h.
    UMF_MEM_MAP_SHARED = 2
} umf_memory_visibility_t;

/// @brief Access to mapped memory: flags, combined in an unsigned.
typedef enum umf_mem_protection_flag_t {
    /// No access.
    UMF_PROTECTION_NONE = (1 << 0),
    /// The memory can be read.
    UMF_PROTECTION_READ = (1 << 1),
    /// The memory can be written.
    UMF_PROTECTION_WRITE = (1 << 2),
    /// The memory can be executed.
    UMF_PROTECTION_EXEC = (1 << 3),
    /// One more than the last flag; not a flag.
    UMF_PROTECTION_MAX
} umf_mem_protection_flag_t;

/// @brief Creates a provider.
///
/// The steps: the table is checked, `initialize` gets `params`, `get_name` is called once, settings
/// stored for that name (umf/experimental/ctl.h) are applied, and `ext_ctl` is run with
/// "post_initialize".
///
/// @param ops table of the kind of provider; it is copied
/// @param params parameters of that kind, passed on unchanged; not needed after the call
/// @param hProvider [out] the provider, to be destroyed by ::umfMemoryProviderDestroy
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `ops` or `hProvider` is NULL, if a required
///         operation is missing, or if only some operations of a group are there (split and merge;
///         the five for IPC; the two for properties);
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the version of the table is not known;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY if there is no memory for metadata;
///         otherwise the error of `initialize`, `get_name` or `post_initialize`. After a failure
///         nothing remains: an initialized provider has been finalized.
umf_result_t umfMemoryProviderCreate(const umf_memory_provider_ops_t *ops, const void *params,
                                     umf_memory_provider_handle_t *hProvider);

/// @brief Destroys a provider. Pools that use it must be destroyed before.
///
/// A use after the destroy is refused for a while, as ::umfPoolDestroy says.
///
/// @param hProvider NULL is allowed; invalid afterwards, except in the two refusals named below
/// @return ::UMF_RESULT_SUCCESS, or the result of the provider's `finalize`.
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if a pool still uses it: nothing is done.
///         ::UMF_RESULT_ERROR_UNKNOWN after the library was torn down: the handle is not touched.
umf_result_t umfMemoryProviderDestroy(umf_memory_provider_handle_t hProvider);

/// @brief Allocates memory.
///
/// @param hProvider provider
/// @param size at least this many bytes; the provider defines the meaning of 0 (those of the
///        library refuse it)
/// @param alignment of the address; 0 leaves the choice to the provider
/// @param ptr [out] the memory, to be freed by ::umfMemoryProviderFree
/// @return the provider's result
umf_result_t umfMemoryProviderAlloc(umf_memory_provider_handle_t hProvider, size_t size,
                                    size_t alignment, void **ptr);

/// @brief Gives memory back to the provider it came from.
///
/// Address and size are not checked by all providers: the OS provider frees any range.
///
/// @param hProvider provider
/// @param ptr result of ::umfMemoryProviderAlloc, or a part made by a split or merge. The built-in
///        providers accept NULL and do nothing.
/// @param size as allocated, split or merged
/// @return the provider's result; on failure the memory stays allocated
umf_result_t umfMemoryProviderFree(umf_memory_provider_handle_t hProvider, void *ptr, size_t size);

/// @brief Tells more about the last operation that returned
///        ::UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC in this thread.
///
/// Meaningful only before the next operation on a provider of the same kind. Per thread.
///
/// @param hProvider provider
/// @param ppMessage [out] text owned by the provider, valid until the next operation of this kind
///        of provider in this thread
/// @param pError [out] native code: of the provider's kind (its header lists them) or of a driver
/// @return the provider's result
umf_result_t umfMemoryProviderGetLastNativeError(umf_memory_provider_handle_t hProvider,
                                                 const char **ppMessage, int32_t *pError);

/// @brief The page size best suited for allocations of a given size.
///
/// @param hProvider provider
/// @param size of the allocations
/// @param pageSize [out] bytes; 0 if the provider has no advice
/// @return the provider's result
umf_result_t umfMemoryProviderGetRecommendedPageSize(umf_memory_provider_handle_t hProvider,
                                                     size_t size, size_t *pageSize);

/// @brief The smallest page size of an allocation, or of all allocations.
///
/// @param hProvider provider
/// @param ptr an allocation of this provider, or NULL for the smallest of all
/// @param pageSize [out] bytes
/// @return the provider's result
umf_result_t umfMemoryProviderGetMinPageSize(umf_memory_provider_handle_t hProvider,
                                             const void *ptr, size_t *pageSize);

/// @brief Distance that keeps two objects from sharing a cache line.
///
/// @param hProvider provider
/// @param size [out] bytes; 64 for providers written before the question existed
/// @return the provider's result
umf_result_t umfMemoryProviderGetCacheLineSize(umf_memory_provider_handle_t hProvider,
                                               size_t *size);

/// @brief Allows the system to drop the contents of a range at some later time. The memory stays
///        usable: until it is written again a read gives the old contents or zeros.
///
/// @param hProvider provider
/// @param ptr start of the range, inside an allocation; not NULL
/// @param size of the range
/// @return the provider's result; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot purge lazily
umf_result_t umfMemoryProviderPurgeLazy(umf_memory_provider_handle_t hProvider, void *ptr,
                                        size_t size);

/// @brief Drops the contents of a range now. The memory stays usable.
///
/// @param hProvider provider
/// @param ptr start of the range, inside an allocation; not NULL
/// @param size of the range
/// @return the provider's result; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot purge
umf_result_t umfMemoryProviderPurgeForce(umf_memory_provider_handle_t hProvider, void *ptr,
                                         size_t size);

/// @brief Bytes needed by ::umfMemoryProviderGetIPCHandle; the same for all allocations of the
///        provider.
///
/// @param hProvider provider
/// @param size [out] bytes
/// @return the provider's result; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot share memory
umf_result_t umfMemoryProviderGetIPCHandleSize(umf_memory_provider_handle_t hProvider,
                                               size_t *size);

/// @brief Describes an allocation so that another process can map it.
///
/// This is the raw form of the provider; umf/ipc.h is the convenient one.
///
/// @param hProvider provider
/// @param ptr start of an allocation; not NULL
/// @param size of the allocation; not 0
/// @param providerIpcData [out] ::umfMemoryProviderGetIPCHandleSize bytes in memory of the caller,
///        free to be copied. Release with ::umfMemoryProviderPutIPCHandle before the allocation is
///        freed.
/// @return the provider's result; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot share memory
umf_result_t umfMemoryProviderGetIPCHandle(umf_memory_provider_handle_t hProvider, const void *ptr,
                                           size_t size, void *providerIpcData);

/// @brief Releases the resources of a description. Only in the process that got it.
///
/// @param hProvider provider that described the allocation
/// @param providerIpcData the description; the buffer stays the caller's; not NULL
/// @return the provider's result; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot share memory
umf_result_t umfMemoryProviderPutIPCHandle(umf_memory_provider_handle_t hProvider,
                                           void *providerIpcData);

/// @brief Maps an allocation described by a provider of the same kind, usually of another process.
///
/// @param hProvider provider of the same kind
/// @param providerIpcData the description; not NULL
/// @param ptr [out] start of the allocation as mapped here; unmap with
///        ::umfMemoryProviderCloseIPCHandle
/// @return the provider's result; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot share memory
umf_result_t umfMemoryProviderOpenIPCHandle(umf_memory_provider_handle_t hProvider,
                                            void *providerIpcData, void **ptr);

/// @brief Unmaps memory mapped by ::umfMemoryProviderOpenIPCHandle.
///
/// @param hProvider provider it was opened with
/// @param ptr result of the open; not NULL
/// @param size of the allocation; not 0
/// @return the provider's result; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot share memory
umf_result_t umfMemoryProviderCloseIPCHandle(umf_memory_provider_handle_t hProvider, void *ptr,
                                             size_t size);

/// @brief The provider's name.
///
/// @param hProvider provider
/// @param name [out] owned by the provider, valid while it lives
/// @return the provider's result
umf_result_t umfMemoryProviderGetName(umf_memory_provider_handle_t hProvider, const char **name);

/// @brief The provider whose operation was the last to fail in this thread.
///
/// Recorded by every operation that calls the provider, except creation, destruction and
/// ::umfMemoryProviderGetLastNativeError; not cleared by later successes. After a failure inside a
/// pool it may be the pool's own handle for the provider: compare names, not handles.
///
/// @param provider [out] NULL if nothing failed yet
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `provider` is NULL
umf_result_t umfGetLastFailedMemoryProvider(umf_memory_provider_handle_t *provider);

/// @brief Makes two allocations of one: `firstSize` bytes at `ptr` and the rest after them. Each is
///        freed by itself. The built-in providers refuse a split into parts that they could not
///        free one by one, such as half a page of the `os` provider.
///
/// @param hProvider provider
/// @param ptr the allocation; not NULL
/// @param totalSize its size; not 0
/// @param firstSize size of the first part; above 0 and below `totalSize`
/// @return the provider's result; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot split
umf_result_t umfMemoryProviderAllocationSplit(umf_memory_provider_handle_t hProvider, void *ptr,
                                              size_t totalSize, size_t firstSize);

/// @brief Makes one allocation of two neighbours.
///
/// @param hProvider provider
/// @param lowPtr the first; not NULL
/// @param highPtr the second, which begins where the first ends: above `lowPtr`, below
///        `lowPtr + totalSize`
/// @param totalSize size of both; not 0
/// @return the provider's result; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot merge
umf_result_t umfMemoryProviderAllocationMerge(umf_memory_provider_handle_t hProvider, void *lowPtr,
                                              void *highPtr, size_t totalSize);

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMORY_PROVIDER_H */
