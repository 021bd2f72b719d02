/*
 * The options in UMF_PROXY.
 *
 * Parts are separated by ';'. Commas, white space and quotation marks around them are ignored. If
 * there are several parts of a kind, the first one counts.
 */
#ifndef UMF_LIB_PROXY_OPTIONS_H
#define UMF_LIB_PROXY_OPTIONS_H

#include <stddef.h>

typedef enum umf_proxy_pages_t {
    UMF_PROXY_PAGES_PRIVATE,
    UMF_PROXY_PAGES_SHARED_FD,  /* an anonymous file */
    UMF_PROXY_PAGES_SHARED_SHM, /* a named object */
} umf_proxy_pages_t;

/* A part of the parsed text. `start` is NULL if there is none. */
typedef struct umf_proxy_part_t {
    const char *start;
    size_t length;
} umf_proxy_part_t;

typedef struct umf_proxy_options_t {
    umf_proxy_pages_t pages;
    size_t threshold;           /* smaller requests go to the C library; 0: none does */
    umf_proxy_part_t no_number; /* a threshold that is not a number */
    umf_proxy_part_t unknown;   /* the first part that is not an option */
    size_t unknown_count;
} umf_proxy_options_t;

/* `text` may be NULL. Does not allocate; any text is safe. */
void umf_proxy_options_parse(const char *text, umf_proxy_options_t *options);

/* Copies a part for a message, cut to the size of `buffer`, which must not be 0. Characters other
 * than printable ASCII become '?'. Returns `buffer`. */
const char *umf_proxy_part_show(umf_proxy_part_t part, char *buffer, size_t size);

#endif
