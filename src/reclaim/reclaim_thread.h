/*
 * The background thread, which ticks for programs that stop calling the library
 * (reclaim/reclaim.h), and the node "umf.reclaim" of settings.
 */
#ifndef UMF_SRC_RECLAIM_RECLAIM_THREAD_H
#define UMF_SRC_RECLAIM_RECLAIM_THREAD_H

#include "system/common.h"

/* Registers the settings. Called once, at the start of the library. */
void umf_reclaim_settings_init(void);

/* Stops the thread if there is one and waits for its end. In the background thread itself it
 * returns at once, and the thread ends after its tick. Call it with no lock held. */
void umf_reclaim_thread_stop(void);

#endif
