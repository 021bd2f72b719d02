/** @file
 * The operations of a memory pool: the interface to plug in an allocator.
 *
 * Fill a table, hand it to umfPoolCreate. The table is copied; its functions must stay callable
 * while a pool made from it lives. They must be thread-safe if the pool is to be used by several
 * threads. No lock of the library is held while one runs.
 */
#ifndef UMF_MEMORY_POOL_OPS_H
#define UMF_MEMORY_POOL_OPS_H 1

#include <stdarg.h>

#include <umf/base.h>
#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Version of ::umf_memory_pool_ops_t as declared here.
#define UMF_POOL_OPS_VERSION_CURRENT UMF_MAKE_VERSION(1, 1)

/// @brief Operations of a memory pool.
///
/// The order of the members is binary interface; new ones are only appended, and an older `version`
/// says that the table ends earlier. Members named `ext_` are optional, all others are required.
///
/// `pool` is the value stored by `initialize`. Sizes and alignments are in bytes, outputs are
/// written only on success, and any result code may be returned.
typedef struct umf_memory_pool_ops_t {
    /// ::UMF_POOL_OPS_VERSION_CURRENT of the headers the table was compiled with.
    uint32_t version;

    /// @brief Makes the pool.
    ///
    /// @param provider where the pool takes its memory from. It lives longer than the pool. Unless
    ///        tracking is disabled this is a handle of its own for the pool, which records each
    ///        allocation: memory allocated here must be freed here.
    /// @param params the argument of ::umfPoolCreate, unchanged and perhaps NULL. It may be gone
    ///        after the call: copy the members that are needed.
    /// @param pool [out] the pool's own data, given to all other operations; may be NULL
    /// @return anything but ::UMF_RESULT_SUCCESS fails the creation; no other operation follows
    umf_result_t (*initialize)(umf_memory_provider_handle_t provider, const void *params,
                               void **pool);

    /// @brief Ends the pool: returns its memory to the provider and releases its data.
    ///
    /// Not called for a pool whose `get_name` or "post_initialize" failed during creation.
    umf_result_t (*finalize)(void *pool);

    /// @brief Allocates `size` bytes.
    ///
    /// @return the memory; NULL on failure; `get_last_allocation_error` gives the cause
    void *(*malloc)(void *pool, size_t size);

    /// @brief Allocates an array of `num` objects of `size` bytes, all zero.
    ///
    /// @return the memory; NULL on failure, also if `num * size` does not fit a size_t
    void *(*calloc)(void *pool, size_t num, size_t size);

    /// @brief Changes the size of an allocation and perhaps its place; contents are kept up to the
    ///        smaller size.
    ///
    /// @param ptr an allocation of this pool, or NULL to allocate
    /// @param size the new size; 0 frees
    /// @return the memory; NULL after a free or on failure, which leaves the allocation as it was
    void *(*realloc)(void *pool, void *ptr, size_t size);

    /// @brief Allocates `size` bytes at an address that is a multiple of `alignment`.
    ///
    /// @return the memory; NULL on failure
    void *(*aligned_malloc)(void *pool, size_t size, size_t alignment);

    /// @brief Bytes that may be used at `ptr`: at least the requested size.
    ///
    /// @param ptr an allocation of this pool
    /// @param size [out] bytes
    umf_result_t (*malloc_usable_size)(void *pool, const void *ptr, size_t *size);

    /// @brief Gives an allocation back to the pool.
    ///
    /// @param ptr an allocation of this pool, or NULL
    umf_result_t (*free)(void *pool, void *ptr);

    /// @brief Why the last allocation in this thread gave NULL.
    umf_result_t (*get_last_allocation_error)(void *pool);

    /// @brief The pool's name, used in messages and for settings by name.
    ///
    /// @param pool may be NULL: then the name that every pool of this kind has by default
    /// @param name [out] owned by the pool, valid for its lifetime. Settings by name work for names
    ///        of up to 64 characters out of [A-Za-z0-9_-].
    umf_result_t (*get_name)(void *pool, const char **name);

    /// @brief A control query of this pool. NULL answers ::UMF_RESULT_ERROR_INVALID_CTL_PATH.
    ///
    /// Also called once at the end of creation as a run of "post_initialize" (no argument): the
    /// pool is named and configured now. A pool that fails this cleans up after itself.
    ///
    /// @param source the program, or configuration text
    /// @param name path below the pool's node, as written: "{}" stands for the next value in `args`
    /// @param arg from the program: of the node's type; from configuration: text with its NUL
    /// @param size of `arg` in bytes
    /// @param queryType read, write or run
    /// @param args positioned at the first argument that the path before `name` did not use
    /// @return ::UMF_RESULT_ERROR_INVALID_CTL_PATH for unknown names
    umf_result_t (*ext_ctl)(void *pool, umf_ctl_query_source_t source, const char *name, void *arg,
                            size_t size, umf_ctl_query_type_t queryType, va_list args);

    /// @brief Gives unused memory back to the provider. Since table version 1.1; NULL answers
    ///        ::UMF_RESULT_ERROR_NOT_SUPPORTED.
    ///
    /// @param minBytesToKeep unused bytes to keep for later allocations
    umf_result_t (*ext_trim_memory)(void *pool, size_t minBytesToKeep);
} umf_memory_pool_ops_t;

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMORY_POOL_OPS_H */
