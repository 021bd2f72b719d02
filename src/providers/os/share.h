/*
 * Share: the file behind an OS provider's shared memory, on the side that made it.
 *
 * Its first pages are a header of 64-bit words. The first ones say what the file is and who made it
 * (peer/named.h). Every other word is a slot: while an allocation that was exported lives, its slot
 * holds a number that no other allocation of the file ever had; it is cleared before the memory can
 * be used again. So whoever holds a description of the memory can tell with one load whether it
 * still means the same memory.
 *
 * Behind the header the file is divided by ds/range. It grows on demand; freed ranges are punched
 * out, so the system has their memory back and they read as zero when they are used again.
 *
 * A child of a fork must not use its parent's file: both would divide it. See
 * `umf_os_share_is_mine`.
 *
 * The caller locks, except where told.
 */
#ifndef UMF_SRC_PROVIDERS_OS_SHARE_H
#define UMF_SRC_PROVIDERS_OS_SHARE_H

#include "ds/range.h"
#include "peer/named.h"
#include "providers/os/handle.h"

#define UMF_OS_SHARE_HEADER_MAX UMF_NAMED_HEADER_MAX
#define UMF_OS_SHARE_FIRST_SLOT ((uint32_t)(sizeof(umf_named_head_t) / sizeof(uint64_t)))

static inline uint64_t umf_os_share_word0(size_t header_size) {
    return UMF_NAMED_MARK ^ header_size;
}

typedef struct umf_os_share_t {
    struct umf_os_share_t *next; /* an older one, inherited through a fork */
    int fd;                      /* Immutable after create, as all up to `header_size` */
    int owner;                   /* process that made it */
    bool secret;
    bool reserves; /* what is taken gets space at once, if the file is not of memfd_create */
    umf_fd_ticket_t ticket;
    char name[UMF_OS_SHM_NAME_MAX + 1]; /* "" for an anonymous file */
    uint64_t *header;                   /* mapped, shared with consumers. Sync: atomic */
    size_t header_size;
    uint32_t slots_used, slot_last;
    uint64_t generation_last;
    umf_range_t *range; /* of offsets */
    uint64_t range_end;
    uint64_t file_size;
} umf_os_share_t;

/* `name`: NULL or "" for an anonymous file. NOT_SUPPORTED if nothing of the kind can be made here,
 * UNKNOWN if making it failed otherwise, OUT_OF_HOST_MEMORY. */
umf_result_t umf_os_share_create(const char *name, umf_os_share_t **share);

/* Exports end, the name goes if it is still this file's. Live allocations keep their memory. */
void umf_os_share_destroy(umf_os_share_t *share);

bool umf_os_share_is_mine(const umf_os_share_t *share);

/* A range that reads as zero. 0 or an errno value. */
int umf_os_share_take(umf_os_share_t *share, size_t size, uint64_t *offset);

/* Gives the memory of a range, which nobody may use any more, back to the system. Without the lock.
 * false: the range must not be used again. */
bool umf_os_share_clear(const umf_os_share_t *share, uint64_t offset, size_t size);

/* Makes a cleared range available again. */
void umf_os_share_give(umf_os_share_t *share, uint64_t offset);

umf_result_t umf_os_share_split(umf_os_share_t *share, uint64_t offset, size_t total, size_t first);
umf_result_t umf_os_share_merge(umf_os_share_t *share, uint64_t low, uint64_t high, size_t total);

/* A slot with a new generation. OUT_OF_RESOURCES if all are taken. */
umf_result_t umf_os_share_claim_slot(umf_os_share_t *share, uint32_t *slot, uint64_t *generation);
bool umf_os_share_slot_is_live(const umf_os_share_t *share, uint32_t slot, uint64_t generation);
/* From now on nobody opens the allocation. No effect if the slot is not (any more) that
 * generation's. */
void umf_os_share_retire_slot(umf_os_share_t *share, uint32_t slot, uint64_t generation);

#endif
