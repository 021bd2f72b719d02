/*
 * Backups. New pinned memory is made for all blocks of a call at once, in units (arena.h): the
 * copies into a unit are queued as soon as it is pinned, so that the device copies while the next
 * units are made ready. Pinning block by block takes ten times as long.
 */
#include "backup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the work of one call --------------------------------------------------------------------- */

/* Copies of one device between blocks and their backups. */
typedef struct work_t {
    keep_t *keeps;
    size_t count;
    bool is_load;
    CUstream stream;
    arena_t *arena; /* being made, or NULL */
} work_t;

static CUresult copy_range(const work_t *work, const keep_t *keep, size_t from, size_t to) {
    CUdeviceptr block = (CUdeviceptr)(uintptr_t)keep->block->ptr + from;
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)keep->backup->memory + from;
    return work->is_load ? cuda()->copy(block, host, to - from, work->stream)
                         : cuda()->copy(host, block, to - from, work->stream);
}

/* Those parts of the backups in the arena that lie in one unit of it. */
static CUresult copy_unit(void *arg, size_t unit) {
    const work_t *work = arg;
    char *start = work->arena->memory + unit * ARENA_UNIT;
    char *end = start + arena_unit_size(work->arena, unit);
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
    arena_t *arena = arena_make(size, error);
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
    if (!arena || arena_host_alloc(&memory, keep->block->size) != 0) {
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
    keep->backup->memory = arena_map(keep->block->size);
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
        has_flags = arena_flags_work();
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
        if (now == 0) {
            errno = EIO; /* the file is shorter than the block */
        }
        if (now == 0 || (now < 0 && errno != EINTR)) {
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

/* The folder and those above it. */
static void make_folders(const char *folder) {
    char *path = strdup(folder);
    for (char *end = path ? strchr(path + 1, '/') : NULL; end; end = strchr(end + 1, '/')) {
        *end = '\0';
        mkdir(path, 0700);
        *end = '/';
    }
    free(path);
    mkdir(folder, 0700);
}

static char *file_name(const backup_options_t *options, const block_t *block) {
    char *path = NULL;
    int length = asprintf(&path, "%s/torch_memory_saver_%ld_%p", options->folder, (long)getpid(),
                          (void *)block->ptr);
    return length > 0 ? path : NULL;
}

/* A new file. A file of that name belongs to an ended process, or to an attacker: it is never
 * followed or written to. */
static int file_create(backup_t *backup) {
    enum { FLAGS = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC };
    struct stat made;
    int fd = open(backup->path, FLAGS, 0600);
    if (fd < 0 && errno == EEXIST && unlink(backup->path) == 0) {
        fd = open(backup->path, FLAGS, 0600);
    }
    if (fd >= 0 && fstat(fd, &made) == 0) {
        backup->volume = made.st_dev;
        backup->inode = made.st_ino;
    }
    return fd;
}

/* The file that was made; -1 if another has its name. */
static int file_open(const backup_t *backup) {
    struct stat found;
    int fd = open(backup->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &found) != 0 || found.st_dev != backup->volume ||
                    found.st_ino != backup->inode)) {
        close(fd);
        errno = ESTALE;
        return -1;
    }
    return fd;
}

static bool file_move(const work_t *work, keep_t *keep, const backup_options_t *options,
                      char *chunk, failure_t *error) {
    backup_t *backup = keep->backup;
    if (!work->is_load) {
        backup->path = file_name(options, keep->block);
        backup->size = keep->block->size;
        backup->owner = getpid();
        make_folders(options->folder); /* a failure shows when the file is made */
    }
    int fd = !backup->path ? -1 : work->is_load ? file_open(backup) : file_create(backup);
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
        if (options->chunk == 0) {
            return fail(error, "TMS_DISK_BACKUP_CHUNK_MB must be a number from 1 to %u, it is %s",
                        BACKUP_MAX_CHUNK_MB, getenv("TMS_DISK_BACKUP_CHUNK_MB"));
        }
        if (!chunk && arena_host_alloc(&chunk, options->chunk) != 0) {
            return fail(error, "no %zu bytes of pinned host memory to write files from",
                        options->chunk);
        }
        is_done = file_move(work, &work->keeps[i], options, chunk, error);
    }
    if (chunk && (is_done || cuda()->synchronize() == CUDA_SUCCESS)) {
        arena_host_free(chunk);
    }
    return is_done;
}

/* --- one device ------------------------------------------------------------------------------- */

/* Each unit was pinned by itself, and one copy must not cross the end of a unit. */
static CUresult copy_whole(const work_t *work, const keep_t *keep) {
    const backup_t *backup = keep->backup;
    size_t in_unit =
        backup->arena ? (size_t)(backup->memory - backup->arena->memory) % ARENA_UNIT : 0;
    bool has_units = backup->arena && !backup->arena->is_driver_own;
    CUresult result = CUDA_SUCCESS;
    for (size_t at = 0, end; at < backup->size && result == CUDA_SUCCESS; at = end) {
        end = has_units ? at + ARENA_UNIT - (in_unit + at) % ARENA_UNIT : backup->size;
        end = end < backup->size ? end : backup->size;
        result = copy_range(work, keep, at, end);
    }
    return result;
}

/* Backups with memory of their own; those of the arena are copied where its units are made. */
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
        result = arena_make_units(work->arena, copy_unit, work);
    }
    CUresult waited = cuda()->stream_synchronize(work->stream);
    for (size_t i = 0; i < work->count; i++) {
        const keep_t *keep = &work->keeps[i];
        keep->backup->unsettled = waited == CUDA_SUCCESS ? 0 : 1 + keep->block->group->device;
    }
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
    work_t work = {.keeps = keeps, .count = count, .is_load = is_load};
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

void backup_remove_file(const backup_t *backup) {
    if (backup->path && backup->owner == getpid()) {
        unlink(backup->path);
    }
}

bool backup_is_full(const backup_t *backup) {
    return backup->memory || backup->path;
}

/* The final wait for copies after a failed one. */
static bool is_settled(const backup_t *backup) {
    return !backup->unsettled || cuda_drain(backup->unsettled - 1) == CUDA_SUCCESS;
}

void backup_drop(backup_t *backup) {
    if (!is_settled(backup)) {
        backup->memory = NULL;
    } else if (backup->arena) {
        arena_release(backup->arena);
    } else if (backup->memory) {
        munmap(backup->memory, backup->size);
    }
    backup_remove_file(backup);
    free(backup->path);
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
