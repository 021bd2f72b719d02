/*
 * Logging.
 *
 * Every line is built on the stack and passed to the system by one write. Nothing stays in a
 * buffer, so a line is written when the call returns: `flush` has no effect, and nothing is lost
 * when the program crashes or forks. The stdio streams are not used, because they allocate (we may
 * be malloc) and take locks that a forked child could find locked without end.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/kept_fd.h"
#include "base/last_error.h"
#include "base/lock.h"
#include "base/plain_text.h"
#include "system/common.h"
#include "system/keep_errno.h"
#include "system/os.h"

#define LOG_LINE_SIZE 8192
#define LOG_CUT_MARK "[truncated...]"
#define LOG_ENV_PATH_MAX 256 /* longest path in UMF_LOG */
#define LOG_SET_PATH_MAX 255 /* longest path for umf_log_set_output */
#define LOG_NO_OUTPUT (-1)
#define LOG_SHOWN 64 /* characters shown of an ignored option */

/* The function name in the messages of umf_log_init; programs that read logs search for it. */
#define LOG_INIT_NAME "utils_log_init"

UMF_LOCK_STATIC(log_lock, UMF_RANK_LOG);
static int log_fd = LOG_NO_OUTPUT;          /* Sync: log_lock */
static umf_kept_fd_t log_file;              /* none for stdout and stderr. Sync: log_lock */
static char log_name[LOG_ENV_PATH_MAX + 1]; /* Sync: log_lock */
static atomic_int log_level = UMF_LOG_LEVEL_ERROR;
static atomic_int log_flush_level = UMF_LOG_LEVEL_ERROR;
static atomic_bool log_timestamp;
static atomic_bool log_pid;

/* The smallest level that is written now. Without an output only FATAL is written. Sync: atomic,
 * relaxed; changed under log_lock. */
static atomic_int log_threshold = UMF_LOG_LEVEL_FATAL;

static const char *const log_level_names[] = {"DEBUG", "INFO", "WARN", "ERROR", "FATAL"};

/* --- one line --- */

typedef struct log_line_t {
    char text[LOG_LINE_SIZE];
    size_t length;
    bool is_cut;
} log_line_t;

static void log_append_list(log_line_t *line, const char *format, va_list args) {
    size_t room = sizeof(line->text) - line->length;
    int length = vsnprintf(line->text + line->length, room, format, args);
    if (length < 0) {
        return;
    }
    line->is_cut |= (size_t)length >= room;
    line->length += line->is_cut ? room - 1 : (size_t)length;
}

__attribute__((format(printf, 2, 3))) static void log_append(log_line_t *line, const char *format,
                                                             ...) {
    va_list args;
    va_start(args, format);
    log_append_list(line, format, args);
    va_end(args);
}

/* Ends the line in the place that was reserved for the NUL. */
static void log_finish(log_line_t *line) {
    size_t mark = sizeof(LOG_CUT_MARK) - 1;
    if (line->is_cut) {
        memcpy(line->text + line->length - mark, LOG_CUT_MARK, mark);
    }
    umf_plain_text(line->text, line->length);
    line->text[line->length++] = '\n';
}

/* --- time --- */

/*
 * Seconds that local time is ahead of UTC. The C library is called once for each quarter of an
 * hour, because the offset changes at full quarters only, and the library takes a lock of its own
 * for it. Our lock makes sure that none of our threads is inside the library when another one
 * forks.
 */
static long log_utc_offset(time_t now) {
    static _Atomic int64_t cache; /* quarter in the high half, offset in the low one */
    int64_t quarter = now / 900;
    int64_t word = atomic_load_explicit(&cache, memory_order_relaxed);
    if (word >> 32 != quarter) {
        struct tm local = {0};
        umf_lock(&log_lock);
        localtime_r(&now, &local);
        umf_unlock(&log_lock);
        word = (int64_t)((uint64_t)quarter << 32 | (uint32_t)local.tm_gmtoff);
        atomic_store_explicit(&cache, word, memory_order_relaxed);
    }
    return (int32_t)(uint32_t)word;
}

/* Computes the calendar (days since 1970 to the Gregorian date, counted from March 0000), because
 * gmtime_r() takes that lock, too. Correct from 1970 on. */
static void log_append_time(log_line_t *line) {
    time_t now = time(NULL);
    int64_t seconds = now + log_utc_offset(now);
    int64_t days = seconds / 86400 + 719468;
    int64_t era = days / 146097;
    int64_t day_of_era = days % 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153; /* 0 is March */
    int64_t day = day_of_year - (153 * month + 2) / 5 + 1;
    int64_t year = era * 400 + year_of_era + (month >= 10);
    month += month < 10 ? 3 : -9;
    log_append(line, "%04d-%02d-%02dT%02d:%02d:%02d ", (int)year, (int)month, (int)day,
               (int)(seconds / 3600 % 24), (int)(seconds / 60 % 60), (int)(seconds % 60));
}

/* --- writing --- */

static void log_update_threshold_locked(void) {
    umf_assert_locked(&log_lock);
    int level = log_fd == LOG_NO_OUTPUT ? UMF_LOG_LEVEL_FATAL
                                        : atomic_load_explicit(&log_level, memory_order_relaxed);
    atomic_store_explicit(&log_threshold, level, memory_order_relaxed);
}

static void log_put_locked(const char *text, size_t length) {
    umf_assert_locked(&log_lock);
    int fd = log_fd == LOG_NO_OUTPUT ? STDERR_FILENO : log_fd;
    while (length > 0) {
        ssize_t count = write(fd, text, length);
        if (count > 0) {
            text += count;
            length -= (size_t)count;
        } else if (count == 0 || errno != EINTR) {
            return;
        }
    }
}

/* After the program has closed the file, the number may be that of a file of its own. There is no
 * output then, and stderr gets the reason. */
static void log_check_file_locked(void) {
    umf_assert_locked(&log_lock);
    if (!log_file.is_kept || umf_kept_fd_is_open(&log_file)) {
        return;
    }
    char text[512];
    int length = snprintf(text, sizeof(text),
                          "[ERROR UMF] %s: the program has closed descriptor %d, the log file "
                          "\"%.255s\": logging ends; name an output again (umf.logger.output)\n",
                          __func__, log_fd, log_name);
    length = length < (int)sizeof(text) ? length : (int)sizeof(text) - 1;
    if (length > 1) {
        umf_plain_text(text, (size_t)length - 1); /* but the end of the line */
    }
    log_file.is_kept = false;
    log_fd = LOG_NO_OUTPUT;
    log_update_threshold_locked();
    log_put_locked(text, length > 0 ? (size_t)length : 0);
}

UMF_COLD static void log_write_list(umf_log_level_t level, int errnum, const char *function,
                                    const char *format, va_list args) {
    log_line_t line;
    line.length = 0;
    line.is_cut = false;
    log_append(&line, "[");
    if (atomic_load_explicit(&log_timestamp, memory_order_relaxed)) {
        log_append_time(&line);
    }
    if (atomic_load_explicit(&log_pid, memory_order_relaxed)) {
        log_append(&line, "PID:%-6d TID:%-6d ", umf_os_pid(), umf_os_tid());
    }
    log_append(&line, "%-5s UMF] %s: ", log_level_names[level], function);
    log_append_list(&line, format, args);
    if (errnum != 0) {
        char buffer[64];
        log_append(&line, ": %s", umf_os_error_text(errnum, buffer, sizeof(buffer)));
    }
    log_finish(&line);

    umf_lock(&log_lock);
    log_check_file_locked();
    log_put_locked(line.text, line.length);
    umf_unlock(&log_lock);
}

static void log_write_if_enabled(umf_log_level_t level, int errnum, const char *function,
                                 const char *format, va_list args) {
    if (level >= UMF_LOG_LEVEL_ERROR) {
        umf_last_error_store(errnum, format, args);
    }
    if (umf_likely((int)level < atomic_load_explicit(&log_threshold, memory_order_relaxed))) {
        return;
    }
    int saved = errno;
    log_write_list(level, errnum, function, format, args);
    errno = saved;
}

void umf_log_write(umf_log_level_t level, int errnum, const char *function, const char *format,
                   ...) {
    va_list args;
    va_start(args, format);
    log_write_if_enabled(level, errnum, function, format, args);
    va_end(args);
}

void umf_log_error(const char *function, const char *format, ...) {
    va_list args;
    va_start(args, format);
    log_write_if_enabled(UMF_LOG_LEVEL_ERROR, 0, function, format, args);
    va_end(args);
}

void umf_log_always(int errnum, const char *function, const char *format, ...) {
    UMF_KEEP_ERRNO;
    va_list args;
    va_start(args, format);
    log_write_list(UMF_LOG_LEVEL_WARNING, errnum, function, format, args);
    va_end(args);
}

/* Reports an error in UMF_LOG, on stderr, because there is no output then. */
__attribute__((format(printf, 2, 3))) static void log_complain(int errnum, const char *format,
                                                               ...) {
    va_list args;
    va_start(args, format);
    log_write_list(UMF_LOG_LEVEL_ERROR, errnum, LOG_INIT_NAME, format, args);
    va_end(args);
}

/* --- settings --- */

umf_log_config_t umf_log_get_config(void) {
    return (umf_log_config_t){
        .timestamp = atomic_load_explicit(&log_timestamp, memory_order_relaxed),
        .pid = atomic_load_explicit(&log_pid, memory_order_relaxed),
        .level = atomic_load_explicit(&log_level, memory_order_relaxed),
        .flush_level = atomic_load_explicit(&log_flush_level, memory_order_relaxed),
    };
}

static bool log_is_level(int level) {
    return level >= UMF_LOG_LEVEL_DEBUG && level <= UMF_LOG_LEVEL_FATAL;
}

umf_result_t umf_log_set_config(const umf_log_config_t *config) {
    if (!log_is_level(config->level) || !log_is_level(config->flush_level)) {
        UMF_LOG_ERROR("log level %d or flush level %d is not one of 0 (debug) to 4 (fatal)",
                      config->level, config->flush_level);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (config->timestamp) {
        /* Reads the time zone, which allocates, so that no line has to. */
        tzset();
    }
    umf_lock(&log_lock);
    atomic_store_explicit(&log_timestamp, config->timestamp, memory_order_relaxed);
    atomic_store_explicit(&log_pid, config->pid, memory_order_relaxed);
    atomic_store_explicit(&log_level, config->level, memory_order_relaxed);
    atomic_store_explicit(&log_flush_level, config->flush_level, memory_order_relaxed);
    log_update_threshold_locked();
    umf_unlock(&log_lock);
    return UMF_RESULT_SUCCESS;
}

static int log_open_file(const char *path, umf_kept_fd_t *file) {
    int fd;
    int error = umf_os_open(path, O_WRONLY | O_APPEND | O_CREAT, 0666, &fd);
    return error != 0 ? error : umf_kept_fd_take(file, fd);
}

/* The number of an output of the program; LOG_NO_OUTPUT: it is a file. */
static int log_standard(const char *name) {
    return strcmp(name, "stdout") == 0   ? STDOUT_FILENO
           : strcmp(name, "stderr") == 0 ? STDERR_FILENO
                                         : LOG_NO_OUTPUT;
}

/* Takes over `file`, which is none if the output is one of the program. */
static void log_switch(int standard, const umf_kept_fd_t *file, const char *name) {
    umf_lock(&log_lock);
    umf_kept_fd_t old = log_file;
    log_file = *file;
    log_fd = file->is_kept ? file->number : standard;
    snprintf(log_name, sizeof(log_name), "%s", name);
    log_update_threshold_locked();
    umf_unlock(&log_lock);
    umf_kept_fd_close(&old);
}

umf_result_t umf_log_set_output(const char *name) {
    umf_kept_fd_t file = {.is_kept = false};
    if (!name || strlen(name) > LOG_SET_PATH_MAX || strcmp(name, "disabled") == 0) {
        UMF_LOG_ERROR("log output \"%.64s\" is none of stdout, stderr and a file name of up to %d "
                      "characters",
                      name ? name : "(null)", LOG_SET_PATH_MAX);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    int standard = log_standard(name);
    int error = standard == LOG_NO_OUTPUT ? log_open_file(name, &file) : 0;
    if (error != 0) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "cannot open log file \"%s\"", name);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    log_switch(standard, &file, name);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_log_get_output(char *name, size_t size) {
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    umf_lock(&log_lock);
    const char *from = log_fd == LOG_NO_OUTPUT ? "disabled" : log_name;
    size_t length = strlen(from) + 1;
    if (name && length <= size) {
        memcpy(name, from, length);
        result = UMF_RESULT_SUCCESS;
    }
    umf_unlock(&log_lock);
    return result;
}

/* --- UMF_LOG --- */

typedef struct log_text_t {
    const char *start;
    size_t length;
} log_text_t;

static bool log_text_is(log_text_t text, const char *word) {
    return text.length == strlen(word) && memcmp(text.start, word, text.length) == 0;
}

/* True if `text` starts with `word`; `*rest` is what follows. */
static bool log_text_after(log_text_t text, const char *word, log_text_t *rest) {
    size_t length = strlen(word);
    if (text.length < length || memcmp(text.start, word, length) != 0) {
        return false;
    }
    *rest = (log_text_t){text.start + length, text.length - length};
    return true;
}

/* Cuts off the part up to the next ';' or the end. false: nothing is left. */
static bool log_next_option(const char **at, log_text_t *option) {
    if (!*at) {
        return false;
    }
    const char *end = strchr(*at, ';');
    *option = (log_text_t){*at, end ? (size_t)(end - *at) : strlen(*at)};
    *at = end ? end + 1 : NULL;
    return true;
}

/* The next functions return whether the value is valid. If not, they leave the
 * setting as it is. */

static bool log_parse_level(log_text_t value, int *level) {
    static const char *const words[] = {"debug", "info", "warning", "error", "fatal"};
    for (size_t i = 0; i < UMF_COUNT_OF(words); i++) {
        if (log_text_is(value, words[i])) {
            *level = (int)i;
            return true;
        }
    }
    return false;
}

static bool log_parse_bool(log_text_t value, bool *flag) {
    bool is_yes = log_text_is(value, "yes");
    if (!is_yes && !log_text_is(value, "no")) {
        return false;
    }
    *flag = is_yes;
    return true;
}

static bool log_parse_output(log_text_t value, log_text_t *output) {
    log_text_t path;
    if (!log_text_is(value, "stdout") && !log_text_is(value, "stderr") &&
        !log_text_after(value, "file,", &path)) {
        return false;
    }
    *output = value;
    return true;
}

static bool log_parse_option(log_text_t option, umf_log_config_t *config, log_text_t *output) {
    log_text_t value;
    return option.length == 0 ||
           (log_text_after(option, "level:", &value) && log_parse_level(value, &config->level)) ||
           (log_text_after(option, "flush:", &value) &&
            log_parse_level(value, &config->flush_level)) ||
           (log_text_after(option, "output:", &value) && log_parse_output(value, output)) ||
           (log_text_after(option, "timestamp:", &value) &&
            log_parse_bool(value, &config->timestamp)) ||
           (log_text_after(option, "pid:", &value) && log_parse_bool(value, &config->pid));
}

/* Ignored options of UMF_LOG; they are reported when the output is open. */
typedef struct log_ignored_t {
    log_text_t first;
    int count;
} log_ignored_t;

static log_ignored_t log_parse(const char *text, umf_log_config_t *config, log_text_t *output) {
    log_ignored_t ignored = {.count = 0};
    log_text_t option;
    while (log_next_option(&text, &option)) {
        if (!log_parse_option(option, config, output)) {
            ignored.first = ignored.count == 0 ? option : ignored.first;
            ignored.count++;
        }
    }
    return ignored;
}

static void log_say_ignored(const log_ignored_t *ignored) {
    if (ignored->count) {
        int length = ignored->first.length < LOG_SHOWN ? (int)ignored->first.length : LOG_SHOWN;
        umf_log_write(UMF_LOG_LEVEL_WARNING, 0, LOG_INIT_NAME,
                      "UMF_LOG: %d options are ignored, first \"%.*s\"; expected level: or flush: "
                      "with debug, info, warning, error or fatal, timestamp: or pid: with yes or "
                      "no, output: with stdout, stderr or file,<path>",
                      ignored->count, length, ignored->first.start);
    }
}

/* Opens the output that UMF_LOG names. false: there is none, which is reported. */
static bool log_start_output(const char *env, log_text_t output) {
    char name[LOG_ENV_PATH_MAX + 1];
    umf_kept_fd_t file = {.is_kept = false};
    if (!output.start) {
        log_complain(0, "Logging output not set - logging disabled (UMF_LOG = \"%s\")", env);
        return false;
    }
    bool is_file = log_text_after(output, "file,", &output);
    if (output.length > LOG_ENV_PATH_MAX) {
        log_complain(
            0,
            "Cannot open output file - path too long (%zu characters, at most %d) - logging "
            "disabled",
            output.length, LOG_ENV_PATH_MAX);
        return false;
    }
    memcpy(name, output.start, output.length);
    name[output.length] = '\0';
    int standard = is_file ? LOG_NO_OUTPUT : log_standard(name);
    int error = standard == LOG_NO_OUTPUT ? log_open_file(name, &file) : 0;
    if (error != 0) {
        log_complain(error, "Cannot open output file \"%s\" - logging disabled", name);
        return false;
    }
    log_switch(standard, &file, name);
    return true;
}

void umf_log_init(void) {
    static atomic_flag done = ATOMIC_FLAG_INIT;
    /* A program with raised privileges must not write to files that its caller names. */
    const char *env = atomic_flag_test_and_set(&done) ? NULL : secure_getenv("UMF_LOG");
    if (env) {
        umf_log_configure(env);
    }
}

void umf_log_configure(const char *text) {
    log_text_t output = {NULL, 0};
    umf_log_config_t config = umf_log_get_config();
    log_ignored_t ignored = log_parse(text, &config, &output);
    if (!log_start_output(text, output)) {
        return;
    }
    umf_log_set_config(&config);
    umf_log_write(UMF_LOG_LEVEL_INFO, 0, LOG_INIT_NAME,
                  "Logger enabled (UMF version: %s, level: %s, flush: %s, pid: %s, timestamp: %s)",
                  UMF_VERSION_STRING, log_level_names[config.level],
                  log_level_names[config.flush_level], config.pid ? "yes" : "no",
                  config.timestamp ? "yes" : "no");
    log_say_ignored(&ignored);
}
