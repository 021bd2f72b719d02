/** @file
 * Moving data: copies and fills between any two memories, and mirrors.
 *
 * The library determines itself which memory a pointer is in: memory of one of its pools, memory
 * opened from another process, memory of a loaded GPU driver, or else memory of the host. Then it
 * takes the best way there is between the two: the copy operation of the destination's or of the
 * source's provider, the CPU, or pinned host memory in between. A provider of an application takes
 * part if its descriptor (umf/plugin.h) has `copy` and queues, for either direction.
 *
 * @code{.c}
 * #include <umf/copy.h>
 *
 * umf_result_t to_device(void *device_ptr, const float *values, size_t count) {
 *     return umfCopy(device_ptr, values, count * sizeof(*values), NULL);
 * }
 * @endcode
 *
 * Without parameters (NULL), or without a queue in them, a call returns when the data is there.
 * With a queue it may return earlier, see ::umf_copy_params_t.
 *
 * Checks before a byte is written: both ranges must lie inside of one allocation of a provider
 * each, as far as the library or the driver has records of them; neither may be in a suspended
 * pool; rows must not overlap. A call that is refused has written nothing, and its message names
 * the operand (source or destination), the address and the bytes available there. The library
 * records allocations of providers, not the objects that a pool cuts from them.
 *
 * Memory is held while it is copied: an allocation of a provider that another thread frees, the
 * suspend of a pool and the end of a mapping that was opened from an IPC handle wait for copies
 * from and to it. A closed mapping is refused from then on. An object of a pool that another thread
 * frees may be allocated again at once, as with memcpy.
 *
 * Untracked memory counts as memory of the host. The library checks by system calls whether the CPU
 * can read the source and write the destination at both ends, and whether all between is mapped.
 * Protected pages in the middle, and pages that another thread unmaps meanwhile, are the caller's
 * concern.
 *
 * All functions are thread-safe. None is async-signal-safe. errno stays as it was.
 */
#ifndef UMF_COPY_H
#define UMF_COPY_H 1

#include <umf/base.h>
#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Kind of the memory at an address.
typedef enum umf_place_kind_t {
    /// Not known, or not said.
    UMF_PLACE_UNKNOWN = 0,
    /// Memory of the host as any program has it: of the system, of a file, of DAX.
    UMF_PLACE_HOST = 1,
    /// Memory of the host that a GPU driver made or pinned.
    UMF_PLACE_PINNED = 2,
    /// Memory of a device, or any other that the CPU cannot access.
    UMF_PLACE_DEVICE = 3,
    /// Memory that a driver moves between host and devices (managed, shared).
    UMF_PLACE_SHARED = 4
} umf_place_kind_t;

/// @brief Source of the facts about an address.
typedef enum umf_place_source_t {
    /// The address is not recorded anywhere: it counts as memory of the host.
    UMF_PLACE_FROM_NOBODY = 0,
    /// A pool has it.
    UMF_PLACE_FROM_POOL = 1,
    /// It was opened from an IPC handle.
    UMF_PLACE_FROM_IMPORT = 2,
    /// A loaded driver has a record of it; no pool of this library has one.
    UMF_PLACE_FROM_DRIVER = 3
} umf_place_source_t;

/// @brief Where an address is.
typedef struct umf_place_t {
    /// sizeof(umf_place_t) of the headers the caller was compiled with.
    size_t struct_size;
    /// Kind of the memory.
    umf_place_kind_t kind;
    /// Source of these facts.
    umf_place_source_t source;
    /// Number of the device that has the memory; -1: none, or no number is known.
    int device;
    /// 1 if the CPU can access the memory now, else 0.
    int is_reachable;
    /// 1 if its pool is suspended: then nothing can be copied from or to it. Else 0.
    int is_suspended;
    /// The pool; NULL: none.
    umf_memory_pool_handle_t pool;
    /// The provider of the pool, or the one that opened the memory; NULL: none.
    umf_memory_provider_handle_t provider;
    /// Start of the allocation of the provider or of the driver; NULL: not known.
    void *base;
    /// Its size in bytes; 0: not known.
    size_t size;
    /// Distance of the address from `base`; 0 if that is not known.
    size_t offset;
} umf_place_t;

/// @brief Only the size set.
#define UMF_PLACE_INIT                                                                             \
    {                                                                                              \
        sizeof(umf_place_t), UMF_PLACE_UNKNOWN, UMF_PLACE_FROM_NOBODY, -1, 0, 0, NULL, NULL, NULL, \
            0, 0                                                                                   \
    }

/// @brief How data is moved.
///
/// With a queue the work is put on it after the work that is there already. The call returns as
/// early as the memory allows:
/// - between memory of devices, pinned and shared memory: at once. Do not change the memory before
///   the queue has completed the copy. A free of its allocation, and a suspend of its pool, wait
///   until then;
/// - if the source or the destination is pageable memory of the host, if the CPU copies, or if the
///   data is staged in memory in between (no provider can copy between both): when the data is
///   there.
///
/// On a queue that is being captured nothing is waited for, and the memory is not held: the copy
/// happens when the graph runs, and its memory must live as long.
typedef struct umf_copy_params_t {
    /// sizeof(umf_copy_params_t) of the headers the caller was compiled with.
    size_t struct_size;
    /// A native queue; NULL: a queue of the library, and the call returns when all is done. A
    /// CUstream (CU_STREAM_LEGACY for the default one), or an immediate ze_command_list_handle_t
    /// that is synchronous.
    void *queue;
    /// Native events that must have happened first; NULL: none.
    void *const *wait_events;
    /// How many.
    size_t num_wait_events;
    /// A native event that is recorded after the work; NULL: none.
    void *event;
    /// Kind of the destination by the caller's word, where neither the library nor a loaded driver
    /// has a record of it. ::UMF_PLACE_HOST saves the query of the driver. Not used for recorded
    /// memory.
    umf_place_kind_t to_kind;
    /// The same for the source.
    umf_place_kind_t from_kind;
    /// Provider of the queue and events. It also copies where neither operand has a provider that
    /// can. NULL: the provider of the destination if it has queues, otherwise that of the source;
    /// one of memory that the CPU cannot access comes first.
    umf_memory_provider_handle_t provider;
    /// [out] Bytes from the start of the range (of a batch: of its item `*failed`) that are right
    /// when the call returns: all on success, on failure those known to be right. May be NULL.
    size_t *done;
} umf_copy_params_t;

/// @brief Only the size set: the host waits until all is done.
#define UMF_COPY_PARAMS_INIT                                                                       \
    {                                                                                              \
        sizeof(umf_copy_params_t), NULL, NULL, 0, NULL, UMF_PLACE_UNKNOWN, UMF_PLACE_UNKNOWN,      \
            NULL, NULL                                                                             \
    }

/// @brief One copy of a batch.
typedef struct umf_copy_item_t {
    /// Destination.
    void *to;
    /// Source.
    const void *from;
    /// Bytes; 0 is allowed.
    size_t size;
} umf_copy_item_t;

/// @brief Two-dimensional copies: `count` rows of `size` bytes each.
typedef struct umf_copy_rows_t {
    /// sizeof(umf_copy_rows_t) of the headers the caller was compiled with.
    size_t struct_size;
    /// First row of the destination.
    void *to;
    /// Bytes from one row of the destination to the next; at least `size`.
    size_t to_pitch;
    /// First row of the source.
    const void *from;
    /// Bytes from one row of the source to the next; at least `size`.
    size_t from_pitch;
    /// Bytes of one row.
    size_t size;
    /// How many rows.
    size_t count;
} umf_copy_rows_t;

/// @brief Only the size set.
#define UMF_COPY_ROWS_INIT                                                                         \
    { sizeof(umf_copy_rows_t), NULL, 0, NULL, 0, 0, 0 }

/// @brief Reports where an address is. Any address is allowed, NULL too.
///
/// @param ptr any address
/// @param place [out] `struct_size` is set by the caller
/// @return ::UMF_RESULT_SUCCESS, also for untracked memory;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `place` is NULL or its size too small
umf_result_t umfPlaceOf(const void *ptr, umf_place_t *place);

/// @brief Who moves the data of a copy.
typedef enum umf_copy_route_t {
    /// No route exists.
    UMF_COPY_ROUTE_NONE = 0,
    /// The CPU, by several threads where that is faster.
    UMF_COPY_ROUTE_CPU = 1,
    /// The copy of the destination's provider or driver.
    UMF_COPY_ROUTE_TO = 2,
    /// The copy of the source's provider or driver.
    UMF_COPY_ROUTE_FROM = 3,
    /// Several threads, through memory of the host in between.
    UMF_COPY_ROUTE_STAGED = 4
} umf_copy_route_t;

/// @brief Reports which way a copy would take. Nothing is copied.
///
/// The answer may change with the size: large copies of pageable memory are staged.
///
/// @param to destination
/// @param from source
/// @param size in bytes
/// @param params as for ::umfCopy
/// @param route [out] the way
/// @return ::UMF_RESULT_SUCCESS; otherwise the result with which ::umfCopy would refuse the copy
///         before it writes, and the message in the log
umf_result_t umfCopyRoute(void *to, const void *from, size_t size, const umf_copy_params_t *params,
                          umf_copy_route_t *route);

/// @brief Copies bytes from anywhere to anywhere.
///
/// The ranges may overlap: the result is as memmove's, or the call is refused if they do and the
/// CPU cannot do it.
///
/// @param to destination
/// @param from source
/// @param size bytes; 0: nothing is copied, and the pointers may be NULL
/// @param params NULL: the call returns when all is done
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if a pointer is NULL, a range leaves its allocation
///         or wraps, or `params` is not valid, and nothing was written;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if an operand is in a suspended pool, or if the
///         queue is being captured and must be waited for, and nothing was written;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if there is no way between the two, if ranges overlap
///         that cannot be copied so, or if the provider has no operations for the queue or events,
///         and nothing was written; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         any other result is that of the provider whose copy failed: `done` and the message
///         report how many bytes are right
umf_result_t umfCopy(void *to, const void *from, size_t size, const umf_copy_params_t *params);

/// @brief Fills memory with a pattern.
///
/// @param to destination
/// @param pattern its bytes, in memory of the host; they are read before the call returns
/// @param pattern_size bytes of the pattern, not 0
/// @param size bytes to fill; if it is no multiple of `pattern_size`, the last pattern is cut
/// @param params as for ::umfCopy; `from_kind` is not used
/// @return as ::umfCopy; ::UMF_RESULT_ERROR_INVALID_ARGUMENT, too, if `pattern_size` is 0
umf_result_t umfFill(void *to, const void *pattern, size_t pattern_size, size_t size,
                     const umf_copy_params_t *params);

/// @brief Copies rows of equal size whose starts are equally far apart.
///
/// Nothing is written between the rows.
///
/// @param rows the rows; each operand as a whole must be within one allocation, and must not
///        overlap
/// @param params as for ::umfCopy; `done` counts bytes of whole rows
/// @return as ::umfCopy; ::UMF_RESULT_ERROR_INVALID_ARGUMENT, too, if `rows` is NULL, its size too
///         small, a pitch smaller than a row, if the rows overlap or their extent overflows
umf_result_t umfCopyRows(const umf_copy_rows_t *rows, const umf_copy_params_t *params);

/// @brief Makes several copies. All are checked before the first is made.
///
/// The copies may be made in any order and at once: an item must not write bytes that another one
/// reads or writes.
///
/// @param items the copies, each as for ::umfCopy
/// @param count how many; 0 is allowed
/// @param params for all of them: the events are waited for before the first, `event` is recorded
///        after the last
/// @param failed [out] if the call fails: index of the item that failed, or `count` if it was none
///        of them; the items before it are done. Otherwise not written. May be NULL.
/// @return as ::umfCopy
umf_result_t umfCopyBatch(const umf_copy_item_t *items, size_t count,
                          const umf_copy_params_t *params, size_t *failed);

/// @brief A second view of a range of memory, see ::umfMirrorCreate.
typedef struct umf_mirror_t *umf_mirror_handle_t;

/// @brief Makes a mirror: memory of a pool that stands for a range elsewhere.
///
/// If the users of the pool's memory can access the range itself, the mirror is that range: nothing
/// is allocated, pull and push move nothing. That is so for a pool of host memory if the CPU can
/// access the range, and for a pool of device memory if the range is in the same device's, in
/// pinned or in shared memory of the same driver. Otherwise it is an allocation of the pool, whose
/// content is not defined before the first pull.
///
/// @param of start of the range; it must live as long as the mirror
/// @param size bytes, not 0
/// @param in pool that gives the memory; it must live as long as the mirror
/// @param mirror [out] to be destroyed by ::umfMirrorDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, `size`
///         is 0 or the range leaves its allocation; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if a pool
///         is suspended; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, or the pool's error, if there is no
///         memory
umf_result_t umfMirrorCreate(void *of, size_t size, umf_memory_pool_handle_t in,
                             umf_mirror_handle_t *mirror);

/// @brief Destroys a mirror and frees its memory. Nothing is pushed.
///
/// The memory is returned to its pool at once, as by ::umfFree. Work of pulls and pushes on queues
/// (umf_copy_params_t) must have completed before the call, and no other thread may use the mirror.
///
/// @param mirror made by ::umfMirrorCreate; NULL is ignored
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if it is no mirror
umf_result_t umfMirrorDestroy(umf_mirror_handle_t mirror);

/// @brief Gives the address of the mirror.
///
/// @param mirror the mirror
/// @param ptr [out] start of the mirror; the range itself if nothing was allocated
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if it is no mirror or `ptr` is
///         NULL
umf_result_t umfMirrorPtr(umf_mirror_handle_t mirror, void **ptr);

/// @brief As the size of a pull or a push: the ranges that are marked, wherever they are.
#define UMF_MIRROR_DIRTY ((size_t)-1)

/// @brief Marks a part of a mirror as dirty: one of its two copies has changed.
///
/// @param mirror the mirror
/// @param offset from its start
/// @param size bytes; 0 is allowed
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if it is no mirror or the part
///         leaves it; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, and nothing was marked
umf_result_t umfMirrorMark(umf_mirror_handle_t mirror, size_t offset, size_t size);

/// @brief Copies from the range to the mirror.
///
/// @param mirror the mirror
/// @param offset from its start, at most the size of the mirror
/// @param size bytes, or ::UMF_MIRROR_DIRTY: the ranges marked at or above `offset`. Copied ranges
///        are no longer dirty.
/// @param params as for ::umfCopyBatch
/// @return as ::umfCopy; ::UMF_RESULT_ERROR_INVALID_ARGUMENT, too, if it is no mirror or the part
///         leaves it. Ranges that were not copied stay dirty.
umf_result_t umfMirrorPull(umf_mirror_handle_t mirror, size_t offset, size_t size,
                           const umf_copy_params_t *params);

/// @brief Copies from the mirror to the range.
///
/// @param mirror the mirror
/// @param offset as for ::umfMirrorPull
/// @param size as for ::umfMirrorPull
/// @param params as for ::umfMirrorPull
/// @return as ::umfMirrorPull
umf_result_t umfMirrorPush(umf_mirror_handle_t mirror, size_t offset, size_t size,
                           const umf_copy_params_t *params);

#ifdef __cplusplus
}
#endif

#endif /* UMF_COPY_H */
