/* The callbacks of a pool that is suspended and resumed. */
#include "ext/suspend/watch.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"

typedef struct umf_watcher_t {
    umf_suspend_callback_t callback;
    void *arg;
} umf_watcher_t;

bool umf_watch_add(umf_watch_t *watch, umf_suspend_callback_t callback, void *arg) {
    if (!umf_meta_grow(&watch->list, watch->count, &watch->room, sizeof(*watch->list))) {
        return false;
    }
    watch->list[watch->count++] = (umf_watcher_t){.callback = callback, .arg = arg};
    return true;
}

bool umf_watch_remove(umf_watch_t *watch, umf_suspend_callback_t callback, void *arg) {
    for (size_t i = watch->count; i-- > 0;) {
        if (watch->list[i].callback == callback && watch->list[i].arg == arg) {
            watch->count--;
            memmove(&watch->list[i], &watch->list[i + 1],
                    (watch->count - i) * sizeof(*watch->list));
            return true;
        }
    }
    return false;
}

void umf_watch_fini(umf_watch_t *watch) {
    umf_meta_free(watch->list, watch->room * sizeof(*watch->list));
}

static umf_result_t watch_call(const umf_watch_t *watch, size_t i, umf_memory_pool_handle_t pool,
                               umf_suspend_event_t event) {
    return watch->list[i].callback(pool, event, watch->list[i].arg);
}

umf_result_t umf_watch_notify_suspend(const umf_watch_t *watch, umf_memory_pool_handle_t pool) {
    for (size_t i = watch->count; i-- > 0;) {
        umf_result_t result = watch_call(watch, i, pool, UMF_SUSPEND_EVENT_SUSPEND);
        if (result != UMF_RESULT_SUCCESS) {
            UMF_LOG_ERROR("a callback refuses that pool %p is suspended: result %d", (void *)pool,
                          (int)result);
            for (size_t notified = i + 1; notified < watch->count; notified++) {
                watch_call(watch, notified, pool, UMF_SUSPEND_EVENT_RESUME);
            }
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

void umf_watch_notify_resume(const umf_watch_t *watch, umf_memory_pool_handle_t pool) {
    for (size_t i = 0; i < watch->count; i++) {
        watch_call(watch, i, pool, UMF_SUSPEND_EVENT_RESUME);
    }
}
