#include "proxy/report.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <umf/experimental/ctl.h>

#define LINE_SIZE 512
#define LEVEL_WARN 2

typedef struct line_t {
    char text[LINE_SIZE];
    size_t length; /* one character stays free for the end of the line */
} line_t;

static void append_list(line_t *line, const char *format, va_list args) {
    size_t room = sizeof(line->text) - line->length - 1;
    int length = vsnprintf(line->text + line->length, room, format, args);
    if (length > 0) {
        line->length += (size_t)length < room ? (size_t)length : room - 1;
    }
}

__attribute__((format(printf, 2, 3))) static void append(line_t *line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    append_list(line, format, args);
    va_end(args);
}

static void send(line_t *line, int fd) {
    line->text[line->length++] = '\n';
    ssize_t written = write(fd, line->text, line->length);
    (void)written;
}

static bool setting_is_on(const char *path) {
    bool value = false;
    return umfCtlGet(path, &value, sizeof(value)) == UMF_RESULT_SUCCESS && value;
}

static void append_time(line_t *line) {
    time_t now = time(NULL);
    struct tm local;
    char text[32];
    if (localtime_r(&now, &local) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &local)) {
        append(line, "%s ", text);
    }
}

/* The file descriptor of the log; -1: there is none. The caller must close it if it is above 2. */
static int open_log(void) {
    char output[256];
    if (umfCtlGet("umf.logger.output", output, sizeof(output)) != UMF_RESULT_SUCCESS ||
        strcmp(output, "disabled") == 0) {
        return -1;
    }
    if (strcmp(output, "stdout") == 0) {
        return STDOUT_FILENO;
    }
    return strcmp(output, "stderr") == 0 ? STDERR_FILENO
                                         : open(output, O_WRONLY | O_APPEND | O_CLOEXEC);
}

bool umf_proxy_warn(const char *format, ...) {
    line_t line = {.length = 0};
    va_list args;
    int level = 0;
    if (umfCtlGet("umf.logger.level", &level, sizeof(level)) != UMF_RESULT_SUCCESS ||
        level > LEVEL_WARN) {
        return false;
    }
    int fd = open_log();
    if (fd < 0) {
        return false;
    }
    append(&line, "[");
    if (setting_is_on("umf.logger.timestamp")) {
        append_time(&line);
    }
    if (setting_is_on("umf.logger.pid")) {
        append(&line, "PID:%-6d TID:%-6d ", (int)getpid(), (int)gettid());
    }
    append(&line, "WARN  UMF] umf_proxy: ");
    va_start(args, format);
    append_list(&line, format, args);
    va_end(args);
    send(&line, fd);
    if (fd > STDERR_FILENO) {
        close(fd);
    }
    return true;
}

void umf_proxy_complain(const char *format, ...) {
    line_t line = {.length = 0};
    va_list args;
    append(&line, "umf_proxy: ");
    va_start(args, format);
    append_list(&line, format, args);
    va_end(args);
    send(&line, STDERR_FILENO);
}
