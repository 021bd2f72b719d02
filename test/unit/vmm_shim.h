/*
 * A provider of virtual memory over nothing, whose marks are numbers.
 */
#ifndef UMF_TEST_UNIT_VMM_SHIM_H
#define UMF_TEST_UNIT_VMM_SHIM_H

#include <stdbool.h>

/* Allocates and frees. While the thread ends the mark of what it freed, the process forks, and the
 * child finishes pending work, or destroys the provider. Returns the status of the child as
 * waitpid reports it: 0 if it queried no mark that has ended and nothing was left; -1: the parent
 * failed. */
int shim_fork_while_a_mark_ends(bool destroys);

#endif
