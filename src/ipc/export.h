/*
 * Export: the producer's side of IPC.
 *
 * An allocation of a provider is exported once, when the first handle for a pointer inside it is
 * requested. The export hangs on the allocation's span until the span is withdrawn.
 */
#ifndef UMF_SRC_IPC_EXPORT_H
#define UMF_SRC_IPC_EXPORT_H

#include <umf/memory_provider.h>

#include "track/span.h"

/*
 * Gives the export of a span back to `provider`, which supplied the memory. Does nothing if there
 * is no export. Called after the span was withdrawn for good, before its memory is freed or changes
 * its extent. Calls the provider: no lock may be held.
 */
void umf_export_drop(umf_span_t *span, umf_memory_provider_handle_t provider);

/* The size of the handles for memory of a provider. Errors are logged. */
umf_result_t umf_export_size(umf_memory_provider_handle_t provider, size_t *size);

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
