/* umfctl remote: memory of other machines. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/remote.h>

#include "attach.h"
#include "plain.h"
#include "report.h"
#include "umfctl.h"

static const char usage[] =
    "usage: umfctl remote <action> [--json] [<option>...]\n"
    "\n"
    "  probe            which UCX there is, and whether a context can be made with it\n"
    "                   --devices NAMES  on these network devices; by default loopback\n"
    "                   --key-file FILE  with this key\n"
    "  ls               the contexts of processes of this user (root: of all users), what\n"
    "                   they have published, and how many peers are connected\n"
    "\n"
    "Exit status: 0 done; 1 it failed, or UCX is missing; 2 the command line was wrong.\n";

static umf_remote_params_t requested = UMF_REMOTE_PARAMS_INIT; /* of probe */

/* --- probe ------------------------------------------------------------------------------------ */

static int probe(void) {
    char text[256] = "this library is built without remote memory";
    umf_remote_handle_t remote = NULL;
    report_section("remote", "Memory of other machines", 12);
    if (umfRemoteProbe(text, sizeof(text)) != UMF_RESULT_SUCCESS) {
        report_row(&(report_row_t){.name = "ucx", .state = REPORT_ABSENT, .note = text});
        return 1;
    }
    report_row(&(report_row_t){.name = "ucx", .state = REPORT_OK, .note = text});
    bool is_made = umfRemoteCreate(&requested, &remote) == UMF_RESULT_SUCCESS;
    const char *why = is_made ? requested.devices : umfLastErrorText();
    report_row(&(report_row_t){.name = "context",
                               .state = is_made ? REPORT_OK : REPORT_FAILED,
                               .note = why ? why : "loopback device"});
    umfRemoteDestroy(remote);
    return is_made ? 0 : 1;
}

/* --- ls --------------------------------------------------------------------------------------- */

#define PAGE 4096u
#define RANGES (PAGE / 12u) /* no page has more: "range 1 1 1" and its end take 12 bytes */

/* The report of a context (src/ext/remote/page.c). Any process can send anything. */
typedef struct context_t {
    unsigned pid; /* as the process sees itself */
    char devices[64], key[4];
    uint64_t deadline, peers, more, bytes;
    unsigned count;
    struct {
        uint64_t number, size;
        unsigned rights;
    } ranges[RANGES];
} context_t;

static bool parse_range(context_t *context, const char *line) {
    unsigned at = context->count;
    if (at == RANGES ||
        sscanf(line, "range %" SCNu64 " %" SCNu64 " %u", &context->ranges[at].number,
               &context->ranges[at].size, &context->ranges[at].rights) != 3) {
        return false;
    }
    context->bytes += context->ranges[at].size;
    context->count++;
    return true;
}

static bool parse(char *text, context_t *context) {
    char *rest = text, *line;
    *context = (context_t){0};
    line = strsep(&rest, "\n");
    if (strcmp(line, "umf-remote 1") != 0) {
        return false;
    }
    while ((line = strsep(&rest, "\n")) && strcmp(line, "end") != 0) {
        bool is_known = sscanf(line, "process %u", &context->pid) == 1 ||
                        sscanf(line, "devices %63s", context->devices) == 1 ||
                        sscanf(line, "key %3s", context->key) == 1 ||
                        sscanf(line, "deadline %" SCNu64, &context->deadline) == 1 ||
                        sscanf(line, "peers %" SCNu64, &context->peers) == 1 ||
                        sscanf(line, "more %" SCNu64, &context->more) == 1 ||
                        parse_range(context, line);
        if (!is_known) {
            return false;
        }
    }
    return line && context->pid && *context->devices && *context->key;
}

/* The owner writes it meanwhile: it counts when two looks are equal. */
static bool page_read(int fd, char *text) {
    char again[PAGE];
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size != PAGE) {
        return false;
    }
    for (int i = 0; i < 100; i++) {
        if (pread(fd, text, PAGE, 0) != PAGE || pread(fd, again, PAGE, 0) != PAGE) {
            return false;
        }
        if (memcmp(text, again, PAGE) == 0) {
            return text[PAGE - 1] == '\0';
        }
    }
    return false;
}

/* The number of a process in its own pid namespace; 0: unknown. */
static unsigned inner_pid(unsigned pid) {
    char path[64], line[256];
    unsigned inner = 0;
    snprintf(path, sizeof(path), "/proc/%u/status", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        const char *last = strncmp(line, "NSpid:", 6) == 0 ? strrchr(line, '\t') : NULL;
        if (last) {
            inner = (unsigned)strtoul(last + 1, NULL, 10);
        }
    }
    if (file) {
        fclose(file);
    }
    return inner;
}

static void show(unsigned pid, unsigned number, const context_t *context) {
    static char lines[RANGES * 64];
    char program[64], line[256], bytes[32];
    size_t at = 0;
    attach_name(pid, program, sizeof(program));
    snprintf(line, sizeof(line), "  %-8u %-16.16s %s%s: %" PRIu64 " ranges, %s, %" PRIu64 " peers",
             pid, program, context->devices, strcmp(context->key, "yes") == 0 ? " with a key" : "",
             context->count + context->more,
             report_bytes_text(context->bytes, bytes, sizeof(bytes)), context->peers);
    line[80] = '\0';
    report_line(line);
    lines[0] = '\0';
    for (unsigned i = 0; i < context->count; i++) {
        const char *rights = context->ranges[i].rights == UMF_REMOTE_GET   ? "get"
                             : context->ranges[i].rights == UMF_REMOTE_PUT ? "put"
                                                                           : "get put";
        snprintf(line, sizeof(line), "           range %-6" PRIu64 " %10s  %s",
                 context->ranges[i].number,
                 report_bytes_text(context->ranges[i].size, bytes, sizeof(bytes)), rights);
        report_line(line);
        at += (size_t)snprintf(lines + at, sizeof(lines) - at, "%s%" PRIu64 " %s", i ? "\n" : "",
                               context->ranges[i].size, rights);
    }
    const report_member_t members[] = {
        {"process", {.unit = REPORT_NUMBER, .number = pid}},
        {"program", {.unit = REPORT_TEXT, .text = program}},
        {"number", {.unit = REPORT_NUMBER, .number = number}},
        {"devices", {.unit = REPORT_TEXT, .text = context->devices}},
        {"key", {.unit = REPORT_NUMBER, .number = strcmp(context->key, "yes") == 0}},
        {"deadline_ms", {.unit = REPORT_NUMBER, .number = context->deadline}},
        {"peers", {.unit = REPORT_NUMBER, .number = context->peers}},
        {"ranges", {.unit = REPORT_NUMBER, .number = context->count + context->more}},
        {"bytes", {.unit = REPORT_BYTES, .number = context->bytes}},
        {"listed", {.unit = REPORT_LINES, .text = lines}},
    };
    report_item(members, sizeof(members) / sizeof(members[0]));
}

/* A child of fork has the files of its parent; the number in the page says whose it is. */
static void look_at(int folder, const char *entry, unsigned pid, unsigned *count) {
    char link[64] = "", text[PAGE];
    context_t context;
    if (readlinkat(folder, entry, link, sizeof(link) - 1) <= 0 ||
        strncmp(link, "/memfd:umf-remote", 17) != 0) {
        return;
    }
    int fd = openat(folder, entry, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is_page = fd != -1 && page_read(fd, text) && parse(text, &context);
    unsigned inner = is_page ? inner_pid(pid) : 0;
    if (is_page && (inner == 0 || inner == context.pid)) {
        show(pid, ++*count, &context);
    }
    if (fd != -1) {
        close(fd);
    }
}

static unsigned look_into(unsigned pid) {
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%u/fd", pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        look_at(dirfd(folder), entry->d_name, pid, &count);
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

static int list(void) {
    unsigned count = 0;
    DIR *folder = opendir("/proc");
    if (!folder) {
        return print_message("/proc cannot be read");
    }
    report_list("contexts", "Contexts of remote memory");
    for (struct dirent *entry; (entry = readdir(folder));) {
        unsigned pid = attach_pid(entry->d_name);
        count += pid ? look_into(pid) : 0;
    }
    closedir(folder);
    if (count == 0) {
        report_line("  none in processes that can be looked at");
    }
    return 0;
}

/* --- the command line ------------------------------------------------------------------------- */

static int bad_words(const char *what) {
    print_message("remote: %s", what);
    fputs("Try 'umfctl remote --help'.\n", stderr);
    return 2;
}

int umfctl_remote(int count, char **words) {
    const char *action = NULL;
    bool is_json = false, is_probe = false;
    for (int i = 0; i < count; i++) {
        const char *word = words[i], *next = i + 1 < count ? words[i + 1] : NULL;
        const char **value = strcmp(word, "--devices") == 0    ? &requested.devices
                             : strcmp(word, "--key-file") == 0 ? &requested.key_file
                                                               : NULL;
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        } else if (strcmp(word, "--json") == 0) {
            is_json = true;
        } else if (value && next) {
            *value = next;
            i++;
        } else if (word[0] == '-') {
            return bad_words("unknown option, or a word is missing after it");
        } else if (action) {
            return bad_words("one word too many");
        } else {
            action = word;
        }
    }
    is_probe = action && strcmp(action, "probe") == 0;
    if (!action || (!is_probe && strcmp(action, "ls") != 0)) {
        return bad_words(action ? "unknown action" : "an action is missing");
    }
    if (!is_probe && (requested.devices || requested.key_file)) {
        return bad_words("--devices and --key-file are options of probe");
    }
    report_begin("remote", is_json);
    int status = is_probe ? probe() : list();
    return report_end() == 0 ? status : 1;
}
