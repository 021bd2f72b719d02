/*
 * A copy of a recording that goes on. Blocks are copied first and the header last, so what events
 * name is in the copy.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "ext/record/recording.h"
#include "system/os.h"

void umf_record_file_end(umf_recording_t *r, umf_record_header_t *header) {
    umf_record_now(&r->clock, &header->ticks[1], &header->ns[1]);
    header->flags |= UMF_RECORD_HAS_ENDED;
}

static umf_record_block_t copy; /* Sync: the RECORDER lock. Room for a block, or for a page */

/* Threads write meanwhile. A half written item is not counted yet, or detected by its number. */
__attribute__((no_sanitize("thread"))) static void copy_shared(void *to, const void *from,
                                                               size_t size) {
    for (size_t i = 0; i < size / sizeof(uint64_t); i++) {
        ((uint64_t *)to)[i] = ((const volatile uint64_t *)from)[i];
    }
}

void umf_record_header_copy(const umf_recording_t *r, umf_record_header_t *header) {
    copy_shared(header, r->header, sizeof(*header));
    header->names = 0; /* those that another program has added are not copied */
    for (unsigned i = 0; i < UMF_RECORD_SECTIONS; i++) {
        const umf_record_section_t *section = &r->sections[i]; /* all but the count is constant */
        header->sections[i].offset = section->offset;
        header->sections[i].capacity = section->capacity;
        header->sections[i].item_size = section->item_size;
        header->sections[i].count = __atomic_load_n(&section->count, __ATOMIC_ACQUIRE);
    }
}

static int write_block(umf_recording_t *r, uint64_t i, int fd) {
    umf_record_block_t *block = &r->blocks[i];
    uint64_t number = __atomic_load_n(&block->number, __ATOMIC_ACQUIRE);
    uint32_t count = __atomic_load_n(&block->count, __ATOMIC_ACQUIRE);
    count = count < UMF_RECORD_BLOCK_EVENTS ? count : UMF_RECORD_BLOCK_EVENTS;
    size_t size = offsetof(umf_record_block_t, events) + count * sizeof(umf_record_event_t);
    copy_shared(&copy, block, size);
    copy.count = count;
    copy.number = __atomic_load_n(&block->number, __ATOMIC_ACQUIRE) == number ? number : 0;
    return umf_os_write_at(fd, &copy, size, (uint64_t)((char *)block - (char *)r->header));
}

/* Pages that were never written stay holes. */
static int write_pages(umf_recording_t *r, size_t first, size_t end, int fd) {
    size_t page = umf_os_page_size();
    int error = page <= sizeof(copy) ? 0 : ENOMEM;
    for (size_t i = first; i < end && error == 0; i++) {
        if (atomic_load(&r->touched[i])) {
            copy_shared(&copy, (char *)r->header + i * page, page);
            error = umf_os_write_at(fd, &copy, page, i * page);
        }
    }
    return error;
}

static int write_all(int fd, void *recording) {
    umf_recording_t *r = recording;
    const umf_record_section_t *blocks = &r->sections[UMF_RECORD_BLOCKS];
    uint64_t count = umf_record_count(r, UMF_RECORD_BLOCKS);
    int error = umf_os_truncate(fd, r->file_size);
    for (uint64_t i = 0; i < count && error == 0; i++) {
        error = write_block(r, i, fd);
    }
    umf_record_header_t header;
    umf_record_header_copy(r, &header);
    header.sections[UMF_RECORD_BLOCKS].count = count;
    umf_record_file_end(r, &header);
    if (error == 0) {
        error = write_pages(r, 0, blocks->offset / umf_os_page_size(), fd);
    }
    return error ? error : umf_os_write_at(fd, &header, sizeof(header), 0);
}

int umf_record_write_whole(const char *path, int (*write)(int fd, void *arg), void *arg) {
    static _Atomic unsigned parts; /* of threads that write at once */
    char part[4096];
    int fd = -1;
    int length = snprintf(part, sizeof(part), "%s.%d.%u.part", path, umf_os_pid(), parts++);
    if (length >= (int)sizeof(part)) {
        return ENAMETOOLONG;
    }
    int error = umf_os_check_path(path);
    if (error != 0 && error != ENOENT) {
        return error;
    }
    umf_os_unlink(part);
    error = umf_os_open(part, O_RDWR | O_CREAT | O_EXCL, 0600, &fd);
    if (error) {
        return error;
    }
    error = write(fd, arg);
    umf_os_close(fd);
    error = error ? error : umf_os_rename(part, path);
    if (error) {
        umf_os_unlink(part);
    }
    return error;
}

umf_result_t umf_record_write_failed(const char *path, int error, const char *function) {
    if (error == EEXIST) {
        umf_log_error(
            function,
            "%s exists and is no regular file (a device, a pipe, a link, a folder), which "
            "is not replaced: name another path",
            path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_log_write(UMF_LOG_LEVEL_ERROR, error, function, "%s cannot be written", path);
    return error == ENOMEM ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
                           : UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

umf_result_t umf_record_file_save(umf_recording_t *r, const char *path) {
    int error = umf_record_write_whole(path, write_all, r);
    return error ? umf_record_write_failed(path, error, "umfRecordSave") : UMF_RESULT_SUCCESS;
}
