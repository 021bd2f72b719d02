/* Vmm_paged: the producer's side. */
#include "providers/vmm/paged.h"

#include <fcntl.h>
#include <string.h>

#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "peer/process.h"
#include "providers/vmm/own.h"

typedef struct paged_file_t {
    umf_fd_ticket_t ticket;
    umf_kept_fd_t descriptor; /* of one page; a file of many pages is the back end's */
    int number;
} paged_file_t;

/* A described block. Sync: the lock of its provider. */
typedef struct paged_t {
    umf_vmm_piece_share_t share; /* its descriptor is the manifest */
    uint32_t pid;                /* that made it. Immutable, as all members below */
    umf_vmm_location_t location;
    size_t room, file_count;
    paged_file_t files[];
} paged_t;

static size_t paged_bytes(size_t room) {
    return sizeof(paged_t) + room * sizeof(paged_file_t);
}

/* The descriptors cannot be redeemed afterwards. */
static void paged_free(paged_t *paged) {
    for (size_t i = 0; i < paged->file_count; i++) {
        umf_ticket_drop(&paged->files[i].ticket);
        umf_kept_fd_close(&paged->files[i].descriptor);
    }
    umf_meta_free(paged, paged_bytes(paged->room));
}

/* --- files ------------------------------------------------------------------------------------ */

/* The descriptor of a page; `*is_new`: it is the caller's. */
static umf_result_t page_descriptor(umf_vmm_t *vmm, umf_physical_t physical, int *fd,
                                    uint64_t *offset, bool *is_new) {
    *is_new = !vmm->ops->page_file;
    *offset = 0;
    return *is_new ? vmm->ops->export_fd(vmm, physical, fd)
                   : vmm->ops->page_file(vmm, physical, fd, offset);
}

static bool paged_has_file(const paged_t *paged, int number, size_t *index) {
    for (*index = 0; *index < paged->file_count; (*index)++) {
        if (paged->files[*index].number == number) {
            return true;
        }
    }
    return false;
}

static umf_result_t paged_add_file(paged_t *paged, int fd, bool is_new) {
    paged_file_t *file = &paged->files[paged->file_count];
    *file = (paged_file_t){.number = fd};
    umf_result_t result = umf_ticket_make(fd, &file->ticket);
    if (result != UMF_RESULT_SUCCESS) {
        if (is_new) {
            umf_os_close(fd);
        }
        return result;
    }
    if (is_new && umf_kept_fd_take(&file->descriptor, fd) != 0) {
        UMF_LOG_ERROR("the descriptor of shared memory cannot be identified");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_ticket_publish(&file->ticket);
    paged->file_count++;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t paged_add_page(umf_vmm_t *vmm, paged_t *paged, const umf_vm_page_t *page,
                                   umf_vmm_manifest_page_t *entry) {
    int fd;
    bool is_new;
    size_t index = paged->file_count;
    *entry = (umf_vmm_manifest_page_t){.size = page->size};
    umf_result_t result = page_descriptor(vmm, page->id, &fd, &entry->offset, &is_new);
    if (result == UMF_RESULT_SUCCESS && (is_new || !paged_has_file(paged, fd, &index))) {
        result = paged_add_file(paged, fd, is_new);
    }
    entry->file = index;
    return result;
}

/* --- the manifest ----------------------------------------------------------------------------- */

static int manifest_write(int fd, const void *bytes, size_t size) {
    int error = umf_os_truncate(fd, size);
    error = error ? error : umf_os_write_at(fd, bytes, size, 0);
    return error ? error : umf_memory_file_seal(fd, UMF_OS_SEALS | F_SEAL_GROW | F_SEAL_WRITE);
}

static umf_result_t manifest_make(paged_t *paged, const umf_vmm_manifest_page_t *pages,
                                  size_t count, int *fd) {
    size_t size, tickets = sizeof(umf_vmm_manifest_t);
    if (!umf_vmm_manifest_size(paged->file_count, count, &size)) {
        UMF_LOG_ERROR("%zu pages are too many to be shared at once", count);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    char *bytes = umf_meta_alloc(size);
    int error = bytes ? umf_memory_file("umf_pages", fd) : ENOMEM;
    if (!error) {
        memcpy(bytes, &(umf_vmm_manifest_t){paged->file_count, count}, tickets);
        for (size_t i = 0; i < paged->file_count; i++, tickets += sizeof(umf_fd_ticket_t)) {
            memcpy(bytes + tickets, &paged->files[i].ticket, sizeof(umf_fd_ticket_t));
        }
        memcpy(bytes + tickets, pages, count * sizeof(*pages));
        error = manifest_write(*fd, bytes, size);
        if (error) {
            umf_os_close(*fd);
        }
    }
    umf_meta_free(bytes, size);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "writing a list of %zu shared pages failed", count);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t paged_fill(umf_vmm_t *vmm, paged_t *paged, const umf_vm_page_t *pages,
                               size_t count, int *fd) {
    umf_vmm_manifest_page_t *entries = umf_meta_alloc(count * sizeof(*entries));
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (!entries) {
        UMF_LOG_ERROR("no memory to share %zu pages", count);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    for (size_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        result = paged_add_page(vmm, paged, &pages[i], &entries[i]);
        paged->location.piece_size += pages[i].size;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = manifest_make(paged, entries, count, fd);
    }
    umf_meta_free(entries, count * sizeof(*entries));
    return result;
}

/* --- described blocks ------------------------------------------------------------------------- */

/* A forked child makes descriptions of its own. */
static paged_t *paged_find_locked(umf_vmm_t *vmm, uintptr_t base) {
    paged_t *paged = umf_hash_get(&vmm->share.paged, base);
    return paged && paged->pid == umf_process_pid() ? paged : NULL;
}

static paged_t *paged_take_locked(umf_vmm_t *vmm, uintptr_t base) {
    paged_t *paged = umf_hash_remove(&vmm->share.paged, base);
    if (paged) {
        umf_vmm_share_drop_piece_locked(&vmm->share, &paged->share);
    }
    return paged;
}

/* Describes the block, unless another thread has done so. */
static umf_result_t paged_enter(umf_vmm_t *vmm, paged_t *mine, int fd, void *data) {
    uintptr_t base = mine->location.base;
    umf_lock(&vmm->carve.lock);
    paged_t *old = paged_find_locked(vmm, base) ? mine : paged_take_locked(vmm, base);
    umf_result_t result = umf_vmm_share_take_locked(&mine->share, fd);
    if (result == UMF_RESULT_SUCCESS && old != mine &&
        !umf_hash_put(&vmm->share.paged, base, mine)) {
        UMF_LOG_ERROR("no memory to share %p", (void *)base);
        result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    paged_t *paged = paged_find_locked(vmm, base);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_vmm_share_describe_locked(vmm, &paged->share, &paged->location, data);
    }
    bool is_used = result == UMF_RESULT_SUCCESS && paged == mine;
    if (!is_used) {
        if (paged == mine) {
            umf_hash_remove(&vmm->share.paged, base);
        }
        umf_vmm_share_drop_piece_locked(&vmm->share, &mine->share);
    }
    umf_unlock(&vmm->carve.lock);
    if (old && old != mine) {
        paged_free(old);
    }
    if (!is_used) {
        paged_free(mine);
    }
    return result;
}

static umf_result_t describe_known(umf_vmm_t *vmm, uintptr_t base, void *data, bool *is_known) {
    umf_lock(&vmm->carve.lock);
    paged_t *paged = paged_find_locked(vmm, base);
    *is_known = paged != NULL;
    umf_result_t result =
        paged ? umf_vmm_share_describe_locked(vmm, &paged->share, &paged->location, data)
              : UMF_RESULT_SUCCESS;
    umf_unlock(&vmm->carve.lock);
    return result;
}

static umf_result_t check_pages(const umf_vmm_t *vmm) {
    umf_result_t result = umf_vmm_check_share(vmm);
    if (result == UMF_RESULT_SUCCESS && !vmm->ops->export_fd) {
        UMF_LOG_ERROR("pages of an arena are shared by descriptors only: set share=fd");
        result = UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return result;
}

umf_result_t umf_vmm_range_get_handle(void *provider, const void *ptr, size_t size,
                                      const umf_vm_page_t *pages, size_t count, size_t offset,
                                      void *data) {
    umf_vmm_t *vmm = provider;
    bool is_known = false;
    int fd = -1;
    umf_result_t result = check_pages(vmm);
    if (result == UMF_RESULT_SUCCESS && count == 0) {
        umf_ticket_prepare();
        return result;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = describe_known(vmm, (uintptr_t)ptr, data, &is_known);
    }
    if (result != UMF_RESULT_SUCCESS || is_known) {
        return result;
    }
    paged_t *made = umf_meta_alloc(paged_bytes(count));
    if (!made) {
        UMF_LOG_ERROR("no memory to share %zu pages", count);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_list_init(&made->share.exports);
    made->room = count;
    made->pid = umf_process_pid();
    made->location = (umf_vmm_location_t){
        .base = (uintptr_t)ptr, .size = size, .offset = offset, .is_paged = true};
    result = paged_fill(vmm, made, pages, count, &fd);
    if (result != UMF_RESULT_SUCCESS) {
        paged_free(made);
        return result;
    }
    return paged_enter(vmm, made, fd, data);
}

umf_result_t umf_vmm_range_end_handle(void *provider, const void *ptr) {
    umf_vmm_t *vmm = provider;
    umf_lock(&vmm->carve.lock);
    paged_t *paged = paged_take_locked(vmm, (uintptr_t)ptr);
    umf_unlock(&vmm->carve.lock);
    if (paged) {
        paged_free(paged);
    }
    return UMF_RESULT_SUCCESS;
}

static void paged_end(uint64_t base, void *value, void *arg) {
    umf_vmm_t *vmm = arg;
    paged_t *paged = value;
    (void)base;
    umf_lock(&vmm->carve.lock);
    umf_vmm_share_drop_piece_locked(&vmm->share, &paged->share);
    umf_unlock(&vmm->carve.lock);
    paged_free(paged);
}

void umf_vmm_paged_fini(umf_vmm_t *vmm) {
    umf_hash_each(&vmm->share.paged, paged_end, vmm);
    umf_hash_fini(&vmm->share.paged);
}
