/* A part of a recording: a time, and the pools of a name. */
#include <stdlib.h>
#include <string.h>

#include "own.h"

#define LABEL 96

static bool has_name(const umf_reader_t *reader, uint32_t number, const char *name) {
    char label[LABEL];
    const umf_record_object_t *object = umf_reader_object(reader, number);
    return strncmp(object->name, name, sizeof(object->name)) == 0 ||
           strcmp(umf_reader_label(reader, number, label, sizeof(label)), name) == 0;
}

/* False: no pool has the name. */
static bool leave_out(umf_reader_t *reader, const char *pool) {
    bool is_found = false;
    for (uint32_t i = 1; i < reader->info.object_count; i++) {
        if (umf_reader_object(reader, i)->kind == UMF_RECORD_OBJECT_POOL) {
            reader->left_out[i] = !has_name(reader, i, pool);
            is_found |= !reader->left_out[i];
        }
    }
    return is_found;
}

bool umf_reader_select(umf_reader_t *reader, const umf_reader_part_t *part,
                       umf_reader_error_t *error) {
    umf_reader_info_t *info = &reader->info;
    bool has_times = part->from != INT64_MIN || part->to != INT64_MAX;
    if (has_times && info->kind == UMF_RECORD_FILE_SNAPSHOT) {
        return reader_fail(error, "%s: a snapshot is of one moment: it has no part by time",
                           reader->name);
    } else if (part->from > part->to) {
        return reader_fail(error, "%s: the part that is selected ends before it begins",
                           reader->name);
    }
    if (part->pool) {
        reader->left_out = reader_memory(reader, info->object_count, sizeof(bool), error);
        if (!reader->left_out) {
            return false;
        } else if (!leave_out(reader, part->pool)) {
            return reader_fail(error, "%s: no pool has the name '%s'", reader->name, part->pool);
        }
    }
    reader->info.from_ns = part->from;
    reader->info.to_ns = part->to;
    info->first_ns = info->first_ns > part->from ? info->first_ns : part->from;
    info->last_ns = info->last_ns < part->to ? info->last_ns : part->to;
    info->last_ns = info->last_ns > info->first_ns ? info->last_ns : info->first_ns;
    return true;
}

bool umf_reader_has_times(const umf_reader_t *reader) {
    return reader->info.from_ns != INT64_MIN || reader->info.to_ns != INT64_MAX;
}

bool umf_reader_is_left_out(const umf_reader_t *reader, uint32_t number) {
    return reader->left_out && number < reader->info.object_count && reader->left_out[number];
}

bool umf_reader_find_mark(const umf_reader_t *reader, const char *text, int64_t *ns,
                          umf_reader_error_t *error) {
    umf_reader_event_t event;
    umf_reader_cursor_t *cursor = umf_reader_iterate(reader, error);
    bool is_found = false;
    while (cursor && !is_found && umf_reader_next(cursor, &event)) {
        is_found = event.kind == UMF_RECORD_MARK &&
                   strcmp(umf_reader_text(reader, event.address), text) == 0;
        *ns = event.ns;
    }
    umf_reader_cursor_free(cursor);
    return is_found ||
           (cursor &&
            reader_fail(error, "%s: there is no mark '%s'; 'umfctl trace' lists the marks",
                        reader->name, text));
}
