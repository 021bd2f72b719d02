/*
 * Logging: one line per write; docs/guide.md ("Logging") describes format and options.
 *
 * Callable from any thread, with any lock held. Uses the stack only and allocates nothing.
 */
#ifndef UMF_SRC_BASE_LOG_H
#define UMF_SRC_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include <umf/base.h>

typedef enum umf_log_level_t {
    UMF_LOG_LEVEL_DEBUG = 0,
    UMF_LOG_LEVEL_INFO = 1,
    UMF_LOG_LEVEL_WARNING = 2,
    UMF_LOG_LEVEL_ERROR = 3,
    UMF_LOG_LEVEL_FATAL = 4,
} umf_log_level_t;

/* The settings of the logger. */
typedef struct umf_log_config_t {
    bool timestamp;
    bool pid;
    int level;       /* smallest level written */
    int flush_level; /* smallest level after which the stream is flushed */
} umf_log_config_t;

/* Reads UMF_LOG. Every start of the library calls it; only the first call has an effect. */
void umf_log_init(void);

/* Applies a text in the format of UMF_LOG. Without a valid output in it nothing changes, and one
 * line on stderr says so. */
void umf_log_configure(const char *text);

umf_log_config_t umf_log_get_config(void);
/* INVALID_ARGUMENT when a level is outside 0..4. */
umf_result_t umf_log_set_config(const umf_log_config_t *config);

/*
 * Output is "stdout", "stderr", "disabled" (reads only) or a file name, appended to.
 * Set: INVALID_ARGUMENT if the file cannot be opened or its name exceeds 255 characters; the old
 * output stays. Get: copies the name, INVALID_ARGUMENT if it does not fit into `size` bytes.
 */
umf_result_t umf_log_set_output(const char *name);
umf_result_t umf_log_get_output(char *name, size_t size);

/* `errnum` is 0 or an errno value whose text is appended as ": <text>". errno is preserved. */
void umf_log_write(umf_log_level_t level, int errnum, const char *function, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));

/* A line of level WARN that is written whatever the level is, to stderr if there is no log. */
void umf_log_always(int errnum, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* The common case, level ERROR without an errno, so that calls are short. */
void umf_log_error(const char *function, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/*
 * Keeps the first error that the calling thread logs after umf_log_hear, whether it is written or
 * not. The caller shows it to a user, who may have no log. `heard` must stay until
 * umf_log_hear_end; an inner listener hides the outer one.
 */
typedef struct umf_log_heard_t {
    char text[512]; /* "" if there was none */
    struct umf_log_heard_t *outer;
} umf_log_heard_t;

void umf_log_hear(umf_log_heard_t *heard);
void umf_log_hear_end(const umf_log_heard_t *heard);

#define UMF_LOG_DEBUG(...) umf_log_write(UMF_LOG_LEVEL_DEBUG, 0, __func__, __VA_ARGS__)
#define UMF_LOG_INFO(...) umf_log_write(UMF_LOG_LEVEL_INFO, 0, __func__, __VA_ARGS__)
#define UMF_LOG_WARN(...) umf_log_write(UMF_LOG_LEVEL_WARNING, 0, __func__, __VA_ARGS__)
#define UMF_LOG_ERROR(...) umf_log_error(__func__, __VA_ARGS__)
#define UMF_LOG_FATAL(...) umf_log_write(UMF_LOG_LEVEL_FATAL, 0, __func__, __VA_ARGS__)

/* For a setting of a person that is ignored. */
#define UMF_LOG_IGNORED(...) umf_log_always(0, __func__, __VA_ARGS__)

/* For a failed system call: the text of errno follows. */
#define UMF_LOG_PERROR(...) umf_log_write(UMF_LOG_LEVEL_ERROR, errno, __func__, __VA_ARGS__)
#define UMF_LOG_PWARN(...) umf_log_write(UMF_LOG_LEVEL_WARNING, errno, __func__, __VA_ARGS__)

#endif
