/** @file
 * Why the last call of this thread failed: a line of text for people, and a reason for programs.
 *
 * A result code has few values, and the log is off unless a person asks for it. The library keeps
 * the last line that it logged at level `error` or above, or would have logged if a log was on, for
 * each thread. So the text is there with no log. An allocation that a pool or provider refuses
 * stores its reason, too, although it logs at level `debug` only.
 *
 * Text and reason change when a call fails, and stay when one succeeds, as errno does: read them
 * after a failure. All functions may be called from any thread at any time, allocate no memory and
 * keep errno. A child of fork starts without a text.
 */
#ifndef UMF_REASON_H
#define UMF_REASON_H 1

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Why a call failed, where a result code alone leaves the next step open.
///
/// Later versions add values at the end: treat an unknown one as ::UMF_REASON_NONE.
typedef enum umf_reason_t {
    /// The result code and the text are all there is.
    UMF_REASON_NONE = 0,
    /// The named object has changed since it was described: describe it anew, and try again.
    UMF_REASON_STALE = 1,
    /// It is not the object, the program, the device or the content that was expected.
    UMF_REASON_IDENTITY = 2,
    /// A limit that a person or a program has set is reached.
    UMF_REASON_LIMIT = 3,
    /// Others can write to memory or files that must not change.
    UMF_REASON_WRITABLE = 4,
    /// The other side did not answer in time: it may be slow, stopped or gone.
    UMF_REASON_TIMEOUT = 5,
    /// Content or a message is damaged: a checksum or a format does not fit.
    UMF_REASON_BROKEN = 6,
    /// The system or the other side does not allow it: rights, a user, a namespace, a policy.
    UMF_REASON_DENIED = 7,
    /// The object or the other side was there and is no more.
    UMF_REASON_GONE = 8,
    /// The time that the caller gave for the whole call is over.
    UMF_REASON_DEADLINE = 9,
    /// Something that is in use stands in the way: finish it, and try again.
    UMF_REASON_BUSY = 10,
    /// The named object does not exist: a file, a device, a NUMA node, a name.
    UMF_REASON_ABSENT = 11,
    /// Memory, space, descriptors or another resource of the machine is used up.
    UMF_REASON_EXHAUSTED = 12,
    /// The two sides have versions or abilities that do not fit.
    UMF_REASON_UNSUPPORTED = 13
} umf_reason_t;

/// @brief The text of the last failure in the calling thread: the failed operation, the value, the
///        cause, and the remedy where there is one.
///
/// @return one line without a line break, at most 511 bytes, never NULL; "" if no call of this
///         thread has failed, or more than 1,000 threads with a text live. Valid until the next
///         call of the library in this thread.
const char *umfLastErrorText(void);

/// @brief The reason of the last failure in the calling thread; it belongs to ::umfLastErrorText.
///
/// @return ::UMF_REASON_NONE if no call has failed, or the failure has no reason of its own
umf_reason_t umfLastReason(void);

/// @brief Forgets text and reason of the calling thread.
///
/// For programs that want to be sure that a text belongs to the next call: operations that a
/// program itself gave to the library may fail without a text.
void umfLastErrorClear(void);

/// @brief A reason as the header spells it: "UMF_REASON_STALE".
///
/// @param reason any value
/// @return static text, never NULL. For a value that is no reason: "UMF_REASON_?".
const char *umfReasonName(umf_reason_t reason);

#ifdef __cplusplus
}
#endif

#endif /* UMF_REASON_H */
