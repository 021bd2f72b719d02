/*
 * Listeners: how layers above the core learn of events of its objects. Each layer registers one at
 * start.
 */
#ifndef UMF_SRC_OBJECT_LISTENER_H
#define UMF_SRC_OBJECT_LISTENER_H

#include <umf/memory_pool.h>

#include "track/span.h"

/* Any member but `next` may be NULL. */
typedef struct umf_listener_t {
    /* The export of the span becomes invalid: the allocation is about to go back to its provider,
     * to be split or to be merged. Called for spans with an export. */
    void (*export_ends)(umf_span_t *span, umf_memory_provider_handle_t provider);
    /* The pool has been created. */
    void (*pool_begins)(umf_memory_pool_handle_t pool);
    /* The pool is about to be finalized, and can still free. No other thread uses it. */
    void (*pool_closes)(umf_memory_pool_handle_t pool);
    /* The pool is about to be destroyed. Its provider still exists. */
    void (*pool_ends)(umf_memory_pool_handle_t pool);
    /* The pool is trimmed, or finds no memory: what a layer above keeps of it in reserve goes back
     * to it. `waits`: also what work of a device still uses, after that. true: something went. */
    bool (*gives_back)(umf_memory_pool_handle_t pool, bool waits);
    /* Time has passed. */
    void (*ticks)(umf_memory_pool_handle_t pool);
    /* A block of a watched pool (object/hold.h) is about to be resized, or to be set aside. false:
     * it is not allocated, which is logged. */
    bool (*resizes)(umf_memory_pool_handle_t pool, const void *ptr);
    /* The pool's allocation at `ptr` went back to the provider. Called for pools that have been
     * suspended. */
    void (*freed_asleep)(umf_memory_pool_handle_t pool, const void *ptr);
    /* The provider is about to be destroyed. */
    void (*provider_ends)(umf_memory_provider_handle_t provider);
    /* Returns the provider of a span of kind IMPORT. Exactly one listener implements it. */
    umf_memory_provider_handle_t (*import_provider)(const umf_span_t *span);
    /* Asks whether an imported span, which the caller uses (track/use.h), is open for anybody. */
    bool (*import_is_open)(const umf_span_t *span);
    struct umf_listener_t *next;
} umf_listener_t;

/* Adds a listener, which must live as long as the library. A second call with it has no effect. Not
 * thread-safe: the start of the library calls it. */
void umf_core_listen(umf_listener_t *listener);

/* Each function calls all listeners. */
void umf_core_export_ends(umf_span_t *span, umf_memory_provider_handle_t provider);
void umf_core_pool_begins(umf_memory_pool_handle_t pool);
void umf_core_pool_closes(umf_memory_pool_handle_t pool);
void umf_core_pool_ends(umf_memory_pool_handle_t pool);
bool umf_core_gives_back(umf_memory_pool_handle_t pool, bool waits);
void umf_core_ticks(umf_memory_pool_handle_t pool);
bool umf_core_resizes(umf_memory_pool_handle_t pool, const void *ptr);
void umf_core_freed_asleep(umf_memory_pool_handle_t pool, const void *ptr);
void umf_core_provider_ends(umf_memory_provider_handle_t provider);
umf_memory_provider_handle_t umf_core_import_provider(const umf_span_t *span);
bool umf_core_import_is_open(const umf_span_t *span);

#endif
