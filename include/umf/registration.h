/** @file
 * Memory that others register: the side of the allocator for libraries and drivers that keep a
 * record of physical memory, as network cards, NIXL, NCCL, UCX and libfabric do.
 *
 * Such a record is right as long as the same physical memory is at the addresses. Three questions
 * come with it, and each has an answer here:
 *
 * - Which physical memory is it? ::umfGetRuns lists the runs of a range. A run has one physical
 *   memory and a generation. As long as a run has its generation, records of it are right; once it
 *   has another, they are stale.
 * - Can a network card reach it? The property ::UMF_MEMORY_PROPERTY_RDMA_CAPABLE of its address,
 *   and ::umfGetDmabuf, which returns a descriptor for drivers.
 * - When does it change? ::umfPoolAddMemoryCallback calls functions of yours when a pool gets
 *   physical memory, and before it loses some: at growth, at a trim, at a suspend and at a resume.
 *
 * Code without callbacks forbids the suspend as long as its records last: ::umfPoolForbidSuspend.
 *
 * Known is memory of pools that record it, and memory opened through umf/ipc.h. Where pools are
 * nested, the provider around all of them counts, since it has the physical memory. The memory must
 * not be freed during a call with its address. All functions are thread-safe, within the rules that
 * each one has.
 */
#ifndef UMF_REGISTRATION_H
#define UMF_REGISTRATION_H 1

#include <umf/base.h>
#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A range of addresses with one physical memory.
typedef struct umf_memory_run_t {
    /// First address.
    void *base;
    /// Size in bytes.
    size_t size;
    /// The driver's handle of the physical memory (CUmemGenericAllocationHandle,
    /// ze_physical_mem_handle_t). It is not to be released. 0: there is none, as for memory of the
    /// host, and for memory that the driver allocates as a whole.
    uint64_t handle;
    /// Number of the physical memory at these addresses. A provider never gives it again.
    uint64_t generation;
} umf_memory_run_t;

/// @brief Lists the runs of a range, in the order of their addresses.
///
/// Each run is whole: the first may begin before `ptr`, and the last may end after the range.
///
/// @param ptr any address inside memory of a pool, or opened through IPC
/// @param size bytes from there; not 0
/// @param runs [out] as many as fit; may be NULL if `*count` is 0
/// @param count [in,out] room at `runs`, then the number of runs of the range
/// @return ::UMF_RESULT_SUCCESS, also if `runs` is NULL;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or 0, if a part of the range
///         is not known, or if there is not enough room: then `*count` is the number all the same,
///         otherwise it is left as it is;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if a part has no physical memory, because its pool
///         is suspended;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if a provider of your own can detach memory and has no
///         operation `vm_run` (umf/plugin.h)
umf_result_t umfGetRuns(const void *ptr, size_t size, umf_memory_run_t *runs, size_t *count);

/// @brief A descriptor by which drivers of other devices reach memory of a device.
typedef struct umf_dmabuf_t {
    /// sizeof(umf_dmabuf_t) of the headers it was compiled with.
    size_t struct_size;
    /// The descriptor. The caller closes it; it is not inherited by programs that are started.
    int fd;
    /// Where the range begins in it.
    size_t offset;
    /// Bytes of the range.
    size_t length;
} umf_dmabuf_t;

/// @brief Only the size set.
#define UMF_DMABUF_INIT                                                                            \
    { sizeof(umf_dmabuf_t), -1, 0, 0 }

/// @brief Makes a DMA buffer of a range of device memory: for ibv_reg_dmabuf_mr, libfabric and
///        NVSHMEM.
///
/// The range may lie in several runs. The descriptor names the physical memory of now, which it
/// keeps until it is closed and the record made of it is removed: after a suspend and resume of the
/// pool a new one is needed, and memory behind an old one is not available to others. With
/// level_zero the memory must have been allocated while params.use_import_export_for_IPC was 1
/// (umf/providers/provider_level_zero.h), and lie in one allocation.
///
/// @param ptr any address inside memory of a pool
/// @param size bytes from there; not 0
/// @param dmabuf [out] `struct_size` is set by the caller; unchanged on failure
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or 0, the structure too
///         small, or the range is not in memory of one provider;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if it is memory of the host, or the provider, the
///         driver or the device has no DMA buffers;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY if there is no descriptor left;
///         otherwise the provider's result
umf_result_t umfGetDmabuf(const void *ptr, size_t size, umf_dmabuf_t *dmabuf);

/// @brief Functions that are called when a pool gets or loses physical memory.
///
/// They run in the thread that allocates, frees, trims, suspends or resumes, which may be any
/// thread, also one of the library, and two may run at once for two ranges. No lock of the library
/// is held, but an arena (umf/pools/pool_coalescing.h) gives no other thread pages meanwhile: one
/// of its callbacks must not wait for a thread that may need some. They must not call functions of
/// the pool or of umf/suspend.h; ::umfGetRuns, ::umfGetDmabuf and all functions of other pools are
/// allowed.
///
/// A run here is the range that is concerned, all memory of the pool, with the handle and the
/// generation of its physical memory. The ranges of `unmapping` need not be those of `mapped`:
/// pools split and merge memory. So a record that overlaps the range must go.
typedef struct umf_memory_callbacks_t {
    /// sizeof(umf_memory_callbacks_t) of the headers it was compiled with.
    size_t struct_size;
    /// @brief The pool has physical memory at these addresses. NULL: none is called.
    ///
    /// Called after growth, before the memory is used, and after a resume. Anything but
    /// ::UMF_RESULT_SUCCESS refuses the memory: the growth fails as if the provider had refused,
    /// and a resume fails with this result and leaves the pool suspended with its content kept. The
    /// callbacks that were called before are then called by `unmapping`. After a suspend or a free
    /// that failed, the result is ignored.
    umf_result_t (*mapped)(void *arg, umf_memory_pool_handle_t pool, const umf_memory_run_t *run);
    /// @brief The physical memory is about to go. NULL: none is called.
    ///
    /// Called before a free to the provider, as at a trim, before an arena maps a page elsewhere
    /// (umf/pools/pool_coalescing.h), and before a suspend releases memory, when its content has
    /// been saved. It cannot be refused: on return no device may access the
    /// memory. It is not called for memory that the pool leaks at its end.
    void (*unmapping)(void *arg, umf_memory_pool_handle_t pool, const umf_memory_run_t *run);
    /// Handed to both.
    void *arg;
} umf_memory_callbacks_t;

/// @brief Only the size set.
#define UMF_MEMORY_CALLBACKS_INIT                                                                  \
    { sizeof(umf_memory_callbacks_t), NULL, NULL, NULL }

/// @brief Adds callbacks, and calls `mapped` for the memory that the pool has.
///
/// No other thread may use the pool during the call. `mapped` is called in the order in which
/// callbacks were added, `unmapping` in the opposite one. A pool that has had callbacks is no
/// longer purged (umf/memory_provider.h): a purge replaces pages that may be registered. Its free
/// memory is returned to the provider as a whole.
///
/// @param pool any pool that tracks its memory
/// @param callbacks copied; may be added several times, and are then called as often. `arg` must
///        live until they are removed or the pool is destroyed
/// @return ::UMF_RESULT_SUCCESS; the result of `mapped` if it refuses: then nothing was added;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, the structure too small or
///         without a function; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the pool is suspended;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if it does not track, or its provider can detach memory
///         and has no operation `vm_run`; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfPoolAddMemoryCallback(umf_memory_pool_handle_t pool,
                                      const umf_memory_callbacks_t *callbacks);

/// @brief Removes callbacks of ::umfPoolAddMemoryCallback: the last ones with these members. They
///        are not called again.
///
/// No other thread may use the pool during the call.
///
/// @param pool the pool
/// @param callbacks as they were added
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT, too, if they were not added;
///         else as ::umfPoolAddMemoryCallback
umf_result_t umfPoolRemoveMemoryCallback(umf_memory_pool_handle_t pool,
                                         const umf_memory_callbacks_t *callbacks);

#ifdef __cplusplus
}
#endif

#endif /* UMF_REGISTRATION_H */
