/* umf-bench-vault: what its files have in common. */
#ifndef UMF_BENCHMARK_VAULT_H
#define UMF_BENCHMARK_VAULT_H

#include "figures.h"

/* Generations from umf-remote, whose program it is. vault_fetch.c */
void fetches(const char *program);

/* Memory of a GPU; it says so if there is none. vault_gpu.c */
void gpu_attaches(void);
/* Whether this process is one that gpu_attaches has started, and its exit status. */
bool gpu_role(int count, char **words, int *status);

#endif
