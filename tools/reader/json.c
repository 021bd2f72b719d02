#include "json.h"

#include <stdbool.h>

size_t umf_reader_character(const char *text, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    size_t size = s[0] < 0x80             ? 1
                  : (s[0] & 0xe0) == 0xc0 ? 2
                  : (s[0] & 0xf0) == 0xe0 ? 3
                  : (s[0] & 0xf8) == 0xf0 ? 4
                                          : 0;
    *code = size > 1 ? s[0] & (0x7fu >> size) : s[0];
    for (size_t i = 1; i < size; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    bool is_valid = *code >= least[size] && *code <= 0x10ffff && *code >> 11 != 0x1b;
    return is_valid ? size : 0;
}

/* What could end the string or an element of HTML, start a comment or a line, or turn the direction
 * of text. */
static bool is_special(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == '"' || code == '\\' ||
           code == '<' || code == '>' || code == '&' || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

const char *umf_reader_json_piece(const char **text, char escaped[8], size_t *size) {
    const char *piece = *text;
    uint32_t code;
    *size = umf_reader_character(piece, &code);
    *text += *size ? *size : 1;
    if (*size && !is_special(code)) {
        return piece;
    }
    *size = (size_t)snprintf(escaped, 8, "\\u%04x", *size ? code : 0xfffdu);
    return escaped;
}

void umf_reader_json_string(FILE *out, const char *text, char end) {
    char escaped[8];
    putc('"', out);
    while (*text && *text != end) {
        size_t size;
        const char *piece = umf_reader_json_piece(&text, escaped, &size);
        fwrite(piece, 1, size, out);
    }
    putc('"', out);
}
