/*
 * Blocks: one allocation of a GPU, its address for as long as it lives, its memory only while it is
 * awake. Each has a pool of its own over the device's cuda_vmm provider, so that it sleeps and
 * wakes by itself or in one call with others.
 *
 * A function that fails writes why into an failure_t.
 */
#ifndef UMF_PYTHON_HOOKS_BLOCK_H
#define UMF_PYTHON_HOOKS_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf.h>

typedef struct failure_t {
    char text[512];
    size_t missing; /* bytes, if it is known that they are */
    umf_result_t result;
} failure_t;

/* Always false, to be returned. */
bool fail(failure_t *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct block_t {
    umf_memory_pool_handle_t pool;
    char *ptr;
    size_t size; /* as it was asked for */
    int device;
    bool is_asleep;
} block_t;

/* What sizes are rounded up to on a device; 0 without one. */
size_t block_granularity(int device);

bool block_create(block_t *block, size_t size, int device, failure_t *error);
/* Waits until the device has finished with it. */
void block_destroy(block_t *block);

/* All of the blocks, or none. Those that are in the wanted state already are passed over. The
 * content is lost. */
bool blocks_sleep(block_t **blocks, size_t count, failure_t *error);
bool blocks_wake(block_t **blocks, size_t count, failure_t *error);

#endif
