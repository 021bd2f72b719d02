/* What the files of the broker share. */
#ifndef UMF_SRC_PEER_BROKER_OWN_H
#define UMF_SRC_PEER_BROKER_OWN_H

#include "peer/broker.h"

/* Connections that are waited for at once. */
#define UMF_BROKER_CONNECTIONS 32

/* "umf-", 32 digits, and ".new" of a socket that does not listen yet. */
#define UMF_BROKER_NAME_SIZE 41

typedef struct umf_broker_id_t {
    uint64_t word[2];
} umf_broker_id_t;

/* Where the broker listens. The name of a file is removed by whoever made it. */
typedef struct umf_broker_listener_t {
    int fd; /* -1: nowhere */
    umf_broker_place_t place;
    uint64_t ino; /* tells whether `fd` is still ours: programs close what they do not know */
    umf_socket_address_t address;
} umf_broker_listener_t;

/* broker_place.c */
int umf_broker_address(umf_broker_place_t place, const uint64_t id[2],
                       umf_socket_address_t *address);
int umf_broker_listen(const umf_broker_id_t *id, umf_broker_listener_t *listener);
/* Removes the name first: whoever finds one knows that its maker lives. */
void umf_broker_unlisten(umf_broker_listener_t *listener);
bool umf_broker_owns(const umf_broker_listener_t *listener);
/* Whether a user may ask, or answer. */
bool umf_broker_admits(uint32_t uid);

/* broker_table.c */
/* Begins for this process: what a parent exported is forgotten. 0 or an errno value. */
int umf_broker_table_begin(uint32_t pid, umf_broker_id_t *id);
/* From now on tickets name that place. */
void umf_broker_table_open(umf_broker_place_t place);
void umf_broker_deny(int connection);

#endif
