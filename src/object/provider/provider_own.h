/* Helpers of public functions that take a provider: they check arguments, call the table and record
 * a provider that failed. */
#ifndef UMF_SRC_OBJECT_PROVIDER_PROVIDER_OWN_H
#define UMF_SRC_OBJECT_PROVIDER_PROVIDER_OWN_H

#include "base/log.h"
#include "object/object.h"
#include "system/atomic.h"

/* Records the provider as the last one that failed, and logs the result of `function`. */
UMF_COLD void umf_provider_tell_failed(umf_memory_provider_handle_t provider, const char *function,
                                       umf_result_t result);

/* The pool of a tracked provider. NULL: it is not in the table. */
static inline umf_memory_pool_handle_t umf_tracked_pool(const umf_tracked_provider_t *tracked) {
    return atomic_load_explicit(&umf_pool_table[tracked->spans.pool], memory_order_relaxed);
}

/* A request of the pool for memory has failed: notes the refusal, and takes it out of the group.
 * Returns the result. */
UMF_COLD umf_result_t umf_tracked_alloc_failed(umf_tracked_provider_t *tracked, size_t size,
                                               umf_result_t result);

/* Ends the export of a withdrawn span, if it has one, and tells the callbacks of the pool. */
UMF_COLD void umf_tracked_tell_withdrawn(const umf_tracked_provider_t *tracked, umf_span_t *span);

#define answer(provider, call)                                                                     \
    __extension__({                                                                                \
        umf_result_t answer_result = (call);                                                       \
        if (umf_unlikely(answer_result != UMF_RESULT_SUCCESS)) {                                   \
            umf_provider_tell_failed(provider, __func__, answer_result);                           \
        }                                                                                          \
        answer_result;                                                                             \
    })

/* The same for an operation that not every provider has. */
#define answer_if_offered(provider, operation, ...)                                                \
    answer(provider, (provider)->ops.operation                                                     \
                         ? (provider)->ops.operation((provider)->self, __VA_ARGS__)                \
                         : UMF_RESULT_ERROR_NOT_SUPPORTED)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (umf_unlikely(!(condition))) {                                                          \
            UMF_LOG_ERROR("invalid argument: " #condition " does not hold");                       \
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;                                              \
        }                                                                                          \
    } while (0)

#define CHECK_PROVIDER(provider)                                                                   \
    do {                                                                                           \
        if (umf_unlikely(!umf_provider_check(provider, __func__))) {                               \
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;                                              \
        }                                                                                          \
    } while (0)

#endif
