/*
 * Vmm: the common part of the providers of virtual memory (linux_vmm, cuda_vmm, level_zero_vmm).
 * They manage addresses and physical memory separately: physical memory can be given back while its
 * addresses stay reserved, and be mapped there again later.
 *
 * A *piece* is one range of addresses with one handle to physical memory. Allocations are cut out
 * of pieces and never cross them. A piece goes back to the system when its last allocation is
 * freed. Until then memory freed in it is reused.
 *
 * The back end supplies a few operations; everything else is written once: vmm.c, pieces.c for
 * detaching and attaching physical memory, pending.c for memory that queued work still uses,
 * ranges.c for pools that place pages themselves, show.c for memory that is mapped read-only,
 * share.c, import.c and paged.c for other processes, ops.c for the tables.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_VMM_H
#define UMF_SRC_PROVIDERS_VMM_VMM_H

#include <umf/plugin.h>

#include "base/lock.h"
#include "base/native.h"
#include "ctl/field.h"
#include "providers/shared/carve.h"
#include "providers/vmm/import.h"
#include "providers/vmm/share.h"
#include "system/atomic.h"

typedef uint64_t umf_physical_t; /* the back end's handle */

/*
 * `backend` is the provider, whose state begins with its umf_vmm_t. Results are those of the
 * provider's operations; the back end has logged the cause. Sizes are multiples of the granularity.
 * No lock is held.
 */
typedef struct umf_vmm_backend_t {
    umf_result_t (*reserve)(void *backend, size_t size, size_t alignment, uintptr_t *base);
    umf_result_t (*unreserve)(void *backend, uintptr_t base, size_t size);
    umf_result_t (*create)(void *backend, size_t size, umf_physical_t *physical);
    umf_result_t (*destroy)(void *backend, umf_physical_t physical);
    /* Maps all of `physical` at `base`. The mapping has access unless there is `allow`. */
    umf_result_t (*map)(void *backend, uintptr_t base, size_t size, umf_physical_t physical);
    /* NULL, or gives access to what adjacent calls of map mapped. The call is costly on some
     * devices, whatever the size. */
    umf_result_t (*allow)(void *backend, uintptr_t base, size_t size);
    /* Unmaps what one or more adjacent calls of map mapped. */
    umf_result_t (*unmap)(void *backend, uintptr_t base, size_t size);
    /* Of a failure of this thread with another result than the two out-of results: is memory
     * missing? NULL: never. */
    int (*is_shortage)(void *backend, umf_result_t result);
    /* NULL, or waits until no work queued on a device so far can use memory of the provider. Called
     * once before a group of freed pieces is unmapped. A failure: waiting is not possible now, and
     * the memory stays mapped until it is. */
    umf_result_t (*settle)(void *backend);
    /* NULL, or the same without a wait: marks the work queued so far. OUT_OF_RESOURCES: not
     * possible now. NOT_SUPPORTED: only settle is. */
    umf_result_t (*mark)(void *backend, void **mark);
    /* Asks whether a mark has passed, or waits until it has. true: it has, and is ended. */
    bool (*mark_completed)(void *backend, void *mark, bool waits);

    /* Ranges. The bytes of physical memory that there are at all; NULL: no ranges. */
    umf_result_t (*memory)(void *backend, size_t *bytes);
    /* As create, destroy and map, of pages; NULL: these are used. A back end that takes pages by
     * thousands may have a cheaper way. */
    umf_result_t (*create_page)(void *backend, size_t size, umf_physical_t *physical);
    umf_result_t (*destroy_page)(void *backend, size_t size, umf_physical_t physical);
    umf_result_t (*map_page)(void *backend, uintptr_t base, size_t size, umf_physical_t physical);

    /* NULL, or the file that has the page, and where; it stays the back end's. NULL: a page has a
     * descriptor of its own, by export_fd. */
    umf_result_t (*page_file)(void *backend, umf_physical_t physical, int *fd, uint64_t *offset);
    /* With page_file: maps a part of such a file of another process, where addresses are reserved.
     */
    umf_result_t (*map_file)(void *backend, uintptr_t base, size_t size, int fd, uint64_t offset);

    /* Sharing. export_fd makes a new descriptor of physical memory. import gives the memory behind
     * a descriptor, which stays the caller's; INVALID_ARGUMENT if it is not `size` bytes. */
    umf_result_t (*export_fd)(void *backend, umf_physical_t physical, int *fd);
    umf_result_t (*import)(void *backend, int fd, size_t size, umf_physical_t *physical);
    /* NULL, or maps the memory behind a descriptor read-only, where addresses are reserved. */
    umf_result_t (*show)(void *backend, uintptr_t base, size_t size, int fd);
    /* Of devices, without show: as allow, for reading only; and whether physical memory is of the
     * device with this id. INVALID_ARGUMENT: it is not. `number`: of the device of memory that was;
     * -1: none was yet. */
    umf_result_t (*allow_read)(void *backend, uintptr_t base, size_t size);
    umf_result_t (*check)(void *backend, umf_physical_t physical, const unsigned char *id,
                          int *number);
    /* NULL, or sharing by tokens instead of descriptors: bytes that name physical memory. */
    umf_result_t (*export_token)(void *backend, umf_physical_t physical, unsigned char *token);
    umf_result_t (*import_token)(void *backend, const unsigned char *token, size_t size,
                                 umf_physical_t *physical);
    /* Without export_fd and export_token: the result of all sharing operations, and the
     * text to log. */
    umf_result_t private_result;
    const char *private_text;
    bool unmaps_one;       /* one call of unmap undoes one call of map only */
    bool unreserve_unmaps; /* unreserve takes addresses that are still mapped */
    uint16_t kind;         /* identifies the back end in descriptions */
    bool is_device;        /* opening the file of a descriptor again does not give the memory */
    bool is_boardless; /* tokens without a board: a consumer need not reach the producer, and cannot
                          check whether a description is still valid */
} umf_vmm_backend_t;

typedef struct umf_vmm_piece_t umf_vmm_piece_t;

struct umf_vmm_t {
    /* The back end's own, so that operations for all kinds over its driver find it at the start of
     * a provider's state. */
    _Alignas(16) char head[64];
    const umf_vmm_backend_t *ops; /* Immutable after init, as all members without a note */
    size_t piece_size;            /* smallest piece made for an allocation */
    umf_carve_t carve;            /* of all pieces; its pages are the granularity */
    umf_vmm_piece_t **pieces;     /* by address. Sync: carve.lock, as all members below */
    size_t piece_count, piece_room;
    size_t found;                      /* the index of the piece of the last query; only a hint */
    umf_vmm_piece_t *retired;          /* without allocations, still mapped */
    struct umf_vmm_pending_t *pending; /* the same behind marks, oldest first: pending.c */
    _Atomic(unsigned) finishing;       /* a thread finishes them; see pending.c */
    struct umf_vmm_ranges_t *ranges;   /* addresses that pools have reserved: ranges.c */
    struct umf_vmm_left_t *left;       /* that the driver has not taken back: ranges.c */
    size_t batches;  /* batches of frees in progress: retired pieces wait for their end */
    size_t resident; /* bytes with physical memory */
    size_t reserved; /* bytes of addresses */
    umf_vmm_share_t share;
    umf_vmm_imports_t imports;
};

/* `vmm` is zeroed but for its head; `granularity` is a power of two; `piece_size` is rounded up to
 * it. */
umf_result_t umf_vmm_init(umf_vmm_t *vmm, const umf_vmm_backend_t *ops, size_t granularity,
                          size_t piece_size);
/* Releases all pieces. */
void umf_vmm_fini(umf_vmm_t *vmm);

/* Maps all of `physical` at `base` and gives access. `*is_mapped`: it is mapped afterwards, which
 * it may be after a failure, too. */
umf_result_t umf_vmm_map(umf_vmm_t *vmm, uintptr_t base, size_t size, umf_physical_t physical,
                         bool *is_mapped);
/* Unmaps, if `is_mapped`, and gives the addresses back. If unmapping fails the addresses stay
 * mapped and reserved. */
umf_result_t umf_vmm_unmap(umf_vmm_t *vmm, uintptr_t base, size_t size, bool is_mapped);

/* The operations of a provider, whose state begins with its umf_vmm_t. */
umf_result_t umf_vmm_alloc(void *provider, size_t size, size_t alignment, void **ptr);
umf_result_t umf_vmm_free(void *provider, void *ptr, size_t size);
umf_result_t umf_vmm_free_batch(void *provider, int begins);
umf_result_t umf_vmm_free_pending(void *provider, int may_block, size_t *left);
umf_result_t umf_vmm_split(void *provider, void *ptr, size_t total, size_t first);
umf_result_t umf_vmm_merge(void *provider, void *low, void *high, size_t total);

/* Those of the extension (umf/plugin.h): pieces.c. */
umf_result_t umf_vmm_find(void *provider, const void *ptr, umf_vm_piece_t *piece);
umf_result_t umf_vmm_run(void *provider, const void *ptr, umf_vm_piece_t *piece, uint64_t *handle,
                         uint64_t *generation);
umf_result_t umf_vmm_detach(void *provider, void *const *pieces, size_t count);
umf_result_t umf_vmm_create(void *provider, void *const *pieces, size_t count, size_t *missing);
umf_result_t umf_vmm_attach(void *provider, void *const *pieces, size_t count);
umf_result_t umf_vmm_claim(void *provider, void *const *pieces, const size_t *allocations,
                           size_t count, int *claimed);
umf_result_t umf_vmm_release(void *provider, void *const *pieces, size_t count);
umf_result_t umf_vmm_give(void *provider, const void *ptr, int *fd, size_t *size);
umf_result_t umf_vmm_take(void *provider, void *piece, int fd, size_t size, int is_writable);

/* Memory that is mapped read-only: show.c. `id`: of its device; NULL: it is not checked. */
umf_result_t umf_vmm_show(void *provider, void *at, const int *fds, const size_t *sizes,
                          size_t count, const unsigned char *id);
umf_result_t umf_vmm_share(void *provider, void *at, int fd, size_t size, const unsigned char *id);
umf_result_t umf_vmm_hide(void *provider, void *at, size_t size);
umf_result_t umf_vmm_drop(void *provider, void *piece, size_t size);

/* Those for pools that place pages: ranges.c. */
umf_result_t umf_vmm_range_reserve(void *provider, size_t *size, size_t *granularity, void **base);
umf_result_t umf_vmm_range_release(void *provider, void *base, size_t size);
umf_result_t umf_vmm_page_create(void *provider, umf_vm_page_t *page);
umf_result_t umf_vmm_page_destroy(void *provider, const umf_vm_page_t *page);
umf_result_t umf_vmm_page_map(void *provider, void *ptr, const umf_vm_page_t *pages, size_t count);
umf_result_t umf_vmm_page_unmap(void *provider, void *ptr, size_t size);
umf_result_t umf_vmm_mark_all(void *provider, void **mark);
int umf_vmm_mark_all_wait(void *provider, void *mark, int may_block);
/* Is the address in a range? */
bool umf_vmm_is_in_range(umf_vmm_t *vmm, const void *ptr);

/*
 * Describes the allocation at `ptr` for other processes. INVALID_ARGUMENT: not an allocation of
 * that size; OUT_OF_RESOURCES: it has no physical memory at present, or too many are described. The
 * other IPC operations are in share.h and import.h.
 */
umf_result_t umf_vmm_get_handle(void *provider, const void *ptr, size_t size, void *data);

#endif
