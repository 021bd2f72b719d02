/*
 * IPC: the common part of export and import, and their start and stop.
 */
#ifndef UMF_SRC_IPC_IPC_H
#define UMF_SRC_IPC_IPC_H

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#include "system/common.h"

/* Called once for each start of the library, after track and core and before any pool exists. */
void umf_ipc_init(void);

/* The provider of a pool that records its memory. INVALID_ARGUMENT with a message if the pool does
 * not: such a pool takes no part in IPC. */
umf_result_t umf_ipc_provider(umf_memory_pool_handle_t pool,
                              umf_memory_provider_handle_t *provider);

/* A number for the kind of a provider, the same in every process. 0: the kind is not registered. */
uint64_t umf_ipc_kind(umf_memory_provider_handle_t provider);

/* Whether the provider has UMF_IPC_FLAG_ANY_MACHINE. */
bool umf_ipc_is_for_any_machine(umf_memory_provider_handle_t provider);

/* INVALID_ARGUMENT if the provider finds that the data does not describe an allocation of `size`
 * bytes. */
umf_result_t umf_ipc_check(umf_memory_provider_handle_t provider, const void *data, size_t size);

/* A word that keeps its value while the producer's memory is allocated. */
typedef struct umf_ipc_watch_t {
    const uint64_t *word; /* NULL: there is none */
    uint64_t expected;
} umf_ipc_watch_t;

/* Asks the provider for the word of an opened mapping. Never fails: having no word is an answer. */
umf_ipc_watch_t umf_ipc_watch(umf_memory_provider_handle_t provider, const void *data);

static inline bool umf_ipc_is_alive(umf_ipc_watch_t watch) {
    return watch.word == NULL || __atomic_load_n(watch.word, __ATOMIC_ACQUIRE) == watch.expected;
}

#endif
