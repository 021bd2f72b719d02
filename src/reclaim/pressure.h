/* Callbacks of the program, which give memory back before a request fails (umf/reclaim.h). */
#ifndef UMF_SRC_RECLAIM_PRESSURE_H
#define UMF_SRC_RECLAIM_PRESSURE_H

#include <umf/reclaim.h>

#include "system/common.h"

/* One round: calls every callback. true: one of them has given something back. Call it with no lock
 * held. */
UMF_COLD bool umf_pressure_tell(umf_memory_pool_handle_t pool, size_t bytes, unsigned attempt);

/* Removes all callbacks; does not wait. */
void umf_pressure_teardown(void);

/* The calling thread is in a callback. */
bool umf_pressure_is_telling(void);

#endif
