/*
 * Export: the producer's end of IPC.
 *
 * A provider's allocation is exported once, at the first handle asked for any pointer inside. The
 * result hangs on the allocation's span until the span is withdrawn.
 */
#ifndef UMF_SRC_IPC_EXPORT_H
#define UMF_SRC_IPC_EXPORT_H

#include <umf/memory_provider.h>

#include "track/span.h"

/*
 * Gives the export of a span back to `provider`, the one the memory came from; nothing to do if
 * there is none. Called when the span was withdrawn for good, before its memory is freed or changes
 * its extent. Calls the provider: no lock may be held.
 */
void umf_export_drop(umf_span_t *span, umf_memory_provider_handle_t provider);

typedef struct umf_export_stats_t {
    size_t kept; /* exports, now */
    size_t made; /* as often the provider was asked */
    size_t evictions;
    size_t limit; /* 0: none */
} umf_export_stats_t;

umf_export_stats_t umf_export_stats(void);

/* At every start of the library; at most `limit` exports are kept, 0: any number. */
void umf_export_init(size_t limit);

#endif
