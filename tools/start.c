#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plain.h"

#define DEPTH_MOST 64 /* of processes that started each other */

static struct {
    pid_t pid; /* 0: none was started */
    volatile sig_atomic_t has_ended;
    int status;
    FILE *aside[2]; /* output of the program to 1 and 2; NULL: not kept */
} started;

static bool streams_prepare(start_streams_t streams) {
    for (int i = 0; i < 2 && streams == START_ASIDE; i++) {
        started.aside[i] = tmpfile();
        if (!started.aside[i]) {
            print_message("no file for the output of the program: %s", strerror(errno));
            return false;
        }
    }
    return true;
}

static void streams_set(start_streams_t streams) {
    if (streams == START_TO_ERROR) {
        dup2(STDERR_FILENO, STDOUT_FILENO);
    } else if (streams == START_ASIDE) {
        int none = open("/dev/null", O_RDONLY);
        dup2(none, STDIN_FILENO);
        dup2(fileno(started.aside[0]), STDOUT_FILENO);
        dup2(fileno(started.aside[1]), STDERR_FILENO);
        close(none);
    }
}

static void environment_set(const char *record) {
    char text[8192];
    if (!record) {
        setenv("UMF_RECORD_ATTACH", "yes", 1);
    } else {
        const char *number = strstr(record, "%p");
        if (number) {
            snprintf(text, sizeof(text), "%.*s%d%s", (int)(number - record), record, (int)getpid(),
                     number + 2);
            record = text;
        }
        setenv("UMF_RECORD", record, 1);
    }
}

/* Ctrl-C is for the program, too; umfctl ends after it. */
static void signals_ignore(bool ignores) {
    signal(SIGINT, ignores ? SIG_IGN : SIG_DFL);
    signal(SIGQUIT, ignores ? SIG_IGN : SIG_DFL);
}

void start_pass_on(int number) {
    int before = errno; /* of the code that the signal interrupts */
    if (started.pid > 0 && !started.has_ended) {
        kill(started.pid, number);
    }
    errno = before;
}

static const int endings[] = {SIGTERM, SIGHUP};

/* A terminal that closes, and a process that ends umfctl, mean the program, too. These signals are
 * blocked while it starts. */
static void signals_pass_on(void) {
    struct sigaction action = {.sa_handler = start_pass_on, .sa_flags = SA_RESTART}, before;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        if (sigaction(endings[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(endings[i], &action, NULL);
        }
    }
}

static void signals_block(sigset_t *before) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        sigaddset(&set, endings[i]);
    }
    sigprocmask(SIG_BLOCK, &set, before);
}

static pid_t program_fork(char **words, const char *record, start_streams_t streams, int told) {
    sigset_t before;
    fflush(NULL);
    signals_ignore(true);
    signals_block(&before);
    pid_t child = fork();
    if (child == 0) {
        signals_ignore(false);
        sigprocmask(SIG_SETMASK, &before, NULL);
        environment_set(record);
        streams_set(streams);
        execvp(words[0], words);
        int error = errno;
        bool is_told = write(told, &error, sizeof(error)) == (ssize_t)sizeof(error);
        _exit(is_told ? 127 : 126);
    }
    if (child > 0) {
        started.pid = child;
        signals_pass_on();
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return child;
}

uint32_t start_program(char **words, const char *record, start_streams_t streams) {
    int ends[2], error = 0;
    if (!streams_prepare(streams) || pipe2(ends, O_CLOEXEC) != 0) {
        return 0;
    }
    pid_t child = program_fork(words, record, streams, ends[1]);
    error = child < 0 ? errno : 0;
    close(ends[1]);
    if (child > 0 && read(ends[0], &error, sizeof(error)) == (ssize_t)sizeof(error)) {
        waitpid(child, NULL, 0);
    }
    close(ends[0]);
    if (error) {
        started.pid = 0;
        print_message("%s cannot be started: %s", words[0], strerror(error));
        return 0;
    }
    return (uint32_t)child;
}

/* No signal is passed on to a number that another process may have. */
static bool reap(int how) {
    siginfo_t info = {.si_pid = 0};
    if (!started.has_ended) {
        int error = waitid(P_PID, (id_t)started.pid, &info, WEXITED | WNOWAIT | how) ? errno : 0;
        started.has_ended = info.si_pid == started.pid || (error && error != EINTR);
        if (info.si_pid == started.pid) {
            waitpid(started.pid, &started.status, 0);
        }
    }
    return started.has_ended;
}

bool start_runs(void) {
    return !reap(WNOHANG);
}

static void aside_write(FILE *from, FILE *to) {
    char bytes[65536];
    size_t got;
    rewind(from);
    while ((got = fread(bytes, 1, sizeof(bytes), from)) > 0 && fwrite(bytes, 1, got, to) == got) {
    }
    fflush(to);
    fclose(from);
}

int start_wait(void) {
    while (!reap(0)) {
    }
    for (int i = 0; i < 2; i++) {
        if (started.aside[i]) {
            aside_write(started.aside[i], i == 0 ? stdout : stderr);
            started.aside[i] = NULL;
        }
    }
    return WIFEXITED(started.status) ? WEXITSTATUS(started.status) : 128 + WTERMSIG(started.status);
}

/* 0: it has none. The name of a program may have anything in it, so the last ')' ends it. */
static uint32_t parent_of(uint32_t pid) {
    char path[64], text[512];
    unsigned parent = 0;
    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    text[got] = '\0';
    const char *end = strrchr(text, ')');
    if (file) {
        fclose(file);
    }
    return end && sscanf(end + 1, " %*c %u", &parent) == 1 ? parent : 0;
}

bool start_is_below(uint32_t pid) {
    for (unsigned i = 0; i < DEPTH_MOST && pid > 1; i++) {
        if (pid == (uint32_t)started.pid) {
            return true;
        }
        pid = parent_of(pid);
    }
    return false;
}
