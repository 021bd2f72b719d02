/*
 * The keeper and the daemon of vaults: two processes of one program. The keeper holds descriptors
 * and ignores their content; the daemon (umfd/serve) answers clients. Each starts the
 * other again, and gives it all descriptors.
 *
 * They speak over a pair of sockets, which is UMFD_PAIR in the process that was started. A message
 * is one umfd_message_t, with at most one descriptor. A slot is a place in the keeper's table; the
 * cookie differs between uses of a slot.
 */
#ifndef UMFD_KEEPER_KEEPER_H
#define UMFD_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define UMFD_PAIR 3

/* How long either waits for the other, in ms. The time of an answer doubles with each process in a
 * row that gave none: a busy machine may need it. */
#define UMFD_PATIENCE 700

#define UMFD_LEASES 1024u
#define UMFD_SLABS 16384u

enum {
    UMFD_SLOT_LOCK,    /* the locked file of the place */
    UMFD_SLOT_LISTEN,  /* the socket that clients connect to */
    UMFD_SLOT_STATE,   /* the daemon's state */
    UMFD_SLOT_PROGRAM, /* this program, to be started again */
    UMFD_SLOT_DAEMON,  /* the daemon's process descriptor */
    UMFD_SLOT_LEASE = 8,
    UMFD_SLOT_SLAB = UMFD_SLOT_LEASE + UMFD_LEASES,
    UMFD_SLOT_PROCESS = UMFD_SLOT_SLAB + UMFD_SLABS, /* of a lease with claims: its process */
    UMFD_SLOTS = UMFD_SLOT_PROCESS + UMFD_LEASES,
};

typedef enum umfd_op_t {
    UMFD_HAVE = 1, /* daemon: keep this descriptor. Answered by UMFD_KEPT with slot and cookie */
    UMFD_KEPT,
    UMFD_GIVE,   /* daemon: send all. Answered by a UMFD_HAVE for each, then UMFD_GIVEN */
    UMFD_GIVEN,  /* keeper: these were all. cookie: how many times a daemon was started. Daemon: the
                    new keeper has all */
    UMFD_FORGET, /* daemon: close the descriptor, if slot and cookie are these */
    UMFD_EXIT,   /* either: everything ends */
    UMFD_ALIVE,  /* keeper; the daemon answers with the same */
} umfd_op_t;

typedef struct umfd_message_t {
    uint32_t op, slot;
    uint64_t cookie;
} umfd_message_t;

/* Creates a pair. No process waits for long to send what a stopped one does not read. */
bool umfd_pair_open(int *pair);
/* Sends a message over the pair, with a descriptor if it is not -1. false: the other side has ended
 * or takes nothing. */
bool umfd_pair_send(int pair, const umfd_message_t *message, int fd);

struct msghdr;
/* recvmsg without a wait, of a pair or of a connection of a client. If the other side ended with
 * messages unread, the kernel reports ECONNRESET once, before the messages that it sent. They are
 * read all the same. */
ssize_t umfd_receive(int fd, struct msghdr *message);

/* A test sends the keeper a signal here, before it waits without a limit (test/vault/steps.c). */
#ifdef UMFD_WITH_STEPS
void umfd_step_before_wait(void);
#else
static inline void umfd_step_before_wait(void) {}
#endif

/* The keeper's main loop; does not return. `pair`: of a daemon that runs, or -1. */
_Noreturn void umfd_keep(int pair, const char *idle);
/* Opens the place and creates the state of a first keeper. 0, or the exit code of the program. */
int umfd_open(const char *folder, bool detaches);

/* The daemon's main function (umfd/serve). `idle`: seconds without content after which it ends; 0:
 * never. */
_Noreturn void umfd_serve(unsigned idle);

#endif
