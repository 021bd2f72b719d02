/* Who allocates from a pool of a running process: a short recording, by place. */
#ifndef UMFCTL_TOP_CALLERS_H
#define UMFCTL_TOP_CALLERS_H

#include "top.h"

#define TOP_CALLERS_SECONDS 3u

typedef struct top_callers_t {
    char title[160];
    char **texts;
    size_t count, room;
} top_callers_t;

/* Records the process until `is_enough` says so, or takes the recording that runs there. False:
 * `error` says why. */
bool top_callers_load(top_callers_t *callers, uint32_t pid, const umf_record_object_t *pool,
                      bool (*is_enough)(void), char *error, size_t size);
void top_callers_free(top_callers_t *callers);

#endif
