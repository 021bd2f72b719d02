/* The memory saver: one table of allocations under one lock. */
#include "saver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda.h"
#include "saver_own.h"
#include "table.h"

typedef struct entry_t {
    block_t block;
    backup_t backup;
    char *tag;
} entry_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static table_t table; /* of entries: each begins with its block */
static uint64_t margin;
static int retain = -1; /* not asked for yet */
static char *folder;

static _Thread_local char error_text[sizeof(((failure_t *)0)->text)];

static int failed(const failure_t *error) {
    int length = snprintf(error_text, sizeof(error_text), "%s", error->text);
    if (error->missing && length > 0 && (size_t)length < sizeof(error_text)) {
        snprintf(error_text + length, sizeof(error_text) - (size_t)length,
                 " (%zu bytes are missing)", error->missing);
    }
    return 1;
}

const char *saver_error(void) {
    return error_text;
}

/* --- of the process --------------------------------------------------------------------------- */

void saver_set_margin(uint64_t bytes) {
    pthread_mutex_lock(&mutex);
    margin = bytes;
    pthread_mutex_unlock(&mutex);
}

static bool retain_locked(void) {
    if (retain < 0) {
        retain = saver_retain_by_environment();
    }
    return retain;
}

void saver_set_retain(bool wanted) {
    pthread_mutex_lock(&mutex);
    retain = wanted;
    pthread_mutex_unlock(&mutex);
}

bool saver_get_retain(void) {
    pthread_mutex_lock(&mutex);
    bool is_retained = retain_locked();
    pthread_mutex_unlock(&mutex);
    return is_retained;
}

void saver_set_folder(const char *wanted) {
    char *copy = strdup(wanted);
    pthread_mutex_lock(&mutex);
    free(folder);
    folder = copy;
    pthread_mutex_unlock(&mutex);
}

static const char *folder_locked(void) {
    if (!folder) {
        const char *wanted = getenv("TMS_DISK_BACKUP_DIR"), *temporary = getenv("TMPDIR");
        wanted = wanted && *wanted ? wanted : temporary && *temporary ? temporary : "/tmp";
        folder = strdup(wanted);
    }
    if (folder) {
        mkdir(folder, 0700); /* what is wrong with it, the first file says */
    }
    return folder ? folder : "/tmp";
}

static backup_options_t options_locked(void) {
    static size_t chunk;
    if (chunk == 0) {
        const char *wanted = getenv("TMS_DISK_BACKUP_CHUNK_MB");
        size_t megabytes = wanted ? strtoul(wanted, NULL, 10) : 0;
        chunk = (megabytes ? megabytes : 256) << 20;
    }
    return (backup_options_t){.folder = folder_locked(), .chunk = chunk};
}

static entry_t *find_locked(const void *ptr) {
    return (entry_t *)table_find(&table, ptr);
}

/* --- allocations ------------------------------------------------------------------------------ */

static backup_kind_t kind_of(const saver_config_t *config) {
    return config->has_disk_backup  ? BACKUP_DISK
           : config->has_cpu_backup ? config->cpu_kind
                                    : BACKUP_NONE;
}

/* Memory that must stay free for others. */
static bool is_within_margin(size_t size, int device, failure_t *error) {
    pthread_mutex_lock(&mutex);
    uint64_t kept_free = margin;
    pthread_mutex_unlock(&mutex);
    size_t available = 0, total = 0;
    if (kept_free == 0 || cuda_enter(device) != CUDA_SUCCESS) {
        return true;
    }
    CUresult result = cuda()->memory(&available, &total);
    cuda_leave();
    return result != CUDA_SUCCESS || kept_free + size <= available ||
           fail(error, "%zu bytes would leave less than the margin of %llu free: %zu are", size,
                (unsigned long long)kept_free, available);
}

static entry_t *entry_create(size_t size, int device, failure_t *error) {
    entry_t *entry = calloc(1, sizeof(*entry));
    if (entry) {
        entry->tag = strdup(saver_config()->tag);
        entry->backup.kind = kind_of(saver_config());
    }
    if (entry && entry->tag && is_within_margin(size, device, error) &&
        block_create(&entry->block, size, device, error)) {
        return entry;
    }
    if (entry) {
        free(entry->tag);
        free(entry);
    }
    return NULL;
}

static void entry_destroy(entry_t *entry) {
    block_destroy(&entry->block);
    backup_drop(&entry->backup);
    free(entry->tag);
    free(entry);
}

void *saver_malloc(size_t size, int device) {
    failure_t error = {.text = "no memory for bookkeeping"};
    entry_t *entry = entry_create(size, device, &error);
    if (!entry) {
        failed(&error);
        return NULL;
    }
    pthread_mutex_lock(&mutex);
    bool is_added = table_add(&table, &entry->block);
    pthread_mutex_unlock(&mutex);
    if (!is_added) {
        entry_destroy(entry);
        failed(&error);
        return NULL;
    }
    return entry->block.ptr;
}

bool saver_free(void *ptr) {
    pthread_mutex_lock(&mutex);
    entry_t *entry = (entry_t *)table_remove(&table, ptr);
    pthread_mutex_unlock(&mutex);
    if (entry) {
        entry_destroy(entry);
    }
    return entry;
}

/* --- pause and resume ------------------------------------------------------------------------- */

/* What one call works on. */
typedef struct move_t {
    entry_t **entries;
    block_t **blocks;
    keep_t *keeps;
    size_t count, keep_count;
} move_t;

static bool is_meant(const entry_t *entry, const char *tag, bool is_asleep) {
    return entry->block.is_asleep == is_asleep && (!tag || !*tag || strcmp(entry->tag, tag) == 0);
}

static void move_end(move_t *move) {
    free(move->entries);
    free(move->blocks);
    free(move->keeps);
}

static bool move_begin_locked(move_t *move, const char *tag, bool is_asleep, failure_t *error) {
    *move = (move_t){.entries = malloc((table.count + 1) * sizeof(*move->entries)),
                     .blocks = malloc((table.count + 1) * sizeof(*move->blocks)),
                     .keeps = malloc((table.count + 1) * sizeof(*move->keeps))};
    if (!move->entries || !move->blocks || !move->keeps) {
        move_end(move);
        return fail(error, "no memory for a list of %zu allocations", table.count);
    }
    for (size_t i = 0; i < table.count; i++) {
        entry_t *entry = (entry_t *)table.blocks[i];
        if (!is_meant(entry, tag, is_asleep)) {
            continue;
        }
        move->entries[move->count] = entry;
        move->blocks[move->count++] = &entry->block;
        bool is_kept =
            is_asleep ? backup_is_full(&entry->backup) : entry->backup.kind != BACKUP_NONE;
        if (is_kept) {
            move->keeps[move->keep_count++] = (keep_t){&entry->block, &entry->backup};
        }
    }
    return true;
}

/* A backup that was kept over a resume stays, others go. */
static void drop_new_locked(const move_t *move, const bool *were_full) {
    for (size_t i = 0; i < move->count; i++) {
        if (!were_full[i]) {
            backup_drop(&move->entries[i]->backup);
        }
    }
}

static bool pause_locked(move_t *move, failure_t *error) {
    bool *were_full = calloc(move->count + 1, sizeof(*were_full));
    if (!were_full) {
        return fail(error, "no memory for a list of %zu allocations", move->count);
    }
    for (size_t i = 0; i < move->count; i++) {
        were_full[i] = backup_is_full(&move->entries[i]->backup);
    }
    backup_options_t options = options_locked();
    bool is_done = backups_save(move->keeps, move->keep_count, &options, error);
    if (is_done && !blocks_sleep(move->blocks, move->count, error)) {
        drop_new_locked(move, were_full);
        is_done = false;
    }
    free(were_full);
    return is_done;
}

static bool resume_locked(move_t *move, failure_t *error) {
    if (!blocks_wake(move->blocks, move->count, error)) {
        return false;
    }
    backup_options_t options = options_locked();
    if (!backups_load(move->keeps, move->keep_count, &options, error)) {
        failure_t again;
        blocks_sleep(move->blocks, move->count, &again); /* the backups are whole */
        return false;
    }
    for (size_t i = 0; i < move->keep_count; i++) {
        backup_t *backup = move->keeps[i].backup;
        if (!retain_locked() || backup->kind == BACKUP_DISK) {
            backup_drop(backup);
        }
    }
    return true;
}

static int change(const char *tag, bool to_sleep) {
    failure_t error = {.text = "no memory for bookkeeping"};
    move_t move;
    pthread_mutex_lock(&mutex);
    bool is_done = move_begin_locked(&move, tag, !to_sleep, &error);
    if (is_done) {
        is_done = move.count == 0 ||
                  (to_sleep ? pause_locked(&move, &error) : resume_locked(&move, &error));
        move_end(&move);
    }
    pthread_mutex_unlock(&mutex);
    return is_done ? 0 : failed(&error);
}

int saver_pause(const char *tag) {
    return change(tag, true);
}

int saver_resume(const char *tag) {
    return change(tag, false);
}

/* --- questions -------------------------------------------------------------------------------- */

uint8_t *saver_backup_of(const uint8_t *ptr, uint64_t size) {
    uint8_t *found = NULL;
    pthread_mutex_lock(&mutex);
    const entry_t *entry = find_locked(ptr);
    if (entry && entry->backup.memory) {
        size_t offset = (size_t)((const char *)ptr - entry->block.ptr);
        bool is_inside = size <= entry->block.size - offset;
        found = is_inside ? (uint8_t *)entry->backup.memory + offset : NULL;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

saver_state_t saver_state_of(const void *ptr) {
    pthread_mutex_lock(&mutex);
    const entry_t *entry = find_locked(ptr);
    saver_state_t state = SAVER_UNKNOWN;
    if (entry) {
        state = !entry->block.is_asleep             ? SAVER_AWAKE
                : entry->backup.kind == BACKUP_DISK ? SAVER_PAUSED_DISK
                : backup_is_full(&entry->backup)    ? SAVER_PAUSED_HOST
                                                    : SAVER_PAUSED_LOST;
    }
    pthread_mutex_unlock(&mutex);
    return state;
}

/* Files have names, so they go with the process. */
static void __attribute__((destructor)) remove_files(void) {
    for (size_t i = 0; i < table.count; i++) {
        const entry_t *entry = (const entry_t *)table.blocks[i];
        if (entry->backup.path) {
            unlink(entry->backup.path);
        }
    }
}
