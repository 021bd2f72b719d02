/* Allocations of vLLM's memory pools. */
#include "cumem.h"

#include <pthread.h>
#include <stdlib.h>

#include "table.h"

/* Each allocation sleeps and wakes by itself, so each has a group. The table has their blocks. The
 * note of an allocation is in it: a free needs no memory, and there are no more notes than
 * allocations that are alive or were read. */
typedef struct own_t {
    block_t block;
    group_t group;
    int tag;
    bool has_note, is_gone;
    struct own_t *before, *after; /* among the notes */
} own_t;

/* Memory of the host that cumem_save made. */
typedef struct host_t {
    backup_t backup;
    struct host_t *next;
} host_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static table_t table;
static host_t *hosts_made;
static own_t *oldest_note, *newest_note;
static size_t note_count;

/* --- notes ------------------------------------------------------------------------------------ */

static void note_add_locked(own_t *own) {
    own->has_note = true;
    own->before = newest_note;
    own->after = NULL;
    *(newest_note ? &newest_note->after : &oldest_note) = own;
    newest_note = own;
    note_count++;
}

static void note_remove_locked(own_t *own) {
    own->has_note = false;
    *(own->before ? &own->before->after : &oldest_note) = own->after;
    *(own->after ? &own->after->before : &newest_note) = own->before;
    note_count--;
}

bool cumem_take_notes(note_t **notes, size_t *count) {
    pthread_mutex_lock(&mutex);
    size_t found = 0;
    *notes = malloc((note_count + 1) * sizeof(**notes));
    while (*notes && oldest_note) {
        own_t *own = oldest_note;
        (*notes)[found++] = (note_t){.is_gone = own->is_gone,
                                     .device = own->group.device,
                                     .tag = own->tag,
                                     .size = own->block.size,
                                     .ptr = own->block.ptr,
                                     .handle = &own->block};
        note_remove_locked(own);
        if (own->is_gone) {
            free(own);
        }
    }
    pthread_mutex_unlock(&mutex);
    *count = found;
    return *notes;
}

/* --- allocations ------------------------------------------------------------------------------ */

static size_t rounded(size_t size, int device) {
    size_t granularity = block_granularity(device);
    return granularity ? (size + granularity - 1) / granularity * granularity : size;
}

static own_t *own_create(size_t size, int device, failure_t *error) {
    own_t *own = calloc(1, sizeof(*own));
    if (!own) {
        fail(error, "no memory for bookkeeping");
        return NULL;
    }
    if (!group_create(&own->group, device, error)) {
        free(own);
        return NULL;
    }
    if (!block_create(&own->block, &own->group, size, error)) {
        group_destroy(&own->group);
        free(own);
        return NULL;
    }
    return own;
}

static void own_destroy(own_t *own) {
    block_destroy(&own->block);
    group_destroy(&own->group);
}

block_t *cumem_malloc(size_t *size, int device, int tag, failure_t *error) {
    *size = rounded(*size, device);
    own_t *own = own_create(*size, device, error);
    if (!own) {
        return NULL;
    }
    own->tag = tag;
    pthread_mutex_lock(&mutex);
    bool is_added = table_add(&table, &own->block);
    if (is_added && tag != CUMEM_UNNOTED) {
        note_add_locked(own);
    }
    pthread_mutex_unlock(&mutex);
    if (!is_added) {
        own_destroy(own);
        free(own);
        fail(error, "no memory for bookkeeping");
        return NULL;
    }
    return &own->block;
}

/* The note that it is gone comes before the memory goes, so that the notes of one address are in
 * order. Whoever reads it frees the bookkeeping at once, so the memory goes by a copy. */
void cumem_free(void *ptr, bool is_noted) {
    own_t last = {.has_note = false};
    pthread_mutex_lock(&mutex);
    own_t *own = (own_t *)table_remove(&table, ptr);
    if (own) {
        last = *own;
        last.block.group = &last.group;
    }
    if (own && own->has_note) {
        note_remove_locked(own);
        free(own);
    } else if (own && is_noted) {
        own->is_gone = true;
        note_add_locked(own);
    } else {
        free(own);
    }
    pthread_mutex_unlock(&mutex);
    if (own) {
        own_destroy(&last);
    }
}

/* --- sleep and wake --------------------------------------------------------------------------- */

static bool find_all_locked(void *const *ptrs, size_t count, block_t **blocks, failure_t *error) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = table_find(&table, ptrs[i]);
        if (!blocks[i] || blocks[i]->ptr != ptrs[i]) {
            error->result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
            return fail(error, "invalid argument: %p is no allocation of this module", ptrs[i]);
        }
    }
    return true;
}

bool cumem_move(void *const *ptrs, size_t count, bool is_asleep, failure_t *error) {
    block_t **blocks = calloc(count + 1, sizeof(block_t *));
    group_t **groups = calloc(count + 1, sizeof(group_t *));
    fail(error, "no memory for a list of %zu allocations", count);
    pthread_mutex_lock(&mutex);
    bool is_done = blocks && groups && find_all_locked(ptrs, count, blocks, error);
    for (size_t i = 0; is_done && i < count; i++) {
        groups[i] = blocks[i]->group;
    }
    is_done = is_done &&
              (is_asleep ? groups_sleep(groups, count, error) : groups_wake(groups, count, error));
    pthread_mutex_unlock(&mutex);
    free(blocks);
    free(groups);
    return is_done;
}

/* --- content ---------------------------------------------------------------------------------- */

static void host_end(host_t *host) {
    backup_drop(&host->backup);
    free(host);
}

void cumem_drop(void *memory) {
    host_t *found = NULL;
    pthread_mutex_lock(&mutex);
    for (host_t **at = &hosts_made; *at; at = &(*at)->next) {
        if ((*at)->backup.memory == memory) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
    if (found) {
        host_end(found);
    }
}

/* One keep for each address; NULL and an error if one is not known. */
static keep_t *keeps_locked(void *const *ptrs, size_t count, failure_t *error) {
    keep_t *keeps = calloc(count + 1, sizeof(*keeps));
    block_t **blocks = calloc(count + 1, sizeof(block_t *));
    bool is_right = keeps && blocks && find_all_locked(ptrs, count, blocks, error);
    for (size_t i = 0; is_right && i < count; i++) {
        keeps[i].block = blocks[i];
    }
    free(blocks);
    if (!is_right) {
        free(keeps);
        return NULL;
    }
    return keeps;
}

static bool hosts_create(keep_t *keeps, host_t **made, size_t count) {
    for (size_t i = 0; i < count; i++) {
        made[i] = calloc(1, sizeof(**made));
        if (!made[i]) {
            return false;
        }
        made[i]->backup.kind = BACKUP_PINNED;
        keeps[i].backup = &made[i]->backup;
    }
    return true;
}

static void hosts_publish_locked(host_t **made, size_t count, void **memory) {
    for (size_t i = 0; i < count; i++) {
        made[i]->next = hosts_made;
        hosts_made = made[i];
        memory[i] = made[i]->backup.memory;
    }
}

bool cumem_save(void *const *ptrs, size_t count, void **memory, failure_t *error) {
    const backup_options_t options = {NULL, 0};
    fail(error, "no memory for a list of %zu allocations", count);
    host_t **made = calloc(count + 1, sizeof(host_t *));
    pthread_mutex_lock(&mutex);
    keep_t *keeps = made ? keeps_locked(ptrs, count, error) : NULL;
    bool is_done =
        keeps && hosts_create(keeps, made, count) && backups_save(keeps, count, &options, error);
    if (is_done) {
        hosts_publish_locked(made, count, memory);
    }
    pthread_mutex_unlock(&mutex);
    for (size_t i = 0; made && !is_done && i < count; i++) {
        if (made[i]) {
            host_end(made[i]);
        }
    }
    free(keeps);
    free(made);
    return is_done;
}

static const host_t *host_find_locked(const void *memory) {
    const host_t *host = hosts_made;
    while (host && host->backup.memory != memory) {
        host = host->next;
    }
    return host;
}

/* Memory of cumem_save is as large as its allocation. */
static bool have_sizes_locked(void *const *hosts, const size_t *sizes, size_t count,
                              failure_t *error) {
    for (size_t i = 0; i < count; i++) {
        const host_t *host = host_find_locked(hosts[i]);
        if (!hosts[i] || (host && sizes[i] > host->backup.size)) {
            error->result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
            return fail(error, "invalid argument: %p has %zu bytes of content, not %zu", hosts[i],
                        host ? host->backup.size : 0, sizes[i]);
        }
    }
    return true;
}

/* Memory of cumem_save is copied as it was pinned. */
static backup_t host_backup_locked(void *memory, size_t size) {
    const host_t *host = host_find_locked(memory);
    return (backup_t){.kind = BACKUP_MMAP,
                      .memory = memory,
                      .size = size,
                      .arena = host ? host->backup.arena : NULL};
}

bool cumem_load(void *const *ptrs, void *const *hosts, const size_t *sizes, size_t count,
                failure_t *error) {
    const backup_options_t options = {NULL, 0};
    fail(error, "no memory for a list of %zu allocations", count);
    backup_t *backups = calloc(count + 1, sizeof(*backups));
    pthread_mutex_lock(&mutex);
    keep_t *keeps = backups && have_sizes_locked(hosts, sizes, count, error)
                        ? keeps_locked(ptrs, count, error)
                        : NULL;
    for (size_t i = 0; keeps && i < count; i++) {
        size_t size = sizes[i] < keeps[i].block->size ? sizes[i] : keeps[i].block->size;
        backups[i] = host_backup_locked(hosts[i], size);
        keeps[i].backup = &backups[i];
    }
    bool is_done = keeps && backups_load(keeps, count, &options, error);
    pthread_mutex_unlock(&mutex);
    free(keeps);
    free(backups);
    return is_done;
}
