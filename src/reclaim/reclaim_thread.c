#include "reclaim/reclaim_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/event_count.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread_slot.h"
#include "cache/decay.h"
#include "ctl/ctl.h"
#include "ctl/field.h"
#include "object/listener.h"
#include "reclaim/reclaim.h"
#include "system/os.h"

/*
 * The thread that runs has a number of its own. A stop takes it away under the lock, and
 * joins it without: the thread may be in an operation of a provider, which may read the setting
 * or change it.
 */
UMF_LOCK_STATIC(thread_lock, UMF_RANK_BACKGROUND);
static pthread_t thread;         /* of `current`. Sync: thread_lock, as the next two */
static unsigned joining;         /* threads that are joined just now */
static unsigned joining_forks;   /* umf_fork_count() when `joining` was valid */
static _Atomic uint64_t current; /* of the thread that shall run; 0: none shall */
static umf_event_count_t wake;   /* advanced when a thread shall end, or was joined */

/* The forks before this process, which has none of its parent's threads, and a number within it. */
#define FORKS_AT 32

static uint64_t forks_now(void) {
    return (uint64_t)umf_fork_count() + 1;
}

static void *run(void *arg) {
    uint64_t own = forks_now() << FORKS_AT | (uint32_t)(uintptr_t)arg;
    pthread_setname_np(pthread_self(), "umf-reclaim");
    umf_thread_slot_tls.is_background = true;
    umf_os_own_thread_begins();
    /* A program whose other threads have ended ends, too. */
    while (!umf_os_is_last_thread()) {
        uint32_t seen = umf_event_count_read(&wake);
        if (atomic_load(&current) != own) {
            break;
        }
        umf_event_count_wait_for(&wake, seen, umf_decay_tick_wait());
        umf_reclaim_tick();
        umf_core_ticks();
    }
    umf_os_own_thread_ends();
    return NULL;
}

static bool is_running(void) {
    return atomic_load(&current) >> FORKS_AT == forks_now();
}

/* The thread blocks all signals, because they belong to the application. */
static umf_result_t start_locked(void) {
    static uint32_t last;
    sigset_t all, before;
    umf_assert_locked(&thread_lock);
    last++;
    atomic_store(&current, forks_now() << FORKS_AT | last);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, run, (void *)(uintptr_t)last);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        atomic_store(&current, 0);
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "no background thread was started");
        return error == EPERM ? UMF_RESULT_ERROR_NOT_SUPPORTED : UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_decay_set_thread(true);
    return UMF_RESULT_SUCCESS;
}

static unsigned joining_locked(void) {
    umf_assert_locked(&thread_lock);
    if (joining_forks != umf_fork_count()) { /* threads of the parent process join none here */
        joining_forks = umf_fork_count();
        joining = 0;
    }
    return joining;
}

/* Takes the thread away, which then ends. false: there is none. */
static bool take(pthread_t *taken) {
    umf_lock(&thread_lock);
    bool is_any = is_running();
    if (is_any) {
        *taken = thread;
        atomic_store(&current, 0);
        umf_decay_set_thread(false);
        joining = joining_locked() + 1;
    }
    umf_unlock(&thread_lock);
    return is_any;
}

static bool is_joining(void) {
    umf_lock(&thread_lock);
    bool is_any = joining_locked() > 0;
    umf_unlock(&thread_lock);
    return is_any;
}

static void joined(void) {
    umf_lock(&thread_lock);
    joining = joining_locked() - 1;
    umf_unlock(&thread_lock);
    umf_event_count_advance(&wake);
}

/* For threads that another one joins. */
static void wait_joined(void) {
    uint32_t seen = umf_event_count_read(&wake);
    while (is_joining()) {
        umf_event_count_wait(&wake, seen);
        seen = umf_event_count_read(&wake);
    }
}

void umf_reclaim_thread_stop(void) {
    bool is_itself = umf_thread_slot_tls.is_background; /* which cannot wait for its own end */
    pthread_t taken;
    if (take(&taken)) {
        umf_event_count_advance(&wake);
        is_itself ? pthread_detach(taken) : pthread_join(taken, NULL);
        joined();
    }
    if (!is_itself) {
        wait_joined();
    }
}

static umf_result_t thread_start(void) {
    umf_lock(&thread_lock);
    umf_result_t result = is_running() ? UMF_RESULT_SUCCESS : start_locked();
    umf_unlock(&thread_lock);
    return result;
}

/* --- settings --- */

UMF_FIELD_GETTER(get_background, bool, is_running())

static umf_result_t set_background(void *object, const void *value) {
    (void)object;
    if (*(const bool *)value) {
        return thread_start();
    }
    umf_reclaim_thread_stop();
    return UMF_RESULT_SUCCESS;
}

static const umf_field_t settings_list[] = {
    {.path = "background",
     UMF_FIELD_SETTING(BOOL, get_background, set_background),
     .help =
         "whether a thread of the library gives back what pools have not used for a while, also "
         "while the program does not call them"},
};
static const umf_fields_t settings_fields = UMF_FIELDS(settings_list);

static umf_result_t settings_query(umf_ctl_query_t *query, const char *rest) {
    return umf_field_ctl(NULL, false, &settings_fields, query->source, rest, query->arg,
                         query->size, query->type, *query->args);
}

void umf_reclaim_settings_init(void) {
    umf_ctl_register("reclaim", settings_query);
}
