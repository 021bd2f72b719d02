/** @file
 * Queues: allocating and freeing while queued work of a device still runs.
 *
 * A queue is a native one of the driver: a `CUstream`, a command queue, or the queue of a provider
 * of your own. The host runs ahead of it. So queued work may still use a freed block, which must
 * not be handed out before that work has completed:
 *
 *     void *block = umfPoolMallocOn(pool, size, 0, stream);
 *     launch(kernel, block, stream);
 *     umfFreeOn(block, stream);                         // at once, while the kernel is queued
 *     block = umfPoolMallocOn(pool, size, 0, stream);   // the same memory, after the kernel
 *
 * - A block freed on a queue is allocated on that queue again at once: the queue itself orders the
 *   next use after the last one. No event is recorded and the driver is not called.
 * - A block freed on one queue and requested on another is handed out when the work queued before
 *   the free has completed. If it has not, a request from 1 MiB on makes the second queue wait for
 *   the first on the device, and the host does not wait; a smaller one uses other memory first.
 * - The host waits where memory is short, before ::umfPoolMallocOn returns NULL; and for a request
 *   from 1 MiB on, before the pool grows although the freed blocks whose work has not completed
 *   are more than a quarter of the bytes in use.
 *
 * Every pool that tracks its memory has queues if its provider has: those of the kinds `cuda` and
 * `cuda_vmm`; `level_zero` and `level_zero_vmm`, where a queue is an immediate command list and
 * waits for others on the host only; and providers of your own with `queue_mark` and `mark_wait`
 * (umf/plugin.h). Queues need no announcement: a pool records a queue at its first use. Call
 * ::umfQueueEnds before a queue is destroyed, because a driver gives its handle to another queue.
 *
 * ::umfPoolMalloc and ::umfFree keep their meaning on such a pool: ::umfFree of a block says that
 * the host has waited for all work that uses it, and for the queue that it was allocated on: work
 * of that queue may still use the memory from before. Both ways may be mixed, block by block.
 *
 * NULL is a queue like others: the default queue of the driver (for CUDA the legacy default
 * stream; `CU_STREAM_PER_THREAD` is the queue of the calling thread). Level Zero has no default
 * queue, so NULL is refused there. On a pool whose provider has
 * no queues, as over ordinary memory, NULL is the only queue, and the functions do what their
 * namesakes without a queue do.
 *
 * **Captures.** While a queue is captured into a graph its work does not run. A block freed on it
 * is used on it again, in the capture; no such block is handed to another queue or returned to the
 * pool before the capture has ended; and it gets from others only blocks that need no wait. A graph
 * uses its memory whenever it is launched: so give a graph a pool of its own, which lives as long
 * as the graph, or keep its memory allocated.
 *
 * Blocks freed on a queue count as allocated in the statistics of their pool until they return to
 * it. All functions
 * are thread-safe. Several threads may use one queue; the order in which they call is then theirs
 * to make.
 */
#ifndef UMF_QUEUE_H
#define UMF_QUEUE_H 1

#include <umf/base.h>
#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A native queue of a driver, of the device (for CUDA: of the context) of the pool's
///        provider.
typedef void *umf_queue_t;

/// @brief Allocates memory for work that will be put on a queue.
///
/// Memory is taken from the first of these: blocks freed on this queue; blocks freed on others,
/// whose work has completed; free memory of the pool or its provider, or blocks that this queue has
/// to wait for on the device; blocks that the host must wait for; memory that others release
/// (umf/reclaim.h).
///
/// A pool that is suspended gives none.
///
/// @param pool the pool
/// @param size in bytes; 0 is as in ::umfPoolMalloc
/// @param alignment a power of two; 0: as ::umfPoolMalloc
/// @param queue on which the memory is used first
/// @return the memory, which every function of the library takes; to be freed by ::umfFreeOn, or by
///         ::umfFree when the host has waited for `queue`, also if no work has used it. NULL: as
///         ::umfPoolAlignedMalloc; or the queue is not one of the device or context of the pool's
///         provider; or the provider has no queues and `queue` is not NULL. The log says why
void *umfPoolMallocOn(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                      umf_queue_t queue);

/// @brief Frees memory as soon as the work that is on the queue now, and on those that ::umfUseOn
///        has named, has completed. Does not wait for it.
///
/// Work on other queues must be in order with this one (by an event), or be named by ::umfUseOn.
///
/// Legal while the pool is suspended, and while the queue is captured.
///
/// @param ptr memory of any pool, from whichever function; NULL does nothing
/// @param queue the last queue that uses it, not necessarily the one it was allocated on
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT, and nothing is freed, if
///         `ptr` is not allocated, was freed before on any queue, or if the queue is not one of the
///         device or context of the pool's provider; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the
///         provider has no queues and `queue` is not NULL; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfFreeOn(void *ptr, umf_queue_t queue);

/// @brief Names one more queue that uses the memory: its free waits for that queue, too.
///
/// To be called before the memory is freed, after or before the work is queued there. It holds
/// until the memory is freed. ::umfFree does not wait for these queues: there the caller says that
/// the host has waited.
///
/// @param ptr memory that is allocated, the address that the allocation gave
/// @param queue a queue
/// @return as ::umfFreeOn
umf_result_t umfUseOn(const void *ptr, umf_queue_t queue);

/// @brief Announces that a queue is about to be destroyed.
///
/// All pools drop their records of it. Blocks freed on it are returned to their pools when its work
/// has completed. No other thread may use the queue for an allocation or a free during the call. If
/// the provider cannot mark the work on it (`queue_mark` fails, for example because the driver has
/// no memory for an event), the blocks are released after a wait for the whole device. Over a
/// provider of your own that has no `wait` (umf/plugin.h) such memory is used again only when its
/// pool has ended.
///
/// Without this call the queue must exist for as long as memory that was freed on it is blocked on
/// its work: drivers crash in calls with a queue that is gone. Only ::umfPoolDestroy makes no such
/// call over providers that can wait for their whole device (of the kinds `cuda` and `cuda_vmm`),
/// which it then does, unless a queue is captured. A new queue with an old handle is noticed at the
/// next query of the driver; an allocation that is served at once makes none, nor does a free on a
/// queue that the thread has used before.
///
/// A queue of one thread, as `CU_STREAM_PER_THREAD`, can be marked by that thread only: it calls
/// this function before it ends. Otherwise the blocks that it has freed there wait for the whole
/// device.
///
/// The call does not wait for work.
///
/// @param queue the queue, which still exists; one that no pool has used is ignored
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfQueueEnds(umf_queue_t queue);

/// @brief Returns memory to the provider, as ::umfPoolTrimMemory, and blocks freed on a queue as
///        well: now if its work has completed, otherwise later, by itself. Does not wait.
///
/// Until they are returned, blocks freed on the queue may still be allocated there.
///
/// @param pool the pool
/// @param keep as for ::umfPoolTrimMemory
/// @param queue whose freed memory is meant
/// @return as ::umfPoolTrimMemory; ::UMF_RESULT_ERROR_INVALID_ARGUMENT or
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED as ::umfFreeOn
umf_result_t umfPoolTrimOn(umf_memory_pool_handle_t pool, size_t keep, umf_queue_t queue);

/// @brief Waits until queued work that uses freed memory has completed.
///
/// Afterwards that memory is free for every queue, and the driver has the memory that was on its
/// way back to it.
///
/// @param pool the pool
/// @param timeout_ns how long at most, in nanoseconds; 0: only check; UINT64_MAX: no limit
/// @param bytes [out] bytes still in use by work: of blocks freed on queues, and of memory that the
///        provider has not returned yet; 0 on success. May be NULL. Also written with
///        ::UMF_RESULT_ERROR_OUT_OF_RESOURCES
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if some work has not completed
///         in time, or never will before a capture ends; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if
///         `pool` is not a pool
umf_result_t umfPoolWaitPending(umf_memory_pool_handle_t pool, uint64_t timeout_ns, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif /* UMF_QUEUE_H */
