/* Workers: threads for one large copy. They are started for it and joined at its end. */
#ifndef UMF_SRC_EXT_STAGING_WORKERS_H
#define UMF_SRC_EXT_STAGING_WORKERS_H

#include "system/common.h"

#define UMF_WORKERS_MAX 16

/* Runs `work` in up to `count` threads, the calling one among them, until all have returned. Fewer
 * threads than requested are no failure, so the threads take their work from a common place. */
void umf_workers_run(size_t count, void (*work)(void *arg), void *arg);

#endif
