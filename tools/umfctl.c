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

#include <umf.h>
#include <umf/reason.h>

#include "plain.h"
#include "report.h"
#include "umfctl.h"

#define EXIT_USAGE 2

static const struct {
    const char *name;
    int (*run)(void);
    const char *operands[UMFCTL_OPERANDS]; /* what messages call them */
    bool needs_none;                       /* they may be left out */
} commands[] = {
    {"info", umfctl_info, {NULL}, true},
    {"check", umfctl_check, {NULL}, true},
    {"bandwidth", umfctl_bandwidth, {NULL}, true},
    {"settings", umfctl_settings, {NULL}, true},
    {"reap", umfctl_reap, {NULL}, true},
    {"top", umfctl_top, {"the number of a process"}, true},
    {"metrics", umfctl_metrics, {"the number of a process"}, true},
    {"snapshot", umfctl_snapshot, {"the number of a process"}, false},
    {"record", umfctl_record, {"the number of a process"}, false},
    {"names", umfctl_names, {"a recording or snapshot"}, false},
    {"trace", umfctl_trace, {"a recording or snapshot"}, false},
    {"leaks", umfctl_leaks, {"a recording or snapshot, or the number of a process"}, false},
    {"diff", umfctl_diff, {"a recording or snapshot", "another recording or snapshot"}, true},
};

umfctl_words_t umfctl_words;

/* What -n says. */
static double times;

/* The options of commands: a switch, or one with a word or a number after it. */
static const struct {
    const char *name;
    const char *commands; /* with a space before and after each; NULL: of all */
    bool *is_given;
    const char **word;
    double *number;
} options[] = {
    {"--json", NULL, &umfctl_words.json, NULL, NULL},
    {"--size", " bandwidth record ", NULL, &umfctl_words.size_text, NULL},
    {"--events", " trace ", &umfctl_words.events, NULL, NULL},
    {"--html", " trace ", NULL, &umfctl_words.html, NULL},
    {"--chrome", " trace ", NULL, &umfctl_words.chrome, NULL},
    {"--pytorch", " trace ", NULL, &umfctl_words.pytorch, NULL},
    {"--collapsed", " trace diff ", NULL, &umfctl_words.collapsed, NULL},
    {"--speedscope", " trace ", NULL, &umfctl_words.speedscope, NULL},
    {"--perfetto", " trace ", NULL, &umfctl_words.perfetto, NULL},
    {"--pprof", " trace ", NULL, &umfctl_words.pprof, NULL},
    {"--debuginfod", " trace leaks diff names ", &umfctl_words.debuginfod, NULL, NULL},
    {"--each", " metrics ", &umfctl_words.each, NULL, NULL},
    {"--from", " trace leaks diff ", NULL, &umfctl_words.from, NULL},
    {"--to", " trace leaks diff ", NULL, &umfctl_words.to, NULL},
    {"--pool", " trace leaks diff ", NULL, &umfctl_words.pool, NULL},
    {"--suppressions", " leaks ", NULL, &umfctl_words.suppressions, NULL},
    {"--largest", " leaks ", &umfctl_words.largest, NULL, NULL},
    {"--fail", " leaks ", &umfctl_words.fail, NULL, NULL},
    {"--allow-destroyed", " leaks ", &umfctl_words.allow_destroyed, NULL, NULL},
    {"-o", " snapshot record ", NULL, &umfctl_words.output, NULL},
    {"--stacks", " record ", &umfctl_words.stacks, NULL, NULL},
    {"--leaks", " record ", &umfctl_words.leaks, NULL, NULL},
    {"--seconds", " record leaks ", NULL, NULL, &umfctl_words.seconds},
    {"--interval", " top ", NULL, NULL, &umfctl_words.interval},
    {"-n", " top ", NULL, NULL, &times},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))
#define OPTIONS (sizeof(options) / sizeof(options[0]))

/* A number of bytes from 4K to 1T. */
static bool parse_size(const char *text) {
    static const char units[] = "KMGT";
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    const char *unit = number && number < 1024 * 1024 && *end ? strchr(units, *end) : NULL;
    umfctl_words.size = unit ? (size_t)number << 10 * (unit - units + 1) : 0;
    return unit && !end[1] && umfctl_words.size <= (size_t)1 << 40 && umfctl_words.size >= 4096;
}

static int bad_usage(const char *what, const char *word) {
    print_message("%s%s%s%s", what, word ? " '" : "", word ? word : "", word ? "'" : "");
    fputs("Try 'umfctl --help'.\n", stderr);
    return EXIT_USAGE;
}

/* Characters that differ when both words are compared from both ends. */
static size_t difference(const char *word, const char *name) {
    size_t ends[] = {strlen(word), strlen(name)}, begin = 0;
    for (; word[begin] && word[begin] == name[begin]; begin++) {
    }
    for (; ends[0] > begin && ends[1] > begin && word[ends[0] - 1] == name[ends[1] - 1];
         ends[0]--, ends[1]--) {
    }
    return (ends[0] > ends[1] ? ends[0] : ends[1]) - begin;
}

/* Of the command or option that the word is the beginning of, or differs from least: NULL if in
 * more than two characters. */
static const char *nearest_of(const char *word, const char *(*name_of)(size_t), size_t count) {
    const char *nearest = NULL;
    size_t least = 3;
    for (size_t i = 0; i < count; i++) {
        const char *name = name_of(i);
        bool begins = strlen(word) > 1 && strncmp(name, word, strlen(word)) == 0;
        size_t differs = begins ? 0 : difference(word, name);
        if (differs < least && differs < strlen(name)) {
            nearest = name;
            least = differs;
        }
    }
    return nearest;
}

static int unknown_word(const char *what, const char *word, const char *nearest) {
    print_message("%s '%s'", what, word);
    if (nearest) {
        fprintf(stderr, "The nearest is '%s'. ", nearest);
    }
    fputs("Try 'umfctl --help'.\n", stderr);
    return EXIT_USAGE;
}

static const char *command_name(size_t i) {
    return commands[i].name;
}

static const char *option_name(size_t i) {
    return options[i].name;
}

const char *umfctl_reason(umf_result_t result) {
    const char *text = umfLastErrorText();
    return *text ? text : umfResultText(result);
}

static int say(const char *text) {
    fputs(text, stdout);
    return report_end() == 0 ? 0 : 1;
}

/* Of a command, or of all. */
static int help(const char *command) {
    const char *nearest = command ? nearest_of(command, command_name, COMMANDS) : NULL;
    return umfctl_help(command) ? say("") : unknown_word("unknown command", command, nearest);
}

static size_t command_of(const char *word) {
    size_t found = 0;
    while (found < COMMANDS && strcmp(word, commands[found].name) != 0) {
        found++;
    }
    return found;
}

static size_t option_of(const char *word) {
    size_t found = 0;
    while (found < OPTIONS && strcmp(word, options[found].name) != 0) {
        found++;
    }
    return found;
}

static bool is_option_of(size_t option, size_t command) {
    char name[32];
    snprintf(name, sizeof(name), " %s ", command < COMMANDS ? commands[command].name : "");
    return !options[option].commands || strstr(options[option].commands, name);
}

/* For shells that complete: the commands, or the words of one. */
static int list(const char *command) {
    size_t found = command ? command_of(command) : COMMANDS;
    const char *words = command ? umfctl_words_of(command) : "";
    for (size_t i = 0; !command && i < COMMANDS; i++) {
        printf("%s\n", commands[i].name);
    }
    if (!command) {
        return say("vault\nremote\nhelp\n--help\n--version\n");
    }
    for (size_t i = 0; found < COMMANDS && i < OPTIONS; i++) {
        if (is_option_of(i, found)) {
            printf("%s\n", options[i].name);
        }
    }
    fputs(words, stdout);
    return say(found < COMMANDS || *words ? "--help\n" : "");
}

static int run(size_t command) {
    report_begin(commands[command].name, umfctl_words.json);
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

/* From a thousandth to a million. */
static bool parse_number(const char *word, double *number) {
    char *end;
    double read = strtod(word, &end);
    *number = read;
    return *word >= '0' && *word <= '9' && *end == '\0' && read >= 0.001 && read <= 1e6;
}

/* Takes an option of `command`, and the word after it. Returns 0, or the exit status. */
static int take_option(size_t command, char **words, int *at) {
    size_t option = option_of(words[*at]);
    if (option == OPTIONS) {
        return unknown_word("unknown option", words[*at],
                            nearest_of(words[*at], option_name, OPTIONS));
    } else if (!is_option_of(option, command)) {
        return bad_usage("not an option of this command:", words[*at]);
    } else if (options[option].is_given) {
        *options[option].is_given = true;
        return 0;
    }
    const char *word = words[*at + 1];
    bool is_size = options[option].word == &umfctl_words.size_text;
    if (is_size && !(word && parse_size(word))) {
        return bad_usage("--size is a number with K, M, G or T, not", word);
    } else if (!word) {
        return bad_usage("a word is missing after", words[*at]);
    }
    ++*at;
    if (options[option].word) {
        *options[option].word = word;
    } else if (!parse_number(word, options[option].number)) {
        return bad_usage("a number from 0.001 to 1000000 is needed, not", word);
    }
    return 0;
}

static int take_operand(size_t command, const char *word) {
    size_t count = umfctl_words.operand_count;
    if (count == UMFCTL_OPERANDS || !commands[command].operands[count]) {
        return bad_usage(command_of(word) < COMMANDS ? "one command at a time, but there is also"
                                                     : "one word too many:",
                         word);
    }
    umfctl_words.operands[umfctl_words.operand_count++] = word;
    return 0;
}

static int take_program(size_t command, char **words) {
    const char *name = command < COMMANDS ? commands[command].name : "";
    if (strcmp(name, "top") != 0 && strcmp(name, "record") != 0) {
        return bad_usage("only top and record start a program with --", NULL);
    } else if (!words[0]) {
        return bad_usage("a program is missing after --", NULL);
    } else if (umfctl_words.operand_count > 0) {
        return bad_usage("either a process or a program, but there is also",
                         umfctl_words.operands[0]);
    } else if (umfctl_words.json || umfctl_words.seconds > 0) {
        return bad_usage("not with a program after --: --json, --seconds", NULL);
    }
    umfctl_words.program = words;
    return 0;
}

int main(int argc, char **argv) {
    size_t command = COMMANDS;
    setlocale(LC_CTYPE, "");
    if (!has_streams()) {
        return print_message("there is no standard output");
    }

    if (argc > 1 && strcmp(argv[1], "vault") == 0) {
        return umfctl_vault(argc - 2, argv + 2);
    }
    if (argc > 1 && strcmp(argv[1], "remote") == 0) {
        return umfctl_remote(argc - 2, argv + 2);
    }
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        int status = 0;
        const char *name = command < COMMANDS ? commands[command].name : NULL;
        if (i == 1 && strcmp(word, "help") == 0) {
            return help(argv[2]);
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            return help(name);
        } else if (i == 1 && strcmp(word, "--list") == 0) {
            return list(argv[2]);
        } else if (strcmp(word, "--version") == 0) {
            return say("umfctl " UMFCTL_VERSION "\n");
        } else if (strcmp(word, "--") == 0) {
            status = take_program(command, argv + i + 1);
            i = argc;
        } else if (word[0] == '-') {
            status = take_option(command, argv, &i);
        } else if (command != COMMANDS) {
            status = take_operand(command, word);
        } else if ((command = command_of(word)) == COMMANDS) {
            status =
                unknown_word("unknown command", word, nearest_of(word, command_name, COMMANDS));
        }
        if (status != 0) {
            return status;
        }
    }
    if (command == COMMANDS) {
        return bad_usage("a command is missing", NULL);
    }
    size_t operands = umfctl_words.operand_count;
    if (!commands[command].needs_none && !umfctl_words.program && operands < UMFCTL_OPERANDS &&
        commands[command].operands[operands]) {
        print_message("%s needs %s", commands[command].name, commands[command].operands[operands]);
        fputs("Try 'umfctl --help'.\n", stderr);
        return EXIT_USAGE;
    }
    umfctl_words.times = (unsigned)times;
    return run(command);
}
