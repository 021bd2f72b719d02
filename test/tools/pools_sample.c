/*
 * A program to look at: pools with known content. It says "ready" and its number, then obeys the
 * lines that it reads: "grow" allocates more, "drop" frees one of the first blocks, "end" ends it.
 * Each word on the command line is the creation text of a further pool, with 51 allocations: 50 of
 * 1,000 bytes and one of 1 MiB, and a request that is refused.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <umf/memory_pool.h>
#include <umf/text.h>

static umf_memory_pool_handle_t make(const char *text) {
    umf_memory_pool_handle_t pool = NULL;
    if (umfPoolCreateFromText(text, &pool) != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "pools_sample: %s\n", umfTextError());
    }
    return pool;
}

static int fill(umf_memory_pool_handle_t pool, size_t size, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        if (!umfPoolMalloc(pool, size)) {
            return 1;
        }
    }
    return 0;
}

/* Twice as many, and half of them freed. */
static int fill_in_part(umf_memory_pool_handle_t pool) {
    void *blocks[100];
    for (unsigned i = 0; i < 100; i++) {
        if (!(blocks[i] = umfPoolMalloc(pool, 1000))) {
            return 1;
        }
    }
    for (unsigned i = 0; i < 100; i += 2) {
        umfFree(blocks[i]);
    }
    return fill(pool, 1 << 20, 1) || umfPoolMalloc(pool, (size_t)1 << 55) != NULL;
}

int main(int argc, char **argv) {
    umf_memory_pool_handle_t small = make("disjoint:name=small over os");
    umf_memory_pool_handle_t large = make("coalescing:name=large over linux_vmm");
    void *first = large ? umfPoolMalloc(large, 1 << 20) : NULL;
    if (!small || !first || fill(small, 1000, 100) || fill(large, 1 << 20, 4)) {
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        umf_memory_pool_handle_t pool = make(argv[i]);
        if (!pool || fill_in_part(pool)) {
            return 1;
        }
    }
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof(line), stdin) && strcmp(line, "end\n") != 0) {
        if (strcmp(line, "grow\n") == 0) {
            fill(large, 1 << 20, 10);
            puts("grown");
            fflush(stdout);
        } else if (strcmp(line, "drop\n") == 0) {
            umfFree(first);
            first = NULL;
            puts("dropped");
            fflush(stdout);
        }
    }
    return 0;
}
