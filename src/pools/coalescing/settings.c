/* Parameters, settings and counters of the coalescing pool. */
#include <stdio.h>

#include "pools/coalescing/parts.h"
#include "pools/shared/settings.h"

#define DEFAULT_GRANULE ((size_t)512)
#define DEFAULT_SPAN_SIZE ((size_t)2 << 20)
#define GRANULE_MIN ((size_t)8)
#define GRANULE_MAX ((size_t)1 << 30)

typedef umf_coalescing_pool_params_t params_t;
typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_part_t part_t;

const umf_handle_kind_t umf_coalescing_params_kind = {"an object of umfCoalescingPoolParamsCreate"};

const umf_coalescing_pool_params_t umf_coalescing_default_params = {.retain = SIZE_MAX,
                                                                    .name = "coalescing"};

static size_t default_granule(umf_view_t *view) {
    size_t line;
    bool is_known =
        umfMemoryProviderGetCacheLineSize(view, &line) == UMF_RESULT_SUCCESS && umf_is_pow2(line);
    return is_known && line > DEFAULT_GRANULE && line <= GRANULE_MAX ? line : DEFAULT_GRANULE;
}

void umf_coalescing_choose_defaults(coalescing_pool_t *pool) {
    if (!pool->params.granule) {
        pool->params.granule = default_granule(pool->view);
    }
    if (!pool->params.span_size) {
        pool->params.span_size = pool->page > DEFAULT_SPAN_SIZE ? pool->page : DEFAULT_SPAN_SIZE;
    }
}

/* --- fields: parameters. The object is parameters, which is also how a pool begins. --- */

UMF_PARAM_GET(params_t, size_t, granule)
UMF_PARAM(params_t, size_t, span_size)
UMF_PARAM(params_t, size_t, retain)

static umf_result_t set_granule(void *object, const void *value) {
    size_t granule = *(const size_t *)value;
    if (granule != 0 && (!umf_is_pow2(granule) || granule < GRANULE_MIN || granule > GRANULE_MAX)) {
        UMF_LOG_ERROR("granule %zu is not a power of two from %zu to %zu", granule, GRANULE_MIN,
                      GRANULE_MAX);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    ((params_t *)object)->granule = granule;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t set_name(void *object, const void *value) {
    params_t *params = object;
    snprintf(params->name, sizeof(params->name), "%s", (const char *)value);
    return UMF_RESULT_SUCCESS;
}

/* --- public parameter functions --- */

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsCreate(umf_coalescing_pool_params_handle_t *hParams) {
    if (!hParams) {
        return umf_null_argument("hParams");
    }
    umf_coalescing_pool_params_handle_t params =
        umf_params_new(sizeof(*params), &umf_coalescing_params_kind);
    if (!params) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *params = umf_coalescing_default_params;
    *hParams = params;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsDestroy(umf_coalescing_pool_params_handle_t hParams) {
    return umf_params_delete(hParams, sizeof(*hParams), &umf_coalescing_params_kind, __func__);
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsSetGranule(umf_coalescing_pool_params_handle_t hParams, size_t granule) {
    return umf_pool_params_set(hParams, &umf_coalescing_params_kind, set_granule, &granule,
                               __func__);
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsSetSpanSize(umf_coalescing_pool_params_handle_t hParams, size_t spanSize) {
    return umf_pool_params_set(hParams, &umf_coalescing_params_kind, set_span_size, &spanSize,
                               __func__);
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsSetRetain(umf_coalescing_pool_params_handle_t hParams, size_t retain) {
    return umf_pool_params_set(hParams, &umf_coalescing_params_kind, set_retain, &retain, __func__);
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsSetName(umf_coalescing_pool_params_handle_t hParams, const char *name) {
    return name
               ? umf_pool_params_set(hParams, &umf_coalescing_params_kind, set_name, name, __func__)
               : umf_null_argument("name");
}

umf_result_t umf_coalescing_get_name(void *self, const char **name) {
    if (!name) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *name = self ? ((coalescing_pool_t *)self)->params.name : umf_coalescing_default_params.name;
    return UMF_RESULT_SUCCESS;
}

/* --- fields: counters. The object is the pool. --- */

static void count_used_memory(const part_t *part, size_t *bytes) {
    *bytes += umf_range_used_bytes(part->range);
    for (size_t i = 0; i < part->held_count; i++) {
        *bytes -= part->held[i].size;
    }
}

static void count_reserved_memory(const part_t *part, size_t *bytes) {
    *bytes += umf_range_total_bytes(part->range);
}

static void count_spans(const part_t *part, size_t *count) {
    *count += umf_range_span_count(part->range);
}

static void note_larger(uintptr_t base, size_t size, void *largest) {
    (void)base;
    if (size > *(size_t *)largest) {
        *(size_t *)largest = size;
    }
}

static void count_largest_free(const part_t *part, size_t *largest) {
    umf_range_free_pieces(part->range, note_larger, largest);
}

static void count_parts(const part_t *part, size_t *count) {
    (void)part;
    ++*count;
}

#define COUNTER(member)                                                                            \
    static umf_result_t get_##member(void *object, size_t index, void *value, size_t size) {       \
        (void)index, (void)size;                                                                   \
        umf_coalescing_reclaim(object);                                                            \
        *(size_t *)value = umf_coalescing_count(object, count_##member);                           \
        return UMF_RESULT_SUCCESS;                                                                 \
    }

COUNTER(used_memory)
COUNTER(reserved_memory)
COUNTER(spans)
COUNTER(largest_free)
COUNTER(parts)

static umf_result_t run_post_initialize(void *object) {
    ((coalescing_pool_t *)object)->sealed = true;
    return UMF_RESULT_SUCCESS;
}

static const umf_field_t field_list[] = {
    UMF_PARAM_FIELD("granule", SIZE, granule,
                    "sizes and addresses are multiples of it, bytes, a power of two (512, or the "
                    "provider's cache line if larger)"),
    UMF_PARAM_FIELD("span_size", SIZE, span_size,
                    "smallest request to the provider, bytes (2M, or its page if larger)"),
    UMF_PARAM_FIELD("retain", SIZE, retain, "wholly free spans that are kept, bytes (all)"),
    {.path = "params.name",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = set_name,
     .help = "name of the pool, up to 63 characters (coalescing)"},
    {.path = "stats.used_memory",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_used_memory},
    {.path = "stats.reserved_memory",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_reserved_memory},
    {.path = "stats.spans", .type = UMF_FIELD_SIZE, .access = UMF_FIELD_READ, .get = get_spans},
    {.path = "stats.largest_free",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_largest_free},
    {.path = "stats.parts", .type = UMF_FIELD_SIZE, .access = UMF_FIELD_READ, .get = get_parts},
    {.path = "post_initialize", .access = UMF_FIELD_RUN, .run = run_post_initialize},
};
static const umf_fields_t fields = UMF_FIELDS(field_list);

umf_result_t umf_coalescing_ctl(void *self, umf_ctl_query_source_t source, const char *name,
                                void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
    coalescing_pool_t *pool = self;
    umf_result_t result =
        umf_field_ctl(pool, !pool->sealed, &fields, source, name, arg, size, type, args);
    umf_coalescing_choose_defaults(pool);
    return result;
}

/* --- creation from text --- */

static umf_result_t params_create(void **params) {
    return umfCoalescingPoolParamsCreate((umf_coalescing_pool_params_handle_t *)params);
}

void umf_coalescing_params_destroy(void *params) {
    umfCoalescingPoolParamsDestroy(params);
}

umf_result_t umf_coalescing_params_from_text(const char *text, void **params) {
    return umf_params_from_text(&fields, params_create, umf_coalescing_params_destroy, text,
                                params);
}
