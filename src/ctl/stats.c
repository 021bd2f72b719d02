/* Memory statistics of providers. */
#include "ctl/field.h"

static void stats_raise(size_t *peak, size_t value) {
    size_t seen = __atomic_load_n(peak, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(peak, &seen, value, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {
    }
}

void umf_stats_add(umf_stats_t *stats, size_t size) {
    stats_raise(&stats->peak, __atomic_add_fetch(&stats->allocated, size, __ATOMIC_RELAXED));
}

void umf_stats_sub(umf_stats_t *stats, size_t size) {
    __atomic_fetch_sub(&stats->allocated, size, __ATOMIC_RELAXED);
}

static umf_result_t stats_get_allocated(void *object, size_t index, void *value, size_t size) {
    (void)index, (void)size;
    *(size_t *)value = __atomic_load_n(&((umf_stats_t *)object)->allocated, __ATOMIC_RELAXED);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t stats_get_peak(void *object, size_t index, void *value, size_t size) {
    (void)index, (void)size;
    *(size_t *)value = __atomic_load_n(&((umf_stats_t *)object)->peak, __ATOMIC_RELAXED);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t stats_reset_peak(void *object) {
    umf_stats_t *stats = object;
    size_t now = __atomic_load_n(&stats->allocated, __ATOMIC_RELAXED);
    __atomic_store_n(&stats->peak, now, __ATOMIC_RELAXED);
    return UMF_RESULT_SUCCESS;
}

static const umf_field_t stats_list[] = {
    {.path = "stats.allocated_memory",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = stats_get_allocated,
     .help = "bytes allocated now"},
    {.path = "stats.peak_memory",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = stats_get_peak,
     .help = "most bytes allocated at once since creation or the last reset"},
    {.path = "stats.peak_memory.reset",
     .type = UMF_FIELD_NONE,
     .access = UMF_FIELD_RUN,
     .run = stats_reset_peak,
     .help = "makes the peak what is allocated now"},
};
static const umf_fields_t stats_fields = UMF_FIELDS(stats_list);

umf_result_t umf_stats_ctl(umf_stats_t *stats, const char *path, void *arg, size_t size,
                           umf_ctl_query_type_t type, va_list args) {
    return umf_field_ctl(stats, false, &stats_fields, CTL_QUERY_PROGRAMMATIC, path, arg, size, type,
                         args);
}
