/** @file
 * Memory pools: allocators over one provider.
 *
 * The kinds that come with the library are in umf/pools/; umf/memory_pool_ops.h shows how to write
 * another.
 *
 * Rules for all functions here:
 * - Several threads may use a pool at once, if its own operations allow it (those of the library
 *   do). A thread may free what another thread allocated. Destroying a pool while another thread
 *   uses it is not allowed.
 * - No function is async-signal-safe.
 * - Sizes and alignments are in bytes.
 * - Outputs are written only on success, unless said otherwise.
 * - Memory that a pool takes from its provider is recorded until it is returned, so that a pointer
 *   alone leads to its pool. UMF_POOL_CREATE_FLAG_DISABLE_TRACKING turns that off.
 */
#ifndef UMF_MEMORY_POOL_H
#define UMF_MEMORY_POOL_H 1

#include <umf/base.h>
#include <umf/memory_pool_ops.h>
#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A memory pool.
typedef struct umf_memory_pool_t *umf_memory_pool_handle_t;

/// @brief Choices for ::umfPoolCreate: flags, combined in a ::umf_pool_create_flags_t.
typedef enum umf_pool_create_flag_t {
    /// None of the choices below.
    UMF_POOL_CREATE_FLAG_NONE = 0,
    /// The pool owns its provider and destroys it at the end.
    UMF_POOL_CREATE_FLAG_OWN_PROVIDER = (1 << 0),
    /// Memory is not recorded: no ::umfFree, ::umfPoolByPtr, IPC or properties for it.
    UMF_POOL_CREATE_FLAG_DISABLE_TRACKING = (1 << 1),
    /// Not a flag; gives the type its width.
    UMF_POOL_CREATE_FLAG_FORCE_UINT32 = 0x7fffffff
} umf_pool_create_flag_t;

/// @brief Flags of ::umf_pool_create_flag_t.
typedef uint32_t umf_pool_create_flags_t;

/// @brief Creates a pool.
///
/// The steps: the table is checked, `initialize` gets the provider and `params`, `get_name` is
/// called, settings stored for that name (umf/experimental/ctl.h) are applied, and `ext_ctl` is run
/// with "post_initialize".
///
/// @param ops table of the kind of pool; it is copied
/// @param provider where the memory comes from. Several pools may share one. It must outlive the
///        pool unless the pool owns it.
/// @param params parameters of that kind, passed on unchanged; not needed after the call. The
///        built-in pools take NULL for defaults.
/// @param flags of ::umf_pool_create_flag_t
/// @param hPool [out] the pool, to be destroyed by ::umfPoolDestroy
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `ops`, `provider` or `hPool` is NULL, a flag is
///         not defined, or a required operation is missing;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the table is newer than the library, if the pool
///         cannot work over this provider (jemalloc needs one that can split, an arena one with
///         pages, `zero_on_free` memory of the host and a pool that tracks), or if this machine has
///         larger pages than jemalloc was built for; ::umfLastErrorText has the reason;
///         ::UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE if the library of `scalable` is missing;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY if there is no memory for metadata;
///         ::UMF_RESULT_ERROR_UNKNOWN after the library was torn down;
///         otherwise the error of `initialize`, `get_name` or "post_initialize". On failure the
///         provider stays the caller's, even with ::UMF_POOL_CREATE_FLAG_OWN_PROVIDER.
umf_result_t umfPoolCreate(const umf_memory_pool_ops_t *ops, umf_memory_provider_handle_t provider,
                           const void *params, umf_pool_create_flags_t flags,
                           umf_memory_pool_handle_t *hPool);

/// @brief Destroys a pool, closes the IPC mappings opened through it, and destroys its provider if
///        the pool owns it.
///
/// Memory that was not freed is invalid afterwards; the built-in pools return it to the provider
/// where they can.
///
/// A use after the destroy is a fault of the program. It is refused for a while: until 64 other
/// pools and providers have been destroyed, all functions give NULL, false or
/// ::UMF_RESULT_ERROR_INVALID_ARGUMENT for the handle, and log it. This holds for calls that begin
/// after the destroy, not for those that run at the same time. Later the handle may be that of a
/// new pool.
///
/// @param hPool invalid afterwards, unless it is NULL or the library was torn down. One that was
///        destroyed, or is no pool's, is refused.
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hPool` is NULL;
///         ::UMF_RESULT_ERROR_UNKNOWN after the library was torn down, the handle is not touched;
///         otherwise the first error met. All steps are carried out nevertheless.
umf_result_t umfPoolDestroy(umf_memory_pool_handle_t hPool);

/// @brief Allocates memory.
///
/// @param hPool pool
/// @param size bytes. 0: a `disjoint` pool refuses it (::UMF_RESULT_ERROR_INVALID_ARGUMENT), a
///        `coalescing` one gives a block of its smallest size
/// @return memory aligned to at least 8 bytes (built-in pools), to be freed by ::umfPoolFree or
///         ::umfFree; NULL on failure (::umfPoolGetLastAllocationError gives the cause) or if
///         `hPool` is NULL
void *umfPoolMalloc(umf_memory_pool_handle_t hPool, size_t size);

/// @brief Allocates memory at an aligned address.
///
/// @param hPool pool
/// @param size bytes
/// @param alignment of the address; 0 or a power of two for the built-in pools
/// @return as ::umfPoolMalloc
void *umfPoolAlignedMalloc(umf_memory_pool_handle_t hPool, size_t size, size_t alignment);

/// @brief Allocates memory for an array, filled with zeros.
///
/// `coalescing`, `jemalloc` and `scalable` offer it; `disjoint` and `proxy` refuse, because they do
/// not write to memory that they hand out. Memory that the CPU cannot access is filled by the
/// provider, if it can (umf/plugin.h); otherwise the call is refused.
///
/// @param hPool pool
/// @param num objects
/// @param size bytes of each
/// @return as ::umfPoolMalloc; NULL also if the product does not fit a size_t, or if the pool does
///         not write to its memory (last allocation error ::UMF_RESULT_ERROR_NOT_SUPPORTED)
void *umfPoolCalloc(umf_memory_pool_handle_t hPool, size_t num, size_t size);

/// @brief Changes the size of an allocation. The contents are kept up to the smaller size; the
///        address may change.
///
/// @param hPool pool
/// @param ptr an allocation of this pool, or NULL to allocate
/// @param size the new size; 0 frees `ptr`, in each built-in pool, also in those that do not offer
///        other sizes
/// @return the memory; NULL after a free (the last allocation error of the built-in pools is then
///         ::UMF_RESULT_SUCCESS), on failure (`ptr` is then as before) or if `hPool` is NULL
void *umfPoolRealloc(umf_memory_pool_handle_t hPool, void *ptr, size_t size);

/// @brief Bytes that may be used at a pointer: at least the requested size.
///
/// @param hPool pool
/// @param ptr an allocation of this pool; the built-in pools answer 0 for NULL
/// @param size [out] bytes. The proxy pool, which does not report sizes, writes 0 and gives
///        ::UMF_RESULT_ERROR_NOT_SUPPORTED
/// @return ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hPool` is NULL, otherwise the pool's result
umf_result_t umfPoolMallocUsableSize(umf_memory_pool_handle_t hPool, const void *ptr, size_t *size);

/// @brief Gives an allocation back to its pool.
///
/// @param hPool pool
/// @param ptr an allocation of this pool. NULL is allowed; the built-in pools then do nothing.
/// @return ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hPool` is NULL, otherwise the pool's result. The
///         built-in pools answer ::UMF_RESULT_ERROR_INVALID_ARGUMENT for memory of another owner
///         and for memory that was freed. They leave `errno` as it was, also where their provider
///         changes it.
umf_result_t umfPoolFree(umf_memory_pool_handle_t hPool, void *ptr);

/// @brief Gives an allocation back to the pool it came from, whichever that is.
///
/// The host must have waited for work of devices that uses it; ::umfFreeOn (umf/queue.h) frees it
/// earlier.
///
/// @param ptr an allocation of any pool that records its memory
/// @return ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `ptr` is NULL or belongs to no pool; otherwise as
///         ::umfPoolFree
umf_result_t umfFree(void *ptr);

/// @brief Why the last allocation function gave NULL.
///
/// Per thread. The built-in pools keep one value per kind of pool. Meaningful only after a failure.
///
/// @param hPool pool
/// @return ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hPool` is NULL, otherwise the reason
umf_result_t umfPoolGetLastAllocationError(umf_memory_pool_handle_t hPool);

/// @brief The pool that owns the memory at an address.
///
/// Any address is allowed, also one inside an allocation, on the stack or long since freed. Where a
/// pool lives in memory of another pool, the inner one is meant. Memory opened through IPC belongs
/// to no pool.
///
/// @param ptr address
/// @param pool [out] the pool; NULL if no pool owns the address
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or no
///         pool owns the address
umf_result_t umfPoolByPtr(const void *ptr, umf_memory_pool_handle_t *pool);

/// @brief The provider a pool was created with.
///
/// @param hPool pool
/// @param hProvider [out] the handle given to ::umfPoolCreate; still owned as it was
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfPoolGetMemoryProvider(umf_memory_pool_handle_t hPool,
                                      umf_memory_provider_handle_t *hProvider);

/// @brief The pool's name.
///
/// @param pool pool
/// @param name [out] owned by the pool, valid while it lives
/// @return ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, otherwise the pool's result
umf_result_t umfPoolGetName(umf_memory_pool_handle_t pool, const char **name);

/// @brief Stores a pointer of the application in a pool. Atomic with ::umfPoolGetTag.
///
/// @param hPool pool
/// @param tag any value; the library does not use it
/// @param oldTag [out] the previous one, NULL for a new pool; may be NULL
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hPool` is NULL
umf_result_t umfPoolSetTag(umf_memory_pool_handle_t hPool, void *tag, void **oldTag);

/// @brief The pointer that ::umfPoolSetTag stored in a pool.
///
/// @param hPool pool
/// @param tag [out] NULL if none was set
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfPoolGetTag(umf_memory_pool_handle_t hPool, void **tag);

/// @brief Gives unused memory of a pool back to its provider. The pool stays usable.
///
/// A provider that caches memory freed by pools, as the OS provider does, returns that to the
/// system, too, even if the pool itself cannot trim.
///
/// @param hPool pool
/// @param minBytesToKeep unused bytes the pool should keep for later allocations
/// @return ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hPool` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the pool cannot trim; otherwise the pool's result. A
///         proxy pool releases all that it caches and gives ::UMF_RESULT_ERROR_NOT_SUPPORTED, as in
///         UMF
umf_result_t umfPoolTrimMemory(umf_memory_pool_handle_t hPool, size_t minBytesToKeep);

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMORY_POOL_H */
