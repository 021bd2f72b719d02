/*
 * Kinds of providers and pools: those of the tree (providers.def, pools.def), those an application
 * registered and those of plugins.
 *
 * A kind of the tree is the constant `umf_<identifier>_descriptor` (a pool's:
 * `umf_<identifier>_pool_descriptor`, with `umf_<identifier>_pool_fast_ops` beside it). It is
 * listed when the build defines UMF_WITH_<its third column> as 1.
 *
 * Descriptors handed out are as of the current headers whatever their origin: what a smaller one
 * left out is NULL. They hold until teardown, and beyond it while an object uses them.
 */
#ifndef UMF_SRC_CORE_REGISTRY_H
#define UMF_SRC_CORE_REGISTRY_H

#include <umf/plugin.h>

#include "system/common.h"

void umf_registry_init(void);
/* Forgets everything that is not of the tree and closes plugins, but for what live objects use:
 * that goes with the last of them. */
void umf_registry_teardown(void);

/* NULL if there is no such kind. */
const umf_memory_provider_descriptor_t *umf_registry_provider_by_name(const char *name);
const umf_memory_pool_descriptor_t *umf_registry_pool_by_name(const char *name);

/* The kind of a new object, NULL if it is of none; and the object's end, when no operation of the
 * kind runs for it any more (NULL is ignored). */
const umf_memory_provider_descriptor_t *
umf_registry_provider_use(const umf_memory_provider_ops_t *ops);
void umf_registry_provider_unuse(const umf_memory_provider_descriptor_t *kind);
const umf_memory_pool_descriptor_t *umf_registry_pool_use(const umf_memory_pool_ops_t *ops);
void umf_registry_pool_unuse(const umf_memory_pool_descriptor_t *kind);

/* What a pool of the tree offers beyond its table; NULL for any other. */
const struct umf_pool_fast_ops_t *umf_registry_pool_fast_ops(const umf_memory_pool_ops_t *ops);

/* The kind behind `after` (NULL: the first), NULL at the end. */
const umf_memory_provider_descriptor_t *
umf_registry_provider_next(const umf_memory_provider_descriptor_t *after);
const umf_memory_pool_descriptor_t *
umf_registry_pool_next(const umf_memory_pool_descriptor_t *after);

/* Kinds of the tree that this build is without; a NULL ends the list. */
extern const char *const umf_registry_left_out_providers[];
extern const char *const umf_registry_left_out_pools[];

#endif
