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

/* NULL: there is no such kind. */
const umf_memory_provider_descriptor_t *umf_registry_provider_by_name(const char *name);
const umf_memory_pool_descriptor_t *umf_registry_pool_by_name(const char *name);

/* Use: the kind of a new object; NULL: it has none. Unuse: the object is destroyed, and no
 * operation of the kind runs for it any more (NULL is ignored). */
const umf_memory_provider_descriptor_t *
umf_registry_provider_use(const umf_memory_provider_ops_t *ops);
void umf_registry_provider_unuse(const umf_memory_provider_descriptor_t *kind);
const umf_memory_pool_descriptor_t *umf_registry_pool_use(const umf_memory_pool_ops_t *ops);
void umf_registry_pool_unuse(const umf_memory_pool_descriptor_t *kind);

/* The functions that an in-tree pool offers beyond its table. NULL for any other pool. */
const struct umf_pool_fast_ops_t *umf_registry_pool_fast_ops(const umf_memory_pool_ops_t *ops);

/* The kind that follows `after` (NULL: the first one). NULL: there is none. */
const umf_memory_provider_descriptor_t *
umf_registry_provider_next(const umf_memory_provider_descriptor_t *after);
const umf_memory_pool_descriptor_t *
umf_registry_pool_next(const umf_memory_pool_descriptor_t *after);

/* In-tree kinds that this build lacks. A NULL ends the list. */
extern const char *const umf_registry_left_out_providers[];
extern const char *const umf_registry_left_out_pools[];

#endif
