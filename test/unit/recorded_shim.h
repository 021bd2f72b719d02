// object/event.h for C++.
#ifndef UMF_TEST_UNIT_RECORDED_SHIM_H
#define UMF_TEST_UNIT_RECORDED_SHIM_H

#include <umf/memory_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shim_event_t {
    int kind; // umf_record_event_kind_t
    umf_memory_pool_handle_t pool;
    umf_memory_provider_handle_t provider;
    uint64_t address, size;
    const void *queue;
} shim_event_t;

// NULL: no listener.
void shim_listen(void (*listener)(const shim_event_t *event));
void shim_begin(umf_memory_pool_handle_t pool);
void shim_end(umf_memory_pool_handle_t pool);

#ifdef __cplusplus
}
#endif

#endif
