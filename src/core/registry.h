/*
 * Kinds of providers and pools: those of the tree (providers.def, pools.def), those an application
 * registered and those of plugins.
 *
 * A kind of the tree is the constant `umf_<identifier>_descriptor` (a pool's:
 * `umf_<identifier>_pool_descriptor`, with `umf_<identifier>_pool_fast_ops` beside it). It is
 * listed when the build defines UMF_WITH_<its third column> as 1.
 *
 * The registry hands out descriptors in the layout of the current headers, whatever their origin:
 * members that a smaller descriptor lacks are NULL. They are valid until teardown, and longer while
 * an object uses them.
 */
#ifndef UMF_SRC_CORE_REGISTRY_H
#define UMF_SRC_CORE_REGISTRY_H

#include <umf/plugin.h>

#include "system/common.h"

void umf_registry_init(void);
/* Removes all kinds that are not in-tree and closes plugins. Kinds that live objects use are
 * removed with the last of these objects. */
void umf_registry_teardown(void);

typedef enum umf_sort_t { UMF_PROVIDERS, UMF_POOLS, UMF_SORTS } umf_sort_t;

/* The members that descriptors of both sorts have, by the same names. */
typedef struct umf_kind_t {
    const char *name;
    const void *ops;
    umf_result_t (*params_from_text)(const char *text, void **params);
    void (*params_destroy)(void *params);
    umf_result_t (*probe)(char *why, size_t why_size);
} umf_kind_t;

/* NULL: there is no such kind. */
const umf_kind_t *umf_registry_by_name(umf_sort_t sort, const char *name);
/* The kind that follows `after` (NULL: the first one). NULL: there is none. */
const umf_kind_t *umf_registry_next(umf_sort_t sort, const umf_kind_t *after);

/* Use: the kind of a new object; NULL: it has none. Unuse: the object is destroyed, and no
 * operation of the kind runs for it any more (NULL is ignored). */
const umf_memory_provider_descriptor_t *
umf_registry_provider_use(const umf_memory_provider_ops_t *ops);
void umf_registry_provider_unuse(const umf_memory_provider_descriptor_t *kind);
const umf_memory_pool_descriptor_t *umf_registry_pool_use(const umf_memory_pool_ops_t *ops);
void umf_registry_pool_unuse(const umf_memory_pool_descriptor_t *kind);

/* The functions that an in-tree pool offers beyond its table. NULL for any other pool. */
const struct umf_pool_fast_ops_t *umf_registry_pool_fast_ops(const umf_memory_pool_ops_t *ops);

/* In-tree kinds that this build lacks. A NULL ends the list. */
extern const char *const *const umf_registry_left_out[UMF_SORTS];

#endif
