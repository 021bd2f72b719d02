/* Limits and counters below "umf.ipc". */
#include "ipc/counters.h"

#include "ctl/field.h"
#include "ipc/export.h"
#include "ipc/mapping.h"
#include "peer/named.h"

UMF_FIELD_GETTER(get_max_opened, size_t, umf_mapping_stats().limit)
UMF_FIELD_GETTER(get_max_exported, size_t, umf_export_stats().limit)
UMF_FIELD_GETTER(get_opened, size_t, umf_mapping_stats().opened)
UMF_FIELD_GETTER(get_cached, size_t, umf_mapping_stats().cached)
UMF_FIELD_GETTER(get_hits, size_t, umf_mapping_stats().hits)
UMF_FIELD_GETTER(get_misses, size_t, umf_mapping_stats().misses)
UMF_FIELD_GETTER(get_evictions, size_t, umf_mapping_stats().evictions)
UMF_FIELD_GETTER(get_exports, size_t, umf_export_stats().kept)
UMF_FIELD_GETTER(get_exports_made, size_t, umf_export_stats().made)
UMF_FIELD_GETTER(get_exports_evictions, size_t, umf_export_stats().evictions)
UMF_FIELD_GETTER(get_reaped, size_t, umf_named_reaped())

static const umf_field_t counters_list[] = {
    {.path = "max_opened",
     UMF_FIELD_COUNTER(get_max_opened),
     .help = "most mappings kept, 0: any number"},
    {.path = "max_exported",
     UMF_FIELD_COUNTER(get_max_exported),
     .help = "most exports kept, 0: any number"},
    {.path = "stats.opened",
     UMF_FIELD_COUNTER(get_opened),
     .help = "mappings of other memory in use"},
    {.path = "stats.cached",
     UMF_FIELD_COUNTER(get_cached),
     .help = "cached mappings without a user"},
    {.path = "stats.hits",
     UMF_FIELD_COUNTER(get_hits),
     .help = "opens that found an open or cached mapping"},
    {.path = "stats.misses", UMF_FIELD_COUNTER(get_misses), .help = "opens that called a provider"},
    {.path = "stats.evictions",
     UMF_FIELD_COUNTER(get_evictions),
     .help = "mappings closed to make room, or by umfIPCEvict"},
    {.path = "stats.exports", UMF_FIELD_COUNTER(get_exports), .help = "exports kept"},
    {.path = "stats.exports_made",
     UMF_FIELD_COUNTER(get_exports_made),
     .help = "exports that called a provider"},
    {.path = "stats.exports_evictions",
     UMF_FIELD_COUNTER(get_exports_evictions),
     .help = "exports forgotten to make room"},
    {.path = "stats.reaped",
     UMF_FIELD_COUNTER(get_reaped),
     .help = "names that crashed processes left and this one removed"},
};
static const umf_fields_t counters_fields = UMF_FIELDS(counters_list);

umf_result_t umf_ipc_counters_query(umf_ctl_query_t *query, const char *rest) {
    return umf_field_ctl(NULL, false, &counters_fields, query->source, rest, query->arg,
                         query->size, query->type, *query->args);
}
