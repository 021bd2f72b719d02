#include "cache/transit.h"

#include "base/lock.h"
#include "system/pause.h"

/* Pauses of a retry in all, of 100 us each, and pauses of a begin. */
#define RETRY_PAUSES 100000
#define BEGIN_PAUSES 64

#define FORKS_SHIFT 16
#define FORKS_MASK UINT64_C(0xffff)
#define GENERATION (UINT64_C(1) << 32)

typedef umf_transit_part_t part_t;

static __thread part_t *innermost;

/* --- words ------------------------------------------------------------------------------------ */

/* The word as it counts in this process: after a fork the threads of the parent are gone. */
static uint64_t word_here(uint64_t word) {
    uint64_t forks = umf_fork_count() & FORKS_MASK;
    bool is_here = (word >> FORKS_SHIFT & FORKS_MASK) == forks;
    return is_here ? word : (word & ~(GENERATION - 1)) + GENERATION + (forks << FORKS_SHIFT);
}

static uint64_t word_read(uint64_t *word) {
    return word_here(__atomic_load_n(word, __ATOMIC_SEQ_CST));
}

static bool word_has_any(uint64_t *word) {
    return word_read(word) & UMF_TRANSIT_COUNT_MASK;
}

/* false: `alone`, and another thread is counted. */
static bool word_enter(uint64_t *word, bool alone) {
    uint64_t old = __atomic_load_n(word, __ATOMIC_SEQ_CST), here;
    do {
        here = word_here(old);
        if (alone && here & UMF_TRANSIT_COUNT_MASK) {
            return false;
        }
    } while (!__atomic_compare_exchange_n(word, &old, here + 1, true, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    return true;
}

static void word_leave(uint64_t *word, unsigned forks) {
    if (forks == umf_fork_count()) { /* else the thread was counted in the parent */
        __atomic_fetch_add(word, GENERATION - 1, __ATOMIC_SEQ_CST);
    }
}

/* --- parts ------------------------------------------------------------------------------------ */

bool umf_transit_is_inside(const umf_transit_t *transit) {
    const part_t *part = innermost;
    while (part && part->transit != transit) {
        part = part->outer;
    }
    return part != NULL;
}

static void part_open(umf_transit_t *transit, part_t *part) {
    *part = (part_t){.transit = transit,
                     .outer = innermost,
                     .forks = umf_fork_count(),
                     .is_counted = !umf_transit_is_inside(transit)};
    innermost = part;
}

static void part_close(part_t *part, uint64_t *word) {
    innermost = part->outer;
    if (part->is_counted) {
        word_leave(word, part->forks);
    }
}

/* --- memory in transit
 * ------------------------------------------------------------------------------ */

void umf_transit_begin(umf_transit_t *transit, part_t *part) {
    part_open(transit, part);
    if (!part->is_counted) {
        return;
    }
    for (unsigned round = 0; round < BEGIN_PAUSES && word_has_any(&transit->retrying); round++) {
        umf_pause(round);
    }
    word_enter(&transit->at_work, false);
}

void umf_transit_end(part_t *part) {
    part_close(part, &part->transit->at_work);
}

/* --- retrying ----------------------------------------------------------------------------------
 */

static void wait_until_released(part_t *part) {
    uint64_t *at_work = &part->transit->at_work;
    /* One value has both: that no memory is in transit, and when that was. */
    while ((part->seen = word_read(at_work)) & UMF_TRANSIT_COUNT_MASK &&
           part->round < RETRY_PAUSES) {
        umf_pause(part->round++);
    }
}

void umf_transit_retry(umf_transit_t *transit, part_t *part) {
    part_open(transit, part);
    if (!part->is_counted) {
        return;
    }
    bool is_alone;
    while (!(is_alone = word_enter(&transit->retrying, true)) && part->round < RETRY_PAUSES) {
        umf_pause(part->round++);
    }
    if (!is_alone) {
        word_enter(&transit->retrying, false);
    }
    wait_until_released(part);
}

bool umf_transit_again(part_t *part, bool is_served) {
    uint64_t *at_work = &part->transit->at_work;
    if (!is_served && part->is_counted && part->round++ < RETRY_PAUSES &&
        word_read(at_work) != part->seen) {
        wait_until_released(part);
        return true;
    }
    part_close(part, &part->transit->retrying);
    return false;
}
