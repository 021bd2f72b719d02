/*
 * Watch: who has addresses of a pool in places that a suspend does not know, and what those are
 * told when its memory goes and comes.
 */
#ifndef UMF_SRC_SUSPEND_WATCH_H
#define UMF_SRC_SUSPEND_WATCH_H

#include <umf/suspend.h>

#include "system/common.h"

/* Of one pool; a zeroed one is empty. What changes it holds the lock of the pool's state, and does
 * so only while that is resident; telling is done while it is not, without the lock. */
typedef struct umf_watch_t {
    size_t forbids; /* calls of umfPoolForbidSuspend that were not taken back */
    struct umf_watcher_t *list;
    size_t count, room;
} umf_watch_t;

/* false: no memory. */
bool umf_watch_add(umf_watch_t *watch, umf_suspend_callback_t callback, void *arg);
/* false: it is not there. */
bool umf_watch_remove(umf_watch_t *watch, umf_suspend_callback_t callback, void *arg);
void umf_watch_fini(umf_watch_t *watch);

/* Tells the last that was added first. If one refuses, those that were told before are told of the
 * resume, and its result is returned. */
umf_result_t umf_watch_tell_suspend(const umf_watch_t *watch, umf_memory_pool_handle_t pool);
/* Tells the first that was added first. */
void umf_watch_tell_resume(const umf_watch_t *watch, umf_memory_pool_handle_t pool);

#endif
