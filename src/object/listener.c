#include "object/listener.h"

static umf_listener_t *listeners; /* Immutable after start, as the next */
static const umf_ipc_hooks_t *hooks;

void umf_core_listen(umf_listener_t *listener) {
    umf_listener_t **end = &listeners;
    while (*end && *end != listener) {
        end = &(*end)->next;
    }
    *end = listener;
}

/* Defines the function that calls the listeners of an event, in the order in which they were
 * added. */
#define TELLS(event, parameters, arguments)                                                        \
    void umf_core_##event parameters {                                                             \
        for (const umf_listener_t *l = listeners; l; l = l->next) {                                \
            if (l->event) {                                                                        \
                l->event arguments;                                                                \
            }                                                                                      \
        }                                                                                          \
    }

TELLS(pool_begins, (umf_memory_pool_handle_t pool), (pool))
TELLS(pool_ends, (umf_memory_pool_handle_t pool), (pool))
TELLS(provider_ends, (umf_memory_provider_handle_t provider), (provider))
TELLS(ticks, (void), ())

void umf_core_set_ipc_hooks(const umf_ipc_hooks_t *ipc) {
    hooks = ipc;
}

void umf_core_export_ends(umf_span_t *span, umf_memory_provider_handle_t provider) {
    hooks->export_ends(span, provider);
}

umf_memory_provider_handle_t umf_core_import_provider(const umf_span_t *span) {
    return hooks->import_provider(span);
}

bool umf_core_import_is_open(const umf_span_t *span) {
    return hooks->import_is_open(span);
}
