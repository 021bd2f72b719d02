/*
 * Hits a process at a step of the protocol, once. The file `die` in the place has three words:
 * whose end ("daemon", "keeper", "both", or the number of a client), the signal, and the step,
 * counted from the moment at which the file was there. It is removed then.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/serve.h"

/* Where a daemon started its keeper, its parent may be any process. */
static int is_keeper(pid_t pid) {
    char path[64], word[5] = "";
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    FILE *file = fopen(path, "r");
    if (file) {
        (void)!fread(word, 1, sizeof(word) - 1, file);
        fclose(file);
    }
    return strcmp(word, "umfd") == 0;
}

void umfd_step(void) {
    static unsigned count;
    static char who[16];
    static unsigned wanted;
    static int number;
    if (wanted == 0) {
        FILE *file = fopen("die", "r");
        if (!file) {
            return;
        }
        if (fscanf(file, "%15s %d %u", who, &number, &wanted) != 3) {
            wanted = 0;
        }
        fclose(file);
    }
    if (wanted == 0 || ++count != wanted || unlink("die") != 0) {
        return;
    }
    pid_t client = (pid_t)strtol(who, NULL, 10);
    if (client > 0) {
        kill(client, number);
    }
    /* The first keeper is the parent. */
    if ((strcmp(who, "keeper") == 0 || strcmp(who, "both") == 0) && is_keeper(getppid())) {
        kill(getppid(), number);
    }
    if (strcmp(who, "daemon") == 0 || strcmp(who, "both") == 0) {
        kill(getpid(), number);
    }
}

/* The file `term` in the place orders it. */
void umfd_step_before_wait(void) {
    if (unlink("term") == 0) {
        kill(getpid(), SIGTERM);
    }
}
