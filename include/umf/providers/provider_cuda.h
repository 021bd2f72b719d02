/** @file
 * The CUDA provider: pinned host memory, device memory and managed memory of one NVIDIA GPU,
 * through the CUDA driver, libcuda.so.1. Its name is "CUDA" unless another is set.
 *
 * The driver is found at run time and never linked. Where it is missing, creating parameters or a
 * provider gives UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE. In a library that was built without this
 * provider every function here gives UMF_RESULT_ERROR_NOT_SUPPORTED and the table is NULL.
 *
 * Device memory can be shared with other processes (umf/ipc.h) by handles of the driver, and the
 * driver's rules hold: the consumer closes before the producer frees, and a handle of memory that
 * was freed is not always refused. Opening in the producing process gives the very memory, at its
 * own address. Freeing that memory takes effect when it is closed, for which its provider must
 * still live.
 *
 * A context that is given with umfCUDAMemoryProviderParamsSetContext should outlive the provider.
 * If it is destroyed first, or a primary context is reset, its memory is gone. Then allocating
 * fails with UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC and CUDA_ERROR_CONTEXT_IS_DESTROYED as the
 * native error, freeing and destroying the provider succeed, and nothing is logged above debug
 * level. The same holds when the driver has shut down, at the end of the process, except that
 * allocating gives UMF_RESULT_ERROR_OUT_OF_RESOURCES. Destroying a context while another thread is
 * in a call of its provider is a mistake of the program.
 *
 * Parameters are created, set, and copied by umfMemoryProviderCreate. They may be destroyed or
 * reused directly afterwards. Two threads must not use one parameter object at once.
 */
#ifndef UMF_CUDA_PROVIDER_H
#define UMF_CUDA_PROVIDER_H 1

#include <umf/memory_provider_gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Parameters of a CUDA provider.
typedef struct umf_cuda_memory_provider_params_t *umf_cuda_memory_provider_params_handle_t;

/// @brief Creates parameters: the calling thread's current context and its device, no memory type.
///
/// @param hParams [out] parameters, to be destroyed by ::umfCUDAMemoryProviderParamsDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE if the driver or one of its functions is
///         missing; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t umfCUDAMemoryProviderParamsCreate(umf_cuda_memory_provider_params_handle_t *hParams);

/// @brief Destroys parameters. Providers made from them are not affected.
///
/// @param hParams parameters; NULL is allowed
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t umfCUDAMemoryProviderParamsDestroy(umf_cuda_memory_provider_params_handle_t hParams);

/// @brief Sets the context whose memory is allocated.
///
/// @param hParams parameters
/// @param hContext a `CUcontext`; see the head of this file for its destruction before the
///        providers made from these parameters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t umfCUDAMemoryProviderParamsSetContext(umf_cuda_memory_provider_params_handle_t hParams,
                                                   void *hContext);

/// @brief Sets the device whose memory is allocated.
///
/// @param hParams parameters
/// @param hDevice a `CUdevice`; checked when a provider is created
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t umfCUDAMemoryProviderParamsSetDevice(umf_cuda_memory_provider_params_handle_t hParams,
                                                  int hDevice);

/// @brief Sets the kind of memory: pinned host, device or managed ("shared") memory.
///
/// @param hParams parameters
/// @param memoryType not ::UMF_MEMORY_TYPE_UNKNOWN, which is the default and which creation
///        refuses; checked when a provider is created
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t
umfCUDAMemoryProviderParamsSetMemoryType(umf_cuda_memory_provider_params_handle_t hParams,
                                         umf_usm_memory_type_t memoryType);

/// @brief Sets the flags of allocations of pinned and of managed memory. Default: 0.
///
/// @param hParams parameters
/// @param flags of `cuMemHostAlloc`, or of `cuMemAllocManaged`, for which 0 stands for
///        `CU_MEM_ATTACH_GLOBAL`
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `hParams` is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t
umfCUDAMemoryProviderParamsSetAllocFlags(umf_cuda_memory_provider_params_handle_t hParams,
                                         unsigned int flags);

/// @brief Sets the provider's name. Default: "CUDA".
///
/// @param hParams parameters
/// @param name copied; cut to 63 characters
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the library was built without this provider
umf_result_t umfCUDAMemoryProviderParamsSetName(umf_cuda_memory_provider_params_handle_t hParams,
                                                const char *name);

/// @brief The table of this kind for ::umfMemoryProviderCreate, which needs parameters of type
///        ::umf_cuda_memory_provider_params_handle_t.
///
/// @return constant data of the library; NULL if it was built without this provider
const umf_memory_provider_ops_t *umfCUDAMemoryProviderOps(void);

#ifdef __cplusplus
}
#endif

#endif /* UMF_CUDA_PROVIDER_H */
