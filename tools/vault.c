/* umfctl vault: named memory that outlives its users. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/vault.h>

#include "plain.h"
#include "report.h"
#include "umfctl.h"
#include "vault_show.h"

static const char usage[] =
    "usage: umfctl vault <action> [--json] [--dir FOLDER] [<word>...]\n"
    "\n"
    "  ls               the vaults of this user: generation, bytes, readers, claims\n"
    "  stat NAME        one vault, its claims, the entries of its current generation\n"
    "  put NAME FILE... files become the entries of a new generation\n"
    "  snapshot NAME[@N] [FOLDER] memory of GPUs gets copies in memory of the host, or the "
    "generation\n"
    "                   becomes a file of FOLDER, which the vault file:FOLDER has, too\n"
    "  evict NAME[@N]   releases memory of GPUs that has such copies, of all generations or one;\n"
    "                   the next program that attaches it makes it again\n"
    "  copy NAME[@N] TO a generation becomes a new one of vault TO, such as file:FOLDER\n"
    "  verify NAME[@N]  reads all entries and compares them with the sums of the commit\n"
    "  watch NAME       events, one in a line, until Ctrl-C\n"
    "                   -n COUNT     so many events\n"
    "  drop NAME[@N]    drops all generations and claims, or one generation; readers keep what "
    "they have mapped\n"
    "                   --draft      ends the draft of another program instead\n"
    "  stop             ends the service, if it has no clients and no content\n"
    "                   --drop       also with both\n"
    "\n"
    "  --dir FOLDER     the place of the service; by default that of this user\n"
    "\n"
    "A NAME of the form file:FOLDER is a vault in files of that folder, without a service.\n"
    "\n"
    "Exit status: 0 done; 1 it failed; 2 the command line was wrong.\n";

typedef struct vault_words_t {
    char **operands;
    int count;
    bool json, drop, draft;
    const char *folder;
    unsigned long events;
} vault_words_t;

static vault_words_t words;

static umf_vault_params_t params_of(int start) {
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    params.folder = words.folder;
    params.start = start;
    return params;
}

/* The text of the library has the cause. */
static int fails(const char *what) {
    const char *text = umfLastErrorText();
    return print_message("vault %s: %s", what, *text ? text : "not supported by this library");
}

static int open_vault(const char *name, int start, umf_vault_handle_t *vault) {
    umf_vault_params_t params = params_of(start);
    if (strncmp(name, "file:", 5) == 0) {
        params.keep = UINT32_MAX; /* a generation that was not named is not dropped */
    }
    return umfVaultOpen(name, &params, vault) == UMF_RESULT_SUCCESS ? 0 : fails(name);
}

/* To read content. A driver is started only if the vault has memory of devices. */
static umf_result_t attach(umf_vault_handle_t vault, uint64_t generation,
                           umf_vault_view_handle_t *view) {
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
    umf_result_t result = umfVaultStat(vault, &stat);
    params.generation = generation;
    params.devices = stat.devices || stat.evicted ? "cuda_vmm" : NULL;
    return result == UMF_RESULT_SUCCESS ? umfVaultAttach(vault, &params, view) : result;
}

/* --- ls and stat ------------------------------------------------------------------------------ */

static int list(void) {
    umf_vault_params_t params = params_of(0);
    report_list("vaults", "Vaults");
    umf_result_t result = umfVaultList(&params, vault_show, NULL);
    if (result == UMF_RESULT_SUCCESS) {
        return 0;
    }
    if (umfLastReason() == UMF_REASON_ABSENT) {
        report_line("  no service runs");
        return 0;
    }
    return fails("ls");
}

static int stat_of(umf_vault_handle_t vault, const char *name) {
    umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
    umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
    umf_vault_view_handle_t view;
    if (umfVaultStat(vault, &stat) != UMF_RESULT_SUCCESS) {
        return fails(name);
    }
    report_list("vaults", "Vault");
    vault_show(name, &stat, NULL);
    if (stat.claims) {
        report_list("claims", "Claims");
        umfVaultEachClaim(vault, vault_show_claim, NULL);
    }
    if (stat.current == 0) {
        return 0;
    }
    params.devices = "none"; /* names need no driver, and no memory that was evicted */
    if (umfVaultAttach(vault, &params, &view) != UMF_RESULT_SUCCESS) {
        return fails(name);
    }
    report_list("entries", "Entries");
    umfVaultEach(view, NULL, vault_show_entry, NULL);
    return 0;
}

/* --- verify ----------------------------------------------------------------------------------- */

typedef struct verify_t {
    umf_vault_view_handle_t view;
    uint64_t bytes, entries, without, wrong;
} verify_t;

static int verify_entry(const umf_vault_entry_t *entry, void *arg) {
    verify_t *verify = arg;
    umf_result_t result = umfVaultVerify(verify->view, entry->key);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        verify->without++;
        return 0;
    }
    verify->entries++;
    verify->bytes += entry->size;
    if (result != UMF_RESULT_SUCCESS) {
        verify->wrong++;
        print_message("vault: %s", umfLastErrorText());
    }
    if (isatty(STDERR_FILENO) && verify->bytes >> 28 != (verify->bytes - entry->size) >> 28) {
        char bytes[32];
        fprintf(stderr, "\r%s", report_bytes_text(verify->bytes, bytes, sizeof(bytes)));
    }
    return 0;
}

static int verify_of(umf_vault_handle_t vault, const char *name, uint64_t generation) {
    verify_t verify = {0};
    if (attach(vault, generation, &verify.view) != UMF_RESULT_SUCCESS) {
        return fails(name);
    }
    umfVaultViewGeneration(verify.view, &generation);
    umfVaultEach(verify.view, NULL, verify_entry, &verify);
    if (isatty(STDERR_FILENO) && verify.bytes >> 28) {
        fputc('\n', stderr);
    }
    report_section("verify", "Verify", 14);
    report_number("generation", generation);
    report_number("entries", verify.entries);
    report_bytes("bytes", verify.bytes);
    report_number("without a sum", verify.without);
    report_number("wrong", verify.wrong);
    if (verify.entries == 0) {
        return print_message("vault %s: no entry has a sum", name);
    }
    return verify.wrong ? 1 : 0;
}

/* --- put -------------------------------------------------------------------------------------- */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Reads a file into memory of the draft. A shorter file than it was at its opening is a failure. */
static bool read_whole(int fd, char *to, size_t size, const char *name) {
    bool shows = isatty(STDERR_FILENO) && size >= (size_t)256 << 20;
    for (size_t at = 0; at < size;) {
        size_t part = size - at < (size_t)64 << 20 ? size - at : (size_t)64 << 20;
        ssize_t got = read(fd, to + at, part);
        if (got <= 0) {
            return false;
        }
        at += (size_t)got;
        if (shows) {
            char plain[64];
            fprintf(stderr, "\r%s: %zu %%", plain_copy(plain, sizeof(plain), name),
                    at * 100 / size);
        }
    }
    if (shows) {
        fputc('\n', stderr);
    }
    return true;
}

static int put_file(umf_vault_draft_handle_t draft, umf_memory_pool_handle_t pool,
                    const char *path) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size == 0) {
        if (fd != -1) {
            close(fd);
        }
        return print_message("%s: no file that can be read, or an empty one", path);
    }
    size_t size = (size_t)about.st_size;
    char *memory = umfPoolMalloc(pool, size);
    bool is_read = memory && read_whole(fd, memory, size, base_name(path));
    close(fd);
    if (!is_read) {
        return print_message("%s: it cannot be read, or there is no memory", path);
    }
    return umfVaultPut(draft, base_name(path), memory, size, NULL, 0, 0) == UMF_RESULT_SUCCESS
               ? 0
               : fails("put");
}

static int put(umf_vault_handle_t vault, const char *name) {
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    uint64_t generation;
    if (umfVaultBegin(vault, NULL, &draft) != UMF_RESULT_SUCCESS ||
        umfVaultDraftPool(draft, "proxy over linux_vmm:piece_size=4K", &pool) !=
            UMF_RESULT_SUCCESS) {
        return fails(name);
    }
    for (int i = 2; i < words.count; i++) {
        if (put_file(draft, pool, words.operands[i]) != 0) {
            return 1; /* the close of the vault aborts the draft */
        }
    }
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.digest = 1;
    if (umfVaultCommit(draft, &params, &generation) != UMF_RESULT_SUCCESS) {
        return fails(name);
    }
    report_section("put", "Put", 12);
    report_number("generation", generation);
    report_number("entries", (uint64_t)(words.count - 2));
    return 0;
}

/* --- copy ------------------------------------------------------------------------------------- */

static int copy_into(umf_vault_view_handle_t view, umf_vault_handle_t to, uint64_t *generation) {
    umf_vault_draft_handle_t draft;
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.digest = 1;
    if (umfVaultBegin(to, NULL, &draft) != UMF_RESULT_SUCCESS ||
        umfVaultCopy(draft, view, NULL) != UMF_RESULT_SUCCESS ||
        umfVaultCommit(draft, &params, generation) != UMF_RESULT_SUCCESS) {
        return fails("copy"); /* the close of the vault aborts the draft */
    }
    return 0;
}

static int copy(umf_vault_handle_t vault, const char *name, uint64_t generation) {
    umf_vault_view_handle_t view;
    umf_vault_handle_t to;
    if (attach(vault, generation, &view) != UMF_RESULT_SUCCESS) {
        return fails(name);
    }
    int status = open_vault(words.operands[2], 1, &to);
    if (status != 0) {
        return status;
    }
    status = copy_into(view, to, &generation);
    umfVaultClose(to);
    if (status == 0) {
        report_section("copy", "Copy", 12);
        report_number("generation", generation);
    }
    return status;
}

/* --- watch ------------------------------------------------------------------------------------ */

static const char *event_word(umf_vault_event_type_t type) {
    switch (type) {
    case UMF_VAULT_EVENT_COMMITTED:
        return "committed";
    case UMF_VAULT_EVENT_DROPPED:
        return "dropped";
    case UMF_VAULT_EVENT_ABORTED:
        return "aborted";
    case UMF_VAULT_EVENT_READER_ENDED:
        return "reader_ended";
    case UMF_VAULT_EVENT_EVICTED:
        return "evicted";
    case UMF_VAULT_EVENT_REFILLED:
        return "refilled";
    case UMF_VAULT_EVENT_UNCLAIMED:
        return "unclaimed";
    default:
        return "unknown";
    }
}

static int watch(umf_vault_handle_t vault, const char *name) {
    umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
    umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    if (umfVaultStat(vault, &stat) != UMF_RESULT_SUCCESS) {
        return fails(name);
    }
    event.number = stat.event;
    for (unsigned long seen = 0; words.events == 0 || seen < words.events; seen++) {
        umf_result_t result;
        do {
            result = umfVaultWait(vault, event.number, 3600000, &event);
        } while (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        if (result != UMF_RESULT_SUCCESS) {
            return fails(name);
        }
        printf(words.json ? "{\"event\": \"%s\", \"generation\": %" PRIu64 "}\n"
                          : "%s generation %" PRIu64 "\n",
               event_word(event.type), event.generation);
        fflush(stdout);
    }
    return 0;
}

/* --- snapshot and evict ----------------------------------------------------------------------- */

static int snapshot(umf_vault_handle_t vault, const char *name, uint64_t generation) {
    umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
    params.folder = words.count > 2 ? words.operands[2] : NULL;
    return umfVaultSnapshot(vault, generation, &params) == UMF_RESULT_SUCCESS ? 0 : fails(name);
}

static int evict(umf_vault_handle_t vault, const char *name, uint64_t generation) {
    return umfVaultEvict(vault, generation) == UMF_RESULT_SUCCESS ? 0 : fails(name);
}

/* --- drop and stop ---------------------------------------------------------------------------- */

/* NAME@N is generation N. `name` is cut at the last '@' with only digits behind it. */
static uint64_t cut_generation(char *name) {
    char *at = strrchr(name, '@');
    if (!at || at == name || !at[1] || at[1 + strspn(at + 1, "0123456789")]) {
        return 0;
    }
    uint64_t number = strtoull(at + 1, NULL, 10);
    *at = '\0';
    return number;
}

static int drop(umf_vault_handle_t vault, const char *name, uint64_t generation) {
    umf_result_t result = words.draft ? umfVaultDropDraft(vault) : umfVaultDrop(vault, generation);
    return result == UMF_RESULT_SUCCESS ? 0 : fails(name);
}

static int stop(void) {
    umf_vault_params_t params = params_of(0);
    return umfVaultStop(&params, words.drop) == UMF_RESULT_SUCCESS ? 0 : fails("stop");
}

/* --- the command line ------------------------------------------------------------------------- */

static int bad_words(const char *what) {
    print_message("vault: %s", what);
    fputs("Try 'umfctl vault --help'.\n", stderr);
    return 2;
}

static int of_one(const char *action) {
    umf_vault_handle_t vault;
    char *name = words.operands[1];
    bool takes_number = strcmp(action, "drop") == 0 || strcmp(action, "verify") == 0 ||
                        strcmp(action, "copy") == 0 || strcmp(action, "snapshot") == 0 ||
                        strcmp(action, "evict") == 0;
    uint64_t generation = takes_number ? cut_generation(name) : 0;
    int status = open_vault(name, strcmp(action, "put") == 0, &vault);
    if (status != 0) {
        return status;
    }
    status = strcmp(action, "stat") == 0       ? stat_of(vault, name)
             : strcmp(action, "put") == 0      ? put(vault, name)
             : strcmp(action, "watch") == 0    ? watch(vault, name)
             : strcmp(action, "copy") == 0     ? copy(vault, name, generation)
             : strcmp(action, "verify") == 0   ? verify_of(vault, name, generation)
             : strcmp(action, "snapshot") == 0 ? snapshot(vault, name, generation)
             : strcmp(action, "evict") == 0    ? evict(vault, name, generation)
                                               : drop(vault, name, generation);
    umfVaultClose(vault);
    return status;
}

static int run(void) {
    static const struct {
        const char *name;
        int least, most;
        bool is_report;
    } actions[] = {{"ls", 1, 1, true},     {"stat", 2, 2, true},   {"put", 3, 100000, true},
                   {"verify", 2, 2, true}, {"watch", 2, 2, false}, {"drop", 2, 2, false},
                   {"copy", 3, 3, true},   {"stop", 1, 1, false},  {"snapshot", 2, 3, false},
                   {"evict", 2, 2, false}};
    const char *action = words.count ? words.operands[0] : "";
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(action, actions[i].name) != 0) {
            continue;
        }
        if (words.count < actions[i].least || words.count > actions[i].most) {
            return bad_words("it needs other words");
        }
        if (actions[i].is_report) {
            report_begin("vault", words.json);
        }
        int status = strcmp(action, "ls") == 0     ? list()
                     : strcmp(action, "stop") == 0 ? stop()
                                                   : of_one(action);
        return !actions[i].is_report || report_end() == 0 ? status : 1;
    }
    return bad_words(words.count ? "unknown action" : "an action is missing");
}

int umfctl_vault(int count, char **given) {
    words = (vault_words_t){.operands = given};
    for (int i = 0; i < count; i++) {
        const char *word = given[i], *next = i + 1 < count ? given[i + 1] : NULL;
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        } else if (strcmp(word, "--json") == 0) {
            words.json = true;
        } else if (strcmp(word, "--drop") == 0) {
            words.drop = true;
        } else if (strcmp(word, "--draft") == 0) {
            words.draft = true;
        } else if (strcmp(word, "--dir") == 0 && next) {
            words.folder = next;
            i++;
        } else if (strcmp(word, "-n") == 0 && next) {
            words.events = strtoul(next, NULL, 10);
            i++;
        } else if (word[0] == '-') {
            return bad_words("unknown option, or a word is missing after it");
        } else {
            words.operands[words.count++] = given[i];
        }
    }
    return run();
}
