/*
 * Transports: how a descriptor travels from the process that owns it to the one that needs it.
 *
 * A table; the transports are tried in the order of a setting. Each one that fails is logged with
 * its reason.
 */
#ifndef UMF_SRC_PEER_TRANSPORT_H
#define UMF_SRC_PEER_TRANSPORT_H

#include "peer/process.h"
#include "system/common.h"

#define UMF_TICKET_VERSION 3

/* Names a descriptor of a running process. Fixed width, no padding; handles contain it. */
typedef struct umf_fd_ticket_t {
    uint64_t boot_id;
    uint64_t start_time; /* identifies one process together with pid and boot */
    uint64_t dev, ino;   /* identity of the file behind the descriptor */
    uint64_t born;       /* distinguishes it from a later file of the same inode; 0: unknown */
    uint32_t pid;
    uint32_t pid_ns; /* the namespace of pid; 0: unknown */
    int32_t fd;
    uint16_t version;
    uint16_t address_kind; /* umf_broker_address_kind_t; 0: there is no broker, and the members
                              below are 0 */
    /* The address of the producer's broker, the secret, and the number of the export. */
    uint64_t broker[2];
    uint64_t secret[2];
    uint64_t export_id;
} umf_fd_ticket_t;

/* Fills a ticket for a descriptor of this process. */
umf_result_t umf_ticket_make(int fd, umf_fd_ticket_t *ticket);

/*
 * Called before a ticket is given to others. Starts the broker of this process, if the settings
 * have one and it does not run yet. No lock may be held, because that allocates. A failure is
 * logged; the other transports work without the broker.
 */
void umf_ticket_prepare(void);

/* Lets the broker give the ticket's descriptor to holders of the ticket. Locks may be held. No
 * effect if there is no broker, or if it was called before. */
void umf_ticket_publish(umf_fd_ticket_t *ticket);

/* Called by the maker of the ticket before it closes the descriptor: no process gets it afterwards.
 */
void umf_ticket_drop(const umf_fd_ticket_t *ticket);

/*
 * Gets a descriptor of this process for the same file; the caller closes it. Its identity is
 * compared with the ticket, so a reused pid or descriptor number is never taken for the right one.
 * INVALID_ARGUMENT: the producer has ended, its pid is reused, it is of another boot, or access is
 * denied; OUT_OF_HOST_MEMORY: no descriptor is left; NOT_SUPPORTED: no transport works on this
 * kernel, or the settings leave none.
 */
umf_result_t umf_ticket_redeem(const umf_fd_ticket_t *ticket, int *fd);

/* The same, but the result is a copy of the very descriptor. Needed where opening the file again
 * would not give the same memory, as for memory of a device. */
umf_result_t umf_ticket_redeem_copy(const umf_fd_ticket_t *ticket, int *fd);

umf_process_t umf_ticket_producer(const umf_fd_ticket_t *ticket);

/* Whether `fd` is open on the ticket's file: 0, or an errno value (ESTALE: another file). */
int umf_ticket_check_file(const umf_fd_ticket_t *ticket, int fd);

/*
 * The transports in use and their order, as in "self,proc". Set: INVALID_ARGUMENT with a message
 * that lists all transports, if a word is unknown, occurs twice, or if there is none. Get:
 * INVALID_ARGUMENT if `size` is too small.
 */
umf_result_t umf_transport_set_order(const char *words);
umf_result_t umf_transport_get_order(char *words, size_t size);

/* One transport. A new one is a file transport_<name>.c and a line in transport.c. */
typedef struct umf_transport_t {
    const char *name;                               /* the word in the setting */
    const char *what;                               /* for messages */
    bool (*applies)(const umf_fd_ticket_t *ticket); /* NULL: always */
    /* 0 or an errno value; ENOSYS: this kernel does not support it. The caller checks the file. */
    int (*redeem)(const umf_fd_ticket_t *ticket, int *fd);
    bool copies; /* it gives the very descriptor, not another one of the same file */
    bool by_pid; /* it uses the pid of the producer, which is valid in its namespace only */
} umf_transport_t;

extern const umf_transport_t umf_transport_self;   /* the same process: a duplicate */
extern const umf_transport_t umf_transport_proc;   /* open again through /proc/<pid>/fd */
extern const umf_transport_t umf_transport_pidfd;  /* pidfd_getfd */
extern const umf_transport_t umf_transport_broker; /* the producer sends it through a socket */

#endif
