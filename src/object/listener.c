#include "object/listener.h"

static umf_listener_t *listeners; /* Immutable after start */

void umf_core_listen(umf_listener_t *listener) {
    umf_listener_t **end = &listeners;
    while (*end && *end != listener) {
        end = &(*end)->next;
    }
    *end = listener;
}

/* Defines the function that calls the listeners of an event, in the order in which they were
 * added. */
#define TELLS(event, parameters, ...)                                                              \
    void umf_core_##event parameters {                                                             \
        for (const umf_listener_t *l = listeners; l; l = l->next) {                                \
            if (l->event) {                                                                        \
                l->event(__VA_ARGS__);                                                             \
            }                                                                                      \
        }                                                                                          \
    }

TELLS(export_ends, (umf_span_t * span, umf_memory_provider_handle_t provider), span, provider)
TELLS(pool_begins, (umf_memory_pool_handle_t pool), pool)
TELLS(pool_closes, (umf_memory_pool_handle_t pool), pool)
TELLS(pool_ends, (umf_memory_pool_handle_t pool), pool)
TELLS(ticks, (umf_memory_pool_handle_t pool), pool)
TELLS(freed_asleep, (umf_memory_pool_handle_t pool, const void *ptr), pool, ptr)
TELLS(provider_ends, (umf_memory_provider_handle_t provider), provider)

bool umf_core_gives_back(umf_memory_pool_handle_t pool, bool waits) {
    bool is_any = false;
    for (const umf_listener_t *l = listeners; l; l = l->next) {
        is_any = (l->gives_back && l->gives_back(pool, waits)) || is_any;
    }
    return is_any;
}

bool umf_core_resizes(umf_memory_pool_handle_t pool, const void *ptr) {
    bool may = true;
    for (const umf_listener_t *l = listeners; l && may; l = l->next) {
        may = !l->resizes || l->resizes(pool, ptr);
    }
    return may;
}

umf_memory_provider_handle_t umf_core_import_provider(const umf_span_t *span) {
    for (const umf_listener_t *l = listeners; l; l = l->next) {
        if (l->import_provider) {
            return l->import_provider(span);
        }
    }
    return NULL;
}

bool umf_core_import_is_open(const umf_span_t *span) {
    for (const umf_listener_t *l = listeners; l; l = l->next) {
        if (l->import_is_open) {
            return l->import_is_open(span);
        }
    }
    return false;
}
