/*
 * The part of a snapshot from the running recording: live allocations, with stacks. It is read from
 * the recording's file, as any reader does. Live allocations are read first, objects last: every
 * reference resolves.
 */
#include <string.h>

#include "ext/record/record.h"
#include "ext/record/snapshot/snapshot_own.h"
#include "system/os.h"

#define PIECE ((size_t)16384)

typedef struct section_copy_t {
    umf_record_section_kind_t kind;
    size_t item_size;
    umf_items_t *items;
    bool (*is_requested)(const void *item); /* NULL: all are */
} section_copy_t;

static bool is_used(const void *live) {
    return ((const umf_record_event_t *)live)->address != 0;
}

static int piece_copy(const section_copy_t *copy, const char *piece, size_t bytes) {
    for (size_t at = 0; at + copy->item_size <= bytes; at += copy->item_size) {
        if (!copy->is_requested || copy->is_requested(piece + at)) {
            void *item = umf_items_add(copy->items);
            if (!item) {
                return ENOMEM;
            }
            memcpy(item, piece + at, copy->item_size);
        }
    }
    return 0;
}

static int section_copy(umf_snapshot_t *snapshot, int fd, const section_copy_t *copy) {
    const umf_record_section_t *section = &snapshot->recording.sections[copy->kind];
    if (section->offset == 0) { /* a recording without stacks, for example */
        return 0;
    }
    bool is_all = copy->is_requested != NULL; /* used items lie anywhere */
    uint64_t count =
        is_all || section->count > section->capacity ? section->capacity : section->count;
    char piece[PIECE];
    int error = section->item_size == copy->item_size ? 0 : EINVAL;
    size_t whole = PIECE / copy->item_size * copy->item_size, bytes;
    uint64_t end = count * copy->item_size, data = 0; /* up to `data` there is some */
    for (uint64_t at = 0; at < end && error == 0; at += bytes) {
        if (snapshot->is_enough && snapshot->is_enough()) {
            return ECANCELED;
        }
        if (is_all && at >= data) { /* holes have no items that are used */
            uint64_t next = umf_os_next_data(fd, section->offset + at, &data) - section->offset;
            at = next < end ? next / copy->item_size * copy->item_size : end;
            data = data > section->offset ? data - section->offset : 0;
        }
        uint64_t left = end - at;
        bytes = left < whole ? (size_t)left : whole;
        error = bytes ? umf_os_read_at(fd, piece, bytes, section->offset + at) : 0;
        error = error ? error : piece_copy(copy, piece, bytes);
    }
    return error;
}

/* Objects keep the numbers that they have in the recording. */
static int objects_take(umf_snapshot_t *snapshot, const umf_items_t *recorded) {
    for (size_t i = 0; i < recorded->count; i++) {
        const umf_record_object_t *item = umf_items_at(recorded, i);
        umf_snapshot_object_t *object =
            i == 0 ? umf_snapshot_object(snapshot, 0) : umf_items_add(&snapshot->objects);
        if (!object) {
            return ENOMEM;
        }
        object->item = *item;
        object->item.live = object->item.live_count = object->item.held = object->item.peak =
            i == 0 ? 0 : UMF_RECORD_UNKNOWN;
        bool is_there = item->kind && item->handle && !(item->flags & UMF_RECORD_OBJECT_IS_GONE);
        if (is_there && !umf_hash_put(&snapshot->numbers, item->handle, (void *)(uintptr_t)i)) {
            return ENOMEM;
        }
    }
    return 0;
}

static int recording_copy(umf_snapshot_t *snapshot, int fd) {
    umf_items_t objects = {.size = sizeof(umf_record_object_t)};
    umf_record_header_t *header = &snapshot->recording;
    const section_copy_t copies[] = {
        {UMF_RECORD_LIVE, sizeof(umf_record_event_t), &snapshot->live, is_used},
        {UMF_RECORD_STACKS, sizeof(uint64_t), &snapshot->stacks, NULL},
        {UMF_RECORD_MODULES, sizeof(umf_record_module_t), &snapshot->modules, NULL},
        {UMF_RECORD_TEXTS, 1, &snapshot->texts, NULL},
        {UMF_RECORD_OBJECTS, sizeof(umf_record_object_t), &objects, NULL},
    };
    int error = umf_record_header(header);
    snapshot->has_live = error == 0 && (header->flags & UMF_RECORD_HAS_LIVE);
    for (size_t i = 0; i < UMF_COUNT_OF(copies) && snapshot->has_live && error == 0; i++) {
        /* The counts have grown: items of this section were named by the one before. */
        error = umf_record_header(header);
        error = error ? error : section_copy(snapshot, fd, &copies[i]);
    }
    error = error ? error : objects_take(snapshot, &objects);
    umf_items_fini(&objects);
    return error;
}

void umf_snapshot_recording(umf_snapshot_t *snapshot) {
    int fd = -1;
    if (umf_record_dup(&fd) == 0) {
        snapshot->error = recording_copy(snapshot, fd);
        umf_os_close(fd);
    }
}
