#include "system/pause.h"

#include <sched.h>
#include <time.h>

#include "system/keep_errno.h"

#define YIELDS 16u
#define NAP_NS 50000

void umf_pause(unsigned round) {
    UMF_KEEP_ERRNO;
    if (round < YIELDS) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}
