/*
 * Per-thread blocks as the C++ test sees them: their header uses C11 atomics.
 */
#include "local_shim.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/thread_slot.h"

typedef struct shim_block_t {
    umf_thread_slot_t head;
    atomic_int value;
    int filler[10];
} shim_block_t;

struct shim_owner_t {
    umf_thread_slot_owner_t owner;
    shim_owner_t *other; /* used by thread_exit */
    atomic_int exits;
    atomic_int sum;
    int delay_us;
    int *watched; /* written by thread_exit: gone when the owner is */
};

static void shim_thread_exit(umf_thread_slot_owner_t *base, umf_thread_slot_t *head) {
    shim_owner_t *owner = (shim_owner_t *)base;
    shim_block_t *block = (shim_block_t *)head;
    if (owner->other) {
        shim_add(owner->other, 1);
    }
    if (owner->delay_us) {
        nanosleep(&(struct timespec){.tv_nsec = owner->delay_us * 1000L}, NULL);
    }
    if (owner->watched) {
        ++*owner->watched;
    }
    atomic_fetch_add(&owner->sum, atomic_load(&block->value));
    atomic_fetch_add(&owner->exits, 1);
}

shim_owner_t *shim_create(bool with_exit) {
    shim_owner_t *owner = calloc(1, sizeof(*owner));
    if (umf_thread_slot_owner_init(&owner->owner, 0, sizeof(shim_block_t),
                                   with_exit ? shim_thread_exit : NULL) != UMF_RESULT_SUCCESS) {
        free(owner);
        return NULL;
    }
    return owner;
}

void shim_close(shim_owner_t *owner) {
    umf_thread_slot_owner_close(&owner->owner);
}

void shim_destroy(shim_owner_t *owner) {
    umf_thread_slot_owner_fini(&owner->owner);
    free(owner);
}

void shim_watch(shim_owner_t *owner, int *watched, int delay_us) {
    owner->watched = watched;
    owner->delay_us = delay_us;
}

void shim_use_other(shim_owner_t *owner, shim_owner_t *other) {
    owner->other = other;
}

uint64_t shim_number_as_new(void) {
    return umf_thread_slot_number_slow();
}

uint64_t shim_number(void) {
    return umf_thread_slot_number();
}

uint32_t shim_index(const shim_owner_t *owner) {
    return owner->owner.index;
}

bool shim_has(const shim_owner_t *owner) {
    return umf_thread_slot_get(owner->owner.index)->owner != NULL;
}

bool shim_add(shim_owner_t *owner, int value) {
    umf_thread_slot_t *block = umf_thread_slot_get(owner->owner.index);
    if (!block->owner) {
        block = umf_thread_slot_make(&owner->owner);
    }
    if (!block) {
        return false;
    }
    atomic_fetch_add(&((shim_block_t *)block)->value, value);
    return true;
}

void *shim_make(shim_owner_t *owner) {
    return umf_thread_slot_make(&owner->owner);
}

int shim_value(const shim_owner_t *owner) {
    return atomic_load(&((shim_block_t *)umf_thread_slot_get(owner->owner.index))->value);
}

int shim_exits(shim_owner_t *owner) {
    return atomic_load(&owner->exits);
}

int shim_exit_sum(shim_owner_t *owner) {
    return atomic_load(&owner->sum);
}

typedef struct shim_totals_t {
    int blocks, sum;
} shim_totals_t;

static void shim_count(umf_thread_slot_t *block, void *arg) {
    shim_totals_t *totals = arg;
    totals->blocks++;
    totals->sum += atomic_load(&((shim_block_t *)block)->value);
}

int shim_blocks(shim_owner_t *owner) {
    shim_totals_t totals = {0, 0};
    umf_thread_slot_each(&owner->owner, shim_count, &totals);
    return totals.blocks;
}

int shim_sum(shim_owner_t *owner) {
    shim_totals_t totals = {0, 0};
    umf_thread_slot_each(&owner->owner, shim_count, &totals);
    return totals.sum;
}
