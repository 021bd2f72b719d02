#include "ext/record/snapshot/snapshot.h"

#include <errno.h>
#include <string.h>

#include <umf/record.h>

#include "base/log.h"
#include "ext/record/recording.h"
#include "ext/record/snapshot/snapshot_own.h"
#include "system/os.h"

#define ALIGNMENT 64u

/* --- the file --- */

typedef struct layout_t {
    umf_record_header_t header;
    umf_items_t objects; /* umf_record_object_t */
    const umf_items_t *items[UMF_RECORD_SECTIONS];
} layout_t;

/* Times of live allocations are by the recording's clock. */
static void header_take(umf_record_header_t *header, const umf_record_header_t *recording) {
    memcpy(header->ticks, recording->ticks, sizeof(header->ticks));
    memcpy(header->ns, recording->ns, sizeof(header->ns));
    header->ticks_per_second = recording->ticks_per_second;
    header->realtime = recording->realtime;
    header->live_dropped = recording->live_dropped;
    header->rate = recording->rate;
    header->min_size = recording->min_size;
    header->max_size = recording->max_size;
    header->flags |= recording->flags & (UMF_RECORD_HAS_LIVE | UMF_RECORD_HAS_STACKS);
}

static umf_record_header_t header_make(void) {
    uint64_t now = umf_record_ns(CLOCK_MONOTONIC);
    umf_record_header_t header = {
        .version = UMF_RECORD_VERSION,
        .kind = UMF_RECORD_FILE_SNAPSHOT,
        .flags = UMF_RECORD_HAS_ENDED,
        .pid = (uint32_t)umf_os_pid(),
        .ticks = {now, now},
        .ns = {now, now},
        .ticks_per_second = 1000000000u,
        .realtime = umf_record_ns(CLOCK_REALTIME),
        .rate = 1,
        .max_size = UINT64_MAX,
    };
    memcpy(header.magic, UMF_RECORD_MAGIC, sizeof(header.magic));
    return header;
}

static void layout_make(layout_t *layout) {
    uint64_t offset = umf_align_up(sizeof(layout->header), ALIGNMENT);
    for (size_t i = 0; i < UMF_RECORD_SECTIONS; i++) {
        const umf_items_t *items = layout->items[i];
        if (items) {
            layout->header.sections[i] = (umf_record_section_t){
                .offset = offset,
                .capacity = items->count,
                .count = items->count,
                .item_size = (uint32_t)items->size,
            };
            offset += umf_align_up(items->count * items->size, ALIGNMENT);
        }
    }
    layout->header.file_size = offset;
}

/* The header comes last: a file that has one is whole. */
static int layout_write(const layout_t *layout, int fd) {
    int error = umf_os_truncate(fd, layout->header.file_size);
    for (size_t i = 0; i < UMF_RECORD_SECTIONS && error == 0; i++) {
        if (layout->items[i]) {
            error = umf_items_write(layout->items[i], fd, layout->header.sections[i].offset);
        }
    }
    return error ? error : umf_os_write_at(fd, &layout->header, sizeof(layout->header), 0);
}

static bool objects_copy(const umf_snapshot_t *snapshot, umf_items_t *objects) {
    bool is_done = true;
    for (size_t i = 0; i < snapshot->objects.count && is_done; i++) {
        umf_record_object_t *item = umf_items_add(objects);
        is_done = item != NULL;
        if (item) {
            *item = umf_snapshot_object(snapshot, i)->item;
        }
    }
    return is_done;
}

static int snapshot_save(const umf_snapshot_t *snapshot, int fd) {
    layout_t layout = {.header = header_make(), .objects = {.size = sizeof(umf_record_object_t)}};
    bool is_all = snapshot->what == UMF_SNAPSHOT_ALL;
    int error = ENOMEM;
    if (objects_copy(snapshot, &layout.objects)) {
        layout.items[UMF_RECORD_OBJECTS] = &layout.objects;
        layout.items[UMF_RECORD_SPANS] = is_all ? &snapshot->spans : NULL;
        layout.items[UMF_RECORD_RUNS] = is_all ? &snapshot->runs : NULL;
        if (snapshot->has_live) {
            header_take(&layout.header, &snapshot->recording);
            layout.items[UMF_RECORD_TEXTS] = &snapshot->texts;
            layout.items[UMF_RECORD_MODULES] = &snapshot->modules;
            layout.items[UMF_RECORD_STACKS] = &snapshot->stacks;
            layout.items[UMF_RECORD_LIVE] = &snapshot->live;
        }
        layout_make(&layout);
        error = layout_write(&layout, fd);
    }
    umf_items_fini(&layout.objects);
    return error;
}

static void snapshot_fini(umf_snapshot_t *snapshot) {
    umf_items_t *items[] = {&snapshot->objects, &snapshot->seen,   &snapshot->order,
                            &snapshot->spans,   &snapshot->runs,   &snapshot->texts,
                            &snapshot->modules, &snapshot->stacks, &snapshot->live};
    for (size_t i = 0; i < UMF_COUNT_OF(items); i++) {
        umf_items_fini(items[i]);
    }
    umf_hash_fini(&snapshot->numbers);
}

int umf_snapshot_write(int fd, umf_snapshot_what_t what, bool (*is_enough)(void)) {
    umf_snapshot_t snapshot = {
        .what = what,
        .is_enough = is_enough,
        .objects = {.size = sizeof(umf_snapshot_object_t)},
        .seen = {.size = sizeof(umf_snapshot_seen_t)},
        .order = {.size = sizeof(uint32_t)},
        .spans = {.size = sizeof(umf_record_span_t)},
        .runs = {.size = sizeof(umf_record_run_t)},
        .texts = {.size = 1},
        .modules = {.size = sizeof(umf_record_module_t)},
        .stacks = {.size = sizeof(uint64_t)},
        .live = {.size = sizeof(umf_record_event_t)},
    };
    umf_snapshot_objects(&snapshot);
    if (snapshot.error == 0) {
        umf_snapshot_spans(&snapshot);
    }
    int error = snapshot.error ? snapshot.error : snapshot_save(&snapshot, fd);
    snapshot_fini(&snapshot);
    return error;
}

/* --- the public function --- */

static int write_to(int fd, void *arg) {
    (void)arg;
    return umf_snapshot_write(fd, UMF_SNAPSHOT_ALL, NULL);
}

UMF_API_EXT_1_3 umf_result_t umfRecordSnapshot(const char *path) {
    if (!path) {
        UMF_LOG_ERROR("path is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    int error = umf_record_write_whole(path, write_to, NULL);
    return error ? umf_record_write_failed(path, error, __func__) : UMF_RESULT_SUCCESS;
}
