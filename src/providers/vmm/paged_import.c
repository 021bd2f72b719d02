/* Vmm_paged: the consumer's side. The bytes of a manifest are another process's, and copied before
 * they are checked. */
#include <string.h>

#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "providers/vmm/own.h"
#include "providers/vmm/paged.h"
#include "system/os.h"

typedef struct manifest_t {
    char *bytes;
    size_t size;
    umf_vmm_manifest_t head;
} manifest_t;

static const umf_fd_ticket_t *ticket_of(const manifest_t *manifest, uint64_t file) {
    return (const umf_fd_ticket_t *)(const void *)(manifest->bytes + sizeof(manifest->head)) + file;
}

static const umf_vmm_manifest_page_t *pages_of(const manifest_t *manifest) {
    return (const umf_vmm_manifest_page_t *)(const void *)ticket_of(manifest, manifest->head.files);
}

static umf_result_t refuse(void) {
    UMF_LOG_ERROR("the list of pages of a description cannot be right");
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The files belong to the process that the board belongs to. */
static bool is_of_producer(const umf_fd_ticket_t *ticket, const umf_vmm_handle_t *handle) {
    return ticket->pid == handle->board.pid && ticket->pid_ns == handle->board.pid_ns &&
           ticket->start_time == handle->board.start_time &&
           ticket->boot_id == handle->board.boot_id;
}

static bool is_right(const manifest_t *manifest, const umf_vmm_handle_t *handle) {
    uint64_t left = handle->piece_size, mask = handle->granule - 1;
    const umf_vmm_manifest_page_t *page = pages_of(manifest);
    for (uint64_t i = 0; i < manifest->head.pages; i++, page++) {
        if (page->file >= manifest->head.files || page->size == 0 || page->size > left ||
            ((page->size | page->offset) & mask) || page->offset > INT64_MAX - page->size) {
            return false;
        }
        left -= page->size;
    }
    for (uint64_t i = 0; i < manifest->head.files; i++) {
        if (!is_of_producer(ticket_of(manifest, i), handle)) {
            return false;
        }
    }
    return left == 0;
}

static umf_result_t read_all(int fd, manifest_t *manifest) {
    uint64_t dev, ino, size;
    size_t expected;
    int error = umf_os_file_id(fd, &dev, &ino, &size);
    error = error ? error : umf_os_read_at(fd, &manifest->head, sizeof(manifest->head), 0);
    if (!error && (!umf_vmm_manifest_size(manifest->head.files, manifest->head.pages, &expected) ||
                   expected != size)) {
        return refuse();
    }
    if (!error) {
        manifest->size = expected;
        manifest->bytes = umf_meta_alloc(expected);
        error = manifest->bytes ? umf_os_read_at(fd, manifest->bytes, expected, 0) : ENOMEM;
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "reading a list of shared pages failed");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    /* The copy is checked, not the bytes that were read before it. */
    return memcmp(manifest->bytes, &manifest->head, sizeof(manifest->head)) ? refuse()
                                                                            : UMF_RESULT_SUCCESS;
}

static umf_result_t manifest_read(const umf_vmm_handle_t *handle, const umf_board_source_t *source,
                                  manifest_t *manifest) {
    int fd;
    umf_result_t result = umf_ticket_redeem(&handle->piece, &fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_board_check(source, handle->word, handle->generation);
    result = result ? result : read_all(fd, manifest);
    umf_os_close(fd);
    if (result == UMF_RESULT_SUCCESS && !is_right(manifest, handle)) {
        result = refuse();
    }
    return result;
}

/* --- mapping ---------------------------------------------------------------------------------- */

/* The file of the last page, which may be that of the next, too. */
typedef struct opened_file_t {
    uint64_t index;
    int fd; /* -1: none */
} opened_file_t;

static void close_file(opened_file_t *file) {
    if (file->fd >= 0) {
        umf_os_close(file->fd);
        file->fd = -1;
    }
}

static umf_result_t open_file(const umf_vmm_t *vmm, const manifest_t *manifest, uint64_t index,
                              opened_file_t *file) {
    if (file->fd >= 0 && file->index == index) {
        return UMF_RESULT_SUCCESS;
    }
    close_file(file);
    const umf_fd_ticket_t *ticket = ticket_of(manifest, index);
    int fd;
    umf_result_t result =
        vmm->ops->is_device ? umf_ticket_redeem_copy(ticket, &fd) : umf_ticket_redeem(ticket, &fd);
    if (result == UMF_RESULT_SUCCESS) {
        *file = (opened_file_t){index, fd};
    }
    return result;
}

/* The mapping keeps imported memory alive, so the handle to it is released at once. */
static umf_result_t map_page(umf_vmm_t *vmm, uintptr_t at, const umf_vmm_manifest_page_t *page,
                             int fd) {
    umf_physical_t physical;
    size_t size = (size_t)page->size;
    if (vmm->ops->map_file) {
        return vmm->ops->map_file(vmm, at, size, fd, page->offset);
    }
    umf_result_t result = page->offset ? refuse() : vmm->ops->import(vmm, fd, size, &physical);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = vmm->ops->map(vmm, at, size, physical);
    if (vmm->ops->destroy(vmm, physical) != UMF_RESULT_SUCCESS) {
        UMF_LOG_WARN("an opened page of %zu bytes stays with the process", size);
    }
    return result;
}

/* `*end`: so far it is mapped. */
static umf_result_t map_all(umf_vmm_t *vmm, const manifest_t *manifest, uintptr_t *end) {
    opened_file_t file = {.fd = -1};
    umf_result_t result = UMF_RESULT_SUCCESS;
    const umf_vmm_manifest_page_t *page = pages_of(manifest);
    for (uint64_t i = 0; i < manifest->head.pages && result == UMF_RESULT_SUCCESS; i++, page++) {
        result = open_file(vmm, manifest, page->file, &file);
        result = result ? result : map_page(vmm, *end, page, file.fd);
        *end += result == UMF_RESULT_SUCCESS ? (size_t)page->size : 0;
    }
    close_file(&file);
    return result;
}

/* Descriptors may have been closed while they travelled, and be others by now: then the board says
 * that the description is stale. */
static umf_result_t map_checked(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                                const umf_board_source_t *source, const manifest_t *manifest,
                                uintptr_t base) {
    uintptr_t end = base;
    umf_result_t result = map_all(vmm, manifest, &end);
    result = result ? result : umf_board_check(source, handle->word, handle->generation);
    result = result ? result : umf_vmm_allow(vmm, base, end - base);
    if (result != UMF_RESULT_SUCCESS) {
        umf_result_t unmapped = UMF_RESULT_SUCCESS;
        if (end != base && !vmm->ops->unreserve_unmaps) {
            unmapped = vmm->ops->unmap(vmm, base, end - base);
        }
        if (unmapped == UMF_RESULT_SUCCESS) {
            vmm->ops->unreserve(vmm, base, (size_t)handle->piece_size);
        }
    }
    return result;
}

umf_result_t umf_vmm_map_pages(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                               const umf_board_source_t *source, uintptr_t *base) {
    manifest_t manifest = {0};
    umf_result_t result = manifest_read(handle, source, &manifest);
    if (result == UMF_RESULT_SUCCESS) {
        result = vmm->ops->reserve(vmm, (size_t)handle->piece_size, vmm->carve.page_size, base);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = map_checked(vmm, handle, source, &manifest, *base);
    }
    umf_meta_free(manifest.bytes, manifest.size);
    return result;
}
