/*
 * Transports: how a descriptor travels from the process that owns it to the one that needs it.
 *
 * A table, tried in the order of a setting; each way that failed is said in the log with its
 * reason. Base level: includes base only, so that providers may use it.
 */
#ifndef UMF_SRC_PEER_TRANSPORT_H
#define UMF_SRC_PEER_TRANSPORT_H

#include "peer/process.h"
#include "system/common.h"

#define UMF_TICKET_VERSION 2

/* Names a descriptor of a living process. Fixed width, no padding; travels inside handles. */
typedef struct umf_fd_ticket_t {
    uint64_t boot_id;
    uint64_t start_time; /* with pid and boot: one process */
    uint64_t dev, ino;   /* identity of the file behind the descriptor */
    uint32_t pid;
    uint32_t pid_ns; /* the namespace in which pid holds; 0 if unknown */
    int32_t fd;
    uint16_t version;
    uint16_t place; /* umf_broker_place_t; 0: there is no broker, and what follows is 0 */
    /* Where the broker of the producer is found, what it is to be told, and for which export. */
    uint64_t broker[2];
    uint64_t secret[2];
    uint64_t export_id;
} umf_fd_ticket_t;

/* Fills a ticket for a descriptor of this process. */
umf_result_t umf_ticket_make(int fd, umf_fd_ticket_t *ticket);

/*
 * Before a ticket is given to others: the broker of this process is started, if the settings have
 * one and it does not run yet. Without any lock, because that allocates. What fails is logged; the
 * other ways do without.
 */
void umf_ticket_prepare(void);

/* From now on the broker gives the ticket's descriptor to those who have the ticket. Locks may be
 * held. No effect if there is no broker; again does nothing. */
void umf_ticket_publish(umf_fd_ticket_t *ticket);

/* Before the descriptor is closed, by whoever made the ticket: nobody gets it any more. */
void umf_ticket_drop(const umf_fd_ticket_t *ticket);

/*
 * A descriptor of this process for the same file: the caller closes it. The result's identity is
 * checked against the ticket, so a recycled pid or descriptor number is never mistaken for the
 * right one. INVALID_ARGUMENT: producer gone, recycled, other boot, or denied; OUT_OF_HOST_MEMORY:
 * no descriptor left; NOT_SUPPORTED: no transport works on this kernel, or the settings leave none.
 */
umf_result_t umf_ticket_redeem(const umf_fd_ticket_t *ticket, int *fd);

/* The same, and the result is a copy of the very descriptor: of one that stands for more than a
 * file can be opened anew for, such as memory of a device. */
umf_result_t umf_ticket_redeem_copy(const umf_fd_ticket_t *ticket, int *fd);

umf_process_t umf_ticket_producer(const umf_fd_ticket_t *ticket);

/* Whether `fd` is open on the ticket's file: 0, or an errno value (ESTALE: another file). */
int umf_ticket_check_file(const umf_fd_ticket_t *ticket, int fd);

/*
 * The ways in use and their order, as in "self,proc". Set: INVALID_ARGUMENT, with a message that
 * lists what there is, if a word is unknown or stands twice, or there is none. Get:
 * INVALID_ARGUMENT if `size` is too small.
 */
umf_result_t umf_transport_set_order(const char *words);
umf_result_t umf_transport_get_order(char *words, size_t size);

/* One way. A new one is a file transport_<name>.c and a line in transport.c. */
typedef struct umf_transport_t {
    const char *name;                               /* in the setting */
    const char *what;                               /* for people */
    bool (*applies)(const umf_fd_ticket_t *ticket); /* NULL: always */
    /* 0 or an errno value; ENOSYS: this kernel has no such way. The caller checks the file. */
    int (*redeem)(const umf_fd_ticket_t *ticket, int *fd);
    bool copies; /* the very descriptor, not another one of the same file */
    bool by_pid; /* by the number of the producer, which holds in its namespace only */
} umf_transport_t;

extern const umf_transport_t umf_transport_self;   /* the same process: a duplicate */
extern const umf_transport_t umf_transport_proc;   /* open again through /proc/<pid>/fd */
extern const umf_transport_t umf_transport_pidfd;  /* pidfd_getfd */
extern const umf_transport_t umf_transport_broker; /* the producer sends it through a socket */

#endif
