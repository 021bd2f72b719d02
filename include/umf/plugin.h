/** @file
 * Kinds of providers and pools by name: those of the library, those that an application registers,
 * and those of plugins loaded at run time. A kind that has a name can be created from text
 * (umf/text.h) and may offer operations beyond the ops tables.
 *
 * A descriptor ties an ops table to a name. Every struct here begins with its own size. Members are
 * only ever appended: those beyond a smaller size count as NULL, and those of a newer plugin beyond
 * our size are ignored.
 *
 * A plugin is a shared library that exports one symbol:
 *
 * @code{.c}
 * #include <umf/plugin.h>
 *
 * extern const umf_memory_provider_ops_t hbm_ops;
 *
 * static const umf_memory_provider_descriptor_t hbm = {
 *     .struct_size = sizeof(hbm), .name = "hbm", .ops = &hbm_ops};
 * static const umf_memory_provider_descriptor_t *const providers[] = {&hbm};
 *
 * const umf_plugin_t umf_plugin = {.struct_size = sizeof(umf_plugin), .abi = UMF_PLUGIN_ABI,
 *                                  .providers = providers, .num_providers = 1};
 * @endcode
 *
 * All functions here are thread-safe.
 */
#ifndef UMF_PLUGIN_H
#define UMF_PLUGIN_H 1

#include <umf/base.h>
#include <umf/memory_pool_ops.h>
#include <umf/memory_provider_ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A range of addresses whose physical memory is created and released as a whole: one
///        physical chunk.
typedef struct umf_vm_piece_t {
    /// First address.
    void *base;
    /// Size in bytes.
    size_t size;
    /// How many allocations of the provider are in it.
    size_t allocations;
    /// 1 if it has physical memory, 0 if it was detached.
    int attached;
} umf_vm_piece_t;

/// @brief Physical memory of a range: what `page_create` made.
typedef struct umf_vm_page_t {
    /// The provider's own name of it.
    uint64_t id;
    /// Size in bytes, a multiple of the range's granularity.
    size_t size;
} umf_vm_page_t;

/// @brief Properties of the descriptions that a provider makes for other processes.
typedef enum umf_ipc_flag_t {
    /// `ext_get_ipc_handle` may be called again for an allocation and writes the same bytes, and
    /// `ext_put_ipc_handle` has nothing to release. The library may then drop a description,
    /// without a put, when UMF_MAX_EXPORTED_IPC_HANDLES is reached, and get it again.
    UMF_IPC_FLAG_REPEATABLE = 1,
    /// `ext_open_ipc_handle` decides itself whether it can open a description made on another
    /// machine, or during another boot. Without this flag the library refuses such a handle before
    /// it calls the provider.
    UMF_IPC_FLAG_ANY_MACHINE = 2,
} umf_ipc_flag_t;

/// @brief Operations of a provider beyond ::umf_memory_provider_ops_t.
///
/// All operations are optional; NULL means absent. They belong to the providers created from the
/// ops table of the same descriptor and get the data those stored in `initialize`. The same rules
/// hold as for the ops table: thread-safe, no lock of the library held, outputs only on success.
typedef struct umf_memory_provider_ext_ops_t {
    /// sizeof(umf_memory_provider_ext_ops_t) of the headers the table was compiled with.
    size_t struct_size;

    /// @brief A generation to watch, so that one load shows whether a cached mapping is stale.
    ///
    /// Called after an open of the same description, before the matching close. As long as `*word`
    /// reads as `*expected`, the producer's allocation lives and the mapping shows it; once it
    /// differs it never reads so again.
    ///
    /// @param provider the consumer's provider
    /// @param providerIpcData the description that was opened
    /// @param word [out] memory shared with the producer, aligned to 8 bytes, to be read atomically
    ///        (load acquire); valid until the mapping that was opened from this description is
    ///        closed
    /// @param expected [out] the value `*word` keeps while the allocation lives
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_NOT_SUPPORTED if there is no such word for
    ///         this allocation; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if the description is not valid
    ///         or not open
    umf_result_t (*ipc_watch)(void *provider, const void *providerIpcData, const uint64_t **word,
                              uint64_t *expected);

    /// @brief Tells whether a description is one of an allocation of that size.
    ///
    /// Called before an open, so that a handle with a false size is refused instead of leading to
    /// accesses, or to an unmapping, beyond the opened memory.
    ///
    /// @param provider the consumer's provider
    /// @param providerIpcData the description that is to be opened
    /// @param size as it was given to `ext_get_ipc_handle` in the producer
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if the description is not
    ///         valid or has another size
    umf_result_t (*ipc_check)(void *provider, const void *providerIpcData, size_t size);

    /// @name Data
    /// Copying and filling memory of this provider, in order on a queue of its own. Pools use them
    /// for calloc and realloc if the property ::UMF_MEMORY_PROPERTY_POINTER_TYPE of the memory is
    /// UMF_MEMORY_TYPE_DEVICE, or if the provider does not report it and the CPU cannot access the
    /// memory. Pools query it once, so a provider must serve one kind of memory.
    /// @{

    /// @brief Makes a queue. Work on one queue is done in order.
    ///
    /// @param provider the provider
    /// @param queue [out] to be destroyed by `queue_destroy`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*queue_create)(void *provider, void **queue);

    /// @brief Destroys a queue after its work is done.
    ///
    /// @param provider the provider
    /// @param queue made by `queue_create`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*queue_destroy)(void *provider, void *queue);

    /// @brief Waits until all work on the queue is done.
    ///
    /// @param provider the provider
    /// @param queue made by `queue_create`
    /// @return ::UMF_RESULT_SUCCESS; otherwise the error of any of that work
    umf_result_t (*queue_wait)(void *provider, void *queue);

    /// @brief Copies; at least one operand is memory of this provider, the other may be any memory
    ///        of the host or memory of `peer_alloc`.
    ///
    /// @param provider the provider
    /// @param queue on which it happens
    /// @param dst where to
    /// @param src where from
    /// @param size in bytes
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider; errors of the work itself may come
    ///         later, from `queue_wait`
    umf_result_t (*copy)(void *provider, void *queue, void *dst, const void *src, size_t size);

    /// @brief Sets every byte.
    ///
    /// @param provider the provider
    /// @param queue on which it happens
    /// @param dst memory of this provider
    /// @param value of every byte
    /// @param size in bytes
    /// @return as `copy`
    umf_result_t (*fill)(void *provider, void *queue, void *dst, uint8_t value, size_t size);

    /// @brief Waits for work that others queued on this memory.
    ///
    /// @param provider the provider
    /// @param queues native queues (a CUstream, ...) to wait for; NULL if there are none
    /// @param num_queues length of `queues`
    /// @param events native events (a CUevent, ...) to wait for; NULL if there are none
    /// @param num_events length of `events`. If both counts are 0, everything that was queued on
    ///        the device is waited for.
    /// @return ::UMF_RESULT_SUCCESS; otherwise an error of that work or of the provider
    umf_result_t (*wait)(void *provider, void *const *queues, size_t num_queues,
                         void *const *events, size_t num_events);

    /// @}
    /// @name Pinning and other stores
    /// @{

    /// @brief Pins memory of the host, so that copies to and from it are fast.
    ///
    /// @param provider the provider
    /// @param ptr start, aligned to a page
    /// @param size in bytes
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*host_pin)(void *provider, void *ptr, size_t size);

    /// @brief Undoes `host_pin`.
    ///
    /// @param provider the provider
    /// @param ptr as given to `host_pin`
    /// @param size as given to `host_pin`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*host_unpin)(void *provider, void *ptr, size_t size);

    /// @brief Memory on another device that copies of this provider can access.
    ///
    /// @param provider the provider
    /// @param device number of the other device
    /// @param size in bytes
    /// @param ptr [out] to be freed by `peer_free`
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the two devices cannot
    ///         reach each other; or an error of the provider
    umf_result_t (*peer_alloc)(void *provider, int device, size_t size, void **ptr);

    /// @brief Frees memory of `peer_alloc`.
    ///
    /// @param provider the provider
    /// @param ptr as `peer_alloc` gave it
    /// @param size as given to `peer_alloc`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*peer_free)(void *provider, void *ptr, size_t size);

    /// @}
    /// @name Virtual memory
    /// Physical memory that can be released while its addresses stay reserved. All or none of these
    /// are there, with `vm_claim` and `vm_release` below. Pieces are named by their first address.
    ///
    /// A caller that takes the memory of pieces away claims them first: from then on no other
    /// caller gets memory in them, and they stay until they are released, whatever is freed. The
    /// operations from `vm_detach` on are for pieces that the caller has claimed. Each brings every
    /// piece into the state it names and skips those that are in it already, so that a call that
    /// failed half-way can be repeated, or undone, with the same pieces.
    /// @{

    /// @brief The piece that holds an address.
    ///
    /// @param provider the provider
    /// @param ptr any address inside an allocation of the provider
    /// @param piece [out] the piece
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if there is none
    umf_result_t (*vm_find)(void *provider, const void *ptr, umf_vm_piece_t *piece);

    /// @brief Releases the physical memory of pieces, mapped or not. Its content is lost.
    ///
    /// @param provider the provider
    /// @param pieces first addresses, ascending
    /// @param count length of `pieces`
    /// @return ::UMF_RESULT_SUCCESS; otherwise an error of the provider, and the pieces that still
    ///         have their content are the attached ones of `vm_find`
    umf_result_t (*vm_detach)(void *provider, void *const *pieces, size_t count);

    /// @brief Makes physical memory, not yet mapped, for the pieces that have none: for all or for
    ///        none of them.
    ///
    /// @param provider the provider
    /// @param pieces first addresses, ascending
    /// @param count length of `pieces`
    /// @param missing [out] on failure: bytes that were missing; otherwise not written
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*vm_create)(void *provider, void *const *pieces, size_t count, size_t *missing);

    /// @brief Maps the memory of `vm_create`, where it is not mapped: for all or for none of them.
    ///        The content is not defined.
    ///
    /// @param provider the provider
    /// @param pieces as given to `vm_create`
    /// @param count as given to `vm_create`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*vm_attach)(void *provider, void *const *pieces, size_t count);

    /// @brief Undoes `vm_create`: as `vm_detach`, but pieces that are attached stay so. The library
    ///        does not call it; it may be NULL.
    ///
    /// @param provider the provider
    /// @param pieces as given to `vm_create`
    /// @param count as given to `vm_create`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*vm_discard)(void *provider, void *const *pieces, size_t count);

    /// @}

    /// Properties of the descriptions that the provider makes for other processes: values of
    /// ::umf_ipc_flag_t joined by |.
    uint64_t ipc_flags;

    /// @name Reuse
    /// For pools: memory that they free is soon allocated again, by them or by another pool over
    /// the same provider, and they do not need memory that reads as zero. So a provider may cache
    /// the memory as it is, within limits of its own, and avoid the work of releasing it. A pool
    /// that frees much may then cache some itself, and release it when it has decayed. All or none
    /// of these are there, but `reuse_count` and `reuse_held` may be absent.
    /// @{

    /// @brief Allocates memory of any content: as `alloc`, or from the cache of `reuse_free`.
    ///
    /// @param provider the provider
    /// @param size as for `alloc`
    /// @param alignment as for `alloc`
    /// @param ptr [out] to be freed by `free` or by `reuse_free`
    /// @return as `alloc`
    umf_result_t (*reuse_alloc)(void *provider, size_t size, size_t alignment, void **ptr);

    /// @brief Frees memory that may be cached for `reuse_alloc`.
    ///
    /// It counts as free from then on. `alloc` does not give it out before it is as new.
    ///
    /// @param provider the provider
    /// @param ptr as for `free`; its protection is the one of its allocation
    /// @param size as for `free`
    /// @return as `free`
    umf_result_t (*reuse_free)(void *provider, void *ptr, size_t size);

    /// @brief Releases the cached memory.
    ///
    /// Called for all of it after a pool was trimmed, at its end and when an allocation is about to
    /// fail; and for memory that has decayed about every second, up to 20 times as often while
    /// pools release much.
    ///
    /// @param provider the provider
    /// @param only_decayed 0: all unused memory, whichever thread freed it. On return the system
    ///        has it, also memory that other threads were releasing at the call. Otherwise only
    ///        memory that was unused for a while
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*reuse_drop)(void *provider, int only_decayed);

    /// @brief Counts memory that a pool caches itself as free, or as allocated again.
    ///
    /// With it the provider's statistics count memory in use. Without it, pools of which every
    /// allocation is one of the provider's cache none. Such pools use memory again for other sizes
    /// of as many pages of 4 KiB. So `alloc` must give whole pages, and `free` must take any of
    /// these sizes. Memory that is released is first given to `reuse_free` and then counted as used
    /// again, so that no peak rises. It is called often, by any thread, and must be fast. It is not
    /// called for providers whose memory can be detached.
    ///
    /// @param provider the provider
    /// @param size bytes requested of the pool; 0: a query whether pools may cache any
    /// @param is_used not 0: from now on in use again, else free
    /// @return ::UMF_RESULT_SUCCESS, or ::UMF_RESULT_ERROR_NOT_SUPPORTED, always: pools must cache
    ///        none
    umf_result_t (*reuse_count)(void *provider, size_t size, int is_used);

    /// @}
    /// @name Virtual memory: whose it is
    /// With the operations of the group "Virtual memory". Pools over a provider without these
    /// cannot be suspended: another pool could get its memory between the plan and the act.
    /// @{

    /// @brief Claims pieces, in one step that no allocation can come between.
    ///
    /// A piece is claimed if it is attached and not claimed, and if its number of allocations is
    /// the one given by the caller. Until `vm_release` nothing is allocated in it, and it stays,
    /// with its addresses and its memory, even if all its allocations are freed.
    ///
    /// @param provider the provider
    /// @param pieces first addresses, ascending
    /// @param allocations number of allocations in each piece by the caller's records
    /// @param count length of `pieces`, of `allocations` and of `claimed`
    /// @param claimed [out] 1 for each piece that was claimed, otherwise 0
    /// @return ::UMF_RESULT_SUCCESS, also if some or all were not claimed; otherwise an error of
    ///         the provider, and none was
    umf_result_t (*vm_claim)(void *provider, void *const *pieces, const size_t *allocations,
                             size_t count, int *claimed);

    /// @brief Undoes `vm_claim`. Memory freed meanwhile can be allocated again; a piece without
    ///        allocations is released.
    ///
    /// A piece that is detached stays so until its last allocation is freed.
    ///
    /// @param provider the provider
    /// @param pieces first addresses, ascending, all claimed
    /// @param count length of `pieces`
    /// @return ::UMF_RESULT_SUCCESS; otherwise an error of the provider, which has kept memory of
    ///         pieces that went. All are released.
    umf_result_t (*vm_release)(void *provider, void *const *pieces, size_t count);

    /// @}

    /// @brief Begins or ends a number of frees.
    ///
    /// Pools call it around frees that belong together, as in a trim. Memory that any thread frees
    /// in between may stay with the provider until the end, so that the provider waits for a device
    /// once. Calls nest and come in pairs, by any threads.
    ///
    /// @param provider the provider
    /// @param begins not 0: frees follow; else they are over
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*free_batch)(void *provider, int begins);

    /// @brief The NUMA node of the host that is nearest to the provider's device.
    ///
    /// Memory that is to be pinned is placed there, if there is room.
    ///
    /// @param provider the provider
    /// @param node [out] its number
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it is not known
    umf_result_t (*host_node)(void *provider, unsigned *node);

    /// @name Movement
    /// Operations that umf/copy.h uses in addition to `copy`, `fill` and the queues of the group
    /// "Data". The queues and events of applications are native ones. Each operation may be absent.
    /// Memory is held while it is copied, so none of these, and neither `copy` nor `fill`, may free
    /// memory of a pool: it could wait for itself.
    /// @{

    /// @brief Reports the domain: `copy` takes memory of all its providers as both operands.
    ///
    /// Memory of two providers whose domain is the same is copied by one of them; any other by way
    /// of the host. Absent: each provider is a domain of its own.
    ///
    /// @param provider the provider
    /// @param domain [out] any address that stands for the domain
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider, which counts as absent
    umf_result_t (*copy_domain)(void *provider, const void **domain);

    /// @brief Copies rows; the operands are as for `copy`.
    ///
    /// @param provider the provider
    /// @param queue on which it happens
    /// @param dst first row of the destination
    /// @param dst_pitch bytes from one row to the next, at least `size`
    /// @param src first row of the source
    /// @param src_pitch bytes from one row to the next, at least `size`
    /// @param size bytes of one row
    /// @param count number of rows
    /// @return as `copy`; ::UMF_RESULT_ERROR_NOT_SUPPORTED: nothing was done, row by row may work
    umf_result_t (*copy_rows)(void *provider, void *queue, void *dst, size_t dst_pitch,
                              const void *src, size_t src_pitch, size_t size, size_t count);

    /// @brief Lets work that is queued later wait for events.
    ///
    /// @param provider the provider
    /// @param queue the queue
    /// @param events native events
    /// @param num_events length of `events`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*queue_join)(void *provider, void *queue, void *const *events, size_t num_events);

    /// @brief Records a native event after the work on the queue.
    ///
    /// @param provider the provider
    /// @param event the event
    /// @param queue the queue
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*event_record)(void *provider, void *event, void *queue);

    /// @brief Marks the work on a queue now, for a later check whether it has completed.
    ///
    /// @param provider the provider
    /// @param queue the queue, which may be destroyed before the mark
    /// @param mark [out] to be ended by `mark_wait`; NULL: the queue is being captured, and nothing
    ///        on it happens now
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*queue_mark)(void *provider, void *queue, void **mark);

    /// @brief Checks whether the work before a mark has completed. If it has, or will never run,
    ///        the mark ends. A mark that cannot be checked has not completed: it is checked again.
    ///
    /// @param provider the provider
    /// @param mark of `queue_mark`
    /// @param may_block not 0: wait until it has
    /// @return 1: it has completed and is ended; 0: not yet, or the wait failed
    int (*mark_wait)(void *provider, void *mark, int may_block);

    /// @}
    /// @name Reuse: how much is cached With the group "Reuse". It may be absent.
    /// @{

    /// @brief Reports how much `reuse_free` has cached: the bytes that `reuse_drop` would release.
    ///
    /// Called by any thread, also while others allocate and free.
    ///
    /// @param provider the provider
    /// @param bytes [out] the bytes at this moment
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider, which leaves `bytes` as it is
    umf_result_t (*reuse_held)(void *provider, size_t *bytes);

    /// @}
    /// @name Queues of pools
    /// Operations that umf/queue.h uses in addition to `queue_mark` and `mark_wait`, without which
    /// a pool has no queues. Each may be absent.
    /// @{

    /// @brief Tells which queue a handle is, and whether its work is captured now.
    ///
    /// @param provider the provider
    /// @param queue a native queue of the application, or NULL for the default one
    /// @param id [out] never the same for two queues, whatever their handles are; 0: not available
    ///        while the queue is captured, and the handle stands for the queue as before. Absent: a
    ///        handle stands for one queue for ever
    /// @param is_of_thread [out] 1: the handle stands for another queue in each thread, of which
    ///        this is the calling one's; else 0
    /// @param is_captured [out] 1: work put on it now happens when a graph runs; else 0
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT, with a message in the
    /// log,
    ///         if it is no queue on which memory of this provider may be used, as one of another
    ///         device
    umf_result_t (*queue_id)(void *provider, void *queue, uint64_t *id, int *is_of_thread,
                             int *is_captured);

    /// @brief Lets work that is put on a queue later wait for a mark.
    ///
    /// Absent: queues do not wait for each other.
    ///
    /// @param provider the provider
    /// @param queue the queue
    /// @param mark of `queue_mark`, not ended, of another queue
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the queue is being
    ///         captured; an error of the provider
    umf_result_t (*queue_follow)(void *provider, void *queue, void *mark);

    /// @brief Releases memory that `free` has kept because queued work may still use it.
    ///
    /// Called by ticks and trims, and before memory is missing.
    ///
    /// @param provider the provider
    /// @param may_block not 0: wait for that work
    /// @param left [out] bytes that are still kept
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*free_pending)(void *provider, int may_block, size_t *left);

    /// @}

    /// @brief Tells whether `copy` takes memory of another provider of the same `copy_domain`.
    ///
    /// Where neither provider's copy takes the memory of the other, the data is moved through
    /// memory of the host. Absent: it takes all memory of the domain.
    ///
    /// @param provider the provider
    /// @param ptr memory of the other provider
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it does not
    umf_result_t (*copy_reaches)(void *provider, const void *ptr);

    /// @brief Waits for all work of the device, also of queues that were destroyed.
    ///
    /// Called when a pool ends: its queues may have been destroyed before, and a driver may crash
    /// in a call with one that is gone. It logs nothing when it cannot wait.
    ///
    /// Absent: the queues of the pool are queried.
    ///
    /// @param provider the provider
    /// @return ::UMF_RESULT_SUCCESS; any other result if it cannot wait, as while a queue is
    ///        captured: then the queues are queried
    umf_result_t (*settle)(void *provider);

    /// @brief Tells whether the calling thread's last request failed for lack of memory.
    ///
    /// Asked after `alloc` or `reuse_alloc` has failed with any other result than
    /// ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY and ::UMF_RESULT_ERROR_OUT_OF_RESOURCES, by the same
    /// thread, before any other request of it. If it did, the pool makes memory available and tries
    /// again (umf/reclaim.h). Otherwise the request fails at once with that result, as when a
    /// device is lost.
    ///
    /// Absent: only these two results mean so.
    ///
    /// @param provider the provider
    /// @param result the result of the request
    /// @return not 0: more free memory can change the answer
    int (*is_shortage)(void *provider, umf_result_t result);

    /// @name Records of memory
    /// Operations behind umf/registration.h. Each may be absent.
    /// @{

    /// @brief The piece that holds an address, and its physical memory, at one moment.
    ///
    /// With the group "Virtual memory". Absent: ::umfGetRuns is not supported.
    ///
    /// @param provider the provider
    /// @param ptr as for `vm_find`
    /// @param piece [out] as of `vm_find`
    /// @param handle [out] the driver's handle of the physical memory; 0: none
    /// @param generation [out] a number that no other physical memory of the provider ever has
    /// @return as `vm_find`
    umf_result_t (*vm_run)(void *provider, const void *ptr, umf_vm_piece_t *piece, uint64_t *handle,
                           uint64_t *generation);

    /// @brief Makes a DMA buffer.
    ///
    /// @param provider the provider
    /// @param ptr an allocation of the provider
    /// @param begin where in it the range begins
    /// @param size bytes of the range, which may reach into further allocations of the provider
    /// @param fd [out] the descriptor, the caller's
    /// @param offset [out] where the range begins in it
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_NOT_SUPPORTED if there is none for this
    ///         memory; or an error of the provider
    umf_result_t (*dmabuf)(void *provider, const void *ptr, size_t begin, size_t size, int *fd,
                           size_t *offset);

    /// @}
    /// @name Ranges
    /// Addresses and physical memory apart. A pool reserves one range of addresses, creates pages,
    /// and maps each at any place of the range. So physical memory follows the blocks, and free
    /// addresses cost nothing. A page may be mapped at two places: work that is queued still uses
    /// the first, while work that is queued behind it uses the second. All or none of these are
    /// there, but `mark_all` and `mark_all_wait`, which come in a pair.
    ///
    /// A call that fails has no effect. One pool uses a range and makes these calls one at a time.
    /// @{

    /// @brief Reserves addresses, without memory.
    ///
    /// @param provider the provider
    /// @param size [in,out] bytes; 0: as many as the provider suggests, some times its memory
    /// @param granularity [out] a power of two; pages, and the places where they are mapped, are
    ///        multiples of it
    /// @param base [out] a multiple of the granularity, to be given back by `range_release`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*range_reserve)(void *provider, size_t *size, size_t *granularity, void **base);

    /// @brief Gives the addresses of a range back. No page is mapped there.
    ///
    /// @param provider the provider
    /// @param base of `range_reserve`
    /// @param size of `range_reserve`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*range_release)(void *provider, void *base, size_t size);

    /// @brief Makes physical memory, mapped nowhere. Its content is not defined.
    ///
    /// @param provider the provider
    /// @param page [in,out] its size; gets its id
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*page_create)(void *provider, umf_vm_page_t *page);

    /// @brief Releases physical memory that is mapped nowhere.
    ///
    /// @param provider the provider
    /// @param page of `page_create`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider, which keeps the page then
    umf_result_t (*page_destroy)(void *provider, const umf_vm_page_t *page);

    /// @brief Maps pages side by side, all or none of them. Does not wait for queued work.
    ///
    /// @param provider the provider
    /// @param ptr where the first one begins; nothing is mapped there
    /// @param pages in the order of their addresses; they may be mapped elsewhere, too
    /// @param count length of `pages`
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*page_map)(void *provider, void *ptr, const umf_vm_page_t *pages, size_t count);

    /// @brief Unmaps whole pages that lie side by side. Does not wait: the caller has made sure
    /// that no
    ///        work uses them there.
    ///
    /// @param provider the provider
    /// @param ptr where the first one begins
    /// @param size bytes of all
    /// @return ::UMF_RESULT_SUCCESS; otherwise an error of the provider, and they stay mapped
    umf_result_t (*page_unmap)(void *provider, void *ptr, size_t size);

    /// @brief Marks all work that is queued on the device now. Absent: nothing is ever queued.
    ///
    /// @param provider the provider
    /// @param mark [out] to be ended by `mark_all_wait`; NULL: all of it has completed
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if it is not possible now,
    ///         as while a queue is captured
    umf_result_t (*mark_all)(void *provider, void **mark);

    /// @brief As `mark_wait`, of a mark of `mark_all`.
    ///
    /// @param provider the provider
    /// @param mark of `mark_all`
    /// @param may_block not 0: wait until the work has completed
    /// @return 1: it has completed and the mark is ended; 0: not yet
    int (*mark_all_wait)(void *provider, void *mark, int may_block);

    /// @}
    /// @name Memory that outlives its provider
    /// For vaults (umf/vault.h). Both or none of these are there, with those of virtual memory.
    /// @{

    /// @brief Makes a descriptor of the physical memory of a claimed piece. The memory exists as
    ///        long as a descriptor or a mapping of it does.
    ///
    /// @param provider the provider
    /// @param piece first address of the piece, which is attached
    /// @param fd [out] to be closed by the caller
    /// @param size [out] size of the piece
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*vm_give)(void *provider, const void *piece, int *fd, size_t *size);

    /// @brief Maps memory of `vm_give` at the addresses of a claimed piece that was detached.
    ///
    /// @param provider the provider
    /// @param piece first address of the piece
    /// @param fd descriptor of the memory; stays the caller's
    /// @param size size of the piece
    /// @param is_writable 1: the piece is attached again, with this memory. 0: the memory is mapped
    ///        read-only, and the addresses belong to the caller, who unmaps them: they stay when
    ///        the provider is destroyed
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*vm_take)(void *provider, void *piece, int fd, size_t size, int is_writable);

    /// @}
    /// @name Memory of a device that outlives its provider
    /// For vaults, too: with `vm_give` and `vm_take`, ranges and pages. All or none of these are
    /// there. Absent: the memory is that of memory files, which a process maps without a driver.
    /// @{

    /// @brief Tells of which device the memory is.
    ///
    /// @param provider the provider
    /// @param id [out] 16 bytes that name the device, the same in all processes
    /// @param number [out] number of the device in this process
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the memory cannot be kept,
    ///         logged with the cause
    umf_result_t (*vm_device)(void *provider, unsigned char id[16], int *number);

    /// @brief Maps memory of `vm_give` of any process read-only, side by side, all or none of it.
    ///
    /// @param provider the provider
    /// @param at where in a range of `range_reserve` the first one begins; nothing is mapped there
    /// @param fds descriptors, which stay the caller's and may be anything
    /// @param sizes of their memory, multiples of the granularity
    /// @param count length of both
    /// @param id the device that the memory is of
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if a descriptor is not
    ///         memory of the device and of that size; or an error of the provider. Logged
    umf_result_t (*vm_show)(void *provider, void *at, const int *fds, const size_t *sizes,
                            size_t count, const unsigned char id[16]);

    /// @brief Unmaps memory of `vm_show`. Does not wait for queued work.
    ///
    /// @param provider the provider
    /// @param at where it begins
    /// @param size bytes of one or more that are side by side
    /// @return ::UMF_RESULT_SUCCESS; otherwise an error of the provider, and it stays mapped
    umf_result_t (*vm_hide)(void *provider, void *at, size_t size);

    /// @brief Unmaps memory that `vm_take` mapped read-only, and gives its addresses back. Any
    ///        provider of the kind may be asked. Does not wait for queued work.
    ///
    /// @param provider the provider
    /// @param piece first address of the piece
    /// @param size size of the piece
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*vm_drop)(void *provider, void *piece, size_t size);

    /// @}
    /// @name Ranges in other processes
    /// @{

    /// @brief As `ext_get_ipc_handle`, of a block that lies on pages of a range. Absent, with
    ///        `range_end_ipc_handle`: such blocks are not shared.
    ///
    /// As many bytes as `ext_get_ipc_handle_size` says. The description is opened and closed as any
    /// other, with the size of the block, and leads to these pages, in their order. Called again
    /// for a block it writes the same bytes.
    ///
    /// With a `count` of 0, and all else NULL or 0, it describes nothing: it reports whether blocks
    /// on pages can be shared. Each description is preceded by such a call, outside of all locks,
    /// in which the provider can start a thread.
    ///
    /// @param provider the provider
    /// @param ptr first address of the block
    /// @param size its bytes
    /// @param pages those under it, in the order of their addresses; they stay there until
    ///        `range_end_ipc_handle`
    /// @param count length of `pages`; 0: a question
    /// @param offset where the block begins in the first page
    /// @param providerIpcData [out] the description
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*range_get_ipc_handle)(void *provider, const void *ptr, size_t size,
                                         const umf_vm_page_t *pages, size_t count, size_t offset,
                                         void *providerIpcData);

    /// @brief From now on no process opens the descriptions of the block: its pages are about to
    ///        leave, or to serve other blocks. Memory that is open stays open.
    ///
    /// @param provider the provider
    /// @param ptr as given to `range_get_ipc_handle`; without effect if the block has none
    /// @return ::UMF_RESULT_SUCCESS or an error of the provider
    umf_result_t (*range_end_ipc_handle)(void *provider, const void *ptr);

    /// @}
    /// @name Memory of a device that processes write
    /// @{

    /// @brief As `vm_show` of one descriptor, for reading and writing. Absent: the memory of claims
    ///        (umf/vault.h) cannot be of this provider. `vm_hide` unmaps it.
    ///
    /// @param provider the provider
    /// @param at where in a range of `range_reserve` it begins; nothing is mapped there
    /// @param fd descriptor, which stays the caller's and may be anything
    /// @param size of its memory, a multiple of the granularity
    /// @param id the device that the memory is of
    /// @return as `vm_show`
    umf_result_t (*vm_share)(void *provider, void *at, int fd, size_t size,
                             const unsigned char id[16]);

    /// @}
} umf_memory_provider_ext_ops_t;

/// @brief Only the size set: every operation is absent.
#define UMF_MEMORY_PROVIDER_EXT_OPS_INIT                                                           \
    {                                                                                              \
        sizeof(umf_memory_provider_ext_ops_t), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,     \
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, \
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,    \
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,    \
            NULL, NULL, NULL, NULL, NULL, NULL, NULL                                               \
    }

/// @brief A kind of provider.
typedef struct umf_memory_provider_descriptor_t {
    /// sizeof(umf_memory_provider_descriptor_t) of the headers the descriptor was compiled with.
    size_t struct_size;

    /// Name of the kind in text: 1 to 63 characters out of [a-z0-9_-]. Not to be confused with the
    /// name of one provider.
    const char *name;

    /// Operations. Providers created from this very table, by whatever way, belong to the kind.
    const umf_memory_provider_ops_t *ops;

    /// Operations beyond; NULL for none.
    const umf_memory_provider_ext_ops_t *ext;

    /// @brief Makes the parameters for `initialize` from text.
    ///
    /// NULL: the kind takes no settings, `initialize` gets NULL.
    ///
    /// @param text settings as umf/text.h describes them, without the kind: "a=1,b=x"; "" for none
    /// @param params [out] handed to `initialize`, then to `params_destroy`; may be NULL. Written
    ///        only on success.
    /// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT for a mistake in the text.
    ///         Any failure becomes the result of the creation from text.
    umf_result_t (*params_from_text)(const char *text, void **params);

    /// Destroys the parameters made by `params_from_text`. NULL: there is nothing to destroy.
    void (*params_destroy)(void *params);

    /// @brief Tells whether the kind can work on this machine. NULL: always.
    ///
    /// Cheap, and without side effects.
    ///
    /// @param why [out] if it cannot: the missing part and the remedy; at most `why_size` bytes
    ///        with the NUL. Empty on entry.
    /// @param why_size room at `why` in bytes, at least 256
    /// @return ::UMF_RESULT_SUCCESS if it can, otherwise the result of a creation
    umf_result_t (*probe)(char *why, size_t why_size);
} umf_memory_provider_descriptor_t;

/// @brief Only the size set.
#define UMF_MEMORY_PROVIDER_DESCRIPTOR_INIT                                                        \
    { sizeof(umf_memory_provider_descriptor_t), NULL, NULL, NULL, NULL, NULL, NULL }

/// @brief A kind of pool. As ::umf_memory_provider_descriptor_t.
typedef struct umf_memory_pool_descriptor_t {
    /// sizeof(umf_memory_pool_descriptor_t) of the headers the descriptor was compiled with.
    size_t struct_size;

    /// Name of the kind in text: 1 to 63 characters out of [a-z0-9_-].
    const char *name;

    /// Operations. Pools created from this very table, by whatever way, belong to the kind.
    const umf_memory_pool_ops_t *ops;

    /// Makes the parameters for `initialize` from text; see ::umf_memory_provider_descriptor_t.
    umf_result_t (*params_from_text)(const char *text, void **params);

    /// Destroys the parameters made by `params_from_text`. NULL: there is nothing to destroy.
    void (*params_destroy)(void *params);

    /// Tells whether the kind can work on this machine; see ::umf_memory_provider_descriptor_t.
    umf_result_t (*probe)(char *why, size_t why_size);

    /// 1: a free reads or writes the memory of its pool, which may keep data of its own there. Such
    /// a pool cannot be suspended (umf/suspend.h): a free may run while the memory is suspended.
    int touches_memory;
} umf_memory_pool_descriptor_t;

/// @brief Only the size set.
#define UMF_MEMORY_POOL_DESCRIPTOR_INIT                                                            \
    { sizeof(umf_memory_pool_descriptor_t), NULL, NULL, NULL, NULL, NULL, 0 }

/// @brief Version of the interface between library and plugin. A plugin of another version is
///        refused.
#define UMF_PLUGIN_ABI 1

/// @brief The kinds of a plugin. Must stay unchanged while the plugin is loaded.
typedef struct umf_plugin_t {
    /// sizeof(umf_plugin_t) of the headers the plugin was compiled with.
    size_t struct_size;
    /// ::UMF_PLUGIN_ABI of those headers.
    uint32_t abi;
    /// Kinds of providers; may be NULL if there are none.
    const umf_memory_provider_descriptor_t *const *providers;
    /// How many.
    size_t num_providers;
    /// Kinds of pools; may be NULL if there are none.
    const umf_memory_pool_descriptor_t *const *pools;
    /// How many.
    size_t num_pools;
} umf_plugin_t;

/// @brief Only size and version set.
#define UMF_PLUGIN_INIT                                                                            \
    { sizeof(umf_plugin_t), UMF_PLUGIN_ABI, NULL, 0, NULL, 0 }

#if defined(__GNUC__)
/// @brief Makes a symbol visible also in a plugin compiled with -fvisibility=hidden.
#define UMF_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define UMF_PLUGIN_EXPORT
#endif

/// @brief The one symbol of a plugin. Only plugins define it.
extern UMF_PLUGIN_EXPORT const umf_plugin_t umf_plugin;

/// @brief Makes a kind of provider known by its name.
///
/// @param descriptor kept, not copied: it and all it points to must stay unchanged until the
///        library is torn down; the functions themselves, as long as a provider or pool of the kind
///        lives
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `descriptor`, its name or its table is NULL, if
///         the size ends before the table, if the name is not allowed or taken, or if the table
///         belongs to a kind already;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the version of the table is not known;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfRegisterProvider(const umf_memory_provider_descriptor_t *descriptor);

/// @brief Makes a kind of pool known by its name. Names of pools and of providers do not clash.
///
/// @param descriptor as for ::umfRegisterProvider
/// @return as ::umfRegisterProvider
umf_result_t umfRegisterPool(const umf_memory_pool_descriptor_t *descriptor);

/// @brief Loads a plugin and registers all its kinds, or none of them.
///
/// A plugin stays loaded until the library is torn down, and beyond it until the last provider or
/// pool of one of its kinds is destroyed. Loading runs the code of the plugin: load only trusted
/// files.
///
/// @param path file name as dlopen takes it: with a '/' that very file, without one searched as
///        libraries are
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `path` is NULL or empty, if the symbol or a
///         descriptor in it is not valid, or if a name is taken (so a plugin cannot be loaded
///         twice);
///         ::UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE if the file cannot be loaded or lacks the
///         symbol;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the plugin was made for another ::UMF_PLUGIN_ABI;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY. The log has the cause.
umf_result_t umfLoadPlugin(const char *path);

#ifdef __cplusplus
}
#endif

#endif /* UMF_PLUGIN_H */
