/*
 * Threads of the library that serve other processes. The program must not notice them: all signals
 * are blocked in them, because they belong to the application, and a program whose other threads
 * have ended ends, too.
 */
#ifndef UMF_SRC_PEER_THREAD_H
#define UMF_SRC_PEER_THREAD_H

#include <pthread.h>

#include "system/common.h"

/* Without an event such a thread checks every so many ms whether the program has ended but for
 * it. */
#define UMF_PEER_TICK 2000

/* 0 or an errno value. */
int umf_peer_thread_start(pthread_t *thread, void *(*run)(void *));

/* The last thread of a program runs its exit handlers. The calling thread, which was last but for
 * those of the library, ends now and leaves that to one with a usual stack and signals, which calls
 * `*end`, of static storage, first. */
void umf_peer_thread_leave(void (*const *end)(void));

#endif
