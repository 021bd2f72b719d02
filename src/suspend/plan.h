/*
 * Plan: which pieces of a pool's memory go when it is suspended, and what is allocated in them.
 *
 * A piece goes if all of its allocations are the pool's. While the pool sleeps some of them may be
 * freed; the plan then forgets pieces that are gone.
 */
#ifndef UMF_SRC_SUSPEND_PLAN_H
#define UMF_SRC_SUSPEND_PLAN_H

#include "suspend/sleep.h"

/* Fills the sleep's pieces, bases and parts, and drops what was exported of the pool. Adds to the
 * report what stays because others share its piece, and what was exported. The pool is closed. On
 * failure umf_plan_forget is still due. */
umf_result_t umf_plan_make(umf_sleep_t *sleep, umf_suspend_report_t *report);
/* Empties it, and the store with it. */
void umf_plan_forget(umf_sleep_t *sleep);

/* Which piece of a suspended pool holds the address; NULL if none does. */
umf_sleep_piece_t *umf_plan_find(const umf_sleep_t *sleep, uintptr_t addr);
/* Pieces that were freed meanwhile are no longer ours. */
void umf_plan_prune(umf_sleep_t *sleep);
/* Bytes whose content is in the store and still wanted. */
size_t umf_plan_kept(const umf_sleep_t *sleep);

#endif
