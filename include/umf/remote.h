/** @file
 * Memory of other machines: a range that one process publishes is read and written by others,
 * through messages of UCX, which is found at run time (version 1.13 or later). Between processes of
 * one user on one machine the messages travel through a Unix socket, and the data through shared
 * memory: they need no UCX.
 *
 * Nothing on the wire is encrypted. Without a key file a process listens on the loopback device
 * only, and any process of the machine may connect to it. A handle is data for UCX, which does not
 * check it against attacks: take handles only from those who may have the memory.
 *
 * The owner publishes and sends the bytes of a handle by any means; the peer opens them, and gets
 * and puts ranges:
 *
 *     umf_remote_handle_t remote;              // both: a thread, and a port of the loopback device
 *     umfRemoteCreate(NULL, &remote);
 *
 *     umfRemotePublish(remote, ptr, size, UMF_REMOTE_GET, &published);   // owner
 *     umfRemoteGetHandle(published, bytes, &length);
 *
 *     umfRemoteOpen(remote, bytes, length, &memory);                     // peer
 *     umfRemoteGet(memory, 0, buffer, sizeof(buffer), NULL);
 *
 * The owner checks each request: its secret and rights, the generation and the range. No other
 * memory of the owner is reached by these requests, nor by one-sided requests of UCX, which a
 * context has switched off; packets that a program forges are for UCX to reject. While a range is
 * published, its block is not handed out again after a free, and pages do not go under a transfer:
 * a free or suspend waits for it, at most the deadline. After a suspend and resume of its pool the
 * range has another generation. One operation of each peer then fails as stale, and the next one
 * works with the new content.
 *
 * Every operation has a deadline, and no call waits longer. When it passes, or the other process
 * ends, the connection is closed by force and all operations on it fail; the memory must then be
 * opened again. The buffer of a failed get, and the range of a failed put, are undefined; nothing
 * is written to them after the operation has ended.
 *
 * A failure has a reason (umf/reason.h): ::UMF_REASON_STALE for a range that was withdrawn, freed
 * or suspended, or whose owner is another process now; ::UMF_REASON_DENIED for a secret, a key or a
 * right; ::UMF_REASON_GONE if the owner has ended; ::UMF_REASON_DEADLINE; ::UMF_REASON_BROKEN for
 * damaged bytes of a handle.
 *
 * Memory of the host is served; memory of a device is not supported. A child of fork cannot use the
 * handles of its parent. All functions are thread-safe.
 */
#ifndef UMF_REMOTE_H
#define UMF_REMOTE_H 1

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A context: a thread, and its connections.
typedef struct umf_remote_t *umf_remote_handle_t;
/// @brief A published range.
typedef struct umf_remote_export_t *umf_remote_export_handle_t;
/// @brief An opened range of another process.
typedef struct umf_remote_memory_t *umf_remote_memory_handle_t;
/// @brief A get or put that is under way.
typedef struct umf_remote_op_t *umf_remote_op_handle_t;

/// @brief The most bytes that a handle has.
#define UMF_REMOTE_HANDLE_MAX 1024

/// @brief Ways of a context. Joined by |.
typedef enum umf_remote_flags_t {
    /// Processes of this machine use UCX, too.
    UMF_REMOTE_NETWORK_ONLY = 1
} umf_remote_flags_t;

/// @brief How a context works.
typedef struct umf_remote_params_t {
    /// sizeof(umf_remote_params_t) of the headers it was compiled with.
    size_t struct_size;
    /// File of the library; NULL: libucp.so.0, the loaded one first. A process has one UCX: another
    /// file than the loaded one is refused with ::UMF_RESULT_ERROR_NOT_SUPPORTED.
    const char *library;
    /// Network devices, as UCX_NET_DEVICES names them ("eth0,eth1"); NULL: the loopback device,
    /// or none where UCX cannot be used: the context then has processes of this machine only.
    /// Others than "lo" need `key_file`.
    const char *devices;
    /// File with a key of 32 bytes that all processes of the group have, readable by its owner
    /// only; NULL: none. Each side then proves that it has the key, by HMAC-SHA-256 of libcrypto.
    const char *key_file;
    /// Milliseconds without progress until an operation fails; 0: 10,000.
    uint64_t deadline_ms;
    /// Bytes that may be in transfer at once in each direction of a connection; 0: 64 MiB.
    size_t limit_in_flight;
    /// Of ::umf_remote_flags_t.
    unsigned flags;
    /// Requests that may be in transfer at once on a connection, whatever their size; 0: 1,024.
    /// Both sides count: the peer's further requests wait, the owner refuses those of a peer that
    /// does not wait. A get or put is a request for each 8 MiB, on one machine for each MiB.
    size_t limit_requests;
} umf_remote_params_t;

/// @brief The defaults.
#define UMF_REMOTE_PARAMS_INIT                                                                     \
    { sizeof(umf_remote_params_t), NULL, NULL, NULL, 0, 0, 0, 0 }

/// @brief What peers may do. Joined by |.
typedef enum umf_remote_rights_t {
    /// Read.
    UMF_REMOTE_GET = 1,
    /// Write.
    UMF_REMOTE_PUT = 2
} umf_remote_rights_t;

/// @brief Reports which UCX is found, in a text.
///
/// @param text [out] a version and a file, or the missing part and the remedy; ends with NUL, cut
/// if
///        it does not fit
/// @param size room at `text`; not 0
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_NOT_SUPPORTED if there is no UCX that can be
///         used; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is NULL or 0
umf_result_t umfRemoteProbe(char *text, size_t size);

/// @brief Makes a context, and starts its thread.
///
/// @param params copied; NULL: the defaults
/// @param remote [out] to be destroyed by ::umfRemoteDestroy
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if `remote` is NULL, the size
///         too small, a flag unknown, the key file not one of 32 bytes that only its owner can
///         read, or devices are named without one; ::UMF_RESULT_ERROR_NOT_SUPPORTED if there is no
///         UCX and devices are named or ::UMF_REMOTE_NETWORK_ONLY is set, or no libcrypto where
///         there is a key; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if UCX or the system refuses, as for
///         a device that does not exist; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfRemoteCreate(const umf_remote_params_t *params, umf_remote_handle_t *remote);

/// @brief Destroys a context: closes its connections, withdraws what it published, and ends its
///        thread. Exports and memories of it are no longer valid.
///
/// No other thread may use the context, and no operation of ::umfRemoteGet or ::umfRemotePut be
/// left that was not waited for.
///
/// @param remote NULL is ignored
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if it is no context
umf_result_t umfRemoteDestroy(umf_remote_handle_t remote);

/// @brief Lets peers read or write a range.
///
/// @param remote a context
/// @param ptr memory of a pool that tracks it
/// @param size bytes; not 0; within one block
/// @param rights of ::umf_remote_rights_t
/// @param published [out] to be ended by ::umfRemoteWithdraw
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid,
///         or the memory not of a pool; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the CPU cannot access
///         it; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if its pool is suspended;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfRemotePublish(umf_remote_handle_t remote, void *ptr, size_t size, unsigned rights,
                              umf_remote_export_handle_t *published);

/// @brief Writes the bytes by which peers open a range. They contain its secret.
///
/// @param published a published range
/// @param bytes [out] the handle; may be NULL if `*size` is 0
/// @param size [in,out] room, then the length of the handle, at most ::UMF_REMOTE_HANDLE_MAX
/// @return ::UMF_RESULT_SUCCESS, also if `bytes` is NULL; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an
///         argument is not valid, or the room too small: then `*size` is the length all the same
umf_result_t umfRemoteGetHandle(umf_remote_export_handle_t published, void *bytes, size_t *size);

/// @brief Ends a published range: refuses new requests and waits for those under way, at most the
///        deadline.
///
/// @param published a published range; no longer valid after the call
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if it is none
umf_result_t umfRemoteWithdraw(umf_remote_export_handle_t published);

/// @brief Opens a range of another process.
///
/// @param remote a context
/// @param bytes a handle of ::umfRemoteGetHandle
/// @param size its length
/// @param memory [out] to be closed by ::umfRemoteClose
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if the bytes are no handle of
///         this version, or the range was withdrawn, its owner is another process now, or refuses
///         secret or key; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the owner has ended or does not
///         answer; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it is on another machine, and one of both
///         sides has no UCX; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfRemoteOpen(umf_remote_handle_t remote, const void *bytes, size_t size,
                           umf_remote_memory_handle_t *memory);

/// @brief Called by ::umfRemoteOpenUntil in its thread, about every 50 ms. Returns 0 to go on.
///
/// It must not destroy the context.
typedef int (*umf_remote_stop_t)(void *arg);

/// @brief Opens a range of another process, as ::umfRemoteOpen, unless a function ends the wait for
///        its owner.
///
/// @param remote a context
/// @param bytes a handle of ::umfRemoteGetHandle
/// @param size its length
/// @param stop called while the owner has not answered; NULL: none
/// @param arg handed to `stop`
/// @param memory [out] to be closed by ::umfRemoteClose; unchanged on failure
/// @return as ::umfRemoteOpen; ::UMF_RESULT_ERROR_USER_SPECIFIC if `stop` ended the wait
umf_result_t umfRemoteOpenUntil(umf_remote_handle_t remote, const void *bytes, size_t size,
                                umf_remote_stop_t stop, void *arg,
                                umf_remote_memory_handle_t *memory);

/// @brief Reports the size of an opened range.
///
/// @param memory an opened range
/// @param size [out] bytes
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid
umf_result_t umfRemoteGetSize(umf_remote_memory_handle_t memory, size_t *size);

/// @brief Closes an opened range. Operations on it must have been waited for.
///
/// @param memory an opened range; no longer valid after the call
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if it is none
umf_result_t umfRemoteClose(umf_remote_memory_handle_t memory);

/// @brief Reads a part of an opened range.
///
/// @param memory an opened range
/// @param offset where the part begins
/// @param to [out] memory of the host, valid until the operation has ended
/// @param size bytes
/// @param op [out] to be ended by ::umfRemoteWait; NULL: the call waits
/// @return ::UMF_RESULT_SUCCESS: done, or begun; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument
///         is not valid, the part lies beyond the end, rights are missing, or the range has ended
///         or changed since (it was withdrawn, freed or suspended);
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the owner has ended, or no progress was made in
///         time; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfRemoteGet(umf_remote_memory_handle_t memory, size_t offset, void *to, size_t size,
                          umf_remote_op_handle_t *op);

/// @brief Writes a part of an opened range. As ::umfRemoteGet, the other way round.
///
/// @param memory an opened range
/// @param offset where the part begins
/// @param from memory of the host, valid until the operation has ended
/// @param size bytes
/// @param op [out] to be ended by ::umfRemoteWait; NULL: the call waits
/// @return as ::umfRemoteGet
umf_result_t umfRemotePut(umf_remote_memory_handle_t memory, size_t offset, const void *from,
                          size_t size, umf_remote_op_handle_t *op);

/// @brief Waits for an operation, and ends it if it is done.
///
/// @param op an operation; no longer valid unless the result is
///        ::UMF_RESULT_ERROR_NOT_SUPPORTED
/// @param timeout_ms the most milliseconds to wait; 0: none; UINT64_MAX: until it is done, which
/// its
///        deadline bounds
/// @return that of the operation, as ::umfRemoteGet; ::UMF_RESULT_ERROR_NOT_SUPPORTED if it is not
///         done yet; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if it is none
umf_result_t umfRemoteWait(umf_remote_op_handle_t op, uint64_t timeout_ms);

/// @brief Asks for the end of an operation, which is then waited for all the same.
///
/// No further part of it begins. A get ends at once; where its data has begun to arrive, when it is
/// there or when nothing of it comes for 30 ms: then the connection is closed by force. A put ends
/// when the owner has answered, or at the deadline. The result is
/// ::UMF_RESULT_ERROR_OUT_OF_RESOURCES, or success if the operation was done already.
///
/// @param op an operation
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if it is none
umf_result_t umfRemoteCancel(umf_remote_op_handle_t op);

#ifdef __cplusplus
}
#endif

#endif /* UMF_REMOTE_H */
