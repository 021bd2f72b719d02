/*
 * IPC: what its two ends share, and its start and stop.
 */
#ifndef UMF_SRC_IPC_IPC_H
#define UMF_SRC_IPC_IPC_H

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#include "system/common.h"

/* After track and core, before any pool exists. Once for each start of the library. */
void umf_ipc_init(void);

/* The provider behind a pool that records its memory; INVALID_ARGUMENT, with a message, if the pool
 * does not: such a pool takes no part in IPC. */
umf_result_t umf_ipc_provider(umf_memory_pool_handle_t pool,
                              umf_memory_provider_handle_t *provider);

/* A number for the kind of a provider, the same in every process; 0 if it has no registered kind.
 */
uint64_t umf_ipc_kind(umf_memory_provider_handle_t provider);

/* UMF_IPC_FLAG_ANY_MACHINE of the provider. */
bool umf_ipc_is_for_any_machine(umf_memory_provider_handle_t provider);

/* INVALID_ARGUMENT if the provider knows that the data is not of an allocation of `size` bytes. */
umf_result_t umf_ipc_check(umf_memory_provider_handle_t provider, const void *data, size_t size);

/* A word that keeps its value as long as the producer's memory lives. */
typedef struct umf_ipc_watch_t {
    const uint64_t *word; /* NULL: there is none */
    uint64_t expected;
} umf_ipc_watch_t;

/* Asks the provider for the word of an opened mapping. Never fails: no word is an answer too. */
umf_ipc_watch_t umf_ipc_watch(umf_memory_provider_handle_t provider, const void *data);

static inline bool umf_ipc_is_alive(umf_ipc_watch_t watch) {
    return watch.word == NULL || __atomic_load_n(watch.word, __ATOMIC_ACQUIRE) == watch.expected;
}

#endif
