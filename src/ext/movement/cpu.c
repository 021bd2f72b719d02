#include "ext/movement/cpu.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "ext/staging/stream.h"
#include "ext/staging/workers.h"
#include "system/os.h"

/* Below this size one thread is as fast as several, because they must be started. */
#define CPU_PARALLEL_MIN ((size_t)32 << 20)
/* Bytes that a thread copies at once. */
#define CPU_PIECE ((size_t)16 << 20)
/* With fewer CPUs one thread takes most of what memory gives. */
#define CPU_MIN 4
/* The most of a pattern that is repeated at once. */
#define TILE_MAX ((size_t)64 << 10)
/* The gain of several threads that is worth them, in percent of the speed of one. */
#define CPU_GAIN 125

typedef struct cpu_work_t {
    char *to;
    const char *from;    /* NULL: a fill */
    const void *pattern; /* of a fill */
    size_t pattern_size; /* divides the pieces, but for the last */
    size_t size, piece;
    _Atomic size_t next;
} cpu_work_t;

/* --- one thread --------------------------------------------------------------------------------
 */

static void fill_piece(char *to, size_t size, const void *pattern, size_t pattern_size) {
    if (pattern_size == 1) {
        memset(to, *(const unsigned char *)pattern, size);
        return;
    }
    size_t have = pattern_size < size ? pattern_size : size;
    memcpy(to, pattern, have);
    while (have < size) { /* the filled part doubles, as long as it stays in the cache */
        size_t tile = have < TILE_MAX ? have : TILE_MAX / pattern_size * pattern_size;
        size_t more = tile ? tile : pattern_size;
        more = more < size - have ? more : size - have;
        memcpy(to + have, to, more);
        have += more;
    }
}

static void do_piece(const cpu_work_t *work, size_t at) {
    size_t size = work->size - at < work->piece ? work->size - at : work->piece;
    if (work->from) {
        umf_stream_copy(work->to + at, work->from + at, size);
    } else {
        fill_piece(work->to + at, size, work->pattern, work->pattern_size);
    }
}

static void do_pieces(void *arg) {
    cpu_work_t *work = arg;
    for (size_t at; (at = atomic_fetch_add(&work->next, work->piece)) < work->size;) {
        do_piece(work, at);
    }
}

/* --- several -----------------------------------------------------------------------------------
 */

static _Atomic size_t cpu_threads; /* how many pay; 0: it has not been measured */

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static size_t most_threads(void) {
    size_t cpus = umf_os_cpu_count();
    return cpus < CPU_MIN ? 1 : cpus < UMF_WORKERS_MAX ? cpus : UMF_WORKERS_MAX;
}

/* Nanoseconds for the next `pieces` of the work. */
static uint64_t time_pieces(cpu_work_t *work, size_t threads, size_t pieces) {
    size_t size = work->size, next = atomic_load(&work->next);
    size_t end = next + pieces * work->piece;
    uint64_t begin = now_ns();
    work->size = end < size ? end : size;
    umf_workers_run(threads, do_pieces, work);
    work->size = size;
    atomic_store(&work->next, end);
    return now_ns() - begin;
}

/* Measures with parts of the first work that is long enough: one piece for one thread, then as many
 * as there are threads. A machine may have many CPUs and permit the use of few. */
static void measure(cpu_work_t *work) {
    size_t most = most_threads();
    if (work->size / work->piece < 2 * most + 2) {
        return;
    }
    time_pieces(work, 1, 1); /* the memory of the first piece may be new */
    uint64_t one = time_pieces(work, 1, 1), all = time_pieces(work, most, most);
    bool pays = one * most * 100 > all * CPU_GAIN;
    atomic_store(&cpu_threads, pays ? most : 1);
}

static void run(cpu_work_t *work) {
    size_t most = most_threads(), pieces = work->size / work->piece;
    if (most > 1 && atomic_load(&cpu_threads) == 0) {
        measure(work);
    }
    size_t known = atomic_load(&cpu_threads), threads = known ? known : most;
    umf_workers_run(threads < pieces ? threads : pieces, do_pieces, work);
}

/* Use one thread: no more exist, or more are not faster. */
static bool is_alone(void) {
    return most_threads() == 1 || atomic_load(&cpu_threads) == 1;
}

/* --- copies and fills --------------------------------------------------------------------------
 */

void umf_cpu_copy(void *to, const void *from, size_t size) {
    uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    if (umf_likely(size < CPU_PARALLEL_MIN) || a - b < size || b - a < size || is_alone()) {
        memmove(to, from, size);
        return;
    }
    cpu_work_t work = {.to = to, .from = from, .size = size, .piece = CPU_PIECE};
    run(&work);
}

bool umf_cpu_is_one_byte(const void *pattern, size_t pattern_size) {
    const char *bytes = pattern;
    return pattern_size == 1 || memcmp(bytes, bytes + 1, pattern_size - 1) == 0;
}

void umf_cpu_fill(void *to, size_t size, const void *pattern, size_t pattern_size) {
    pattern_size = umf_cpu_is_one_byte(pattern, pattern_size) ? 1 : pattern_size;
    size_t piece = CPU_PIECE / pattern_size * pattern_size;
    if (umf_likely(size < CPU_PARALLEL_MIN) || piece == 0 || is_alone()) {
        fill_piece(to, size, pattern, pattern_size);
        return;
    }
    cpu_work_t work = {
        .to = to, .pattern = pattern, .pattern_size = pattern_size, .size = size, .piece = piece};
    run(&work);
}
