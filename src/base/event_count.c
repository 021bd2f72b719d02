/*
 * Event count: waiting on a counter, by the kernel's futex if there is one.
 */
#include "base/event_count.h"

#include <limits.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* No wake is lost: either the waker sees the waiter, or the kernel sees that the count
 * has changed. */
void umf_event_count_wait(umf_event_count_t *turn, uint32_t seen) {
    __atomic_fetch_add(&turn->waiters, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &turn->count, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    __atomic_fetch_sub(&turn->waiters, 1, __ATOMIC_RELAXED);
}

void umf_event_count_advance(umf_event_count_t *turn) {
    __atomic_fetch_add(&turn->count, 1, __ATOMIC_SEQ_CST);
    if (umf_unlikely(__atomic_load_n(&turn->waiters, __ATOMIC_SEQ_CST) != 0)) {
        syscall(SYS_futex, &turn->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}
#else
#include <sched.h>

void umf_event_count_wait(umf_event_count_t *turn, uint32_t seen) {
    if (umf_event_count_read(turn) == seen) {
        sched_yield();
    }
}

void umf_event_count_advance(umf_event_count_t *turn) {
    __atomic_fetch_add(&turn->count, 1, __ATOMIC_RELEASE);
}
#endif
