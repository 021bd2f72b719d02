/** @file
 * The cuda_vmm provider: memory of one NVIDIA GPU, or of the host next to it, through the CUDA
 * driver's virtual memory. Its name is "CUDA_VMM" unless another is set.
 *
 * Addresses and physical memory are separate: pools on this provider can be suspended and resumed
 * (umf/suspend.h), allocations can be split and merged, other GPUs can be given access, and memory
 * can be shared with other processes by a file descriptor.
 *
 * Sizes are rounded up to the driver's granularity, 2 MiB on current GPUs. Memory comes in pieces,
 * each one handle of the driver: a large allocation is one piece, small ones share pieces of the
 * piece size. A piece is returned to the driver when nothing in it is allocated any more.
 *
 * When freed memory is returned to the driver. Unmapping memory that a kernel uses ends the
 * context, and the driver does not wait by itself. So freed memory stays mapped until all work has
 * completed that was queued before in the provider's context, in the primary context of its device,
 * and in those of the devices that were given access. The provider cannot find other contexts of
 * these devices: wait for them before you free. No thread waits for that: memory that is released
 * together waits for one event, and is returned in a later call, or a tick (umf/reclaim.h).
 * ::umfPoolTrimMemory waits for it, and so does a request that finds no memory;
 * ::umfPoolWaitPending on demand. A driver before 12.5 has no such event; then the thread that
 * releases memory waits. It also waits before it unmaps memory opened from another process.
 *
 * While a queue is captured no event is recorded, and nothing is returned: see umf/capture.h. Such
 * memory is returned with the next release of the provider. A provider that is destroyed meanwhile
 * leaves memory whose work it could not wait for mapped until the process ends, and logs that. A
 * program that has always waited before a free avoids all that by
 * ::umfCUDAVmmMemoryProviderParamsSetFreePolicy.
 *
 * Sharing by descriptor. With UMF_CUDA_VMM_SHARE_FD memory can be shared with other processes of
 * the machine (umf/ipc.h); without it all IPC operations give UMF_RESULT_ERROR_INVALID_ARGUMENT. A
 * file descriptor travels, so the consumer must be able to take one from the producer (ptrace; see
 * prctl(PR_SET_PTRACER, ...)) or to reach its broker (the setting umf.ipc.transports). The
 * consumer's provider must share, too, but may be of another device that can access the memory. A
 * piece is mapped as a whole, so a consumer can access the other allocations in it: set the piece
 * size, or share from a provider of its own, where that matters. Opening works in the producing
 * process as well and gives another address.
 *
 * Sharing by fabric handle. With UMF_CUDA_VMM_SHARE_FABRIC the physical memory travels as a fabric
 * handle of the driver, 64 bytes of our handle, instead of a descriptor. The device must offer it
 * and the machine must be set up for it (IMEX channels). The provider tries that when it is
 * created; where it does not work, creation gives UMF_RESULT_ERROR_NOT_SUPPORTED and logs the
 * driver's reason. Everything else is as with a descriptor. In particular handles hold within one
 * machine: a file of the producer shows whether one is still valid. Producer and consumer must
 * share in the same way. No memory pool of the driver (cuMemPoolExportToShareableHandle) is used
 * here.
 *
 * Sharing beyond the machine. With UMF_CUDA_VMM_SHARE_FABRIC_ANYWHERE only the fabric handle and
 * the offset in its piece travel, so that a process on another machine of the fabric can open it.
 * That promises less. The consumer reads no file of the producer, so a handle of memory that was
 * freed, split or merged is *not* refused as long as its piece of physical memory exists: it opens
 * the memory that is there by then. The driver decides whether to refuse a handle of a piece that
 * is gone, because all of it was freed or its pool was suspended, and one whose producer has ended;
 * producers of the same machine are checked as always. Any process with the bytes of such a handle,
 * and with the fabric's permission (an IMEX channel), can open the memory: no user id is compared.
 * Notify consumers by other means before memory is freed.
 *
 * How long a handle is valid. In the other two ways a handle is valid until its memory is freed,
 * split, merged or suspended, and is refused from then on. Memory opened before stays mapped, and
 * keeps its whole piece of physical memory, until it is closed. The counters of the producer
 * (umfPoolGetResidency, and the bytes that a suspend reports) count the piece as released, while
 * the device still holds it. After a resume the producer has new memory, and the consumer sees the
 * old memory until it opens a new handle. A handle that is requested while the pool is suspended
 * gives UMF_RESULT_ERROR_OUT_OF_RESOURCES.
 *
 * The driver, libcuda.so.1, is found at run time and never linked. Where it is missing, or too old
 * for virtual memory, creating a provider gives UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE. In a
 * library that was built without CUDA every function here gives UMF_RESULT_ERROR_NOT_SUPPORTED and
 * the table is NULL.
 *
 * Results of the driver are those of the CUDA provider (umf/providers/provider_cuda.h), and so are
 * the effects of destroying the context or of a shutdown of the driver. The exception: virtual
 * memory outlives its context, so it is returned when it is freed. Every call leaves the caller's
 * current context as it was.
 *
 * Parameters are created, set, and copied by umfMemoryProviderCreate. They may be destroyed or
 * reused directly afterwards. Two threads must not use one parameter object at once.
 */
#ifndef UMF_CUDA_VMM_MEMORY_PROVIDER_H
#define UMF_CUDA_VMM_MEMORY_PROVIDER_H 1

#include <umf/memory_provider_gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Parameters of a cuda_vmm provider.
typedef struct umf_cuda_vmm_memory_provider_params_t *umf_cuda_vmm_memory_provider_params_handle_t;

/// @brief How memory can be shared with other processes.
typedef enum umf_cuda_vmm_share_t {
    /// Not at all.
    UMF_CUDA_VMM_SHARE_NONE = 0,
    /// By a file descriptor, within one machine: see the head of this file.
    UMF_CUDA_VMM_SHARE_FD = 1,
    /// By a fabric handle of the driver: see the head of this file.
    UMF_CUDA_VMM_SHARE_FABRIC = 2,
    /// By a fabric handle alone, also with other machines of the fabric, where no check shows
    /// whether a handle is still valid: see the head of this file.
    UMF_CUDA_VMM_SHARE_FABRIC_ANYWHERE = 3
} umf_cuda_vmm_share_t;

/// @brief Policy for freed memory before it is returned to the driver.
typedef enum umf_cuda_vmm_free_policy_t {
    /// The provider keeps it until the work of the device has completed: see the head of this file.
    UMF_CUDA_VMM_FREE_POLICY_WAIT = 0,
    /// Nothing: the thread that frees has waited for all work that uses the memory.
    UMF_CUDA_VMM_FREE_POLICY_IMMEDIATE = 1
} umf_cuda_vmm_free_policy_t;

/// @brief Creates parameters for memory of a device.
///
/// @param device number of the GPU, as `cuDeviceGet` counts them; checked when a provider is
///        created
/// @param hParams [out] parameters, to be destroyed by ::umfCUDAVmmMemoryProviderParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or
///         `device` is negative; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without CUDA
umf_result_t
umfCUDAVmmMemoryProviderParamsCreate(int device,
                                     umf_cuda_vmm_memory_provider_params_handle_t *hParams);

/// @brief Destroys parameters. Providers made from them are not affected.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without CUDA
umf_result_t
umfCUDAVmmMemoryProviderParamsDestroy(umf_cuda_vmm_memory_provider_params_handle_t hParams);

/// @brief Sets the context in which the provider copies. Default: the device's primary context,
///        which is then held as long as the provider lives.
///
/// @param hParams parameters
/// @param hContext a `CUcontext` of the device, which outlives the provider; NULL for the default
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without CUDA
umf_result_t
umfCUDAVmmMemoryProviderParamsSetContext(umf_cuda_vmm_memory_provider_params_handle_t hParams,
                                         void *hContext);

/// @brief Takes memory of the host, of one NUMA node, that the device and the CPU can access.
///        Default: memory of the device.
///
/// @param hParams parameters
/// @param node number of the NUMA node; negative for memory of the device
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without CUDA
umf_result_t
umfCUDAVmmMemoryProviderParamsSetHostNode(umf_cuda_vmm_memory_provider_params_handle_t hParams,
                                          int node);

/// @brief Sets which other GPUs may access the memory. Default: none.
///
/// @param hParams parameters
/// @param devices numbers of GPUs; copied. NULL with a count of 0 for none
/// @param count length of `devices`, at most 64
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL, the
///         array is NULL with a count above 0, the count is above 64 or a number is negative;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without CUDA
umf_result_t
umfCUDAVmmMemoryProviderParamsSetPeers(umf_cuda_vmm_memory_provider_params_handle_t hParams,
                                       const int *devices, size_t count);

/// @brief Sets how memory can be shared with other processes.
///
/// @param hParams parameters
/// @param share default: ::UMF_CUDA_VMM_SHARE_NONE
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or the
///         value none of the enum; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built
///         without CUDA
umf_result_t
umfCUDAVmmMemoryProviderParamsSetShare(umf_cuda_vmm_memory_provider_params_handle_t hParams,
                                       umf_cuda_vmm_share_t share);

/// @brief Sets the policy for freed memory before it is returned to the driver.
///
/// @param hParams parameters
/// @param policy default: ::UMF_CUDA_VMM_FREE_POLICY_WAIT
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL or the
///         value none of the enum; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built
///         without CUDA
umf_result_t
umfCUDAVmmMemoryProviderParamsSetFreePolicy(umf_cuda_vmm_memory_provider_params_handle_t hParams,
                                            umf_cuda_vmm_free_policy_t policy);

/// @brief Sets the smallest piece. Default: the driver's granularity.
///
/// Large pieces are faster to map. Free memory in a piece is held until all of the piece is free.
///
/// @param hParams parameters
/// @param size in bytes, not 0; rounded up to the granularity
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or 0;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without CUDA
umf_result_t
umfCUDAVmmMemoryProviderParamsSetPieceSize(umf_cuda_vmm_memory_provider_params_handle_t hParams,
                                           size_t size);

/// @brief Sets whether others on the bus, such as network cards, can access memory of the device
///        (GPUDirect RDMA). Default: yes, if the device has that for virtual memory. Memory that
///        the driver refuses for this alone is made without it.
///
/// @param hParams parameters
/// @param capable 0: no
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without CUDA
umf_result_t
umfCUDAVmmMemoryProviderParamsSetGPUDirectRDMA(umf_cuda_vmm_memory_provider_params_handle_t hParams,
                                               int capable);

/// @brief Sets the meaning of the NULL stream where streams are named (umf/suspend.h). Default: the
///        default stream of the process.
///
/// Programs built with CUDA_API_PER_THREAD_DEFAULT_STREAM (nvcc --default-stream per-thread) set
/// this, so that NULL means the same here as in their own calls of CUDA. It is the stream of the
/// thread that suspends. umfPoolsSuspendAsync suspends in a thread of its own, so name other
/// streams or events there.
///
/// @param hParams parameters
/// @param per_thread not 0: the default stream of the calling thread
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without CUDA
umf_result_t umfCUDAVmmMemoryProviderParamsSetPerThreadStream(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, int per_thread);

/// @brief Sets the provider's name. Default: "CUDA_VMM".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without CUDA
umf_result_t
umfCUDAVmmMemoryProviderParamsSetName(umf_cuda_vmm_memory_provider_params_handle_t hParams,
                                      const char *name);

/// @brief The table of this kind for ::umfMemoryProviderCreate, which needs parameters of type
///        ::umf_cuda_vmm_memory_provider_params_handle_t.
///
/// @return constant data of the library; NULL if it was built without CUDA
const umf_memory_provider_ops_t *umfCUDAVmmMemoryProviderOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_CUDA_VMM_MEMORY_PROVIDER_H */
