/* Suspend and resume of pools: start, listeners, checks. */
#ifndef UMF_SRC_EXT_SUSPEND_SUSPEND_H
#define UMF_SRC_EXT_SUSPEND_SUSPEND_H

#include <umf/suspend.h>

#include "object/object.h"

void umf_suspend_init(void);
/* Registers the settings. Called once, at the start of the library. */
void umf_suspend_settings_init(void);

/* Checks the arguments of a suspend or resume. `function` names it in the log. */
umf_result_t umf_suspend_check(umf_memory_pool_handle_t *pools, size_t num,
                               const umf_suspend_params_t *params,
                               const umf_suspend_report_t *report, const char *function);

#endif
