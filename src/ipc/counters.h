/*
 * Counters: the limits and counters of IPC that can be read by path, "umf.ipc.<path>".
 */
#ifndef UMF_SRC_IPC_COUNTERS_H
#define UMF_SRC_IPC_COUNTERS_H

#include "ctl/ctl.h"

/* Answers a path below "umf.ipc." that is no setting (ipc/settings.h). */
umf_result_t umf_ipc_counters_query(umf_ctl_query_t *query, const char *rest);

#endif
