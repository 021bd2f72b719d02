/* Captures of queues that the program has reported. */
#include "providers/gpu/capture.h"

#include <umf/capture.h>

#include "base/event_count.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "ds/list.h"

typedef struct capture_t {
    umf_list_t link; /* Sync: capture_lock */
    const void *queue;
} capture_t;

UMF_LOCK_STATIC(capture_lock, UMF_RANK_PROVIDER);
/* Sync: capture_lock */
static umf_list_t captures = {&captures, &captures};
static size_t capture_waits;
static unsigned capture_forks; /* the number of forks for which the counts of waits are valid */
static umf_event_count_t capture_turn;

/* A forked child has no waiting threads: it inherits their count, not the threads. */
static void forget_others_locked(void) {
    if (capture_forks != umf_fork_count()) {
        capture_forks = umf_fork_count();
        capture_waits = 0;
    }
}

bool umf_capture_enter_wait(const void **queue) {
    umf_lock(&capture_lock);
    bool is_free = umf_list_is_empty(&captures);
    if (is_free) {
        forget_others_locked();
        capture_waits++;
    } else {
        *queue = UMF_CONTAINER_OF(captures.next, capture_t, link)->queue;
    }
    umf_unlock(&capture_lock);
    return is_free;
}

void umf_capture_leave_wait(void) {
    umf_lock(&capture_lock);
    capture_waits--;
    umf_unlock(&capture_lock);
    umf_event_count_advance(&capture_turn);
}

static bool is_waited_for(uint32_t *seen) {
    *seen = umf_event_count_read(&capture_turn);
    umf_lock(&capture_lock);
    forget_others_locked();
    bool is_so = capture_waits > 0;
    umf_unlock(&capture_lock);
    return is_so;
}

UMF_API_EXT_1 umf_result_t umfCaptureBegins(const void *queue) {
    capture_t *capture = umf_meta_alloc(sizeof(*capture));
    if (!capture) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    capture->queue = queue;
    umf_lock(&capture_lock);
    umf_list_add(&captures, &capture->link);
    umf_unlock(&capture_lock);
    for (uint32_t seen; is_waited_for(&seen);) {
        umf_event_count_wait(&capture_turn, seen);
    }
    return UMF_RESULT_SUCCESS;
}

static capture_t *find_locked(const void *queue) {
    for (umf_list_t *at = captures.next; at != &captures; at = at->next) {
        capture_t *capture = UMF_CONTAINER_OF(at, capture_t, link);
        if (capture->queue == queue) {
            return capture;
        }
    }
    return NULL;
}

UMF_API_EXT_1 umf_result_t umfCaptureEnds(const void *queue) {
    umf_lock(&capture_lock);
    capture_t *capture = find_locked(queue);
    if (capture) {
        umf_list_remove(&capture->link);
    }
    umf_unlock(&capture_lock);
    if (!capture) {
        UMF_LOG_ERROR("no capture of queue %p has begun: see umfCaptureBegins", queue);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_meta_free(capture, sizeof(*capture));
    return UMF_RESULT_SUCCESS;
}
