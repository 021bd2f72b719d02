#include "json.h"

#include <stdbool.h>

size_t umf_reader_utf8_length(const char *text) {
    static const unsigned char least_second[] = {[0xe0 - 0xc0] = 0xa0, [0xf0 - 0xc0] = 0x90};
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        return 1;
    }
    size_t length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] < 0xc2 || s[0] > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    size_t row = (size_t)(s[0] - 0xc0);
    bool overlong = row < sizeof(least_second) && s[1] < least_second[row];
    bool beyond = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return overlong || beyond ? 0 : length;
}

void umf_reader_json_string(FILE *out, const char *text, char end) {
    putc('"', out);
    while (*text && *text != end) {
        size_t length = umf_reader_utf8_length(text);
        unsigned char c = (unsigned char)*text;
        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < 0x20 || c == 0x7f) {
            fprintf(out, "\\u%04x", c);
        } else {
            fwrite(text, 1, length, out);
        }
        text += length;
    }
    putc('"', out);
}
