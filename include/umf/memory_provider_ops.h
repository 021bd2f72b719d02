/** @file
 * The operations of a memory provider: the interface to plug in a source of memory.
 *
 * Fill a table, hand it to umfMemoryProviderCreate. The table is copied; its functions must stay
 * callable while a provider made from it lives. Pools call them from many threads at once, so they
 * must be thread-safe. No lock of the library is held while one runs.
 *
 * An operation may call the pool that called it. A scalable pool then serves only objects from the
 * cache of the thread, see umf/pools/pool_scalable.h.
 */
#ifndef UMF_MEMORY_PROVIDER_OPS_H
#define UMF_MEMORY_PROVIDER_OPS_H 1

#include <stdarg.h>

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Version of ::umf_memory_provider_ops_t as declared here.
#define UMF_PROVIDER_OPS_VERSION_CURRENT UMF_MAKE_VERSION(1, 2)

/// @brief Operations of a memory provider.
///
/// The order of the members is binary interface; new ones are only appended, and an older `version`
/// says that the table ends earlier. Members named `ext_` are optional: NULL means that the
/// provider does not offer the operation, which callers then see as
/// ::UMF_RESULT_ERROR_NOT_SUPPORTED. All others are required.
///
/// Unless said otherwise `provider` is the value stored by `initialize`, sizes and alignments are
/// in bytes, outputs are written only on success, and any result code may be returned.
typedef struct umf_memory_provider_ops_t {
    /// ::UMF_PROVIDER_OPS_VERSION_CURRENT of the headers the table was compiled with.
    uint32_t version;

    /// @brief Makes the provider.
    ///
    /// @param params the argument of ::umfMemoryProviderCreate, unchanged and perhaps NULL. It may
    ///        be gone after the call: copy the members that are needed.
    /// @param provider [out] the provider's own data, given to all other operations; may be NULL
    /// @return anything but ::UMF_RESULT_SUCCESS fails the creation; no other operation follows
    umf_result_t (*initialize)(const void *params, void **provider);

    /// @brief Ends the provider and releases its data. Called once after each successful
    ///        `initialize`.
    ///
    /// @return result of ::umfMemoryProviderDestroy; the handle is gone in any case
    umf_result_t (*finalize)(void *provider);

    /// @brief Allocates at least `size` bytes.
    ///
    /// After ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY and ::UMF_RESULT_ERROR_OUT_OF_RESOURCES the
    /// pools of the library make memory available and try again (umf/reclaim.h); after any other
    /// result they do so only if `is_shortage` of the kind (umf/plugin.h) reports that memory was
    /// missing.
    ///
    /// The pools of the library do not believe everything: NULL with success means that there is no
    /// memory, except for size 0. Memory that is not aligned as requested, and to 8 bytes at least,
    /// is freed and refused; if the choice was the provider's, it first gets a request for 8 bytes.
    /// Memory that overlaps an earlier allocation of the provider is refused, and not freed. If two
    /// threads get memory that overlaps at the same moment, one is refused where both begin at the
    /// same address. Elsewhere both may be accepted; a free of either may then be refused, and its
    /// memory stays allocated until the pool ends.
    ///
    /// @param size any value, 0 included
    /// @param alignment of the address; 0 leaves the choice to the provider
    /// @param ptr [out] the memory
    umf_result_t (*alloc)(void *provider, size_t size, size_t alignment, void **ptr);

    /// @brief Gives memory back.
    ///
    /// @param ptr from `alloc` or made by a split or merge, or NULL
    /// @param size of that allocation, or 0 if the caller has no record of it and the provider
    ///        allows that
    /// @return on failure the memory stays allocated
    umf_result_t (*free)(void *provider, void *ptr, size_t size);

    /// @brief Details of the last ::UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC in this thread.
    ///
    /// @param ppMessage [out] text, readable at least until the next operation of this kind of
    ///        provider in this thread
    /// @param pError [out] the native code
    umf_result_t (*get_last_native_error)(void *provider, const char **ppMessage, int32_t *pError);

    /// @brief The page size best suited for allocations of `size` bytes.
    ///
    /// @param pageSize [out] bytes; 0 means no advice
    umf_result_t (*get_recommended_page_size)(void *provider, size_t size, size_t *pageSize);

    /// @brief The smallest page size. Success with 0, or without a value, means the system's page
    ///        to the pools of the library.
    ///
    /// @param ptr an allocation of this provider, or NULL for the smallest of all allocations
    /// @param pageSize [out] bytes
    umf_result_t (*get_min_page_size)(void *provider, const void *ptr, size_t *pageSize);

    /// @brief The provider's name, used in messages and for settings by name.
    ///
    /// @param provider may be NULL: then the name that every provider of this kind has by default
    /// @param name [out] owned by the provider, valid for its lifetime. Up to 64 characters out of
    ///        [A-Za-z0-9_-]; others work but give a warning.
    umf_result_t (*get_name)(void *provider, const char **name);

    /// @brief The contents of the range are not needed any more and may disappear at a later time.
    ///        The memory stays usable.
    umf_result_t (*ext_purge_lazy)(void *provider, void *ptr, size_t size);

    /// @brief The contents of the range are dropped now. The memory stays usable.
    umf_result_t (*ext_purge_force)(void *provider, void *ptr, size_t size);

    /// @brief Joins two neighbours into one allocation. Present if and only if the split is.
    ///
    /// @param lowPtr first part, directly followed by the second
    /// @param highPtr second part
    /// @param totalSize of both
    umf_result_t (*ext_allocation_merge)(void *hProvider, void *lowPtr, void *highPtr,
                                         size_t totalSize);

    /// @brief Makes two allocations of one, each to be freed by itself. Present if and only if the
    ///        merge is.
    ///
    /// @param ptr the allocation
    /// @param totalSize its size
    /// @param firstSize size of the first part, which stays at `ptr`
    umf_result_t (*ext_allocation_split)(void *hProvider, void *ptr, size_t totalSize,
                                         size_t firstSize);

    /// @brief Bytes that describe one allocation to another process. The same for every allocation
    ///        of this provider. The five IPC operations are present together or not at all.
    umf_result_t (*ext_get_ipc_handle_size)(void *provider, size_t *size);

    /// @brief Describes the allocation at `ptr` to other processes.
    ///
    /// @param ptr start of an allocation
    /// @param size of the allocation
    /// @param providerIpcData [out] as many bytes as `ext_get_ipc_handle_size` reports. They may be
    ///        copied to another process; no pointer in them means anything there.
    umf_result_t (*ext_get_ipc_handle)(void *provider, const void *ptr, size_t size,
                                       void *providerIpcData);

    /// @brief Releases the resources of a description of `ext_get_ipc_handle`. Called once per get,
    ///        before the allocation is freed.
    umf_result_t (*ext_put_ipc_handle)(void *provider, void *providerIpcData);

    /// @brief Maps an allocation that a provider of the same kind described, perhaps in another
    ///        process.
    ///
    /// @param providerIpcData the bytes; they come from outside, so do not trust them
    /// @param ptr [out] start of the allocation as mapped here
    umf_result_t (*ext_open_ipc_handle)(void *provider, void *providerIpcData, void **ptr);

    /// @brief Unmaps memory mapped by `ext_open_ipc_handle`.
    ///
    /// @param ptr result of the open
    /// @param size of the allocation
    umf_result_t (*ext_close_ipc_handle)(void *provider, void *ptr, size_t size);

    /// @brief A control query of this provider.
    ///
    /// Also called once after creation as a run of "post_initialize" (no argument): the provider is
    /// named and configured now.
    ///
    /// @param source the program, or configuration text
    /// @param name path below the provider's node, as written: "{}" stands for the next value in
    ///        `args`
    /// @param arg from the program: of the node's type; from configuration: text with its NUL
    /// @param size of `arg` in bytes
    /// @param queryType read, write or run
    /// @param args positioned at the first argument that the path before `name` did not use
    /// @return ::UMF_RESULT_ERROR_INVALID_CTL_PATH for unknown names
    umf_result_t (*ext_ctl)(void *provider, umf_ctl_query_source_t source, const char *name,
                            void *arg, size_t size, umf_ctl_query_type_t queryType, va_list args);

    /// @brief A property of an allocation. Since table version 1.1; present if and only if the size
    ///        query is.
    ///
    /// Also called with ::UMF_MEMORY_PROPERTY_POINTER_TYPE for each new allocation of a tracked
    /// pool; a failure of that call is ignored.
    ///
    /// @param ptr start of an allocation of this provider
    /// @param memory_property_id which
    /// @param property_value [out] at least as many bytes as the size query reports
    umf_result_t (*ext_get_allocation_properties)(void *provider, const void *ptr,
                                                  umf_memory_property_id_t memory_property_id,
                                                  void *property_value);

    /// @brief Size of the value of a property in bytes. Since table version 1.1.
    umf_result_t (*ext_get_allocation_properties_size)(void *provider,
                                                       umf_memory_property_id_t memory_property_id,
                                                       size_t *size);

    /// @brief Distance in bytes that keeps two objects from sharing a cache line, for the slowest
    ///        user of the memory. Since table version 1.2; older tables count as 64.
    umf_result_t (*get_cache_line_size)(void *provider, size_t *size);
} umf_memory_provider_ops_t;

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMORY_PROVIDER_OPS_H */
