/* Views of providers behind plain functions: their header is C11 with atomics. */
#ifndef UMF_TEST_UNIT_PROVIDER_SHIM_H
#define UMF_TEST_UNIT_PROVIDER_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umf_span_t umf_span_t;

umf_result_t shim_view_acquire(umf_memory_provider_handle_t provider,
                               umf_memory_provider_handle_t *view);
void shim_view_release(umf_memory_provider_handle_t view);
/* As umfPoolCreate makes one; pool index 0. */
umf_result_t shim_view_create(umf_memory_provider_handle_t provider,
                              umf_memory_provider_handle_t *view);
void shim_view_destroy(umf_memory_provider_handle_t view);
bool shim_view_is_global(umf_memory_provider_handle_t view);

umf_result_t shim_view_alloc(umf_memory_provider_handle_t view, size_t size, size_t alignment,
                             uint16_t hint, void *cookie, void **ptr);
umf_result_t shim_view_free(umf_memory_provider_handle_t view, umf_span_t *span);
umf_span_t *shim_view_find(umf_memory_provider_handle_t view, const void *ptr);
size_t shim_view_count(umf_memory_provider_handle_t view);
size_t shim_view_visit(umf_memory_provider_handle_t view);
void *shim_span_cookie(const umf_span_t *span);
void *shim_span_base(const umf_span_t *span);

#ifdef __cplusplus
}
#endif

#endif
