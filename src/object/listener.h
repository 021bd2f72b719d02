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
    /* The pool is about to be destroyed. Its provider still exists. */
    void (*pool_ends)(umf_memory_pool_handle_t pool);
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
void umf_core_pool_ends(umf_memory_pool_handle_t pool);
void umf_core_provider_ends(umf_memory_provider_handle_t provider);
umf_memory_provider_handle_t umf_core_import_provider(const umf_span_t *span);
bool umf_core_import_is_open(const umf_span_t *span);

#endif
