#include "plain.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "reader/json.h"

/* C1 controls, marks of direction, invisible characters, separators of lines. */
static bool is_control(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c ||
           (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

size_t plain_next(const char *text, char shown[4], size_t *length) {
    uint32_t code;
    size_t size = umf_reader_character(text, &code);
    *length = size ? size : 1;
    bool is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (size > 0 && !is_control(code) && (size == 1 || is_utf8)) {
        memcpy(shown, text, size);
        return size;
    }
    shown[0] = size == 1 && (*text == '\n' || *text == '\t') ? ' ' : '?';
    return 1;
}

const char *plain_copy(char *to, size_t size, const char *text) {
    char shown[4];
    size_t used = 0, length;
    for (; *text; text += length) {
        size_t count = plain_next(text, shown, &length);
        if (used + count >= size) {
            break;
        }
        memcpy(to + used, shown, count);
        used += count;
    }
    to[used] = '\0';
    return to;
}

int print_message(const char *format, ...) {
    char text[9000], shown[9000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "umfctl: %s\n", plain_copy(shown, sizeof(shown), text));
    return 1;
}
