/*
 * Layers of a pool: functions between the public calls and the pool's own ones.
 *
 * A layer is a constant table. A pool has at most one of each rank; a push of another table of the
 * same rank replaces it. A call meets the layers in the order of their ranks: each layer does its
 * part and passes the call on by UMF_PASS_ON. A function that a layer lacks is that of the next
 * layer, so the calls of a pool without layers enter the pool itself.
 *
 * A push or a remove replaces one function after another, each by one atomic store. A thread that
 * has loaded the old function goes on in it. So each function of a layer is also right while its
 * layer is absent, and passes the call on. The state of a layer lives until `ends`.
 */
#ifndef UMF_SRC_OBJECT_LAYER_H
#define UMF_SRC_OBJECT_LAYER_H

#include <umf/memory_pool.h>

#include "track/map.h"
#include "track/span.h"

/* In the order in which a call meets the layers. */
typedef enum umf_layer_rank_t {
    UMF_LAYER_RECORD, /* object/recorded.c: events of the program's calls */
    UMF_LAYER_QUEUE, /* ext/queue/records.c: ends the record of a block that is freed on no queue */
    UMF_LAYER_PIN,   /* object/pin.c: defers frees of objects with IPC handles */
    UMF_LAYER_ZERO,  /* object/zero.c: overwrites freed memory */
    UMF_LAYER_SUSPEND, /* ext/suspend/suspendable.c: refuses requests while the memory is away */
    UMF_LAYERS,        /* the pool itself */
} umf_layer_rank_t;

typedef struct umf_layer_calls_t {
    void *(*malloc)(umf_memory_pool_handle_t pool, size_t size); /* if the magazines have none */
    void *(*aligned_malloc)(umf_memory_pool_handle_t pool, size_t size, size_t alignment);
    void *(*calloc)(umf_memory_pool_handle_t pool, size_t num, size_t size);
    void *(*realloc)(umf_memory_pool_handle_t pool, void *ptr, size_t size);
    /* `self`: the pool's free_self, which a layer passes on unchanged. */
    umf_result_t (*free_at)(void *self, void *ptr, umf_map_entry_t entry);
    bool (*try_free)(void *self, void *ptr, umf_map_entry_t entry);
    umf_result_t (*last_error)(umf_memory_pool_handle_t pool);
} umf_layer_calls_t;

/* Any function may be NULL. */
typedef struct umf_layer_t {
    umf_layer_rank_t rank;
    bool sees_malloc; /* all requests: the core pops no magazine itself */
    bool sees_free;   /* all frees: the core serves none itself. Else only frees in spans of
                         umf_layer_see_span */
    umf_layer_calls_t calls;
    /* The pool is trimmed or finds no memory: cached memory of the layer returns to the pool.
     * `waits`: also memory that work of a device still uses, after that work. true: some went. */
    bool (*gives_back)(umf_memory_pool_handle_t pool, bool waits);
    void (*ticks)(umf_memory_pool_handle_t pool);
    /* The pool's allocation at `ptr` went back to the provider. */
    void (*freed)(umf_memory_pool_handle_t pool, const void *ptr);
    void (*closes)(umf_memory_pool_handle_t pool); /* before it is finalized; it can still free */
    void (*ends)(umf_memory_pool_handle_t pool);   /* before it is destroyed */
} umf_layer_t;

/* Of pools with the setting zero_on_free: over memory of the host, and tracked. */
extern const umf_layer_t umf_layer_zero;

/* No lock of a rank above UMF_RANK_LAYER may be held. */
void umf_layer_push(umf_memory_pool_handle_t pool, const umf_layer_t *layer);
void umf_layer_remove(umf_memory_pool_handle_t pool, umf_layer_rank_t rank);

/* Frees in the span go through the layers from now on. */
void umf_layer_see_span(umf_span_t *span);

/* Each calls the layers of the pool in the order of their ranks. */
bool umf_layers_give_back(umf_memory_pool_handle_t pool, bool waits);
void umf_layers_tick(umf_memory_pool_handle_t pool);
void umf_layers_freed(umf_memory_pool_handle_t pool, const void *ptr);
void umf_layers_close(umf_memory_pool_handle_t pool);
void umf_layers_end(umf_memory_pool_handle_t pool);

/* The function behind a layer of `rank`: an atomic load, as a push may replace it. */
#define UMF_PASS_ON(pool, rank, function)                                                          \
    __atomic_load_n(&(pool)->calls[(rank) + 1].function, __ATOMIC_RELAXED)

#endif
