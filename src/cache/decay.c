#include "cache/decay.h"

#include <stdatomic.h>
#include <time.h>

#include "base/lock.h"
#include "base/thread_slot.h"

#define SECOND UINT64_C(1000000000)

#define TICKS 2 /* in a period */

/* The time between decay passes while there is more to give back. */
#define SOON (SECOND / 20)

#define OWN_BYTES ((size_t)8 << 20)
#define BACKGROUND_BYTES ((size_t)64 << 20)
#define BACKGROUND_DOUBLED 4 /* times at most */

_Atomic uint64_t umf_decay_period = 2 * SECOND;

uint64_t umf_decay_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static umf_decay_t ticks;
static _Atomic bool is_soon;       /* the next tick continues the last one */
static _Atomic uint32_t continued; /* ticks that continued the one before */
static _Atomic uint64_t thread_of; /* umf_fork_count() + 1 of the process whose background thread
                                      runs; 0: none does */

static uint64_t period(void) {
    return atomic_load_explicit(&umf_decay_period, memory_order_relaxed);
}

/* --- whose work it is --- */

void umf_decay_set_thread(bool is_running) {
    atomic_store_explicit(&thread_of, is_running ? (uint64_t)umf_fork_count() + 1 : 0,
                          memory_order_relaxed);
}

/* How long the calling thread leaves the work to the background thread. */
static uint64_t patience(uint64_t length) {
    bool has_thread =
        atomic_load_explicit(&thread_of, memory_order_relaxed) == (uint64_t)umf_fork_count() + 1;
    return has_thread && !umf_thread_slot_tls.is_background ? length : 0;
}

bool umf_decay_has_thread(void) {
    return patience(1) != 0;
}

size_t umf_decay_bytes(void) {
    uint32_t doubled = atomic_load_explicit(&continued, memory_order_relaxed);
    doubled = doubled < BACKGROUND_DOUBLED ? doubled : BACKGROUND_DOUBLED;
    return umf_thread_slot_tls.is_background ? BACKGROUND_BYTES << doubled : OWN_BYTES;
}

/* --- clocks --- */

static bool is_due(umf_decay_t *decay, uint64_t length) {
    uint64_t next = atomic_load_explicit(&decay->next, memory_order_acquire);
    uint64_t now = umf_decay_now(); /* after `next`, which is then at most a period ahead */
    /* One thread wins the exchange and makes the pass. The first call only starts the clock:
     * a new pool has no decayed memory. */
    bool is_over = (now >= next && now - next >= (next ? patience(length) : 0)) ||
                   (next > now && next - now > length); /* it was longer when it was set */
    return is_over &&
           atomic_compare_exchange_strong_explicit(&decay->next, &next, now + length,
                                                   memory_order_relaxed, memory_order_relaxed) &&
           next != 0;
}

bool umf_decay_is_due(umf_decay_t *decay) {
    return is_due(decay, period());
}

static uint64_t tick_period(void) {
    return period() / TICKS;
}

bool umf_decay_is_tick_due(void) {
    bool is_tick = is_due(&ticks, tick_period());
    if (is_tick) {
        uint32_t before = atomic_load_explicit(&continued, memory_order_relaxed);
        bool goes_on = atomic_exchange_explicit(&is_soon, false, memory_order_relaxed);
        atomic_store_explicit(&continued, goes_on ? before + 1 : 0, memory_order_relaxed);
    }
    return is_tick;
}

/* One that is due sooner stays as it is: callers in a row would put it off for ever. */
static void set_soon(umf_decay_t *decay, uint64_t length) {
    uint64_t soon = umf_decay_now() + (length < SOON ? length : SOON);
    uint64_t next = atomic_load_explicit(&decay->next, memory_order_relaxed);
    while ((next == 0 || soon < next) &&
           !atomic_compare_exchange_weak_explicit(&decay->next, &next, soon, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

void umf_decay_tick_soon(void) {
    atomic_store_explicit(&is_soon, true, memory_order_relaxed);
    set_soon(&ticks, tick_period());
}

uint64_t umf_decay_tick_wait(void) {
    uint64_t next = atomic_load_explicit(&ticks.next, memory_order_relaxed), now = umf_decay_now();
    uint64_t wait = next > now ? next - now : 0, most = tick_period();
    return wait < most ? wait : most;
}

void umf_decay_go_on(umf_decay_t *decay) {
    set_soon(decay, period());
    umf_decay_tick_soon();
}
