#include "recorded_shim.h"

#include "object/event.h"

static void (*told_listener)(const told_t *told);

static void tell(const umf_event_t *event) {
    told_t told = {(int)event->kind, event->pool, event->provider,
                   event->address,   event->size, event->queue};
    told_listener(&told);
}

void shim_listen(void (*listener)(const told_t *told)) {
    umf_event_listen(NULL);
    told_listener = listener;
    umf_event_listen(listener ? tell : NULL);
}

void shim_begin(umf_memory_pool_handle_t pool) {
    umf_recorded_begin(pool);
}

void shim_end(umf_memory_pool_handle_t pool) {
    umf_recorded_end(pool);
}
