/*
 * Plan: which pieces of a pool's memory go when it is suspended, and what is allocated in them.
 *
 * A piece goes if all of its allocations are the pool's. It is claimed at the provider, so that
 * this stays true: nobody else gets memory in it, and it stays although the pool frees everything
 * in it.
 */
#ifndef UMF_SRC_SUSPEND_PLAN_H
#define UMF_SRC_SUSPEND_PLAN_H

#include "suspend/sleep.h"

/* Fills the sleep's pieces, which are then claimed, bases and parts, and drops what was exported of
 * the pool. Adds to the report what stays because others share its piece, and what was exported.
 * The pool is closed. On failure umf_plan_forget is still due. */
umf_result_t umf_plan_make(umf_sleep_t *sleep, umf_suspend_report_t *report);
/* Empties it, and the store with it; pieces are released. */
void umf_plan_forget(umf_sleep_t *sleep);

/* Which piece of a suspended pool holds the address; NULL if none does. */
umf_sleep_piece_t *umf_plan_find(const umf_sleep_t *sleep, uintptr_t addr);
/* Drops the pieces that are gone. */
void umf_plan_prune(umf_sleep_t *sleep);
/* Bytes allocated in the pieces. */
size_t umf_plan_content(const umf_sleep_t *sleep);
/* The same of those that are without memory; asks the provider, and remembers it of each piece. */
size_t umf_plan_away(umf_sleep_t *sleep);

#endif
