/* For LD_PRELOAD: each reading of the clock is a second later, so long work takes no time. */
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now);

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now) {
    static time_t seconds = 1000;
    (void)clock;
    *now = (struct timespec){.tv_sec = seconds++};
    return 0;
}
