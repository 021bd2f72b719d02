/*
 * Unix sockets that carry descriptors, behind a few primitives with the promises of system/os.h.
 *
 * Every socket keeps the boundaries of messages (SOCK_SEQPACKET), never blocks (EAGAIN instead) and
 * is close-on-exec. umf_socket_wait waits until a deadline.
 */
#ifndef UMF_SRC_SYSTEM_SOCKET_H
#define UMF_SRC_SYSTEM_SOCKET_H

#include <sys/socket.h>
#include <sys/un.h>

#include "system/common.h"

typedef struct umf_socket_address_t {
    struct sockaddr_un name;
    socklen_t length;
} umf_socket_address_t;

/* A name in the abstract namespace, of which each network namespace has its own. ENAMETOOLONG. */
int umf_socket_abstract(const char *name, umf_socket_address_t *address);
/* The path of a file. ENAMETOOLONG. */
int umf_socket_path(const char *path, umf_socket_address_t *address);

int umf_socket_open(int *fd);
int umf_socket_bind(int fd, const umf_socket_address_t *address);
int umf_socket_listen(int fd, int backlog);
int umf_socket_accept(int fd, int *connection);
/* EAGAIN: the queue of the other side is full now. */
int umf_socket_connect(int fd, const umf_socket_address_t *address);
/* Wakes all threads that wait for `fd`, in this process and in others that share it. */
int umf_socket_shutdown(int fd);

/* The process at the other end: the one that connected, or that began to listen. The numbers are
 * those of this process's namespaces: an unknown process is 0, all unknown users have one number.
 */
int umf_socket_peer(int fd, uint32_t *uid, uint32_t *pid);
int umf_socket_peer_ids(int fd, uint32_t *uid, uint32_t *gid, uint32_t *pid);

/* Sends one message, whole or not at all. `pass` is a descriptor to send with it, -1 for none. */
int umf_socket_send(int fd, const void *data, size_t size, int pass);

/*
 * Receives one message. `*got` is its length, 0 when the other side has closed; EMSGSIZE if it is
 * longer than `size`. `*passed` gets the first descriptor of the message, -1 if it has none; all
 * others are closed, with NULL all. EMFILE: the message had one, and this process had no room for
 * it.
 */
int umf_socket_receive(int fd, void *data, size_t size, size_t *got, int *passed);

/* The same for a message in parts, with up to UMF_SOCKET_PASS_MAX descriptors. */
#define UMF_SOCKET_PASS_MAX 253u
struct iovec;
int umf_socket_send_parts(int fd, const struct iovec *parts, unsigned count, const int *pass,
                          unsigned passes);
/* `*passes`: the room at `passed` on entry, then how many there are; those beyond the room are
 * closed. After a failure all are closed. EMSGSIZE: the parts have the begin of the message. */
int umf_socket_receive_parts(int fd, const struct iovec *parts, unsigned count, size_t *got,
                             int *passed, unsigned *passes);

/* Milliseconds of a monotonic clock. */
uint64_t umf_socket_now(void);

/* Waits until there is something to read or the other side has closed. ETIMEDOUT. */
int umf_socket_wait(int fd, uint64_t deadline);

#endif
