#include "ext/movement/route.h"

#include "ext/movement/staged_copy.h"

/* Does the own copy reach the other operand, which is in the same domain? */
static bool reaches(const umf_operand_t *own, const umf_operand_t *other) {
    return (own->provider && own->provider == other->provider) || !own->ext->copy_reaches ||
           own->ext->copy_reaches(own->self, (const void *)other->addr) == UMF_RESULT_SUCCESS;
}

/* Can the copy of `own`, which must be there, take the other operand, too? */
static bool takes(const umf_operand_t *own, const umf_operand_t *other) {
    return umf_operand_has_copy(own) &&
           (umf_operand_is_of_host(other) ||
            (umf_operand_is_same_domain(own, other) && reaches(own, other)));
}

umf_copy_route_t umf_route_choose(const umf_operand_t *to, const umf_operand_t *from,
                                  bool has_queue) {
    bool is_for_cpu = umf_operand_is_of_host(to) && umf_operand_is_of_host(from);
    if (umf_likely(is_for_cpu && !has_queue)) {
        return UMF_COPY_ROUTE_CPU;
    }
    /* Some providers of host memory have no device to make a queue on. */
    bool to_first = !umf_operand_is_of_host(to);
    if (to_first && takes(to, from)) {
        return UMF_COPY_ROUTE_TO;
    }
    if (takes(from, to)) {
        return UMF_COPY_ROUTE_FROM;
    }
    if (!to_first && takes(to, from)) {
        return UMF_COPY_ROUTE_TO;
    }
    if (umf_operand_has_copy(to) && umf_operand_has_copy(from)) {
        return UMF_COPY_ROUTE_STAGED;
    }
    bool is_in_reach = to->kind != UMF_PLACE_DEVICE && from->kind != UMF_PLACE_DEVICE;
    return is_in_reach ? UMF_COPY_ROUTE_CPU : UMF_COPY_ROUTE_NONE;
}

umf_copy_route_t umf_route_of(const umf_operand_t *to, const umf_operand_t *from, size_t size,
                              bool has_queue) {
    umf_copy_route_t route = umf_route_choose(to, from, has_queue);
    bool is_to = route == UMF_COPY_ROUTE_TO;
    bool pays = (is_to || route == UMF_COPY_ROUTE_FROM) &&
                umf_staged_copy_pays(is_to ? to : from, is_to ? from : to, size);
    return pays ? UMF_COPY_ROUTE_STAGED : route;
}
