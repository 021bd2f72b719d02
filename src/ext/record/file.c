/*
 * The file of a recording, and the private memory of its tables.
 *
 * The file is sparse. A write to a page that has no space on the disk would end the program, so a
 * page is made writable before its first use (umf_record_touch).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/kept_fd.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "ext/record/recording.h"
#include "ext/record/stack/rules.h"
#include "system/os.h"

#define OBJECTS 16384u
#define TEXTS ((size_t)256 << 10)
#define MODULES 4096u
#define STACKS_MAX (((size_t)1 << 24) - 1)
#define PROVIDERS 32768u
#define TEXT_HASH 16384u
#define PRIVATE_MAPS 12
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* The mapping and descriptors of the recording. Sync: the RECORDER lock. */
static struct {
    void *at[PRIVATE_MAPS];
    size_t size[PRIVATE_MAPS];
    unsigned count;
    umf_kept_fd_t file;
} mapped;

static int map(size_t size, int flags, int fd, void **at) {
    *at = NULL;
    int error = umf_os_map(at, size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
    if (error == 0) {
        mapped.at[mapped.count] = *at;
        mapped.size[mapped.count++] = size;
    }
    return error;
}

static bool map_private(size_t size, void *at) {
    int error = map(size, MAP_PRIVATE | MAP_ANONYMOUS, -1, at);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "no memory for the tables of a recording, %zu bytes", size);
    }
    return error == 0;
}

void umf_record_file_unmap(void) {
    umf_kept_fd_close(&mapped.file);
    while (mapped.count > 0) {
        mapped.count--;
        umf_os_unmap(mapped.at[mapped.count], mapped.size[mapped.count]);
    }
}

int umf_record_file_dup(int *fd) {
    int error = umf_kept_fd_check(&mapped.file, "the file of the recording");
    return error ? error : umf_os_dup(mapped.file.number, fd);
}

/* --- space --- */

static int populate(char *at, size_t size) {
    int error = umf_os_advise(at, size, MADV_POPULATE_WRITE);
    if (error != EINVAL && error != ENOSYS) {
        return error;
    }
    error = 0; /* before Linux 5.14 */
    for (size_t i = 0; i < size && error == 0; i += umf_os_page_size()) {
        error = umf_os_probe_change(at + i);
    }
    return error;
}

static bool touch_slow(umf_recording_t *r, size_t first, size_t end) {
    size_t page = umf_os_page_size();
    int error = populate((char *)r->header + first * page, (end - first) * page);
    for (size_t i = first; i < end && error == 0; i++) {
        if (!atomic_exchange_explicit(&r->touched[i], 1, memory_order_relaxed)) {
            atomic_fetch_add_explicit(&r->touched_count, 1, memory_order_relaxed);
        }
    }
    return error == 0;
}

bool umf_record_touch(umf_recording_t *r, const void *at, size_t size) {
    size_t page = umf_os_page_size();
    size_t offset = (size_t)((const char *)at - (const char *)r->header);
    size_t first = offset / page, end = (offset + size + page - 1) / page;
    while (first < end && atomic_load_explicit(&r->touched[first], memory_order_relaxed)) {
        first++;
    }
    return first == end || touch_slow(r, first, end);
}

/* --- sections --- */

/* The header has for readers the counts that the writer has in `r`. */
static void count_set(umf_recording_t *r, umf_record_section_kind_t kind, uint64_t count) {
    __atomic_store_n(&r->sections[kind].count, count, __ATOMIC_RELEASE);
    __atomic_store_n(&r->header->sections[kind].count, count, __ATOMIC_RELEASE);
}

uint64_t umf_record_count(const umf_recording_t *r, umf_record_section_kind_t kind) {
    uint64_t count = __atomic_load_n(&r->sections[kind].count, __ATOMIC_ACQUIRE);
    return count < r->sections[kind].capacity ? count : r->sections[kind].capacity;
}

uint64_t umf_record_item(umf_recording_t *r, umf_record_section_kind_t kind, uint64_t items) {
    const umf_record_section_t *section = &r->sections[kind];
    uint64_t index = section->count;
    if (index > section->capacity || items > section->capacity - index) {
        count_set(r, kind, section->capacity + 1);
        return UINT64_MAX;
    }
    const char *at = (char *)r->header + section->offset + index * section->item_size;
    return umf_record_touch(r, at, items * section->item_size) ? index : UINT64_MAX;
}

void umf_record_item_done(umf_recording_t *r, umf_record_section_kind_t kind, uint64_t items) {
    count_set(r, kind, r->sections[kind].count + items);
}

const char *umf_record_text_at(const umf_recording_t *r, uint64_t offset, int *length) {
    uint64_t count = umf_record_count(r, UMF_RECORD_TEXTS);
    *length = offset < count ? (int)(count - offset) : 0;
    return offset < count ? r->texts + offset : "";
}

typedef struct layout_t {
    umf_recording_t *r;
    uint64_t end; /* of the sections with a place */
} layout_t;

static void *place(layout_t *layout, umf_record_section_kind_t kind, uint64_t capacity,
                   size_t item_size) {
    umf_record_section_t *section = &layout->r->sections[kind];
    section->offset = umf_align_up(layout->end, umf_os_page_size());
    section->capacity = capacity;
    section->item_size = (uint32_t)item_size;
    layout->end = section->offset + capacity * item_size;
    return (char *)layout->r->header + section->offset;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* A small file has small sections. */
static void place_all(umf_recording_t *r, size_t size) {
    layout_t layout = {.r = r, .end = sizeof(*r->header)};
    r->file_size = size;
    size_t objects = least(OBJECTS, size / 8 / sizeof(umf_record_object_t));
    size_t modules = least(MODULES, size / 16 / sizeof(umf_record_module_t));
    r->objects = place(&layout, UMF_RECORD_OBJECTS, objects, sizeof(umf_record_object_t));
    r->texts = place(&layout, UMF_RECORD_TEXTS, least(TEXTS, size / 16), 1);
    r->modules = place(&layout, UMF_RECORD_MODULES, modules, sizeof(umf_record_module_t));
    if (r->stack_depth > 0) {
        size_t stacks = least(STACKS_MAX, size / 8 / sizeof(uint64_t));
        r->stacks = place(&layout, UMF_RECORD_STACKS, stacks, sizeof(uint64_t));
    }
    if (r->keeps_live) {
        size_t windows = size / 4 / sizeof(umf_record_event_t) / UMF_RECORD_LIVE_WINDOW;
        r->window_count = windows;
        r->live = place(&layout, UMF_RECORD_LIVE, windows * UMF_RECORD_LIVE_WINDOW,
                        sizeof(umf_record_event_t));
        r->sections[UMF_RECORD_LIVE].count = windows * UMF_RECORD_LIVE_WINDOW;
    }
    layout.end = umf_align_up(layout.end, umf_os_page_size());
    r->block_count = (uint32_t)least((size - layout.end) / sizeof(umf_record_block_t), UINT32_MAX);
    r->blocks = place(&layout, UMF_RECORD_BLOCKS, r->block_count, sizeof(umf_record_block_t));
}

static void fill_header(umf_recording_t *r, const umf_record_params_t *params, size_t size) {
    umf_record_header_t *header = r->header;
    memcpy(header->magic, UMF_RECORD_MAGIC, sizeof(header->magic));
    header->version = UMF_RECORD_VERSION;
    header->kind = UMF_RECORD_FILE_RECORDING;
    header->file_size = size;
    header->flags = (r->stacks ? UMF_RECORD_HAS_STACKS : 0u) | (r->live ? UMF_RECORD_HAS_LIVE : 0u);
    header->pid = (uint32_t)umf_os_pid();
    header->realtime = umf_record_ns(CLOCK_REALTIME);
    header->ticks_per_second = r->clock.ticks_per_second;
    umf_record_now(&r->clock, &header->ticks[0], &header->ns[0]);
    header->ticks[1] = header->ticks[0];
    header->ns[1] = header->ns[0];
    header->rate = r->rate;
    header->min_size = params->min_size;
    header->max_size = params->max_size;
    r->sections[UMF_RECORD_OBJECTS].count = 1; /* items 0 mean none */
    r->sections[UMF_RECORD_TEXTS].count = 1;
    r->sections[UMF_RECORD_STACKS].count = r->stacks ? 1 : 0;
    memcpy(header->sections, r->sections, sizeof(header->sections));
}

/* --- making --- */

static bool map_tables(umf_recording_t *r, size_t size) {
    size_t stacks = 1024;
    while (r->stacks && stacks < size / 8 / sizeof(uint64_t) / 4) {
        stacks *= 2;
    }
    r->stack_mask = stacks - 1;
    return map_private(UMF_RECORD_NUMBERS * sizeof(*r->pool_numbers), &r->pool_numbers) &&
           map_private(PROVIDERS * sizeof(*r->providers), &r->providers) &&
           map_private(TEXT_HASH * sizeof(*r->text_hash), &r->text_hash) &&
           map_private(r->block_count + 1, &r->owned) &&
           (!r->stacks || map_private(stacks * sizeof(*r->stack_hash), &r->stack_hash)) &&
           (!r->stacks || !umf_record_rules_init() || map_private(sizeof(*r->rules), &r->rules)) &&
           (!r->live || map_private(r->window_count * sizeof(*r->windows), &r->windows));
}

static void take_params(umf_recording_t *r, const umf_record_params_t *params) {
    r->stack_depth = params->stack_depth;
    r->reports_live = params->leaks != 0;
    r->allows_ended = params->leaks == UMF_RECORD_LEAKS_ALLOW_DESTROYED;
    r->min_size = params->min_size;
    r->max_size = params->max_size;
    r->rate = params->rate > 0 ? params->rate : 1;
    /* The size of a freed block is that of the table. */
    r->keeps_live = r->reports_live || r->min_size > 0 || r->max_size > 0;
    r->has_limits = r->min_size > 0 || r->max_size > 0 || r->rate > 1;
    r->has_filter = params->pools != NULL;
    umf_record_clock_init(&r->clock);
}

static bool make_mapped(const umf_record_params_t *params, size_t size, int fd,
                        umf_recording_t **made) {
    umf_recording_t *r = NULL;
    size_t pages = size / umf_os_page_size() + 1;
    if (!map_private(sizeof(*r), &r)) {
        return false;
    }
    umf_os_advise(r, umf_align_up(sizeof(*r), umf_os_page_size()), MADV_WIPEONFORK);
    take_params(r, params);
    int error = map(size, MAP_SHARED, fd, (void **)&r->header);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "a recording of %zu bytes cannot be mapped", size);
        return false;
    }
    if (!map_private(pages, &r->touched)) {
        return false;
    }
    umf_memory_file_seal(fd, F_SEAL_SHRINK | F_SEAL_GROW); /* a file with a path has no seals */
    if (umf_memory_file_seal(fd, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
        umf_memory_file_seal(fd, F_SEAL_SEAL); /* before Linux 5.1 */
    }
    if (!umf_record_touch(r, r->header, sizeof(*r->header))) {
        UMF_LOG_ERROR("there is no space for a recording: free some, or choose another path");
        return false;
    }
    place_all(r, size);
    fill_header(r, params, size);
    *made = r;
    return map_tables(r, size);
}

bool umf_record_file_is_written(const char *path) {
    int fd = -1;
    if (umf_os_check_path(path) != 0 ||
        umf_os_open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0, &fd) != 0) {
        return false;
    }
    bool is_locked = umf_os_flock(fd) == EWOULDBLOCK;
    umf_os_close(fd);
    return is_locked;
}

int umf_record_memory_file(const char *name, int *fd) {
    int error = umf_memory_file(name, fd);
    return error ? error : umf_os_fchmod(*fd, 0600);
}

/* EBUSY: another process has the lock. A file system without locks is no reason not to record. */
static int lock(int fd) {
    return umf_os_flock(fd) == EWOULDBLOCK ? EBUSY : 0;
}

/* EBUSY: the path does not lead to the file that is open (any more). */
static int look_at(const char *path, int fd) {
    uint64_t dev, ino, size, other_dev = 0, other_ino = 0;
    int other = -1;
    int error = umf_os_file_id(fd, &dev, &ino, &size);
    if (error == 0) {
        error = umf_os_open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0, &other);
    }
    if (error != 0) {
        return error == ENOENT || error == ELOOP ? EBUSY : error;
    }
    error = umf_os_file_id(other, &other_dev, &other_ino, &size);
    umf_os_close(other);
    return error == 0 && (dev != other_dev || ino != other_ino) ? EBUSY : error;
}

/* Removes a file without a writer. Its lock is held until the new file has its own, so that
 * another process that removes it, too, gets an error. `old`: the descriptor with the lock. */
static int remove_old(const char *path, int *old) {
    int error = umf_os_check_path(path);
    if (error == 0) {
        error = umf_os_open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0, old);
    }
    if (error != 0) {
        return error == ENOENT ? 0 : error;
    }
    error = lock(*old);
    error = error ? error : look_at(path, *old); /* another process may have replaced it */
    return error ? error : umf_os_unlink(path);
}

/* One of several processes that begin at once gets the path: it has the lock of its file, and then
 * finds its file at the path. */
static int open_new(const char *path, int *fd) {
    int old = -1;
    int error = remove_old(path, &old);
    if (error == 0) {
        error = umf_os_open(path, O_RDWR | O_CREAT | O_EXCL, 0600, fd);
        error = error == EEXIST ? EBUSY : error;
    }
    if (error == 0) {
        error = lock(*fd);
        error = error ? error : look_at(path, *fd);
        if (error && error != EBUSY) {
            umf_os_unlink(path);
        }
    }
    if (old != -1) {
        umf_os_close(old);
    }
    return error;
}

/* A file that another process writes is not replaced: its events are worth more than ours, and it
 * has the path from the same environment. */
static int open_file(const char *path, int *fd) {
    if (!path) {
        return umf_record_memory_file("umf_record", fd);
    }
    int error = open_new(path, fd);
    if (error == EBUSY) {
        UMF_LOG_ERROR("another process records into %s: with %%p in the path each process has a "
                      "file of its own",
                      path);
    } else if (error == EEXIST) {
        UMF_LOG_ERROR(
            "%s exists and is no regular file (a device, a pipe, a link, a folder), which "
            "a recording does not replace: name another path",
            path);
    } else if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "the file %s cannot be made", path);
    }
    return error;
}

umf_result_t umf_record_file_make(const umf_record_params_t *params, const char *path,
                                  umf_recording_t **made) {
    size_t size = umf_align_down(params->size, umf_os_page_size());
    int fd = -1;
    int failed = open_file(path, &fd);
    if (failed) {
        if (fd >= 0) {
            umf_os_close(fd);
        }
        return failed == EEXIST ? UMF_RESULT_ERROR_INVALID_ARGUMENT
                                : UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    int error = umf_kept_fd_take(&mapped.file, fd);
    if (!error) {
        error = umf_os_truncate(fd, size);
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "a recording cannot have %zu bytes: choose a smaller size", size);
    }
    if (error || !make_mapped(params, size, fd, made)) {
        umf_record_file_unmap();
        if (path) {
            umf_os_unlink(path);
        }
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return UMF_RESULT_SUCCESS;
}
