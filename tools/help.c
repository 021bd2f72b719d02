/* The help of umfctl: of all commands, or of one. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "umfctl.h"

/* A command, or one way to use it. */
typedef struct help_t {
    const char *heading; /* NULL: that of the one before */
    const char *name;
    const char *usage; /* the words after its name */
    const char *text;  /* with its options */
    const char *more;  /* of this command alone; NULL: nothing */
} help_t;

#define PROCESSES                                                                                  \
    "Of processes of this user with pools (root: of all users). top and metrics need\n"            \
    "nothing of them; the others need an attach socket: UMF_RECORD_ATTACH=yes, or '--':\n"

#define PART                                                                                       \
    "  --debuginfod        of these: debug information from the servers of DEBUGINFOD_URLS\n"      \
    "  --from, --to WHEN   of these: a part, from and to seconds since the start, or a mark\n"     \
    "  --pool NAME         of these: one pool, such as weights, or 'weights #3'\n"

static const help_t helps[] = {
    {NULL, "info", "",
     "  info       what there is: providers, pools, NUMA nodes, GPUs, limits that matter\n",
     "For a missing part it gives the reason, and for a limit the cure. It changes\n"
     "nothing and allocates nothing.\n"},
    {NULL, "check", "",
     "  check      tests all of it; send the output along when you report a problem\n",
     "Each step runs in a process of its own, for 10 seconds at most. A missing part is\n"
     "skipped, with the reason, and does not count as failed.\n"},
    {NULL, "bandwidth", " [--size BYTES]",
     "  bandwidth  speed of copies between any two places: memory of the host, files,\n"
     "             pinned memory, NUMA nodes, GPUs; and which way it takes\n"
     "             --size BYTES of one copy, such as 64M; by default up to 256M\n",
     NULL},
    {NULL, "settings", "",
     "  settings   what each provider and pool takes in creation text, with its default\n",
     "A text such as 'disjoint:capacity=8 over os:visibility=shared' creates a pool:\n"
     "umfPoolCreateFromText, UMF_PROXY, umf.Pool in Python.\n"},
    {NULL, "reap", "", "  reap       removes named shared memory that crashed processes left\n",
     "Objects of living processes, of other users and of other programs stay.\n"},
    {NULL, "vault", " ACTION",
     "  vault      memory that outlives its users: ls, stat, put, watch, drop, stop;\n"
     "             'umfctl vault --help' has its words\n",
     NULL},
    {NULL, "remote", " ACTION",
     "  remote     memory of other machines: probe, ls; 'umfctl remote --help'\n", NULL},
    {PROCESSES, "top", " [--interval SECONDS] [-n COUNT] [PID | -- PROGRAM ARGS...]",
     "  top [PID | -- PROGRAM ARGS...]\n"
     "             pools and providers: live and held bytes; a live screen on a terminal;\n"
     "             or of a program that is started, whose output comes after the screen\n"
     "             --interval SECONDS  between two looks; by default 1\n"
     "             -n COUNT     so many looks, as plain text\n",
     "The key ? of the screen explains its keys. A - is a figure that is not known from\n"
     "outside; a process with an attach socket answers itself.\n"
     "\n"
     "Example:\n"
     "  umfctl top -- ./server --port 8080\n"},
    {NULL, "metrics", " [--each] [PID]",
     "  metrics [PID]\n"
     "             the same as text for Prometheus (OpenMetrics)\n"
     "             --each       a series for each process and object, with their numbers;\n"
     "                          else one for all with the same names, which is their sum\n",
     NULL},
    {NULL, "snapshot", " [-o FILE] PID",
     "  snapshot PID\n"
     "             what there is now, down to each block, into a file\n"
     "             -o FILE      by default umf-PID.umfsnap\n",
     "Example, of a program that was started with UMF_RECORD_ATTACH=yes:\n"
     "  umfctl snapshot -o now.umfsnap 4711 && umfctl trace --html now.html now.umfsnap\n"},
    {NULL, "record",
     " [-o FILE] [--seconds N] [--stacks] [--leaks] [--size BYTES]\n"
     "                     PID | -- PROGRAM ARGS...",
     "  record PID | -- PROGRAM ARGS...\n"
     "             what lives now and happens from now on, into a file, until Ctrl-C; or of a\n"
     "             program that is started, from its beginning to its end, with its exit status\n"
     "             -o FILE      by default umf-PID.umfrec\n"
     "             --seconds N  no longer than that\n"
     "             --stacks     with the callers of allocations\n"
     "             --leaks      with a table of live allocations, and stacks\n"
     "             --size BYTES of the recording; by default 256M\n",
     "Example:\n"
     "  umfctl record -o run.umfrec --leaks -- ./server --port 8080\n"
     "  umfctl leaks run.umfrec\n"},
    {NULL, "leaks", " [--seconds N] PID",
     "  leaks PID  as of a file, if the process records; else of a recording made now\n"
     "             --seconds N  for so long; by default 10\n",
     NULL},
    {"Of recordings (umfRecordStart, UMF_RECORD) and snapshots:\n", "trace",
     " [OPTION OUT]... FILE",
     "  trace FILE what happened: pools, the highest point, refusals, marks\n"
     "             --events     every event, one in a line\n"
     "             --html OUT   a page for a browser: time, addresses, stacks; needs no network\n"
     "             --chrome OUT counters and marks for chrome://tracing\n"
     "             --perfetto OUT\n"
     "                          the same for Perfetto, with allocations by stack\n"
     "             --pytorch OUT\n"
     "                          a snapshot of PyTorch, for its memory_viz\n"
     "             --collapsed OUT\n"
     "                          stacks at the highest point, for flame graph tools\n"
     "             --speedscope OUT\n"
     "                          the same for speedscope, and what lives at the end\n"
     "             --pprof OUT  the same for pprof\n",
     PART "\n"
          "Example:\n"
          "  umfctl trace --html run.html run.umfrec\n"},
    {NULL, "names", " [--debuginfod] FILE",
     "  names FILE adds functions and source lines to the file, so that it can be read on a\n"
     "             machine without the program; record and snapshot have done so already\n"
     "             --debuginfod also from the servers of DEBUGINFOD_URLS\n",
     "Example, of a program that ended:\n"
     "  UMF_RECORD=run.umfrec,stacks ./server; umfctl names run.umfrec\n"},
    {NULL, "leaks", " [--largest] [--fail [--allow-destroyed]] [--suppressions FILE] FILE",
     "  leaks FILE live allocations, by the place that made them, the oldest first\n"
     "             --largest    the largest first\n"
     "             --fail       exit status 1 if an allocation lives, or lived when its\n"
     "                          pool was destroyed, or if the file cannot tell\n"
     "             --allow-destroyed\n"
     "                          those of destroyed pools do not count\n"
     "             --suppressions FILE\n"
     "                          lines leak:PATTERN, of functions or files, as LeakSanitizer\n",
     PART "\n"
          "Example, for a test:\n"
          "  UMF_RECORD=run.umfrec,leaks ./test && umfctl leaks --fail run.umfrec\n"},
    {NULL, "diff", " [--collapsed OUT] A B | --from WHEN A",
     "  diff A B   what grew and shrank from one file to the other\n"
     "  diff A --from WHEN\n"
     "             what grew and shrank in one file from then on\n"
     "             --collapsed OUT\n"
     "                          stacks with both sums, for flame graphs of a difference\n",
     PART "\n"
          "Example, of two marks of a recording:\n"
          "  umfctl diff --from begin --to end run.umfrec\n"},
};

#define HELPS (sizeof(helps) / sizeof(helps[0]))

static void show_all(void) {
    fputs("usage: umfctl <command> [--json] [<option>...] [<process> or <file>...]\n\n", stdout);
    for (size_t i = 0; i < HELPS; i++) {
        if (helps[i].heading) {
            printf("\n%s\n", helps[i].heading);
        }
        fputs(helps[i].text, stdout);
    }
    fputs("\n" PART "\n"
          "  --json     for programs instead of people\n"
          "  --help     this text; after a command, that of the command alone\n"
          "  --list     the commands; with a command, its options: for shells that complete\n"
          "  --version  the version of umfctl\n"
          "\n"
          "Exit status: 0 all is well; 1 a step of check, bandwidth or reap failed, a file\n"
          "could not be read, or the output not be written; 2 the command line was wrong.\n",
          stdout);
}

static bool is_of(const help_t *help, const char *command) {
    return strcmp(help->name, command) == 0;
}

bool umfctl_help(const char *command) {
    char text[] = "--help", *words[] = {text};
    bool is_vault = command && strcmp(command, "vault") == 0, is_found = false;
    if (!command) {
        show_all();
        return true;
    }
    if (is_vault || strcmp(command, "remote") == 0) {
        (void)(is_vault ? umfctl_vault : umfctl_remote)(1, words);
        return true;
    }
    for (size_t i = 0; i < HELPS; i++) {
        if (is_of(&helps[i], command)) {
            printf("%s umfctl %s [--json]%s\n", is_found ? "      " : "usage:", command,
                   helps[i].usage);
            is_found = true;
        }
    }
    for (size_t i = 0; i < HELPS; i++) {
        if (is_of(&helps[i], command)) {
            printf("\n%s", helps[i].text);
        }
    }
    for (size_t i = 0; i < HELPS; i++) {
        if (is_of(&helps[i], command) && helps[i].more) {
            printf("\n%s", helps[i].more);
        }
    }
    return is_found;
}

const char *umfctl_words_of(const char *command) {
    return strcmp(command, "vault") == 0
               ? "ls\nstat\nput\nverify\nwatch\ndrop\nstop\n--json\n--dir\n-n\n--draft\n--drop\n"
           : strcmp(command, "remote") == 0 ? "probe\nls\n--json\n--devices\n--key-file\n"
                                            : "";
}
