/*
 * Stores: where the content of suspended memory is kept. A store is one row of bytes. Pieces of
 * memory are written into it one after the other and read back in the same way.
 */
#ifndef UMF_SRC_EXT_SUSPEND_STORE_H
#define UMF_SRC_EXT_SUSPEND_STORE_H

#include <umf/suspend.h>

#include "object/object.h"

/* Memory whose content is kept at `offset` of the row. */
typedef struct umf_store_part_t {
    char *base;
    size_t size;
    size_t offset;
} umf_store_part_t;

typedef struct umf_store_t umf_store_t;

/* Whether the provider supports that way to keep content. Logs the missing operation. */
bool umf_store_can(umf_memory_provider_handle_t provider, umf_suspend_keep_t keep);
/* Whether the provider can allocate memory of that device; tries it. The provider supports
 * KEEP_PEER. */
bool umf_store_reaches(umf_memory_provider_handle_t provider, int device);

/* Creates a store of `size` bytes. `folder` and `device` as in the policy. */
umf_result_t umf_store_create(umf_memory_provider_handle_t provider,
                              const umf_suspend_policy_t *policy, size_t size, umf_store_t **store);
/* Copies that could not be waited for keep it until a wait succeeds (ext/staging/undone.h). */
void umf_store_destroy(umf_store_t *store);

/* Copies all parts into the store or back; they are in the order of their offsets. The copies are
 * complete on return. */
umf_result_t umf_store_save(umf_store_t *store, const umf_store_part_t *parts, size_t count);
umf_result_t umf_store_load(umf_store_t *store, const umf_store_part_t *parts, size_t count);

#endif
