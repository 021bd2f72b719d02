#include "core/reclaim_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/event_count.h"
#include "base/lock.h"
#include "base/log.h"
#include "cache/decay.h"
#include "core/reclaim.h"
#include "ctl/ctl.h"
#include "ctl/field.h"
#include "system/os.h"

UMF_LOCK_STATIC(thread_lock, UMF_RANK_BACKGROUND);
static pthread_t thread;       /* Sync: thread_lock, as the next */
static int thread_pid;         /* the process that has the thread; 0: there is none */
static _Atomic bool stops;     /* the thread shall end */
static umf_event_count_t wake; /* advanced when it shall */

static void *run(void *arg) {
    (void)arg;
    pthread_setname_np(pthread_self(), "umf-reclaim");
    umf_os_own_thread_begins();
    /* A program whose other threads have ended ends, too. */
    while (!umf_os_is_last_thread()) {
        uint32_t seen = umf_event_count_read(&wake);
        if (atomic_load(&stops)) {
            break;
        }
        umf_event_count_wait_for(&wake, seen, umf_decay_tick_period());
        umf_reclaim_tick();
    }
    umf_os_own_thread_ends();
    return NULL;
}

static bool has_thread_locked(void) {
    umf_assert_locked(&thread_lock);
    return thread_pid == umf_os_pid();
}

/* The thread blocks all signals, because they belong to the application. */
static umf_result_t start_locked(void) {
    sigset_t all, before;
    atomic_store(&stops, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "no background thread was started");
        return error == EPERM ? UMF_RESULT_ERROR_NOT_SUPPORTED : UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    thread_pid = umf_os_pid();
    return UMF_RESULT_SUCCESS;
}

static void stop_locked(void) {
    atomic_store(&stops, true);
    umf_event_count_advance(&wake);
    pthread_join(thread, NULL);
    thread_pid = 0;
}

void umf_reclaim_thread_stop(void) {
    umf_lock(&thread_lock);
    if (has_thread_locked()) {
        stop_locked();
    }
    umf_unlock(&thread_lock);
}

static umf_result_t thread_start(void) {
    umf_lock(&thread_lock);
    umf_result_t result = has_thread_locked() ? UMF_RESULT_SUCCESS : start_locked();
    umf_unlock(&thread_lock);
    return result;
}

static bool thread_runs(void) {
    umf_lock(&thread_lock);
    bool runs = has_thread_locked();
    umf_unlock(&thread_lock);
    return runs;
}

/* --- settings --- */

UMF_FIELD_GETTER(get_background, bool, thread_runs())

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
