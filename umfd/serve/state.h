/*
 * The daemon's state: records of fixed size in a memory file, which outlives the daemon. Only the
 * daemon writes it, and a record is valid from the store of its state on. A daemon that starts
 * reads it like bytes from outside: what contradicts itself is dropped.
 */
#ifndef UMFD_SERVE_STATE_H
#define UMFD_SERVE_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "ext/vault/protocol.h"
#include "keeper/keeper.h"

#define UMFD_VAULTS 64u
#define UMFD_GENERATIONS 256u
#define UMFD_GROUPS 32u
#define UMFD_EVENTS 1024u
#define UMFD_CLAIMS 4096u
#define UMFD_STATE_MAGIC UINT64_C(0x33455441545346) /* "FSTATE3" */

/* One bit for each generation record. */
typedef struct umfd_set_t {
    uint64_t words[UMFD_GENERATIONS / 64];
} umfd_set_t;

typedef enum umfd_record_t {
    UMFD_FREE,
    UMFD_LIVE,
    UMFD_DYING, /* a slab: its descriptor is about to be closed. A lease: its connection has ended,
                   and its process, which may still write to claims, has not */
    UMFD_AWAY,  /* a slab of a device: evicted, it has a copy. A descriptor is about to be closed */
} umfd_record_t;

typedef struct umfd_vault_t {
    _Atomic uint32_t state;
    uint32_t uid;
    uint64_t limit;           /* bytes; 0: none */
    _Atomic uint64_t current; /* its store is the commit. 0: none */
    uint64_t next;            /* number of the next draft */
    uint32_t keep;            /* generations before the current one that stay */
    uint32_t reserved;
    char name[UMF_VAULT_NAME_MAX + 1];
} umfd_vault_t;

typedef enum umfd_phase_t {
    UMFD_DRAFT = 1, /* UMFD_FREE: none */
    UMFD_GROUPED,   /* complete; other members of its group are not */
    UMFD_READY,
} umfd_phase_t;

typedef struct umfd_generation_t {
    _Atomic uint32_t phase;
    uint32_t vault;
    uint64_t number;
    uint64_t writer;       /* serial of the lease that writes or wrote it */
    uint32_t lease;        /* its place */
    uint32_t table;        /* place of the slab, plus 1 */
    uint32_t group;        /* place, plus 1 */
    _Atomic uint32_t fill; /* umf_vault_fill_t; UMF_VAULT_FILL_END: none */
    uint64_t filler;       /* serial of the lease that fills */
    uint64_t file;         /* that it writes, of UMF_VAULT_FILL_FILES */
} umfd_generation_t;

typedef struct umfd_slab_t {
    _Atomic uint32_t state;
    uint32_t role;
    uint64_t serial, size;
    umfd_set_t generations;
    uint32_t kind;
    uint32_t vault;
    uint64_t draft;    /* number of the generation it was given to */
    uint32_t ordinal;  /* among the slabs of that draft */
    uint32_t is_fresh; /* of a fill that is not complete */
    uint32_t copy;     /* place of its copy, or of a copy that of its slab, plus 1. 0: none */
    uint32_t claim;    /* place, plus 1; 0: it belongs to generations */
    uint64_t copy_of;  /* of a copy: the serial of its slab. `device` is a umf_vault_copied_t */
    uint64_t file;     /* of a copy in a file: its number, which the client chose. 0: in memory */
    uint32_t is_again; /* of a device: made again from a copy */
    uint32_t is_unproved; /* made again, and no sum tells what it was made of */
    unsigned char device[UMF_VAULT_DEVICE_SIZE];
} umfd_slab_t;

typedef struct umfd_lease_t {
    _Atomic uint32_t state;
    uint32_t uid, pid, keep;
    uint64_t serial, limit;
    umfd_set_t generations; /* attached */
    uint64_t served;        /* sequence number of its last request that changed a claim */
    uint64_t epoch;         /* that this request was answered with */
    char name[UMF_VAULT_NAME_MAX + 1];
} umfd_lease_t;

/* One bit for each lease record. */
typedef struct umfd_clients_t {
    uint64_t words[UMFD_LEASES / 64];
} umfd_clients_t;

/* Memory with a key, and its holders: none, one, or some that share it. */
typedef struct umfd_claim_t {
    _Atomic uint32_t state;
    uint32_t vault;
    uint32_t slab; /* place, plus 1 */
    uint32_t word; /* of the file with the epoch, if the memory is of a device; else 0 */
    uint32_t is_shared;
    uint32_t reserved;
    uint64_t epoch; /* grows when others become the holders */
    uint64_t maker; /* serial of the lease */
    umfd_clients_t holders;
    umfd_clients_t mapped; /* who may have it mapped: holders, and clients that were fenced */
    _Atomic uint32_t note; /* which of both counts */
    uint32_t note_sizes[2];
    unsigned char notes[2][UMF_VAULT_NOTE_MAX];
    char key[UMF_VAULT_NAME_MAX + 1];
} umfd_claim_t;

/* LIVE from its first member on. is_done: its store is the commit of all. */
typedef struct umfd_group_t {
    _Atomic uint32_t state, is_done;
    uint32_t members, reserved;
    char name[UMF_VAULT_NAME_MAX + 1];
} umfd_group_t;

typedef struct umfd_event_t {
    _Atomic uint64_t number; /* 0: none */
    uint64_t vault;          /* sum of its name */
    uint64_t generation;
    uint32_t type, reserved;
} umfd_event_t;

typedef struct umfd_state_t {
    _Atomic uint64_t magic;
    uint64_t size, nonce;
    uint64_t serial;   /* the last one given to a slab or lease */
    uint64_t event;    /* the last one */
    uint32_t slab_top; /* places from here on were never used */
    uint32_t claim_top;
    umfd_vault_t vaults[UMFD_VAULTS];
    umfd_generation_t generations[UMFD_GENERATIONS];
    umfd_group_t groups[UMFD_GROUPS];
    umfd_event_t events[UMFD_EVENTS];
    umfd_lease_t leases[UMFD_LEASES];
    umfd_slab_t slabs[UMFD_SLABS];
    umfd_claim_t claims[UMFD_CLAIMS];
} umfd_state_t;

static inline bool umfd_set_has(const umfd_set_t *set, uint32_t i) {
    return set->words[i / 64] >> (i % 64) & 1;
}
static inline void umfd_set_add(umfd_set_t *set, uint32_t i) {
    set->words[i / 64] |= UINT64_C(1) << (i % 64);
}
static inline void umfd_set_remove(umfd_set_t *set, uint32_t i) {
    set->words[i / 64] &= ~(UINT64_C(1) << (i % 64));
}
static inline bool umfd_set_is_empty(const umfd_set_t *set) {
    return (set->words[0] | set->words[1] | set->words[2] | set->words[3]) == 0;
}

static inline bool umfd_clients_have(const umfd_clients_t *clients, uint32_t i) {
    return clients->words[i / 64] >> (i % 64) & 1;
}
static inline void umfd_clients_add(umfd_clients_t *clients, uint32_t i) {
    clients->words[i / 64] |= UINT64_C(1) << (i % 64);
}
static inline void umfd_clients_remove(umfd_clients_t *clients, uint32_t i) {
    clients->words[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

/* A new state in zeroed memory. */
void umfd_state_init(umfd_state_t *state, uint64_t nonce);

/*
 * Makes a state valid that may contain anything: drops records whose references contradict each
 * other, and finishes a commit that was made. Returns the number of dropped records. The caller
 * compares descriptors afterwards.
 */
unsigned umfd_state_check(umfd_state_t *state);

/* Records an event for clients that wait. */
void umfd_emit(umfd_state_t *state, const char *name, umf_vault_event_type_t type,
               uint64_t generation);

/* What follows the store that made a generation current: its writer goes on reading it, and clients
 * are notified. If a daemon ends in the middle the next one does it again. */
void umfd_generation_committed(umfd_state_t *state, uint32_t place);

/* A test lets the daemon or its keeper end at each of these (test/vault/steps.c). */
#ifdef UMFD_WITH_STEPS
void umfd_step(void);
#else
static inline void umfd_step(void) {}
#endif

/* The copy of a slab. UMFD_SLABS: none. */
uint32_t umfd_copy_of(const umfd_state_t *state, uint32_t place);

/* Ends a generation: its slabs lose it, those without another one are dying. Ends its group if that
 * is not done. */
void umfd_generation_end(umfd_state_t *state, uint32_t place);

/* Ends a claim; its slab is dying. */
void umfd_claim_end(umfd_state_t *state, uint32_t place);

#endif
