#include "base/message_buffer.h"

#include <pthread.h>

#include "base/thread_slot.h"

/* Immutable after line_init. */
static umf_thread_slot_owner_t line_owners[UMF_MESSAGE_BUFFER_USES];
static bool line_is_ready;

static void line_init(void) {
    line_is_ready = true;
    for (int use = 0; use < UMF_MESSAGE_BUFFER_USES; use++) {
        umf_result_t result = umf_thread_slot_owner_init(
            &line_owners[use], 0, sizeof(umf_thread_slot_t) + UMF_MESSAGE_BUFFER_SIZE, NULL);
        line_is_ready = line_is_ready && result == UMF_RESULT_SUCCESS;
    }
}

char *umf_message_buffer(umf_message_buffer_use_t use) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, line_init);
    if (!line_is_ready) {
        return NULL;
    }
    umf_thread_slot_t *block = umf_thread_slot_get(line_owners[use].index);
    if (!block->owner) {
        block = umf_thread_slot_make(&line_owners[use]);
    }
    return block ? (char *)(block + 1) : NULL;
}
