/** @file
 * Reclaim: unused memory is made available before a request fails.
 *
 * A pool whose provider refuses a request for lack of memory looks for memory in this order, and
 * repeats the request after each step. A refusal for another reason, as of a device that is lost,
 * is the result of the request at once (`alloc` in umf/memory_provider_ops.h):
 *
 * 1. the pool itself: blocks freed on queues (umf/queue.h), then free memory of any thread and any
 *    size;
 * 2. free memory of other pools on the same provider;
 * 3. memory that the provider caches for reuse;
 * 4. free memory of the other pools of its group, whatever their providers are
 *    (::umfPoolGroupCreate);
 * 5. memory that the program releases in its callbacks (::umfAddReclaimCallback).
 *
 * Pools of the library do so; a request of more than 2^57 bytes to a provider fails without these
 * steps. A pool of a kind of your own is trimmed for others (steps 2 and 4) if it has
 * `ext_trim_memory`, but its own requests fail as it decides.
 *
 * A group is a limit on bytes that several pools share, for example the pools of one device or of
 * one tenant. It counts the memory that they hold from their providers, in use or free:
 *
 *     umf_pool_group_handle_t group;
 *     umfPoolGroupCreate((size_t)8 << 30, &group);
 *     umfPoolGroupAdd(group, pool); // and others
 *
 * All functions are thread-safe, with the exceptions that they name.
 */
#ifndef UMF_RECLAIM_H
#define UMF_RECLAIM_H 1

#include <stdbool.h>

#include <umf/base.h>
#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Releases memory that the program can spare, because a request is about to fail.
///
/// It runs in the thread that makes the request, before ::umfPoolMalloc and its like return NULL,
/// with no lock of the library held; in several threads at once if several requests fail. After a
/// round of all callbacks the request is repeated if one of them released memory, and the callbacks
/// are called again if that was not enough: up to eight times for one request. They are not called
/// for a request of more than 2^57 bytes to a provider.
///
/// It may free objects of any pool, trim, suspend and destroy other pools, and call ::umfReclaim.
/// It must neither suspend nor destroy `pool`. An allocation that it makes itself is
/// served from the free memory of its pool, of any size and any thread, or fails: no other pool is
/// trimmed, and no callback is called.
///
/// @param pool the pool whose request is about to fail; NULL if that pool does not track its memory
/// @param bytes size of the request that the provider refused, which is more than the caller's if
///        the pool divides memory; 0 if there was no such request
/// @param attempt 0 in the first round, one more in each further one: memory that is cheap to
///        rebuild is released first
/// @param arg as given to ::umfAddReclaimCallback
/// @return true if memory was released
typedef bool (*umf_reclaim_callback_t)(umf_memory_pool_handle_t pool, size_t bytes,
                                       unsigned attempt, void *arg);

/// @brief Adds a callback that is called before a request of any pool fails.
///
/// There may be up to 32, called in no particular order. The same may be added more than once and
/// is then called as often. A child of fork has them as well. The last ::umfTearDown removes all.
///
/// @param callback the function
/// @param arg passed to it
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `callback` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if there are too many
umf_result_t umfAddReclaimCallback(umf_reclaim_callback_t callback, void *arg);

/// @brief Removes a callback of ::umfAddReclaimCallback.
///
/// On return no thread is in it, and none will call it: the memory at `arg` may be freed. A call
/// from inside a callback does not wait for other threads, so it returns while these may still be
/// in it.
///
/// @param callback as given to ::umfAddReclaimCallback
/// @param arg as given to ::umfAddReclaimCallback
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if there is no such callback
umf_result_t umfRemoveReclaimCallback(umf_reclaim_callback_t callback, void *arg);

/// @brief Makes pools return their free memory to their providers, as ::umfPoolTrimMemory does, one
///        pool after the other until enough was released.
///
/// Memory that the providers of these pools cache for reuse is released, too. Suspended pools keep
/// their memory. No callback is called.
///
/// @param provider pools on this provider; NULL for all pools
/// @param bytes how much is requested; SIZE_MAX for all there is
/// @param given [out] how many bytes pools gave to their providers, about, if other threads
///        allocate at the same time; pools that do not track their memory count nothing. May be
///        NULL. Not changed on failure
/// @return ::UMF_RESULT_SUCCESS, even if less was given; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if
///         `provider` is not a provider
umf_result_t umfReclaim(umf_memory_provider_handle_t provider, size_t bytes, size_t *given);

/// @brief A limit on bytes that several pools share.
typedef struct umf_pool_group_t *umf_pool_group_handle_t;

/// @brief Figures of a group, in bytes.
typedef struct umf_pool_group_stats_t {
    /// sizeof(umf_pool_group_stats_t) of the headers it was compiled with.
    size_t struct_size;
    /// The most that the pools may hold together.
    size_t limit;
    /// Memory that they hold from their providers now, in use or free.
    size_t held;
    /// The most that they held at once.
    size_t peak;
    /// Number of pools.
    size_t pools;
} umf_pool_group_stats_t;

/// @brief Zeros, and the size.
#define UMF_POOL_GROUP_STATS_INIT                                                                  \
    { sizeof(umf_pool_group_stats_t), 0, 0, 0, 0 }

/// @brief Creates a group without pools.
///
/// @param limit bytes
/// @param group [out] the group, to be destroyed by ::umfPoolGroupDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `group` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfPoolGroupCreate(size_t limit, umf_pool_group_handle_t *group);

/// @brief Destroys a group that has no pools.
///
/// @param group the group; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT, and nothing changes, if it
///         still has pools
umf_result_t umfPoolGroupDestroy(umf_pool_group_handle_t group);

/// @brief Adds a pool to a group.
///
/// From now on a request to the pool's provider that would make the group hold more than its limit
/// is refused with ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, as if the provider had no memory: the
/// pool reclaims, then fails. Memory that the pool holds already counts, even beyond the limit.
/// Memory that the provider keeps for itself does not count: its cache for reuse, and the unused
/// rest of its pieces. The memory of a suspended pool counts.
///
/// A pool is in one group at most. It leaves the group when it is destroyed. No other thread may
/// use the pool during the call: add it before it is used.
///
/// @param group the group, which must outlive the pool or its membership
/// @param pool a pool that tracks its memory
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, or the
///         pool is in a group; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the pool does not track
umf_result_t umfPoolGroupAdd(umf_pool_group_handle_t group, umf_memory_pool_handle_t pool);

/// @brief Removes a pool from its group. No other thread may use the pool during the call.
///
/// @param group its group
/// @param pool the pool
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, or the
///         pool is not in the group
umf_result_t umfPoolGroupRemove(umf_pool_group_handle_t group, umf_memory_pool_handle_t pool);

/// @brief Changes the limit.
///
/// If the pools hold more, they release their free memory. Memory in use stays; requests to the
/// providers are refused until enough of it was freed.
///
/// @param group the group
/// @param limit bytes
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `group` is NULL
umf_result_t umfPoolGroupSetLimit(umf_pool_group_handle_t group, size_t limit);

/// @brief Reports the limit and the memory held. The settings `group.limit`, `group.held` and
///        `group.peak` of each pool of the group (umf/experimental/ctl.h) report the same.
///
/// @param group the group
/// @param stats [out] `struct_size` is set by the caller; not changed on failure
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, or
///         `struct_size` is too small
umf_result_t umfPoolGroupGetStats(umf_pool_group_handle_t group, umf_pool_group_stats_t *stats);

#ifdef __cplusplus
}
#endif

#endif /* UMF_RECLAIM_H */
