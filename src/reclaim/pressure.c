#include "reclaim/pressure.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/thread_slot.h"
#include "system/keep_errno.h"
#include "system/pause.h"

#define CALLBACKS 32 /* umf/reclaim.h says so */

typedef struct listener_t {
    umf_reclaim_callback_t callback; /* NULL: the slot is free, or only until its threads are out */
    void *arg;
    size_t inside;  /* threads that are in the callback */
    unsigned forks; /* umf_fork_count() when `inside` was valid */
} listener_t;

UMF_LOCK_STATIC(listeners_lock, UMF_RANK_LIMITS);
static listener_t listeners[CALLBACKS]; /* Sync: the lock */

/* In a child of fork the threads of the parent are in no callback. */
static size_t inside_locked(listener_t *listener) {
    if (listener->forks != umf_fork_count()) {
        listener->forks = umf_fork_count();
        listener->inside = 0;
    }
    return listener->inside;
}

static bool enter(listener_t *listener, umf_reclaim_callback_t *callback, void **arg) {
    umf_lock(&listeners_lock);
    *callback = listener->callback;
    *arg = listener->arg;
    if (*callback) {
        listener->inside = inside_locked(listener) + 1;
    }
    umf_unlock(&listeners_lock);
    return *callback != NULL;
}

/* `forks`: of the moment of enter. */
static void leave(listener_t *listener, unsigned forks) {
    umf_lock(&listeners_lock);
    if (forks == umf_fork_count()) {
        listener->inside--;
    }
    umf_unlock(&listeners_lock);
}

static bool notify(listener_t *listener, umf_memory_pool_handle_t pool, size_t bytes,
                   unsigned attempt) {
    umf_reclaim_callback_t callback;
    void *arg;
    unsigned forks = umf_fork_count();
    if (!enter(listener, &callback, &arg)) {
        return false;
    }
    bool has_given = callback(pool, bytes, attempt, arg);
    leave(listener, forks);
    return has_given;
}

bool umf_pressure_tell(umf_memory_pool_handle_t pool, size_t bytes, unsigned attempt) {
    UMF_KEEP_ERRNO;
    bool has_given = false;
    umf_thread_slot_tls.is_telling = true;
    for (listener_t *listener = listeners; listener < listeners + CALLBACKS; listener++) {
        has_given |= notify(listener, pool, bytes, attempt);
    }
    umf_thread_slot_tls.is_telling = false;
    return has_given;
}

bool umf_pressure_is_telling(void) {
    return umf_thread_slot_tls.is_telling;
}

static listener_t *find_locked(umf_reclaim_callback_t callback, const void *arg) {
    for (listener_t *listener = listeners; listener < listeners + CALLBACKS; listener++) {
        if (listener->callback == callback && listener->arg == arg) {
            return listener;
        }
    }
    return NULL;
}

/* Threads that are still in a removed callback keep its slot. */
static listener_t *find_free_locked(void) {
    for (listener_t *listener = listeners; listener < listeners + CALLBACKS; listener++) {
        if (!listener->callback && inside_locked(listener) == 0) {
            return listener;
        }
    }
    return NULL;
}

static bool is_empty(listener_t *listener) {
    umf_lock(&listeners_lock);
    bool is_empty = listener->callback != NULL || inside_locked(listener) == 0;
    umf_unlock(&listeners_lock);
    return is_empty;
}

UMF_API_EXT_1_3 umf_result_t umfAddReclaimCallback(umf_reclaim_callback_t callback, void *arg) {
    if (!callback) {
        UMF_LOG_ERROR("callback is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_lock(&listeners_lock);
    listener_t *listener = find_free_locked();
    if (listener) {
        listener->callback = callback;
        listener->arg = arg;
    }
    umf_unlock(&listeners_lock);
    if (!listener) {
        UMF_LOG_ERROR("there are %d reclaim callbacks already: remove one first", CALLBACKS);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfRemoveReclaimCallback(umf_reclaim_callback_t callback, void *arg) {
    umf_lock(&listeners_lock);
    listener_t *listener = callback ? find_locked(callback, arg) : NULL;
    if (listener) {
        listener->callback = NULL;
    }
    umf_unlock(&listeners_lock);
    if (!listener) {
        UMF_LOG_ERROR("no reclaim callback has this function and the argument %p", arg);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    /* Two callbacks that remove each other would wait for each other. */
    for (unsigned round = 0; !umf_thread_slot_tls.is_telling && !is_empty(listener); round++) {
        umf_pause(round);
    }
    return UMF_RESULT_SUCCESS;
}

void umf_pressure_teardown(void) {
    umf_lock(&listeners_lock);
    for (listener_t *listener = listeners; listener < listeners + CALLBACKS; listener++) {
        listener->callback = NULL;
    }
    umf_unlock(&listeners_lock);
}
