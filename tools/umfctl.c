/*
 * umfctl: shows what libumf offers on this machine, and whether it works.
 *
 * docs/man/umfctl.1 is its manual.
 */
#include <fcntl.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "umfctl.h"

#define EXIT_USAGE 2

static const char usage[] =
    "usage: umfctl <command> [--json] [--size BYTES]\n"
    "\n"
    "  info       what there is: providers, pools, NUMA nodes, GPUs, limits that matter\n"
    "  check      tests all of it; send the output along when you report a problem\n"
    "  bandwidth  how fast data goes between any two places: memory of the host, files,\n"
    "             pinned memory, NUMA nodes, GPUs; and which way it takes\n"
    "  settings   what each provider and pool takes in creation text, with its default\n"
    "  reap       removes named shared memory that crashed processes left\n"
    "\n"
    "  --json     for programs instead of people\n"
    "  --size     of one copy of bandwidth, such as 64M; by default up to 256M\n"
    "  --help     this text\n"
    "  --version  the version of umfctl\n"
    "\n"
    "Exit status: 0 all is well; 1 a step of check, bandwidth or reap failed, or the\n"
    "output could not be written; 2 the command line was wrong.\n";

static const struct {
    const char *name;
    int (*run)(void);
} commands[] = {
    {"info", umfctl_info},         {"check", umfctl_check}, {"bandwidth", umfctl_bandwidth},
    {"settings", umfctl_settings}, {"reap", umfctl_reap},
};

size_t umfctl_size;

/* A number of bytes from 4K to 1T. */
static bool parse_size(const char *text) {
    static const char units[] = "KMGT";
    char *end;
    unsigned long long number = text ? strtoull(text, &end, 10) : 0;
    const char *unit = number && number < 1024 * 1024 && *end ? strchr(units, *end) : NULL;
    umfctl_size = unit ? (size_t)number << 10 * (unit - units + 1) : 0;
    return unit && !end[1] && umfctl_size <= (size_t)1 << 40 && umfctl_size >= 4096;
}

static int bad_usage(const char *what, const char *word) {
    fprintf(stderr, "umfctl: %s%s%s%s\n", what, word ? " '" : "", word ? word : "",
            word ? "'" : "");
    fputs("Try 'umfctl --help'.\n", stderr);
    return EXIT_USAGE;
}

static int say(const char *text) {
    fputs(text, stdout);
    return report_end() == 0 ? 0 : 1;
}

static int run(size_t command, bool json) {
    report_begin(commands[command].name, json);
    int status = commands[command].run();
    return report_end() == 0 ? status : 1;
}

/* If a standard descriptor is closed, the next opened file gets its number, and our output. */
static bool has_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && (fd == STDOUT_FILENO || open("/dev/null", O_RDWR) != fd)) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv) {
    const size_t count = sizeof(commands) / sizeof(commands[0]);
    size_t command = count;
    bool json = false;
    setlocale(LC_CTYPE, "");
    if (!has_streams()) {
        fputs("umfctl: there is no standard output\n", stderr);
        return 1;
    }

    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        size_t found = 0;
        while (found < count && strcmp(word, commands[found].name) != 0) {
            found++;
        }
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            return say(usage);
        } else if (strcmp(word, "--version") == 0) {
            return say("umfctl " UMFCTL_VERSION "\n");
        } else if (strcmp(word, "--json") == 0) {
            json = true;
        } else if (strcmp(word, "--size") == 0) {
            if (!parse_size(argv[++i])) {
                return bad_usage("--size is a number with K, M, G or T, not", argv[i]);
            }
        } else if (word[0] == '-') {
            return bad_usage("unknown option", word);
        } else if (found == count) {
            return bad_usage("unknown command", word);
        } else if (command != count) {
            return bad_usage("one command at a time, but there is also", word);
        } else {
            command = found;
        }
    }
    if (command == count) {
        return bad_usage("a command is missing", NULL);
    }
    return run(command, json);
}
