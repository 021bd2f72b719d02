#include "top_callers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "groups.h"
#include "record.h"
#include "report.h"

#define FRAMES_SHOWN 8u /* of a place */
#define RECORDING_SIZE ((uint64_t)64 << 20)

static void add_line(top_callers_t *callers, const char *text, size_t length) {
    if (callers->count == callers->room) {
        size_t room = 2 * callers->room + 64;
        char **more = realloc(callers->texts, room * sizeof(*more));
        if (!more) {
            return;
        }
        callers->texts = more;
        callers->room = room;
    }
    char *line = strndup(text, length);
    callers->count += line != NULL;
    if (line) {
        callers->texts[callers->count - 1] = line;
    }
}

static void add_stack(top_callers_t *callers, umf_reader_t *reader, uint32_t stack) {
    char all[RECORD_STACK], line[256];
    const char *frame = record_stack(reader, stack, all, sizeof(all));
    for (unsigned i = 0; *frame && i < FRAMES_SHOWN; i++) {
        size_t length = strcspn(frame, "\n");
        snprintf(line, sizeof(line), "            %.*s", (int)(length < 200 ? length : 200), frame);
        add_line(callers, line, strlen(line));
        frame += length + (frame[length] != '\0');
    }
}

static int by_size(const void *left, const void *right) {
    const group_t *a = left, *b = right;
    return a->bytes > b->bytes ? -1 : a->bytes < b->bytes;
}

static uint32_t number_of(const umf_reader_t *reader, const umf_record_object_t *pool) {
    uint32_t count = umf_reader_info(reader)->object_count;
    for (uint32_t i = 1; i < count; i++) {
        if (top_is_same(umf_reader_object(reader, i), pool)) {
            return i;
        }
    }
    return 0;
}

static void add_groups(top_callers_t *callers, umf_reader_t *reader, groups_t *groups,
                       uint32_t number) {
    char line[128], bytes[16], count[32];
    if (groups->count > 0) {
        qsort(groups->items, groups->count, sizeof(group_t), by_size);
    }
    for (size_t i = 0; i < groups->count; i++) {
        const group_t *group = &groups->items[i];
        if (group->object == number) {
            snprintf(line, sizeof(line), "  %8s  %s", top_bytes(group->bytes, bytes, sizeof(bytes)),
                     record_allocations(group->count, count, sizeof(count)));
            add_line(callers, line, strlen(line));
            add_stack(callers, reader, group->stack);
        }
    }
}

/* Waits in between, if the recording begins now. */
static bool recording_take(attach_t *attach, bool (*is_enough)(void), int *fd) {
    umf_attach_request_t live = attach_request(UMF_ATTACH_LIVE, NULL);
    umf_attach_request_t begin = attach_request(UMF_ATTACH_RECORD, NULL);
    umf_attach_request_t stop = attach_request(UMF_ATTACH_STOP, NULL);
    begin.size = RECORDING_SIZE;
    begin.stack_depth = 16;
    begin.leaks = 1;
    if (attach_ask(attach, &live, fd)) {
        return true;
    } else if (attach->is_gone || !attach_ask(attach, &begin, fd)) {
        return false;
    }
    while (!is_enough()) {
    }
    (void)attach_ask(attach, &stop, NULL); /* the events until now are there in any case */
    return true;
}

static bool load(top_callers_t *callers, int fd, const umf_record_object_t *pool, char *error,
                 size_t size) {
    umf_reader_error_t why;
    groups_t groups = {0};
    char label[RECORD_LABEL];
    umf_reader_t *reader = umf_reader_open_fd(fd, "the recording", &why);
    uint32_t number = reader ? number_of(reader, pool) : 0;
    bool is_loaded = reader && groups_load(&groups, reader, &why);
    if (!is_loaded) {
        snprintf(error, size, "%.150s", why.text);
    } else {
        snprintf(callers->title, sizeof(callers->title),
                 "%.48s: recorded, and live at the end, by place",
                 umf_reader_label(reader, number, label, sizeof(label)));
        add_groups(callers, reader, &groups, number);
    }
    if (is_loaded && callers->count == 0) {
        static const char none[] = "  none: whatever was allocated meanwhile is free again";
        add_line(callers, none, sizeof(none) - 1);
    }
    free(groups.items);
    umf_reader_close(reader);
    return is_loaded;
}

bool top_callers_load(top_callers_t *callers, uint32_t pid, const umf_record_object_t *pool,
                      bool (*is_enough)(void), char *error, size_t size) {
    attach_t attach;
    int fd = -1;
    *callers = (top_callers_t){0};
    bool is_open = attach_open(&attach, pid);
    bool is_taken = is_open && recording_take(&attach, is_enough, &fd);
    if (!is_taken) {
        snprintf(error, size, "%.150s", attach.error);
    }
    bool is_loaded = is_taken && load(callers, fd, pool, error, size);
    if (fd != -1) {
        close(fd);
    }
    if (is_open) {
        attach_close(&attach);
    }
    return is_loaded;
}

void top_callers_free(top_callers_t *callers) {
    for (size_t i = 0; i < callers->count; i++) {
        free(callers->texts[i]);
    }
    free(callers->texts);
    *callers = (top_callers_t){0};
}
