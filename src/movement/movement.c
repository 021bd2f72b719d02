#include "movement/movement.h"

#include "core/listener.h"
#include "movement/queue.h"

void umf_movement_init(void) {
    static umf_listener_t listener = {.provider_ends = umf_queue_drop};
    umf_core_listen(&listener);
}
