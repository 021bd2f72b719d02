/*
 * Event count: waiting on a counter, by the kernel's futex.
 */
#include "base/event_count.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

/* No wake is lost: either the waker sees the waiter, or the kernel sees that the count
 * has changed. */
static void wait_until(umf_event_count_t *turn, uint32_t seen, const struct timespec *timeout) {
    __atomic_fetch_add(&turn->waiters, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &turn->count, FUTEX_WAIT_PRIVATE, seen, timeout, NULL, 0);
    __atomic_fetch_sub(&turn->waiters, 1, __ATOMIC_RELAXED);
}

void umf_event_count_wait(umf_event_count_t *turn, uint32_t seen) {
    wait_until(turn, seen, NULL);
}

void umf_event_count_wait_for(umf_event_count_t *turn, uint32_t seen, uint64_t nanoseconds) {
    const struct timespec timeout = {.tv_sec = (time_t)(nanoseconds / SECOND),
                                     .tv_nsec = (long)(nanoseconds % SECOND)};
    wait_until(turn, seen, &timeout);
}

void umf_event_count_advance(umf_event_count_t *turn) {
    __atomic_fetch_add(&turn->count, 1, __ATOMIC_SEQ_CST);
    if (umf_unlikely(__atomic_load_n(&turn->waiters, __ATOMIC_SEQ_CST) != 0)) {
        syscall(SYS_futex, &turn->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}
