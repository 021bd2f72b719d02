/** @file
 * Beyond umf/ipc.h: opening as many bytes as arrived, closing cached mappings, and removing objects
 * of crashed processes.
 *
 * The settings tree has limits and counters below "umf.ipc", see docs/guide/counters.md.
 *
 * All functions are thread-safe. Outputs are written only on success.
 */
#ifndef UMF_IPC_EXT_H
#define UMF_IPC_EXT_H 1

#include <umf/base.h>
#include <umf/ipc.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief ::umfOpenIPCHandle for a handle of known size: the way to open a handle that another
///        process sent.
///
/// ::umfOpenIPCHandle reads as many bytes as ::umfPoolGetIPCHandleSize gives for the consumer's
/// pool, whatever the length of the buffer. This function reads `size` bytes at most. So it refuses
/// a handle that arrived cut, and it opens a handle that is longer than those of the consumer's
/// pool: one of a file with a long path.
///
/// @param hIPCHandler from ::umfPoolGetIPCHandler
/// @param handle the received bytes, at any address; not changed, needed only during the call
/// @param size number of received bytes; those behind the end of the handle are ignored
/// @param ptr [out] the address in this process; close with ::umfCloseIPCHandle
/// @return as ::umfOpenIPCHandle; ::UMF_RESULT_ERROR_INVALID_ARGUMENT also if the handle has more
///         bytes than `size`
umf_result_t umfOpenIPCHandleSized(umf_ipc_handler_handle_t hIPCHandler, const void *handle,
                                   size_t size, void **ptr);

/// @brief Closes cached mappings that are unused.
///
/// The library keeps a mapping after the last ::umfCloseIPCHandle of its memory, for the next open.
/// As long as the mapping exists, the system cannot reuse that memory, even if the producer has
/// freed it. This function closes the mappings that no open uses, of one producer or of all.
///
/// @param pid process id of the producer, as the producer itself sees it; 0: all producers
/// @param evicted [out] how many mappings were closed; may be NULL
/// @return ::UMF_RESULT_SUCCESS, also if there was nothing to close;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `pid` is negative
umf_result_t umfIPCEvict(int pid, size_t *evicted);

/// @brief Removes named shared memory objects that a crashed process has left.
///
/// It looks at the objects in /dev/shm that OS providers of this user made with a name. It removes
/// an object if the process that made it has ended and no other process, such as a child of a fork,
/// holds its lock. It leaves all objects of living processes, of other users and of other programs.
/// The first OS provider with a name in a process runs the same check.
///
/// @param removed [out] how many objects were removed; may be NULL
/// @return ::UMF_RESULT_SUCCESS, also if there was nothing to remove;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the system has no /dev/shm or it cannot be read
umf_result_t umfIPCReap(size_t *removed);

#ifdef __cplusplus
}
#endif

#endif /* UMF_IPC_EXT_H */
