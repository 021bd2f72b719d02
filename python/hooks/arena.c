/* Arenas: how pinned memory of the host is made and given back, unit by unit. */
#include "arena.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lease.h"

enum { MAX_THREADS = 16 };

#define HUGE_PAGE ((size_t)2 << 20)
/* Size that a thread touches at a time: a part of a unit, so that the first unit is ready soon. */
#define PART ((size_t)32 << 20)

/* --- pinned memory ---------------------------------------------------------------------------- */

/* The result of a call of the runtime. A failure is reported by us: the runtime would keep it for
 * the thread, and PyTorch would raise it at its next call. */
static int of_runtime(int result) {
    int (*take_error)(void);
    *(void **)&take_error = dlsym(RTLD_DEFAULT, "cudaGetLastError");
    if (result != 0 && take_error) {
        take_error();
    }
    return result;
}

/* Memory of the runtime if it is in the process, which can then report it; else of the driver. */
void arena_host_free(void *memory) {
    int (*host_free)(void *);
    *(void **)&host_free = dlsym(RTLD_DEFAULT, "cudaFreeHost");
    if (host_free) {
        of_runtime(host_free(memory));
    } else {
        cuda()->host_free(memory);
    }
}

int arena_host_alloc(void **memory, size_t size) {
    int (*host_alloc)(void **, size_t, unsigned);
    *(void **)&host_alloc = dlsym(RTLD_DEFAULT, "cudaHostAlloc");
    return host_alloc ? of_runtime(host_alloc(memory, size, CU_MEMHOSTALLOC_PORTABLE))
                      : (int)cuda()->host_alloc(memory, size, CU_MEMHOSTALLOC_PORTABLE);
}

/* By the runtime if it is in the process, which can then report the memory; else by the driver. */
static CUresult host_pin(void *memory, size_t size) {
    int (*pin)(void *, size_t, unsigned);
    *(void **)&pin = dlsym(RTLD_DEFAULT, "cudaHostRegister");
    return pin ? (CUresult)of_runtime(pin(memory, size, CU_MEMHOSTREGISTER_PORTABLE))
               : cuda()->pin(memory, size, CU_MEMHOSTREGISTER_PORTABLE);
}

/* Ends no capture of another thread. */
static bool host_unpin(void *memory) {
    int (*unpin)(void *);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    *(void **)&unpin = dlsym(RTLD_DEFAULT, "cudaHostUnregister");
    bool is_relaxed = cuda()->exchange_mode(&mode) == CUDA_SUCCESS;
    CUresult result = unpin ? (CUresult)of_runtime(unpin(memory)) : cuda()->unpin(memory);
    if (is_relaxed) {
        cuda()->exchange_mode(&mode);
    }
    return result == CUDA_SUCCESS;
}

size_t arena_units(const arena_t *arena) {
    return (arena->size + ARENA_UNIT - 1) / ARENA_UNIT;
}

size_t arena_unit_size(const arena_t *arena, size_t unit) {
    size_t rest = arena->size - unit * ARENA_UNIT;
    return rest < ARENA_UNIT ? rest : ARENA_UNIT;
}

/* Runs `help` in up to as many threads as there is work for, and `lead` in this one: it goes on
 * where no other can be started. The threads block all signals, which belong to the application. */
static void in_threads(size_t count, void *(*help)(void *), void *(*lead)(void *), void *arg) {
    pthread_t threads[MAX_THREADS];
    sigset_t all, before;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = cpus > MAX_THREADS ? MAX_THREADS : cpus > 1 ? (size_t)cpus : 1, started = 0;
    wanted = wanted < count ? wanted : count;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, help, arg) == 0) {
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    lead(arg);
    while (started > 0) {
        pthread_join(threads[--started], NULL);
    }
}

/* --- new units: several threads touch them, this one pins each as soon as it is touched ---------
 */

typedef struct making_t {
    arena_t *arena;
    CUresult (*use)(void *arg, size_t unit);
    void *arg;
    atomic_size_t next; /* the part that is touched next */
    atomic_bool is_over;
    pthread_mutex_t mutex; /* of the units' touched */
    pthread_cond_t turn;   /* a unit was touched */
    CUresult result;
} making_t;

static size_t part_size(const arena_t *arena, size_t part) {
    size_t rest = arena->size - part * PART;
    return rest < PART ? rest : PART;
}

/* Makes the pages of the next part resident. false: there is none. */
static bool touch_next(making_t *making) {
    size_t part = atomic_fetch_add(&making->next, 1), unit = part * PART / ARENA_UNIT;
    if (unit >= arena_units(making->arena) || part * PART >= making->arena->size) {
        return false;
    }
    size_t size = part_size(making->arena, part), page = (size_t)sysconf(_SC_PAGESIZE);
    volatile char *memory = making->arena->memory + part * PART;
    for (size_t at = 0; at < size; at += page) {
        memory[at] = 0;
    }
    pthread_mutex_lock(&making->mutex);
    making->arena->units[unit].touched += size;
    if (making->arena->units[unit].touched == arena_unit_size(making->arena, unit)) {
        pthread_cond_signal(&making->turn);
    }
    pthread_mutex_unlock(&making->mutex);
    return true;
}

/* Helps while the unit is not wholly touched; waits for others at the end. */
static void wait_for_touch(making_t *making, size_t unit) {
    bool has_more = true;
    pthread_mutex_lock(&making->mutex);
    while (making->arena->units[unit].touched < arena_unit_size(making->arena, unit)) {
        if (has_more) {
            pthread_mutex_unlock(&making->mutex);
            has_more = touch_next(making);
            pthread_mutex_lock(&making->mutex);
        } else {
            pthread_cond_wait(&making->turn, &making->mutex);
        }
    }
    pthread_mutex_unlock(&making->mutex);
}

static CUresult unit_make(making_t *making, size_t number) {
    unit_t *unit = &making->arena->units[number];
    if (unit->is_pinned) {
        return CUDA_SUCCESS;
    }
    wait_for_touch(making, number);
    CUresult result = host_pin(making->arena->memory + number * ARENA_UNIT,
                               arena_unit_size(making->arena, number));
    unit->is_pinned = result == CUDA_SUCCESS;
    return result;
}

static void *help_making(void *arg) {
    making_t *making = arg;
    while (!atomic_load(&making->is_over) && touch_next(making)) {
    }
    return NULL;
}

static void *lead_making(void *arg) {
    making_t *making = arg;
    CUresult result = CUDA_SUCCESS;
    for (size_t unit = 0; unit < arena_units(making->arena) && result == CUDA_SUCCESS; unit++) {
        result = unit_make(making, unit);
        if (result == CUDA_SUCCESS) {
            result = making->use(making->arg, unit);
        }
    }
    making->result = result;
    atomic_store(&making->is_over, true);
    return NULL;
}

static bool is_whole(const arena_t *arena) {
    size_t units = 0;
    while (!arena->is_driver_own && units < arena_units(arena) && arena->units[units].is_pinned) {
        units++;
    }
    return units == arena_units(arena);
}

CUresult arena_make_units(arena_t *arena, CUresult (*use)(void *arg, size_t unit), void *arg) {
    making_t making = {.arena = arena,
                       .use = use,
                       .arg = arg,
                       .mutex = PTHREAD_MUTEX_INITIALIZER,
                       .turn = PTHREAD_COND_INITIALIZER};
    size_t parts = is_whole(arena) ? 0 : (arena->size + PART - 1) / PART;
    in_threads(1 + parts, help_making, lead_making, &making);
    return making.result;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* An arena that ends, unit by unit. */
typedef struct ending_t {
    arena_t *arena;
    int device;
    atomic_size_t next_unit;
} ending_t;

/* Unpins units and gives their pages back. A unit that stays pinned is kept: the driver goes on
 * with its pages, and would refuse to pin others at its addresses. */
static void *end_units(void *arg) {
    ending_t *ending = arg;
    arena_t *arena = ending->arena;
    bool is_entered = cuda_enter(ending->device) == CUDA_SUCCESS;
    size_t unit;
    while ((unit = atomic_fetch_add(&ending->next_unit, 1)) < arena_units(arena)) {
        char *memory = arena->memory + unit * ARENA_UNIT;
        if (!arena->units[unit].is_pinned || host_unpin(memory)) {
            munmap(memory, arena_unit_size(arena, unit));
        }
    }
    if (is_entered) {
        cuda_leave();
    }
    return NULL;
}

void arena_destroy(arena_t *arena) {
    if (arena->is_driver_own) {
        arena_host_free(arena->memory);
    } else {
        ending_t ending = {.arena = arena, .device = cuda_current_device()};
        in_threads(arena_units(arena), end_units, end_units, &ending);
    }
    free(arena->units);
    free(arena);
}

void arena_drop_last_unit(arena_t *arena) {
    size_t last = arena_units(arena) - 1;
    char *memory = arena->memory + last * ARENA_UNIT;
    if (!arena->units[last].is_pinned || host_unpin(memory)) {
        munmap(memory, arena_unit_size(arena, last));
    }
    arena->size = last * ARENA_UNIT;
}

void arena_release(arena_t *arena) {
    if (atomic_fetch_sub(&arena->users, 1) != 1) {
        return;
    }
    if (!is_whole(arena) || !lease_keep(arena)) {
        int device = cuda_current_device();
        bool is_entered = cuda_enter(device) == CUDA_SUCCESS;
        arena_destroy(arena);
        if (is_entered) {
            cuda_leave();
        }
    }
}

/* Copies are fastest from the node of the device. A failure does not matter, because the memory
 * works on any node. */
static void place(void *memory, size_t size, int device) {
    enum { MODE_PREFERRED = 1, WORD_BITS = 8 * sizeof(unsigned long), MAX_NODES = 1024 };
    unsigned long mask[MAX_NODES / WORD_BITS] = {0};
    int node = cuda_host_node(device);
    if (node >= 0 && node < MAX_NODES) {
        mask[node / WORD_BITS] = 1UL << node % WORD_BITS;
        syscall(SYS_mbind, memory, size, MODE_PREFERRED, mask, MAX_NODES, 0);
    }
}

/* On whole huge pages where it has some: a driver pins these several times faster. */
char *arena_map(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), spare = size < HUGE_PAGE ? 0 : HUGE_PAGE;
    size = (size + page - 1) / page * page;
    char *memory = mmap(NULL, size + spare, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    if (spare) {
        size_t head = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
        if (head) {
            munmap(memory, head);
        }
        munmap(memory + head + size, spare - head);
        memory += head;
    }
    madvise(memory, size, MADV_HUGEPAGE);
    place(memory, size, cuda_current_device());
    return memory;
}

/* Users read the flags of pinned memory by the runtime. Not every runtime has them for memory that
 * it pinned and did not allocate; then the driver allocates it. */
bool arena_flags_work(void) {
    int (*get_flags)(unsigned *, void *);
    *(void **)&get_flags = dlsym(RTLD_DEFAULT, "cudaHostGetFlags");
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = get_flags ? arena_map(page) : NULL;
    if (!memory) {
        return true;
    }
    unsigned flags = 0;
    bool has = true;
    CUresult result = host_pin(memory, page);
    if (result == CUDA_SUCCESS) {
        has = of_runtime(get_flags(&flags, memory)) == 0;
    }
    if (result != CUDA_SUCCESS || host_unpin(memory)) {
        munmap(memory, page);
    }
    return has;
}

static arena_t *arena_create(size_t size, failure_t *error) {
    arena_t *arena = calloc(1, sizeof(*arena));
    if (arena) {
        arena->size = size;
        arena->device = cuda_current_device();
        arena->units = calloc(arena_units(arena), sizeof(*arena->units));
        arena->memory = arena->units ? arena_map(size) : NULL;
    }
    if (!arena || !arena->memory) {
        if (arena) {
            free(arena->units);
        }
        free(arena);
        error->result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        fail(error, "no %zu bytes of host memory to keep content in", size);
        return NULL;
    }
    return arena;
}

arena_t *arena_make(size_t size, failure_t *error) {
    arena_t *arena = lease_take(size, cuda_current_device());
    if (!arena) {
        lease_end_all(); /* smaller ones, which would be held beside the new one */
        arena = arena_create(size, error);
    }
    return arena;
}
