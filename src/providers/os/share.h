/*
 * Share: the file behind an OS provider's shared memory, on the producer's side.
 *
 * The first pages of the file are a header of 64-bit words. The first words name the kind of the
 * file and the process that made it (peer/named.h). Every other word is one of a board
 * (peer/board.h), with a slot for each exported allocation.
 *
 * ds/range divides the file behind the header. The file grows on demand. Freed ranges are punched
 * out: the system has their memory back, and they read as zero when they are used again.
 *
 * A forked child must not use its parent's file, because both would divide it. See
 * `umf_os_share_is_mine`.
 *
 * The caller locks, except where a comment says otherwise.
 */
#ifndef UMF_SRC_PROVIDERS_OS_SHARE_H
#define UMF_SRC_PROVIDERS_OS_SHARE_H

#include "base/kept_fd.h"
#include "ds/range.h"
#include "peer/board.h"
#include "peer/named.h"
#include "providers/os/handle.h"

#define UMF_OS_SHARE_HEADER_MAX UMF_NAMED_HEADER_MAX
#define UMF_OS_SHARE_FIRST_SLOT ((uint32_t)(sizeof(umf_named_head_t) / sizeof(uint64_t)))

static inline uint64_t umf_os_share_word0(size_t header_size) {
    return UMF_NAMED_MARK ^ header_size;
}

typedef struct umf_os_share_t {
    struct umf_os_share_t *next; /* an older one, inherited through a fork */
    umf_kept_fd_t file;          /* Immutable after create, as all members up to `header_size` */
    int owner;                   /* pid of the process that made it */
    bool secret;
    bool is_limited; /* on a file system that may become full: allocated memory has its space */
    umf_fd_ticket_t ticket;
    char name[UMF_OS_SHM_NAME_MAX + 1]; /* "" for an anonymous file */
    umf_board_t board;                  /* the header */
    size_t header_size;
    umf_range_t *range; /* of offsets */
    uint64_t range_end;
    uint64_t file_size;
} umf_os_share_t;

/* `name`: NULL or "" for an anonymous file. NOT_SUPPORTED: this system forbids such files; UNKNOWN:
 * another failure; OUT_OF_HOST_MEMORY. */
umf_result_t umf_os_share_create(const char *name, umf_os_share_t **share);

/* Ends all exports and removes the name if it still is that of this file. Live allocations keep
 * their memory. */
void umf_os_share_destroy(umf_os_share_t *share);

bool umf_os_share_is_mine(const umf_os_share_t *share);

/* Whether the file is still open: 0, or EBADF with a message. Any other use of the file checks by
 * itself. */
int umf_os_share_check(const umf_os_share_t *share);

/* Maps a range of the file. Returns 0 or an errno value. */
int umf_os_share_map(const umf_os_share_t *share, uint64_t offset, size_t size, size_t alignment,
                     int prot, void **ptr);

/* Takes a range that reads as zero. Returns 0 or an errno value. */
int umf_os_share_take(umf_os_share_t *share, size_t size, uint64_t *offset);

/* Gives the memory of a range that is no longer in use back to the system. Called without the lock.
 * false: the range must not be used again. */
bool umf_os_share_clear(const umf_os_share_t *share, uint64_t offset, size_t size);

/* Frees a cleared range for reuse. */
void umf_os_share_give(umf_os_share_t *share, uint64_t offset);

umf_result_t umf_os_share_split(umf_os_share_t *share, uint64_t offset, size_t total, size_t first);
umf_result_t umf_os_share_merge(umf_os_share_t *share, uint64_t low, uint64_t high, size_t total);

#endif
