/*
 * Residency: the live allocations of a provider, and the devices on which they are resident.
 *
 * An allocation is made resident before it is listed. A change of the set visits the allocations
 * that are listed when the set changes; none is freed meanwhile. An allocation made at the same
 * time follows the old or the new set.
 */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_RESIDENT_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_RESIDENT_H

#include "providers/level_zero/provider.h"

/* Sets the first set. INVALID_ARGUMENT: a device is NULL or listed twice. */
umf_result_t umf_ze_resident_init(umf_ze_provider_t *ze, const ze_device_handle_t *devices,
                                  uint32_t count);
void umf_ze_resident_fini(umf_ze_provider_t *ze);

/* Makes memory resident on every device of the set. */
ze_result_t umf_ze_resident_make(umf_ze_provider_t *ze, void *ptr, size_t size);

/* Lists a live allocation with its requested size. false: no memory. */
bool umf_ze_alloc_add(umf_ze_provider_t *ze, const void *ptr, size_t size);

bool umf_ze_alloc_is_listed(umf_ze_provider_t *ze, const void *ptr);

/* Takes an allocation off the list, after the end of any change of residency. false: it
 * is not listed. Adding it again directly afterwards cannot fail. */
bool umf_ze_alloc_remove(umf_ze_provider_t *ze, const void *ptr, size_t *size);

#endif
