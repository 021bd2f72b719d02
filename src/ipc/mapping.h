/*
 * Mapping: memory of other processes, opened once and kept.
 *
 * A mapping stands for one allocation of one producer, opened through one owner. Opening the same
 * again adds a user. Without users it stays open until it is replaced by a newer allocation at the
 * same address, evicted, or its owner goes; in use it is never closed but with its owner.
 */
#ifndef UMF_SRC_IPC_MAPPING_H
#define UMF_SRC_IPC_MAPPING_H

#include <umf/memory_provider.h>

#include "ds/list.h"
#include "ipc/producers.h"
#include "track/span.h"

typedef struct umf_mapping_t umf_mapping_t;

/* On whose behalf mappings are opened. */
typedef struct umf_mapping_owner_t {
    umf_memory_provider_handle_t provider; /* Immutable after init */
    uint64_t kind;                         /* of the provider. Immutable after init */
    _Atomic(void *) copy;                  /* of a handle's data, to be used again; may be NULL */
    _Atomic size_t handle_size;            /* of the provider's own handles; 0: not asked yet */
    umf_list_t mappings;                   /* Sync: the lock of mapping.c */
    umf_producers_t producers;
} umf_mapping_owner_t;

void umf_mapping_owner_init(umf_mapping_owner_t *owner, umf_memory_provider_handle_t provider);

/* Closes all mappings of the owner, in use or not. No other thread may use the owner. */
void umf_mapping_owner_fini(umf_mapping_owner_t *owner);

/* In place of the size of a handle: nobody knows how many bytes there are, but as many as handles
 * of the owner's provider have. */
#define UMF_MAPPING_OWN_SIZE 0

/*
 * Opens what is open already: adds a user and writes the address. Of the handle `size` bytes are
 * there, at least a header. false: it is not open, or something about the handle is odd;
 * umf_mapping_open tells. `owner` may be any pointer and is read only if a mapping is its. Hot.
 */
bool umf_mapping_open_again(const umf_mapping_owner_t *owner, const void *handle, size_t size,
                            void **ptr);

/* Checks the handle, then opens it or adds a user. Calls the provider: no lock may be held. */
umf_result_t umf_mapping_open(umf_mapping_owner_t *owner, const void *handle, size_t size,
                              void **ptr);

/* One user less; false if there was none. May call the provider. Hot. */
bool umf_mapping_close(umf_mapping_t *mapping);

/*
 * The same for memory of this process that its provider opened in place: it is on record as what it
 * was before. One user less of one of the mappings with `ptr` in them; false if there is none.
 */
bool umf_mapping_close_own(const void *ptr);

/* Closes what nobody uses of the producer with that process id, 0: of all. How many there were.
 * Calls providers: no lock may be held. */
size_t umf_mapping_evict(uint32_t pid);

typedef struct umf_mapping_stats_t {
    size_t opened; /* in use, or being opened */
    size_t cached; /* kept, and used by nobody */
    size_t hits;   /* opens of what was open or kept */
    size_t misses; /* opens for which the provider was asked */
    size_t evictions;
    size_t limit; /* 0: none */
} umf_mapping_stats_t;

umf_mapping_stats_t umf_mapping_stats(void);

umf_memory_provider_handle_t umf_mapping_provider(const umf_mapping_t *mapping);

/* At every start of the library; at most `limit` mappings are kept, 0: any number. */
void umf_mapping_init(size_t limit);

#endif
