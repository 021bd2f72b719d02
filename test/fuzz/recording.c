/*
 * Recordings and snapshots: any file is refused with a reason, or read; results are in
 * range, and sums agree.
 */
#define _GNU_SOURCE
#include "fuzz/support.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reader/reader.h"

static void read_stack(const umf_reader_t *reader, uint32_t stack, uint64_t *sum) {
    const uint64_t *frames = NULL;
    size_t count = umf_reader_stack(reader, stack, &frames);
    FUZZ_CHECK(count <= UMF_RECORD_FRAMES);
    for (size_t i = 0; i < count; i++) {
        *sum += frames[i];
    }
}

/* Names in the file, and of files that it names. */
static void read_names(umf_reader_t *reader, uint32_t stack, uint64_t *sum) {
    const uint64_t *frames = NULL;
    const umf_reader_frame_t *all;
    size_t count = umf_reader_stack(reader, stack, &frames);
    for (size_t i = 0; i < count; i++) {
        size_t inlined = umf_reader_resolve_all(reader, frames[i], &all);
        FUZZ_CHECK(inlined >= 1 && inlined <= 16 && !all[inlined - 1].is_inlined);
        for (size_t j = 0; j < inlined; j++) {
            *sum += strlen(all[j].module) + (all[j].function ? strlen(all[j].function) : 0);
            *sum += all[j].source ? strlen(all[j].source) : 0;
        }
    }
}

static void read_tables(umf_reader_t *reader) {
    const umf_reader_info_t *info = umf_reader_info(reader);
    uint64_t sum = 0;
    size_t spans, runs, live;
    for (uint32_t i = 0; i <= info->object_count; i++) {
        const umf_record_object_t *object = umf_reader_object(reader, i);
        FUZZ_CHECK(object->parent < info->object_count && strlen(object->name) < 48);
    }
    for (uint32_t i = 0; i <= info->stack_count; i++) {
        read_stack(reader, i, &sum);
        read_names(reader, i, &sum);
    }
    const umf_record_span_t *span = umf_reader_spans(reader, &spans);
    umf_reader_runs(reader, &runs);
    for (size_t i = 0; i < spans; i++) {
        FUZZ_CHECK(span[i].object < info->object_count);
        FUZZ_CHECK((size_t)span[i].first_run + span[i].run_count <= runs);
    }
    const umf_reader_live_t *item = umf_reader_live(reader, &live);
    for (size_t i = 0; i < live; i++) {
        FUZZ_CHECK(item[i].object < info->object_count && item[i].stack < info->stack_count);
    }
    for (size_t i = 0; umf_reader_note(reader, i); i++) {
        FUZZ_CHECK(i < 100);
    }
}

static void check_event(const umf_reader_t *reader, const umf_reader_event_t *event, int64_t last) {
    const umf_reader_info_t *info = umf_reader_info(reader);
    FUZZ_CHECK(event->ns >= last && event->ns <= info->last_ns);
    FUZZ_CHECK(event->object < info->object_count && event->stack < info->stack_count);
    FUZZ_CHECK(event->thread < info->thread_count);
    FUZZ_CHECK(event->kind >= UMF_RECORD_ALLOC && event->kind <= UMF_READER_KIND_LAST);
    FUZZ_CHECK(event->kind != UMF_RECORD_MARK || umf_reader_text(reader, event->address));
}

static void read_events(const umf_reader_t *reader) {
    const umf_reader_info_t *info = umf_reader_info(reader);
    umf_reader_cursor_t *cursor = umf_reader_iterate(reader, NULL);
    umf_reader_event_t event;
    uint64_t count = 0;
    FUZZ_CHECK(cursor);
    for (int64_t last = info->first_ns; umf_reader_next(cursor, &event); last = event.ns) {
        check_event(reader, &event, last);
        count++;
    }
    FUZZ_CHECK(count <= info->event_count);
    umf_reader_cursor_free(cursor);
}

/* Live bytes are the sum of the sites, of the pools, and of the list. */
static void check_sums(const umf_reader_t *reader, umf_reader_replay_t *replay) {
    umf_reader_use_t total = umf_reader_replay_total(replay)->use, sites = {0}, listed = {0};
    const umf_reader_site_t *site;
    for (uint32_t i = 0; (site = umf_reader_replay_site(replay, i)) != NULL; i++) {
        sites.bytes += site->use.bytes;
        sites.count += site->use.count;
        sites.peak_bytes += site->use.peak_bytes;
        sites.refused_bytes += site->use.refused_bytes;
    }
    FUZZ_CHECK(sites.bytes == total.bytes && sites.count == total.count);
    FUZZ_CHECK(sites.peak_bytes == total.peak_bytes);
    FUZZ_CHECK(sites.refused_bytes == total.refused_bytes);
    const umf_reader_live_t *live;
    for (size_t at = 0; (live = umf_reader_replay_next(replay, &at)) != NULL; listed.count++) {
        listed.bytes += live->size;
    }
    FUZZ_CHECK(listed.bytes == total.bytes && listed.count == total.count);
    for (size_t at = 0; umf_reader_replay_next_provided(replay, &at) != NULL;) {
    }
    for (uint32_t i = 0; i < umf_reader_info(reader)->object_count; i++) {
        const umf_reader_object_use_t *object = umf_reader_replay_object(replay, i);
        listed.bytes -= object->use.bytes;
        FUZZ_CHECK(object->pages.spare <= object->pages.reserved);
        FUZZ_CHECK(object->pages.reserved <= object->pages.reserved_peak);
        FUZZ_CHECK(object->pages.is_known || object->pages.reserved == 0);
    }
    FUZZ_CHECK(listed.bytes == 0);
}

static void read_replay(const umf_reader_t *reader) {
    const umf_reader_info_t *info = umf_reader_info(reader);
    umf_reader_replay_t *replay = umf_reader_replay_begin(reader, NULL);
    FUZZ_CHECK(replay);
    FUZZ_CHECK(umf_reader_replay_run(replay, info->first_ns / 2 + info->last_ns / 2, NULL));
    check_sums(reader, replay);
    FUZZ_CHECK(umf_reader_replay_run(replay, INT64_MAX, NULL));
    check_sums(reader, replay);
    umf_reader_replay_free(replay);
}

/* A recording without events of the process of the snapshot, with the same objects. */
static int recording_make(const umf_reader_t *snapshot) {
    const umf_reader_info_t *info = umf_reader_info(snapshot);
    uint64_t objects = (sizeof(umf_record_header_t) + 63) / 64 * 64;
    uint64_t bytes = (uint64_t)info->object_count * sizeof(umf_record_object_t);
    uint64_t blocks = objects + (bytes + 63) / 64 * 64;
    umf_record_header_t header = {
        .magic = {'U', 'M', 'F', 'R', 'E', 'C', '\r', '\n'},
        .version = UMF_RECORD_VERSION,
        .kind = UMF_RECORD_FILE_RECORDING,
        .pid = info->pid,
        .ticks_per_second = 1000000000,
        .file_size = blocks,
        .sections = {[UMF_RECORD_OBJECTS] = {objects, info->object_count, info->object_count,
                                             sizeof(umf_record_object_t), 0},
                     [UMF_RECORD_BLOCKS] = {blocks, 0, 0, sizeof(umf_record_block_t), 0}},
    };
    int fd = memfd_create("recording", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && pwrite(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header));
    for (uint32_t i = 0; i < info->object_count; i++) {
        FUZZ_CHECK(pwrite(fd, umf_reader_object(snapshot, i), sizeof(umf_record_object_t),
                          (off_t)(objects + i * sizeof(umf_record_object_t))) > 0);
    }
    FUZZ_CHECK(ftruncate(fd, (off_t)blocks) == 0);
    return fd;
}

/* Memory of a snapshot from before a recording, and names, are added to the recording. */
static void add_to_recording(const umf_reader_t *snapshot) {
    umf_reader_names_t names;
    uint64_t bytes;
    int fd = recording_make(snapshot);
    umf_reader_t *recording = umf_reader_open_fd(fd, "made", NULL);
    FUZZ_CHECK(recording);
    bool is_added = umf_reader_older_write(recording, snapshot, fd, &bytes, NULL);
    FUZZ_CHECK(is_added || bytes == 0);
    umf_reader_close(recording);
    recording = umf_reader_open_fd(fd, "made", NULL);
    FUZZ_CHECK(recording && umf_reader_names_write(recording, fd, &names, NULL));
    FUZZ_CHECK(!is_added || umf_reader_info(recording)->flags & UMF_RECORD_HAS_OLDER);
    FUZZ_CHECK(umf_reader_info(recording)->event_count == umf_reader_info(recording)->older_count);
    read_events(recording);
    read_replay(recording);
    umf_reader_close(recording);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    umf_reader_error_t error = {""};
    umf_reader_t *reader = umf_reader_open_bytes(data, size, "input", &error);
    if (!reader) {
        FUZZ_CHECK(strncmp(error.text, "input: ", 7) == 0);
        return 0;
    }
    read_tables(reader);
    read_events(reader);
    read_replay(reader);
    const umf_reader_info_t *info = umf_reader_info(reader);
    if (info->kind == UMF_RECORD_FILE_SNAPSHOT) {
        add_to_recording(reader);
    }
    umf_reader_part_t part = {info->first_ns / 2 + info->last_ns / 2, INT64_MAX, NULL};
    int64_t mark;
    (void)umf_reader_find_mark(reader, "step", &mark, NULL);
    if (umf_reader_select(reader, &part, NULL)) {
        read_events(reader);
        read_replay(reader);
    }
    umf_reader_close(reader);
    return 0;
}
