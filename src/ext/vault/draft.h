/* Draft: a generation that is being written. */
#ifndef UMF_SRC_EXT_VAULT_DRAFT_H
#define UMF_SRC_EXT_VAULT_DRAFT_H

#include "ext/vault/vault.h"
#include "object/object.h"

#define UMF_VAULT_POOLS_MAX 64

/* A piece of a pool of the draft that has an entry, or a slab of `from`. */
typedef struct umf_vault_draft_slab_t {
    umf_memory_pool_handle_t pool; /* NULL: of `from` */
    void *base;
    size_t size;
    uint64_t serial; /* 0: the daemon does not have it */
    uint32_t role, kind;
    unsigned char device[UMF_VAULT_DEVICE_SIZE];
    int fd;         /* -1: none */
    bool is_away;   /* claimed, and not mapped writable any more */
    bool is_shown;  /* mapped read-only; the addresses are the draft's */
    bool is_used;   /* an entry of this commit is in it */
    bool is_again;  /* memory of a view that is mapped once more */
    uint32_t index; /* in the table */
    uint32_t from;  /* of `from`: the index in its table */
} umf_vault_draft_slab_t;

/* Offsets are in the bytes of the draft. */
typedef struct umf_vault_draft_entry_t {
    size_t key;
    uint64_t offset, size;
    uint64_t digest; /* of `from`; 0: none */
    uint32_t slab;
    uint16_t note_size;
    uint8_t key_size, flags;
    bool is_kept; /* of `from`: one that was put counts before it */
} umf_vault_draft_entry_t;

/* An array in the metadata arena. */
typedef struct umf_vault_array_t {
    void *items;
    size_t count, room; /* items; bytes */
} umf_vault_array_t;

/* Adds `count` items and returns the first. NULL: no memory, logged. The caller frees `items`. */
void *umf_vault_array_add(umf_vault_array_t *array, size_t item, size_t count);

struct umf_vault_draft_t {
    umf_vault_handle_t vault;
    uint64_t number;
    unsigned epoch, forks;
    umf_vault_view_handle_t from; /* NULL: none */
    umf_memory_pool_handle_t pools[UMF_VAULT_POOLS_MAX];
    umf_vault_kind_t kinds[UMF_VAULT_POOLS_MAX]; /* of their memory */
    unsigned char devices[UMF_VAULT_POOLS_MAX][UMF_VAULT_DEVICE_SIZE];
    unsigned pool_count;
    umf_vault_array_t slabs, entries, bytes;
    unsigned tables;     /* how many were given */
    char copy_pool[256]; /* for memory of umfVaultCopy; "": of the host */
    size_t identity_size;
    char identity[UMF_TABLE_IDENTITY_MAX];
};

static inline umf_vault_draft_slab_t *umf_vault_draft_slab(umf_vault_draft_handle_t draft,
                                                           size_t i) {
    return &((umf_vault_draft_slab_t *)draft->slabs.items)[i];
}
static inline umf_vault_draft_entry_t *umf_vault_draft_entry(umf_vault_draft_handle_t draft,
                                                             size_t i) {
    return &((umf_vault_draft_entry_t *)draft->entries.items)[i];
}

/* Takes the memory of a slab from its pool: it is not mapped here afterwards. */
umf_result_t umf_vault_slab_unmap(umf_vault_draft_slab_t *slab);
/* Maps it where it was: read-only if it was sealed. */
umf_result_t umf_vault_slab_map(umf_vault_draft_slab_t *slab, bool is_sealed);

/* The slab of a piece, which is new if it has no entry yet. UINT32_MAX: refused, logged. */
uint32_t umf_vault_draft_slab_for(umf_vault_draft_handle_t draft, umf_memory_pool_handle_t pool,
                                  const umf_vm_piece_t *piece, uint32_t role);
/* A slab that is not of a pool: of `from`, or of a view. UINT32_MAX: no memory, or too many. */
uint32_t umf_vault_draft_slab_of_view(umf_vault_draft_handle_t draft, umf_vault_draft_slab_t slab);
/* Appends an entry whose members but the key are set. */
umf_result_t umf_vault_draft_add(umf_vault_draft_handle_t draft, umf_vault_draft_entry_t entry,
                                 const char *key, const void *note);

bool umf_vault_draft_check(umf_vault_draft_handle_t draft, const char *function);
/* Frees the draft and its pools. Memory that is shown stays if `keeps_shown`. */
void umf_vault_draft_free(umf_vault_draft_handle_t draft, bool keeps_shown);

#endif
