/*
 * Named: shared memory objects with a name, their owners, and orphans of crashes.
 *
 * An object begins with a head that marks it as ours and names the process that made it. That
 * process holds a lock on it, which ends with the process. An object is an orphan if its lock is
 * free and its process has ended. Only its maker may remove an object that is not ours or whose
 * maker is unknown.
 *
 * A process that removes an orphan holds its lock and has checked that the name still belongs to
 * it. So a second process cannot remove a new object of the same name by mistake.
 */
#ifndef UMF_SRC_PEER_NAMED_H
#define UMF_SRC_PEER_NAMED_H

#include "peer/transport.h"

#define UMF_NAMED_MARK UINT64_C(0x324552414853464D) /* "MFSHARE2" */

/* The first bytes of a file of shared memory. The rest of its first `header_size` bytes belongs to
 * the provider. */
typedef struct umf_named_head_t {
    uint64_t mark; /* UMF_NAMED_MARK ^ header_size; written last */
    uint64_t boot_id;
    uint64_t start_time;
    uint32_t pid, pid_ns;
} umf_named_head_t;

#define UMF_NAMED_HEADER_MAX ((size_t)1 << 20)

/* Writes this process into the head of a mapped file. */
void umf_named_sign(void *head, size_t header_size);

/* Removes an old object of that name, then makes a new, locked one of `header_size` bytes. Where
 * the system can do that, it is signed before it gets its name, so that a process that is killed
 * meanwhile leaves nothing behind. Returns 0 or an errno value, which was logged. The first call in
 * a process also removes orphans. */
int umf_named_create(const char *name, size_t header_size, int *fd);

/* Removes the name if it still belongs to the ticket's file. */
void umf_named_remove(const char *name, const umf_fd_ticket_t *ticket);

/*
 * Opens the object if it is the ticket's file. UNKNOWN: there is none of that name;
 * OUT_OF_HOST_MEMORY: no descriptor is left; INVALID_ARGUMENT: out of reach, another object, or an
 * orphan, which is removed.
 */
umf_result_t umf_named_open(const char *name, const umf_fd_ticket_t *ticket, int *fd);

/* Removes all orphans of this user and returns their number. `*error` gets 0, or the reason why the
 * folder of names cannot be read. */
size_t umf_named_reap(int *error);

/* The number of orphans that this process has removed. */
size_t umf_named_reaped(void);

#endif
