/*
 * Waiting for another thread without anything to sleep on: `for (unsigned round = 0; not yet;
 * round++) { umf_pause(round); }`. The first rounds yield, later ones sleep for a moment. A thread
 * of a real-time class (SCHED_FIFO) that only yields keeps the CPU from threads of lower priority,
 * and it may be waiting for one of these. errno is preserved.
 */
#ifndef UMF_SRC_SYSTEM_PAUSE_H
#define UMF_SRC_SYSTEM_PAUSE_H

void umf_pause(unsigned round);

#endif
