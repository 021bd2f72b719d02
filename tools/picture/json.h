/* JSON into a sink, fit to stand in a script element of an HTML file. */
#ifndef UMF_PICTURE_JSON_H
#define UMF_PICTURE_JSON_H

#include "picture.h"

typedef struct picture_out_t {
    umf_picture_sink_t sink;
    void *arg;
    size_t used;
    bool has_failed; /* nothing is written any more */
    bool wants_comma;
    char buffer[1 << 16];
} picture_out_t;

void picture_out_init(picture_out_t *out, umf_picture_sink_t sink, void *arg);
void picture_flush(picture_out_t *out);

/* Bytes as they are. */
void picture_raw(picture_out_t *out, const char *bytes, size_t size);

/* `bracket` is one of [{ and ]}. */
void picture_open(picture_out_t *out, char bracket);
void picture_close(picture_out_t *out, char bracket);
void picture_key(picture_out_t *out, const char *name);
void picture_number(picture_out_t *out, int64_t number);
void picture_null(picture_out_t *out);
void picture_hex(picture_out_t *out, uint64_t number);

/* Bytes in it that are no UTF-8 are replaced. */
void picture_text(picture_out_t *out, const char *text);

/* A key with its number, limited to the exact numbers of JavaScript. */
void picture_member(picture_out_t *out, const char *name, uint64_t number);

/* Differences of values, as picture.h describes. */
void picture_series(picture_out_t *out, const uint64_t *values, size_t count);

#endif
