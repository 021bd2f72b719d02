/*
 * A page cache on a provider, with a record of one number per page.
 */
#ifndef UMF_TEST_UNIT_PAGES_SHIM_H
#define UMF_TEST_UNIT_PAGES_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/memory_provider.h>

typedef struct shim_pages_t shim_pages_t;

/* NULL: no view could be made. */
shim_pages_t *shim_pages_create(umf_memory_provider_handle_t provider, size_t granule);
umf_result_t shim_pages_destroy(shim_pages_t *shim);

void *shim_take(shim_pages_t *shim, size_t size, size_t alignment);
void *shim_alloc(shim_pages_t *shim, size_t size, size_t alignment);
umf_result_t shim_grow(shim_pages_t *shim, size_t size, size_t alignment);
void shim_put(shim_pages_t *shim, void *ptr, size_t size);
umf_result_t shim_split(shim_pages_t *shim, void *ptr, size_t total, size_t first);
void shim_settle(shim_pages_t *shim);
void shim_trim(shim_pages_t *shim);
/* A look as if a period had passed. */
bool shim_decay(shim_pages_t *shim);
size_t shim_total(shim_pages_t *shim);
size_t shim_used(shim_pages_t *shim);

/* Shards, and which one holds `ptr`. */
size_t shim_shards(shim_pages_t *shim);
size_t shim_shard_of(shim_pages_t *shim, const void *ptr);
/* Holds the lock of the first shard, as a thread that takes from there, until it is let go. */
void shim_hold(shim_pages_t *shim);
void shim_let_go(shim_pages_t *shim);
/* Does another thread wait for it? */
bool shim_is_awaited(shim_pages_t *shim);

/* The record of the page that holds `ptr`, NULL if it is in no span. */
uint64_t *shim_record(shim_pages_t *shim, const void *ptr);

#endif
