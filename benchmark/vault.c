/*
 * umf-bench-vault UMFD [UMF-REMOTE]: vaults over a service of their own, each figure beside its
 * anchor and its bar. Slabs are holes of memory files, so the sizes need no memory. The least of
 * some rounds counts.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/vault.h>

#include "vault.h"

#define ROUNDS 7
#define KILLS 20
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
/* A piece for each allocation. */
#define POOL "proxy over linux_vmm:piece_size=4K"

/* --- the service ------------------------------------------------------------------------------ */

static pid_t keeper;

static bool service_start(const char *program, const char *place) {
    char folder[128];
    snprintf(folder, sizeof(folder), "--dir=%s", place);
    keeper = fork();
    if (keeper == 0) {
        execl(program, "umfd", folder, (char *)NULL);
        perror(program);
        _exit(1);
    }
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    params.start = 0;
    umf_vault_handle_t vault;
    for (int i = 0; i < 500; i++) {
        if (umfVaultOpen("start", &params, &vault) == UMF_RESULT_SUCCESS) {
            return umfVaultClose(vault) == UMF_RESULT_SUCCESS;
        }
        nap_ms(10);
    }
    return false;
}

static pid_t parent_of(const char *process) {
    char path[300], line[512];
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%s/stat", process);
    FILE *file = fopen(path, "re");
    char *end = file && fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
    if (!end || sscanf(end, ") %*c %d", &parent) != 1) {
        parent = 0;
    }
    if (file) {
        fclose(file);
    }
    return parent;
}

static pid_t daemon_of_keeper(void) {
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    pid_t found = 0;
    while (proc && !found && (entry = readdir(proc))) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            parent_of(entry->d_name) == keeper) {
            found = (pid_t)strtol(entry->d_name, NULL, 10);
        }
    }
    if (proc) {
        closedir(proc);
    }
    return found;
}

static double resident_kib(pid_t process) {
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", process);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file) && sscanf(line, "RssAnon: %ld", &kib) != 1) {
    }
    if (file) {
        fclose(file);
    }
    return (double)kib;
}

/* --- writing ---------------------------------------------------------------------------------- */

static bool put_slabs(umf_vault_draft_handle_t draft, size_t count, size_t size) {
    umf_memory_pool_handle_t pool;
    bool is_done = umfVaultDraftPool(draft, POOL, &pool) == UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < count && is_done; i++) {
        char key[32];
        snprintf(key, sizeof(key), "slab.%05zu", i);
        void *memory = umfPoolMalloc(pool, size);
        is_done = memory && umfVaultPut(draft, key, memory, size, NULL, 0, 0) == UMF_RESULT_SUCCESS;
    }
    return is_done;
}

/* `*commit_ms`: from the last byte on. */
static bool write_slabs(const char *name, size_t count, size_t size, double *commit_ms) {
    umf_vault_handle_t vault;
    umf_vault_draft_handle_t draft;
    if (umfVaultOpen(name, NULL, &vault) != UMF_RESULT_SUCCESS) {
        return false;
    }
    bool is_done =
        umfVaultBegin(vault, NULL, &draft) == UMF_RESULT_SUCCESS && put_slabs(draft, count, size);
    double start = now_ms(CLOCK_MONOTONIC);
    is_done = is_done && umfVaultCommit(draft, NULL, NULL) == UMF_RESULT_SUCCESS;
    *commit_ms = now_ms(CLOCK_MONOTONIC) - start;
    umfVaultClose(vault);
    return is_done;
}

static bool write_names(const char *name, size_t count) {
    umf_vault_handle_t vault;
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    if (umfVaultOpen(name, NULL, &vault) != UMF_RESULT_SUCCESS) {
        return false;
    }
    bool is_done =
        umfVaultBegin(vault, NULL, &draft) == UMF_RESULT_SUCCESS &&
        umfVaultDraftPool(draft, "coalescing over linux_vmm", &pool) == UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < count && is_done; i++) {
        char key[32];
        snprintf(key, sizeof(key), "tensor.%zu.weight", i);
        void *memory = umfPoolMalloc(pool, 4096);
        is_done = memory && umfVaultPut(draft, key, memory, 4096, NULL, 0, 0) == UMF_RESULT_SUCCESS;
    }
    is_done = is_done && umfVaultCommit(draft, NULL, NULL) == UMF_RESULT_SUCCESS;
    umfVaultClose(vault);
    return is_done;
}

/* --- attaching -------------------------------------------------------------------------------- */

/* Milliseconds of an attach, and of an attach and `finds` searches; negative: failed. */
static double attach_ms(umf_vault_handle_t vault, clockid_t clock, size_t finds) {
    umf_vault_view_handle_t view;
    double start = now_ms(clock);
    if (umfVaultAttach(vault, NULL, &view) != UMF_RESULT_SUCCESS) {
        return -1;
    }
    for (size_t i = 0; i < finds; i++) {
        char key[32];
        umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
        snprintf(key, sizeof(key), "tensor.%zu.weight", i);
        if (umfVaultFind(view, key, &entry) != UMF_RESULT_SUCCESS) {
            return -1;
        }
    }
    double passed = now_ms(clock) - start;
    umfVaultDetach(view);
    return passed;
}

static double best_attach(const char *name, clockid_t clock, size_t finds) {
    umf_vault_handle_t vault;
    double best = 1e9;
    if (umfVaultOpen(name, NULL, &vault) != UMF_RESULT_SUCCESS) {
        return -1;
    }
    for (int i = 0; i < ROUNDS && best >= 0; i++) {
        best = least(best, attach_ms(vault, clock, finds));
    }
    umfVaultClose(vault);
    return best;
}

/* Opens and maps files, as a program that has their paths. */
static double best_mmap(const char *place, size_t count, size_t size) {
    char path[128];
    void **mapped = calloc(count, sizeof(*mapped));
    double best = 1e9;
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/file.%zu", place, i);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (!mapped || fd == -1 || ftruncate(fd, (off_t)size) != 0) {
            perror(path);
            exit(1);
        }
        close(fd);
    }
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ms(CLOCK_MONOTONIC);
        for (size_t i = 0; i < count; i++) {
            struct stat about;
            snprintf(path, sizeof(path), "%s/file.%zu", place, i);
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            fstat(fd, &about);
            mapped[i] = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
            close(fd);
        }
        best = least(best, now_ms(CLOCK_MONOTONIC) - start);
        for (size_t i = 0; i < count; i++) {
            munmap(mapped[i], size);
        }
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/file.%zu", place, i);
        unlink(path);
    }
    free(mapped);
    return best;
}

/* Calls of the system that another process makes for an attach, counted from outside. Negative: not
 * possible, as where no process may trace another. */
static double attach_calls(const char *name) {
    int status, stops = 0;
    pid_t child = fork();
    if (child == 0) {
        umf_vault_handle_t vault;
        pid_t self = getpid();
        if (umfVaultOpen(name, NULL, &vault) != UMF_RESULT_SUCCESS || attach_ms(vault, 0, 0) < 0 ||
            ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            _exit(1);
        }
        umf_vault_view_handle_t view;
        kill(self, SIGSTOP);
        if (umfVaultAttach(vault, NULL, &view) != UMF_RESULT_SUCCESS) {
            _exit(1);
        }
        kill(self, SIGSTOP);
        _exit(0);
    }
    bool is_there = child > 0 && waitpid(child, &status, 0) == child && WIFSTOPPED(status);
    while (is_there && ptrace(PTRACE_SYSCALL, child, NULL, NULL) == 0 &&
           waitpid(child, &status, 0) == child && WIFSTOPPED(status) &&
           WSTOPSIG(status) != SIGSTOP) {
        stops++;
    }
    bool is_counted = is_there && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    return is_counted ? stops / 2 - 1 : -1; /* at begin and end of each; the last one is kill */
}

static void attaches(const char *place) {
    double commit = 0;
    if (!write_slabs("large", 30, 2 * GIB, &commit)) {
        not_measured("60 GiB in 30 slabs");
        return;
    }
    double attach = best_attach("large", CLOCK_MONOTONIC, 0);
    row("attach 60 GiB in 30 slabs", attach, "ms", 1);
    double files = best_mmap(place, 30, 2 * GIB);
    anchor("open and mmap of 30 files of a folder", files, "ms");
    row("  the attach against that", attach / files, "times", 1.2);
    double calls = attach_calls("large");
    if (calls >= 0) {
        anchor("calls of the system in the attach", calls, "");
        anchor("  in open, fstat, mmap and close of the files", 4 * 30, "");
    }
    row("commit of 30 slabs after the last byte", commit, "ms", 5);
    if (write_slabs("many", 10000, 100 * MIB, &commit)) {
        row("attach 1 TiB in 10,000 slabs, CPU time",
            best_attach("many", CLOCK_PROCESS_CPUTIME_ID, 0), "ms", 150);
    } else {
        not_measured("attach 1 TiB in 10,000 slabs");
    }
    if (write_names("names", 10000)) {
        double only = best_attach("names", CLOCK_MONOTONIC, 0);
        double both = best_attach("names", CLOCK_MONOTONIC, 10000);
        row("attach and find 10,000 names", both, "ms", 50);
        row("  each of them", (both - only) / 10, "us", 1);
    } else {
        not_measured("10,000 names");
    }
}

/* --- kills ------------------------------------------------------------------------------------ */

typedef struct client_t {
    bool is_over; /* Sync: atomic */
    unsigned long requests, failed;
    double longest;
} client_t;

static void *ask_on(void *arg) {
    client_t *client = arg;
    umf_vault_handle_t vault;
    if (umfVaultOpen("names", NULL, &vault) != UMF_RESULT_SUCCESS) {
        client->failed++;
        return NULL;
    }
    while (!__atomic_load_n(&client->is_over, __ATOMIC_ACQUIRE)) {
        umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
        double start = now_ms(CLOCK_MONOTONIC);
        client->failed += umfVaultStat(vault, &stat) != UMF_RESULT_SUCCESS || stat.current != 1;
        double passed = now_ms(CLOCK_MONOTONIC) - start;
        client->longest = passed > client->longest ? passed : client->longest;
        client->requests++;
    }
    umfVaultClose(vault);
    return NULL;
}

static void kills(const char *what, double bar) {
    client_t client = {0};
    pthread_t thread;
    int killed = 0;
    pthread_create(&thread, NULL, ask_on, &client);
    for (int i = 0; i < KILLS; i++) {
        pid_t process = daemon_of_keeper();
        killed += process && kill(process, SIGKILL) == 0;
        nap_ms(100);
    }
    __atomic_store_n(&client.is_over, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    printf("%d kills of the daemon under %lu requests, with %s\n", killed, client.requests, what);
    row("  requests that failed", (double)client.failed, "", 0);
    row("  the longest answer", client.longest, "ms", bar);
    row("  generations that are lost", best_attach("names", CLOCK_MONOTONIC, 10000) < 0, "", 0);
}

/* From the kill of a writer until another one, which waits, has the draft. */
static void takeover(void) {
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        umf_vault_handle_t vault;
        umf_vault_draft_handle_t draft;
        umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
        int ready[2];
        char byte;
        if (pipe(ready) != 0) {
            break;
        }
        pid_t writer = fork();
        if (writer == 0) {
            bool is_begun = umfVaultOpen("names", NULL, &vault) == UMF_RESULT_SUCCESS &&
                            umfVaultBegin(vault, NULL, &draft) == UMF_RESULT_SUCCESS;
            _exit(!is_begun || write(ready[1], "", 1) != 1 || pause() == 0);
        }
        close(ready[1]);
        bool has_begun = read(ready[0], &byte, 1) == 1;
        close(ready[0]);
        params.timeout_ms = 10000;
        double start = now_ms(CLOCK_MONOTONIC);
        kill(writer, SIGKILL);
        if (!has_begun || umfVaultOpen("names", NULL, &vault) != UMF_RESULT_SUCCESS ||
            umfVaultBegin(vault, &params, &draft) != UMF_RESULT_SUCCESS) {
            not_measured("takeover of a draft");
            return;
        }
        best = least(best, now_ms(CLOCK_MONOTONIC) - start);
        umfVaultClose(vault);
        waitpid(writer, NULL, 0);
    }
    row("kill of a writer until another one has the draft", best, "ms", 50);
}

int main(int count, char **words) {
    char place[] = "/dev/shm/umf_bench_vault_XXXXXX", command[64];
    umf_vault_handle_t many;
#ifdef UMF_BENCH_HAVE_CUDA
    int status;
    if (gpu_role(count, words, &status)) {
        return status;
    }
#endif
    if ((count != 2 && count != 3) || !mkdtemp(place) || setenv("UMF_VAULT_DIR", place, 1) != 0) {
        fputs("usage: umf-bench-vault UMFD [UMF-REMOTE]: the paths of the service and of the "
              "server\n",
              stderr);
        return 2;
    }
    if (!service_start(words[1], place)) {
        fprintf(stderr, "the service does not start: %s\n", umfLastErrorText());
        return 1;
    }
    head();
    row("keeper: memory of its own at the start", resident_kib(keeper), "KiB", 1024);
    attaches(place);
    kills("10,000 slabs", 1000);
    if (umfVaultOpen("many", NULL, &many) == UMF_RESULT_SUCCESS) {
        umfVaultDrop(many, 0);
        umfVaultClose(many);
    }
    kills("30 slabs", 200);
    takeover();
    if (count == 3) {
        fetches(words[2]);
    }
#ifdef UMF_BENCH_HAVE_CUDA
    gpu_attaches();
#endif
    row("keeper: memory of its own at the end", resident_kib(keeper), "KiB", 1024);
    umfVaultStop(NULL, 1);
    waitpid(keeper, NULL, 0);
    snprintf(command, sizeof(command), "rm -r %s", place);
    return system(command) != 0 || has_missed();
}
