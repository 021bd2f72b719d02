#include "progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHOWN_AFTER_NS 1000000000u
#define SHOWN_EVERY_NS 100000000u
#define WIDTH 40u

static struct {
    uint64_t began, shown; /* CLOCK_MONOTONIC in ns; 0: not yet */
    bool is_drawn;
} progress;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void draw(uint64_t done, uint64_t total) {
    char bar[WIDTH + 1];
    double part = total > 0 ? (double)done / (double)total : 1;
    part = part < 1 ? part : 1;
    unsigned filled = (unsigned)(part * WIDTH);
    memset(bar, '#', filled);
    memset(bar + filled, '.', WIDTH - filled);
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %3u %%", bar, (unsigned)(100 * part));
    fflush(stderr);
    progress.is_drawn = true;
}

void progress_show(uint64_t done, uint64_t total) {
    uint64_t now = now_ns();
    if (progress.began == 0) {
        progress.began = now;
    }
    if (done >= total) {
        fputs(progress.is_drawn ? "\r\033[K" : "", stderr);
        progress.is_drawn = false;
    } else if (now - progress.began >= SHOWN_AFTER_NS && now - progress.shown >= SHOWN_EVERY_NS &&
               isatty(STDERR_FILENO)) {
        draw(done, total);
        progress.shown = now;
    }
}
