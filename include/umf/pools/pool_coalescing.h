/** @file
 * The coalescing pool: large blocks of any memory, above all of GPUs. Its name is "coalescing"
 * unless another is set.
 *
 * It takes large spans from the provider and cuts blocks of any size out of them. The smallest free
 * range that fits is split, and a freed block joins its free neighbours at once. So there are no
 * size classes, and memory held follows memory in use. While there is room in the spans, an
 * allocation calls no provider.
 *
 * - It keeps all its metadata elsewhere (64 bytes for each block), so it works with memory that the
 *   CPU cannot access. Only umfPoolCalloc and umfPoolRealloc touch the memory.
 * - Where the provider's memory is of a device (its property UMF_MEMORY_PROPERTY_POINTER_TYPE says
 *   UMF_MEMORY_TYPE_DEVICE), these two use the operations `fill` and `copy` of the provider
 *   (umf/plugin.h) and wait for them. Without these operations they give NULL, and the last error
 *   is UMF_RESULT_ERROR_NOT_SUPPORTED. Work that was queued on an allocation must be done before
 *   umfPoolRealloc of it.
 * - Every wrong pointer is refused: freed already, inside an allocation, or of another owner.
 * - A pool is one shard with one short lock, until threads meet there. Then it gets more shards, up
 *   to one for each CPU and 16 in all. A block that does not fit in one shard is taken from any
 *   other before the pool takes a span from the provider; for a block of up to an eighth of the
 *   span size an unused span moves to the shard as a whole. Threads that meet while they allocate
 *   such blocks, or often take them from each other's shards, do not wait. Such a thread may get a
 *   span of the smallest size although other shards have room, if their locks are taken, or if the
 *   pool holds less than one span for each shard, or if a third of its memory is in use. Before an
 *   allocation fails for lack of memory, all shards are searched.
 * - A thread that frees a block and allocates the same size again and again gets the same block
 *   without a lock, from the reuse slot of the thread. A block in the slot is free in every
 *   respect: other requests take it before the pool takes a span from the provider, it joins its
 *   neighbours before memory is counted or released, and a second free of it is refused. With a
 *   limit for free spans (umfCoalescingPoolParamsSetRetain) there are no reuse slots. For many
 *   small objects a disjoint or jemalloc pool is faster.
 *
 * Releasing memory. A span that is wholly free is kept up to the limit that
 * umfCoalescingPoolParamsSetRetain sets, by default without limit. It is returned to the provider
 *
 * - when a request fits nowhere: first wholly free spans of as many bytes as the new span are
 *   released, so that a change of sizes does not make the pool grow;
 * - before an allocation fails for lack of memory: all of them are released, and then the provider
 *   gets one more request, for no more than the allocation needs;
 * - on umfPoolTrimMemory, which keeps at least the given number of bytes, as far as there are, and
 *   unless that is SIZE_MAX lets the provider drop the content of all free pages, if that can
 *   purge;
 * - with the pool.
 *
 * The content of pages that were free for five to ten seconds is dropped, if the provider can
 * purge: then a span that is kept has addresses only. Where the provider cannot, kept spans stay as
 * they are, because a limit for free spans is the setting for that.
 *
 * Size 0 is an allocation of its own. Blocks are multiples of the granule and aligned to it;
 * umfPoolMallocUsableSize gives the rounded size. The last allocation error is that of the
 * provider, or UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY if a size is too large or there is no memory for
 * metadata, or UMF_RESULT_ERROR_INVALID_ALIGNMENT. All functions on pools are thread-safe.
 *
 * Counters by path (`umf.pool.by_handle.{}.stats.<name>`, all size_t): used_memory, the bytes of
 * all blocks, rounded; reserved_memory, the bytes of all spans; spans, how many; largest_free, the
 * largest block there is room for without a request to the provider; parts, how many shards, 1
 * until threads met.
 *
 * Parameters are created with defaults, set, and copied by umfPoolCreate. They may be destroyed or
 * reused directly afterwards. NULL instead of parameters means defaults. Two threads must not use
 * one parameter object at once.
 */
#ifndef UMF_COALESCING_MEMORY_POOL_H
#define UMF_COALESCING_MEMORY_POOL_H 1

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Parameters of a coalescing pool.
typedef struct umf_coalescing_pool_params_t *umf_coalescing_pool_params_handle_t;

/// @brief What an arena does with free pages.
typedef enum umf_coalescing_donate_t {
    /// They are mapped where a block needs them, and their old addresses are unmapped when queued
    /// work that uses them has completed.
    UMF_COALESCING_DONATE_YES = 0,
    /// They stay. The peak is that of best fit in one range.
    UMF_COALESCING_DONATE_OFF = 1,
    /// They are mapped where a block needs them, and their old addresses are unmapped by a trim
    /// only: for programs that use memory on queues that they do not name.
    UMF_COALESCING_DONATE_TRIM = 2
} umf_coalescing_donate_t;

/// @brief Creates parameters with defaults.
///
/// @param hParams [out] parameters, to be destroyed by ::umfCoalescingPoolParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfCoalescingPoolParamsCreate(umf_coalescing_pool_params_handle_t *hParams);

/// @brief Destroys parameters. Pools made from them are not affected.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS
umf_result_t umfCoalescingPoolParamsDestroy(umf_coalescing_pool_params_handle_t hParams);

/// @brief Sets the unit of the sizes and alignments of blocks. Default: 512 bytes, or the
///        provider's cache line if that is larger.
///
/// A granule of at least a cache line keeps two blocks out of one line, which a host and a device
/// could otherwise write to at once. Kernels and copy engines of GPUs work best with 512 bytes, and
/// the metadata of a block has 64 bytes already.
///
/// @param hParams parameters
/// @param granule in bytes, a power of two from 8 to 1 GiB; 0 for the default
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or
///         `granule` is not allowed
umf_result_t umfCoalescingPoolParamsSetGranule(umf_coalescing_pool_params_handle_t hParams,
                                               size_t granule);

/// @brief Sets the smallest request to the provider. Default: 2 MiB, or the provider's page if that
///        is larger.
///
/// Requests grow with the pool: a sixteenth of its memory, up to 1 GiB. A larger allocation gets a
/// span of its size. Requests are multiples of the provider's page, and have eight pages where
/// rounding one block up to whole pages would waste more than a sixteenth. If the provider has no
/// such span left, the pool requests no more than an allocation needs.
///
/// @param hParams parameters
/// @param spanSize in bytes; 0 for the default
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfCoalescingPoolParamsSetSpanSize(umf_coalescing_pool_params_handle_t hParams,
                                                size_t spanSize);

/// @brief Sets how many bytes of wholly free spans are kept. Default: SIZE_MAX, all.
///
/// @param hParams parameters
/// @param retain in bytes; a span that would exceed them is released when its last block is freed
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfCoalescingPoolParamsSetRetain(umf_coalescing_pool_params_handle_t hParams,
                                              size_t retain);

/// @brief Chooses an arena. Default: 0, none.
///
/// An arena has one range of addresses, far larger than the memory, and pages that it maps where
/// blocks are. Where a block fits in no free segment, whole free pages of other places are mapped
/// for it, so that the memory held stays near the peak of the blocks. Queued work may still use
/// such a page at its old address: the work of the new block is ordered behind it on the device.
/// Blocks below 256 KiB have pages of their own. The provider must be of a kind with ranges
/// (umf/plugin.h): `cuda_vmm`, `linux_vmm`.
///
/// With an arena ::umfPoolMallocOn and ::umfFreeOn keep no memory back for a queue: freed memory is
/// free at once, for every queue. Pages that a captured queue has used stay where they are until
/// the pool ends. An arena has no shards, releases memory only by a trim, and cannot be suspended
/// or shared by IPC handles. Span size and limit of kept spans have no meaning for it.
///
/// Counters in addition to those above: used_peak, reserved_peak; spare_memory, pages that are
/// mapped nowhere; stale_memory, addresses whose page is elsewhere and that are to be unmapped;
/// donated_memory, bytes of pages that were mapped elsewhere so far.
///
/// @param hParams parameters
/// @param isArena not 0: an arena. ::umfPoolCreate then gives ::UMF_RESULT_ERROR_NOT_SUPPORTED if
///        the provider has no ranges, and the provider's error if it cannot reserve the addresses
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfCoalescingPoolParamsSetArena(umf_coalescing_pool_params_handle_t hParams,
                                             int isArena);

/// @brief Sets what an arena does with free pages. Default: ::UMF_COALESCING_DONATE_YES.
///
/// @param hParams parameters
/// @param donate a value of the enumeration
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or
///         `donate` is not allowed
umf_result_t umfCoalescingPoolParamsSetDonate(umf_coalescing_pool_params_handle_t hParams,
                                              umf_coalescing_donate_t donate);

/// @brief Sets the margin of an arena. Default: 10, which is 1 %.
///
/// While an arena holds less than the peak of its blocks and this margin, it makes new pages rather
/// than mapping free ones elsewhere: more margin, fewer calls of the driver.
///
/// @param hParams parameters
/// @param watermark in thousandths of the peak, up to 1000
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or
///         `watermark` is not allowed
umf_result_t umfCoalescingPoolParamsSetWatermark(umf_coalescing_pool_params_handle_t hParams,
                                                 size_t watermark);

/// @brief Sets the smallest page of an arena. Default: 2 MiB, or the provider's granularity if that
///        is larger.
///
/// New pages are four times as large while the arena holds 10 GB or more, and eight times from 20
/// GB on, where the block needs as much.
///
/// @param hParams parameters
/// @param page in bytes, a power of two from 64 KiB to 1 GiB
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or `page`
///         is not allowed
umf_result_t umfCoalescingPoolParamsSetArenaPage(umf_coalescing_pool_params_handle_t hParams,
                                                 size_t page);

/// @brief Sets the addresses that an arena reserves. Default: 16 times the memory of the device or
///        the machine, or less if there are not as many.
///
/// @param hParams parameters
/// @param size in bytes; 0 for the default
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL
umf_result_t umfCoalescingPoolParamsSetArenaSize(umf_coalescing_pool_params_handle_t hParams,
                                                 size_t size);

/// @brief Sets the pool's name. Default: "coalescing".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL
umf_result_t umfCoalescingPoolParamsSetName(umf_coalescing_pool_params_handle_t hParams,
                                            const char *name);

/// @brief The table of this kind for ::umfPoolCreate, which takes parameters of type
///        ::umf_coalescing_pool_params_handle_t or NULL.
///
/// Freeing a block cannot fail because of the provider: the pool keeps a span that the provider
/// does not take back, and offers it again later. If the provider refuses one at the end,
/// ::umfPoolDestroy gives its error.
///
/// @return constant data of the library, never NULL
const umf_memory_pool_ops_t *umfCoalescingPoolOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_COALESCING_MEMORY_POOL_H */
