/*
 * Parameter objects: handles like others. Setters and creations look them up, so that a destroyed
 * one and one of another kind are refused. The name of a kind is that of the function that makes
 * it.
 */
#ifndef UMF_SRC_BASE_PARAMS_H
#define UMF_SRC_BASE_PARAMS_H

#include "base/handle.h"

/* Zeroed. NULL: no memory, logged. */
void *umf_params_new(size_t size, const umf_handle_kind_t *kind);

/* NULL is ignored. INVALID_ARGUMENT, logged: it is no live object of this kind. */
umf_result_t umf_params_delete(void *params, size_t size, const umf_handle_kind_t *kind,
                               const char *function);

#endif
