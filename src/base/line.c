#include "base/line.h"

#include <pthread.h>

#include "base/local.h"

static umf_local_owner_t line_owners[UMF_LINE_USES]; /* Immutable after line_init */
static bool line_is_ready;

static void line_init(void) {
    line_is_ready = true;
    for (int use = 0; use < UMF_LINE_USES; use++) {
        umf_result_t result =
            umf_local_owner_init(&line_owners[use], 0, sizeof(umf_local_t) + UMF_LINE_SIZE, NULL);
        line_is_ready = line_is_ready && result == UMF_RESULT_SUCCESS;
    }
}

char *umf_line(umf_line_use_t use) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, line_init);
    if (!line_is_ready) {
        return NULL;
    }
    umf_local_t *block = umf_local_get(line_owners[use].index);
    if (!block->owner) {
        block = umf_local_make(&line_owners[use]);
    }
    return block ? (char *)(block + 1) : NULL;
}
