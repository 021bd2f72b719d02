/* What spans are divided into. */
#include "pools/shared/walk.h"

#include "pools/coalescing/shards.h"

/* A span that no shard has is wholly free, and on its way to or from the provider, or from one
 * shard to another. */
void umf_coalescing_walk(void *self, const umf_span_t *span, umf_walk_t *walk) {
    umf_coalescing_pool_t *pool = self;
    umf_coalescing_shard_t *shard;
    for (size_t i = 0; (shard = umf_coalescing_shard(pool, i)) != NULL; i++) {
        umf_walk_range_t divided = {
            .part = &shard->part,
            .used = umf_walk_live,
        };
        if (umf_walk_range(&divided, span->base, walk)) {
            return;
        }
    }
    umf_walk_add(walk, span->base, span->size, 1, UMF_RECORD_STATE_FREE);
}
