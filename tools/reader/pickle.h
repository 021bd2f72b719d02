/* Writes Python's pickle format, protocol 2, as far as it is needed here. */
#ifndef UMF_READER_PICKLE_H
#define UMF_READER_PICKLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct pickle_t {
    FILE *out;
} pickle_t;

void pickle_begin(pickle_t *pickle, FILE *out);
void pickle_end(pickle_t *pickle);

void pickle_int(pickle_t *pickle, uint64_t number);
void pickle_bool(pickle_t *pickle, bool truth);
/* Bytes that are no UTF-8 become question marks. */
void pickle_text(pickle_t *pickle, const char *text);

/* The value written last is kept under a number, and given again. */
void pickle_keep(pickle_t *pickle, uint32_t number);
void pickle_give(pickle_t *pickle, uint32_t number);

/* A dict or list stands on its own; its items come between open and close. */
void pickle_dict(pickle_t *pickle);
void pickle_list(pickle_t *pickle);
void pickle_open(pickle_t *pickle);
void pickle_close_dict(pickle_t *pickle);
void pickle_close_list(pickle_t *pickle);

#endif
