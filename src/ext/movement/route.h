/*
 * Route: the means that moves the data between two operands. The choice follows from the operations
 * that the two operands have.
 */
#ifndef UMF_SRC_EXT_MOVEMENT_ROUTE_H
#define UMF_SRC_EXT_MOVEMENT_ROUTE_H

#include "ext/movement/memory_kind.h"

/* `has_queue`: the caller gave a queue, so a provider is preferred to the CPU. */
umf_copy_route_t umf_route_choose(const umf_operand_t *to, const umf_operand_t *from,
                                  bool has_queue);

/* The route of a copy of that size: a large one may be staged although there is another way. */
umf_copy_route_t umf_route_of(const umf_operand_t *to, const umf_operand_t *from, size_t size,
                              bool has_queue);

#endif
