/*
 * Backups. New pinned memory is made for all blocks of a call at once, in units: threads touch a
 * unit, pin it, and queue the copies into it, so that the device copies while the next units are
 * made ready. Pinning block by block takes ten times as long.
 */
#include "backup.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"

enum { MAX_THREADS = 12 };

#define UNIT ((size_t)256 << 20) /* a multiple of all page sizes */

struct arena_t {
    char *memory;
    size_t size;
    atomic_size_t users; /* backups in it */
    bool *is_pinned;     /* one for each unit, written by the thread that makes it */
    bool is_driver_own;  /* allocated by the driver, not pinned by it */
    arena_t *next;       /* in the list of those that are kept */
};

/* Arenas without backups that the next call uses. */
static arena_t *kept;
static bool is_keeping;
static pthread_mutex_t kept_mutex = PTHREAD_MUTEX_INITIALIZER;

/* --- pinned memory ---------------------------------------------------------------------------- */

/* Memory of the runtime if it is in the process, as it then knows it; else of the driver. */
static void driver_host_free(void *memory) {
    int (*host_free)(void *);
    *(void **)&host_free = dlsym(RTLD_DEFAULT, "cudaFreeHost");
    if (host_free) {
        host_free(memory);
    } else {
        cuda()->host_free(memory);
    }
}

static int driver_host_alloc(void **memory, size_t size) {
    int (*host_alloc)(void **, size_t, unsigned);
    *(void **)&host_alloc = dlsym(RTLD_DEFAULT, "cudaHostAlloc");
    return host_alloc ? host_alloc(memory, size, CU_MEMHOSTALLOC_PORTABLE)
                      : (int)cuda()->host_alloc(memory, size, CU_MEMHOSTALLOC_PORTABLE);
}

/* By the runtime if it is in the process, as it then knows the memory; else by the driver. */
static CUresult host_pin(void *memory, size_t size) {
    int (*pin)(void *, size_t, unsigned);
    *(void **)&pin = dlsym(RTLD_DEFAULT, "cudaHostRegister");
    return pin ? (CUresult)pin(memory, size, CU_MEMHOSTREGISTER_PORTABLE)
               : cuda()->pin(memory, size, CU_MEMHOSTREGISTER_PORTABLE);
}

static void host_unpin(void *memory) {
    int (*unpin)(void *);
    *(void **)&unpin = dlsym(RTLD_DEFAULT, "cudaHostUnregister");
    if (unpin) {
        unpin(memory);
    } else {
        cuda()->unpin(memory);
    }
}

static size_t arena_units(const arena_t *arena) {
    return (arena->size + UNIT - 1) / UNIT;
}

static size_t unit_size(const arena_t *arena, size_t unit) {
    size_t rest = arena->size - unit * UNIT;
    return rest < UNIT ? rest : UNIT;
}

static void arena_destroy(arena_t *arena) {
    if (arena->is_driver_own) {
        driver_host_free(arena->memory);
    } else {
        for (size_t i = 0; i < arena_units(arena); i++) {
            if (arena->is_pinned[i]) {
                host_unpin(arena->memory + i * UNIT);
            }
        }
        munmap(arena->memory, arena->size);
    }
    free(arena->is_pinned);
    free(arena);
}

static bool is_whole(const arena_t *arena) {
    size_t units = 0;
    while (!arena->is_driver_own && units < arena_units(arena) && arena->is_pinned[units]) {
        units++;
    }
    return units == arena_units(arena);
}

/* false: nothing is kept. */
static bool arena_keep(arena_t *arena) {
    pthread_mutex_lock(&kept_mutex);
    bool is_kept = is_keeping && is_whole(arena);
    if (is_kept) {
        arena->next = kept;
        kept = arena;
    }
    pthread_mutex_unlock(&kept_mutex);
    return is_kept;
}

/* NULL: none has that size. */
static arena_t *arena_reuse(size_t size) {
    pthread_mutex_lock(&kept_mutex);
    arena_t **at = &kept;
    while (*at && (*at)->size != size) {
        at = &(*at)->next;
    }
    arena_t *found = *at;
    if (found) {
        *at = found->next;
    }
    pthread_mutex_unlock(&kept_mutex);
    return found;
}

static void arenas_drop(void) {
    pthread_mutex_lock(&kept_mutex);
    arena_t *list = kept;
    kept = NULL;
    pthread_mutex_unlock(&kept_mutex);
    for (arena_t *next; list; list = next) {
        next = list->next;
        arena_destroy(list);
    }
}

static void arena_release(arena_t *arena) {
    if (atomic_fetch_sub(&arena->users, 1) == 1 && !arena_keep(arena)) {
        int device = cuda_current_device();
        bool is_entered = cuda_enter(device) == CUDA_SUCCESS;
        arena_destroy(arena);
        if (is_entered) {
            cuda_leave();
        }
    }
}

static char *map_host(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

/* Users ask the runtime for the flags of pinned memory. Not every runtime answers for memory that
 * was not its own before it was pinned; where it does not, the driver allocates it. */
static bool pinned_has_flags(void) {
    int (*get_flags)(unsigned *, void *);
    int (*last_error)(void);
    *(void **)&get_flags = dlsym(RTLD_DEFAULT, "cudaHostGetFlags");
    *(void **)&last_error = dlsym(RTLD_DEFAULT, "cudaGetLastError");
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = get_flags ? map_host(page) : NULL;
    if (!memory) {
        return true;
    }
    unsigned flags = 0;
    bool has = true;
    if (host_pin(memory, page) == CUDA_SUCCESS) {
        has = get_flags(&flags, memory) == 0;
        host_unpin(memory);
    }
    munmap(memory, page);
    if (last_error) {
        last_error(); /* the question leaves no trace */
    }
    return has;
}

static arena_t *arena_create(size_t size, failure_t *error) {
    arena_t *arena = calloc(1, sizeof(*arena));
    if (arena) {
        arena->size = size;
        arena->is_pinned = calloc(arena_units(arena), sizeof(*arena->is_pinned));
        arena->memory = arena->is_pinned ? map_host(size) : NULL;
    }
    if (!arena || !arena->memory) {
        if (arena) {
            free(arena->is_pinned);
        }
        free(arena);
        error->result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        fail(error, "no %zu bytes of host memory to keep content in", size);
        return NULL;
    }
    return arena;
}

/* --- the work of one call --------------------------------------------------------------------- */

/* Copies of one device between blocks and their backups. */
typedef struct work_t {
    keep_t *keeps;
    size_t count;
    bool is_load;
    CUstream stream;
    int device;
    arena_t *arena; /* being made, or NULL */
    atomic_size_t next_unit;
    atomic_int failed; /* a CUresult */
} work_t;

static CUresult copy_range(const work_t *work, const keep_t *keep, size_t from, size_t to) {
    CUdeviceptr block = (CUdeviceptr)(uintptr_t)keep->block->ptr + from;
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)keep->backup->memory + from;
    return work->is_load ? cuda()->copy(block, host, to - from, work->stream)
                         : cuda()->copy(host, block, to - from, work->stream);
}

/* Those parts of the backups in the arena that lie in one unit of it. */
static CUresult copy_unit(const work_t *work, size_t unit) {
    char *start = work->arena->memory + unit * UNIT;
    char *end = start + unit_size(work->arena, unit);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < work->count && result == CUDA_SUCCESS; i++) {
        const backup_t *backup = work->keeps[i].backup;
        char *low = backup->memory > start ? backup->memory : start;
        char *high = backup->memory + backup->size < end ? backup->memory + backup->size : end;
        if (backup->arena == work->arena && low < high) {
            result = copy_range(work, &work->keeps[i], (size_t)(low - backup->memory),
                                (size_t)(high - backup->memory));
        }
    }
    return result;
}

static CUresult make_unit(work_t *work, size_t unit) {
    char *memory = work->arena->memory + unit * UNIT;
    size_t size = unit_size(work->arena, unit), page = (size_t)sysconf(_SC_PAGESIZE);
    if (work->arena->is_pinned[unit]) { /* kept from an earlier call */
        return copy_unit(work, unit);
    }
    for (size_t at = 0; at < size; at += page) {
        ((volatile char *)memory)[at] = 0;
    }
    CUresult result = host_pin(memory, size);
    if (result == CUDA_SUCCESS) {
        work->arena->is_pinned[unit] = true;
        result = copy_unit(work, unit);
    }
    return result;
}

static void *make_units(void *arg) {
    work_t *work = arg;
    CUresult result = cuda_enter(work->device);
    if (result != CUDA_SUCCESS) {
        atomic_store(&work->failed, result);
        return NULL;
    }
    size_t unit;
    while ((unit = atomic_fetch_add(&work->next_unit, 1)) < arena_units(work->arena) &&
           !atomic_load(&work->failed)) {
        result = make_unit(work, unit);
        if (result != CUDA_SUCCESS) {
            atomic_store(&work->failed, result);
        }
    }
    cuda_leave();
    return NULL;
}

/* This thread works, too, so it goes on where no other can be started. */
static CUresult make_arena(work_t *work) {
    pthread_t threads[MAX_THREADS];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = cpus > MAX_THREADS ? MAX_THREADS : cpus > 1 ? (size_t)cpus : 1, started = 0;
    wanted = wanted < arena_units(work->arena) ? wanted : arena_units(work->arena);
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, make_units, work) == 0) {
        started++;
    }
    make_units(work);
    while (started > 0) {
        pthread_join(threads[--started], NULL);
    }
    return (CUresult)atomic_load(&work->failed);
}

/* --- room ------------------------------------------------------------------------------------- */

/* Bytes in the arena: whole pages, so that a part of it can be viewed and pinned by itself. */
static size_t in_arena(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

static bool wants_arena(const keep_t *keep) {
    return keep->backup->kind == BACKUP_PINNED && !keep->backup->memory;
}

/* One arena for all new pinned backups of a device. */
static bool room_in_arena(work_t *work, failure_t *error) {
    size_t size = 0;
    for (size_t i = 0; i < work->count; i++) {
        size += wants_arena(&work->keeps[i]) ? in_arena(work->keeps[i].block->size) : 0;
    }
    if (size == 0) {
        return true;
    }
    arena_t *arena = arena_reuse(size);
    if (!arena) {
        arenas_drop(); /* of other sizes than what sleeps now */
        arena = arena_create(size, error);
    }
    if (!arena) {
        return false;
    }
    size_t at = 0;
    for (size_t i = 0; i < work->count; i++) {
        backup_t *backup = work->keeps[i].backup;
        if (wants_arena(&work->keeps[i])) {
            backup->arena = arena;
            backup->memory = arena->memory + at;
            backup->size = work->keeps[i].block->size;
            at += in_arena(backup->size);
            atomic_fetch_add(&arena->users, 1);
        }
    }
    work->arena = arena;
    return true;
}

static bool room_by_driver(keep_t *keep, failure_t *error) {
    arena_t *arena = calloc(1, sizeof(*arena));
    void *memory = NULL;
    if (!arena || driver_host_alloc(&memory, keep->block->size) != 0) {
        free(arena);
        error->result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        return fail(error, "no %zu bytes of pinned host memory to keep content in",
                    keep->block->size);
    }
    *arena =
        (arena_t){.memory = memory, .size = keep->block->size, .users = 1, .is_driver_own = true};
    keep->backup->arena = arena;
    keep->backup->memory = memory;
    keep->backup->size = keep->block->size;
    return true;
}

static bool room_on_host(keep_t *keep, failure_t *error) {
    keep->backup->memory = map_host(keep->block->size);
    keep->backup->size = keep->block->size;
    if (!keep->backup->memory) {
        error->result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        return fail(error, "no %zu bytes of host memory to keep content in", keep->block->size);
    }
    return true;
}

static bool room_all(work_t *work, failure_t *error) {
    static int has_flags = -1;
    if (has_flags < 0) {
        has_flags = pinned_has_flags();
    }
    for (size_t i = 0; i < work->count; i++) {
        keep_t *keep = &work->keeps[i];
        bool is_new = !keep->backup->memory;
        if ((is_new && keep->backup->kind == BACKUP_MMAP && !room_on_host(keep, error)) ||
            (!has_flags && wants_arena(keep) && !room_by_driver(keep, error))) {
            return false;
        }
    }
    return room_in_arena(work, error);
}

/* --- files ------------------------------------------------------------------------------------ */

static bool file_failed(const backup_t *backup, const char *what, failure_t *error) {
    error->result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    return fail(error, "%s %s: %s", what, backup->path ? backup->path : "a file", strerror(errno));
}

static bool transfer(int fd, char *buffer, size_t size, size_t at, bool is_load) {
    size_t done = 0;
    while (done < size) {
        ssize_t now = is_load ? pread(fd, buffer + done, size - done, (off_t)(at + done))
                              : pwrite(fd, buffer + done, size - done, (off_t)(at + done));
        if (now <= 0 && errno != EINTR) {
            errno = now == 0 ? EIO : errno;
            return false;
        }
        done += now > 0 ? (size_t)now : 0;
    }
    return true;
}

/* Copies between block and file, a chunk at a time through memory of the host. */
static bool file_copy(const work_t *work, keep_t *keep, int fd, char *chunk, size_t chunk_size,
                      failure_t *error) {
    for (size_t at = 0; at < keep->block->size; at += chunk_size) {
        size_t rest = keep->block->size - at, size = rest < chunk_size ? rest : chunk_size;
        CUdeviceptr block = (CUdeviceptr)(uintptr_t)keep->block->ptr + at;
        CUdeviceptr host = (CUdeviceptr)(uintptr_t)chunk;
        if (work->is_load && !transfer(fd, chunk, size, at, true)) {
            return file_failed(keep->backup, "content cannot be read from", error);
        }
        CUresult result = work->is_load ? cuda()->copy(block, host, size, work->stream)
                                        : cuda()->copy(host, block, size, work->stream);
        if (result == CUDA_SUCCESS) {
            result = cuda()->stream_synchronize(work->stream);
        }
        if (result != CUDA_SUCCESS) {
            error->result = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
            return fail(error, "content cannot be copied: %s", cuda_text(result));
        }
        if (!work->is_load && !transfer(fd, chunk, size, at, false)) {
            return file_failed(keep->backup, "content cannot be written to", error);
        }
    }
    return true;
}

static char *file_name(const backup_options_t *options, const block_t *block) {
    char *path = NULL;
    int length = asprintf(&path, "%s/torch_memory_saver_%ld_%p", options->folder, (long)getpid(),
                          (void *)block->ptr);
    return length > 0 ? path : NULL;
}

static bool file_move(const work_t *work, keep_t *keep, const backup_options_t *options,
                      char *chunk, failure_t *error) {
    backup_t *backup = keep->backup;
    if (!work->is_load) {
        backup->path = file_name(options, keep->block);
        backup->size = keep->block->size;
    }
    int flags = work->is_load ? O_RDONLY : O_RDWR | O_CREAT | O_TRUNC;
    int fd = backup->path ? open(backup->path, flags | O_CLOEXEC, 0600) : -1;
    if (fd < 0) {
        return file_failed(backup, "content cannot be kept in", error);
    }
    bool is_done = file_copy(work, keep, fd, chunk, options->chunk, error);
    if (close(fd) != 0 && is_done) {
        is_done = file_failed(backup, "content cannot be written to", error);
    }
    return is_done;
}

static bool files_move(const work_t *work, const backup_options_t *options, failure_t *error) {
    void *chunk = NULL;
    bool is_done = true;
    for (size_t i = 0; i < work->count && is_done; i++) {
        if (work->keeps[i].backup->kind != BACKUP_DISK) {
            continue;
        }
        if (!chunk && driver_host_alloc(&chunk, options->chunk) != 0) {
            return fail(error, "no %zu bytes of pinned host memory to write files from",
                        options->chunk);
        }
        is_done = file_move(work, &work->keeps[i], options, chunk, error);
    }
    if (chunk) {
        driver_host_free(chunk);
    }
    return is_done;
}

/* --- one device ------------------------------------------------------------------------------- */

/* Each unit was pinned by itself, and one copy must not reach over the end of what was pinned. */
static CUresult copy_whole(const work_t *work, const keep_t *keep) {
    const backup_t *backup = keep->backup;
    size_t in_unit = backup->arena ? (size_t)(backup->memory - backup->arena->memory) % UNIT : 0;
    bool has_units = backup->arena && !backup->arena->is_driver_own;
    CUresult result = CUDA_SUCCESS;
    for (size_t at = 0, end; at < backup->size && result == CUDA_SUCCESS; at = end) {
        end = has_units ? at + UNIT - (in_unit + at) % UNIT : backup->size;
        end = end < backup->size ? end : backup->size;
        result = copy_range(work, keep, at, end);
    }
    return result;
}

/* What has its memory already; what the arena gets is copied where its units are made. */
static CUresult copy_rest(const work_t *work) {
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < work->count && result == CUDA_SUCCESS; i++) {
        const backup_t *backup = work->keeps[i].backup;
        if (backup->memory && (!work->arena || backup->arena != work->arena)) {
            result = copy_whole(work, &work->keeps[i]);
        }
    }
    return result;
}

static bool work_run(work_t *work, const backup_options_t *options, failure_t *error) {
    if (!work->is_load && !room_all(work, error)) {
        return false;
    }
    CUresult result = cuda()->stream_create(&work->stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) {
        return fail(error, "content cannot be copied: %s", cuda_text(result));
    }
    result = copy_rest(work);
    if (result == CUDA_SUCCESS && work->arena) {
        result = make_arena(work);
    }
    CUresult waited = cuda()->stream_synchronize(work->stream);
    result = result == CUDA_SUCCESS ? waited : result;
    bool is_done = result == CUDA_SUCCESS;
    if (!is_done) {
        error->result = result == CUDA_ERROR_OUT_OF_MEMORY
                            ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
                            : UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
        fail(error, "content cannot be copied: %s", cuda_text(result));
    }
    is_done = is_done && files_move(work, options, error);
    cuda()->stream_destroy(work->stream);
    return is_done;
}

/* Queued work of the device comes before the copies. */
static bool device_run(keep_t *keeps, size_t count, bool is_load, const backup_options_t *options,
                       failure_t *error) {
    int device = keeps[0].block->group->device;
    CUresult result = cuda_enter(device);
    if (result == CUDA_SUCCESS && !is_load) {
        result = cuda()->synchronize();
        if (result != CUDA_SUCCESS) {
            cuda_leave();
        }
    }
    if (result != CUDA_SUCCESS) {
        error->result = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
        return fail(error, "device %d cannot be waited for: %s", device, cuda_text(result));
    }
    work_t work = {.keeps = keeps, .count = count, .is_load = is_load, .device = device};
    bool is_done = work_run(&work, options, error);
    cuda_leave();
    return is_done;
}

/* --- the calls -------------------------------------------------------------------------------- */

static int by_device_and_owner(const void *one, const void *other) {
    const keep_t *a = one, *b = other;
    int devices = a->block->group->device - b->block->group->device;
    uintptr_t x = (uintptr_t)a->owner, y = (uintptr_t)b->owner;
    return devices ? devices : (x > y) - (x < y);
}

/* Keeps are sorted. */
static bool run_all(keep_t *keeps, size_t count, bool is_load, const backup_options_t *options,
                    failure_t *error) {
    for (size_t start = 0, end; start < count; start = end) {
        end = start + 1;
        while (end < count && by_device_and_owner(&keeps[end], &keeps[start]) == 0) {
            end++;
        }
        if (!device_run(&keeps[start], end - start, is_load, options, error)) {
            return false;
        }
    }
    return true;
}

void backups_retain(bool is_on) {
    pthread_mutex_lock(&kept_mutex);
    is_keeping = is_on;
    bool is_over = !is_on && kept;
    pthread_mutex_unlock(&kept_mutex);
    if (is_over && cuda_enter(cuda_current_device()) == CUDA_SUCCESS) {
        arenas_drop();
        cuda_leave();
    }
}

bool backup_is_full(const backup_t *backup) {
    return backup->memory || backup->path;
}

void backup_drop(backup_t *backup) {
    if (backup->arena) {
        arena_release(backup->arena);
    } else if (backup->memory) {
        munmap(backup->memory, backup->size);
    }
    if (backup->path) {
        unlink(backup->path);
        free(backup->path);
    }
    *backup = (backup_t){.kind = backup->kind};
}

bool backups_save(keep_t *keeps, size_t count, const backup_options_t *options, failure_t *error) {
    bool *were_full = calloc(count + 1, sizeof(*were_full));
    qsort(keeps, count, sizeof(*keeps), by_device_and_owner);
    for (size_t i = 0; were_full && i < count; i++) {
        were_full[i] = backup_is_full(keeps[i].backup);
    }
    bool is_done = were_full && run_all(keeps, count, false, options, error);
    for (size_t i = 0; were_full && !is_done && i < count; i++) {
        if (!were_full[i]) {
            backup_drop(keeps[i].backup);
        }
    }
    free(were_full);
    return is_done;
}

bool backups_load(keep_t *keeps, size_t count, const backup_options_t *options, failure_t *error) {
    qsort(keeps, count, sizeof(*keeps), by_device_and_owner);
    return run_all(keeps, count, true, options, error);
}
