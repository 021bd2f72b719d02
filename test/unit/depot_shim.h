/* Depots behind plain functions: their header is C11 with atomics. */
#ifndef UMF_TEST_UNIT_DEPOT_SHIM_H
#define UMF_TEST_UNIT_DEPOT_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umf_depots_t shim_depots_t;

typedef struct shim_thread_t {
    uint32_t number;
    bool is_contended, is_known; /* known: it has a magazine of its own */
    uint16_t needed;             /* as in umf_depot_user_t */
} shim_thread_t;

/* `limit`: so many depots, whatever CPUs there are. */
shim_depots_t *shim_depots_create(size_t capacity, uint32_t limit);
void shim_depots_destroy(shim_depots_t *depots);
size_t shim_depots_take(shim_depots_t *depots, shim_thread_t *thread, void **objects, size_t n);
bool shim_depots_give(shim_depots_t *depots, shim_thread_t *thread, void *const *objects, size_t n);
void shim_depots_trim(shim_depots_t *depots);
/* Bytes of a depot's memory that are resident. `page_size`: that of the kernel. */
size_t shim_depots_resident(shim_depots_t *depots, uint32_t index, size_t page_size);
void shim_depots_lock(shim_depots_t *depots, uint32_t index, bool is_locked);
bool shim_depots_is_awaited(const shim_depots_t *depots, uint32_t index); /* does one sleep? */
size_t shim_depots_count(const shim_depots_t *depots);
size_t shim_depots_count_idle(shim_depots_t *depots);
size_t shim_depots_take_idle(shim_depots_t *depots, void **objects, size_t n);

#ifdef __cplusplus
}
#endif

#endif
