/*
 * Events: actions of pools and providers, for a recording (ext/record). Without a listener an event
 * site costs one load and one branch, and allocations and frees of pools cost nothing: they emit
 * events only for recorded pools (umf_recorded_begin).
 */
#ifndef UMF_SRC_OBJECT_EVENT_H
#define UMF_SRC_OBJECT_EVENT_H

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>
#include <umf/record_format.h>

#include "system/atomic.h"
#include "system/common.h"

typedef struct umf_event_t {
    umf_record_event_kind_t kind;
    umf_memory_pool_handle_t pool;         /* NULL: a provider's event, of no pool */
    umf_memory_provider_handle_t provider; /* the root; NULL for a pool's event */
    uint64_t address, size;                /* as umf_record_event_kind_t says */
    const void *queue;                     /* NULL: on none */
} umf_event_t;

/* Called by the thread that does it, often inside of an allocation: it allocates from no pool, and
 * waits for no lock that is held while a pool or provider is called. It keeps errno. Locks of the
 * library may be held, but none of a rank above UMF_RANK_RECORD. */
typedef void (*umf_event_listener_t)(const umf_event_t *event);

/* NULL: no listener. */
extern UMF_HIDDEN _Atomic(umf_event_listener_t) umf_event_listener;

/* Does not wait for threads in a listener that is replaced. */
void umf_event_listen(umf_event_listener_t listener);

UMF_COLD void umf_event_emit(const umf_event_t *event);

static inline bool umf_event_is_enabled(void) {
    return umf_unlikely(atomic_load_explicit(&umf_event_listener, memory_order_relaxed) != NULL);
}

/* The arguments are evaluated only if there is a listener. */
#define UMF_EVENT(...)                                                                             \
    do {                                                                                           \
        if (umf_event_is_enabled()) {                                                              \
            umf_event_emit(&(umf_event_t){__VA_ARGS__});                                           \
        }                                                                                          \
    } while (0)

/* Allocations, frees and refusals of the pool emit events from now on, until the end. A pool that
 * is recorded serves no request from the caches of threads inline. Begin and end may be repeated.
 * The pool must not be destroyed meanwhile. */
void umf_recorded_begin(umf_memory_pool_handle_t pool);
void umf_recorded_end(umf_memory_pool_handle_t pool);

#endif
