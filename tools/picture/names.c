/* Names for the other parts: objects, stacks, and the allocations that are listed. */
#include <stdlib.h>
#include <string.h>

#include "parts.h"

int64_t picture_stack(picture_t *picture, uint32_t stack) {
    if (stack == 0) {
        return -1;
    }
    if (picture->stack_of[stack] == 0) {
        picture->stacks[picture->stack_count++] = stack;
        picture->stack_of[stack] = picture->stack_count;
    }
    return (int64_t)picture->stack_of[stack] - 1;
}

int64_t picture_name(picture_t *picture, uint32_t object) {
    if (object == 0 || umf_reader_object(picture->reader, object)->kind == 0) {
        return -1;
    }
    picture->objects[object].is_used = true;
    return object;
}

static void write_figure(picture_out_t *out, const char *name, uint64_t figure) {
    if (figure == UMF_RECORD_UNKNOWN) {
        picture_key(out, name);
        picture_null(out);
    } else {
        picture_member(out, name, figure);
    }
}

static void write_object(picture_t *picture, uint32_t number) {
    const umf_record_object_t *object = umf_reader_object(picture->reader, number);
    picture_out_t *out = picture->out;
    char label[128];
    picture_open(out, '{');
    picture_member(out, "id", number);
    picture_member(out, "kind", object->kind);
    picture_member(out, "flags", object->flags);
    picture_key(out, "name");
    picture_text(out, umf_reader_label(picture->reader, number, label, sizeof(label)));
    write_figure(out, "live", object->live);
    write_figure(out, "held", object->held);
    write_figure(out, "away", object->away);
    picture_close(out, '}');
}

static void write_objects(picture_t *picture) {
    picture_key(picture->out, "objects");
    picture_open(picture->out, '[');
    for (uint32_t i = 1; i < picture->info->object_count; i++) {
        if (picture->objects[i].is_used) {
            write_object(picture, i);
        }
    }
    picture_close(picture->out, ']');
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void write_frame(picture_t *picture, const umf_reader_frame_t *frame) {
    char text[512];
    picture_open(picture->out, '[');
    picture_text(picture->out, frame->function ? frame->function
                                               : umf_reader_frame_text(frame, text, sizeof(text)));
    picture_text(picture->out, frame->module[0] ? base_name(frame->module) : "no module");
    if (*umf_reader_line_text(frame, text, sizeof(text))) {
        picture_text(picture->out, text);
    }
    picture_close(picture->out, ']');
}

/* Of an address all functions, the innermost first. Returns how many. */
static size_t write_frames(picture_t *picture, uint64_t address) {
    const umf_reader_frame_t *frames;
    size_t count = umf_reader_resolve_all(picture->reader, address, &frames);
    for (size_t i = 0; i < count; i++) {
        write_frame(picture, &frames[i]);
    }
    return count;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The addresses of all frames, each once, by their value. */
static uint64_t *addresses(picture_t *picture, size_t *count) {
    size_t room = (size_t)picture->stack_count * UMF_RECORD_FRAMES;
    uint64_t *list = picture_take(picture, room, sizeof(*list));
    size_t filled = 0;
    *count = 0;
    for (uint32_t i = 0; list && i < picture->stack_count; i++) {
        const uint64_t *frames;
        size_t depth = umf_reader_stack(picture->reader, picture->stacks[i], &frames);
        memcpy(list + filled, frames, depth * sizeof(*frames));
        filled += depth;
    }
    if (list && filled > 0) {
        qsort(list, filled, sizeof(*list), by_value);
    }
    for (size_t i = 0; i < filled; i++) {
        if (i == 0 || list[i] != list[i - 1]) {
            list[(*count)++] = list[i];
        }
    }
    return list;
}

/* `firsts` has the number of the first frame of each address, and the end. */
static void write_stack(picture_t *picture, uint32_t stack, const uint64_t *list, size_t count,
                        const uint64_t *firsts) {
    const uint64_t *frames;
    size_t depth = umf_reader_stack(picture->reader, stack, &frames);
    picture_open(picture->out, '[');
    for (size_t i = 0; i < depth; i++) {
        const uint64_t *at = bsearch(&frames[i], list, count, sizeof(*list), by_value);
        for (uint64_t frame = firsts[at - list]; frame < firsts[at - list + 1]; frame++) {
            picture_number(picture->out, (int64_t)frame);
        }
    }
    picture_close(picture->out, ']');
}

/* Last, when all that refers to something has done so. */
void picture_names_write(picture_t *picture) {
    size_t count;
    uint64_t *list = addresses(picture, &count);
    uint64_t *firsts = picture_take(picture, count + 1, sizeof(*firsts));
    write_objects(picture);
    picture_key(picture->out, "frames");
    picture_open(picture->out, '[');
    for (size_t i = 0; firsts && i < count; i++) {
        firsts[i + 1] = firsts[i] + write_frames(picture, list[i]);
    }
    picture_close(picture->out, ']');
    picture_key(picture->out, "stacks");
    picture_open(picture->out, '[');
    for (uint32_t i = 0; list && firsts && i < picture->stack_count; i++) {
        write_stack(picture, picture->stacks[i], list, count, firsts);
    }
    picture_close(picture->out, ']');
}

/* --- allocations ------------------------------------------------------------------------------ */

/* A heap with the smallest on top. */
static void sift(umf_reader_live_t *heap, size_t count, size_t at) {
    for (;;) {
        size_t least = at, child = 2 * at + 1;
        for (size_t i = child; i < child + 2 && i < count; i++) {
            least = heap[i].size < heap[least].size ? i : least;
        }
        if (least == at) {
            return;
        }
        umf_reader_live_t kept = heap[at];
        heap[at] = heap[least];
        heap[least] = kept;
        at = least;
    }
}

/* The largest; `left` and `left_bytes`: the others. */
static size_t largest(umf_reader_replay_t *replay, umf_reader_live_t *heap, uint64_t *left,
                      uint64_t *left_bytes) {
    const umf_reader_live_t *live;
    size_t count = 0, position = 0;
    *left = *left_bytes = 0;
    while ((live = umf_reader_replay_next(replay, &position))) {
        if (count < PICTURE_ALLOCS) {
            heap[count++] = *live;
            for (size_t i = count == PICTURE_ALLOCS ? count : 0; i-- > 0;) {
                sift(heap, count, i);
            }
            continue;
        }
        *left += 1;
        *left_bytes += live->size < heap[0].size ? live->size : heap[0].size;
        if (live->size > heap[0].size) {
            heap[0] = *live;
            sift(heap, count, 0);
        }
    }
    return count;
}

static void write_alloc(picture_t *picture, const umf_reader_live_t *live) {
    picture_out_t *out = picture->out;
    picture_open(out, '[');
    picture_hex(out, live->address);
    picture_number(out, (int64_t)live->size);
    picture_number(out, picture_name(picture, live->object));
    picture_number(out, picture_stack(picture, live->stack));
    picture_number(out, live->ns - picture->origin);
    picture_number(out, live->thread < picture->info->thread_count
                            ? umf_reader_thread(picture->reader, live->thread)
                            : 0);
    picture_close(out, ']');
}

void picture_allocs_write(picture_t *picture, umf_reader_replay_t *replay) {
    umf_reader_live_t *heap = picture_take(picture, PICTURE_ALLOCS, sizeof(*heap));
    uint64_t left = 0, left_bytes = 0;
    size_t count = heap ? largest(replay, heap, &left, &left_bytes) : 0;
    picture_key(picture->out, "allocs");
    picture_open(picture->out, '[');
    for (size_t i = 0; i < count; i++) {
        write_alloc(picture, &heap[i]);
    }
    picture_close(picture->out, ']');
    picture_key(picture->out, "allocs_left");
    picture_open(picture->out, '[');
    picture_number(picture->out, (int64_t)left);
    picture_number(picture->out, (int64_t)left_bytes);
    picture_close(picture->out, ']');
}
