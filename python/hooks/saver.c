/* The memory saver: one table of allocations under one lock. */
#include "saver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"
#include "saver_own.h"
#include "table.h"

/* Allocations of one tag on one device that are in the same state. Memory allocated while the tag
 * sleeps gets another one. */
typedef struct family_t {
    group_t group;
    char *tag;
    size_t entries; /* in it; it goes with the last */
    bool is_meant;  /* by the call that pauses or resumes */
    struct family_t *next;
} family_t;

typedef struct entry_t {
    block_t block;
    backup_t backup;
    bool
        is_owed; /* awake without its content, which only the backup has: a resume copies it back */
    family_t *family;
} entry_t;

/* Write-locked by pause and resume: no thread allocates or frees meanwhile. Taken before the mutex.
 */
static pthread_rwlock_t moving = PTHREAD_RWLOCK_INITIALIZER;
/* Of everything below. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static table_t table; /* of entries: each begins with its block */
static family_t *families;
static uint64_t margin;
static int retain = -1; /* not read yet */
static char *folder;
static pid_t writer; /* the process that paused last */

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
    return folder ? folder : "/tmp";
}

static backup_options_t options_locked(void) {
    static size_t chunk;
    if (chunk == 0) {
        const char *wanted = getenv("TMS_DISK_BACKUP_CHUNK_MB");
        size_t megabytes = wanted && *wanted ? strtoul(wanted, NULL, 10) : 256;
        chunk = megabytes > BACKUP_MAX_CHUNK_MB ? 0 : megabytes << 20;
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

static family_t *family_create_locked(const char *tag, int device, failure_t *error) {
    family_t *made = calloc(1, sizeof(*made));
    char *copy = strdup(tag);
    if (!made || !copy || !group_create(&made->group, device, error)) {
        free(made);
        free(copy);
        return NULL;
    }
    made->tag = copy;
    made->next = families;
    families = made;
    return made;
}

/* The family that is awake, with one entry more. */
static family_t *family_join_locked(const char *tag, int device, failure_t *error) {
    family_t *family = families;
    while (family && (family->group.is_asleep || family->group.device != device ||
                      strcmp(family->tag, tag) != 0)) {
        family = family->next;
    }
    family = family ? family : family_create_locked(tag, device, error);
    if (family) {
        family->entries++;
    }
    return family;
}

static void family_leave_locked(family_t *family) {
    if (--family->entries > 0) {
        return;
    }
    family_t **at = &families;
    while (*at != family) {
        at = &(*at)->next;
    }
    *at = family->next;
    group_destroy(&family->group);
    free(family->tag);
    free(family);
}

static void entry_leave(entry_t *entry) {
    pthread_mutex_lock(&mutex);
    family_leave_locked(entry->family);
    pthread_mutex_unlock(&mutex);
    free(entry);
}

/* In the family of the thread's tag, without memory. */
static entry_t *entry_join(int device, failure_t *error) {
    entry_t *entry = calloc(1, sizeof(*entry));
    if (!entry) {
        return NULL;
    }
    entry->backup.kind = kind_of(saver_config());
    pthread_mutex_lock(&mutex);
    entry->family = family_join_locked(saver_config()->tag, device, error);
    pthread_mutex_unlock(&mutex);
    if (!entry->family) {
        free(entry);
        return NULL;
    }
    return entry;
}

static bool entry_publish(entry_t *entry, failure_t *error) {
    pthread_mutex_lock(&mutex);
    bool is_added = table_add(&table, &entry->block);
    pthread_mutex_unlock(&mutex);
    if (!is_added) {
        block_destroy(&entry->block);
    }
    return is_added || fail(error, "no memory for bookkeeping");
}

static void *malloc_while_still(size_t size, int device, failure_t *error) {
    entry_t *entry = is_within_margin(size, device, error) ? entry_join(device, error) : NULL;
    if (!entry) {
        return NULL;
    }
    if (!block_create(&entry->block, &entry->family->group, size, error) ||
        !entry_publish(entry, error)) {
        entry_leave(entry);
        return NULL;
    }
    return entry->block.ptr;
}

void *saver_malloc(size_t size, int device) {
    failure_t error = {.text = "no memory for bookkeeping"};
    pthread_rwlock_rdlock(&moving);
    void *ptr = malloc_while_still(size, device, &error);
    pthread_rwlock_unlock(&moving);
    if (!ptr) {
        failed(&error);
    }
    return ptr;
}

bool saver_free(void *ptr) {
    pthread_rwlock_rdlock(&moving);
    pthread_mutex_lock(&mutex);
    entry_t *entry = (entry_t *)table_remove(&table, ptr);
    pthread_mutex_unlock(&mutex);
    if (entry) {
        block_destroy(&entry->block);
        backup_drop(&entry->backup);
        entry_leave(entry);
    }
    pthread_rwlock_unlock(&moving);
    return entry;
}

/* --- pause and resume ------------------------------------------------------------------------- */

/* Arguments and results of one call. */
typedef struct move_t {
    group_t **groups;
    entry_t **entries; /* with a backup */
    keep_t *keeps;     /* of these */
    size_t group_count, count;
} move_t;

static void move_end(move_t *move) {
    free(move->groups);
    free(move->entries);
    free(move->keeps);
}

static size_t count_families_locked(void) {
    size_t count = 0;
    for (const family_t *family = families; family; family = family->next) {
        count++;
    }
    return count;
}

/* NULL and "" are all tags. */
static bool is_of(const family_t *family, const char *tag) {
    return !tag || !*tag || strcmp(family->tag, tag) == 0;
}

static void choose_families_locked(move_t *move, const char *tag, bool is_asleep) {
    for (family_t *family = families; family; family = family->next) {
        family->is_meant = family->group.is_asleep == is_asleep && is_of(family, tag);
        if (family->is_meant) {
            move->groups[move->group_count++] = &family->group;
        }
    }
}

static void choose_entries_locked(move_t *move, const char *tag, bool is_resume) {
    for (size_t i = 0; i < table.count; i++) {
        entry_t *entry = (entry_t *)table.blocks[i];
        bool is_kept = is_resume ? backup_is_full(&entry->backup)
                                 : entry->backup.kind != BACKUP_NONE && !entry->is_owed;
        bool is_meant =
            entry->family->is_meant || (is_resume && entry->is_owed && is_of(entry->family, tag));
        if (is_meant && is_kept) {
            move->entries[move->count] = entry;
            move->keeps[move->count++] = (keep_t){&entry->block, &entry->backup, entry->family};
        }
    }
}

static bool move_begin_locked(move_t *move, const char *tag, bool is_asleep, failure_t *error) {
    *move = (move_t){.groups = malloc((count_families_locked() + 1) * sizeof(*move->groups)),
                     .entries = malloc((table.count + 1) * sizeof(*move->entries)),
                     .keeps = malloc((table.count + 1) * sizeof(*move->keeps))};
    if (!move->groups || !move->entries || !move->keeps) {
        move_end(move);
        return fail(error, "no memory for a list of %zu allocations", table.count);
    }
    choose_families_locked(move, tag, is_asleep);
    choose_entries_locked(move, tag, is_asleep);
    return true;
}

/* A backup that was kept over a resume stays, others go. */
static void drop_new(const move_t *move, const bool *were_full) {
    for (size_t i = 0; i < move->count; i++) {
        const entry_t *entry = move->entries[i];
        if (!were_full[i] && !entry->family->group.is_asleep && !entry->is_owed) {
            backup_drop(&move->entries[i]->backup);
        }
    }
}

/* Content may have gone before the call failed: awake allocations get theirs back. Allocations that
 * could not be woken stay asleep, with their backups; awake ones without their content keep the
 * backups, too, for the next resume. */
static void load_awake(move_t *move, const backup_options_t *options, failure_t *error) {
    failure_t again = {.text = ""};
    size_t awake = 0, length = strlen(error->text);
    for (size_t i = 0; i < move->count; i++) {
        if (!move->keeps[i].block->group->is_asleep) {
            move->keeps[awake++] = move->keeps[i];
        }
    }
    if (backups_load(move->keeps, awake, options, &again)) {
        return;
    }
    for (size_t i = 0; i < awake; i++) {
        ((entry_t *)move->keeps[i].block)->is_owed = true;
    }
    snprintf(error->text + length, sizeof(error->text) - length,
             "; content of %zu allocations is in their backups only, until a resume: %.200s", awake,
             again.text);
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
    writer = getpid();
    bool is_done = backups_save(move->keeps, move->count, &options, error);
    if (is_done && !groups_sleep(move->groups, move->group_count, error)) {
        load_awake(move, &options, error);
        drop_new(move, were_full);
        is_done = false;
    }
    free(were_full);
    return is_done;
}

static bool resume_locked(move_t *move, failure_t *error) {
    if (!groups_wake(move->groups, move->group_count, error)) {
        return false;
    }
    backup_options_t options = options_locked();
    if (!backups_load(move->keeps, move->count, &options, error)) {
        failure_t again;
        groups_sleep(move->groups, move->group_count, &again); /* the backups are whole */
        for (size_t i = 0; i < move->count; i++) {             /* the sleep may have failed, too */
            move->entries[i]->is_owed = !move->entries[i]->family->group.is_asleep;
        }
        return false;
    }
    for (size_t i = 0; i < move->count; i++) {
        move->entries[i]->is_owed = false;
    }
    return true;
}

/* Of a tag that was resumed, now or before: retained ones go with the first resume that does not
 * retain. */
static void drop_backups_locked(const char *tag) {
    for (size_t i = 0; i < table.count; i++) {
        entry_t *entry = (entry_t *)table.blocks[i];
        bool is_retained = retain_locked() && entry->backup.kind != BACKUP_DISK;
        if (is_of(entry->family, tag) && !is_retained) {
            backup_drop(&entry->backup);
        }
    }
}

static int change(const char *tag, bool to_sleep) {
    failure_t error = {.text = "no memory for bookkeeping"};
    move_t move;
    pthread_rwlock_wrlock(&moving);
    pthread_mutex_lock(&mutex);
    bool is_done = move_begin_locked(&move, tag, !to_sleep, &error);
    if (is_done) {
        is_done = to_sleep ? pause_locked(&move, &error) : resume_locked(&move, &error);
        move_end(&move);
    }
    if (is_done && !to_sleep) {
        drop_backups_locked(tag);
    }
    pthread_mutex_unlock(&mutex);
    pthread_rwlock_unlock(&moving);
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
        state = !entry->family->group.is_asleep     ? SAVER_AWAKE
                : entry->backup.kind == BACKUP_DISK ? SAVER_PAUSED_DISK
                : backup_is_full(&entry->backup)    ? SAVER_PAUSED_HOST
                                                    : SAVER_PAUSED_LOST;
    }
    pthread_mutex_unlock(&mutex);
    return state;
}

/* Files have names, so they go with the process. A child of fork has none, and the mutex may have
 * been locked when it was made. */
static void __attribute__((destructor)) remove_files(void) {
    if (writer != getpid()) {
        return;
    }
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < table.count; i++) {
        backup_remove_file(&((const entry_t *)table.blocks[i])->backup);
    }
    pthread_mutex_unlock(&mutex);
}
