#include "picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "parts.h"

static bool prepare(picture_t *picture) {
    const umf_reader_info_t *info = picture->info;
    /* The time of a full recording begins with the first of its events. Times of a damaged file may
     * be anything within 62 bits and a sign, so that differences have room. */
    const int64_t least = -((int64_t)1 << 61);
    picture->origin = info->dropped > 0 || info->first_ns < 0 ? info->first_ns : 0;
    picture->origin = picture->origin < least ? least : picture->origin;
    int64_t length = info->last_ns - picture->origin;
    picture->length = length > 1 ? (uint64_t)length : 1;
    picture->objects = picture_take(picture, info->object_count + 1u, sizeof(picture_object_t));
    picture->stack_of = picture_take(picture, info->stack_count + 1u, sizeof(uint32_t));
    picture->stacks = picture_take(picture, info->stack_count + 1u, sizeof(uint32_t));
    picture_moments_prepare(picture);
    return !picture->has_failed;
}

/* --- the second way through the events -------------------------------------------------------- */

static void before(picture_t *picture, const umf_reader_event_t *event) {
    picture_timeline_before(picture, event->ns - picture->origin);
    picture_maps_before(picture, event->ns - picture->origin);
}

static void after(picture_t *picture, umf_reader_replay_t *replay,
                  const umf_reader_event_t *event) {
    picture_timeline_after(picture);
    picture_pages_event(picture, replay, event);
    picture_maps_event(picture, event);
    picture_moments_event(picture, replay, event);
    if (event->ns == picture->total.peak_ns && !picture->has_peak &&
        picture->live == picture->total.use.peak_bytes) {
        picture->has_peak = true;
        picture_moment(picture, event->ns - picture->origin);
    }
}

static void end(picture_t *picture, umf_reader_replay_t *replay) {
    picture_timeline_end(picture);
    if (picture->info->kind == UMF_RECORD_FILE_RECORDING) {
        picture_maps_before(picture, INT64_MAX);
    }
    picture_allocs_write(picture, replay);
}

static bool fill(picture_t *picture) {
    const picture_visitor_t visitor = {
        .before = before, .changed = picture_maps_change, .after = after, .end = end};
    picture_timeline_prepare(picture);
    if (picture->info->kind == UMF_RECORD_FILE_SNAPSHOT) {
        picture_maps_snapshot(picture);
    } else {
        picture_maps_prepare(picture);
    }
    return !picture->has_failed && picture_visit(picture, &visitor);
}

/* --- the file --------------------------------------------------------------------------------- */

static void write_notes(picture_t *picture) {
    const char *note;
    picture_key(picture->out, "notes");
    picture_open(picture->out, '[');
    for (size_t i = 0; (note = umf_reader_note(picture->reader, i)); i++) {
        picture_text(picture->out, note);
    }
    picture_close(picture->out, ']');
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static uint64_t live_count(const picture_t *picture) {
    uint64_t count = 0;
    for (uint32_t i = 1; i < picture->info->object_count; i++) {
        const umf_record_object_t *object = umf_reader_object(picture->reader, i);
        bool counts =
            object->kind == UMF_RECORD_OBJECT_POOL && object->live_count != UMF_RECORD_UNKNOWN;
        count += counts ? object->live_count : 0;
    }
    return count;
}

static void write_file(picture_t *picture) {
    const umf_reader_info_t *info = picture->info;
    picture_out_t *out = picture->out;
    bool is_snapshot = info->kind == UMF_RECORD_FILE_SNAPSHOT;
    picture_key(out, "file");
    picture_open(out, '{');
    picture_key(out, "name");
    picture_text(out, base_name(info->name));
    picture_key(out, "kind");
    picture_text(out, is_snapshot ? "snapshot" : "recording");
    picture_member(out, "pid", info->pid);
    picture_member(out, "started_ms", info->realtime / 1000000);
    picture_member(out, "duration", picture->length);
    picture_member(out, "events", info->event_count);
    picture_member(out, "dropped", info->dropped);
    picture_member(out, "live_dropped", info->live_dropped);
    picture_member(out, "unknown_frees", picture->total.unknown_frees);
    picture_member(out, "rate", info->rate);
    picture_member(out, "min_size", info->min_size);
    picture_member(out, "max_size", info->max_size == UINT64_MAX ? 0 : info->max_size);
    picture_member(out, "ended", (info->flags & UMF_RECORD_HAS_ENDED) != 0);
    picture_member(out, "live_count", live_count(picture));
    picture_member(out, "peak", picture->total.use.peak_bytes);
    picture_key(out, "peak_t");
    picture_number(out, picture->total.peak_ns - picture->origin);
    write_notes(picture);
    picture_close(out, '}');
}

static void put(picture_out_t *out, const char *text) {
    picture_raw(out, text, strlen(text));
}

static void put_file(picture_out_t *out, const picture_file_t *file) {
    picture_raw(out, file->bytes, file->size);
}

static void write_head(picture_out_t *out) {
    put(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
             "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
             "<meta name=\"viewport\" content=\"width=device-width\">\n"
             "<title>memory</title>\n<style>\n");
    put_file(out, &picture_style);
    put(out, "</style>\n</head>\n<body>\n");
    put_file(out, &picture_page);
    put(out, "<script type=\"application/json\" id=\"data\">");
}

static void write_tail(picture_out_t *out) {
    put(out, "</script>\n<script>\n");
    for (size_t i = 0; i < picture_script_count; i++) {
        put_file(out, &picture_scripts[i]);
    }
    put(out, "</script>\n</body>\n</html>\n");
}

/* `allocs` is written while the live allocations at the end are known, the names when all have been
 * used. */
static bool write_data(picture_t *picture) {
    picture_open(picture->out, '{');
    if (!picture_measure(picture) || !fill(picture)) {
        return false;
    }
    write_file(picture);
    picture_timeline_write(picture);
    picture_moments_write(picture);
    picture_maps_write(picture);
    picture_names_write(picture);
    picture_close(picture->out, '}');
    return true;
}

static bool write_all(picture_t *picture) {
    if (!prepare(picture)) {
        return false;
    }
    write_head(picture->out);
    if (!write_data(picture)) {
        return false;
    }
    write_tail(picture->out);
    picture_flush(picture->out);
    return !picture->has_failed && !picture->out->has_failed;
}

bool umf_picture_write(umf_reader_t *reader, umf_picture_sink_t sink, void *arg,
                       umf_reader_error_t *error) {
    picture_t *picture = calloc(1, sizeof(*picture));
    picture_out_t *out = malloc(sizeof(*out));
    bool is_good = false;
    snprintf(error->text, sizeof(error->text), "no memory for the picture");
    if (picture && out) {
        picture_out_init(out, sink, arg);
        picture->reader = reader;
        picture->info = umf_reader_info(reader);
        picture->error = error;
        picture->out = out;
        is_good = write_all(picture);
        picture_free_all(picture);
    }
    if (out && out->has_failed) {
        snprintf(error->text, sizeof(error->text), "the picture could not be written");
    }
    free(out);
    free(picture);
    return is_good;
}
