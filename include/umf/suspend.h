/** @file
 * Suspend and resume, also called sleep mode: a suspend releases the physical memory of pools while
 * every address stays valid, and a resume brings it back with the same content.
 *
 * The unit is a pool: make one pool for each purpose. The pool must track its memory, and its
 * provider must have virtual memory (linux_vmm, cuda_vmm, level_zero_vmm, or one of your own with
 * the operations of umf/plugin.h). Any other pool gives UMF_RESULT_ERROR_NOT_SUPPORTED. So do pools
 * that keep their own data in the memory: scalable, and kinds of your own that say so
 * (touches_memory in umf/plugin.h).
 *
 *     umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
 *     umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
 *     umfPoolsSuspend(pools, 2, &params, &report);   // report.bytes are free for others now
 *     ...
 *     umfPoolsResume(pools, 2, &params, &report);
 *
 * While a pool is suspended no access to its memory is allowed. Allocating from it fails, with
 * UMF_RESULT_ERROR_OUT_OF_RESOURCES as the last allocation error. Freeing works, and drops the
 * saved content of the freed memory. The pool may be destroyed. Other threads must not use a pool
 * while it is being suspended or resumed. They may use other pools on the same provider, and the
 * provider itself: it hands out no memory that is about to be released.
 *
 * Memory that another process has mapped keeps its physical memory until that process closes it.
 * The other process then sees the old memory and this one, after the resume, new memory: share it
 * again.
 *
 * Addresses stay, but some code keeps more than the address: a record of its physical memory, in a
 * driver or a library (registrations of buffers by communication libraries, handles given to
 * peers). Such a record is stale after a resume. Code that makes one either forbids the suspend as
 * long as the record lasts (umfPoolForbidSuspend), or removes it and makes it anew in callbacks
 * (umfPoolAddSuspendCallback). CUDA graphs of plain copies and kernels need neither.
 *
 * Threads. All functions of this header may run at the same time, for different pools without any
 * effect on each other. For the same pool:
 *
 * - A second suspend or resume beside one that runs changes nothing and gives
 *   UMF_RESULT_ERROR_OUT_OF_RESOURCES. So do umfPoolSetSuspendPolicy, umfPoolAddSuspendCallback,
 *   umfPoolRemoveSuspendCallback, umfPoolForbidSuspend and umfPoolAllowSuspend.
 * - umfPoolGetResidency and umfSuspendTrim are legal at any time.
 * - umfPoolDestroy, and allocations and frees of other threads, must not run beside a suspend or
 *   resume of the pool.
 *
 * A job is ended by one umfSuspendJobWait, after which no thread may use its handle.
 */
#ifndef UMF_SUSPEND_H
#define UMF_SUSPEND_H 1

#include <umf/base.h>
#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Treatment of the content of a suspended pool.
typedef enum umf_suspend_keep_t {
    /// Kept in pinned memory of the host: the fastest. It stays pinned for the next time until
    /// ::umfSuspendTrim or the provider's end; with the setting umf.reclaim.background until it was
    /// unused for umf.suspend.lease milliseconds.
    UMF_SUSPEND_KEEP_PINNED = 0,
    /// Kept in ordinary memory of the host, which the system may swap. The library caches it for
    /// the next time as well, without content: the system takes it when memory becomes scarce.
    UMF_SUSPEND_KEEP_HOST = 1,
    /// Kept in a file without a name, in several if it is large; gone after the resume.
    UMF_SUSPEND_KEEP_FILE = 2,
    /// Kept in memory of another device.
    UMF_SUSPEND_KEEP_PEER = 3,
    /// Not kept; the memory reads as zero after the resume.
    UMF_SUSPEND_ZERO = 4,
    /// Not kept; the content after the resume is not defined.
    UMF_SUSPEND_DISCARD = 5
} umf_suspend_keep_t;

/// @brief How a pool is suspended.
typedef struct umf_suspend_policy_t {
    /// sizeof(umf_suspend_policy_t) of the headers it was compiled with.
    size_t struct_size;
    /// Treatment of the content.
    umf_suspend_keep_t keep;
    /// Folder for ::UMF_SUSPEND_KEEP_FILE; copied by ::umfPoolSetSuspendPolicy.
    const char *folder;
    /// Device number for ::UMF_SUSPEND_KEEP_PEER; with level_zero_vmm one of the provider's driver.
    int device;
} umf_suspend_policy_t;

/// @brief The default: content is kept in pinned memory.
#define UMF_SUSPEND_POLICY_INIT                                                                    \
    { sizeof(umf_suspend_policy_t), UMF_SUSPEND_KEEP_PINNED, NULL, -1 }

/// @brief Work that a suspend or resume waits for before it begins.
///
/// Without queues and events a suspend waits for everything that was queued on the devices of the
/// pools, and a resume for nothing: no work can use memory that is not there. With cuda_vmm that is
/// the work of the provider's context, and of the primary contexts of its device and of those that
/// were given access; while one of these is captured (umf/capture.h) the suspend gives
/// ::UMF_RESULT_ERROR_OUT_OF_RESOURCES, since the wait would end the capture. With level_zero_vmm
/// it is the work of the provider's device and of those that can access it, if the driver can wait
/// for that (umf/providers/provider_level_zero_vmm.h); if not, its users name queues or events, or
/// have waited before.
typedef struct umf_suspend_params_t {
    /// sizeof(umf_suspend_params_t) of the headers it was compiled with.
    size_t struct_size;
    /// Native queues (CUstream, ...) whose work so far is waited for; NULL if there are none.
    void *const *queues;
    /// Length of `queues`.
    size_t num_queues;
    /// Native events (CUevent, ...) that are waited for; NULL if there are none.
    void *const *events;
    /// Length of `events`.
    size_t num_events;
} umf_suspend_params_t;

/// @brief Names no work: a suspend waits for everything, a resume for nothing.
#define UMF_SUSPEND_PARAMS_INIT                                                                    \
    { sizeof(umf_suspend_params_t), NULL, 0, NULL, 0 }

/// @brief Report of a suspend or resume. Bytes, over all its pools.
typedef struct umf_suspend_report_t {
    /// sizeof(umf_suspend_report_t) of the headers it was compiled with.
    size_t struct_size;
    /// Physical memory released, or brought back.
    size_t bytes;
    /// Content that was kept, or brought back.
    size_t kept;
    /// Left as it was, because allocations of others, or of another of these pools, are in the same
    /// pieces.
    size_t shared;
    /// Memory of allocations whose handles other processes may hold: see the head of this file.
    size_t exported;
    /// On a resume that failed for lack of memory: how much is missing.
    size_t missing;
} umf_suspend_report_t;

/// @brief Only the size set.
#define UMF_SUSPEND_REPORT_INIT                                                                    \
    { sizeof(umf_suspend_report_t), 0, 0, 0, 0, 0 }

/// @brief State of a pool.
typedef enum umf_suspend_state_t {
    /// It can be used.
    UMF_SUSPEND_STATE_RESIDENT = 0,
    /// It is being suspended.
    UMF_SUSPEND_STATE_SUSPENDING = 1,
    /// It is suspended.
    UMF_SUSPEND_STATE_SUSPENDED = 2,
    /// It is being resumed.
    UMF_SUSPEND_STATE_RESUMING = 3
} umf_suspend_state_t;

/// @brief Where the memory of a pool is. Bytes; while it is being suspended or resumed as before
///        that.
typedef struct umf_residency_t {
    /// sizeof(umf_residency_t) of the headers it was compiled with.
    size_t struct_size;
    /// State of the pool.
    umf_suspend_state_t state;
    /// Allocated from the provider: the resident bytes if nothing were suspended.
    size_t reserved;
    /// Of that, with physical memory.
    size_t resident;
    /// Kept in pinned memory of the host.
    size_t pinned;
    /// Kept in ordinary memory of the host.
    size_t host;
    /// Kept in files.
    size_t file;
    /// Kept in memory of other devices.
    size_t peer;
} umf_residency_t;

/// @brief Only the size set.
#define UMF_RESIDENCY_INIT                                                                         \
    { sizeof(umf_residency_t), UMF_SUSPEND_STATE_RESIDENT, 0, 0, 0, 0, 0, 0 }

/// @brief A suspend or resume in the background.
typedef struct umf_suspend_job_t *umf_suspend_job_handle_t;

/// @brief Sets the treatment of a pool's content at its next suspend.
///
/// @param pool a pool that is resident
/// @param policy copied
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, the
///         size is too small, the value of `keep` is none of its enum, a folder or device is
///         missing or the folder's name is too long; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the
///         pool is not resident; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the pool cannot be suspended,
///         or its provider cannot keep memory in that way; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfPoolSetSuspendPolicy(umf_memory_pool_handle_t pool,
                                     const umf_suspend_policy_t *policy);

/// @brief Releases the physical memory of pools: of all or of none.
///
/// The content of all pools is saved before the first memory is released. On failure every pool is
/// as before, except that content which is not to be kept (::UMF_SUSPEND_ZERO,
/// ::UMF_SUSPEND_DISCARD) may be lost, and that a pool whose memory was released and cannot be
/// brought back stays suspended, with its content kept, and can be resumed later. A pool that is
/// suspended already stays so. A pool that is named twice counts once.
///
/// @param pools handles
/// @param num length of `pools`; not 0
/// @param params work to wait for first; NULL: everything
/// @param report [out] the figures, also on failure; may be NULL
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or a
///         size too small; ::UMF_RESULT_ERROR_NOT_SUPPORTED if a pool cannot be suspended;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if a pool takes part in another call, or must not be
///         suspended (::umfPoolForbidSuspend); the result of a callback that refuses;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY if there is no room for the content; or an error
///         of the provider
umf_result_t umfPoolsSuspend(umf_memory_pool_handle_t *pools, size_t num,
                             const umf_suspend_params_t *params, umf_suspend_report_t *report);

/// @brief Brings the physical memory of pools back, at the same addresses and with the saved
///        content: of all or of none.
///
/// All memory is made before the first is mapped. On failure every pool stays suspended with its
/// content kept, and `missing` is the number of bytes that were missing. A pool that is resident
/// stays so.
///
/// @param pools handles
/// @param num length of `pools`; not 0
/// @param params queues and events to wait for first; NULL: none
/// @param report [out] the figures, also on failure; may be NULL
/// @return as ::umfPoolsSuspend
umf_result_t umfPoolsResume(umf_memory_pool_handle_t *pools, size_t num,
                            const umf_suspend_params_t *params, umf_suspend_report_t *report);

/// @brief ::umfPoolsSuspend in the background.
///
/// @param pools handles; copied
/// @param num length of `pools`; not 0
/// @param params copied, its arrays too; NULL: everything is waited for
/// @param job [out] to be ended by ::umfSuspendJobWait
/// @return ::UMF_RESULT_SUCCESS if it was started; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an
///         argument is NULL or a size too small; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if no thread can be started
umf_result_t umfPoolsSuspendAsync(umf_memory_pool_handle_t *pools, size_t num,
                                  const umf_suspend_params_t *params,
                                  umf_suspend_job_handle_t *job);

/// @brief ::umfPoolsResume in the background.
///
/// @param pools handles; copied
/// @param num length of `pools`; not 0
/// @param params copied, its arrays too; NULL: nothing is waited for
/// @param job [out] to be ended by ::umfSuspendJobWait
/// @return as ::umfPoolsSuspendAsync
umf_result_t umfPoolsResumeAsync(umf_memory_pool_handle_t *pools, size_t num,
                                 const umf_suspend_params_t *params, umf_suspend_job_handle_t *job);

/// @brief Reports whether a job is done. Does not wait.
///
/// @param job not ended yet
/// @param done [out] 1 if it is done, whether well or not; otherwise 0
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfSuspendJobQuery(umf_suspend_job_handle_t job, int *done);

/// @brief Waits until a job is done and ends it; the handle is no longer valid.
///
/// @param job not ended yet
/// @param report [out] the figures; may be NULL
/// @return the result of the job; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `job` is NULL or the size
///         of the report too small
umf_result_t umfSuspendJobWait(umf_suspend_job_handle_t job, umf_suspend_report_t *report);

/// @brief Change of a pool that is about to happen, or has happened, when a callback is called.
typedef enum umf_suspend_event_t {
    /// The pool is about to be suspended. Its memory is still there and nothing was waited for yet.
    UMF_SUSPEND_EVENT_SUSPEND = 0,
    /// The pool has memory at its addresses again, after a resume or a suspend that failed.
    UMF_SUSPEND_EVENT_RESUME = 1
} umf_suspend_event_t;

/// @brief Called by the thread that suspends or resumes, with no lock held.
///
/// It may allocate, free and use the memory. It must not suspend, resume or destroy the pool, and
/// calls that change its policy, its callbacks or whether it may be suspended fail.
///
/// @param pool the pool
/// @param event its change
/// @param arg as given to ::umfPoolAddSuspendCallback
/// @return ::UMF_RESULT_SUCCESS; anything else refuses a suspend, which then fails with this result
///         for all of its pools, and is ignored on a resume
typedef umf_result_t (*umf_suspend_callback_t)(umf_memory_pool_handle_t pool,
                                               umf_suspend_event_t event, void *arg);

/// @brief Adds a callback that is called when a pool is suspended and resumed.
///
/// Before a suspend the callback that was added last is called first, after a resume the first.
/// Each callback that was called for a suspend is called for its end: when one refuses, or the
/// suspend fails later and the pool is as before, those that were called already get
/// ::UMF_SUSPEND_EVENT_RESUME. There is no call for a pool that is in the requested state already.
///
/// @param pool a pool that is resident
/// @param callback may be added several times, and is then called as often
/// @param arg handed to it; must live until the callback is removed or the pool destroyed
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `pool` or `callback` is
///         NULL; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the pool is not resident;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot be suspended;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfPoolAddSuspendCallback(umf_memory_pool_handle_t pool,
                                       umf_suspend_callback_t callback, void *arg);

/// @brief Removes a callback of ::umfPoolAddSuspendCallback: the last one with these arguments.
///
/// @param pool a pool that is resident
/// @param callback as it was added
/// @param arg as it was added
/// @return as ::umfPoolAddSuspendCallback; ::UMF_RESULT_ERROR_INVALID_ARGUMENT, too, if it was not
///         added
umf_result_t umfPoolRemoveSuspendCallback(umf_memory_pool_handle_t pool,
                                          umf_suspend_callback_t callback, void *arg);

/// @brief Forbids to suspend a pool, because some code has a record of the physical memory at its
///        addresses.
///
/// Calls are counted. Until ::umfPoolAllowSuspend was called as often, every suspend that names the
/// pool gives ::UMF_RESULT_ERROR_OUT_OF_RESOURCES and changes nothing.
///
/// @param pool a pool that is resident
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `pool` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the pool is not resident;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if it cannot be suspended anyway;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfPoolForbidSuspend(umf_memory_pool_handle_t pool);

/// @brief Undoes one ::umfPoolForbidSuspend.
///
/// @param pool a pool whose suspend is forbidden
/// @return as ::umfPoolForbidSuspend; ::UMF_RESULT_ERROR_INVALID_ARGUMENT, too, if it is not
///         forbidden
umf_result_t umfPoolAllowSuspend(umf_memory_pool_handle_t pool);

/// @brief Reports where the memory of a pool is, at any time.
///
/// @param pool any pool that tracks its memory; one that cannot be suspended is wholly resident
/// @param residency [out] `struct_size` is set by the caller
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or the
///         size too small; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the pool does not track
umf_result_t umfPoolGetResidency(umf_memory_pool_handle_t pool, umf_residency_t *residency);

/// @brief Releases memory of the host, pinned or not, that the library caches for the next suspend
///        or copy.
///
/// It is made and released in blocks of up to 256 MiB; a block stays while a suspended pool has
/// content in any part of it.
///
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfSuspendTrim(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_SUSPEND_H */
