/* Parameters, settings and counters of the disjoint pool. */
#include <string.h>

#include "pools/disjoint/disjoint.h"
#include "pools/shared/settings.h"

typedef umf_disjoint_pool_t pool_t;

static const umf_handle_kind_t limits_kind = {"an object of umfDisjointPoolSharedLimitsCreate"};

/* --- parameters --- */

static umf_result_t params_set_min_bucket_size(void *object, const void *value) {
    umf_disjoint_pool_params_t *params = object;
    params->min_bucket_size = *(const size_t *)value;
    params->min_bucket_set = true;
    return UMF_RESULT_SUCCESS;
}

#include "ctl/params_define.h"

UMF_API_1_0 umf_result_t umfDisjointPoolSharedLimitsCreate(
    size_t MaxSize, umf_disjoint_pool_shared_limits_handle_t *hSharedLimits) {
    if (!hSharedLimits) {
        UMF_LOG_ERROR("hSharedLimits is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_disjoint_pool_shared_limits_handle_t limits = umf_handle_new(sizeof(*limits), &limits_kind);
    if (!limits) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    limits->limits.max = MaxSize;
    *hSharedLimits = limits;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t
umfDisjointPoolSharedLimitsDestroy(umf_disjoint_pool_shared_limits_handle_t hSharedLimits) {
    return umf_handle_delete(hSharedLimits, sizeof(*hSharedLimits), &limits_kind, __func__);
}

UMF_API_1_0 umf_result_t
umfDisjointPoolParamsSetSharedLimits(umf_disjoint_pool_params_handle_t hParams,
                                     umf_disjoint_pool_shared_limits_handle_t hSharedLimits) {
    if (!umf_handle_check(hParams, &umf_disjoint_pool_params_kind.handle, __func__) ||
        (hSharedLimits && !umf_handle_check(hSharedLimits, &limits_kind, __func__))) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->limits = hSharedLimits ? &hSharedLimits->limits : NULL;
    return UMF_RESULT_SUCCESS;
}

bool umf_disjoint_params_check(const void *params) {
    const char *function = "umfPoolCreate";
    const umf_disjoint_pool_params_t *request = params;
    return umf_handle_check(request, &umf_disjoint_pool_params_kind.handle, function) &&
           (!request->limits || umf_handle_check(request->limits, &limits_kind, function));
}

/* --- fields: counters. The object is the pool. --- */

static size_t used_memory(pool_t *pool) {
    size_t sum = 0;
    for (uint32_t i = 0; i < pool->layout->bins; i++) {
        sum += umf_disjoint_used_chunks(pool, i) * pool->layout->sizes[i];
    }
    return sum;
}

/* First the calling thread's caches are flushed, because their chunks would keep unused slabs
 * alive. Then reserved slabs go to their bins, because with them more may be kept than the
 * capacity. */
static size_t reserved_memory(pool_t *pool) {
    size_t sum = 0;
    umf_magazines_flush(&pool->magazines);
    umf_disjoint_settle(pool);
    for (uint32_t i = 0; i < pool->layout->bins; i++) {
        umf_bin_t *bin = umf_disjoint_bin(pool, i);
        if (bin) {
            umf_lock(&bin->lock);
            sum += bin->slabs * bin->slab_size;
            umf_unlock(&bin->lock);
        }
    }
    return sum;
}

UMF_FIELD_GETTER(get_used_memory, size_t, used_memory(object))
UMF_FIELD_GETTER(get_reserved_memory, size_t, reserved_memory(object))
UMF_FIELD_GETTER(get_bucket_count, size_t, ((pool_t *)object)->layout->bins)

static void add_counters(pool_t *pool, uint32_t index, umf_bin_counters_t *sum) {
    umf_bin_t *bin = umf_disjoint_bin(pool, index);
    if (!bin) {
        return;
    }
    umf_lock(&bin->lock);
    sum->alloc_num += bin->counters.alloc_num;
    sum->alloc_pool_num += bin->counters.alloc_pool_num;
    sum->free_num += bin->counters.free_num;
    sum->slabs_in_use += bin->counters.slabs_in_use;
    sum->slabs_in_pool += bin->counters.slabs_in_pool;
    sum->max_slabs_in_use += bin->counters.max_slabs_in_use;
    sum->max_slabs_in_pool += bin->counters.max_slabs_in_pool;
    umf_unlock(&bin->lock);
}

static umf_bin_counters_t all_counters(pool_t *pool) {
    umf_bin_counters_t sum = {0};
    for (uint32_t i = 0; i < pool->layout->bins; i++) {
        add_counters(pool, i, &sum);
    }
    return sum;
}

/* One counter of all bins, or of one. */
static umf_result_t counter(pool_t *pool, umf_bin_counters_t counters, size_t member, void *value) {
    if (pool->params.pool_trace == 0) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    memcpy(value, (char *)&counters + member, sizeof(size_t));
    return UMF_RESULT_SUCCESS;
}

static umf_result_t bin_counter(pool_t *pool, size_t index, size_t member, void *value) {
    umf_bin_counters_t counters = {0};
    if (index >= pool->layout->bins) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    add_counters(pool, (uint32_t)index, &counters);
    return counter(pool, counters, member, value);
}

#define COUNTER(member)                                                                            \
    static umf_result_t get_##member(void *object, size_t index, void *value, size_t size) {       \
        (void)index, (void)size;                                                                   \
        return counter(object, all_counters(object), offsetof(umf_bin_counters_t, member), value); \
    }                                                                                              \
    static umf_result_t get_bin_##member(void *object, size_t index, void *value, size_t size) {   \
        (void)size;                                                                                \
        return bin_counter(object, index, offsetof(umf_bin_counters_t, member), value);            \
    }

COUNTER(alloc_num)
COUNTER(alloc_pool_num)
COUNTER(free_num)
COUNTER(slabs_in_use)
COUNTER(slabs_in_pool)
COUNTER(max_slabs_in_use)
COUNTER(max_slabs_in_pool)

static umf_result_t get_bucket_size(void *object, size_t index, void *value, size_t size) {
    (void)size;
    pool_t *pool = object;
    if (index >= pool->layout->bins) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *(size_t *)value = pool->layout->sizes[index];
    return UMF_RESULT_SUCCESS;
}

static umf_result_t run_post_initialize(void *object) {
    ((pool_t *)object)->sealed = true;
    return UMF_RESULT_SUCCESS;
}

#define COUNTER_FIELDS(name, member)                                                               \
    {.path = "stats." name, UMF_FIELD_COUNTER(get_##member)}, {                                    \
        .path = "buckets.{}.stats." name, UMF_FIELD_COUNTER(get_bin_##member)                      \
    }

static const umf_field_t field_list[] = {
    /* First, because every creation searches for it. */
    {.path = "post_initialize", .access = UMF_FIELD_RUN, .run = run_post_initialize},
    {.path = "stats.used_memory", UMF_FIELD_COUNTER(get_used_memory)},
    {.path = "stats.reserved_memory", UMF_FIELD_COUNTER(get_reserved_memory)},
    COUNTER_FIELDS("alloc_num", alloc_num),
    COUNTER_FIELDS("alloc_pool_num", alloc_pool_num),
    COUNTER_FIELDS("free_num", free_num),
    COUNTER_FIELDS("curr_slabs_in_use", slabs_in_use),
    COUNTER_FIELDS("curr_slabs_in_pool", slabs_in_pool),
    COUNTER_FIELDS("max_slabs_in_use", max_slabs_in_use),
    COUNTER_FIELDS("max_slabs_in_pool", max_slabs_in_pool),
    {.path = "buckets.count", UMF_FIELD_COUNTER(get_bucket_count)},
    {.path = "buckets.{}.size", UMF_FIELD_COUNTER(get_bucket_size)},
    /* Known but never usable: the result is INVALID_ARGUMENT instead of INVALID_CTL_PATH. */
    {.path = "buckets.size", .type = UMF_FIELD_SIZE},
    {.path = "buckets.{}.count", .type = UMF_FIELD_SIZE},
};
static const umf_fields_t fields = UMF_FIELDS(field_list);

/* A caller that uses the operations table directly may never seal the pool. The sizes of such a
 * pool are fixed as soon as it has slabs. */
static bool is_being_created(pool_t *pool) {
    bool has_bin = false;
    for (uint32_t i = 0; i < pool->layout->bins; i++) {
        has_bin |= umf_disjoint_bin(pool, i) != NULL;
    }
    return !pool->sealed && !has_bin;
}

umf_result_t umf_disjoint_ctl(void *self, umf_ctl_query_source_t source, const char *name,
                              void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
    pool_t *pool = self;
    umf_result_t result =
        umf_pool_params_ctl(pool, type == CTL_QUERY_WRITE && is_being_created(pool), &fields,
                            &umf_disjoint_pool_params_kind, source, name, arg, size, type, args);
    if (result == UMF_RESULT_SUCCESS && type == CTL_QUERY_WRITE) {
        result = umf_disjoint_lay_out(pool);
    }
    return result;
}

void umf_disjoint_log_summary(pool_t *pool) {
    if (pool->params.pool_trace < 2) {
        return;
    }
    umf_bin_counters_t all = all_counters(pool);
    UMF_LOG_DEBUG(
        "%s: %zu allocations, %zu of them from the pool, %zu frees; at most %zu slabs in use "
        "and %zu kept empty",
        pool->params.name, all.alloc_num, all.alloc_pool_num, all.free_num, all.max_slabs_in_use,
        all.max_slabs_in_pool);
}
