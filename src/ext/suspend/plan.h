/*
 * Plan: which pieces of a pool are detached when it is suspended, and the allocations in them.
 *
 * A piece is detached if all of its allocations belong to the pool. The provider claims it, so that
 * this stays true: nothing else is allocated in it, and it stays even if the pool frees everything
 * in it.
 */
#ifndef UMF_SRC_EXT_SUSPEND_PLAN_H
#define UMF_SRC_EXT_SUSPEND_PLAN_H

#include "ext/suspend/suspendable.h"

/* Claims the pieces and fills the object's pieces, bases and parts; drops the exports of the pool.
 * Adds to the report bytes that stay because others share their piece, and exported bytes. The pool
 * is closed. After a failure the caller still calls umf_plan_forget. */
umf_result_t umf_plan_make(umf_suspendable_t *suspendable, umf_suspend_report_t *report);
/* Releases the pieces and empties the plan and the store. */
void umf_plan_forget(umf_suspendable_t *suspendable);

/* The piece of a suspended pool that contains the address. NULL: none does. */
umf_suspend_piece_t *umf_plan_find(const umf_suspendable_t *suspendable, uintptr_t addr);
/* Drops the pieces that were released meanwhile. */
void umf_plan_prune(umf_suspendable_t *suspendable);
/* Bytes allocated in the pieces. */
size_t umf_plan_content(const umf_suspendable_t *suspendable);
/* Bytes of the pool in the detached pieces. Asks the provider, and stores the answer
 * in each piece. */
size_t umf_plan_away(umf_suspendable_t *suspendable);

#endif
