/** @file
 * Sharing memory of a pool with other processes.
 *
 * Producer: call umfGetIPCHandle(ptr, &handle, &size), send the `size` bytes at `handle` by any
 * means, and call umfPutIPCHandle(handle) when the consumers are done. The memory itself stays
 * allocated while others use it.
 *
 * Consumer: receive the bytes into a buffer of its own. Call umfPoolGetIPCHandler(pool, &handler)
 * once, then umfOpenIPCHandleSized(handler, buffer, size, &ptr) of umf/ipc_ext.h. Use the memory,
 * then call umfCloseIPCHandle(ptr). The consumer's pool only opens handles: it needs a provider of
 * the same kind, able to share, and need not have allocated anything.
 *
 * All functions are thread-safe. Outputs are written only on success. Handles come from outside and
 * are checked: a damaged or foreign one gives a result code, never memory that was not shared.
 *
 * A handle names an allocation that a pool got from its provider, and an offset in it. While the
 * handle is out, between umfGetIPCHandle and umfPutIPCHandle, the object at that offset is not
 * handed out again, even if it is freed: its place is free after the put. After the put a handle of
 * a freed object names whatever the pool puts there. When the provider has the memory back, handles
 * of it are refused. Only providers whose memory others open by a path (file, devdax) or by a
 * handle of a driver (cuda) cannot always refuse it: see their headers.
 */
#ifndef UMF_IPC_H
#define UMF_IPC_H 1

#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Bytes that describe an address to other processes.
///
/// They may be copied freely (into a buffer aligned as malloc aligns) and understood by processes
/// that run the same build of the library. Their format is private.
typedef struct umf_ipc_data_t *umf_ipc_handle_t;

/// @brief Opens handles on behalf of a pool.
typedef void *umf_ipc_handler_handle_t;

/// @brief Size of the handles that ::umfGetIPCHandle makes for memory of a pool.
///
/// @param hPool pool
/// @param size [out] bytes; the same for all memory of the pool, and for all pools over providers
///        of the kind. Only a `file` or `devdax` whose path has more than 255 characters makes
///        longer handles. Kinds of your own decide for themselves
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, if the
///         pool records no memory, or if its provider is not configured for sharing;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if its provider cannot share; other errors of the
///         provider
umf_result_t umfPoolGetIPCHandleSize(umf_memory_pool_handle_t hPool, size_t *size);

/// @brief Makes a handle for an address in memory of a pool.
///
/// The library gets a description from the provider once for each of its allocations; further
/// handles for addresses inside are copies.
///
/// While the handle is out, a free of its object (::umfFree and others) succeeds, but the object
/// keeps its place and content until the last of its handles is put. A realloc leaves the object
/// where it is, with all of its room, or copies it and keeps the old place in the same way. A
/// second free, or another handle, is refused meanwhile. The exception is a `proxy` pool, whose
/// objects are allocations of the provider: there the memory is freed at once. Objects without a
/// handle that is out cost nothing.
///
/// @param ptr any address inside an allocation; the offset travels along
/// @param ipcHandle [out] the handle, owned by the library: release it with ::umfPutIPCHandle
/// @param size [out] its size in bytes
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or no
///         pool has recorded the address, or its object was freed; ::UMF_RESULT_ERROR_UNKNOWN if
///         the memory itself was opened from a handle; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         errors of the provider
umf_result_t umfGetIPCHandle(const void *ptr, umf_ipc_handle_t *ipcHandle, size_t *size);

/// @brief Releases a handle made by ::umfGetIPCHandle. Mappings opened from it are not affected.
///
/// If its object was freed meanwhile, and no other handle of it is out, the object is returned to
/// its pool. The pool may be gone by then. No other thread may destroy it at the same time.
///
/// @param ipcHandle the handle itself, not a copy; NULL is allowed. The memory it describes may
///        have been freed before.
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if it is a copy, was put
///         before, or is no handle at all, as far as that can be detected: nothing is done
umf_result_t umfPutIPCHandle(umf_ipc_handle_t ipcHandle);

/// @brief Maps the memory a handle describes.
///
/// Reads at most as many bytes as ::umfPoolGetIPCHandleSize says for the handler's pool, so as many
/// must be there; a longer handle is refused. Prefer ::umfOpenIPCHandleSized for bytes that came
/// from outside: it takes their number.
///
/// All opens of the same allocation of the provider through the same handler share one mapping,
/// whatever their offsets. Opening works in the producing process, too, if the provider supports
/// that (those of the library do, devices and drivers permitting).
///
/// @param hIPCHandler from ::umfPoolGetIPCHandler
/// @param ipcHandle the handle or a copy; not changed, needed only during the call, freed by
///        its owner
/// @param ptr [out] the address in this process; close with ::umfCloseIPCHandle
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL, if
///         `hIPCHandler` is not a handler, if the bytes are no valid handle, were made for another
///         kind of provider, or describe memory that its provider got back or whose producer has
///         ended;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY; errors of the provider
umf_result_t umfOpenIPCHandle(umf_ipc_handler_handle_t hIPCHandler, umf_ipc_handle_t ipcHandle,
                              void **ptr);

/// @brief Ends one use of opened memory.
///
/// The mapping may stay for the next open. It ends when the limit UMF_MAX_OPENED_IPC_HANDLES is
/// reached, when the producer has other memory at its place, or with the consumer's pool.
///
/// @param ptr result of ::umfOpenIPCHandle, or any address inside the mapping; not to be used
///        afterwards unless it is open once more
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `ptr` is NULL or not in
///         memory that is open
umf_result_t umfCloseIPCHandle(void *ptr);

/// @brief The handler of a pool, which opens handles.
///
/// @param hPool pool
/// @param hIPCHandler [out] owned by the pool and valid while it lives; the same at each call
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or the
///         pool was created with ::UMF_POOL_CREATE_FLAG_DISABLE_TRACKING;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfPoolGetIPCHandler(umf_memory_pool_handle_t hPool,
                                  umf_ipc_handler_handle_t *hIPCHandler);

#ifdef __cplusplus
}
#endif

#endif /* UMF_IPC_H */
