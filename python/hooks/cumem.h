/*
 * Allocations of vLLM's memory pools: those of my_malloc, by address, and copies of their content
 * on the host. Behind the module cumem_allocator. All functions are thread-safe; they are called
 * without the GIL.
 */
#ifndef UMF_PYTHON_HOOKS_CUMEM_H
#define UMF_PYTHON_HOOKS_CUMEM_H

#include "backup.h"

/* NULL if there is no memory. The size is rounded up to what the driver gives. */
block_t *cumem_malloc(size_t *size, int device, failure_t *error);
/* Frees an address of cumem_malloc; does nothing for another. */
void cumem_free(void *ptr);
/* All or none; addresses that are none of cumem_malloc fail. What is in that state stays so. */
bool cumem_move(void *const *ptrs, size_t count, bool is_asleep, failure_t *error);
/* Copies the content of each allocation into memory of the host that is made for it and pinned. */
bool cumem_save(void *const *ptrs, size_t count, void **hosts, failure_t *error);
/* Copies memory of the host, of any kind, back into each allocation. */
bool cumem_load(void *const *ptrs, void *const *hosts, const size_t *sizes, size_t count,
                failure_t *error);
/* Gives memory of cumem_save back. */
void cumem_drop(void *host);

#endif
