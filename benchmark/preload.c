/*
 * umf-bench-preload [LIBRARY]: malloc and free as the program finds them, so what LD_PRELOAD put
 * there. Prints nanoseconds of a pair and, from batches of 1,000 mixed sizes, of one object. Fails
 * if LIBRARY is not in the process: the loader only warns about one it cannot find.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAIRS 2000000u
#define BATCH 1000u
#define BATCHES 2000u

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pairs(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        void *volatile ptr = malloc(64);
        free(ptr);
    }
}

static void batches(unsigned count) {
    static void *volatile ptrs[BATCH];
    for (unsigned i = 0; i < count; i++) {
        for (unsigned k = 0; k < BATCH; k++) {
            ptrs[k] = malloc(16 + (k * 37 & 511));
        }
        for (unsigned k = 0; k < BATCH; k++) {
            free(ptrs[k]);
        }
    }
}

static int is_loaded(const char *library) {
    char line[4096];
    int is_found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !is_found && fgets(line, sizeof(line), maps)) {
        is_found = strstr(line, library) != NULL;
    }
    if (maps) {
        fclose(maps);
    }
    return is_found;
}

int main(int argc, char **argv) {
    if (argc > 1 && argv[1][0] && !is_loaded(argv[1])) {
        printf("%s is not here\n", argv[1]);
        return 1;
    }
    pairs(PAIRS / 10);
    batches(BATCHES / 10);
    const uint64_t t0 = now_ns();
    pairs(PAIRS);
    const uint64_t t1 = now_ns();
    batches(BATCHES);
    const uint64_t t2 = now_ns();
    printf("%.3f %.3f\n", (double)(t1 - t0) / PAIRS, (double)(t2 - t1) / ((double)BATCHES * BATCH));
    return 0;
}
