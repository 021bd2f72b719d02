#include "object/event.h"

_Atomic(umf_event_listener_t) umf_event_listener;

void umf_event_listen(umf_event_listener_t listener) {
    atomic_store_explicit(&umf_event_listener, listener, memory_order_release);
}

void umf_event_emit(const umf_event_t *event) {
    umf_event_listener_t listener = atomic_load_explicit(&umf_event_listener, memory_order_acquire);
    if (listener) {
        listener(event);
    }
}
