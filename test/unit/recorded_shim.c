#include "recorded_shim.h"

#include "object/event.h"

static void (*event_listener)(const shim_event_t *event);

static void report(const umf_event_t *event) {
    shim_event_t seen = {(int)event->kind, event->pool, event->provider,
                         event->address,   event->size, event->queue};
    event_listener(&seen);
}

void shim_listen(void (*listener)(const shim_event_t *event)) {
    umf_event_listen(NULL);
    event_listener = listener;
    umf_event_listen(listener ? report : NULL);
}

void shim_begin(umf_memory_pool_handle_t pool) {
    umf_recorded_begin(pool);
}

void shim_end(umf_memory_pool_handle_t pool) {
    umf_recorded_end(pool);
}
