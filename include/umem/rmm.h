/** @file
 * The functions of RMM's interface of 2018 for memory of the current GPU, on libumf. No header of
 * CUDA is needed.
 *
 * Until ::rmmInitialize each allocation is one of the driver's. All functions are thread-safe.
 */
#ifndef UMEM_RMM_H
#define UMEM_RMM_H 1

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
/// @brief A stream of CUDA.
typedef struct CUstream_st *cudaStream_t;

/// @brief A distance in bytes.
typedef long int offset_t;

/// @brief Result of a function.
typedef enum rmmError_t {
    /// Done.
    RMM_SUCCESS = 0,
    /// CUDA failed, or is not there.
    RMM_ERROR_CUDA_ERROR,
    /// An argument cannot be.
    RMM_ERROR_INVALID_ARGUMENT,
    /// Not used: everything works without ::rmmInitialize.
    RMM_ERROR_NOT_INITIALIZED,
    /// There is not enough memory.
    RMM_ERROR_OUT_OF_MEMORY,
    /// Something else.
    RMM_ERROR_UNKNOWN,
    /// A file failed.
    RMM_ERROR_IO,
    /// How many there are.
    N_RMM_ERROR
} rmmError_t;

/// @brief Where memory comes from.
typedef enum rmmAllocationMode_t {
    /// Each allocation is one of the driver's.
    CudaDefaultAllocation = 0,
    /// A pool, which grows.
    PoolAllocation
} rmmAllocationMode_t;

/// @brief For ::rmmInitialize.
typedef struct rmmOptions_t {
    /// Where memory comes from.
    rmmAllocationMode_t allocation_mode;
    /// Bytes that a pool has from the start; may be 0.
    size_t initial_pool_size;
    /// Every allocation and free is logged.
    bool enable_logging;
} rmmOptions_t;

/// @brief Sets the options. May be called again at any time.
///
/// @param options NULL keeps those that are set
/// @return ::RMM_SUCCESS; ::RMM_ERROR_INVALID_ARGUMENT; if a pool cannot have its initial size
///         ::RMM_ERROR_OUT_OF_MEMORY or ::RMM_ERROR_CUDA_ERROR
__attribute__((visibility("default"))) rmmError_t rmmInitialize(rmmOptions_t *options);

/// @brief Returns unused memory to the driver, and drops options and log. Allocations stay.
///
/// @return ::RMM_SUCCESS
__attribute__((visibility("default"))) rmmError_t rmmFinalize(void);

/// @brief Allocates memory of the current device.
///
/// @param ptr [out] address; NULL if `size` is 0; written only on success
/// @param size bytes
/// @param stream where it will be used first
/// @param file for the log; NULL is allowed
/// @param line for the log
/// @return ::RMM_SUCCESS; ::RMM_ERROR_INVALID_ARGUMENT if `ptr` is NULL; ::RMM_ERROR_OUT_OF_MEMORY;
///         ::RMM_ERROR_CUDA_ERROR
__attribute__((visibility("default"))) rmmError_t
rmmAlloc(void **ptr, size_t size, cudaStream_t stream, const char *file, unsigned line);

/// @brief Changes the size of a block. The content is kept up to the smaller size.
///
/// @param ptr [in,out] the block, NULL to allocate; after a failure it is as before
/// @param new_size bytes; 0 frees
/// @param stream where it is used; work that is queued there is waited for
/// @param file for the log; NULL is allowed
/// @param line for the log
/// @return as ::rmmAlloc
__attribute__((visibility("default"))) rmmError_t
rmmRealloc(void **ptr, size_t new_size, cudaStream_t stream, const char *file, unsigned line);

/// @brief Frees a block.
///
/// Memory of a pool may be handed out again at once: work that uses it must be done, or be queued
/// before the work that uses the next block.
///
/// @param ptr block of ::rmmAlloc; NULL is allowed
/// @param stream where it was used last
/// @param file for the log; NULL is allowed
/// @param line for the log
/// @return ::RMM_SUCCESS; ::RMM_ERROR_INVALID_ARGUMENT if it is no block
__attribute__((visibility("default"))) rmmError_t rmmFree(void *ptr, cudaStream_t stream,
                                                          const char *file, unsigned line);

/// @brief Distance of a block from the start of the driver's allocation.
///
/// @param offset [out] bytes
/// @param ptr block of ::rmmAlloc
/// @param stream not used
/// @return ::RMM_SUCCESS; ::RMM_ERROR_INVALID_ARGUMENT if it is no block
__attribute__((visibility("default"))) rmmError_t
rmmGetAllocationOffset(offset_t *offset, void *ptr, cudaStream_t stream);

/// @brief Memory of the current device.
///
/// @param freeSize [out] unused bytes, those cached by a pool included
/// @param totalSize [out] bytes of the device
/// @param stream not used
/// @return ::RMM_SUCCESS; ::RMM_ERROR_INVALID_ARGUMENT if an output is NULL;
///         ::RMM_ERROR_CUDA_ERROR
__attribute__((visibility("default"))) rmmError_t rmmGetInfo(size_t *freeSize, size_t *totalSize,
                                                             cudaStream_t stream);

/// @brief Writes the log to a file, as comma-separated values.
///
/// @param filename of the file, which is made or emptied
/// @return ::RMM_SUCCESS; ::RMM_ERROR_INVALID_ARGUMENT if it is NULL; ::RMM_ERROR_IO
__attribute__((visibility("default"))) rmmError_t rmmWriteLog(const char *filename);

/// @brief Bytes of the log, without a NUL.
///
/// @return 0 if nothing was logged
__attribute__((visibility("default"))) size_t rmmLogSize(void);

/// @brief Copies the log.
///
/// @param buffer gets as many bytes as there are and fit, and a NUL if there is room
/// @param buffer_size its size
/// @return ::RMM_SUCCESS; ::RMM_ERROR_INVALID_ARGUMENT if `buffer` is NULL
__attribute__((visibility("default"))) rmmError_t rmmGetLog(char *buffer, size_t buffer_size);

/// @brief The name of an answer: "RMM_ERROR_OUT_OF_MEMORY".
///
/// @param error any value
/// @return static text; "RMM_ERROR_UNKNOWN" for other values
__attribute__((visibility("default"))) const char *rmmGetErrorString(rmmError_t error);

#ifdef __cplusplus
}
#endif

/// @brief ::rmmAlloc with the place of the call.
#define RMM_ALLOC(ptr, sz, stream)                                                                 \
    rmmAlloc((void **)(ptr), (sz), (stream), __FILE__, (unsigned)__LINE__)
/// @brief ::rmmRealloc with the place of the call.
#define RMM_REALLOC(ptr, sz, stream)                                                               \
    rmmRealloc((void **)(ptr), (sz), (stream), __FILE__, (unsigned)__LINE__)
/// @brief ::rmmFree with the place of the call.
#define RMM_FREE(ptr, stream) rmmFree((ptr), (stream), __FILE__, (unsigned)__LINE__)

#endif /* UMEM_RMM_H */
