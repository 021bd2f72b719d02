/*
 * Export: the producer's side of IPC.
 *
 * An allocation of a provider is exported once, when the first handle for a pointer inside it is
 * requested. The export hangs on the allocation's span until the span is withdrawn.
 */
#ifndef UMF_SRC_IPC_EXPORT_H
#define UMF_SRC_IPC_EXPORT_H

#include <umf/ipc.h>
#include <umf/memory_provider.h>

#include "object/provider/tracked_provider.h"
#include "track/span.h"

/*
 * Gives the export of a span back to `provider`, which supplied the memory. Does nothing if there
 * is no export. Called after the span was withdrawn for good, before its memory is freed or changes
 * its extent. Calls the provider: no lock may be held.
 */
void umf_export_drop(umf_span_t *span, umf_memory_provider_handle_t provider);

/* The size of the handles for memory of a provider. Errors are logged. */
umf_result_t umf_export_size(umf_memory_provider_handle_t provider, size_t *size);

/* A new handle for `ptr` inside the span, whose export is made if there is none. Its memory is not
 * pinned. */
umf_result_t umf_export_get(umf_span_t *span, const void *ptr, umf_ipc_handle_t *handle,
                            size_t *size);

/* Writes the header of a handle of `handle_size` bytes, whose description is in place, and returns
 * what umf_wire_set_offset takes. */
uint64_t umf_export_pack(umf_memory_provider_handle_t provider, const umf_pool_export_t *made,
                         size_t handle_size, void *handle);
uint64_t umf_export_new_id(void);

typedef struct umf_export_stats_t {
    size_t kept; /* exports that exist now */
    size_t made; /* calls of providers for one */
    size_t evictions;
    size_t limit; /* 0: none */
} umf_export_stats_t;

umf_export_stats_t umf_export_stats(void);

/* Called at every start of the library. At most `limit` exports are kept; 0: any number. */
void umf_export_init(size_t limit);

#endif
