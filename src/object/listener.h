/*
 * Listeners: functions of upper folders that run at an event of a pool or provider. Each folder
 * registers one at start. Hooks: functions of ipc/ that the core calls for spans which only ipc/
 * makes.
 */
#ifndef UMF_SRC_OBJECT_LISTENER_H
#define UMF_SRC_OBJECT_LISTENER_H

#include <umf/memory_pool.h>

#include "track/span.h"

/* Any member but `next` may be NULL. */
typedef struct umf_listener_t {
    /* The pool has been created. */
    void (*pool_begins)(umf_memory_pool_handle_t pool);
    /* The pool is about to be destroyed. Its provider still exists. */
    void (*pool_ends)(umf_memory_pool_handle_t pool);
    /* The provider is about to be destroyed. */
    void (*provider_ends)(umf_memory_provider_handle_t provider);
    /* The background thread ticks: memory that was unused for a while goes back. */
    void (*ticks)(void);
    struct umf_listener_t *next;
} umf_listener_t;

/* No member may be NULL. */
typedef struct umf_ipc_hooks_t {
    /* The export of the span becomes invalid: the allocation is about to go back to its provider,
     * to be split or to be merged. Called for spans with an export. */
    void (*export_ends)(umf_span_t *span, umf_memory_provider_handle_t provider);
    /* Returns the provider of a span of kind IMPORT. */
    umf_memory_provider_handle_t (*import_provider)(const umf_span_t *span);
    /* Is an imported span, which the caller uses (track/use.h), open in any handler? */
    bool (*import_is_open)(const umf_span_t *span);
} umf_ipc_hooks_t;

/* Adds a listener, which must live as long as the library. A second call with it has no effect. Not
 * thread-safe: the start of the library calls it. */
void umf_core_listen(umf_listener_t *listener);

/* Sets the hooks, which are constant. Not thread-safe: as umf_core_listen. */
void umf_core_set_ipc_hooks(const umf_ipc_hooks_t *hooks);

/* Each function calls all listeners. */
void umf_core_pool_begins(umf_memory_pool_handle_t pool);
void umf_core_pool_ends(umf_memory_pool_handle_t pool);
void umf_core_provider_ends(umf_memory_provider_handle_t provider);
void umf_core_ticks(void);

/* Each function calls its hook. */
void umf_core_export_ends(umf_span_t *span, umf_memory_provider_handle_t provider);
umf_memory_provider_handle_t umf_core_import_provider(const umf_span_t *span);
bool umf_core_import_is_open(const umf_span_t *span);

#endif
