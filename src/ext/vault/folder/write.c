/* Drafts of a folder and their commit. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/folder/folder.h"
#include "system/os.h"
#include "system/socket.h"

#define NUMBER_MAX UINT64_C(999999999999999999) /* 18 digits */

/* --- the lock --------------------------------------------------------------------------------- */

static bool is_same_file(int one, int other) {
    uint64_t dev[2], ino[2], size;
    return umf_os_file_id(one, &dev[0], &ino[0], &size) == 0 &&
           umf_os_file_id(other, &dev[1], &ino[1], &size) == 0 && dev[0] == dev[1] &&
           ino[0] == ino[1];
}

/* Is the file of the descriptor still the one at the path? Others may change the folder. */
static bool is_at(const char *path, int fd) {
    int other;
    bool is = umf_os_open(path, O_PATH | O_NOFOLLOW, 0, &other) == 0;
    if (is) {
        is = is_same_file(fd, other);
        umf_os_close(other);
    }
    return is;
}

/* A new folder is to be there after a loss of power, too. */
static int sync_above(umf_vault_handle_t vault) {
    char path[UMF_FOLDER_PATH_SIZE];
    int fd;
    snprintf(path, sizeof(path), "%s/..", vault->link.folder);
    int error = umf_os_open(path, O_RDONLY | O_DIRECTORY, 0, &fd);
    if (error == 0) {
        error = umf_os_sync(fd);
        umf_os_close(fd);
    }
    return error;
}

/* --- begin and end ---------------------------------------------------------------------------- */

static umf_result_t open_lock(umf_vault_handle_t vault, int *fd) {
    char path[UMF_FOLDER_PATH_SIZE];
    int error = umf_os_mkdir(vault->link.folder, 0700);
    if (error == 0) {
        error = sync_above(vault);
    }
    if (error != 0 && error != EEXIST) {
        return umf_folder_failed(vault, error, "the folder cannot be made");
    }
    umf_folder_lock_path(vault, path);
    error = umf_os_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666, fd);
    return error ? umf_folder_failed(vault, error, "the file 'lock' cannot be opened")
                 : UMF_RESULT_SUCCESS;
}

/* The writer of the folder: the kernel ends the lock with the process. */
static umf_result_t lock_by(umf_vault_handle_t vault, int fd, uint64_t timeout_ms) {
    uint64_t start = umf_socket_now();
    for (;;) {
        int error = umf_os_flock(fd);
        uint64_t passed = umf_socket_now() - start;
        if (error == 0) {
            return UMF_RESULT_SUCCESS;
        }
        if (error != EWOULDBLOCK && error != EINTR) {
            return umf_folder_failed(vault, error, "the file 'lock' cannot be locked");
        }
        if (passed >= timeout_ms) {
            return UMF_FAIL(UMF_REASON_BUSY, UMF_RESULT_ERROR_OUT_OF_RESOURCES,
                            "%s: another process writes a draft", vault->link.name);
        }
        umf_folder_nap(passed, timeout_ms - passed);
    }
}

/* The number after all that were used; the file of the lock has the last one. */
static umf_result_t next_number(umf_vault_handle_t vault, int lock, uint64_t *number) {
    umf_folder_scan_t scan = {0};
    umf_folder_lock_t lines;
    umf_result_t result = umf_folder_scan(vault, &scan);
    umf_folder_lock_read(lock, &lines);
    uint64_t last = lines.last;
    *number = (scan.last > last ? scan.last : last) + 1;
    return result == UMF_RESULT_SUCCESS && *number > NUMBER_MAX
               ? umf_folder_failed(vault, EFBIG, "no number is left for another generation")
               : result;
}

static umf_result_t begin_locked(umf_vault_draft_handle_t draft, int lock,
                                 const umf_vault_draft_params_t *params) {
    umf_vault_handle_t vault = draft->vault;
    umf_folder_scan_t scan = {0};
    umf_result_t result = next_number(vault, lock, &draft->number);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_folder_scan(vault, &scan);
    }
    if (result == UMF_RESULT_SUCCESS) {
        char path[UMF_FOLDER_PATH_SIZE];
        umf_folder_path(vault, 0, path);
        umf_os_unlink(path); /* of a writer that was killed */
    }
    return result == UMF_RESULT_SUCCESS && params->replace && scan.last
               ? umf_vault_folder_drop(vault, scan.last, false)
               : result;
}

umf_result_t umf_vault_folder_begin(umf_vault_draft_handle_t draft,
                                    const umf_vault_draft_params_t *params) {
    umf_vault_handle_t vault = draft->vault;
    char path[UMF_FOLDER_PATH_SIZE];
    int fd;
    umf_result_t result = open_lock(vault, &fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    int error = umf_link_keep(&vault->link, fd); /* before the wait: a child of fork closes it */
    if (error != 0) {
        return umf_folder_failed(vault, error, "the lock of the folder cannot be kept");
    }
    umf_folder_lock_path(vault, path);
    result = lock_by(vault, fd, params->timeout_ms);
    if (result == UMF_RESULT_SUCCESS && !is_at(path, fd)) {
        result =
            UMF_FAIL(UMF_REASON_BUSY, UMF_RESULT_ERROR_OUT_OF_RESOURCES,
                     "%s: another process replaces the file 'lock': try again", vault->link.name);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = begin_locked(draft, fd, params);
    }
    if (result != UMF_RESULT_SUCCESS) {
        if (umf_kept_fd_is_open(&vault->link.socket)) {
            umf_os_unlock_file(fd); /* a child of fork may have it, too */
        }
        umf_link_forget(&vault->link); /* the file `draft` may be another writer's */
    }
    return result;
}

void umf_vault_folder_end(umf_vault_handle_t vault) {
    if (umf_kept_fd_is_open(&vault->link.socket)) {
        char path[UMF_FOLDER_PATH_SIZE], lock[UMF_FOLDER_PATH_SIZE];
        umf_folder_path(vault, 0, path);
        umf_folder_lock_path(vault, lock);
        if (is_at(lock, vault->link.socket.number)) {
            umf_os_unlink(path); /* after a commit there is none */
        }
        umf_os_unlock_file(vault->link.socket.number); /* a child of fork may have it, too */
    }
    umf_link_forget(&vault->link);
}

/* --- the file --------------------------------------------------------------------------------- */

/* A file that is being written. */
typedef struct write_t {
    umf_vault_handle_t vault;
    umf_vault_content_t *content;
    uint64_t *places; /* of the slabs */
    uint64_t identity_size, table, size;
    const void *identity;
    int fd;
} write_t;

static umf_result_t plan(umf_vault_draft_handle_t draft, write_t *write) {
    umf_vault_content_t *content = write->content;
    for (size_t i = 0; i < draft->slabs.count; i++) {
        const umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (slab->is_used) {
            bool is_zero = slab->role == UMF_VAULT_CLASS_ZERO;
            content->table_slabs[slab->index] =
                (umf_vault_slab_t){.serial = is_zero ? 0 : slab->index + 1,
                                   .size = slab->size,
                                   .role = slab->role,
                                   .kind = UMF_VAULT_KIND_HOST};
        }
    }
    write->table =
        umf_table_size(content->entries, content->count, content->slabs, draft->identity_size) +
        content->count * sizeof(uint64_t);
    uint64_t at = sizeof(umf_folder_head_t) + write->table;
    bool fits = write->table <= UMF_FOLDER_TABLE_MAX;
    for (uint32_t i = 0; i < content->slabs && fits; i++) {
        fits = umf_folder_next(&at, &content->table_slabs[i], &write->places[i]);
    }
    write->size = umf_folder_round(at);
    return fits ? UMF_RESULT_SUCCESS
                : umf_folder_failed(draft->vault, EFBIG, "the generation is too large for a file");
}

static umf_result_t limit_check(const write_t *write) {
    uint64_t bytes, limit = write->vault->link.limit;
    umf_result_t result = limit ? umf_folder_bytes(write->vault, &bytes) : UMF_RESULT_SUCCESS;
    if (result == UMF_RESULT_SUCCESS && limit && (bytes > limit || write->size > limit - bytes)) {
        return UMF_FAIL(UMF_REASON_LIMIT, UMF_RESULT_ERROR_OUT_OF_RESOURCES,
                        "%s: the limit of the vault is %llu bytes, it has %llu, and the generation "
                        "needs %llu: drop generations",
                        write->vault->link.name, (unsigned long long)limit,
                        (unsigned long long)bytes, (unsigned long long)write->size);
    }
    return result;
}

static int write_table(const write_t *write) {
    const umf_vault_content_t *content = write->content;
    void *table = NULL;
    int error = umf_os_map(&table, (size_t)write->table, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (error != 0) {
        return error;
    }
    umf_table_write(table, (size_t)write->table, content->entries, content->count,
                    content->table_slabs, content->slabs, write->identity, write->identity_size);
    error = umf_os_write_at(write->fd, table, (size_t)write->table, sizeof(umf_folder_head_t));
    umf_os_unmap(table, (size_t)write->table);
    return error;
}

/* Entries, not slabs: memory beside them is not the content's. */
static int write_entries(const write_t *write) {
    const umf_vault_content_t *content = write->content;
    for (uint32_t i = 0; i < content->count; i++) {
        const umf_table_source_t *entry = &content->entries[i];
        if (entry->flags & UMF_VAULT_ZERO) {
            continue;
        }
        int error =
            umf_os_write_at(write->fd, content->bases[entry->slab] + entry->offset,
                            (size_t)entry->size, write->places[entry->slab] + entry->offset);
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

static int write_all(const write_t *write) {
    umf_folder_head_t head = {
        .magic = UMF_FOLDER_MAGIC, .size = write->size, .table = write->table};
    int error = umf_os_write_at(write->fd, "", 1, write->size - 1);
    error = error ? error : write_entries(write);
    error = error ? error : write_table(write);
    error = error ? error : umf_os_write_at(write->fd, &head, sizeof(head), 0);
    return error ? error : umf_os_sync(write->fd);
}

/* --- commit ----------------------------------------------------------------------------------- */

static bool is_in_file(const umf_vault_draft_slab_t *slab) {
    return slab->is_used && slab->pool && slab->role != UMF_VAULT_CLASS_ZERO;
}

/* Takes the memory from the pools: it is read-only from here on. */
static umf_result_t take_memory(umf_vault_draft_handle_t draft) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < draft->slabs.count && result == UMF_RESULT_SUCCESS; i++) {
        umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (!is_in_file(slab) || slab->is_shown) {
            continue;
        }
        result = umf_vault_slab_unmap(slab);
        if (result == UMF_RESULT_SUCCESS) {
            result = umf_vault_slab_map(slab, true);
        }
    }
    return result;
}

umf_result_t umf_folder_file_publish(umf_vault_draft_handle_t draft, int file) {
    umf_vault_handle_t vault = draft->vault;
    char from[UMF_FOLDER_PATH_SIZE], to[UMF_FOLDER_PATH_SIZE], text[48];
    umf_folder_lock_t lines;
    int lock = vault->link.socket.number, folder;
    umf_result_t result = next_number(vault, lock, &draft->number);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_folder_path(vault, 0, from);
    umf_folder_lock_path(vault, to);
    if (!is_at(to, lock) || !is_at(from, file)) {
        return UMF_FAIL(
            UMF_REASON_STALE, UMF_RESULT_ERROR_INVALID_ARGUMENT,
            "%s: another process has removed or replaced the file 'lock' or 'draft' while "
            "the draft was written: begin a new one",
            vault->link.name);
    }
    umf_folder_path(vault, draft->number, to);
    umf_folder_lock_read(lock, &lines);
    int error = lines.service ? 0 : umf_os_random(&lines.service, sizeof(lines.service));
    int length = snprintf(text, sizeof(text), "%llu\n%016llx\n", (unsigned long long)draft->number,
                          (unsigned long long)lines.service);
    error = error ? error : umf_os_write_at(lock, text, (size_t)length, 0);
    error = error ? error : umf_os_sync(lock);
    if (error == 0) {
        error = umf_os_open(vault->link.folder, O_RDONLY | O_DIRECTORY, 0, &folder);
    }
    if (error == 0) {
        error = umf_os_rename(from, to);
        int sync = error ? 0 : umf_os_sync(folder);
        umf_os_close(folder);
        if (sync != 0) {
            umf_os_unlink(to);
            error = sync;
        }
    }
    return error ? umf_folder_failed(vault, error, "the generation cannot get its name")
                 : UMF_RESULT_SUCCESS;
}

int umf_folder_file_open(umf_vault_draft_handle_t draft, int made, int *fd) {
    char path[UMF_FOLDER_PATH_SIZE];
    umf_folder_path(draft->vault, draft->number, path);
    int error = umf_os_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, fd);
    if (error == 0 && !is_same_file(*fd, made)) {
        umf_os_close(*fd);
        error = ESTALE;
    }
    return error;
}

/* The writer's memory is the file from here on, where that works: it needs no memory of its own. */
static void show_file(umf_vault_draft_handle_t draft, const write_t *write) {
    int fd;
    bool is_shown = umf_folder_file_open(draft, write->fd, &fd) == 0;
    if (!is_shown) {
        return;
    }
    for (size_t i = 0; i < draft->slabs.count && is_shown; i++) {
        const umf_vault_draft_slab_t *slab = umf_vault_draft_slab(draft, i);
        if (is_in_file(slab)) {
            void *base = slab->base;
            is_shown = umf_os_map(&base, slab->size, PROT_READ, MAP_SHARED | MAP_FIXED, fd,
                                  (size_t)write->places[slab->index]) == 0;
        }
    }
    umf_os_close(fd);
}

umf_result_t umf_folder_file_make(umf_vault_draft_handle_t draft, int *fd) {
    char path[UMF_FOLDER_PATH_SIZE];
    umf_folder_path(draft->vault, 0, path);
    int error = umf_os_unlink(path); /* of a writer that was killed */
    if (error == 0 || error == ENOENT) {
        error = umf_os_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0444, fd);
    }
    return error ? umf_folder_failed(draft->vault, error, "the file 'draft' cannot be made")
                 : UMF_RESULT_SUCCESS;
}

static umf_result_t commit_file(umf_vault_draft_handle_t draft, write_t *write) {
    char path[UMF_FOLDER_PATH_SIZE];
    umf_folder_path(draft->vault, 0, path);
    umf_result_t result = umf_folder_file_make(draft, &write->fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    int error = write_all(write);
    result =
        error ? umf_folder_failed(draft->vault, error, "writing a generation") : take_memory(draft);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_folder_file_publish(draft, write->fd);
    }
    if (result == UMF_RESULT_SUCCESS) {
        show_file(draft, write);
    } else if (is_at(path, write->fd)) {
        umf_os_unlink(path);
    }
    umf_os_close(write->fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_folder_drop_before(draft->vault, draft->number, (uint64_t)draft->vault->link.keep + 1);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vault_folder_commit(umf_vault_draft_handle_t draft, umf_vault_content_t *content) {
    if (umf_kept_fd_check(&draft->vault->link.socket, "the lock of a vault's folder") != 0) {
        umf_last_reason_set(UMF_REASON_STALE);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t room = (content->slabs + 1) * sizeof(uint64_t);
    write_t write = {.vault = draft->vault,
                     .content = content,
                     .places = umf_meta_alloc(room),
                     .identity = draft->identity,
                     .identity_size = draft->identity_size};
    if (!write.places) {
        return umf_folder_failed(draft->vault, ENOMEM, "remembering slabs");
    }
    umf_result_t result = umf_vault_content_sum(draft, content);
    if (result == UMF_RESULT_SUCCESS) {
        result = plan(draft, &write);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = limit_check(&write);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = commit_file(draft, &write);
    }
    umf_meta_free(write.places, room);
    return result;
}
