#include "top_filter.h"

#include <stdio.h>
#include <string.h>

void top_filter_begin(top_filter_t *filter) {
    filter->text[0] = '\0';
    filter->is_typed = true;
}

void top_filter_key(top_filter_t *filter, int key, bool is_erase) {
    size_t length = strlen(filter->text);
    if (is_erase) {
        filter->text[length ? length - 1 : 0] = '\0';
    } else if (key == '\n' || key == '\r' || key == 27) {
        filter->is_typed = false;
        filter->text[key == 27 ? 0 : length] = '\0';
    } else if (key >= ' ' && key < 127 && length + 1 < sizeof(filter->text)) {
        filter->text[length] = (char)key;
        filter->text[length + 1] = '\0';
    }
}

bool top_filter_shows(const top_filter_t *filter, const top_t *top, size_t row) {
    const top_row_t *of = &top->rows[row];
    char label[64];
    if (filter->is_pools_only && of->object.kind != UMF_RECORD_OBJECT_POOL) {
        return false;
    }
    return !filter->text[0] || strcasestr(top_label(top, of, label, sizeof(label)), filter->text) ||
           strcasestr(top->with[of->process].name, filter->text);
}

static size_t first_shown(const top_filter_t *filter, const top_t *top) {
    size_t row = 0;
    while (row < top->count && !top_filter_shows(filter, top, row)) {
        row++;
    }
    return row < top->count ? row : 0;
}

size_t top_filter_move(const top_filter_t *filter, const top_t *top, size_t row, int by) {
    size_t at = row, step = by < 0 ? SIZE_MAX : 1; /* SIZE_MAX + 1 is 0 */
    if (row >= top->count || !top_filter_shows(filter, top, row)) {
        return first_shown(filter, top);
    }
    for (int left = by < 0 ? -by : by; left > 0 && at + step < top->count;) {
        at += step;
        if (top_filter_shows(filter, top, at)) {
            row = at;
            left--;
        }
    }
    return row;
}

void top_filter_text(const top_filter_t *filter, const top_t *top, size_t row, char *text,
                     size_t size) {
    size_t count = 0, position = 0;
    for (size_t i = 0; i < top->count; i++) {
        count += top_filter_shows(filter, top, i);
        position = i == row ? count : position;
    }
    snprintf(text, size, "%zu of %zu%s%s%s%s", position, count,
             filter->is_pools_only ? " pools" : "",
             filter->text[0] || filter->is_typed ? "   /" : "", filter->text,
             filter->is_typed ? "_" : "");
}
