#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <umf/reason.h>
#include <umf/vault.h>

#include "ext/fetch/wire.h"
#include "generation.h"
#include "system/checksum.h"

#define LOOK_MS 250 /* between two looks at a vault, if there are several */
/* A generation that could not be served is tried again after this time, which doubles each time: it
 * may have been a limit of the process, or the service. */
#define AGAIN_MS 1000u
#define AGAIN_MAX_MS 300000u

typedef struct served_t {
    const char *name;
    umf_vault_handle_t vault;
    umf_fetch_directory_t *directory;
    umf_remote_export_handle_t published;
    generation_t *generation; /* NULL: none */
    uint64_t refused;         /* the number of one that could not be served */
    uint64_t again, pause;    /* ms: when it is tried again, and how long after the last time */
    uint64_t event;           /* the last one that was read */
    uint64_t service;         /* that had it; 0: none was seen */
    bool is_dropped;          /* another one may have its number */
} served_t;

void complain(bool has_reason, const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("umf-remote: ", stderr);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "%s%s\n", has_reason && *umfLastErrorText() ? ": " : "",
            has_reason ? umfLastErrorText() : "");
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* --- the directory ---------------------------------------------------------------------------- */

/* A peer may read it meanwhile, and sees a wrong sum then. */
__attribute__((no_sanitize("thread"), noinline)) static void
store(volatile uint64_t *to, const umf_fetch_directory_t *from) {
    const uint64_t *words = (const uint64_t *)from;
    for (size_t i = 0; i < sizeof(*from) / sizeof(*words); i++) {
        to[i] = words[i];
    }
}

static void directory_write(served_t *served) {
    umf_fetch_directory_t made = {.magic = UMF_FETCH_DIRECTORY};
    size_t size = sizeof(made.handle);
    if (served->generation) {
        umf_remote_export_handle_t table = generation_table(served->generation, &made.table_size);
        made.generation = generation_number(served->generation);
        umfRemoteGetHandle(table, made.handle, &size);
        made.handle_size = size;
    }
    made.check = umf_sum_of_fields(&made, sizeof(made), &made.check);
    store((uint64_t *)served->directory, &made);
}

static void refuse(served_t *served, uint64_t generation) {
    uint64_t pause = served->refused == generation ? served->pause * 2 : AGAIN_MS;
    served->pause = pause < AGAIN_MAX_MS ? pause : AGAIN_MAX_MS;
    served->refused = generation;
    served->again = now_ms() + served->pause;
}

/* Serves what is current now. The former generation ends after the directory names it no more. */
static void generation_change(umf_remote_handle_t remote, served_t *served, uint64_t current) {
    generation_t *former = served->generation, *made = NULL;
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    umf_vault_view_handle_t view;
    if (current) {
        params.generation = current;
        if (umfVaultAttach(served->vault, &params, &view) != UMF_RESULT_SUCCESS) {
            complain(true, "vault %s cannot be served", served->name);
        } else {
            made = generation_publish(remote, served->name, view);
        }
        if (!made) {
            refuse(served, current);
            return;
        }
    }
    served->generation = made;
    served->is_dropped = false;
    directory_write(served);
    generation_end(former);
}

static bool begin(umf_remote_handle_t remote, served_t *served) {
    if (umfVaultOpen(served->name, NULL, &served->vault) != UMF_RESULT_SUCCESS) {
        served->vault = NULL;
        complain(true, "vault %s cannot be opened", served->name);
        return false;
    }
    served->directory = block_new(sizeof(*served->directory));
    if (served->directory) {
        directory_write(served);
    }
    if (!served->directory ||
        umfRemotePublish(remote, served->directory, sizeof(*served->directory), UMF_REMOTE_GET,
                         &served->published) != UMF_RESULT_SUCCESS) {
        served->published = NULL;
        complain(true, "vault %s cannot be served", served->name);
        return false;
    }
    return true;
}

static void end(served_t *served) {
    if (served->published) {
        umfRemoteWithdraw(served->published);
    }
    generation_end(served->generation);
    if (served->directory) {
        umfFree(served->directory);
    }
    if (served->vault) {
        umfVaultClose(served->vault);
    }
}

/* --- addresses -------------------------------------------------------------------------------- */

static void print_address(FILE *to, const served_t *served) {
    unsigned char bytes[UMF_REMOTE_HANDLE_MAX];
    size_t size = sizeof(bytes);
    umfRemoteGetHandle(served->published, bytes, &size);
    fprintf(to, "%s %s", served->name, UMF_FETCH_PREFIX);
    for (size_t i = 0; i < size; i++) {
        fprintf(to, "%02x", bytes[i]);
    }
    fputc('\n', to);
}

/* An address is enough to read the vault: only its user can read the file, which appears whole. */
static bool write_addresses(const char *path, const served_t *all, unsigned count,
                            struct stat *written) {
    char *made = NULL;
    FILE *file = NULL;
    int fd = -1;
    bool is_written = false;
    if (asprintf(&made, "%s.XXXXXX", path) != -1) {
        fd = mkostemp(made, O_CLOEXEC); /* mode 0600 */
        file = fd != -1 ? fdopen(fd, "w") : NULL;
    }
    for (unsigned i = 0; file && i < count; i++) {
        print_address(file, &all[i]);
    }
    if (file) {
        bool is_complete = fflush(file) == 0 && !ferror(file) && fstat(fd, written) == 0;
        is_written = fclose(file) == 0 && is_complete && rename(made, path) == 0;
    } else if (fd != -1) {
        close(fd);
    }
    if (!is_written) {
        complain(false, "%s cannot be written: %s", path, strerror(errno));
        if (fd != -1) {
            unlink(made);
        }
    }
    free(made);
    return is_written;
}

/* Another server may have written its own file there meanwhile. */
static void remove_addresses(const char *path, const struct stat *written) {
    struct stat now;
    if (lstat(path, &now) == 0 && now.st_dev == written->st_dev && now.st_ino == written->st_ino) {
        unlink(path);
    }
}

static bool give_addresses(const char *path, const served_t *all, unsigned count,
                           struct stat *written) {
    if (path) {
        return write_addresses(path, all, count, written);
    }
    for (unsigned i = 0; i < count; i++) {
        print_address(stdout, &all[i]);
    }
    bool is_written = fflush(stdout) == 0 && !ferror(stdout);
    if (!is_written) {
        complain(false, "the addresses cannot be printed: %s", strerror(errno));
    }
    return is_written;
}

/* --- the whole -------------------------------------------------------------------------------- */

/* A vault that is dropped and made again counts from 1: the current generation may have the number
 * of the one that is served. */
static void events_read(served_t *served) {
    uint64_t number = generation_number(served->generation);
    umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    while (umfVaultWait(served->vault, served->event, 0, &event) == UMF_RESULT_SUCCESS) {
        served->event = event.number;
        if (event.type == UMF_VAULT_EVENT_DROPPED) {
            served->is_dropped = served->is_dropped || event.generation == number;
            served->refused = event.generation == served->refused ? 0 : served->refused;
        }
    }
}

static void look(umf_remote_handle_t remote, served_t *served) {
    umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
    events_read(served);
    if (umfVaultStat(served->vault, &stat) != UMF_RESULT_SUCCESS) {
        return; /* the service is not there: what is mapped here is served on */
    }
    bool is_another_service = served->service && served->service != stat.service;
    served->service = stat.service;
    if (is_another_service) { /* or folder: it counts anew */
        served->event = stat.event;
        served->refused = 0;
        served->is_dropped = true;
    }
    bool is_another = served->is_dropped || stat.current != generation_number(served->generation);
    bool is_refused = stat.current == served->refused && now_ms() < served->again;
    if (is_another && (stat.current == 0 || !is_refused)) {
        generation_change(remote, served, stat.current);
    }
}

static void wait_for_event(served_t *served) {
    umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    umf_result_t result = umfVaultWait(served->vault, served->event, LOOK_MS, &event);
    if (result != UMF_RESULT_SUCCESS && umfLastReason() != UMF_REASON_TIMEOUT) {
        usleep(LOOK_MS * 1000); /* the service is not there */
    }
}

int serve(umf_remote_handle_t remote, char **names, unsigned count, const char *path,
          const volatile int *ends) {
    served_t *all = calloc(count, sizeof(*all));
    bool is_good = all != NULL;
    for (unsigned i = 0; i < count && is_good; i++) {
        all[i].name = names[i];
        is_good = begin(remote, &all[i]);
        if (is_good) {
            look(remote, &all[i]);
        }
    }
    struct stat written = {0};
    is_good = is_good && give_addresses(path, all, count, &written);
    for (unsigned turn = 0; is_good && !*ends; turn = (turn + 1) % count) {
        wait_for_event(&all[turn]);
        look(remote, &all[turn]);
    }
    for (unsigned i = 0; all && i < count; i++) {
        end(&all[i]);
    }
    free(all);
    if (is_good && path) {
        remove_addresses(path, &written);
    }
    return is_good ? 0 : 1;
}
