/*
 * Fragmentation to look at: a limit, half of it free, and no room for a large block. Blocks that
 * live long are between those that are freed:
 *
 *     UMF_RECORD=fragments.umfrec,stacks ./umf_example_record_fragments
 *     umfctl trace fragments.umfrec --html fragments.html
 */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/reclaim.h>
#include <umf/record.h>
#include <umf/text.h>

/* Stays a function of its own when it is compiled, so that stacks have its name. */
#define FUNCTION static __attribute__((noinline))

#define MIB ((size_t)1 << 20)
enum { LIMIT = 128, BLOCKS = 120, STEPS = 6 };

static umf_memory_pool_handle_t pool;
static void *results[BLOCKS], *scratch[BLOCKS];

static void *fill(void *block, int with, size_t size) {
    return block ? memset(block, with, size) : NULL;
}

FUNCTION void *keep_result(size_t size) {
    return fill(umfPoolMalloc(pool, size), 'r', size);
}

FUNCTION void *take_scratch(size_t size) {
    return fill(umfPoolMalloc(pool, size), 's', size);
}

FUNCTION void run_step(int step) {
    char name[32];
    snprintf(name, sizeof(name), "step %d", step);
    umfRecordMark(name);
    for (int i = step * BLOCKS / STEPS; i < (step + 1) * BLOCKS / STEPS; i++) {
        scratch[i] = take_scratch(MIB * 3 / 4);
        results[i] = keep_result(MIB / 4);
    }
}

/* The working memory of each step is freed; its results stay where they are, in between. */
static void free_scratch(void) {
    umfRecordMark("free scratch");
    for (int i = 0; i < BLOCKS; i++) {
        umfFree(scratch[i]);
    }
}

static void *join_results(void) {
    return umfPoolMalloc(pool, 32 * MIB);
}

int main(void) {
    umf_pool_group_handle_t group;
    if (umfPoolCreateFromText("coalescing:name=tensors over os", &pool) != UMF_RESULT_SUCCESS ||
        umfPoolGroupCreate(LIMIT * MIB, &group) != UMF_RESULT_SUCCESS ||
        umfPoolGroupAdd(group, pool) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    for (int step = 0; step < STEPS; step++) {
        run_step(step);
    }
    free_scratch();
    void *joined = join_results();
    printf("32 MiB of a limit of %d MiB, of which %zu MiB are in use: %s\n", LIMIT,
           BLOCKS * (MIB / 4) / MIB, joined ? "there was room" : "no room");
    for (int i = 0; i < BLOCKS; i++) {
        umfFree(results[i]);
    }
    umfFree(joined);
    umfPoolDestroy(pool);
    umfPoolGroupDestroy(group);
    return joined != NULL; /* as it was built in */
}
