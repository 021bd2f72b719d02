/*
 * umfctl check: runs the steps, each in a process of its own, which is ended if it takes too long.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plain.h"
#include "report.h"
#include "steps.h"
#include "umfctl.h"

#define STEP_SECONDS 10
#define EXIT_STATE 100 /* a step's process ends with this plus its state */

/* --- where steps may write -------------------------------------------------------------------- */

static bool place_make(steps_place_t *place) {
    const char *tmp = getenv("TMPDIR");
    snprintf(place->shm_name, sizeof(place->shm_name), "umfctl-%d", (int)getpid());
    int length = snprintf(place->folder, sizeof(place->folder), "%s/umfctl-XXXXXX",
                          tmp && *tmp ? tmp : "/tmp");
    if (length < 0 || (size_t)length >= sizeof(place->folder) || !mkdtemp(place->folder)) {
        print_message("no folder could be made in %s: %s", tmp && *tmp ? tmp : "/tmp",
                      strerror(errno));
        return false;
    }
    return true;
}

static void place_remove(const steps_place_t *place) {
    DIR *folder = opendir(place->folder);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        if (entry->d_name[0] != '.') {
            unlinkat(dirfd(folder), entry->d_name, 0);
        }
    }
    if (folder) {
        closedir(folder);
    }
    rmdir(place->folder);
    shm_unlink(place->shm_name);
}

/* --- one step --------------------------------------------------------------------------------- */

/* Blocks the signals that end a wait, and SIGPIPE, so that files of the steps are removed. */
static void block_signals(sigset_t *before) {
    static const int signals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        sigaddset(&blocked, signals[i]);
    }
    sigprocmask(SIG_BLOCK, &blocked, before);
}

static void step_process(const step_t *step, int out, pid_t parent, const sigset_t *signals) {
    char why[STEP_WHY_SIZE] = "";
    setsid(); /* a process group of its own, so that all of it can be ended */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    sigprocmask(SIG_SETMASK, signals, NULL);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* only the parent writes the report */
    report_state_t state = step->run(step, why);
    ssize_t written = write(out, why, strlen(why));
    (void)written;
    _exit(EXIT_STATE + (int)state);
}

static bool has_ended(pid_t child) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child;
}

/* Waits for the process. Returns 0: it has ended; a signal to end; SIGALRM: the time is over. */
static int wait_for_end(pid_t child) {
    struct timespec end, now;
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGHUP);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += STEP_SECONDS;
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        struct timespec rest = {.tv_sec = end.tv_sec - now.tv_sec};
        int signal = rest.tv_sec > 0 ? sigtimedwait(&awaited, NULL, &rest) : -1;
        if (has_ended(child)) {
            return 0;
        } else if (signal > 0 && signal != SIGCHLD) {
            return signal;
        } else if (rest.tv_sec <= 0) {
            return SIGALRM;
        }
    }
}

/* The state that an exit status means. `why` may hold the step's text. */
static report_state_t state_of(int status, char *why, size_t size) {
    if (WIFEXITED(status) && WEXITSTATUS(status) >= EXIT_STATE) {
        return (report_state_t)(WEXITSTATUS(status) - EXIT_STATE);
    }
    if (WIFSIGNALED(status)) {
        snprintf(why, size, "it crashed: %s", strsignal(WTERMSIG(status)));
    } else {
        snprintf(why, size, "it ended the process with status %d", WEXITSTATUS(status));
    }
    return REPORT_FAILED;
}

/* Runs one step. Returns 0, or the signal to end. */
static int step_run(const step_t *step, const sigset_t *signals, report_state_t *state, char *why,
                    size_t size) {
    int ends[2], status;
    pid_t self = getpid();
    *state = REPORT_FAILED;
    if (pipe(ends) != 0) {
        snprintf(why, size, "pipe: %s", strerror(errno));
        return 0;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        step_process(step, ends[1], self, signals);
    }
    close(ends[1]);
    if (child < 0) {
        snprintf(why, size, "fork: %s", strerror(errno));
        close(ends[0]);
        return 0;
    }
    int signal = wait_for_end(child);
    /* The group still exists, because its leader, dead or alive, was not waited for. */
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    ssize_t length = read(ends[0], why, size - 1);
    why[length > 0 ? length : 0] = '\0';
    close(ends[0]);
    if (signal == SIGALRM) {
        snprintf(why, size, "not done after %d seconds, ended", STEP_SECONDS);
        return 0;
    }
    *state = state_of(status, why, size);
    return signal;
}

/* --- all steps -------------------------------------------------------------------------------- */

typedef struct tally_t {
    unsigned passed, skipped, failed;
} tally_t;

static int run_all(const step_t *steps, size_t count, const sigset_t *signals, tally_t *tally) {
    const char *section = NULL;
    int signal = 0;
    for (size_t i = 0; i < count && signal == 0; i++) {
        const step_t *step = &steps[i];
        char why[STEP_WHY_SIZE] = "";
        report_row_t row = {.name = step->name, .state = REPORT_SKIPPED, .note = step->why};
        if (step->section != section) {
            report_section(step->key, step->section, 23);
            section = step->section;
        }
        if (step->run) {
            signal = step_run(step, signals, &row.state, why, sizeof(why));
            row.note = *why ? why : NULL;
        }
        if (signal != 0) {
            row.note = "interrupted";
        }
        report_row(&row);
        tally->passed += row.state == REPORT_OK;
        tally->skipped += row.state == REPORT_SKIPPED;
        tally->failed += row.state == REPORT_FAILED;
    }
    return signal;
}

static void summary(const tally_t *tally) {
    report_section("summary", tally->failed ? "There are problems" : "All is well", 8);
    report_number("passed", tally->passed);
    report_number("skipped", tally->skipped);
    report_number("failed", tally->failed);
}

int umfctl_check(void) {
    steps_place_t place;
    tally_t tally = {0};
    size_t count;
    sigset_t before;
    umfctl_where();
    block_signals(&before);
    if (!place_make(&place)) {
        return 1;
    }
    step_t *steps = steps_list(&place, &count);
    if (!steps) {
        print_message("no memory for the list of steps");
        place_remove(&place);
        return 1;
    }
    int signal = run_all(steps, count, &before, &tally);
    free(steps);
    place_remove(&place);
    if (signal) {
        return 128 + signal;
    }
    summary(&tally);
    return tally.failed ? 1 : 0;
}
