/*
 * Broker: gives descriptors of this process to others that have a ticket, through a Unix socket.
 *
 * A thread serves the requests; the first export starts it. So a consumer needs no permission
 * towards this process, which the transports that reach into it need. The socket has a random name
 * in the abstract namespace, or in the folder of the setting "umf.ipc.socket_dir" for processes
 * that share a folder but no network namespace. The consumer must belong to the same user or root,
 * and must send the secret of the export. The producer that answers must belong to the same user or
 * root, too. docs/ipc.md has the protocol.
 *
 * A process ends, forks and closes descriptors as if the thread were not there: docs/ipc.md.
 */
#ifndef UMF_SRC_PEER_BROKER_H
#define UMF_SRC_PEER_BROKER_H

#include "peer/transport.h"
#include "system/socket.h"

typedef enum umf_broker_address_kind_t {
    UMF_BROKER_NOWHERE,
    UMF_BROKER_ABSTRACT,
    UMF_BROKER_FOLDER,
} umf_broker_address_kind_t;

/* Starts the broker of this process unless it runs. No lock may be held. false: it cannot run. */
bool umf_broker_start(void);

/* Ends the thread and removes the socket. Exports stay and are served again after
 * the next start. */
void umf_broker_stop(void);

/* Exports a descriptor and completes its ticket. false: there is no broker, or no memory. */
bool umf_broker_export(umf_fd_ticket_t *ticket);
void umf_broker_drop(const umf_fd_ticket_t *ticket);

/* --- settings (broker_address.c) --- */

/* Sets the folder for the next start. "": the abstract namespace. INVALID_ARGUMENT: too long. */
umf_result_t umf_broker_set_folder(const char *path);
umf_result_t umf_broker_get_folder(char *path, size_t size);

/* Whether users other than this one and root may send requests and answers. */
void umf_broker_set_open(bool is_open);
bool umf_broker_is_open(void);

/* The longest time of an exchange in ms. INVALID_ARGUMENT unless 1 to UMF_BROKER_TIMEOUT_MAX. */
#define UMF_BROKER_TIMEOUT_MAX 600000
umf_result_t umf_broker_set_timeout(int ms);
int umf_broker_get_timeout(void);

/* --- the protocol: one message there, one back --- */

#define UMF_BROKER_MAGIC 0x42464d55u /* "UMFB" */
#define UMF_BROKER_VERSION 1

/* Fixed width, no padding. */
typedef struct umf_broker_request_t {
    uint32_t magic;
    uint32_t version;
    uint64_t secret[2];
    uint64_t export_id;
    uint64_t dev, ino; /* the descriptor must still be of that file */
} umf_broker_request_t;

typedef enum umf_broker_status_t {
    UMF_BROKER_GIVEN,  /* the message carries the descriptor */
    UMF_BROKER_DENIED, /* the consumer is another user, or the secret is wrong */
    UMF_BROKER_GONE,   /* no longer exported */
} umf_broker_status_t;

typedef struct umf_broker_reply_t {
    uint32_t magic;
    uint32_t version;
    uint32_t status;
    uint32_t reserved; /* 0 */
} umf_broker_reply_t;

/* Reads a request and answers it. false: it is not complete yet. */
bool umf_broker_serve(int connection);

/* Asks the process at the other end for the ticket's descriptor. 0 or an errno value. */
int umf_broker_ask(int connection, const umf_fd_ticket_t *ticket, uint64_t deadline, int *fd);

#endif
