/*
 * The reason of a failed request, as the last error of the thread (umf/reason.h). Pools pass on a
 * result code only, and some of them replace that of the provider.
 */
#ifndef UMF_SRC_OBJECT_REFUSAL_H
#define UMF_SRC_OBJECT_REFUSAL_H

#include "object/object.h"

/* Stores that `provider` refuses `size` bytes, with its native error if the result says that there
 * is one. A provider of the library has logged errors in arguments: that line stays. */
UMF_COLD void umf_refusal_by_provider(umf_memory_provider_handle_t provider, size_t size,
                                      umf_result_t result);

/* Stores that `function` failed at a provider, in the same way. */
UMF_COLD void umf_refusal_by_function(umf_memory_provider_handle_t provider, const char *function,
                                      umf_result_t result);

/* Stores that the limit of the pools of the provider's group is reached. */
UMF_COLD void umf_refusal_by_group(umf_tracked_provider_t *tracked, size_t size);

#endif
