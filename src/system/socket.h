/*
 * Unix sockets that carry descriptors, behind a few primitives with the promises of system/os.h.
 *
 * Every socket keeps the bounds of messages (SOCK_SEQPACKET), never blocks (EAGAIN instead) and is
 * close-on-exec. Who wants to wait does so with umf_socket_wait and a deadline.
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

/* A name in the abstract namespace, which belongs to a network namespace. ENAMETOOLONG. */
int umf_socket_abstract(const char *name, umf_socket_address_t *address);
/* A file. ENAMETOOLONG. */
int umf_socket_path(const char *path, umf_socket_address_t *address);

int umf_socket_open(int *fd);
int umf_socket_bind(int fd, const umf_socket_address_t *address);
int umf_socket_listen(int fd, int backlog);
int umf_socket_accept(int fd, int *connection);
/* EAGAIN: the other side has no room for one more just now. */
int umf_socket_connect(int fd, const umf_socket_address_t *address);
/* Whoever waits for `fd` wakes up, in this process and in all that share it. */
int umf_socket_shutdown(int fd);

/* The process at the other end: the one that connected, or that began to listen. Numbers as they
 * are seen from here: an unknown process is 0, all unknown users have one number. */
int umf_socket_peer(int fd, uint32_t *uid, uint32_t *pid);

/* One message, whole or not at all; `pass` is a descriptor that travels along, -1 for none. */
int umf_socket_send(int fd, const void *data, size_t size, int pass);

/*
 * One message. `*got` is its length, 0 when the other side has closed; EMSGSIZE if it is longer
 * than `size`. The descriptor that came along goes to `*passed`, -1 if none did; with NULL any that
 * came are closed, as are all but the first. EMFILE: one came, and there was no room for it.
 */
int umf_socket_receive(int fd, void *data, size_t size, size_t *got, int *passed);

/* Milliseconds of a clock that only goes forward. */
uint64_t umf_socket_now(void);

/* Until there is something to read or the other side is gone. ETIMEDOUT. */
int umf_socket_wait(int fd, uint64_t deadline);

#endif
