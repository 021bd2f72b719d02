/* The thread of a context, which alone calls UCX. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/remote/own.h"
#include "system/os.h"

#define TICK 2000 /* ms: so often it checks whether the program has ended but for this thread */

/*
 * After an event the thread looks for the next one so long before it sleeps: another request, or
 * the answer to one. To wake a CPU takes 5 to 20 us, and both sides would do it for each answer.
 */
#define SPIN_US 50
#define SPIN_MIN_CPUS 4 /* on fewer CPUs it would be in the way of those it waits for */

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t umf_remote_now(void) {
    return now_us() / 1000;
}

/* 0: the calling thread may use too few CPUs, or the set has no room for all of them. */
static uint64_t spin_us(void) {
    cpu_set_t cpus;
    bool may = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) >= SPIN_MIN_CPUS;
    return may ? SPIN_US : 0;
}

bool umf_remote_spin(umf_event_count_t *changes, uint32_t seen) {
    uint64_t end = now_us() + spin_us();
    while (umf_event_count_read(changes) == seen) {
        if (now_us() >= end) {
            return false;
        }
        sched_yield(); /* to the thread of the context, if it has no CPU */
    }
    return true;
}

void umf_remote_wake(umf_remote_handle_t remote) {
    if (umf_kept_fd_is_open(&remote->wakes[1])) {
        ssize_t written = write(remote->wakes[1].number, "", 1);
        (void)written; /* a full pipe wakes, too */
    }
}

/* --- messages --------------------------------------------------------------------------------- */

umf_ucs_status_t umf_remote_deliver(umf_remote_handle_t remote, const remote_message_t *message,
                                    const remote_data_t *data) {
    if (message->magic != REMOTE_MAGIC || message->version != REMOTE_VERSION) {
        return UMF_UCS_OK;
    }
    switch (message->kind) {
    case REMOTE_HELLO:
    case REMOTE_PROVE:
    case REMOTE_RENEW:
    case REMOTE_GET:
    case REMOTE_PUT:
    case REMOTE_PUSH:
    case REMOTE_BYE:
        return umf_remote_owner_gets(remote, message, data);
    default:
        return umf_remote_peer_gets(remote, message, data);
    }
}

/* --- the thread ------------------------------------------------------------------------------- */

static void take_commands(umf_remote_handle_t remote) {
    umf_lock(&remote->lock);
    while (!umf_list_is_empty(&remote->commands)) {
        umf_list_t *command = remote->commands.next;
        umf_list_remove(command);
        umf_list_add_tail(&remote->ops, command);
    }
    umf_unlock(&remote->lock);
}

static bool is_idle(umf_remote_handle_t remote) {
    return umf_remote_owner_is_idle(remote) && umf_remote_peer_is_idle(remote);
}

/* How long the thread may sleep without an event. Without its pipe no call wakes it, and while the
 * listener is left out no peer. */
static int sleep_for(umf_remote_handle_t remote) {
    uint64_t step = remote->is_hurried ? 1 : remote->deadline / 8;
    bool is_woken = !remote->is_deaf && umf_remote_now() >= remote->accept_after;
    return is_idle(remote) && is_woken ? TICK : step < 1 ? 1 : step < 50 ? (int)step : 50;
}

/* The end of the pipe that the thread reads; -1 if the program has closed it. */
static int wake_read(umf_remote_handle_t remote) {
    if (!remote->is_deaf && !umf_kept_fd_is_open(&remote->wakes[0])) {
        umf_kept_fd_check(&remote->wakes[0], "the pipe that wakes the thread of a context");
        remote->is_deaf = true; /* once in the log */
    }
    return remote->is_deaf ? -1 : remote->wakes[0].number;
}

static void advance(umf_remote_handle_t remote) {
    uint64_t now = umf_remote_now();
    take_commands(remote);
    umf_remote_peer_advance(remote, now);
    umf_remote_owner_advance(remote, now);
}

/* Waits for an event. `is_hot`: only looks for one. false: none came. */
static bool wait_for_event(umf_remote_handle_t remote, bool is_hot) {
    struct pollfd polled[1 + 1 + REMOTE_LOCALS_MAX + 1 + REMOTE_CONNECTIONS_MAX] = {
        {.fd = wake_read(remote), .events = POLLIN}};
    remote_link_t *links[1 + REMOTE_LOCALS_MAX];
    char bytes[64];
    bool may_sleep = !is_hot;
    unsigned locals = umf_remote_local_fill(remote, polled + 1, links);
    unsigned workers =
        is_hot ? 0 : umf_remote_workers_fill(remote, polled + 1 + locals, &may_sleep);
    if (poll(polled, 1 + locals + workers, may_sleep ? sleep_for(remote) : 0) <= 0) {
        return false;
    }
    if (polled[0].revents) {
        ssize_t got = wake_read(remote) != -1 ? read(polled[0].fd, bytes, sizeof(bytes)) : 0;
        (void)got; /* it does not block, and may have been read */
    }
    umf_remote_local_serve(remote, polled + 1, links, locals);
    return true;
}

/* Closes all, and waits for what UCX still does with memory: at most the deadline. */
static void drain(umf_remote_handle_t remote) {
    uint64_t end = umf_remote_now() + remote->deadline;
    remote->is_ending = true;
    umf_remote_peer_end(remote);
    umf_remote_owner_end(remote);
    while (!is_idle(remote) && umf_remote_now() < end) {
        if (!umf_remote_workers_progress(remote, 1)) {
            advance(remote);
        }
    }
    umf_remote_workers_end(remote);
    advance(remote); /* what that has ended */
}

/* The system is asked only now and then: that takes longer than the rest of a step. */
static bool is_alone(uint64_t *last) {
    uint64_t now = umf_remote_now();
    if (now - *last < TICK / 2) {
        return false;
    }
    *last = now;
    return umf_os_is_last_thread();
}

static void *run(void *arg) {
    umf_remote_handle_t remote = arg;
    uint64_t last = umf_remote_now(), spin = spin_us(), spin_end = 0;
    bool is_event = false;
    umf_os_own_thread_begins();
    while (!atomic_load_explicit(&remote->stops, memory_order_acquire) && !is_alone(&last)) {
        is_event |= umf_remote_workers_progress(remote, 64) > 0;
        advance(remote);
        uint64_t now = now_us();
        spin_end = is_event ? now + spin : spin_end;
        is_event = wait_for_event(remote, now < spin_end);
    }
    umf_lock(&remote->lock);
    remote->is_over = true;
    umf_unlock(&remote->lock);
    take_commands(remote);
    drain(remote);
    umf_event_count_advance(&remote->changes);
    umf_os_own_thread_ends();
    return NULL;
}

int umf_remote_start(umf_remote_handle_t remote) {
    sigset_t all, before;
    sigfillset(&all); /* signals belong to the program */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&remote->thread, NULL, run, remote);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void umf_remote_stop(umf_remote_handle_t remote) {
    atomic_store_explicit(&remote->stops, true, memory_order_release);
    umf_remote_wake(remote);
    pthread_join(remote->thread, NULL);
}
