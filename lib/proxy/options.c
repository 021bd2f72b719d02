#include "proxy/options.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SEPARATORS ";, \t\n\v\f\r\"'"
#define THRESHOLD "size.threshold="

static bool next_part(const char **text, umf_proxy_part_t *part) {
    part->start = *text + strspn(*text, SEPARATORS);
    part->length = strcspn(part->start, SEPARATORS);
    *text = part->start + part->length;
    return part->length > 0;
}

static bool part_is(umf_proxy_part_t part, const char *word) {
    return part.length == strlen(word) && memcmp(part.start, word, part.length) == 0;
}

static bool part_begins(umf_proxy_part_t part, const char *word) {
    return part.length >= strlen(word) && memcmp(part.start, word, strlen(word)) == 0;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Reads a number up to the first other character. A number above the largest size becomes the
 * largest size. */
static bool read_number(umf_proxy_part_t part, size_t *number) {
    size_t value = 0;
    for (size_t i = 0; i < part.length && is_digit(part.start[i]); i++) {
        size_t digit = (size_t)(part.start[i] - '0');
        value = value > (SIZE_MAX - digit) / 10 ? SIZE_MAX : value * 10 + digit;
    }
    *number = value;
    return part.length > 0 && is_digit(part.start[0]);
}

static void take_pages(umf_proxy_options_t *options, umf_proxy_pages_t pages) {
    if (options->pages == UMF_PROXY_PAGES_PRIVATE) {
        options->pages = pages;
    }
}

static void take_threshold(umf_proxy_options_t *options, umf_proxy_part_t part, bool *is_known) {
    size_t number;
    part.start += strlen(THRESHOLD);
    part.length -= strlen(THRESHOLD);
    if (*is_known) {
        return;
    }
    *is_known = true;
    if (read_number(part, &number)) {
        options->threshold = number;
    } else {
        options->no_number = part;
    }
}

static void note_unknown(umf_proxy_options_t *options, umf_proxy_part_t part) {
    if (options->unknown_count++ == 0) {
        options->unknown = part;
    }
}

void umf_proxy_options_parse(const char *text, umf_proxy_options_t *options) {
    umf_proxy_part_t part;
    bool is_threshold_known = false;
    *options = (umf_proxy_options_t){.pages = UMF_PROXY_PAGES_PRIVATE};
    while (text && next_part(&text, &part)) {
        if (part_is(part, "page.disposition=shared-fd")) {
            take_pages(options, UMF_PROXY_PAGES_SHARED_FD);
        } else if (part_is(part, "page.disposition=shared-shm")) {
            take_pages(options, UMF_PROXY_PAGES_SHARED_SHM);
        } else if (part_begins(part, THRESHOLD)) {
            take_threshold(options, part, &is_threshold_known);
        } else {
            note_unknown(options, part);
        }
    }
}

const char *umf_proxy_part_show(umf_proxy_part_t part, char *buffer, size_t size) {
    size_t length = part.length < size - 1 ? part.length : size - 1;
    for (size_t i = 0; i < length; i++) {
        char c = part.start[i];
        buffer[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    buffer[length] = '\0';
    return buffer;
}
