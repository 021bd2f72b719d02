/* Parameters, settings and counters of the coalescing pool. */
#include "pools/shared/settings.h"
#include "pools/coalescing/shards.h"

#define DEFAULT_GRANULE ((size_t)512)
#define DEFAULT_SPAN_SIZE ((size_t)2 << 20)
#define GRANULE_MAX ((size_t)1 << 30)

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_shard_t shard_t;

static const umf_field_word_t params_donates[] = {
    {"yes", UMF_COALESCING_DONATE_YES},
    {"off", UMF_COALESCING_DONATE_OFF},
    {"trim", UMF_COALESCING_DONATE_TRIM},
    {NULL, 0},
};

#include "ctl/params_define.h"

static size_t default_granule(umf_tracked_provider_t *tracked) {
    size_t line;
    bool is_known = umfMemoryProviderGetCacheLineSize(tracked, &line) == UMF_RESULT_SUCCESS &&
                    umf_is_pow2(line);
    return is_known && line > DEFAULT_GRANULE && line <= GRANULE_MAX ? line : DEFAULT_GRANULE;
}

void umf_coalescing_choose_granule(umf_coalescing_pool_params_t *params,
                                   umf_tracked_provider_t *tracked) {
    if (!params->granule) {
        params->granule = default_granule(tracked);
    }
}

void umf_coalescing_choose_defaults(coalescing_pool_t *pool) {
    umf_coalescing_choose_granule(&pool->params, pool->tracked);
    if (!pool->params.span_size) {
        pool->params.span_size = pool->page > DEFAULT_SPAN_SIZE ? pool->page : DEFAULT_SPAN_SIZE;
    }
}

/* --- fields: counters. The object is the pool. --- */

static void count_used_memory(const shard_t *shard, size_t *bytes) {
    *bytes += umf_range_used_bytes(shard->range);
    /* Isolated segments are free for users, though the range counts them as used. */
    *bytes -= umf_purge_isolated_bytes(&shard->part);
}

static void count_spans(const shard_t *shard, size_t *count) {
    *count += umf_range_region_count(shard->range);
}

static void note_larger(uintptr_t base, size_t size, void *largest) {
    (void)base;
    if (size > *(size_t *)largest) {
        *(size_t *)largest = size;
    }
}

static void count_largest_free(const shard_t *shard, size_t *largest) {
    umf_range_free_segments(shard->range, note_larger, largest);
}

/* Reserved blocks are free. */
static size_t counted(coalescing_pool_t *pool, void (*count)(const shard_t *shard, size_t *total)) {
    umf_coalescing_reclaim(pool);
    return umf_coalescing_count(pool, count);
}

/* Kept blocks, too, but they stay: the counter may be read often. */
static size_t used_memory(coalescing_pool_t *pool) {
    size_t used = counted(pool, count_used_memory);
    size_t kept = umf_coalescing_kept_count(pool).bytes;
    return used > kept ? used - kept : 0;
}

static size_t largest_free(coalescing_pool_t *pool) {
    umf_coalescing_kept_free(pool, true);
    return counted(pool, count_largest_free);
}

UMF_FIELD_GETTER(get_used_memory, size_t, used_memory(object))
UMF_FIELD_GETTER(get_reserved_memory, size_t, umf_coalescing_bytes(object))
UMF_FIELD_GETTER(get_spans, size_t, counted(object, count_spans))
UMF_FIELD_GETTER(get_largest_free, size_t, largest_free(object))
UMF_FIELD_GETTER(get_shards, size_t, umf_coalescing_shards(object))

static umf_result_t run_post_initialize(void *object) {
    coalescing_pool_t *pool = object;
    if (pool->params.arena) {
        UMF_LOG_ERROR("arena is chosen when a pool is created: in its text, or by "
                      "umfCoalescingPoolParamsSetArena");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    pool->sealed = true;
    return UMF_RESULT_SUCCESS;
}

static const umf_field_t field_list[] = {
    {.path = "stats.used_memory", UMF_FIELD_COUNTER(get_used_memory)},
    {.path = "stats.reserved_memory", UMF_FIELD_COUNTER(get_reserved_memory)},
    {.path = "stats.spans", UMF_FIELD_COUNTER(get_spans)},
    {.path = "stats.largest_free", UMF_FIELD_COUNTER(get_largest_free)},
    {.path = "stats.shards", UMF_FIELD_COUNTER(get_shards)},
    {.path = "stats.parts", UMF_FIELD_COUNTER(get_shards)}, /* deprecated name */
    {.path = "post_initialize", .access = UMF_FIELD_RUN, .run = run_post_initialize},
};
static const umf_fields_t fields = UMF_FIELDS(field_list);

umf_result_t umf_coalescing_ctl(void *self, umf_ctl_query_source_t source, const char *name,
                                void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
    coalescing_pool_t *pool = self;
    umf_result_t result =
        umf_pool_params_ctl(pool, !pool->sealed, &fields, &umf_coalescing_pool_params_kind, source,
                            name, arg, size, type, args);
    umf_coalescing_choose_defaults(pool);
    return result;
}
