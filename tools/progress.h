/* A bar on stderr, if that is a terminal, of work that takes more than a second. */
#ifndef UMFCTL_PROGRESS_H
#define UMFCTL_PROGRESS_H

#include <stdint.h>

/* `done` of `total` is done; the bar goes with the last part. A further piece of work begins with
 * a smaller `done`. */
void progress_show(uint64_t done, uint64_t total);

#endif
