/** @file
 * NVIDIA GPUs of this machine: how many there are, on which one a thread works, which ones can
 * access each other, and what memory they have.
 *
 * The driver, libcuda.so.1, is found at run time and never linked. Devices have the numbers that
 * `cuDeviceGet` counts. All functions are thread-safe, and all but ::umfCUDADeviceMakeCurrent leave
 * the caller's current context as it was.
 *
 * Without a driver that starts and finds a GPU every function gives
 * ::UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, and ::UMF_RESULT_ERROR_NOT_SUPPORTED in a library that
 * was built without CUDA. A number that is no device's, and a NULL output, give
 * ::UMF_RESULT_ERROR_INVALID_ARGUMENT. A failure of the driver gives
 * ::UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC. Outputs are written only on success.
 */
#ifndef UMF_CUDA_DEVICE_H
#define UMF_CUDA_DEVICE_H 1

#include <stdbool.h>

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Counts the devices.
///
/// @param count [out] at least 1
/// @return ::UMF_RESULT_SUCCESS, or as the head of this file says
umf_result_t umfCUDADeviceCount(int *count);

/// @brief Tells on which device the calling thread works.
///
/// @param device [out] the device of the thread's current context; -1 if it has none
/// @return ::UMF_RESULT_SUCCESS, or as the head of this file says
umf_result_t umfCUDADeviceCurrent(int *device);

/// @brief Makes the primary context of a device the calling thread's current one, as
///        `cudaSetDevice` does.
///
/// The library retains that context until the process ends.
///
/// @param device number of the device
/// @return ::UMF_RESULT_SUCCESS, or as the head of this file says
umf_result_t umfCUDADeviceMakeCurrent(int device);

/// @brief Tells whether a device can be given access to memory of another one.
///
/// @param device the device that reads and writes
/// @param peer the device that has the memory
/// @param reaches [out] true also if both are the same
/// @return ::UMF_RESULT_SUCCESS, or as the head of this file says
umf_result_t umfCUDADeviceReaches(int device, int peer, bool *reaches);

/// @brief Tells how much memory a device has. Its primary context is active during the call.
///
/// @param device number of the device
/// @param left [out] bytes that are unused
/// @param total [out] bytes of the device
/// @return ::UMF_RESULT_SUCCESS, or as the head of this file says
umf_result_t umfCUDADeviceMemory(int device, size_t *left, size_t *total);

/// @brief Tells whether a device has managed memory (`cuMemAllocManaged`).
///
/// @param device number of the device
/// @param has [out] true: it has
/// @return ::UMF_RESULT_SUCCESS, or as the head of this file says
umf_result_t umfCUDADeviceHasManagedMemory(int device, bool *has);

/// @brief Moves managed memory to a device or to the host before it is used there
///        (`cuMemPrefetchAsync`).
///
/// The move is put on a stream, and the call returns at once. The content does not change, and the
/// memory stays accessible from everywhere.
///
/// @param ptr address in managed memory, of any allocator
/// @param size bytes; the driver rounds to pages; 0: the call does nothing
/// @param device number of the device; -1: the host
/// @param stream a CUstream; NULL: the legacy default stream
/// @return ::UMF_RESULT_SUCCESS, or as the head of this file says;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if the memory is not managed, or not all of it;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the driver is older than 8.0
umf_result_t umfCUDAPrefetch(const void *ptr, size_t size, int device, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* UMF_CUDA_DEVICE_H */
