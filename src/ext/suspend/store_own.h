/* The inside of a store, shared by the files that make it and that copy. */
#ifndef UMF_SRC_EXT_SUSPEND_STORE_OWN_H
#define UMF_SRC_EXT_SUSPEND_STORE_OWN_H

#include "base/kept_fd.h"
#include "ext/staging/pinned.h"
#include "ext/staging/undone.h"
#include "ext/suspend/store.h"

#define STORE_MAX_FILES 8
/* Memory of another device is made in chunks, each while the one before it is being filled. */
#define STORE_CHUNK ((size_t)512 << 20)

struct umf_store_t {
    umf_undone_memory_t memory; /* copies that could not be waited for may outlive the plan */
    umf_memory_provider_handle_t provider; /* Immutable after create, as all without a note */
    umf_suspend_keep_t keep;
    size_t size;
    umf_pinned_t **units; /* PINNED, HOST */
    size_t unit_count;
    bool is_pinned; /* the device copies to and from the units by itself */
    size_t ready;   /* the number of units at the front that were pinned before */
    void **chunks;  /* PEER. Sync: the call that suspends or resumes */
    size_t chunk_count;
    int device;                           /* PEER */
    const char *folder;                   /* FILE: the policy's, which outlives the store */
    umf_kept_fd_t files[STORE_MAX_FILES]; /* FILE: files without names */
    void *pins[STORE_MAX_FILES];          /* a page of each, mapped: no later file gets its inode */
    size_t file_count;
};

/* Bytes of a chunk: all have STORE_CHUNK but the last. */
static inline size_t umf_store_chunk_size(const umf_store_t *store, size_t chunk) {
    size_t rest = store->size - chunk * STORE_CHUNK;
    return rest < STORE_CHUNK ? rest : STORE_CHUNK;
}

#endif
