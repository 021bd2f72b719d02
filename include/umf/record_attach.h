/** @file
 * How a program looks at another process that uses the library: the messages of `umfctl top`,
 * `umfctl snapshot PID`, `umfctl record PID` and `umfctl leaks PID`.
 *
 * A process with the setting `umf.record.attach` (`UMF_RECORD_ATTACH=yes`) listens on a Unix socket
 * (SOCK_SEQPACKET) in the abstract namespace, named ::UMF_ATTACH_NAME with the inode of its pid
 * namespace (`/proc/PID/ns/pid`) and its number in that. It answers processes that could ptrace it,
 * and no others (docs/ipc-security.md). Each request is one message, and gets one back, with a
 * descriptor where there is one to give: a file as umf/record_format.h describes it. Numbers are
 * those of the machine, and there is no padding.
 *
 * Server and client check every message. A descriptor comes from another process, which may change
 * or shorten its file at any time: read it, do not map it.
 */
#ifndef UMF_RECORD_ATTACH_H
#define UMF_RECORD_ATTACH_H 1

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief The name of the socket, for printf with an `unsigned long long` and an `unsigned`.
#define UMF_ATTACH_NAME "umf-attach-%llu-%u"
/// @brief The first member of each message.
#define UMF_ATTACH_MAGIC 0x41464d55u
/// @brief The version of the messages that this header describes. Others are refused.
#define UMF_ATTACH_VERSION 2u

/// @brief The largest umf_attach_request_t::size, in bytes.
#define UMF_ATTACH_SIZE_MAX (UINT64_C(4) << 30)

/// @brief Kind of a request.
typedef enum umf_attach_kind_t {
    /// A snapshot with objects only.
    UMF_ATTACH_FIGURES = 1,
    /// A snapshot, as ::umfRecordSnapshot.
    UMF_ATTACH_SNAPSHOT = 2,
    /// The file of the running recording itself, which continues. It can only be read.
    UMF_ATTACH_LIVE = 3,
    /// Starts a recording in memory and gives its descriptor. It is stopped when the connection
    /// closes.
    UMF_ATTACH_RECORD = 4,
    /// Stops the recording that this connection has started.
    UMF_ATTACH_STOP = 5,
    /// Trims a pool, as ::umfPoolTrimMemory with 0.
    UMF_ATTACH_TRIM = 6,
    /// Suspends a pool. Whatever uses its memory meanwhile fails.
    UMF_ATTACH_SUSPEND = 7,
    /// Resumes a pool.
    UMF_ATTACH_RESUME = 8
} umf_attach_kind_t;

/// @brief A request.
typedef struct umf_attach_request_t {
    /// ::UMF_ATTACH_MAGIC.
    uint32_t magic;
    /// ::UMF_ATTACH_VERSION.
    uint32_t version;
    /// ::umf_attach_kind_t.
    uint32_t kind;
    /// Of ::UMF_ATTACH_RECORD: frames of a stack.
    uint32_t stack_depth;
    /// Of ::UMF_ATTACH_RECORD: 1 for a table of live allocations.
    uint32_t leaks;
    /// Birth of the pool, as in umf_record_object_t.
    uint32_t birth;
    /// Handle of the pool, as in umf_record_object_t. A pool of this handle and another birth is
    /// not the one that is meant, and the request fails.
    uint64_t object;
    /// Of ::UMF_ATTACH_RECORD, as in umf_record_params_t, but at most ::UMF_ATTACH_SIZE_MAX; so are
    /// the next.
    uint64_t size;
    /// The smallest allocation.
    uint64_t min_size;
    /// The largest.
    uint64_t max_size;
    /// One allocation of so many.
    uint64_t rate;
} umf_attach_request_t;

/// @brief Result of a request.
typedef enum umf_attach_status_t {
    /// It is done.
    UMF_ATTACH_DONE = 0,
    /// The process may not be ptraced by this one.
    UMF_ATTACH_DENIED = 1,
    /// As many programs look at the process already.
    UMF_ATTACH_FULL = 2,
    /// The message is unknown to this version of the library.
    UMF_ATTACH_UNKNOWN = 3,
    /// It could not be done; the text says why.
    UMF_ATTACH_FAILED = 4
} umf_attach_status_t;

/// @brief An answer.
typedef struct umf_attach_reply_t {
    /// ::UMF_ATTACH_MAGIC.
    uint32_t magic;
    /// ::UMF_ATTACH_VERSION.
    uint32_t version;
    /// ::umf_attach_status_t.
    uint32_t status;
    /// The kind of the request.
    uint32_t kind;
    /// Why not, with a zero at its end; empty if it is done.
    char text[240];
} umf_attach_reply_t;

#ifdef __cplusplus
}
#endif

#endif
