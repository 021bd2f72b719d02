/*
 * Arenas: pinned memory of the host that several backups share. It is made in units, on huge pages.
 * A driver pins touched huge pages at copy speed; small pages, untouched ones, or many ranges that
 * many threads pin at once are several times slower. So several threads touch, and one pins.
 * Functions that make memory are called with a context of the device that copies.
 */
#ifndef UMF_PYTHON_HOOKS_ARENA_H
#define UMF_PYTHON_HOOKS_ARENA_H

#include <stdatomic.h>

#include "block.h"
#include "cuda.h"

#define ARENA_UNIT ((size_t)128 << 20) /* a multiple of all page sizes */

typedef struct unit_t {
    size_t touched; /* bytes */
    bool is_pinned;
} unit_t;

typedef struct arena_t {
    char *memory;
    size_t size;
    int device;          /* on whose node it is, where that is known */
    atomic_size_t users; /* backups in it */
    unit_t *units;
    bool is_driver_own;   /* allocated by the driver, not pinned by it */
    struct arena_t *next; /* in the list of those that are kept */
    double since;         /* when it was kept, in seconds of the monotonic clock */
} arena_t;

/* An arena without users, whose units are to be pinned; or one that was kept, where they are. */
arena_t *arena_make(size_t size, failure_t *error);
/* Called for each user; the last one gives the arena back, or keeps it for the next arena_make. */
void arena_release(arena_t *arena);
/* Gives back an arena without users, or the last of its units. A unit that cannot be unpinned stays
 * mapped. A context of the device is current. */
void arena_destroy(arena_t *arena);
void arena_drop_last_unit(arena_t *arena);

size_t arena_units(const arena_t *arena);
size_t arena_unit_size(const arena_t *arena, size_t unit);
/* Pins the units that are not pinned, in order, and calls `use` for each as soon as it is. The
 * context of the device is current. Ends at the first failure. */
CUresult arena_make_units(arena_t *arena, CUresult (*use)(void *arg, size_t unit), void *arg);

/* Ordinary memory of the host, on the node of the current device where there is room; NULL if there
 * is none. munmap gives it back. */
char *arena_map(size_t size);
/* Pinned memory of the driver. 0: success. */
int arena_host_alloc(void **memory, size_t size);
void arena_host_free(void *memory);
/* Whether the CUDA runtime reports the flags of an arena's memory. */
bool arena_flags_work(void);

#endif
