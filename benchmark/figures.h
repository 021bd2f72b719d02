/* What benchmarks of vaults and remote memory print: figures beside their bars. */
#ifndef UMF_BENCHMARK_FIGURES_H
#define UMF_BENCHMARK_FIGURES_H

#include <stdbool.h>
#include <time.h>

double now_ms(clockid_t clock);
void nap_ms(long ms);
double least(double a, double b);

/* The line above the rows. */
void head(void);
/* A figure beside its bar, one that it is compared with, and one that could not be measured. */
void row(const char *what, double value, const char *unit, double bar);
void anchor(const char *what, double value, const char *unit);
void not_measured(const char *what);
/* A row is above its bar, or was not measured. */
bool has_missed(void);

#endif
