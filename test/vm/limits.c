/*
 * Vaults and control groups with a limit of memory: which group is charged for a page, and which
 * memory stays after the kernel has killed a client at the limit of its group.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <umf/reclaim.h>
#include <umf/vault.h>

#define GROUPS "/tmp/cgroup"
#define MIB ((size_t)1 << 20)

enum { ENTRY = 4 }; /* MiB of an entry */

/* In MiB. The service has a group of 2 MiB, most clients are in one of 32 MiB. */
enum { LIMIT = 32, FITS = 20, TOO_MUCH = 48 };

/* --- control groups --------------------------------------------------------------------------- */

static const char *path_of(const char *group, const char *file) {
    static char path[256];
    snprintf(path, sizeof(path), GROUPS "/%s/%s", group, file);
    return path;
}

static void set(const char *group, const char *file, const char *value) {
    int fd = open(path_of(group, file), O_WRONLY | O_CLOEXEC);
    if (fd == -1 || write(fd, value, strlen(value)) != (ssize_t)strlen(value)) {
        check(false, "writing %s to %s: errno %d", value, path_of(group, file), errno);
    }
    close(fd);
}

/* The number behind a word of a file; of the whole file if the word is "". */
static size_t number_of(const char *group, const char *file, const char *word) {
    char content[512] = "";
    int fd = open(path_of(group, file), O_RDONLY | O_CLOEXEC);
    ssize_t got = fd == -1 ? -1 : read(fd, content, sizeof(content) - 1);
    close(fd);
    const char *at = got > 0 ? strstr(content, word) : NULL;
    if (!at) {
        check(false, "reading %s", path_of(group, file));
        return 0;
    }
    return strtoull(at + strlen(word), NULL, 10);
}

static size_t charged(const char *group) {
    return number_of(group, "memory.current", "");
}

static size_t kills(const char *group) {
    return number_of(group, "memory.events", "oom_kill ");
}

static void make_group(const char *group, const char *limit) {
    if (mkdir(path_of(group, ""), 0755) != 0) {
        check(false, "making the group %s: errno %d", group, errno);
    }
    set(group, "memory.max", limit);
}

/* --- clients ---------------------------------------------------------------------------------- */

enum {
    DONE = 0,
    NOT_OPEN = 1,
    NOT_BEGUN,
    NO_POOL,
    NO_MEMORY,
    NOT_PUT,
    NOT_COMMITTED,
    NOT_ATTACHED,
    NOT_RIGHT,
    NOT_CLAIMED,
    KILLED = 1000
};

typedef struct work_t {
    size_t mib;
    size_t limit;    /* MiB of the pool's group; 0: none */
    bool is_empty;   /* nothing is written into the memory */
    bool is_private; /* entries that readers may write */
    bool replaces;
    bool modifies; /* what it reads */
} work_t;

static pid_t start(const char *group, int (*act)(const work_t *), const work_t *work) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (group) {
            set(group, "cgroup.procs", "0");
        }
        _exit(act(work));
    }
    return child;
}

static int end_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status)             ? WEXITSTATUS(status)
           : WTERMSIG(status) == SIGKILL ? KILLED
                                         : -WTERMSIG(status);
}

static const char *key_of(size_t i) {
    static char key[24];
    snprintf(key, sizeof(key), "%zu", i);
    return key;
}

static int fill(umf_vault_draft_handle_t draft, umf_memory_pool_handle_t pool, const work_t *work) {
    unsigned flags = work->is_private ? UMF_VAULT_PRIVATE : 0;
    for (size_t i = 0; i < work->mib / ENTRY; i++) {
        char *memory = umfPoolMalloc(pool, ENTRY * MIB);
        if (!memory) {
            return NO_MEMORY;
        }
        if (!work->is_empty) {
            memset(memory, (int)i + 1, ENTRY * MIB);
        }
        if (umfVaultPut(draft, key_of(i), memory, ENTRY * MIB, NULL, 0, flags)) {
            return NOT_PUT;
        }
    }
    return DONE;
}

static int writes(const work_t *work) {
    umf_vault_handle_t vault;
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    umf_pool_group_handle_t group;
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    uint64_t generation;
    params.timeout_ms = 1000;
    params.replace = work->replaces;
    if (umfVaultOpen("model", NULL, &vault)) {
        return NOT_OPEN;
    }
    if (umfVaultBegin(vault, &params, &draft)) {
        return NOT_BEGUN;
    }
    if (umfVaultDraftPool(draft, "coalescing over linux_vmm:piece_size=4M", &pool)) {
        return NO_POOL;
    }
    if (work->limit &&
        (umfPoolGroupCreate(work->limit * MIB, &group) || umfPoolGroupAdd(group, pool))) {
        return NO_POOL;
    }
    int failed = fill(draft, pool, work);
    return failed ? failed : umfVaultCommit(draft, NULL, &generation) != 0 ? NOT_COMMITTED : DONE;
}

static int reads(const work_t *work) {
    umf_vault_handle_t vault;
    umf_vault_view_handle_t view;
    if (umfVaultOpen("model", NULL, &vault)) {
        return NOT_OPEN;
    }
    if (umfVaultAttach(vault, NULL, &view)) {
        return NOT_ATTACHED;
    }
    for (size_t i = 0; i < work->mib / ENTRY; i++) {
        umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
        if (umfVaultFind(view, key_of(i), &entry) || entry.size != ENTRY * MIB) {
            return NOT_RIGHT;
        }
        char *memory = entry.ptr;
        for (size_t at = 0; at < entry.size; at += page_size()) {
            if (memory[at] != (work->is_empty ? 0 : (char)(i + 1))) {
                return NOT_RIGHT;
            }
            if (work->modifies) {
                memory[at] = 0;
            }
        }
    }
    umfVaultClose(vault);
    return DONE;
}

/* The first word says how many MiB were written. */
static int claims(const work_t *work) {
    umf_vault_handle_t vault;
    umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
    umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
    params.size = TOO_MUCH * MIB;
    params.timeout_ms = 1000;
    if (umfVaultOpen("model", NULL, &vault)) {
        return NOT_OPEN;
    }
    if (umfVaultClaim(vault, "kv", &params, &claim)) {
        return NOT_CLAIMED;
    }
    volatile size_t *words = claim.ptr;
    for (size_t i = 0; i < work->mib; i++) {
        memset((char *)claim.ptr + i * MIB + sizeof(*words), 1, MIB - sizeof(*words));
        words[0] = i + 1;
    }
    return words[0] > FITS && words[0] <= LIMIT ? DONE : NOT_RIGHT;
}

static int serves(const work_t *work) {
    (void)work;
    execl(getenv("UMF_UMFD"), "umfd", "--detach", NULL);
    return NOT_OPEN;
}

/* --- checks ----------------------------------------------------------------------------------- */

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static umf_vault_stat_t stat_now(void) {
    umf_vault_handle_t vault;
    umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
    need(umfVaultOpen("model", NULL, &vault), "opening the vault");
    need(umfVaultStat(vault, &stat), "state of the vault");
    need(umfVaultClose(vault), "closing the vault");
    return stat;
}

static void check_run(const char *what, int wanted, const char *group, int (*act)(const work_t *),
                      work_t work) {
    int code = end_of(start(group, act, &work));
    check(code == wanted, "%s: %d", what, code);
}

/* Pages of a process that was killed are released a moment later. */
static void check_charged(const char *what, const char *group, size_t least, size_t most) {
    size_t bytes = charged(group);
    for (int i = 0; i < 1000 && (bytes < least * MIB || bytes > most * MIB); i++) {
        usleep(1000);
        bytes = charged(group);
    }
    check(bytes >= least * MIB && bytes <= most * MIB, "%s: %zu KiB", what, bytes / 1024);
}

static void check_kills(const char *group, size_t wanted) {
    size_t number = kills(group);
    check(number == wanted, "%zu processes of the group were killed, %zu expected", number, wanted);
}

static void test_reader(void) {
    make_group("reader", "32M");
    check_run("a writer without a limit", DONE, NULL, writes, (work_t){.mib = TOO_MUCH});
    check_run("a reader of more than its limit", DONE, "reader", reads, (work_t){.mib = TOO_MUCH});
    check_charged("it does not pay for written pages", "reader", 0, 1);
    check_kills("reader", 0);

    check_run("private entries", DONE, NULL, writes, (work_t){.mib = TOO_MUCH, .is_private = true});
    check_run("a reader modifies more than its limit", KILLED, "reader", reads,
              (work_t){.mib = TOO_MUCH, .modifies = true});
    check_kills("reader", 1);
    check_charged("its copies are released", "reader", 0, 1);
    check_run("another reader", DONE, NULL, reads, (work_t){.mib = TOO_MUCH});

    check_run("entries that were never written", DONE, NULL, writes,
              (work_t){.mib = TOO_MUCH, .is_empty = true});
    check_run("their first reader pays for them", KILLED, "reader", reads,
              (work_t){.mib = TOO_MUCH, .is_empty = true});
    check_kills("reader", 2);
    check_run("another reader", DONE, NULL, reads, (work_t){.mib = TOO_MUCH, .is_empty = true});
}

/* Meanwhile others are served. */
static void test_killed_writer(void) {
    make_group("writer", "32M");
    check_run("a writer without a limit", DONE, NULL, writes, (work_t){.mib = TOO_MUCH});
    umf_vault_stat_t before = stat_now();
    pid_t child = start("writer", writes, &(work_t){.mib = TOO_MUCH});
    uint64_t longest = 0;
    unsigned served = 0, reading = 0;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        uint64_t begin = now_ms(), took;
        served += reads(&(work_t){.mib = ENTRY}) == DONE;
        reading++;
        took = now_ms() - begin;
        longest = took > longest ? took : longest;
    }
    check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "a writer of more than its limit");
    check_kills("writer", 1);
    check(served == reading && longest <= 1000, "%u of %u reads meanwhile, the longest of %u ms",
          served, reading, (unsigned)longest);
    check_charged("its draft is released", "writer", 0, 1);
    umf_vault_stat_t after = stat_now();
    check(after.current == before.current && after.bytes == before.bytes && after.writer == 0 &&
              after.restarts == before.restarts,
          "the vault is as before");
    check_run("its generation is whole", DONE, NULL, reads, (work_t){.mib = TOO_MUCH});

    check_run("a group of pools refuses memory before that", NO_MEMORY, "writer", writes,
              (work_t){.mib = TOO_MUCH, .limit = FITS});
    check_kills("writer", 1);
    check_run("the next writer", DONE, NULL, writes, (work_t){.mib = ENTRY});
}

static void test_committed(void) {
    check_run("a generation that fits", DONE, "writer", writes, (work_t){.mib = FITS});
    check_charged("its pages stay charged to the group of the writer", "writer", FITS, FITS + 1);
    check_run("another one beside it", KILLED, "writer", writes, (work_t){.mib = FITS});
    check_kills("writer", 2);
    check_run("the former one is whole", DONE, NULL, reads, (work_t){.mib = FITS});
    check_run("another one in its place", DONE, "writer", writes,
              (work_t){.mib = FITS, .replaces = true});
    check(rmdir(path_of("writer", "")) == 0, "the group of its writer is removed");
    make_group("writer", "32M");
    check_run("the generation is there", DONE, "writer", reads, (work_t){.mib = FITS});
    check_run("a new group has nothing charged", DONE, "writer", writes, (work_t){.mib = FITS});
}

static void test_claim(void) {
    umf_vault_handle_t vault;
    make_group("holder", "32M");
    check_run("a claim is filled beyond the limit", KILLED, "holder", claims,
              (work_t){.mib = TOO_MUCH});
    check_run("the next holder reads the written bytes", DONE, NULL, claims, (work_t){.mib = 0});
    check_charged("its pages stay charged", "holder", FITS, LIMIT);
    need(umfVaultOpen("model", NULL, &vault), "opening the vault");
    need(umfVaultForget(vault, "kv"), "forgetting the claim");
    need(umfVaultClose(vault), "closing the vault");
    check_charged("until it is forgotten", "holder", 0, 1);
}

static void test_service(void) {
    check_kills("service", 0);
    check(stat_now().restarts == 1, "the service was started once");
    need(umfVaultStop(NULL, 1), "ending the service");

    make_group("all", "32M");
    check_run("a client starts the service in its group", DONE, "all", writes,
              (work_t){.mib = ENTRY});
    umf_vault_stat_t before = stat_now();
    check_run("a client of the same group", KILLED, "all", writes, (work_t){.mib = TOO_MUCH});
    check_kills("all", 1);
    umf_vault_stat_t after = stat_now();
    check(after.service == before.service && after.restarts == before.restarts,
          "the service goes on");
    check_run("the generation is whole", DONE, NULL, reads, (work_t){.mib = ENTRY});

    set("all", "memory.oom.group", "1");
    check_run("a group that is killed as one", KILLED, "all", writes, (work_t){.mib = TOO_MUCH});
    after = stat_now();
    check(after.service != before.service && after.current == 0, "a new service, which is empty");
    need(umfVaultStop(NULL, 1), "ending the service");
}

static bool has_groups(void) {
    if (access(getenv("UMF_UMFD"), X_OK) != 0) {
        return false;
    }
    if (mkdir(GROUPS, 0755) != 0 || mount("none", GROUPS, "cgroup2", 0, NULL) != 0) {
        return false;
    }
    int fd = open(path_of(".", "cgroup.subtree_control"), O_WRONLY | O_CLOEXEC);
    bool has = fd != -1 && write(fd, "+memory", 7) == 7;
    close(fd);
    return has;
}

int main(void) {
    if (!has_groups()) {
        puts("limits: no umfd, or the kernel has no limits of memory");
        return 77;
    }
    make_group("service", "2M");
    check_run("the service", DONE, "service", serves, (work_t){0});
    test_reader();
    test_killed_writer();
    test_committed();
    test_claim();
    test_service();
    return report_end("limits");
}
