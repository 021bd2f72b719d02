/* Another process that publishes memory. */
#ifndef UMF_BENCHMARK_OWNER_H
#define UMF_BENCHMARK_OWNER_H

#include <stdbool.h>
#include <sys/types.h>

#include <umf/remote.h>

/* A piece for each allocation. */
#define REMOTE_POOL "proxy over linux_vmm:piece_size=4K"

typedef struct owner_t {
    pid_t process;
    unsigned char handle[UMF_REMOTE_HANDLE_MAX];
    size_t handle_size;
} owner_t;

/* Before this process has a context. The memory is written, so it has pages. */
bool owner_start(owner_t *owner, size_t size, unsigned rights);
/* Ends a child; nothing happens if it was not started. */
void process_end(pid_t process);

#endif
