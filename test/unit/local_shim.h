/*
 * An owner of per-thread blocks that hold one number.
 */
#ifndef UMF_TEST_UNIT_LOCAL_SHIM_H
#define UMF_TEST_UNIT_LOCAL_SHIM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct shim_owner_t shim_owner_t;

shim_owner_t *shim_create(bool with_exit);
void shim_close(shim_owner_t *owner);
void shim_destroy(shim_owner_t *owner);

/* What `thread_exit` does besides counting: it adds 1 to `*watched`, or uses another owner. */
void shim_watch(shim_owner_t *owner, int *watched, int delay_us);
void shim_use_other(shim_owner_t *owner, shim_owner_t *other);

uint32_t shim_index(const shim_owner_t *owner);

uint64_t shim_number(void);
/* The calling thread gets a number as if it had begun just now. */
uint64_t shim_number_as_new(void);

/* The calling thread's block. */
bool shim_has(const shim_owner_t *owner);
bool shim_add(shim_owner_t *owner, int value);
void *shim_make(shim_owner_t *owner);
int shim_value(const shim_owner_t *owner);

/* How often `thread_exit` ran, and the sum of the numbers it saw. */
int shim_exits(shim_owner_t *owner);
int shim_exit_sum(shim_owner_t *owner);

/* Over the blocks of all threads. */
int shim_blocks(shim_owner_t *owner);
int shim_sum(shim_owner_t *owner);

#endif
