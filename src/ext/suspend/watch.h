/*
 * Watch: the callbacks of a pool, and the calls that forbid a suspend. They are for those that keep
 * addresses of the pool in places that a suspend cannot change, such as captured graphs.
 */
#ifndef UMF_SRC_EXT_SUSPEND_WATCH_H
#define UMF_SRC_EXT_SUSPEND_WATCH_H

#include <umf/suspend.h>

#include "system/common.h"

/* The watchers of one pool; zeroed, it is empty. Changes need the lock of the pool's state and
 * happen only while the pool is resident. Callbacks are called while it is not, without the lock.
 */
typedef struct umf_watch_t {
    size_t forbids; /* calls of umfPoolForbidSuspend that were not undone */
    struct umf_watcher_t *list;
    size_t count, room;
} umf_watch_t;

/* false: no memory. */
bool umf_watch_add(umf_watch_t *watch, umf_suspend_callback_t callback, void *arg);
/* false: there is no such watcher. */
bool umf_watch_remove(umf_watch_t *watch, umf_suspend_callback_t callback, void *arg);
void umf_watch_fini(umf_watch_t *watch);

/* Calls the callbacks, last added first. If one refuses, those called before it are notified of the
 * resume, and its result is returned. */
umf_result_t umf_watch_notify_suspend(const umf_watch_t *watch, umf_memory_pool_handle_t pool);
/* Calls the callbacks, first added first. */
void umf_watch_notify_resume(const umf_watch_t *watch, umf_memory_pool_handle_t pool);

#endif
