#include "base/plain_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "system/common.h"

/* The bytes of the character that begins with `first`; 0: none does. */
static size_t text_width(unsigned char first) {
    return first < 0x80   ? 1
           : first < 0xc2 ? 0
           : first < 0xe0 ? 2
           : first < 0xf0 ? 3
           : first < 0xf5 ? 4
                          : 0;
}

/* The character of `width` bytes. UINT32_MAX: it is no UTF-8, or longer than it has to be. */
static uint32_t text_decode(const unsigned char *at, size_t width) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = width == 1 ? at[0] : at[0] & (0x7fu >> width);
    for (size_t i = 1; i < width; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return UINT32_MAX;
        }
        code = code << 6 | (at[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    return code < least[width] || code > 0x10ffff || is_surrogate ? UINT32_MAX : code;
}

static bool text_is_plain(uint32_t code) {
    static const struct {
        uint32_t first, last;
    } unwanted[] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},
        {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069},
    };
    for (size_t i = 0; i < UMF_COUNT_OF(unwanted); i++) {
        if (code >= unwanted[i].first && code <= unwanted[i].last) {
            return false;
        }
    }
    return code != UINT32_MAX;
}

void umf_plain_text(char *text, size_t length) {
    for (size_t at = 0; at < length;) {
        size_t width = text_width((unsigned char)text[at]);
        if (width == 0 || width > length - at ||
            text_decode((const unsigned char *)text + at, width) == UINT32_MAX) {
            width = 1;
            text[at] = '?';
        } else if (!text_is_plain(text_decode((const unsigned char *)text + at, width))) {
            memset(text + at, '?', width);
        }
        at += width;
    }
}
