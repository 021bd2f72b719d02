/** @file
 * Queues: allocating and freeing while a device still works on what was queued.
 *
 * A queue is a native one of the driver: a `CUstream`, a command queue, or what a provider of your
 * own calls so. The host goes ahead of it. So a block that is freed may still be used by work that
 * is queued, and must not be handed out before that work has passed:
 *
 *     void *block = umfPoolMallocOn(pool, size, 0, stream);
 *     launch(kernel, block, stream);
 *     umfFreeOn(block, stream);                         // at once, while the kernel is queued
 *     block = umfPoolMallocOn(pool, size, 0, stream);   // the same memory, behind the kernel
 *
 * - What was freed on a queue is allocated on that queue again at once: the queue itself puts the
 *   next use behind the last one. No event is recorded and the driver is not called.
 * - What was freed on one queue and is wanted on another is handed out when the work that was
 *   queued before the free has passed. If it has not, the second queue waits for the first on the
 *   device; the host does not wait.
 * - The host waits where memory is short, before ::umfPoolMallocOn returns NULL; and for a request
 *   from 1 MiB on, before the pool grows although more than a quarter of what is in use was freed
 *   and waits for work.
 *
 * Every pool that tracks its memory has queues if its provider has: those of the kinds `cuda` and
 * `cuda_vmm`; `level_zero` and `level_zero_vmm`, where a queue is an immediate command list and
 * waits for others on the host only; and providers of your own with `queue_mark` and `mark_wait`
 * (umf/plugin.h). Queues
 * need no announcement: a pool knows a queue from its first use on. Before a queue is destroyed
 * ::umfQueueEnds tells so, because a driver gives its handle to another queue.
 *
 * ::umfPoolMalloc and ::umfFree keep their meaning on such a pool: ::umfFree of a block says that
 * the host has waited for all work that uses it. Both ways may be mixed, block by block.
 *
 * NULL is a queue like others: the default queue of the driver (for CUDA the legacy default
 * stream; `CU_STREAM_PER_THREAD` is the queue of the calling thread). On a pool whose provider has
 * no queues, as over ordinary memory, NULL is the only queue, and the functions do what their
 * namesakes without a queue do.
 *
 * **Captures.** While a queue is captured into a graph its work does not run. What is freed on it
 * is used on it again, in the capture; nothing of it goes to another queue or back to the pool
 * before the capture has ended; and it gets from others only what needs no wait. A graph uses its
 * memory whenever it is launched: so give a graph a pool of its own, which lives as long as the
 * graph, or keep what it uses allocated.
 *
 * Blocks that wait count as allocated in the statistics of their pool. All functions are
 * thread-safe. Several threads may use one queue; the order in which they call is then theirs to
 * make.
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
/// Memory is looked for in this order: what was freed on this queue; what was freed on others,
/// whose work has passed; what the pool has free or gets from its provider, or what this queue has
/// to wait for on the device; what the host must wait for; what others give back (umf/reclaim.h).
///
/// A pool that is suspended gives none.
///
/// @param pool the pool
/// @param size in bytes; 0 is as in ::umfPoolMalloc
/// @param alignment a power of two; 0: as ::umfPoolMalloc
/// @param queue on which the memory is used first
/// @return the memory, which every function of the library takes; to be freed by ::umfFreeOn, or by
///         ::umfFree when the host has waited. NULL: as ::umfPoolAlignedMalloc; or the queue is not
///         one of the device or context of the pool's provider; or the provider has no queues and
///         `queue` is not NULL. The log says why
void *umfPoolMallocOn(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                      umf_queue_t queue);

/// @brief Frees memory as soon as the work that is on the queue now, and on those that ::umfUseOn
///        has named, has passed. Does not wait for it.
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

/// @brief Tells that a queue is about to be destroyed.
///
/// All pools forget it. What was freed on it goes back to its pool when its work has passed. No
/// other thread may use the queue for an allocation or a free during the call.
/// If the provider cannot mark what is on it, as without memory, only a wait for the whole device
/// tells that its work has passed. Over a provider of your own that has no `wait` (umf/plugin.h)
/// such memory is used again only when its pool has ended.
///
/// Without this call the queue must exist for as long as memory that was freed on it waits: drivers
/// crash when they are asked about a queue that is gone. Only ::umfPoolDestroy asks none, over
/// providers that can wait for their whole device (of the kinds `cuda` and `cuda_vmm`), which it
/// then does, unless a queue is captured. That a handle belongs to another queue is noticed when a
/// pool asks the driver, which an allocation that is served at once does not do.
///
/// A queue of one thread, as `CU_STREAM_PER_THREAD`, can be marked by that thread only: it calls
/// this function before it ends. Otherwise what it has freed there waits for the whole device.
///
/// The call does not wait for work.
///
/// @param queue the queue, which still exists; one that no pool knows is ignored
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfQueueEnds(umf_queue_t queue);

/// @brief Gives memory back to the provider, as ::umfPoolTrimMemory, and what was freed on a queue
///        as well: now if its work has passed, otherwise later, by itself. Does not wait.
///
/// Until it has gone, what was freed on the queue may still be allocated there.
///
/// @param pool the pool
/// @param keep as for ::umfPoolTrimMemory
/// @param queue whose freed memory is meant
/// @return as ::umfPoolTrimMemory; ::UMF_RESULT_ERROR_INVALID_ARGUMENT or
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED as ::umfFreeOn
umf_result_t umfPoolTrimOn(umf_memory_pool_handle_t pool, size_t keep, umf_queue_t queue);

/// @brief Waits until the work has passed that memory freed so far waits for.
///
/// Afterwards that memory is free for every queue, and what was on its way back to the driver is
/// there.
///
/// @param pool the pool
/// @param timeout_ns how long at most, in nanoseconds; 0: only look; UINT64_MAX: no limit
/// @param bytes [out] what still waits, of memory that was freed on queues; 0 on success. May be
///        NULL. Also written with ::UMF_RESULT_ERROR_OUT_OF_RESOURCES
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if some work has not passed in
///         time, or never will before a capture ends; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `pool`
///         is not a pool
umf_result_t umfPoolWaitPending(umf_memory_pool_handle_t pool, uint64_t timeout_ns, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif /* UMF_QUEUE_H */
