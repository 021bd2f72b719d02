/* The lease of arenas, and the thread that ends it. */
#include "lease.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <umf/reclaim.h>

#define LEASE_SECONDS 5.0   /* without a setting */
#define RETURN_SECONDS 4.0  /* in which all units are given back, with pauses between them */
#define UNIT_SECONDS 0.0045 /* of a driver that unpins a unit beside kernels */
#define LONGEST_PAUSE 0.1
#define LONGEST_WAIT 0.5 /* until the memory of the machine is looked at again */
#define SCARCE 16        /* memory is scarce when less than one part of so many is available */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Sync: mutex, as all below */
static arena_t *kept;
static bool is_retaining;
static double seconds = -1; /* not read from the environment yet */
static pthread_t thread;
static bool has_thread, is_over, is_stopping;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* --- settings --------------------------------------------------------------------------------- */

static double seconds_of_environment(void) {
    const char *text = getenv("UMF_BACKUP_LEASE");
    if (!text) {
        return LEASE_SECONDS;
    }
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value <= LEASE_MAX_SECONDS)) {
        fprintf(stderr,
                "umf: UMF_BACKUP_LEASE must be a number of seconds from 0 to %d, it is '%s'; "
                "%g is used\n",
                LEASE_MAX_SECONDS, text, LEASE_SECONDS);
        return LEASE_SECONDS;
    }
    return value;
}

static double seconds_locked(void) {
    if (seconds < 0) {
        seconds = seconds_of_environment();
    }
    return seconds;
}

double lease_seconds(void) {
    pthread_mutex_lock(&mutex);
    double value = seconds_locked();
    pthread_mutex_unlock(&mutex);
    return value;
}

/* --- the list --------------------------------------------------------------------------------- */

static arena_t *take_first(void) {
    pthread_mutex_lock(&mutex);
    arena_t *arena = kept;
    if (arena) {
        kept = arena->next;
    }
    pthread_mutex_unlock(&mutex);
    return arena;
}

bool lease_end_all(void) {
    bool had_any = false;
    for (arena_t *arena; (arena = take_first()); had_any = true) {
        bool is_entered = cuda_enter(arena->device) == CUDA_SUCCESS;
        arena_destroy(arena);
        if (is_entered) {
            cuda_leave();
        }
    }
    return had_any;
}

static arena_t **smallest_locked(size_t size, int device) {
    arena_t **best = NULL;
    for (arena_t **at = &kept; *at; at = &(*at)->next) {
        bool fits = (*at)->device == device && (*at)->size >= size;
        if (fits && (!best || (*at)->size < (*best)->size)) {
            best = at;
        }
    }
    return best;
}

arena_t *lease_take(size_t size, int device) {
    pthread_mutex_lock(&mutex);
    arena_t **at = smallest_locked(size, device);
    arena_t *arena = at ? *at : NULL;
    if (arena) {
        *at = arena->next;
    }
    pthread_mutex_unlock(&mutex);
    /* Memory that a backup does not need is not held while it sleeps. */
    while (arena && arena_units(arena) > 1 && (arena_units(arena) - 1) * ARENA_UNIT >= size) {
        arena_drop_last_unit(arena);
    }
    return arena;
}

static bool reclaim(umf_memory_pool_handle_t pool, size_t bytes, unsigned attempt, void *arg) {
    (void)pool, (void)bytes, (void)attempt, (void)arg;
    return lease_end_all();
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Kilobytes out of /proc/meminfo; -1: not known. */
static long meminfo(const char *name) {
    char line[128];
    long value = -1;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && value < 0 && fgets(line, sizeof(line), file)) {
        if (strncmp(line, name, strlen(name)) == 0) {
            value = strtol(line + strlen(name), NULL, 10);
        }
    }
    if (file) {
        fclose(file);
    }
    return value;
}

static bool is_memory_scarce(void) {
    long total = meminfo("MemTotal:"), available = meminfo("MemAvailable:");
    return total > 0 && available >= 0 && available < total / SCARCE;
}

static void wait_locked(double duration) {
    double until = now() + duration;
    struct timespec time = {.tv_sec = (time_t)until};
    time.tv_nsec = (long)((until - (double)time.tv_sec) * 1e9);
    pthread_cond_timedwait(&changed, &mutex, &time);
}

static size_t units_locked(void) {
    size_t units = 0;
    for (const arena_t *arena = kept; arena; arena = arena->next) {
        units += arena_units(arena);
    }
    return units;
}

/* The arena that was kept first. The list begins with the last one. */
static arena_t **oldest_locked(void) {
    arena_t **at = &kept;
    while ((*at)->next) {
        at = &(*at)->next;
    }
    return at;
}

/* Off the list meanwhile: no thread takes an arena that becomes smaller. */
static void drop_unit_locked(arena_t **at) {
    arena_t *arena = *at;
    *at = arena->next;
    pthread_mutex_unlock(&mutex);
    bool has_rest = arena_units(arena) > 1;
    bool is_entered = cuda_enter(arena->device) == CUDA_SUCCESS;
    if (has_rest) {
        arena_drop_last_unit(arena);
    } else {
        arena_destroy(arena);
    }
    if (is_entered) {
        cuda_leave();
    }
    pthread_mutex_lock(&mutex);
    if (has_rest) { /* still the oldest */
        for (at = &kept; *at; at = &(*at)->next) {
        }
        arena->next = NULL;
        *at = arena;
    }
}

static void run_locked(void) {
    double pause = -1; /* between units; not known before the first */
    while (kept && !is_stopping && !is_retaining) {
        arena_t **at = oldest_locked();
        double rest = (*at)->since + seconds_locked() - now();
        if (rest > 0 && !is_memory_scarce()) {
            pause = -1;
            wait_locked(rest < LONGEST_WAIT ? rest : LONGEST_WAIT);
            continue;
        }
        if (pause < 0) {
            pause = RETURN_SECONDS / (double)units_locked() - UNIT_SECONDS;
            pause = pause < 0 ? 0 : pause > LONGEST_PAUSE ? LONGEST_PAUSE : pause;
        }
        drop_unit_locked(at);
        if (kept && !is_stopping && rest <= 0) {
            wait_locked(pause);
        }
    }
}

static void *run(void *unused) {
    pthread_mutex_lock(&mutex);
    run_locked();
    is_over = true;
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void join_locked(void) {
    pthread_t ended = thread;
    has_thread = false;
    pthread_mutex_unlock(&mutex);
    pthread_join(ended, NULL);
    pthread_mutex_lock(&mutex);
}

/* At the exit of the process: the driver shuts down after this. */
static void stop(void) {
    pthread_mutex_lock(&mutex);
    is_stopping = true;
    pthread_cond_broadcast(&changed);
    if (has_thread) {
        join_locked();
    }
    pthread_mutex_unlock(&mutex);
}

static void before_fork(void) {
    pthread_mutex_lock(&mutex);
}

static void after_fork(void) {
    pthread_mutex_unlock(&mutex);
}

/* The driver does not work in a child: its pages are left alone, and it has no thread. */
static void after_fork_in_child(void) {
    kept = NULL;
    has_thread = false;
    pthread_mutex_unlock(&mutex);
}

static void start(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    umfAddReclaimCallback(reclaim, NULL); /* one that cannot be added is one reason less */
    atexit(stop);
}

static bool start_thread_locked(void) {
    if (has_thread && is_over) {
        join_locked();
    }
    if (!has_thread) {
        sigset_t all, before;
        is_over = false;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        has_thread = pthread_create(&thread, NULL, run, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return has_thread;
}

/* --- both ------------------------------------------------------------------------------------- */

bool lease_keep(arena_t *arena) {
    pthread_once(&once, start);
    pthread_mutex_lock(&mutex);
    bool is_kept =
        !is_stopping && (is_retaining || (seconds_locked() > 0 && start_thread_locked()));
    if (is_kept) {
        arena->since = now();
        arena->next = kept;
        kept = arena;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return is_kept;
}

void lease_retain(bool is_on) {
    pthread_mutex_lock(&mutex);
    is_retaining = is_on;
    pthread_mutex_unlock(&mutex);
    if (!is_on) {
        lease_end_all();
    }
}

void lease_set_seconds(double wanted) {
    pthread_once(&once, start);
    pthread_mutex_lock(&mutex);
    seconds = wanted;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    if (wanted == 0) {
        lease_end_all();
    }
}
