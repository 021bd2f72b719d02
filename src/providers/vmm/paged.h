/*
 * Vmm_paged: memory in pages of a range (ranges.c) in other processes.
 *
 * A block lies on many pages, each with a descriptor of its own, or a place in a file of many. So a
 * description names a file that lists them, the manifest, and where the block begins on them. It is
 * valid until the pool ends it: it has a word of the board, as other descriptions (share.h).
 */
#ifndef UMF_SRC_PROVIDERS_VMM_PAGED_H
#define UMF_SRC_PROVIDERS_VMM_PAGED_H

#include <umf/plugin.h>

#include "providers/vmm/handle.h"

/* A manifest is this, then the tickets of its files, then its pages in their order. Fixed width,
 * without padding. */
typedef struct umf_vmm_manifest_t {
    uint64_t files, pages;
} umf_vmm_manifest_t;

typedef struct umf_vmm_manifest_page_t {
    uint64_t file; /* index of its ticket */
    uint64_t offset, size;
} umf_vmm_manifest_page_t;

/* A longer one is refused: 64 MiB list 2.8 million pages. */
#define UMF_VMM_MANIFEST_MAX ((size_t)64 << 20)

/* false: no manifest is so long. */
static inline bool umf_vmm_manifest_size(uint64_t files, uint64_t pages, size_t *size) {
    if (files > pages || pages > UMF_VMM_MANIFEST_MAX / sizeof(umf_vmm_manifest_page_t)) {
        return false;
    }
    *size = sizeof(umf_vmm_manifest_t) + (size_t)files * sizeof(umf_fd_ticket_t) +
            (size_t)pages * sizeof(umf_vmm_manifest_page_t);
    return *size <= UMF_VMM_MANIFEST_MAX;
}

/* Operations of the provider: see umf/plugin.h. */
umf_result_t umf_vmm_range_get_handle(void *provider, const void *ptr, size_t size,
                                      const umf_vm_page_t *pages, size_t count, size_t offset,
                                      void *data);
umf_result_t umf_vmm_range_end_handle(void *provider, const void *ptr);
/* Ends all. */
void umf_vmm_paged_fini(umf_vmm_t *vmm);

/* The consumer's side: maps the pages of a description, side by side, at `*base`. */
umf_result_t umf_vmm_map_pages(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                               const umf_board_source_t *source, uintptr_t *base);

#endif
