#include "movement/route.h"

/* Can the copy of `own`, which must be there, take the other side, too? */
static bool takes(const umf_side_t *own, const umf_side_t *other) {
    return umf_side_has_copy(own) &&
           (umf_side_is_of_host(other) || umf_side_is_same_domain(own, other));
}

umf_route_t umf_route_choose(const umf_side_t *to, const umf_side_t *from, bool has_queue) {
    bool is_for_cpu = umf_side_is_of_host(to) && umf_side_is_of_host(from);
    if (umf_likely(is_for_cpu && !has_queue)) {
        return UMF_ROUTE_CPU;
    }
    /* Some providers of host memory have no device to make a queue on. */
    bool to_first = !umf_side_is_of_host(to);
    if (to_first && takes(to, from)) {
        return UMF_ROUTE_TO;
    }
    if (takes(from, to)) {
        return UMF_ROUTE_FROM;
    }
    if (!to_first && takes(to, from)) {
        return UMF_ROUTE_TO;
    }
    if (umf_side_has_copy(to) && umf_side_has_copy(from)) {
        return UMF_ROUTE_STAGED;
    }
    bool is_in_reach = to->kind != UMF_PLACE_DEVICE && from->kind != UMF_PLACE_DEVICE;
    return is_in_reach ? UMF_ROUTE_CPU : UMF_ROUTE_NONE;
}
