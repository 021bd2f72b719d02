/*
 * The lease of arenas: pinned memory that a resume no longer needs stays pinned for some seconds,
 * so that the next pause takes it. A thread gives it back afterwards, a unit at a time with pauses,
 * because unpinning blocks the launches of other threads. It begins with the first arena that is
 * kept, and ends when none is left. A lack of memory ends the lease at once.
 */
#ifndef UMF_PYTHON_HOOKS_LEASE_H
#define UMF_PYTHON_HOOKS_LEASE_H

#include "arena.h"

enum { LEASE_MAX_SECONDS = 3600 };

/* Takes over an arena without users. false: nothing is kept, and the caller destroys it. */
bool lease_keep(arena_t *arena);
/* The smallest arena of at least that size, near that device; NULL if none is kept. */
arena_t *lease_take(size_t size, int device);
/* Destroys all arenas that are kept. true: there was one. */
bool lease_end_all(void);

/* Whether arenas are kept without an end. Switching it off destroys those that are kept. */
void lease_retain(bool is_on);
/* Seconds from a resume to the time at which memory is given back; 0: within the resume. */
void lease_set_seconds(double seconds);
double lease_seconds(void);

#endif
