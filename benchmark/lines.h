/*
 * Counts transfers of cache lines between threads.
 *
 * Code compiled with -fsanitize=thread calls a function before each access of memory. Here these
 * functions are ours (lines.c), not those of ThreadSanitizer: they record for each line of
 * 64 bytes which threads have it and which one wrote it last, like coherent caches of unlimited
 * size. A line is transferred when a thread
 *
 *   writes to it and others have it, or
 *   reads it, does not have it, and another one wrote it last.
 *
 * The code has no locks and no atomics: only one thread at a time may be between lines_enter and
 * lines_leave. Accesses of other threads are not seen.
 */
#ifndef UMF_BENCH_LINES_H
#define UMF_BENCH_LINES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LINES_MAX_THREADS 64
#define LINES_CPUS 16 /* the number of CPUs that the library finds */

/* The accesses of this thread count as those of thread `id`, less than LINES_MAX_THREADS. */
void lines_enter(unsigned id);
void lines_leave(void);

/* Begins or ends counting. Which thread has which line is always recorded. */
void lines_count(int is_counted);

/*
 * From now on, every `every`th attempt finds a lock of the library held if another thread took it
 * last; 0: never. Threads that take turns would never find a lock held, and the work of a pool when
 * threads contend would not happen.
 */
void lines_meet(unsigned every);

/* The number of transfers while counting was on. */
uint64_t lines_travelled(void);

/* Code that caused transfers: the address after the access, minus the load address of
 * the program. */
typedef struct {
    uintptr_t address;
    uint64_t count;
} lines_place_t;

/* Writes the places with the highest counts, highest first, and returns their number. */
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
