/*
 * Undone: work of ours on queues for which a wait failed. Its queue is not used again, and
 * memory of the library that it uses stays, until a wait succeeds.
 */
#ifndef UMF_SRC_EXT_STAGING_UNDONE_H
#define UMF_SRC_EXT_STAGING_UNDONE_H

#include "ext/staging/operand.h"
#include "system/atomic.h"

/* Memory that work on several queues may use. The last user releases it. */
typedef struct umf_undone_memory_t umf_undone_memory_t;
struct umf_undone_memory_t {
    _Atomic(size_t) users; /* at first 1, the one that made it */
    void (*release)(umf_undone_memory_t *memory);
};

static inline void umf_undone_drop(umf_undone_memory_t *memory) {
    if (atomic_fetch_sub(&memory->users, 1) == 1) {
        memory->release(memory);
    }
}

/* Takes a queue of ours whose work could not be waited for, and becomes a user of the memory (NULL:
 * none). Without memory to remember them both stay until the process ends. */
void umf_undone_add(const umf_operand_t *operand, void *queue, umf_undone_memory_t *memory);

/* How many there are. */
extern UMF_HIDDEN _Atomic(size_t) umf_undone_count;

/* Waits again for all work of the provider (NULL: of memory that has none). The first failure: some
 * of it may still go on. Threads that work with another provider do not wait for the call. */
umf_result_t umf_undone_settle_slow(umf_memory_provider_handle_t provider);
static inline umf_result_t umf_undone_settle(umf_memory_provider_handle_t provider) {
    return umf_likely(atomic_load_explicit(&umf_undone_count, memory_order_acquire) == 0)
               ? UMF_RESULT_SUCCESS
               : umf_undone_settle_slow(provider);
}

/* The same for all work. */
void umf_undone_settle_all(void);

/* The same for a provider that is about to end. What cannot be waited for stays with the process.
 */
void umf_undone_end(umf_memory_provider_handle_t provider);

#endif
