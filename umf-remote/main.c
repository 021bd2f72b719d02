/* umf-remote: serves vaults to other machines, and fetches them. UCX is in this process, and in
 * none of the service that keeps the vaults. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <umf/reason.h>
#include <umf/remote.h>
#include <umf/vault.h>

#include "ext/fetch/wire.h"
#include "serve.h"

static const char usage[] =
    "usage: umf-remote serve [<option>...] NAME...\n"
    "       umf-remote fetch [<option>...] NAME ADDRESS|@FILE...\n"
    "\n"
    "  serve   serve the current generation of these vaults until a signal ends it, and\n"
    "          print a line with name and address of each\n"
    "          --write FILE     write the lines into FILE, which only the user can read\n"
    "  fetch   make the generation of the servers one of vault NAME here; all of them\n"
    "          must have the same. @FILE: a file that serve wrote\n"
    "          --of NAME        the name in these files; by default the same\n"
    "          --all            all content travels, also pieces that the vault has\n"
    "          --digest         keep a sum of each entry\n"
    "          --limit BYTES    refuse a larger one\n"
    "  both    --devices NAMES  network devices, by default loopback; needs a key\n"
    "          --key-file FILE  32 bytes that all machines have\n"
    "          --deadline MS    how long the other side may be silent; by default 10000\n"
    "          --help, --version\n"
    "\n"
    "Nothing on the wire is encrypted. An address is enough to read the vault.\n"
    "Exit status: 0 done; 1 it failed; 2 the command line was wrong.\n";

typedef struct options_t {
    umf_remote_params_t remote;
    umf_vault_fetch_params_t fetch;
    const char *path, *of;
    bool is_of_serve, is_of_fetch; /* has options of it */
} options_t;

static volatile int ends;

static void on_signal(int number) {
    (void)number;
    ends = 1;
}

static int bad_words(const char *what) {
    complain(false, "%s", what);
    fputs("Try 'umf-remote --help'.\n", stderr);
    return 2;
}

/* --- fetch ------------------------------------------------------------------------------------ */

/* Adds the addresses of a name in a file. */
static bool read_file(const char *path, const char *name, FILE *to) {
    char *line = NULL;
    size_t room = 0, length = strlen(name), found = 0;
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &room, file) != -1) {
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            fprintf(to, "%s ", line + length + 1);
            found++;
        }
    }
    if (file) {
        fclose(file);
    }
    free(line);
    if (!found) {
        complain(false, file ? "%s has no address of vault %s" : "%s cannot be read", path, name);
    }
    return found > 0;
}

static int fetch(umf_remote_handle_t remote, const options_t *options, char **words, int count) {
    char *from = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&from, &size);
    bool is_good = to != NULL;
    for (int i = 1; i < count && is_good; i++) {
        if (words[i][0] == '@') {
            is_good = read_file(words[i] + 1, options->of ? options->of : words[0], to);
        } else {
            fprintf(to, "%s ", words[i]);
        }
    }
    if (to) {
        is_good = fclose(to) == 0 && is_good;
    }
    umf_vault_handle_t vault;
    uint64_t generation;
    if (is_good && umfVaultOpen(words[0], NULL, &vault) == UMF_RESULT_SUCCESS) {
        is_good =
            umfVaultFetch(vault, remote, from, &options->fetch, &generation) == UMF_RESULT_SUCCESS;
        if (is_good) {
            printf("%s generation %llu\n", words[0], (unsigned long long)generation);
        } else {
            complain(true, "vault %s is not fetched", words[0]);
        }
        umfVaultClose(vault);
    } else if (is_good) {
        complain(true, "vault %s cannot be opened", words[0]);
        is_good = false;
    }
    free(from);
    return is_good ? 0 : 1;
}

/* --- the command line ------------------------------------------------------------------------- */

static bool read_number(const char *text, uint64_t *number) {
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

/* -1: go on. Otherwise the exit status. */
static int read_options(int count, char **words, options_t *options) {
    enum { WRITE = 256, OF, ALL, DIGEST, LIMIT, DEVICES, KEY_FILE, DEADLINE, HELP, VERSION };
    static const struct option known[] = {{"write", required_argument, NULL, WRITE},
                                          {"of", required_argument, NULL, OF},
                                          {"all", no_argument, NULL, ALL},
                                          {"digest", no_argument, NULL, DIGEST},
                                          {"limit", required_argument, NULL, LIMIT},
                                          {"devices", required_argument, NULL, DEVICES},
                                          {"key-file", required_argument, NULL, KEY_FILE},
                                          {"deadline", required_argument, NULL, DEADLINE},
                                          {"help", no_argument, NULL, HELP},
                                          {"version", no_argument, NULL, VERSION},
                                          {NULL, 0, NULL, 0}};
    bool is_number = true;
    for (int option; (option = getopt_long(count, words, "h", known, NULL)) != -1;) {
        switch (option) {
        case WRITE:
            options->path = optarg;
            options->is_of_serve = true;
            continue;
        case DEVICES:
            options->remote.devices = optarg;
            continue;
        case KEY_FILE:
            options->remote.key_file = optarg;
            continue;
        case DEADLINE:
            is_number = is_number && read_number(optarg, &options->remote.deadline_ms);
            continue;
        case 'h':
        case HELP:
            fputs(usage, stdout);
            return 0;
        case VERSION:
            puts("umf-remote " UMF_REMOTE_VERSION);
            return 0;
        case '?':
            return bad_words("unknown option, or a word is missing after it");
        default:
            break;
        }
        options->is_of_fetch = true;
        if (option == OF) {
            options->of = optarg;
        } else if (option == LIMIT) {
            is_number = is_number && read_number(optarg, &options->fetch.limit);
        } else if (option == ALL) {
            options->fetch.keep = 0;
        } else {
            options->fetch.digest = 1;
        }
    }
    return is_number ? -1 : bad_words("a number of bytes or milliseconds is no number");
}

/* UCX reads these when it is loaded. It leaves signals and memory functions of this process alone.
 */
static void quiet_ucx(void) {
    setenv("UCX_ERROR_SIGNALS", "", 1);
    setenv("UCX_MEM_EVENTS", "n", 1);
    setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 1);
    setenv("UCX_LOG_LEVEL", "fatal", 0);
}

int main(int count, char **words) {
    options_t options = {.remote = UMF_REMOTE_PARAMS_INIT, .fetch = UMF_VAULT_FETCH_PARAMS_INIT};
    int status = read_options(count, words, &options);
    if (status != -1) {
        return status;
    }
    count -= optind;
    words += optind;
    bool is_serve = count && strcmp(words[0], "serve") == 0;
    if (!is_serve && (!count || strcmp(words[0], "fetch") != 0)) {
        return bad_words("the first word is serve or fetch");
    }
    if (count < (is_serve ? 2 : 3)) {
        return bad_words(is_serve ? "the name of a vault is missing"
                                  : "the name of a vault, or an address, is missing");
    }
    if (is_serve ? options.is_of_fetch : options.is_of_serve) {
        return bad_words("this option is of the other action");
    }
    quiet_ucx();
    struct sigaction action = {.sa_handler = on_signal};
    if (is_serve) { /* a fetch ends at once: its draft ends with it */
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
    }
    umf_remote_handle_t remote;
    if (umfRemoteCreate(&options.remote, &remote) != UMF_RESULT_SUCCESS) {
        complain(true, "no connection to other machines");
        return 1;
    }
    status = is_serve ? serve(remote, words + 1, (unsigned)count - 1, options.path, &ends)
                      : fetch(remote, &options, words + 1, count - 1);
    umfRemoteDestroy(remote);
    return status;
}
