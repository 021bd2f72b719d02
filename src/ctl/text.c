#include "ctl/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/message_buffer.h"

static __thread const umf_text_scope_t *text_scope; /* NULL: the thread reads no text */

static bool text_holds(const char *at) {
    uintptr_t begin = text_scope ? (uintptr_t)text_scope->begin : 0;
    return begin && (uintptr_t)at >= begin && (uintptr_t)at - begin <= text_scope->length;
}

bool umf_text_is_near(const char *word, const char *other) {
    size_t length = strlen(word), other_length = strlen(other), head = 0, tail = 0;
    size_t least = length < other_length ? length : other_length;
    while (head < least && word[head] == other[head]) {
        head++;
    }
    while (tail < least - head && word[length - 1 - tail] == other[other_length - 1 - tail]) {
        tail++;
    }
    return least > 2 && length - head - tail <= 2 && other_length - head - tail <= 2;
}

umf_text_word_t umf_text_show(const char *word, size_t length) {
    umf_text_word_t shown;
    size_t n = length < UMF_TEXT_SHOWN ? length : UMF_TEXT_SHOWN;
    for (size_t i = 0; i < n; i++) {
        shown.text[i] = word[i] >= ' ' && word[i] <= '~' ? word[i] : '?';
    }
    memcpy(shown.text + n, n < length ? "..." : "", n < length ? 4 : 1);
    return shown;
}

void umf_text_append(char *buffer, size_t size, const char *format, ...) {
    size_t used = size ? strnlen(buffer, size) : 0;
    if (used + 1 >= size) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(buffer + used, size - used, format, args);
    va_end(args);
}

void umf_text_begin(umf_text_scope_t *scope, const char *text, size_t length, const char *subject) {
    bool is_part = text_holds(text);
    *scope = (umf_text_scope_t){
        .begin = is_part ? text_scope->begin : text,
        .length = is_part ? text_scope->length : length,
        .subject = subject,
        .outer = text_scope,
    };
    text_scope = scope;
}

void umf_text_end(const umf_text_scope_t *scope) {
    text_scope = scope->outer;
}

const char *umf_text_subject(void) {
    return text_scope ? text_scope->subject : "";
}

umf_result_t umf_text_fail(umf_result_t result, const char *at, const char *format, ...) {
    char *line = umf_message_buffer(UMF_MESSAGE_BUFFER_TEXT);
    if (!line) {
        UMF_LOG_ERROR("creation from text failed, and there is no memory to say why");
        return result;
    }
    line[0] = '\0';
    if (text_holds(at)) {
        umf_text_append(line, UMF_MESSAGE_BUFFER_SIZE,
                        "at %zu: ", (size_t)(at - text_scope->begin) + 1);
    }
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, UMF_MESSAGE_BUFFER_SIZE - used, format, args);
    va_end(args);
    UMF_LOG_ERROR("creation from text failed: %s", line);
    return result;
}

void umf_text_add_cause(const char *cause) {
    char *line = umf_message_buffer(UMF_MESSAGE_BUFFER_TEXT);
    if (line) {
        umf_text_append(line, UMF_MESSAGE_BUFFER_SIZE, ": %s", cause);
        umf_last_error_set("creation from text failed: %s", line);
    }
}

const char *umf_text_error(void) {
    const char *line = umf_message_buffer(UMF_MESSAGE_BUFFER_TEXT);
    return line ? line : "";
}

void umf_text_forget(void) {
    char *line = umf_message_buffer(UMF_MESSAGE_BUFFER_TEXT);
    if (line) {
        line[0] = '\0';
    }
}
