#include "ext/movement/movement.h"

#include "ext/movement/content.h"
#include "ext/movement/pending.h"
#include "ext/staging/queue.h"
#include "ext/staging/undone.h"
#include "object/listener.h"

static void provider_ends(umf_memory_provider_handle_t provider) {
    umf_pending_drop(provider);
    umf_undone_end(provider);
    umf_queue_drop(provider);
}

void umf_movement_init(void) {
    static umf_listener_t listener = {.provider_ends = provider_ends};
    umf_core_listen(&listener);
    umf_use_settle = umf_pending_settle;
    umf_movement_serve_content();
}
