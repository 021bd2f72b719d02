/* Layers that write down which call they meet. */
#ifndef UMF_TEST_UNIT_LAYERS_SHIM_H
#define UMF_TEST_UNIT_LAYERS_SHIM_H

#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHIM_LAYERS 5 /* of the ranks 0 to 4 */

void shim_push(umf_memory_pool_handle_t pool, int rank);
void shim_remove(umf_memory_pool_handle_t pool, int rank);

/* Makes each call that goes through layers once. The letters of the layers that a call met, a
 * slash, those of the next call, and so on. */
const char *shim_trace(umf_memory_pool_handle_t pool);

#ifdef __cplusplus
}
#endif

#endif
