/** @file
 * Beyond umf/ipc.h: opening as many bytes as arrived, closing cached mappings, and removing objects
 * of crashed processes.
 *
 * The settings tree has limits and counters below "umf.ipc", see docs/guide/configuration.md.
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
/// ::umfOpenIPCHandle relies on as many bytes as ::umfPoolGetIPCHandleSize says. This function
/// never reads a byte more than there are, and takes handles that are longer than those of the
/// consumer's pool: memory of a file with a long path.
///
/// @param hIPCHandler from ::umfPoolGetIPCHandler
/// @param handle the bytes, at any address; not changed, needed only during the call
/// @param size how many there are, as received; more than the handle has are ignored
/// @param ptr [out] the address in this process; close with ::umfCloseIPCHandle
/// @return as ::umfOpenIPCHandle; ::UMF_RESULT_ERROR_INVALID_ARGUMENT also if the handle has more
///         bytes than `size`
umf_result_t umfOpenIPCHandleSized(umf_ipc_handler_handle_t hIPCHandler, const void *handle,
                                   size_t size, void **ptr);

/// @brief Closes cached mappings that are unused.
///
/// Opened memory stays mapped after its last ::umfCloseIPCHandle, and memory of the producer cannot
/// be returned to its system meanwhile. This function closes such mappings, of one producer or of
/// all. Memory that is open stays as it is.
///
/// @param pid process id of the producer, as the producer itself sees it; 0: all producers
/// @param evicted [out] how many mappings were closed; may be NULL
/// @return ::UMF_RESULT_SUCCESS, also if there was nothing to close;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `pid` is negative
umf_result_t umfIPCEvict(int pid, size_t *evicted);

/// @brief Removes named shared memory objects whose process has ended without doing that.
///
/// It checks the objects in /dev/shm that OS providers of this user made with a name, and removes
/// each whose process has ended and whose lock is held by no process, such as a child of a fork. It
/// never touches objects of living processes, of other users, and of anything but OS providers. The
/// first OS provider with a name in a process does the same.
///
/// @param removed [out] how many objects were removed; may be NULL
/// @return ::UMF_RESULT_SUCCESS, also if there was nothing to remove;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the system has no /dev/shm or it cannot be read
umf_result_t umfIPCReap(size_t *removed);

#ifdef __cplusplus
}
#endif

#endif /* UMF_IPC_EXT_H */
