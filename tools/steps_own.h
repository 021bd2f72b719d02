/* Functions shared by the files of the steps. */
#ifndef UMFCTL_STEPS_OWN_H
#define UMFCTL_STEPS_OWN_H

#include <umf.h>
#include <umf/reason.h>

#include "steps.h"

/* Writes the reason to `why`. Returns REPORT_FAILED. */
__attribute__((format(printf, 2, 3))) report_state_t step_failed(char *why, const char *format,
                                                                 ...);
report_state_t step_call_failed(char *why, const char *call, umf_result_t result);

/* Both leave the step on failure. They need a variable `why`. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        umfLastErrorClear();                                                                       \
        umf_result_t try_result = (call);                                                          \
        if (try_result != UMF_RESULT_SUCCESS) {                                                    \
            return step_call_failed(why, #call, try_result);                                       \
        }                                                                                          \
    } while (0)
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return step_failed(why, __VA_ARGS__);                                                  \
        }                                                                                          \
    } while (0)

/* Fills memory with a pattern, and compares. */
void step_fill(void *memory, size_t size, size_t seed);
bool step_is_filled(const void *memory, size_t size, size_t seed);

umf_result_t step_pool_create(const char *pool, const char *provider,
                              umf_memory_pool_handle_t *hPool);
/* Allocates and frees objects of many sizes. */
report_state_t step_use_sizes(umf_memory_pool_handle_t pool, char *why);
/* The same, with all functions that the pool offers; then it is destroyed. */
report_state_t step_use_pool(umf_memory_pool_handle_t pool, char *why);

#endif /* UMFCTL_STEPS_OWN_H */
