/*
 * Route: who moves the data between two places. The choice follows from the operations that the two
 * sides have.
 */
#ifndef UMF_SRC_MOVEMENT_ROUTE_H
#define UMF_SRC_MOVEMENT_ROUTE_H

#include "movement/place.h"

typedef enum umf_route_t {
    UMF_ROUTE_NONE,
    UMF_ROUTE_CPU,
    UMF_ROUTE_TO,     /* the destination's own copy */
    UMF_ROUTE_FROM,   /* the source's own copy */
    UMF_ROUTE_STAGED, /* the source's copy to the host, the destination's from there */
} umf_route_t;

/* `has_queue`: the caller gave a queue, so a provider is preferred to the CPU. */
umf_route_t umf_route_choose(const umf_side_t *to, const umf_side_t *from, bool has_queue);

#endif
