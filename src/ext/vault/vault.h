/* The objects behind the handles of umf/vault.h. */
#ifndef UMF_SRC_EXT_VAULT_VAULT_H
#define UMF_SRC_EXT_VAULT_VAULT_H

#include <umf/vault.h>

#include "base/handle.h"
#include "base/lock.h"
#include "ext/vault/link.h"
#include "ext/vault/table.h"

/* Memory of GPUs: device.h. */
typedef struct umf_vault_device_t umf_vault_device_t;
typedef struct umf_vault_part_t umf_vault_part_t;
typedef struct umf_vault_place_t umf_vault_place_t;

/* Mapped memory of a generation. */
typedef struct umf_vault_range_t {
    void *base;
    size_t size;
    umf_vault_device_t *device; /* NULL: of the host */
} umf_vault_range_t;

/* A generation that was written here and is still mapped. */
typedef struct umf_vault_written_t {
    uint64_t generation;
    unsigned epoch;
    size_t count; /* of ranges; those beyond the written slabs have size 0 */
    struct umf_vault_written_t *next;
    umf_vault_range_t ranges[];
} umf_vault_written_t;

/* Memory of a device of a claim. */
typedef struct umf_vault_held_memory_t {
    umf_vault_device_t *device; /* NULL: the memory is of the host */
    void *base;
    size_t size, reserved;
} umf_vault_held_memory_t;

/* Memory of a claim that is mapped here. */
typedef struct umf_vault_held_t {
    void *base;
    size_t size; /* of the mapping: the memory, if it is of the host, and a page with the epoch */
    umf_vault_held_memory_t memory;
    unsigned epoch;    /* of the link */
    uint64_t dev, ino; /* of its file */
    struct umf_vault_held_t *next;
    char key[UMF_VAULT_NAME_MAX + 1];
    char note[UMF_VAULT_NOTE_MAX];
} umf_vault_held_t;

struct umf_vault_t {
    umf_link_t link; /* of a vault in a folder: its folder, without a connection */
    bool is_folder;
    umf_link_lock_t gate;    /* attach and detach of generations, with the request */
    umf_link_lock_t filling; /* of a generation, from the first request to the last */
    umf_lock_t lock;
    /* Sync: lock, as all below */
    umf_vault_draft_handle_t draft; /* NULL: none */
    umf_vault_view_handle_t views;
    umf_vault_written_t *written;
    umf_vault_device_t *devices; /* they stay until the vault is closed */
    umf_vault_held_t *held;      /* Sync: gate */
};

/* What is mapped over the memory of a view: its own generation again, or another one. */
typedef struct umf_vault_change_t {
    const umf_table_t *like; /* it must have this layout */
    uint64_t nonce;          /* of the service that had it */
    bool is_resume;          /* the same content; private memory stays as it is */
    bool has_begun;          /* the view's memory is no longer as it was */
} umf_vault_change_t;

struct umf_vault_view_t {
    /* Immutable but for umfVaultMove and so on, as all up to `next`; `generation` and `epoch` are
     * read under the lock of the vault. */
    umf_table_t table;
    umf_vault_handle_t vault;
    uint64_t generation;
    uint64_t nonce; /* of the service that had it */
    unsigned forks, epoch;
    bool is_suspended;
    umf_vault_change_t *change; /* NULL: it is attached with addresses of its own */
    void **bases;               /* by index of the slab in the table; NULL: it is not mapped */
    void *near;                 /* where the next slab of the host is mapped, if nothing is there */
    umf_vault_place_t *places;  /* by index of the slab; NULL: nothing of devices is mapped */
    umf_vault_part_t *parts;
    void *table_at;
    size_t table_size;
    umf_vault_view_handle_t next; /* of its vault. Sync: its lock, as prev */
    umf_vault_view_handle_t prev;
};

extern const umf_handle_kind_t umf_vault_kind, umf_vault_draft_kind, umf_vault_view_kind;

/* Checks a handle: alive, of this kind, and not of the parent process. */
bool umf_vault_check(umf_vault_handle_t vault, const char *function);
bool umf_vault_view_check(umf_vault_view_handle_t view, const char *function);

/* One request about a vault; the result of its answer. */
umf_result_t umf_vault_ask(umf_vault_handle_t vault, umf_link_call_t *call);

/*
 * Calls `attempt` until its answer is not `again`, or the time is over: after each attempt it waits
 * for an event of the vault. OUT_OF_RESOURCES: the time is over; the message is that of the last
 * answer.
 */
typedef umf_result_t umf_vault_attempt_t(void *arg, umf_vault_message_t *answer);
umf_result_t umf_vault_until(umf_vault_handle_t vault, umf_vault_attempt_t *attempt, void *arg,
                             umf_vault_answer_t again, uint64_t timeout_ms,
                             umf_vault_message_t *answer);

/* A mark of what happened to a generation, for a recording that runs. */
void umf_vault_mark(umf_vault_handle_t vault, uint64_t generation, const char *what);

/* --- view/ --- */

void umf_vault_view_end(umf_vault_view_handle_t view);
/* Ends and frees it; its devices are settled before. */
void umf_vault_view_delete(umf_vault_view_handle_t view);

/* `reads_table`: of devices nothing is mapped. */
umf_result_t umf_vault_attach(umf_vault_handle_t vault, const umf_vault_attach_params_t *params,
                              bool reads_table, umf_vault_view_handle_t *view);
/* The result of an attach whose time is over, or that was answered. */
umf_result_t umf_vault_attach_result(umf_vault_handle_t vault, const umf_vault_message_t *answer,
                                     uint64_t timeout_ms);
/* The view has a table, in which `wrong` is wrong; NULL: nothing. Finds addresses for its slabs. */
umf_result_t umf_vault_view_table(umf_vault_view_handle_t view, const char *wrong);
/* Maps a slab by its index, if umf_vault_view_maps; one without memory needs no file. */
umf_result_t umf_vault_view_map(umf_vault_view_handle_t view, uint32_t i, int fd, uint64_t offset);
/* The result of a generation that is wrong, logged. */
umf_result_t umf_vault_view_broken(umf_vault_view_handle_t view, const char *why);
/* Lists a view with its vault, which ends it. */
void umf_vault_view_add(umf_vault_view_handle_t view);
void umf_vault_view_remove(umf_vault_view_handle_t view);
/* Whether the memory of slab `i` is mapped now; not all is in a change. */
bool umf_vault_view_maps(umf_vault_view_handle_t view, uint32_t i);
/* Maps a generation over that of the view, as `view->change` says. */
umf_result_t umf_vault_attach_over(umf_vault_view_handle_t view, uint64_t generation);
/* INVALID_ARGUMENT, logged: its memory is away. */
umf_result_t umf_vault_view_reads(umf_vault_view_handle_t view);
/* Whether the file behind a descriptor keeps its content and size: it is sealed against all
 * writers. */
bool umf_vault_is_sealed(int fd, uint64_t size);
/* Maps a table that the service has sent, and checks all of it. `*wrong`: NULL, or the fault. It is
 * mapped if `*at` is set. */
umf_result_t umf_vault_table_map(const umf_vault_slab_t *info, int fd, umf_table_t *table,
                                 void **at, size_t *size, const char **wrong);
/* Logs that a step failed with this error of the system. Returns OUT_OF_HOST_MEMORY. */
umf_result_t umf_vault_no_memory(int error, const char *what);
/* fill/copies.c: makes evicted memory again, or waits for another client that does. */
umf_result_t umf_vault_refill(umf_vault_handle_t vault, uint64_t generation, uint64_t timeout_ms);
/* NOT_SUPPORTED if the slab is of a device and not mapped. */
umf_result_t umf_vault_slab_reads(umf_vault_view_handle_t view, uint32_t slab);
/* Tells the daemon that a generation is no longer needed here, unless a view or written memory has
 * it. */
void umf_vault_release(umf_vault_handle_t vault, uint64_t generation, unsigned epoch);
/* Unmaps the memory of a draft that became a generation. This process must have no pointer to it.
 */
void umf_vault_written_end(umf_vault_handle_t vault, uint64_t generation);

/* --- claim.c --- */

/* Gives all claims of the vault back. */
void umf_vault_claims_end(umf_vault_handle_t vault);

/* --- draft.c, commit.c --- */

void umf_vault_draft_end(umf_vault_draft_handle_t draft);

#endif
