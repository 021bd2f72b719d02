/*
 * Locks with ranks, and fork.
 *
 * Every lock is in the list of its rank. The ranks form two halves, inner and outer. Each half has
 * a registry mutex that guards its lists.
 *
 * A fork takes all locks of a half in this way: it takes the registry, then tries the locks one
 * after the other in rank order. It must not simply wait for a lock, because the holder may be
 * waiting for the registry (it initialises or destroys a lock). So fork waits for a bounded time.
 * Then it releases everything, the registry too, lets the other threads through, and starts again.
 * Therefore no thread waits for fork without end, and a lock that is being tried cannot be
 * destroyed. Once fork holds all locks, no other thread holds a lock of this half. A thread that
 * waits for the registry then holds nothing that fork needs, so the registry is kept until after
 * the fork, and the lists cannot change meanwhile.
 *
 * The outer half is taken first and keeps its registry while the inner half is taken. That is safe
 * because a thread that holds an inner lock never registers an outer one (lock.h).
 */
#include "base/lock.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread_slot.h"
#include "system/pause.h"

typedef struct lock_half_t {
    int first, end; /* ranks. Immutable */
    pthread_mutex_t registry;
    atomic_int waiting; /* threads that wait for the registry */
} lock_half_t;

typedef struct lock_list_t {
    umf_lock_t *first, *last;
} lock_list_t;

static lock_half_t lock_outer = {
    .first = 0,
    .end = UMF_RANK_JEMALLOC,
    .registry = PTHREAD_MUTEX_INITIALIZER,
};
static lock_half_t lock_inner = {
    .first = UMF_RANK_JEMALLOC + 1,
    .end = UMF_RANK_COUNT,
    .registry = PTHREAD_MUTEX_INITIALIZER,
};
static lock_list_t lock_lists[UMF_RANK_COUNT]; /* Sync: the registry of the rank's half */
static _Atomic uint32_t lock_count;
static atomic_uint lock_fork_count;
static const struct umf_thread_slot_table_t
    *lock_fork_survivor; /* Immutable while there are two threads */

static bool lock_is_inner(umf_lock_rank_t rank) {
    return rank > UMF_RANK_JEMALLOC;
}

static lock_half_t *lock_half(umf_lock_rank_t rank) {
    return lock_is_inner(rank) ? &lock_inner : &lock_outer;
}

/* --- waiting --- */

/* The spin lasts about as long as our longest critical section without a system call. The pauses
 * grow, so that many waiters do not take the cache line from the thread that releases the lock. */
#define LOCK_LOOKS 16
#define LOCK_PAUSES_MAX 32u

static void lock_sleep(umf_lock_t *lock) {
    syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, UMF_LOCK_AWAITED, NULL, NULL, 0);
}

static void lock_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool lock_spin(umf_lock_t *lock) {
    unsigned pauses = 1;
    for (int i = 0; i < LOCK_LOOKS; i++) {
        if (__atomic_load_n(&lock->state, __ATOMIC_RELAXED) == UMF_LOCK_FREE &&
            umf_lock_try_bare(lock)) {
            return true;
        }
        for (unsigned k = 0; k < pauses; k++) {
            lock_pause();
        }
        pauses = pauses < LOCK_PAUSES_MAX ? 2 * pauses : pauses;
    }
    return false;
}

/* A thread that has slept cannot see whether others still sleep, so it takes the
 * lock as AWAITED. */
void umf_lock_wait(umf_lock_t *lock) {
    int error = errno;
    if (!lock_spin(lock)) {
        while (__atomic_exchange_n(&lock->state, UMF_LOCK_AWAITED, __ATOMIC_ACQUIRE) !=
               UMF_LOCK_FREE) {
            lock_sleep(lock);
        }
    }
    errno = error;
}

/* The lock may be destroyed by now. That is harmless: the kernel only uses its address. */
void umf_lock_wake(umf_lock_t *lock) {
    int error = errno;
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = error;
}

/* --- the order, checked in debug builds --- */

#ifndef NDEBUG

/* The last lock that this thread took; the others are linked below it. */
static __thread umf_lock_t *lock_held;

UMF_COLD static _Noreturn void lock_die(const char *what, const umf_lock_t *lock,
                                        const umf_lock_t *held) {
    fprintf(stderr, "umf: lock order: %s: rank %d, order %u", what, (int)lock->rank, lock->order);
    if (held) {
        fprintf(stderr, "; held: rank %d, order %u", (int)held->rank, held->order);
    }
    fputc('\n', stderr);
    abort();
}

static bool lock_is_before(const umf_lock_t *a, const umf_lock_t *b) {
    return a->rank < b->rank || (a->rank == b->rank && a->order < b->order);
}

static void lock_check_order(const umf_lock_t *lock) {
    for (const umf_lock_t *held = lock_held; held; held = held->below) {
        if (!lock_is_before(held, lock)) {
            lock_die("taken too late", lock, held);
        }
    }
}

static void lock_check_registration(const umf_lock_t *lock) {
    for (const umf_lock_t *held = lock_held; held; held = held->below) {
        if (held == lock) {
            lock_die("registered or destroyed while held", lock, NULL);
        }
        if (!lock_is_inner(lock->rank) && lock_is_inner(held->rank)) {
            lock_die("outer lock registered or destroyed", lock, held);
        }
    }
}

static void lock_note(umf_lock_t *lock) {
    lock->below = lock_held;
    lock_held = lock;
}

static void lock_forget(const umf_lock_t *lock) {
    for (umf_lock_t **held = &lock_held; *held; held = &(*held)->below) {
        if (*held == lock) {
            *held = lock->below;
            return;
        }
    }
    lock_die("released but not held", lock, NULL);
}

void umf_lock(umf_lock_t *lock) {
    lock_check_order(lock);
    umf_lock_take_bare(lock);
    lock_note(lock);
}

/* The order does not matter here, because a try never waits. */
bool umf_trylock(umf_lock_t *lock) {
    if (!umf_lock_try_bare(lock)) {
        return false;
    }
    lock_note(lock);
    return true;
}

void umf_unlock(umf_lock_t *lock) {
    lock_forget(lock);
    umf_lock_release_bare(lock);
}

void umf_assert_locked(umf_lock_t *lock) {
    for (const umf_lock_t *held = lock_held; held; held = held->below) {
        if (held == lock) {
            return;
        }
    }
    lock_die("not held", lock, NULL);
}

static void lock_check_none_held(void) {
    if (lock_held) {
        lock_die("fork with a lock held", lock_held, NULL);
    }
}

#else

static void lock_check_registration(const umf_lock_t *lock) {
    (void)lock;
}

static void lock_check_none_held(void) {}

#endif

/* --- registration --- */

static void half_enter(lock_half_t *half) {
    if (pthread_mutex_trylock(&half->registry) == 0) {
        return;
    }
    atomic_fetch_add_explicit(&half->waiting, 1, memory_order_relaxed);
    pthread_mutex_lock(&half->registry);
    atomic_fetch_sub_explicit(&half->waiting, 1, memory_order_relaxed);
}

static void half_leave(lock_half_t *half) {
    pthread_mutex_unlock(&half->registry);
}

void umf_lock_register(umf_lock_t *lock) {
    lock_half_t *half = lock_half(lock->rank);
    lock_list_t *list = &lock_lists[lock->rank];
    assert(lock->rank < UMF_RANK_COUNT && lock->rank != UMF_RANK_JEMALLOC);
    lock_check_registration(lock);

    half_enter(half);
    lock->order = atomic_fetch_add_explicit(&lock_count, 1, memory_order_relaxed);
    lock->next = NULL;
    lock->prev = list->last;
    *(list->last ? &list->last->next : &list->first) = lock;
    list->last = lock;
    half_leave(half);
}

void umf_lock_init(umf_lock_t *lock, umf_lock_rank_t rank) {
    __atomic_store_n(&lock->state, UMF_LOCK_FREE, __ATOMIC_RELAXED);
    lock->rank = rank;
    umf_lock_register(lock);
}

void umf_lock_destroy(umf_lock_t *lock) {
    lock_half_t *half = lock_half(lock->rank);
    lock_list_t *list = &lock_lists[lock->rank];
    lock_check_registration(lock);

    half_enter(half);
    *(lock->prev ? &lock->prev->next : &list->first) = lock->next;
    *(lock->next ? &lock->next->prev : &list->last) = lock->prev;
    half_leave(half);
}

/* --- fork --- */

/* The tries of one lock in the first round, and the most in a later round. */
#define LOCK_TRIES_MIN 8u
#define LOCK_TRIES_MAX 64u

static bool lock_try(lock_half_t *half, umf_lock_t *lock, unsigned tries) {
    for (unsigned round = 0; !umf_lock_try_bare(lock); round++) {
        if (round >= tries && atomic_load_explicit(&half->waiting, memory_order_relaxed) > 0) {
            return false;
        }
        umf_pause(round);
    }
    return true;
}

/* Releases the locks of a half, last one first: all, or those before `end`. */
static void half_release(lock_half_t *half, umf_lock_t *end) {
    for (int rank = end ? (int)end->rank : half->end - 1; rank >= half->first; rank--) {
        bool is_last = end && rank == (int)end->rank;
        umf_lock_t *lock = is_last ? end->prev : lock_lists[rank].last;
        for (; lock; lock = lock->prev) {
            umf_lock_release_bare(lock);
        }
    }
}

static bool half_try(lock_half_t *half, unsigned tries) {
    for (int rank = half->first; rank < half->end; rank++) {
        for (umf_lock_t *lock = lock_lists[rank].first; lock; lock = lock->next) {
            if (!lock_try(half, lock, tries)) {
                half_release(half, lock);
                return false;
            }
        }
    }
    return true;
}

static void half_prepare(lock_half_t *half) {
    lock_check_none_held();
    for (unsigned tries = LOCK_TRIES_MIN;; tries += tries < LOCK_TRIES_MAX ? tries : 0) {
        half_enter(half);
        if (half_try(half, tries)) {
            return;
        }
        half_leave(half);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static void half_resume_parent(lock_half_t *half) {
    half_release(half, NULL);
    half_leave(half);
}

/* The threads that waited in the parent do not exist in the child. */
static void half_resume_child(lock_half_t *half) {
    atomic_store_explicit(&half->waiting, 0, memory_order_relaxed);
    half_resume_parent(half);
}

static void inner_prepare(void) {
    half_prepare(&lock_inner);
}

static void inner_resume_parent(void) {
    half_resume_parent(&lock_inner);
}

static void inner_resume_child(void) {
    atomic_fetch_add_explicit(&lock_fork_count, 1, memory_order_relaxed);
    lock_fork_survivor = umf_thread_slot_own_table();
    half_resume_child(&lock_inner);
}

/*
 * The allocator below us. Its locks rank after our outer and before our inner locks. Its own
 * pthread_atfork could not promise that order, because it registers at its first use, long after
 * us.
 */
typedef struct lock_below_t {
    void (*prepare)(void);
    void (*parent)(void);
    void (*child)(void);
} lock_below_t;

static _Atomic(const lock_below_t *) lock_below; /* Sync: atomic, set once */
static const lock_below_t *lock_below_held; /* Sync: registry of the outer half, during a fork */

int umf_fork_below(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    static lock_below_t below;
    below = (lock_below_t){.prepare = prepare, .parent = parent, .child = child};
    atomic_store_explicit(&lock_below, &below, memory_order_release);
    return 0;
}

static void outer_prepare(void) {
    half_prepare(&lock_outer);
    lock_below_held = atomic_load_explicit(&lock_below, memory_order_acquire);
    if (lock_below_held) {
        lock_below_held->prepare();
    }
}

static void outer_resume_parent(void) {
    if (lock_below_held) {
        lock_below_held->parent();
    }
    half_resume_parent(&lock_outer);
}

static void outer_resume_child(void) {
    if (lock_below_held) {
        lock_below_held->child();
    }
    half_resume_child(&lock_outer);
}

static void fork_register(atomic_flag *done, void (*prepare)(void), void (*parent)(void),
                          void (*child)(void)) {
    if (atomic_flag_test_and_set(done)) {
        return;
    }
    if (pthread_atfork(prepare, parent, child) != 0) {
        UMF_LOG_ERROR(
            "cannot register fork handlers (no memory): a child process of fork() must not "
            "use the library");
    }
}

void umf_fork_register_inner(void) {
    static atomic_flag done = ATOMIC_FLAG_INIT;
    fork_register(&done, inner_prepare, inner_resume_parent, inner_resume_child);
}

void umf_fork_register_outer(void) {
    static atomic_flag done = ATOMIC_FLAG_INIT;
    fork_register(&done, outer_prepare, outer_resume_parent, outer_resume_child);
}

unsigned umf_fork_count(void) {
    return atomic_load_explicit(&lock_fork_count, memory_order_relaxed);
}

const struct umf_thread_slot_table_t *umf_fork_survivor(void) {
    return lock_fork_survivor;
}
