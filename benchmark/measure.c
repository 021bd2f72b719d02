/*
 * umf-bench-measure [--cpus FIRST COUNT] [--input FILE] [--output FILE] LIBRARY PROGRAM
 * [ARGUMENT...]: runs the program with LIBRARY ("" for none) in front by LD_PRELOAD and prints its
 * wall time and processor time in nanoseconds and the peak of its resident memory in KiB. The
 * output of the program, its errors last, goes to the file of --output, and is thrown away without,
 * but for its last line of errors if it fails. With --cpus it runs on COUNT of the CPUs it may use,
 * after FIRST others.
 *
 * A program of its own because a process inherits the peak of the one that started it: this one is
 * small.
 */
#define _GNU_SOURCE 1

#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t in_ns(struct timeval t) {
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
}

static void become(const char *library, char **argv, int input, int output, int errors) {
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    if (library[0]) {
        setenv("LD_PRELOAD", library, 1);
    }
    execvp(argv[0], argv);
    _exit(127);
}

/* The last line of the program's message about its failure. */
static void print_error(FILE *errors, const char *program, int status) {
    char line[512] = "", last[512] = "";
    rewind(errors);
    while (fgets(line, sizeof(line), errors)) {
        memcpy(last, line, sizeof(last));
    }
    last[strcspn(last, "\n")] = 0;
    if (WIFSIGNALED(status)) {
        printf("%s died with signal %d: %s\n", program, WTERMSIG(status), last);
    } else if (WEXITSTATUS(status) == 127) {
        printf("%s is not installed\n", program);
    } else {
        printf("%s ended with status %d: %s\n", program, WEXITSTATUS(status), last);
    }
}

/* The errors of the program follow its output. */
static void append_errors(FILE *errors, int output) {
    char text[4096];
    size_t length;
    rewind(errors);
    while ((length = fread(text, 1, sizeof(text), errors)) > 0 &&
           write(output, text, length) == (ssize_t)length) {
    }
}

/* Takes `name FILE` off the arguments. */
static const char *take_file(const char *name, int *argc, char ***argv) {
    const char *file = "/dev/null";
    if (*argc > 2 && strcmp((*argv)[1], name) == 0) {
        file = (*argv)[2];
        *argc -= 2;
        *argv += 2;
    }
    return file;
}

/* Takes `--cpus FIRST COUNT` off the arguments; the program inherits the mask. */
static int take_cpus(int *argc, char ***argv) {
    if (*argc <= 3 || strcmp((*argv)[1], "--cpus") != 0) {
        return 0;
    }
    const long first = strtol((*argv)[2], NULL, 10);
    const long end = first + strtol((*argv)[3], NULL, 10);
    *argc -= 3;
    *argv += 3;
    cpu_set_t all, chosen;
    CPU_ZERO(&chosen);
    if (sched_getaffinity(0, sizeof(all), &all) != 0) {
        return -1;
    }
    long nth = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &all)) {
            if (nth >= first && nth < end) {
                CPU_SET(cpu, &chosen);
            }
            ++nth;
        }
    }
    return sched_setaffinity(0, sizeof(chosen), &chosen);
}

int main(int argc, char **argv) {
    FILE *errors = tmpfile();
    const int cpus = take_cpus(&argc, &argv);
    const int input = open(take_file("--input", &argc, &argv), O_RDONLY | O_CLOEXEC);
    const int output =
        open(take_file("--output", &argc, &argv), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (argc < 3 || !errors || cpus != 0 || input < 0 || output < 0) {
        fputs("usage: umf-bench-measure [--cpus FIRST COUNT] [--input FILE] [--output FILE] "
              "LIBRARY PROGRAM [ARGUMENT...]\n",
              stderr);
        return 2;
    }
    const uint64_t begin = now_ns();
    const pid_t pid = fork();
    if (pid == 0) {
        become(argv[1], argv + 2, input, output, fileno(errors));
    }
    int status = -1;
    struct rusage usage;
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid) {
        printf("%s cannot be started\n", argv[2]);
        return 1;
    }
    const uint64_t end = now_ns();
    if (status != 0) {
        print_error(errors, argv[2], status);
        return 1;
    }
    append_errors(errors, output);
    printf("%llu %llu %ld\n", (unsigned long long)(end - begin),
           (unsigned long long)(in_ns(usage.ru_utime) + in_ns(usage.ru_stime)), usage.ru_maxrss);
    return 0;
}
