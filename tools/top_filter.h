/* Which rows of the live screen are shown. */
#ifndef UMFCTL_TOP_FILTER_H
#define UMFCTL_TOP_FILTER_H

#include "top.h"

typedef struct top_filter_t {
    char text[48];      /* a part of a label or of the name of its process; "": all rows */
    bool is_typed;      /* keys go into the text */
    bool is_pools_only; /* providers are hidden */
} top_filter_t;

/* Begins to type. */
void top_filter_begin(top_filter_t *filter);
/* A key while it is typed: Enter ends it, Escape forgets the text. */
void top_filter_key(top_filter_t *filter, int key, bool is_erase);

bool top_filter_shows(const top_filter_t *filter, const top_t *top, size_t row);
/* The row that is `by` shown rows away, or the last one on the way; the first one if `row` itself
 * is not shown. */
size_t top_filter_move(const top_filter_t *filter, const top_t *top, size_t row, int by);
/* "12 of 600", and the filter. */
void top_filter_text(const top_filter_t *filter, const top_t *top, size_t row, char *text,
                     size_t size);

#endif /* UMFCTL_TOP_FILTER_H */
