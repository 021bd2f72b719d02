/* Limits and counters below "umf.ipc". */
#include "ipc/counters.h"

#include "ctl/field.h"
#include "ipc/export.h"
#include "ipc/mapping.h"
#include "peer/named.h"

static umf_result_t get_max_opened(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_mapping_stats().limit;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_max_exported(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_export_stats().limit;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_opened(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_mapping_stats().opened;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_cached(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_mapping_stats().cached;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_hits(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_mapping_stats().hits;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_misses(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_mapping_stats().misses;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_evictions(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_mapping_stats().evictions;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_exports(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_export_stats().kept;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_exports_made(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_export_stats().made;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_exports_evictions(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_export_stats().evictions;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t get_reaped(void *object, size_t index, void *value, size_t size) {
    (void)object, (void)index, (void)size;
    *(size_t *)value = umf_named_reaped();
    return UMF_RESULT_SUCCESS;
}

static const umf_field_t counters_list[] = {
    {.path = "max_opened",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_max_opened,
     .help = "most mappings kept, 0: any number"},
    {.path = "max_exported",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_max_exported,
     .help = "most exports kept, 0: any number"},
    {.path = "stats.opened",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_opened,
     .help = "mappings of other memory in use"},
    {.path = "stats.cached",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_cached,
     .help = "mappings kept that nobody uses"},
    {.path = "stats.hits",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_hits,
     .help = "opens of what was open or kept"},
    {.path = "stats.misses",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_misses,
     .help = "opens for which a provider was asked"},
    {.path = "stats.evictions",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_evictions,
     .help = "mappings closed to make room, or by umfIPCEvict"},
    {.path = "stats.exports",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_exports,
     .help = "exports kept"},
    {.path = "stats.exports_made",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_exports_made,
     .help = "exports for which a provider was asked"},
    {.path = "stats.exports_evictions",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_exports_evictions,
     .help = "exports forgotten to make room"},
    {.path = "stats.reaped",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_reaped,
     .help = "names that crashed processes left and this one removed"},
};
static const umf_fields_t counters_fields = UMF_FIELDS(counters_list);

umf_result_t umf_ipc_counters_query(umf_ctl_query_t *query, const char *rest) {
    return umf_field_ctl(NULL, false, &counters_fields, query->source, rest, query->arg,
                         query->size, query->type, *query->args);
}
