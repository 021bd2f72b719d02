/*
 * Memory watches: functions of the program that run when a pool gets physical memory, and before it
 * loses some (umf/registration.h). A watched pool has its callbacks at its tracked provider and at
 * those inside of it.
 */
#ifndef UMF_SRC_OBJECT_PROVIDER_MEMORY_WATCH_H
#define UMF_SRC_OBJECT_PROVIDER_MEMORY_WATCH_H

#include <umf/registration.h>

#include "object/object.h"
#include "system/atomic.h"

/* NULL: the pool is not watched. */
static inline umf_memory_watch_t *umf_memory_watch_of(const umf_tracked_provider_t *tracked) {
    return atomic_load_explicit(&tracked->watch, memory_order_acquire);
}

/* Adds a copy of the callbacks and calls `mapped` for the memory that the pool has. No other thread
 * may use the pool. A refusal is undone. */
umf_result_t umf_memory_watch_add(umf_memory_pool_handle_t pool,
                                  const umf_memory_callbacks_t *callbacks);
/* Removes the last one that is equal. false: there is none. */
bool umf_memory_watch_remove(umf_memory_pool_handle_t pool,
                             const umf_memory_callbacks_t *callbacks);
/* The pool has ended, and its memory is returned. */
void umf_memory_watch_drop(umf_tracked_provider_t *tracked);

/* Calls all callbacks for one run, with no lock held. A refusal is undone, and returned. */
umf_result_t umf_memory_watch_run_mapped(const umf_tracked_provider_t *tracked,
                                         const umf_memory_run_t *run);
void umf_memory_watch_run_unmapping(const umf_tracked_provider_t *tracked,
                                    const umf_memory_run_t *run);

/* The same for a range: each page of it is a run, where the pool places pages itself. Memory of
 * another generation is in the range afterwards. */
UMF_COLD umf_result_t umf_memory_watch_mapped(const umf_tracked_provider_t *tracked, void *base,
                                              size_t size);
/* `id`: of the span, for providers whose memory has no generation of its own. */
UMF_COLD void umf_memory_watch_unmapping(const umf_tracked_provider_t *tracked, void *base,
                                         size_t size, uint64_t id);

/* The run that holds an address of a span. INVALID_ARGUMENT: the address is not the provider's.
 * OUT_OF_RESOURCES: it has no physical memory. NOT_SUPPORTED: the provider cannot report it. */
umf_result_t umf_memory_run_at(const umf_tracked_provider_t *tracked, uintptr_t address,
                               const umf_span_t *span, umf_memory_run_t *run);

#endif
