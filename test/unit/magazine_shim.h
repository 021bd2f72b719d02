/* Magazines behind plain functions: their header is C11 with atomics. */
#ifndef UMF_TEST_UNIT_MAGAZINE_SHIM_H
#define UMF_TEST_UNIT_MAGAZINE_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef size_t (*shim_refill_t)(void *pool, uint32_t bin, void **objects, size_t n);
typedef void (*shim_flush_t)(void *pool, uint32_t bin, void **objects, size_t n);
typedef bool (*shim_look_t)(void *pool, bool is_new);
typedef struct shim_magazines_t shim_magazines_t;

shim_magazines_t *shim_magazines_create(void *pool, shim_refill_t refill, shim_flush_t flush,
                                        const uint16_t *capacity, const uint16_t *contended,
                                        uint32_t bins, uint32_t depot_batches);
void shim_set_look(shim_magazines_t *m, shim_look_t look);
void shim_set_large(shim_magazines_t *m, uint32_t bin, uint32_t bytes);
bool shim_release_large(shim_magazines_t *m, uint32_t except, size_t most);
void shim_set_bytes_max(shim_magazines_t *m, size_t bytes);
size_t shim_bytes(shim_magazines_t *m);
void shim_magazines_destroy(shim_magazines_t *m);
void *shim_pop(shim_magazines_t *m, uint32_t bin);
void shim_push(shim_magazines_t *m, uint32_t bin, void *object);
void shim_meet_others(shim_magazines_t *m, uint32_t bin); /* as the depot's lock reports */
size_t shim_capacity(shim_magazines_t *m, uint32_t bin);  /* of the calling thread's stack */
void shim_look(shim_magazines_t *m);
void shim_flush(shim_magazines_t *m);
void shim_trim(shim_magazines_t *m);
size_t shim_live(shim_magazines_t *m);
size_t shim_cached(shim_magazines_t *m, uint32_t bin);
uint64_t shim_magic(size_t size);
int shim_magic_divides(uint64_t magic, uint64_t n);

#ifdef __cplusplus
}
#endif

#endif
