/* Boards of other processes. */
#include "providers/vmm/source.h"

#include <sys/mman.h>

#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "providers/vmm/vmm.h"
#include "system/os.h"

static umf_result_t source_map(const umf_fd_ticket_t *ticket, int fd, const uint64_t **words) {
    uint64_t dev, ino, size;
    void *made = NULL;
    int error = umf_os_file_id(fd, &dev, &ino, &size);
    if (!error && (size != UMF_VMM_BOARD_SIZE || umf_memory_file_check(fd) != 0)) {
        UMF_LOG_ERROR("descriptor %d of process %u is not what the description says", ticket->fd,
                      ticket->pid);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!error) {
        error = umf_os_map(&made, UMF_VMM_BOARD_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "opening the file that tells which descriptions still hold failed");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *words = made;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t source_create(const umf_fd_ticket_t *ticket, umf_vmm_source_t **result) {
    umf_vmm_source_t *source = umf_meta_alloc(sizeof(*source));
    if (!source) {
        UMF_LOG_ERROR("no memory to open shared memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *source = (umf_vmm_source_t){.refs = 1, .dev = ticket->dev, .ino = ticket->ino};
    int fd;
    umf_result_t made = umf_ticket_redeem(ticket, &fd);
    if (made == UMF_RESULT_SUCCESS) {
        made = source_map(ticket, fd, &source->words);
        umf_os_close(fd);
    }
    if (made != UMF_RESULT_SUCCESS) {
        umf_meta_free(source, sizeof(*source));
        return made;
    }
    *result = source;
    return UMF_RESULT_SUCCESS;
}

static void source_destroy(umf_vmm_source_t *source) {
    umf_os_unmap((void *)(uintptr_t)source->words, UMF_VMM_BOARD_SIZE);
    umf_meta_free(source, sizeof(*source));
}

/* Device and inode identify the board: they are not reused while the file is mapped. */
umf_vmm_source_t *umf_vmm_source_find_locked(const umf_vmm_t *vmm, const umf_fd_ticket_t *ticket) {
    umf_vmm_source_t *source = vmm->imports.sources;
    while (source && (source->dev != ticket->dev || source->ino != ticket->ino)) {
        source = source->next;
    }
    return source;
}

/* The known source of the board with one more use, else `made`, which becomes known. NULL if there
 * is neither. */
static umf_vmm_source_t *source_join(umf_vmm_t *vmm, const umf_fd_ticket_t *ticket,
                                     umf_vmm_source_t *made) {
    umf_lock(&vmm->carve.lock);
    umf_vmm_source_t *source = umf_vmm_source_find_locked(vmm, ticket);
    if (source) {
        source->refs++;
    } else if (made) {
        made->next = vmm->imports.sources;
        vmm->imports.sources = made;
        source = made;
    }
    umf_unlock(&vmm->carve.lock);
    return source;
}

umf_result_t umf_vmm_source_get(umf_vmm_t *vmm, const umf_fd_ticket_t *ticket,
                                umf_vmm_source_t **result) {
    umf_vmm_source_t *source = source_join(vmm, ticket, NULL);
    if (!source) {
        umf_vmm_source_t *made;
        umf_result_t created = source_create(ticket, &made);
        if (created != UMF_RESULT_SUCCESS) {
            return created;
        }
        source = source_join(vmm, ticket, made);
        if (source != made) {
            source_destroy(made);
        }
    }
    *result = source;
    return UMF_RESULT_SUCCESS;
}

void umf_vmm_source_hold(umf_vmm_t *vmm, umf_vmm_source_t *source) {
    umf_lock(&vmm->carve.lock);
    source->refs++;
    umf_unlock(&vmm->carve.lock);
}

void umf_vmm_source_put(umf_vmm_t *vmm, umf_vmm_source_t *source) {
    umf_lock(&vmm->carve.lock);
    bool is_last = --source->refs == 0;
    if (is_last) {
        umf_vmm_source_t **link = &vmm->imports.sources;
        while (*link != source) {
            link = &(*link)->next;
        }
        *link = source->next;
    }
    umf_unlock(&vmm->carve.lock);
    if (is_last) {
        source_destroy(source);
    }
}

umf_result_t umf_vmm_source_check(const umf_vmm_source_t *source, const umf_vmm_handle_t *handle) {
    uint64_t now = __atomic_load_n(&source->words[handle->word], __ATOMIC_ACQUIRE);
    if (now != handle->generation) {
        UMF_LOG_ERROR("the producer has freed the memory that was described, or suspended its pool "
                      "since: ask it for a new handle");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}
