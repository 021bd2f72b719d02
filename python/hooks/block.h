/*
 * Blocks: allocations of a GPU, each with an address for as long as it lives and memory only while
 * its group is awake. A group is a pool over the device's cuda_vmm provider; groups sleep and wake
 * one by one, or several in one call.
 *
 * No thread may use a group that another thread puts to sleep, wakes or destroys.
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
    size_t missing; /* bytes; 0: not known */
    umf_result_t result;
} failure_t;

/* Always false, to be returned. */
bool fail(failure_t *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct group_t {
    umf_memory_pool_handle_t pool;
    int device;
    bool is_asleep;
} group_t;

typedef struct block_t {
    group_t *group;
    char *ptr;
    size_t size; /* as requested */
} block_t;

/* Sizes on a device are multiples of it; 0 without a device. */
size_t block_granularity(int device);

bool group_create(group_t *group, int device, failure_t *error);
/* All of its blocks were destroyed. */
void group_destroy(group_t *group);

bool block_create(block_t *block, group_t *group, size_t size, failure_t *error);
/* Waits until the device has finished with it. */
void block_destroy(block_t *block);

/* All of the groups, or none. Those that are in the wanted state already are passed over. The
 * content is lost, and may be when the call fails, too. */
bool groups_sleep(group_t **groups, size_t count, failure_t *error);
bool groups_wake(group_t **groups, size_t count, failure_t *error);

#endif
