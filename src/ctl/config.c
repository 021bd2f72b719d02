#include "ctl/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ctl/ctl.h"
#include "ctl/text.h"
#include "system/os.h"

/* The number of ignored entries that are named; the rest is counted. */
#define CONFIG_NAMED 8

/* The ignored entries. They are reported after all entries are written, because some of these set
 * up the log. */
typedef struct config_report_t {
    size_t entries, ignored;
    bool stopped; /* at the last one named or counted */
    struct {
        size_t number;
        umf_text_word_t entry;
        const char *reason, *nearest; /* NULL: no name is near */
    } named[CONFIG_NAMED];
} config_report_t;

static void report_ignored(config_report_t *report, const char *entry, size_t length,
                           const char *reason, const char *nearest) {
    if (report->ignored < CONFIG_NAMED) {
        report->named[report->ignored].number = report->entries;
        report->named[report->ignored].entry = umf_text_show(entry, length);
        report->named[report->ignored].reason = reason;
        report->named[report->ignored].nearest = nearest;
    }
    report->ignored++;
}

static void report_say(const config_report_t *report, const char *origin) {
    for (size_t i = 0; i < report->ignored && i < CONFIG_NAMED; i++) {
        const char *nearest = report->named[i].nearest;
        UMF_LOG_IGNORED("%s: entry %zu \"%s\" is ignored: %s%s%s%s", origin,
                        report->named[i].number, report->named[i].entry.text,
                        report->named[i].reason, nearest ? "; the nearest name is \"" : "",
                        nearest ? nearest : "", nearest ? "\"" : "");
    }
    if (report->ignored > CONFIG_NAMED) {
        UMF_LOG_IGNORED("%s: %zu more entries are ignored", origin, report->ignored - CONFIG_NAMED);
    }
    if (report->stopped) {
        UMF_LOG_IGNORED("%s: nothing after entry %zu is read", origin, report->entries);
    }
}

static const char *config_reason(umf_result_t result) {
    switch (result) {
    case UMF_RESULT_ERROR_INVALID_CTL_PATH:
        return "there is no such setting";
    case UMF_RESULT_ERROR_INVALID_ARGUMENT:
        return "the setting does not take this value";
    case UMF_RESULT_ERROR_NOT_SUPPORTED:
        return "not supported";
    case UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY:
        return "out of memory";
    default:
        return "it failed";
    }
}

/* false: the entry is malformed. `entry` is NUL-terminated. */
static bool config_write(char *entry, size_t length, config_report_t *report) {
    char *equal = memchr(entry, '=', length);
    size_t path_length = equal ? (size_t)(equal - entry) : length;
    size_t value_length = equal ? length - path_length - 1 : 0;
    if (path_length == 0 || value_length == 0 || memchr(equal + 1, '=', value_length) ||
        memchr(entry, '\0', length)) {
        return false;
    }
    *equal = '\0';
    umf_ctl_nearest_begin();
    umf_result_t result = umf_ctl_write_config(entry, equal + 1, value_length + 1);
    const char *nearest = umf_ctl_nearest_end();
    *equal = '=';
    if (result != UMF_RESULT_SUCCESS) {
        report_ignored(report, entry, length, config_reason(result),
                       result == UMF_RESULT_ERROR_INVALID_CTL_PATH ? nearest : NULL);
    }
    return true;
}

/* `text` has room for a NUL behind `length`. */
static void config_write_all(char *text, size_t length, config_report_t *report) {
    for (char *end, *stop = text + length; text < stop; text = end + 1) {
        end = memchr(text, ';', (size_t)(stop - text));
        if (!end) {
            end = stop;
        }
        *end = '\0';
        size_t size = (size_t)(end - text);
        if (size == 0) {
            continue;
        }
        report->entries++;
        if (!config_write(text, size, report)) {
            report_ignored(report, text, size, "it is not of the form path=value", NULL);
            report->stopped = true;
            return;
        }
    }
}

static void config_apply(const char *origin, char *text, size_t length) {
    config_report_t report = {0};
    config_write_all(text, length, &report);
    report_say(&report, origin);
}

void umf_config_apply(const char *origin, const char *text, size_t length) {
    char *copy = umf_meta_alloc(length + 1);
    if (!copy) {
        UMF_LOG_IGNORED("%s is ignored: out of memory", origin);
        return;
    }
    memcpy(copy, text, length);
    config_apply(origin, copy, length);
    umf_meta_free(copy, length + 1);
}

/* Removes comments and white space. Returns the new length. */
static size_t config_strip(char *text, size_t length) {
    size_t kept = 0;
    bool comment = false;
    for (size_t i = 0; i < length; i++) {
        comment = text[i] == '#' || (comment && text[i] != '\n');
        if (!comment && !umf_text_is_space(text[i])) {
            text[kept++] = text[i];
        }
    }
    return kept;
}

/* Returns 0 or an errno value. On success `*size` and `*text` (one byte longer) are set. EFBIG: not
 * a file of 1 byte to the limit, so devices and pipes are not read. */
static int config_read(int fd, char **text, size_t *size) {
    uint64_t dev, ino, bytes;
    int error = umf_os_file_id(fd, &dev, &ino, &bytes);
    if (error) {
        return error;
    }
    if (bytes == 0 || bytes > UMF_CONFIG_FILE_MAX) {
        return EFBIG;
    }
    char *copy = umf_meta_alloc(bytes + 1);
    if (!copy) {
        return ENOMEM;
    }
    error = umf_os_read_at(fd, copy, bytes, 0);
    if (error) {
        umf_meta_free(copy, bytes + 1);
        return error;
    }
    *text = copy;
    *size = bytes;
    return 0;
}

void umf_config_apply_file(const char *path) {
    int fd;
    char *text = NULL;
    size_t size = 0;
    int error = umf_os_open(path, O_RDONLY | O_NONBLOCK, 0, &fd);
    if (error == 0) {
        error = config_read(fd, &text, &size);
        umf_os_close(fd);
    }
    umf_text_word_t shown = umf_text_show(path, strlen(path));
    if (error == EFBIG) {
        UMF_LOG_IGNORED(
            "configuration file %s is ignored: a regular file of 1 byte to 1 MiB is needed",
            shown.text);
    } else if (error) {
        umf_log_always(error, __func__, "configuration file %s is ignored", shown.text);
    } else {
        config_apply(shown.text, text, config_strip(text, size));
        umf_meta_free(text, size + 1);
    }
}

/* A program with raised privileges must neither write to files that its caller names (the log) nor
 * show their content. */
void umf_config_load(void) {
    const char *text = secure_getenv("UMF_CONF");
    if (text && *text) {
        umf_config_apply("UMF_CONF", text, strlen(text));
    }
    const char *path = secure_getenv("UMF_CONF_FILE");
    if (path && *path) {
        umf_config_apply_file(path);
    }
}
