/*
 * Attach socket: where other programs of the same user, and of root, find this process by its
 * number, to look at it (docs/ipc.md). The broker (peer/broker.h) is found only by those who have a
 * handle.
 *
 * A socket in the abstract namespace and a thread, which are there from the moment the attach
 * socket is opened. The thread serves one request at a time: the broker has a thread of its own, so
 * nobody who shares memory waits for an inspector.
 */
#ifndef UMF_SRC_PEER_ATTACH_SOCKET_H
#define UMF_SRC_PEER_ATTACH_SOCKET_H

#include "system/common.h"

#define UMF_ATTACH_CLIENTS 8u /* connections at a time */

/* Both are called by the attach socket's thread, with no lock held. */
typedef struct umf_attach_socket_ops_t {
    /* Something may have arrived: reads one message and answers. false: the connection is to be
     * closed. */
    bool (*serve)(unsigned client, int connection);
    /* The connection of this client is closed now. */
    void (*leaves)(unsigned client);
    /* Tells a process why it may not come in. */
    void (*refuse)(int connection, bool is_full);
} umf_attach_socket_ops_t;

/* Opens the attach socket of this process unless it is open. A free may call it, whatever the
 * thread is doing: it never waits for a lock. `ops` stays. EBUSY: another thread opens or closes
 * it; other errors: it cannot be opened, which a debug message tells. */
int umf_attach_socket_open(const umf_attach_socket_ops_t *ops);

/* Closes it and waits for the thread; `ops` is not used any more. */
void umf_attach_socket_close(void);

/* Whether it is open in this process. Cheap. */
bool umf_attach_socket_is_open(void);

/* Whether it is about to be closed: what takes long shall end. */
bool umf_attach_socket_is_closing(void);

#endif
