/* Suspend and resume of pools: start and listeners. */
#ifndef UMF_SRC_SUSPEND_SUSPEND_H
#define UMF_SRC_SUSPEND_SUSPEND_H

#include "core/object.h"

void umf_suspend_init(void);

#endif
