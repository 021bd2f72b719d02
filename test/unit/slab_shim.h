/* Bins and slabs behind plain functions: their header is C11 with atomics. */
#ifndef UMF_TEST_UNIT_SLAB_SHIM_H
#define UMF_TEST_UNIT_SLAB_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shim_bin_t shim_bin_t;

/* One bin over a provider; `limit` SIZE_MAX: none. */
shim_bin_t *shim_bin_create(umf_memory_provider_handle_t provider, size_t size, size_t slab_size,
                            size_t max_kept, size_t limit);
void shim_bin_destroy(shim_bin_t *bin);
size_t shim_take(shim_bin_t *bin, void **chunks, size_t n);
void shim_put(shim_bin_t *bin, void **chunks, size_t n);
umf_result_t shim_put_ptr(shim_bin_t *bin, void *chunk, void *ptr);
umf_result_t shim_usable_size(shim_bin_t *bin, void *chunk, void *ptr, size_t *size);
umf_result_t shim_set_offset(shim_bin_t *bin, void *ptr);
size_t shim_trim(shim_bin_t *bin, size_t keep); /* the rest of keep */
bool shim_purge(shim_bin_t *bin, size_t page_size);
bool shim_decay(shim_bin_t *bin, size_t page_size, bool is_new, size_t *left);
size_t shim_slabs(shim_bin_t *bin);
size_t shim_used(shim_bin_t *bin);
size_t shim_empty(shim_bin_t *bin);
size_t shim_kept(shim_bin_t *bin); /* bytes counted against the limit */

#ifdef __cplusplus
}
#endif

#endif
