#include "figures.h"

#include <stdio.h>

#include <umf/reason.h>

static int missed;

double now_ms(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

void nap_ms(long ms) {
    struct timespec time = {.tv_nsec = ms * 1000000};
    nanosleep(&time, NULL);
}

double least(double a, double b) {
    return a < b ? a : b;
}

void head(void) {
    printf("%-58s %10s %-5s %8s  %s\n", "", "measured", "", "bar", "met");
}

void row(const char *what, double value, const char *unit, double bar) {
    bool is_met = value <= bar;
    missed += !is_met;
    printf("%-58s %10.3f %-5s %8.2f  %s\n", what, value, unit, bar, is_met ? "yes" : "NO");
}

void anchor(const char *what, double value, const char *unit) {
    printf("  %-56s %10.3f %s\n", what, value, unit);
}

void not_measured(const char *what) {
    printf("%-58s not measured: %s\n", what, umfLastErrorText());
    missed++;
}

bool has_missed(void) {
    return missed != 0;
}
