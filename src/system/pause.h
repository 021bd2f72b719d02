/*
 * Waiting for another thread where there is nothing to sleep on: `for (unsigned round = 0; not yet;
 * round++) { umf_pause(round); }`. The first rounds let others run, later ones sleep for a moment:
 * a thread of a real-time class (SCHED_FIFO) that only yields keeps the CPU from threads of lower
 * priority, and what it waits for may be one of these. errno is kept.
 */
#ifndef UMF_SRC_SYSTEM_PAUSE_H
#define UMF_SRC_SYSTEM_PAUSE_H

void umf_pause(unsigned round);

#endif
