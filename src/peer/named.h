/*
 * Named: shared memory objects with a name, who owns them, and what crashes leave of them.
 *
 * An object begins with a head that says that it is ours and which process made it, and its maker
 * holds a lock on it that ends with the process. It is an orphan if the lock can be had and the
 * process is gone; one that is not ours, or whose maker cannot be told, is nobody's to remove but
 * its maker's.
 *
 * Who removes an orphan holds its lock and has seen that the name still means it, so that no two
 * remove one after the other what somebody made in between.
 *
 * Base level: includes base and the other base-level files of ipc only, so that providers may use
 * it.
 */
#ifndef UMF_SRC_PEER_NAMED_H
#define UMF_SRC_PEER_NAMED_H

#include "peer/transport.h"

#define UMF_NAMED_MARK UINT64_C(0x324552414853464D) /* "MFSHARE2" */

/* The first bytes of a file behind shared memory; the rest of its first `header_size` bytes is the
 * provider's. */
typedef struct umf_named_head_t {
    uint64_t mark; /* UMF_NAMED_MARK ^ header_size; written last */
    uint64_t boot_id;
    uint64_t start_time;
    uint32_t pid, pid_ns;
} umf_named_head_t;

#define UMF_NAMED_HEADER_MAX ((size_t)1 << 20)

/* Writes this process into the head of a mapped file. */
void umf_named_sign(void *head, size_t header_size);

/* Makes a new, locked object of `header_size` bytes, after an old one of that name was removed. It
 * is signed before it has its name, where the system can do that; a process that is killed
 * meanwhile leaves nothing then. 0 or an errno value, which is in the log. The first time in a
 * process it removes orphans, too. */
int umf_named_create(const char *name, size_t header_size, int *fd);

/* Removes the name if it still means the ticket's file. */
void umf_named_remove(const char *name, const umf_fd_ticket_t *ticket);

/*
 * Opens an object that is the ticket's file. UNKNOWN: there is none of that name;
 * OUT_OF_HOST_MEMORY: no descriptor is left; INVALID_ARGUMENT: out of reach, another object, or an
 * orphan, which is removed.
 */
umf_result_t umf_named_open(const char *name, const umf_fd_ticket_t *ticket, int *fd);

/* Removes all orphans of this user. How many there were; `error` gets 0 or why the folder of names
 * could not be read. */
size_t umf_named_reap(int *error);

/* How many orphans this process has removed. */
size_t umf_named_reaped(void);

#endif
