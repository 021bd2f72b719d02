/* Vaults in a folder: names, drops, waits. write.c has drafts, read.c views. */
#include "ext/vault/folder/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "base/last_error.h"
#include "base/log.h"
#include "system/os.h"
#include "system/socket.h"

#define SUFFIX ".vault"
#define DIGITS_MAX 18
#define SMALL ((uint64_t)64 << 10) /* the largest page of a system */
#define LARGE ((uint64_t)2 << 20)
#define LOOK_MS 10 /* how often a wait reads the folder, at first and at last */
#define LOOK_LAST_MS 200

/* --- files ------------------------------------------------------------------------------------ */

void umf_folder_path(umf_vault_handle_t vault, uint64_t generation,
                     char path[UMF_FOLDER_PATH_SIZE]) {
    if (generation) {
        snprintf(path, UMF_FOLDER_PATH_SIZE, "%s/%llu" SUFFIX, vault->link.folder,
                 (unsigned long long)generation);
    } else {
        snprintf(path, UMF_FOLDER_PATH_SIZE, "%s/draft", vault->link.folder);
    }
}

umf_result_t umf_folder_failed(umf_vault_handle_t vault, int error, const char *what) {
    errno = error;
    UMF_LOG_PERROR("%s: %s", vault->link.name, what);
    switch (error) {
    case ENOMEM:
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
        umf_last_reason_set(UMF_REASON_EXHAUSTED);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    case EACCES:
    case EPERM:
    case EROFS:
        umf_last_reason_set(UMF_REASON_DENIED);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    default:
        umf_last_reason_set(error == ENOENT ? UMF_REASON_ABSENT : UMF_REASON_NONE);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
}

uint64_t umf_folder_round(uint64_t size) {
    return (size + SMALL - 1) & ~(SMALL - 1);
}

bool umf_folder_next(uint64_t *at, const umf_vault_slab_t *slab, uint64_t *place) {
    if (slab->role == UMF_VAULT_CLASS_ZERO) {
        *place = 0;
        return true;
    }
    uint64_t step = slab->size >= LARGE ? LARGE : SMALL;
    *place = (*at + step - 1) & ~(step - 1);
    *at = *place + slab->size;
    return slab->size <= UINT64_C(1) << 56 && *at <= UINT64_C(1) << 60;
}

/* The number of a file's name: digits without a zero in front, and the suffix. 0: another file. */
static uint64_t number_of(const char *name) {
    uint64_t number = 0;
    size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > DIGITS_MAX || name[0] == '0' || strcmp(name + digits, SUFFIX)) {
        return 0;
    }
    for (size_t i = 0; i < digits; i++) {
        number = number * 10 + (uint64_t)(name[i] - '0');
    }
    return number;
}

static bool scan_one(const char *name, void *arg) {
    umf_folder_scan_t *scan = arg;
    uint64_t number = number_of(name);
    scan->count += number != 0;
    scan->last = number > scan->last ? number : scan->last;
    if (number > scan->after && (!scan->first || number < scan->first)) {
        scan->first = number;
    }
    return true;
}

umf_result_t umf_folder_scan(umf_vault_handle_t vault, umf_folder_scan_t *scan) {
    *scan = (umf_folder_scan_t){.after = scan->after};
    int error = umf_os_each_entry(vault->link.folder, scan_one, scan);
    return error == 0 || error == ENOENT
               ? UMF_RESULT_SUCCESS
               : umf_folder_failed(vault, error, "the folder cannot be read");
}

typedef struct bytes_t {
    umf_vault_handle_t vault;
    uint64_t bytes;
} bytes_t;

static bool add_bytes(const char *name, void *arg) {
    bytes_t *sum = arg;
    char path[UMF_FOLDER_PATH_SIZE];
    uint64_t number = number_of(name), dev, ino, size;
    int fd;
    if (number) {
        umf_folder_path(sum->vault, number, path);
        if (umf_os_open(path, O_PATH | O_NOFOLLOW, 0, &fd) == 0) {
            sum->bytes += umf_os_file_id(fd, &dev, &ino, &size) == 0 ? size : 0;
            umf_os_close(fd);
        }
    }
    return true;
}

umf_result_t umf_folder_bytes(umf_vault_handle_t vault, uint64_t *bytes) {
    bytes_t sum = {.vault = vault};
    int error = umf_os_each_entry(vault->link.folder, add_bytes, &sum);
    *bytes = sum.bytes;
    return error == 0 || error == ENOENT
               ? UMF_RESULT_SUCCESS
               : umf_folder_failed(vault, error, "the folder cannot be read");
}

void umf_folder_lock_path(umf_vault_handle_t vault, char path[UMF_FOLDER_PATH_SIZE]) {
    snprintf(path, UMF_FOLDER_PATH_SIZE, "%s/lock", vault->link.folder);
}

/* The number at a place of a text, which moves behind its digits. */
static uint64_t number_at(const char **at, uint64_t base, unsigned digits_max) {
    static const char digits[] = "0123456789abcdef";
    uint64_t number = 0;
    for (unsigned i = 0; i < digits_max; i++, (*at)++) {
        const char *digit = memchr(digits, **at, base);
        if (!digit) {
            break;
        }
        number = number * base + (uint64_t)(digit - digits);
    }
    return number;
}

void umf_folder_lock_read(int lock, umf_folder_lock_t *lines) {
    char text[40] = "";
    uint64_t dev, ino, size;
    if (umf_os_file_id(lock, &dev, &ino, &size) == 0) {
        umf_os_read_at(lock, text, size < sizeof(text) ? (size_t)size : sizeof(text) - 1, 0);
    }
    const char *at = text;
    *lines = (umf_folder_lock_t){.last = number_at(&at, 10, DIGITS_MAX)};
    if (*at++ == '\n') {
        lines->service = number_at(&at, 16, 16);
    }
}

/* 0: none yet. */
static uint64_t service_of(umf_vault_handle_t vault) {
    char path[UMF_FOLDER_PATH_SIZE];
    umf_folder_lock_t lines = {0};
    int lock;
    umf_folder_lock_path(vault, path);
    if (umf_os_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, &lock) == 0) {
        umf_folder_lock_read(lock, &lines);
        umf_os_close(lock);
    }
    return lines.service;
}

void umf_folder_nap(uint64_t passed_ms, uint64_t most_ms) {
    uint64_t ms = LOOK_MS + passed_ms / 16;
    ms = ms < LOOK_LAST_MS ? ms : LOOK_LAST_MS;
    struct timespec time = {.tv_nsec = (long)(most_ms < ms ? most_ms : ms) * 1000000};
    nanosleep(&time, NULL);
}

/* --- calls ------------------------------------------------------------------------------------ */

umf_result_t umf_vault_folder_open(umf_link_t *link) {
    const char *path = link->name + strlen(UMF_FOLDER_PREFIX);
    char here[UMF_VAULT_PLACE_SIZE] = "";
    int error = *path == '/' || *path == 0 ? 0 : umf_os_getcwd(here, sizeof(here));
    int length =
        snprintf(link->folder, sizeof(link->folder), "%s%s%s", here, *here ? "/" : "", path);
    if (*path == 0 || error != 0 || length >= (int)sizeof(link->folder)) {
        UMF_LOG_ERROR("%s: the path of the folder, with the current one if it is relative, has 1 "
                      "to %d bytes",
                      link->name, UMF_VAULT_PLACE_SIZE - 1);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    int fd;
    error = umf_os_open(link->folder, O_RDONLY | O_DIRECTORY, 0, &fd);
    if (error == 0) {
        umf_os_close(fd);
    } else if (error != ENOENT) { /* a draft makes it */
        errno = error;
        UMF_LOG_PERROR("%s: no folder that can be read", link->name);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_link_open_plain(link);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vault_folder_stat(umf_vault_handle_t vault, umf_vault_stat_t *stat) {
    umf_folder_scan_t scan = {0};
    uint64_t bytes;
    umf_result_t result = umf_folder_scan(vault, &scan);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_folder_bytes(vault, &bytes);
    }
    if (result == UMF_RESULT_SUCCESS) {
        *stat = (umf_vault_stat_t){.struct_size = stat->struct_size,
                                   .current = scan.last,
                                   .generations = scan.count,
                                   .bytes = bytes,
                                   .limit = vault->link.limit,
                                   .event = scan.last,
                                   .service = service_of(vault)};
    }
    return result;
}

umf_result_t umf_vault_folder_wait(umf_vault_handle_t vault, uint64_t after, uint64_t timeout_ms,
                                   umf_vault_event_t *event) {
    uint64_t start = umf_socket_now();
    for (;;) {
        umf_folder_scan_t scan = {.after = after};
        umf_result_t result = umf_folder_scan(vault, &scan);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        if (scan.first) {
            event->number = event->generation = scan.first;
            event->type = UMF_VAULT_EVENT_COMMITTED;
            return UMF_RESULT_SUCCESS;
        }
        uint64_t passed = umf_socket_now() - start;
        if (passed >= timeout_ms) {
            umf_last_error_set("vault %s has no event in %llu ms", vault->link.name,
                               (unsigned long long)timeout_ms);
            umf_last_reason_set(UMF_REASON_TIMEOUT);
            return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
        }
        umf_folder_nap(passed, timeout_ms - passed);
    }
}

static int unlink_one(umf_vault_handle_t vault, uint64_t generation) {
    char path[UMF_FOLDER_PATH_SIZE];
    umf_folder_path(vault, generation, path);
    return umf_os_unlink(path);
}

static umf_result_t drop_failed(umf_vault_handle_t vault, int error) {
    if (error == ENOENT) {
        return UMF_FAIL(UMF_REASON_ABSENT, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                        "%s: there is no such generation", vault->link.name);
    }
    return umf_folder_failed(vault, error, "a generation cannot be removed");
}

umf_result_t umf_folder_drop_before(umf_vault_handle_t vault, uint64_t generation, uint64_t keep) {
    for (;;) {
        umf_folder_scan_t scan = {0};
        umf_result_t result = umf_folder_scan(vault, &scan);
        if (result != UMF_RESULT_SUCCESS || scan.count <= keep || scan.first >= generation) {
            return result;
        }
        int error = unlink_one(vault, scan.first);
        if (error != 0 && error != ENOENT) { /* another process may have dropped it */
            return drop_failed(vault, error);
        }
    }
}

umf_result_t umf_vault_folder_drop(umf_vault_handle_t vault, uint64_t generation, bool draft) {
    if (draft) {
        return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                        "%s: a draft in a folder ends with its process", vault->link.name);
    }
    umf_folder_scan_t scan = {0};
    umf_result_t result = generation ? UMF_RESULT_SUCCESS : umf_folder_scan(vault, &scan);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!generation && scan.count) {
        return umf_folder_drop_before(vault, scan.last + 1, 0);
    }
    int error = generation ? unlink_one(vault, generation) : ENOENT;
    return error ? drop_failed(vault, error) : UMF_RESULT_SUCCESS;
}
