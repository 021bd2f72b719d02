/*
 * Ranges of a tracked provider (umf/plugin.h): addresses that a pool divides, and pages of physical
 * memory that it places there. The range is one span. What counts as the pool's memory, for its
 * group and its figures, is the pages.
 */
#ifndef UMF_SRC_OBJECT_PROVIDER_TRACKED_RANGE_H
#define UMF_SRC_OBJECT_PROVIDER_TRACKED_RANGE_H

#include <umf/plugin.h>
#include <umf/record_format.h>
#include <umf/registration.h>

#include "object/provider/tracked_provider.h"

/* The operations of the provider, for calls about queues and marks. */
typedef struct umf_tracked_ops_t {
    const umf_memory_provider_ext_ops_t *ext; /* never NULL, but its operations may be */
    void *self;
} umf_tracked_ops_t;

umf_tracked_ops_t umf_tracked_ops(const umf_tracked_provider_t *tracked);

/* Are there ranges? */
bool umf_tracked_has_ranges(const umf_tracked_provider_t *tracked);
umf_result_t umf_tracked_range_reserve(umf_tracked_provider_t *tracked, size_t *size,
                                       size_t *granularity, void **base);
/* No page is mapped there. */
umf_result_t umf_tracked_range_release(umf_tracked_provider_t *tracked, void *base);

/* Results as of umf_tracked_alloc: a failure is noted as a refusal. */
umf_result_t umf_tracked_page_create(umf_tracked_provider_t *tracked, umf_vm_page_t *page);
umf_result_t umf_tracked_page_destroy(umf_tracked_provider_t *tracked, const umf_vm_page_t *page);
umf_result_t umf_tracked_page_map(umf_tracked_provider_t *tracked, void *ptr,
                                  const umf_vm_page_t *pages, size_t count);
umf_result_t umf_tracked_page_unmap(umf_tracked_provider_t *tracked, void *ptr, size_t size);
/* A page that has no memory, because the pool is suspended, or that cannot be destroyed, is not the
 * pool's any more. */
void umf_tracked_page_forget(umf_tracked_provider_t *tracked, size_t size);
/* Tells the suspend that a piece, which holds this address, has lost its last block. No lock is
 * held. */
void umf_tracked_page_freed(umf_tracked_provider_t *tracked, const void *ptr);
/* A number for a page at an address, which no other memory of the provider has, not even one of its
 * pieces. */
uint64_t umf_tracked_page_generation(void);
/* Are there callbacks for the memory of the pool (umf/registration.h)? The next two call them, with
 * no lock of the pool held. */
bool umf_tracked_is_watched(const umf_tracked_provider_t *tracked);
/* A refusal is undone, and noted as one of the provider. */
umf_result_t umf_tracked_page_mapped(const umf_tracked_provider_t *tracked,
                                     const umf_memory_run_t *run);
void umf_tracked_page_unmapping(const umf_tracked_provider_t *tracked, const umf_memory_run_t *run);
/* Is anything recorded (object/event.h)? */
bool umf_tracked_is_recorded(void);
/* An event of the pool. Locks may be held, as object/event.h says. */
void umf_tracked_page_event(const umf_tracked_provider_t *tracked, umf_record_event_kind_t kind,
                            uint64_t address, uint64_t size);

#endif
