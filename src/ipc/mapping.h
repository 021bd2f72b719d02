/*
 * Mapping: memory of other processes, opened once and kept.
 *
 * A mapping stands for one allocation of one producer, opened through one owner. Opening the same
 * allocation again adds a user. A mapping without users stays open until a newer allocation at the
 * same address replaces it, until it is evicted, or until its owner ends. A mapping in use is
 * closed only with its owner.
 */
#ifndef UMF_SRC_IPC_MAPPING_H
#define UMF_SRC_IPC_MAPPING_H

#include <umf/memory_provider.h>

#include "ds/list.h"
#include "ipc/producers.h"
#include "system/atomic.h"
#include "track/span.h"

typedef struct umf_mapping_t umf_mapping_t;

/* The owner of mappings: what opens them. */
typedef struct umf_mapping_owner_t {
    umf_memory_provider_handle_t provider; /* Immutable after init */
    uint64_t kind;                         /* umf_ipc_kind of the provider. Immutable after init */
    _Atomic(size_t) handle_size;           /* size of the provider's own handles; 0: unknown yet */
    umf_list_t mappings;                   /* Sync: the lock of mappings (mapping_own.h) */
    umf_producers_t producers;
} umf_mapping_owner_t;

void umf_mapping_owner_init(umf_mapping_owner_t *owner, umf_memory_provider_handle_t provider);

/* Closes all mappings of the owner, in use or not. No other thread may use the owner. */
void umf_mapping_owner_fini(umf_mapping_owner_t *owner);

/* Given in place of the size of a handle that is unknown: the handle is taken to be as long as
 * those of the owner's provider. */
#define UMF_MAPPING_OWN_SIZE 0

/*
 * Adds a user to a mapping that is open already, and writes the address. `size` bytes of the handle
 * are there, at least a header. false: it is not open, or the handle is suspicious;
 * umf_mapping_open finds out which. `owner` may be any pointer; it is read only if it owns the
 * mapping. Hot.
 */
bool umf_mapping_open_again(const umf_mapping_owner_t *owner, const void *handle, size_t size,
                            void **ptr);

/* Checks the handle, then opens it or adds a user. Calls the provider: no lock may be held. */
umf_result_t umf_mapping_open(umf_mapping_owner_t *owner, const void *handle, size_t size,
                              void **ptr);

/* Removes a user. false: there was none. May call the provider. Hot. */
bool umf_mapping_is_used(const umf_mapping_t *mapping);
bool umf_mapping_close(umf_mapping_t *mapping);

/*
 * Removes a user of memory of this process that its provider opened in place; that memory keeps its
 * original record. Any mapping that contains `ptr` will do. false: there is none.
 */
bool umf_mapping_close_own(const void *ptr);

/* Closes the mappings without users of the producer with that process id (0: of all producers) and
 * returns their number. Calls providers: no lock may be held. */
size_t umf_mapping_evict(uint32_t pid);

typedef struct umf_mapping_stats_t {
    size_t opened; /* mappings in use, or OPENING */
    size_t cached; /* open mappings without users */
    size_t hits;   /* opens of existing mappings */
    size_t misses; /* opens that called the provider */
    size_t evictions;
    size_t limit; /* 0: none */
} umf_mapping_stats_t;

umf_mapping_stats_t umf_mapping_stats(void);

umf_memory_provider_handle_t umf_mapping_provider(const umf_mapping_t *mapping);

/* Called at every start of the library. At most `limit` mappings are kept; 0: any number. */
void umf_mapping_init(size_t limit);

#endif
