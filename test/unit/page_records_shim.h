/* Page records as the C++ test sees them: their header uses C11 atomics. */
#ifndef UMF_TEST_UNIT_PAGE_RECORDS_SHIM_H
#define UMF_TEST_UNIT_PAGE_RECORDS_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

bool shim_page_make(uintptr_t base, size_t size);
void shim_page_publish(uintptr_t addr, uint32_t pool, uint16_t magazine, uint8_t *states);
void shim_page_withdraw(uintptr_t addr, uint32_t pool, const uint8_t *states);
/* The pool of the record; there must be one. */
uint32_t shim_page_pool(uintptr_t addr);

/* Where its record is. */
void *shim_page_record(uintptr_t addr);

/* The objects of a page become those of another kind, 1 or 2. `page`: an umf_starts_t, 0 at first.
 */
void shim_starts_make(void *page, uint32_t kind, uintptr_t addr);
uint32_t shim_starts_kind(const void *page);
bool shim_page_is_of_kind(uintptr_t addr, uint32_t kind);

#ifdef __cplusplus
}
#endif

#endif
