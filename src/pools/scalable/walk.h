/* The blocks of spans, as far as the records of their pages show them. */
#ifndef UMF_SRC_POOLS_SCALABLE_WALK_H
#define UMF_SRC_POOLS_SCALABLE_WALK_H

#include "object/walk.h"
#include "pools/shared/starts.h"
#include "track/span.h"

typedef struct umf_scalable_walk_t {
    const umf_starts_t *pages; /* of the span */
    const umf_starts_sizes_t *starts;
    const uint32_t *size; /* of objects, by bin */
    uint32_t bins;
    umf_lock_t *lock; /* of the records */
} umf_scalable_walk_t;

void umf_scalable_walk(const umf_scalable_walk_t *walked, const umf_span_t *span, umf_walk_t *walk);

#endif
