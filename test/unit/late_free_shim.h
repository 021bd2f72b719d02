/* The second half of a free, which the core calls once it has found the span. */
#ifndef UMF_TEST_UNIT_LATE_FREE_SHIM_H
#define UMF_TEST_UNIT_LATE_FREE_SHIM_H

#include <stdint.h>

#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The map entry of `ptr`. */
uint64_t shim_entry_of(const void *ptr);
/* The free of a thread that has found `entry` before another one has freed `ptr`. */
umf_result_t shim_free_at(umf_memory_pool_handle_t pool, void *ptr, uint64_t entry);
/* A free by the library: blocks freed on a queue return to their pool. */
umf_result_t shim_give_back(umf_memory_pool_handle_t pool, void *ptr);

#ifdef __cplusplus
}
#endif

#endif
