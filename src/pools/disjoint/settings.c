/* Parameters, settings and counters of the disjoint pool. */
#include <string.h>

#include "ctl/params.h"
#include "pools/disjoint/disjoint.h"
#include "pools/shared/settings.h"

typedef umf_disjoint_pool_params_t params_t;
typedef umf_disjoint_pool_t pool_t;

static const umf_handle_kind_t params_kind = {"an object of umfDisjointPoolParamsCreate"};
static const umf_handle_kind_t limits_kind = {"an object of umfDisjointPoolSharedLimitsCreate"};

const umf_disjoint_pool_params_t umf_disjoint_default_params = {
    .slab_min_size = 64 * 1024,
    .max_poolable_size = 2 * 1024 * 1024,
    .capacity = 4,
    .min_bucket_size = UMF_DISJOINT_POOL_MIN_BUCKET_DEFAULT_SIZE,
    .name = "disjoint",
};

/* --- fields: parameters. The object is a params_t, which is also how a pool begins. --- */

UMF_PARAM(params_t, size_t, slab_min_size)
UMF_PARAM(params_t, size_t, max_poolable_size)
UMF_PARAM(params_t, size_t, capacity)
UMF_PARAM_GET(params_t, size_t, min_bucket_size)
UMF_PARAM(params_t, int, trace)
UMF_PARAM(params_t, bool, check)

static umf_result_t set_min_bucket_size(void *object, const void *value) {
    params_t *params = object;
    size_t size = *(const size_t *)value;
    if (!umf_is_pow2(size)) {
        UMF_LOG_ERROR("the minimum bucket size %zu is not a power of two", size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    params->min_bucket_size = size;
    params->min_bucket_set = true;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t set_name(void *object, const void *value) {
    params_t *params = object;
    strncpy(params->name, value, sizeof(params->name) - 1);
    return UMF_RESULT_SUCCESS;
}

/* --- public parameter functions --- */

UMF_API_1_0 umf_result_t umfDisjointPoolSharedLimitsCreate(
    size_t MaxSize, umf_disjoint_pool_shared_limits_handle_t *hSharedLimits) {
    if (!hSharedLimits) {
        return umf_null_argument("hSharedLimits");
    }
    umf_disjoint_pool_shared_limits_handle_t limits = umf_params_new(sizeof(*limits), &limits_kind);
    if (!limits) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    limits->limits.max = MaxSize;
    *hSharedLimits = limits;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t
umfDisjointPoolSharedLimitsDestroy(umf_disjoint_pool_shared_limits_handle_t hSharedLimits) {
    return umf_params_delete(hSharedLimits, sizeof(*hSharedLimits), &limits_kind, __func__);
}

UMF_API_1_0 umf_result_t umfDisjointPoolParamsCreate(umf_disjoint_pool_params_handle_t *hParams) {
    if (!hParams) {
        return umf_null_argument("hParams");
    }
    params_t *params = umf_params_new(sizeof(*params), &params_kind);
    if (!params) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *params = umf_disjoint_default_params;
    *hParams = params;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfDisjointPoolParamsDestroy(umf_disjoint_pool_params_handle_t hParams) {
    return umf_params_delete(hParams, sizeof(*hParams), &params_kind, __func__);
}

UMF_API_1_0 umf_result_t
umfDisjointPoolParamsSetSlabMinSize(umf_disjoint_pool_params_handle_t hParams, size_t slabMinSize) {
    return umf_pool_params_set(hParams, &params_kind, set_slab_min_size, &slabMinSize, __func__);
}

UMF_API_1_0 umf_result_t umfDisjointPoolParamsSetMaxPoolableSize(
    umf_disjoint_pool_params_handle_t hParams, size_t maxPoolableSize) {
    return umf_pool_params_set(hParams, &params_kind, set_max_poolable_size, &maxPoolableSize,
                               __func__);
}

UMF_API_1_0 umf_result_t umfDisjointPoolParamsSetCapacity(umf_disjoint_pool_params_handle_t hParams,
                                                          size_t maxCapacity) {
    return umf_pool_params_set(hParams, &params_kind, set_capacity, &maxCapacity, __func__);
}

UMF_API_1_0 umf_result_t umfDisjointPoolParamsSetMinBucketSize(
    umf_disjoint_pool_params_handle_t hParams, size_t minBucketSize) {
    return umf_pool_params_set(hParams, &params_kind, set_min_bucket_size, &minBucketSize,
                               __func__);
}

UMF_API_1_0 umf_result_t umfDisjointPoolParamsSetTrace(umf_disjoint_pool_params_handle_t hParams,
                                                       int poolTrace) {
    return umf_pool_params_set(hParams, &params_kind, set_trace, &poolTrace, __func__);
}

UMF_API_1_0 umf_result_t
umfDisjointPoolParamsSetSharedLimits(umf_disjoint_pool_params_handle_t hParams,
                                     umf_disjoint_pool_shared_limits_handle_t hSharedLimits) {
    if (!umf_handle_check(hParams, &params_kind, __func__) ||
        (hSharedLimits && !umf_handle_check(hSharedLimits, &limits_kind, __func__))) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->limits = hSharedLimits ? &hSharedLimits->limits : NULL;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfDisjointPoolParamsSetName(umf_disjoint_pool_params_handle_t hParams,
                                                      const char *name) {
    return name ? umf_pool_params_set(hParams, &params_kind, set_name, name, __func__)
                : umf_null_argument("name");
}

bool umf_disjoint_params_check(const void *params) {
    const char *function = "umfPoolCreate";
    const params_t *wish = params;
    return umf_handle_check(wish, &params_kind, function) &&
           (!wish->limits || umf_handle_check(wish->limits, &limits_kind, function));
}

umf_result_t umf_disjoint_get_name(void *pool, const char **name) {
    if (!name) {
        return umf_null_argument("name");
    }
    *name = pool ? ((pool_t *)pool)->params.name : umf_disjoint_default_params.name;
    return UMF_RESULT_SUCCESS;
}

/* --- fields: counters. The object is the pool. --- */

static umf_result_t get_used_memory(void *object, size_t index, void *value, size_t size) {
    (void)index, (void)size;
    pool_t *pool = object;
    size_t sum = 0;
    for (uint32_t i = 0; i < pool->layout->bins; i++) {
        sum += umf_disjoint_used_chunks(pool, i) * pool->layout->sizes[i];
    }
    *(size_t *)value = sum;
    return UMF_RESULT_SUCCESS;
}

/* What this thread holds back would keep slabs alive that nobody uses, what others have parked may
 * be more than is to be kept. */
static umf_result_t get_reserved_memory(void *object, size_t index, void *value, size_t size) {
    (void)index, (void)size;
    pool_t *pool = object;
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
    *(size_t *)value = sum;
    return UMF_RESULT_SUCCESS;
}

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

#define COUNTER(member)                                                                            \
    static umf_result_t get_##member(void *object, size_t index, void *value, size_t size) {       \
        (void)index, (void)size;                                                                   \
        if (((pool_t *)object)->params.trace == 0) {                                               \
            return UMF_RESULT_ERROR_NOT_SUPPORTED;                                                 \
        }                                                                                          \
        *(size_t *)value = all_counters(object).member;                                            \
        return UMF_RESULT_SUCCESS;                                                                 \
    }                                                                                              \
    static umf_result_t get_bin_##member(void *object, size_t index, void *value, size_t size) {   \
        (void)size;                                                                                \
        pool_t *pool = object;                                                                     \
        if (index >= pool->layout->bins) {                                                         \
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;                                              \
        }                                                                                          \
        if (pool->params.trace == 0) {                                                             \
            return UMF_RESULT_ERROR_NOT_SUPPORTED;                                                 \
        }                                                                                          \
        umf_bin_counters_t counters = {0};                                                         \
        add_counters(pool, (uint32_t)index, &counters);                                            \
        *(size_t *)value = counters.member;                                                        \
        return UMF_RESULT_SUCCESS;                                                                 \
    }

COUNTER(alloc_num)
COUNTER(alloc_pool_num)
COUNTER(free_num)
COUNTER(slabs_in_use)
COUNTER(slabs_in_pool)
COUNTER(max_slabs_in_use)
COUNTER(max_slabs_in_pool)

static umf_result_t get_bucket_count(void *object, size_t index, void *value, size_t size) {
    (void)index, (void)size;
    *(size_t *)value = ((pool_t *)object)->layout->bins;
    return UMF_RESULT_SUCCESS;
}

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
    {.path = "stats." name,                                                                        \
     .type = UMF_FIELD_SIZE,                                                                       \
     .access = UMF_FIELD_READ,                                                                     \
     .get = get_##member},                                                                         \
    {                                                                                              \
        .path = "buckets.{}.stats." name, .type = UMF_FIELD_SIZE, .access = UMF_FIELD_READ,        \
        .get = get_bin_##member                                                                    \
    }

static const umf_field_t field_list[] = {
    /* First: every creation looks for it. */
    {.path = "post_initialize", .access = UMF_FIELD_RUN, .run = run_post_initialize},
    UMF_PARAM_FIELD("slab_min_size", SIZE, slab_min_size,
                    "smallest request to the provider for pooled sizes, bytes (64K)"),
    UMF_PARAM_FIELD("max_poolable_size", SIZE, max_poolable_size,
                    "larger requests bypass the pool, bytes (2M)"),
    UMF_PARAM_FIELD("capacity", SIZE, capacity,
                    "empty slabs kept per size, where a slab is one chunk (4)"),
    UMF_PARAM_FIELD("min_bucket_size", SIZE, min_bucket_size,
                    "smallest chunk, a power of two, bytes (the provider's cache line)"),
    UMF_PARAM_FIELD("pool_trace", INT, trace,
                    "0: nothing, 1: slab counters, 2: all, 3: every operation (0)"),
    UMF_PARAM_FIELD("check", BOOL, check, "check every free at once, for debugging (no)"),
    {.path = "params.name",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = set_name,
     .help = "name of the pool, up to 63 characters (disjoint)"},
    {.path = "stats.used_memory",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_used_memory},
    {.path = "stats.reserved_memory",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_reserved_memory},
    COUNTER_FIELDS("alloc_num", alloc_num),
    COUNTER_FIELDS("alloc_pool_num", alloc_pool_num),
    COUNTER_FIELDS("free_num", free_num),
    COUNTER_FIELDS("curr_slabs_in_use", slabs_in_use),
    COUNTER_FIELDS("curr_slabs_in_pool", slabs_in_pool),
    COUNTER_FIELDS("max_slabs_in_use", max_slabs_in_use),
    COUNTER_FIELDS("max_slabs_in_pool", max_slabs_in_pool),
    {.path = "buckets.count",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_bucket_count},
    {.path = "buckets.{}.size",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_bucket_size},
    /* Known, never usable: INVALID_ARGUMENT instead of INVALID_CTL_PATH. */
    {.path = "buckets.size", .type = UMF_FIELD_SIZE},
    {.path = "buckets.{}.count", .type = UMF_FIELD_SIZE},
};
static const umf_fields_t fields = UMF_FIELDS(field_list);

/* Who calls the table directly may never seal the pool: sizes stay once there are slabs of them. */
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
    umf_result_t result = umf_field_ctl(pool, type == CTL_QUERY_WRITE && is_being_created(pool),
                                        &fields, source, name, arg, size, type, args);
    if (result == UMF_RESULT_SUCCESS && type == CTL_QUERY_WRITE) {
        result = umf_disjoint_lay_out(pool);
    }
    return result;
}

void umf_disjoint_log_summary(pool_t *pool) {
    if (pool->params.trace < 2) {
        return;
    }
    umf_bin_counters_t all = all_counters(pool);
    UMF_LOG_DEBUG(
        "%s: %zu allocations, %zu of them from the pool, %zu frees; at most %zu slabs in use "
        "and %zu kept empty",
        pool->params.name, all.alloc_num, all.alloc_pool_num, all.free_num, all.max_slabs_in_use,
        all.max_slabs_in_pool);
}

/* --- creation from text --- */

static umf_result_t params_create(void **params) {
    return umfDisjointPoolParamsCreate((umf_disjoint_pool_params_handle_t *)params);
}

void umf_disjoint_params_destroy(void *params) {
    umfDisjointPoolParamsDestroy(params);
}

umf_result_t umf_disjoint_params_from_text(const char *text, void **params) {
    return umf_params_from_text(&fields, params_create, umf_disjoint_params_destroy, text, params);
}
