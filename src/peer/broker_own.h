/* The inside of the broker, shared by its files. */
#ifndef UMF_SRC_PEER_BROKER_OWN_H
#define UMF_SRC_PEER_BROKER_OWN_H

#include "peer/broker.h"

/* "umf-", 32 digits, and ".new" of a socket that does not listen yet. */
#define UMF_BROKER_NAME_SIZE 41

typedef struct umf_broker_id_t {
    uint64_t word[2];
} umf_broker_id_t;

/* Where the broker listens. The process that created a file removes its name. */
typedef struct umf_broker_listener_t {
    umf_broker_address_kind_t address_kind;
    umf_socket_address_t address;
} umf_broker_listener_t;

/* broker_address.c */
int umf_broker_address(umf_broker_address_kind_t address_kind, const uint64_t id[2],
                       umf_socket_address_t *address);
/* 0 or an errno value, which is logged. */
int umf_broker_listen(const umf_broker_id_t *id, int fd, umf_broker_listener_t *listener);
/* Removes the name. Called before the socket stops to listen, so that a name means that its process
 * is alive. */
void umf_broker_unlisten(const umf_broker_listener_t *listener);
/* Whether a user may send requests or answers. */
bool umf_broker_admits(uint32_t uid);

/* broker_table.c */
/* Begins a table for this process and drops the exports of a parent. Returns 0 or an
 * errno value. */
int umf_broker_table_begin(uint32_t pid, umf_broker_id_t *id);
/* New tickets name this kind of address from now on. */
void umf_broker_table_open(umf_broker_address_kind_t address_kind);
void umf_broker_deny(int connection);

#endif
