/* The parts of umfctl. Each command writes its report and returns an exit status. */
#ifndef UMFCTL_H
#define UMFCTL_H

#include <stdbool.h>
#include <stddef.h>

#include <umf/base.h>

int umfctl_info(void);
int umfctl_bandwidth(void);
int umfctl_check(void);
int umfctl_settings(void);
int umfctl_reap(void);
int umfctl_names(void);
int umfctl_trace(void);
int umfctl_leaks(void);
int umfctl_diff(void);
int umfctl_snapshot(void);
int umfctl_record(void);
int umfctl_top(void);
int umfctl_metrics(void);
/* With the words after them, because their actions have words of their own. */
int umfctl_vault(int count, char **words);
int umfctl_remote(int count, char **words);

/* Writes the help of a command, or of all if it is NULL. false: there is no such command. */
bool umfctl_help(const char *command);
/* Actions and options of vault and remote, one in a line; "" of other commands. */
const char *umfctl_words_of(const char *command);

/* Why the last call of the library failed: call umfLastErrorClear before it. Valid until the next
 * call. */
const char *umfctl_reason(umf_result_t result);

#define UMFCTL_OPERANDS 2

/* The words of the command line; absent ones are 0. */
typedef struct umfctl_words_t {
    bool json;
    size_t size; /* of --size */
    const char *size_text;
    const char *operands[UMFCTL_OPERANDS];
    size_t operand_count;
    char **program; /* the words after "--"; NULL: none */
    bool events, largest, fail, allow_destroyed;
    const char *html, *chrome, *pytorch, *collapsed, *speedscope, *pprof,
        *perfetto; /* files to write */
    bool stacks, leaks;
    bool debuginfod;
    bool each;                    /* of metrics */
    const char *from, *to, *pool; /* the part of a file */
    const char *suppressions;
    const char *output;       /* of -o */
    double seconds, interval; /* 0: not given */
    unsigned times;           /* of -n */
} umfctl_words_t;

extern umfctl_words_t umfctl_words;

/* The first sections of all reports: library and machine. */
void umfctl_where(void);

/* The sections of info that look at the machine. */
void machine_nodes(void);
void machine_devices(void);
void machine_limits(void);

#endif /* UMFCTL_H */
