/*
 * Memory is allocated and freed while work that uses it is still queued.
 *
 * The program fills a block on a stream, copies it out on another one, and frees it without waiting
 * for either. It takes the two default streams of the CUDA driver, so it needs no header of CUDA;
 * without a GPU it uses ordinary memory, whose only queue is NULL.
 */
#include <stdint.h>
#include <stdio.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/queue.h>
#include <umf/text.h>

enum { ROUNDS = 4, COUNT = 1 << 16 };

/* Fills the block on one queue and copies it on the other one. The driver orders the two default
 * streams itself; other streams need an event between them. */
static umf_result_t work(uint32_t *block, uint32_t *out, uint32_t value, umf_queue_t compute,
                         umf_queue_t copies) {
    umf_copy_params_t on_compute = UMF_COPY_PARAMS_INIT, on_copies = UMF_COPY_PARAMS_INIT;
    on_compute.queue = compute;
    on_copies.queue = copies;
    umf_result_t result = umfFill(block, &value, sizeof(value), COUNT * sizeof(value), &on_compute);
    return result == UMF_RESULT_SUCCESS
               ? umfCopy(out, block, COUNT * sizeof(value), copies ? &on_copies : NULL)
               : result;
}

static int run(const char *text, umf_queue_t compute, umf_queue_t copies) {
    static uint32_t out[COUNT];
    umf_memory_pool_handle_t pool;
    if (umfPoolCreateFromText(text, &pool) != UMF_RESULT_SUCCESS) {
        printf("%-32s not here\n", text);
        return 0;
    }
    int failed = 0;
    for (uint32_t round = 1; round <= ROUNDS && !failed; round++) {
        uint32_t *block = umfPoolMallocOn(pool, sizeof(out), 0, compute);
        failed = !block || work(block, out, round, compute, copies) != UMF_RESULT_SUCCESS;
        if (block) {
            printf("%-32s round %u at %p\n", text, (unsigned)round, (void *)block);
            umfUseOn(block, copies); /* the free waits for the copy, too */
            umfFreeOn(block, compute);
        }
    }
    umfPoolWaitPending(pool, UINT64_MAX, NULL); /* the copies have ended, too */
    failed = failed || out[0] != ROUNDS || out[COUNT - 1] != ROUNDS;
    umfPoolDestroy(pool);
    return failed;
}

int main(void) {
    const umf_queue_t legacy = (umf_queue_t)1, per_thread = (umf_queue_t)2; /* CU_STREAM_... */
    return run("coalescing over os", NULL, NULL) ||
           run("coalescing over cuda_vmm:device=0", legacy, per_thread);
}
