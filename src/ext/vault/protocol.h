/*
 * The messages between a client and the daemon of vaults (umfd). docs/vault.md describes it.
 *
 * A message is one umf_vault_message_t and a body, over a socket that keeps the boundaries of
 * messages. Each request has one answer with its sequence number. Requests may be repeated: a
 * request that was served has the same effect and the same answer once more.
 */
#ifndef UMF_SRC_EXT_VAULT_PROTOCOL_H
#define UMF_SRC_EXT_VAULT_PROTOCOL_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <umf/vault.h>

#define UMF_VAULT_MAGIC UINT32_C(0x56464d55) /* "UMFV" */
#define UMF_VAULT_VERSION 2
/* Of requests from UMF_VAULT_FILL on. A service of version 2 refuses them, one of version 3 answers
 * both. */
#define UMF_VAULT_VERSION_COPIES 3
#define UMF_VAULT_BODY_MAX 32768u
#define UMF_VAULT_FDS_MAX 250u  /* descriptors of one message; the kernel allows 253 */
#define UMF_VAULT_GIVE_MAX 64u  /* slabs that one request hands over */
#define UMF_VAULT_NAME_MAX 255u /* bytes of a vault's name, of a key, and of a group's name */
#define UMF_VAULT_NOTE_MAX 256u /* bytes of the note of a claim */
#define UMF_VAULT_SOCKET "vault"
#define UMFD_RUNS_ALREADY 3 /* exit code: another one has the place */

typedef enum umf_vault_op_t {
    UMF_VAULT_HELLO = 1, /* body: the vault's name. words: limit, keep. Answer: restarts, exists */
    UMF_VAULT_BEGIN,     /* words: from, replace. Answer: number of the draft */
    UMF_VAULT_GIVE,   /* body: umf_vault_slab_t; as many descriptors. words: draft, ordinal of the
                         first. Answer: body: serials; on refusal words: ordinal */
    UMF_VAULT_KEEP,   /* body: serials of slabs of `from`. words: draft */
    UMF_VAULT_COMMIT, /* body: name of a group. words: draft, members. Answer: generation */
    UMF_VAULT_ABORT,  /* words: draft (0: that of the client) */
    UMF_VAULT_ATTACH, /* words: generation (0: current), 0, umf_vault_reads_t. Answer: generation,
                         slabs, next; body: the table, then slabs; as many descriptors */
    UMF_VAULT_SLABS, /* words: generation, next, umf_vault_reads_t. Answer as of ATTACH, without the
                        table */
    UMF_VAULT_DETACH, /* words: generation */
    UMF_VAULT_STAT,   /* answer: 0, bytes of copies, evicted generations; body:
                         umf_vault_stat_message_t */
    UMF_VAULT_WAIT,   /* words: after, 1: answer NONE if there is none yet. Answer: number, type,
                         generation */
    UMF_VAULT_DROP,   /* words: generation (0: the vault), 1: the draft instead */
    UMF_VAULT_LIST, /* words: index. Answer: next (0: end), the rest as of STAT; body: stat, name */
    UMF_VAULT_STOP, /* words: 1: also with content */
    UMF_VAULT_FILL, /* words: generation, umf_vault_fill_t, file, next. Answer: generation, slabs
                       that are missing, next (0: end) of files; body: the table, then such slabs,
                       or all that a file has; as many descriptors. Of a copy: its role, the serial
                       of its slab, and umf_vault_copied_t in `device` */
    UMF_VAULT_FILLED,  /* body: umf_vault_slab_t, as many descriptors. words: generation,
                          umf_vault_fill_t, file. Answer: generation, slabs that are missing */
    UMF_VAULT_EVICT,   /* words: generation (0: all that have copies) */
    UMF_VAULT_CLAIM,   /* body: key; of a device: 0, its UUID. words: bytes (0: any), 1: shared,
                          umf_vault_fence_t, umf_vault_kind_t, of a device: bytes of the file with the
                          epoch. A descriptor: the file, and the memory of a device, if there is none
                          yet; without it NONE. Answer: epoch, bytes, 1: it is new, kind, UUID; body:
                          its note; the descriptors. BUSY: a process in the way, epoch */
    UMF_VAULT_NOTE,    /* body: key, 0, note. words: epoch */
    UMF_VAULT_UNCLAIM, /* body: key */
    UMF_VAULT_FORGET,  /* body: key */
    UMF_VAULT_CLAIMS,  /* words: index. Answer: next (0: end); body: umf_vault_claim_message_t,
                          key */
    UMF_VAULT_SUM, /* words: generation, serial of a slab. Answer: 1: its memory was made again; the
                      sum of the copy that it was made of, 0: none */
    UMF_VAULT_OPS,
} umf_vault_op_t;

typedef enum umf_vault_answer_t {
    UMF_VAULT_OK,
    UMF_VAULT_INVALID,     /* the request makes no sense */
    UMF_VAULT_NONE,        /* there is no such generation */
    UMF_VAULT_BUSY,        /* another client has the draft; content or clients prevent a stop */
    UMF_VAULT_LIMIT,       /* of the vault, in bytes. words: limit, in use */
    UMF_VAULT_WRITABLE,    /* a slab is mapped writable */
    UMF_VAULT_UNSEALED,    /* a slab is no memory file that can be sealed, or its size differs */
    UMF_VAULT_FULL,        /* a table of the daemon. words: its size */
    UMF_VAULT_DESCRIPTORS, /* words: limit, in use */
    UMF_VAULT_BROKEN,      /* the generation has lost a slab */
    UMF_VAULT_DENIED,      /* the vault, or the service, belongs to another user */
    UMF_VAULT_PENDING,     /* the other members of the group have not committed yet */
    UMF_VAULT_ENDED,       /* the draft, its group, or the generation that is filled, has ended */
    UMF_VAULT_OLD,         /* the daemon has another version. words: its version */
    UMF_VAULT_FOREIGN,     /* the descriptor of a slab cannot be that of a device */
    UMF_VAULT_EVICTED,     /* memory of devices was evicted. words: generation */
    UMF_VAULT_UNCOPIED,    /* there is no copy, or no memory of devices */
    UMF_VAULT_STALE,       /* the claim has a newer epoch, or another holder. words: its epoch */
    UMF_VAULT_DIFFERS,     /* the memory of the claim is another. words: its size, kind */
    UMF_VAULT_UNFENCED,    /* a process in the way cannot be ended. words: the process */
} umf_vault_answer_t;

/* How a client reads; joined by |. */
typedef enum umf_vault_reads_t {
    UMF_VAULT_READS_EVICTED = 1, /* it knows the answer; others are told that they are older */
    UMF_VAULT_READS_TABLE = 2,   /* slabs of devices may be absent */
} umf_vault_reads_t;

/* What a client makes for a generation. One client at a time does; it is undone, unless nothing is
 * missing, when the client ends it or has ended. */
typedef enum umf_vault_fill_t {
    UMF_VAULT_FILL_END, /* the client makes nothing more */
    UMF_VAULT_FILL_COPIES,
    UMF_VAULT_FILL_DEVICES,
    UMF_VAULT_FILL_FILES, /* copies in a file, in place of those in memory; `file` is not 0 */
    UMF_VAULT_FILLS,
} umf_vault_fill_t;

typedef struct umf_vault_message_t {
    uint32_t magic;
    uint16_t version, op;
    uint64_t sequence;
    uint32_t answer; /* umf_vault_answer_t */
    uint32_t body;   /* bytes behind the message */
    uint64_t event;  /* of answers: number of the last event */
    uint64_t
        nonce; /* of answers: of this life of the vaults; another one has none of the content */
    uint64_t words[11];
} umf_vault_message_t;

static_assert(sizeof(umf_vault_message_t) == 128, "messages travel");

typedef enum umf_vault_class_t {
    UMF_VAULT_CLASS_SHARED,
    UMF_VAULT_CLASS_PRIVATE,
    UMF_VAULT_CLASS_ZERO, /* without memory: only in tables */
    UMF_VAULT_CLASS_TABLE,
    UMF_VAULT_CLASS_COPY,  /* of a slab of a device, in memory of the host: only at the daemon */
    UMF_VAULT_CLASS_CLAIM, /* without generations */
    UMF_VAULT_CLASSES,
} umf_vault_class_t;

typedef enum umf_vault_kind_t {
    UMF_VAULT_KIND_HOST = 1, /* a memory file */
    UMF_VAULT_KIND_DEVICE,   /* a descriptor of a driver, which the daemon cannot use */
    UMF_VAULT_KIND_FILE,     /* of a copy: a file on a disk, which other processes may change */
} umf_vault_kind_t;

#define UMF_VAULT_DEVICE_SIZE 16

typedef struct umf_vault_slab_t {
    uint64_t serial; /* of requests: 0 */
    uint64_t size;
    uint32_t role, kind;
    unsigned char device[UMF_VAULT_DEVICE_SIZE]; /* its UUID; zero: the host */
} umf_vault_slab_t;

static_assert(sizeof(umf_vault_slab_t) == 40, "messages travel, tables are kept");

/* What a copy has in the place of the UUID. */
typedef struct umf_vault_copied_t {
    uint64_t sum;    /* of its content; 0: none. A file has one */
    uint64_t offset; /* in the file; UMF_VAULT_NO_CONTENT: no entry is in it */
} umf_vault_copied_t;

#define UMF_VAULT_NO_CONTENT UINT64_MAX

static_assert(sizeof(umf_vault_copied_t) == UMF_VAULT_DEVICE_SIZE, "messages travel");

typedef struct umf_vault_stat_message_t {
    uint64_t current, generations, bytes, readers, limit, restarts, entered;
    uint64_t device_bytes; /* of `bytes` */
    uint32_t has_draft, draft_pid, uid, keep;
    uint32_t devices, claims;
    unsigned char device[UMF_VAULT_DEVICE_SIZE]; /* the first one */
} umf_vault_stat_message_t;

typedef struct umf_vault_claim_message_t {
    uint64_t size, epoch;
    uint32_t holders, pid, is_shared, note_size;
    uint32_t kind, reserved;
    unsigned char device[UMF_VAULT_DEVICE_SIZE];
} umf_vault_claim_message_t;

/* Where the daemon of this user is: a folder, mode 0700, with the socket. */
#define UMF_VAULT_PLACE_SIZE 512
static inline bool umf_vault_place(char place[UMF_VAULT_PLACE_SIZE]) {
    const char *folder = secure_getenv("UMF_VAULT_DIR");
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    int length;
    if (folder && *folder) {
        length = snprintf(place, UMF_VAULT_PLACE_SIZE, "%s", folder);
    } else if (runtime && *runtime == '/') {
        length = snprintf(place, UMF_VAULT_PLACE_SIZE, "%s/umf", runtime);
    } else if (geteuid() == 0) {
        length = snprintf(place, UMF_VAULT_PLACE_SIZE, "/run/umf");
    } else {
        length = snprintf(place, UMF_VAULT_PLACE_SIZE, "/tmp/umf-%u", (unsigned)geteuid());
    }
    return length > 0 && length < UMF_VAULT_PLACE_SIZE;
}

#endif
