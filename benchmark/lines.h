/*
 * Counts cache lines that travel between threads.
 *
 * Code compiled with -fsanitize=thread calls a function before each access of memory. Here these
 * functions are ours (lines.c), not those of ThreadSanitizer: they keep for each line of 64 bytes
 * which threads have it and who wrote it last, as caches that are kept coherent do, with caches
 * that never lose a line for want of room. A line travels when a thread
 *
 *   writes to it and others have it, or
 *   reads it, does not have it, and another one wrote it last.
 *
 * There are no locks and no atomics in it: between lines_enter and lines_leave may be one thread at
 * a time. What others do is not seen.
 */
#ifndef UMF_BENCH_LINES_H
#define UMF_BENCH_LINES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LINES_MAX_THREADS 64
#define LINES_CPUS 16 /* as many the library finds */

/* What this thread does is done by thread `id`, less than LINES_MAX_THREADS. */
void lines_enter(unsigned id);
void lines_leave(void);

/* From here on, or no longer; who has which line is kept all the time. */
void lines_count(int is_counted);

/*
 * From here on a lock of the library's that another thread took last is found held, every `every`th
 * time, as if that thread were still at it; 0: never. In turns nobody would find a lock held, and
 * what a pool does when threads meet would not happen.
 */
void lines_meet(unsigned every);

/* How often a line has travelled while it was counted. */
uint64_t lines_travelled(void);

/* Code that made lines travel: the address after the access, less the one the program was loaded
 * at. */
typedef struct {
    uintptr_t address;
    uint64_t count;
} lines_place_t;

/* Those with the highest counts, the highest first; returns how many. */
size_t lines_places(lines_place_t *places, size_t capacity);

/* lines_check.c: accesses of code that is compiled as the library is. */
void lines_check_write(int *value);
int lines_check_read(const int *value);
void lines_check_add(int *value);
void lines_check_copy(void *to, const void *from, size_t size);

#ifdef __cplusplus
}
#endif

#endif
