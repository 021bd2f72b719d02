/*
 * The steps of umfctl check. Each runs in a process of its own, so it may crash or hang, and need
 * not clean up after a failure.
 */
#ifndef UMFCTL_STEPS_H
#define UMFCTL_STEPS_H

#include <stddef.h>

#include "report.h"

#define STEP_WHY_SIZE 1024

typedef struct step_t step_t;

struct step_t {
    const char *section; /* heading, the same pointer for all steps below it */
    const char *key;     /* of the section in JSON */
    char name[96];
    /* NULL: the step is not tried, and `why` gives the reason. Otherwise it returns
     * REPORT_OK, or another state and writes the reason to `why`, STEP_WHY_SIZE bytes. */
    report_state_t (*run)(const step_t *step, char *why);
    char pool[64];      /* kind of pool */
    char provider[512]; /* text of its provider */
    char consumer[512]; /* text of the provider that opens the shared memory */
    char why[256];
};

/* Files that the steps may leave if they are stopped; the caller removes them. */
typedef struct steps_place_t {
    char folder[256];
    char shm_name[64];
} steps_place_t;

report_state_t step_provider(const step_t *step, char *why);
report_state_t step_device(const step_t *step, char *why);
report_state_t step_fixed(const step_t *step, char *why);
report_state_t step_pool(const step_t *step, char *why);
report_state_t step_pool_over_fixed(const step_t *step, char *why);
report_state_t step_nodes(const step_t *step, char *why);
report_state_t step_all_nodes(const step_t *step, char *why);
report_state_t step_lookups(const step_t *step, char *why);
report_state_t step_threads(const step_t *step, char *why);
report_state_t step_fork(const step_t *step, char *why);
report_state_t step_sharing(const step_t *step, char *why);
report_state_t step_suspend(const step_t *step, char *why);
report_state_t step_suspend_cuda(const step_t *step, char *why);

/* All steps for this machine, to be freed by free(). NULL: no memory. */
step_t *steps_list(const steps_place_t *place, size_t *count);

#endif /* UMFCTL_STEPS_H */
