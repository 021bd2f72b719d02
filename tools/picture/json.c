#include "json.h"

#include <stdio.h>
#include <string.h>

#include "../reader/json.h"

void picture_out_init(picture_out_t *out, umf_picture_sink_t sink, void *arg) {
    out->sink = sink;
    out->arg = arg;
    out->used = 0;
    out->has_failed = out->wants_comma = false;
}

void picture_flush(picture_out_t *out) {
    if (!out->has_failed && out->used > 0) {
        out->has_failed = !out->sink(out->arg, out->buffer, out->used);
    }
    out->used = 0;
}

void picture_raw(picture_out_t *out, const char *bytes, size_t size) {
    while (size > 0) {
        if (out->used == sizeof(out->buffer)) {
            picture_flush(out);
        }
        size_t room = sizeof(out->buffer) - out->used;
        size_t part = size < room ? size : room;
        memcpy(out->buffer + out->used, bytes, part);
        out->used += part;
        bytes += part;
        size -= part;
    }
}

static void put(picture_out_t *out, char byte) {
    if (out->used == sizeof(out->buffer)) {
        picture_flush(out);
    }
    out->buffer[out->used++] = byte;
}

static void separate(picture_out_t *out) {
    if (out->wants_comma) {
        put(out, ',');
    }
    out->wants_comma = true;
}

void picture_open(picture_out_t *out, char bracket) {
    separate(out);
    put(out, bracket);
    out->wants_comma = false;
}

void picture_close(picture_out_t *out, char bracket) {
    put(out, bracket);
    out->wants_comma = true;
}

void picture_key(picture_out_t *out, const char *name) {
    picture_text(out, name);
    put(out, ':');
    out->wants_comma = false;
}

/* Not by printf: a picture has a million of them. */
void picture_number(picture_out_t *out, int64_t number) {
    char digits[24];
    size_t at = sizeof(digits);
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0) {
        digits[--at] = '-';
    }
    separate(out);
    picture_raw(out, digits + at, sizeof(digits) - at);
}

void picture_null(picture_out_t *out) {
    separate(out);
    picture_raw(out, "null", 4);
}

void picture_hex(picture_out_t *out, uint64_t number) {
    char text[24];
    separate(out);
    picture_raw(out, text,
                (size_t)snprintf(text, sizeof(text), "\"0x%llx\"", (unsigned long long)number));
}

void picture_text(picture_out_t *out, const char *text) {
    char escaped[8];
    separate(out);
    put(out, '"');
    while (*text) {
        size_t size;
        const char *piece = umf_reader_json_piece(&text, escaped, &size);
        picture_raw(out, piece, size);
    }
    put(out, '"');
}

void picture_member(picture_out_t *out, const char *name, uint64_t number) {
    const uint64_t most = (uint64_t)1 << 53;
    picture_key(out, name);
    picture_number(out, (int64_t)(number < most ? number : most));
}

static void zeros(picture_out_t *out, size_t count) {
    if (count > 2) {
        picture_open(out, '[');
        picture_number(out, (int64_t)count);
        picture_close(out, ']');
        return;
    }
    for (; count > 0; count--) {
        picture_number(out, 0);
    }
}

void picture_series(picture_out_t *out, const uint64_t *values, size_t count) {
    uint64_t before = 0;
    size_t same = 0;
    picture_open(out, '[');
    for (size_t i = 0; i < count; i++) {
        if (values[i] == before) {
            same++;
            continue;
        }
        zeros(out, same);
        picture_number(out, (int64_t)(values[i] - before));
        before = values[i];
        same = 0;
    }
    picture_close(out, ']');
}
