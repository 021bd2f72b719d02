/*
 * The last error of each thread: a line and a reason, for umf/reason.h.
 *
 * The log stores each line of level ERROR and above here, whether it is written or not. Callable
 * with any lock held; allocates nothing.
 */
#ifndef UMF_SRC_BASE_LAST_ERROR_H
#define UMF_SRC_BASE_LAST_ERROR_H

#include <stdarg.h>
#include <stdint.h>

#include <umf/reason.h>

/* Stores a line that the log gets, too. The reason becomes NONE. */
void umf_last_error_store(int errnum, const char *format, va_list args);

/* Stores a line that is no line of the log, because a program may expect the failure. */
void umf_last_error_set(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

/* The reason of the line that was stored last. Call it after the line is logged. */
void umf_last_reason_set(umf_reason_t reason);

/* How many lines the thread has stored: two equal values mean that none was stored in between. */
uint32_t umf_last_error_count(void);

/* Logs an error with a reason, and is the result: `return UMF_FAIL(UMF_REASON_STALE,
 * UMF_RESULT_ERROR_INVALID_ARGUMENT, "descriptor %d has ...", number);` */
#define UMF_FAIL(reason, result, ...)                                                              \
    (umf_log_error(__func__, __VA_ARGS__), umf_last_reason_set(reason), (result))

#endif
