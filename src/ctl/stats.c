/* Memory statistics of providers. */
#include "base/meta.h"
#include "base/thread_slot.h"
#include "ctl/field.h"

#define STATS_SHARDS 32u

typedef struct umf_stats_shard_t {
    _Alignas(UMF_CACHE_ISOLATION) size_t credit; /* Sync: atomic, relaxed */
} umf_stats_shard_t;

static size_t load(const size_t *value) {
    return __atomic_load_n(value, __ATOMIC_RELAXED);
}

/* Memory may be subtracted before it is added, so a sum can be below zero for a moment. */
static size_t at_least_0(size_t value) {
    return value <= SIZE_MAX / 2 ? value : 0;
}

static void stats_raise(size_t *peak, size_t value) {
    value = at_least_0(value);
    size_t seen = load(peak);
    while (seen < value && !__atomic_compare_exchange_n(peak, &seen, value, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {
    }
}

/* --- shards --- */

static umf_stats_shard_t *shards_of(const umf_stats_t *stats) {
    return __atomic_load_n(&stats->shards, __ATOMIC_ACQUIRE);
}

/* The shard of the calling thread. NULL: there are no shards. */
static umf_stats_shard_t *own_shard(const umf_stats_t *stats) {
    umf_stats_shard_t *shards = shards_of(stats);
    return shards ? &shards[umf_thread_slot_number() % STATS_SHARDS] : NULL;
}

static size_t shards_size(void) {
    return STATS_SHARDS * sizeof(umf_stats_shard_t);
}

static void shards_make(umf_stats_t *stats) {
    umf_stats_shard_t *made = umf_meta_alloc(shards_size()), *none = NULL;
    if (made && !__atomic_compare_exchange_n(&stats->shards, &none, made, false, __ATOMIC_ACQ_REL,
                                             __ATOMIC_RELAXED)) {
        umf_meta_free(made, shards_size());
    }
}

/* Takes up to `size` bytes of a shard's credit. Two threads may share one shard. */
static size_t credit_take(umf_stats_shard_t *shard, size_t size) {
    size_t credit = load(&shard->credit), taken;
    do {
        taken = credit < size ? credit : size;
    } while (taken && !__atomic_compare_exchange_n(&shard->credit, &credit, credit - taken, true,
                                                   __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return taken;
}

static size_t credit_of_all(const umf_stats_t *stats) {
    const umf_stats_shard_t *shards = shards_of(stats);
    size_t credit = 0;
    for (uint32_t i = 0; shards && i < STATS_SHARDS; i++) {
        credit += load(&shards[i].credit);
    }
    return credit;
}

/* --- counting --- */

static void count_more(umf_stats_t *stats, size_t size) {
    stats_raise(&stats->peak, __atomic_add_fetch(&stats->counted, size, __ATOMIC_RELAXED));
}

void umf_stats_add(umf_stats_t *stats, size_t size) {
    umf_stats_shard_t *shard = own_shard(stats);
    size -= shard ? credit_take(shard, size) : 0;
    if (!size) {
        return;
    }
    if (shard && load(&stats->counted) + size + UMF_STATS_CREDIT <= load(&stats->peak)) {
        count_more(stats, size + UMF_STATS_CREDIT);
        __atomic_fetch_add(&shard->credit, UMF_STATS_CREDIT, __ATOMIC_RELAXED);
    } else {
        count_more(stats, size);
    }
}

void umf_stats_sub(umf_stats_t *stats, size_t size) {
    __atomic_fetch_sub(&stats->counted, size, __ATOMIC_RELAXED);
}

void umf_stats_sub_dormant(umf_stats_t *stats, size_t size) {
    umf_stats_shard_t *shard = own_shard(stats);
    if (!shard) {
        shards_make(stats);
        umf_stats_sub(stats, size);
    } else if (__atomic_add_fetch(&shard->credit, size, __ATOMIC_RELAXED) > 2 * UMF_STATS_CREDIT) {
        umf_stats_sub(stats, credit_take(shard, UMF_STATS_CREDIT));
    }
}

size_t umf_stats_counted(const umf_stats_t *stats) {
    return at_least_0(load(&stats->counted));
}

/* Threads move bytes between the count and the credit meanwhile, so the difference is
 * approximate. */
size_t umf_stats_live(const umf_stats_t *stats) {
    size_t counted = umf_stats_counted(stats), credit = credit_of_all(stats);
    return credit < counted ? counted - credit : 0;
}

void umf_stats_fini(umf_stats_t *stats) {
    if (stats->shards) {
        umf_meta_free(stats->shards, shards_size());
    }
}

/* --- settings --- */

UMF_FIELD_GETTER(stats_get_allocated, size_t, umf_stats_live(object))
UMF_FIELD_GETTER(stats_get_peak, size_t, load(&((umf_stats_t *)object)->peak))

static umf_result_t stats_reset_peak(void *object) {
    umf_stats_t *stats = object;
    umf_stats_shard_t *shards = shards_of(stats);
    for (uint32_t i = 0; shards && i < STATS_SHARDS; i++) {
        umf_stats_sub(stats, credit_take(&shards[i], SIZE_MAX));
    }
    __atomic_store_n(&stats->peak, umf_stats_counted(stats), __ATOMIC_RELAXED);
    return UMF_RESULT_SUCCESS;
}

static const umf_field_t stats_list[] = {
    {.path = "stats.allocated_memory",
     UMF_FIELD_COUNTER(stats_get_allocated),
     .help = "bytes allocated now"},
    {.path = "stats.peak_memory",
     UMF_FIELD_COUNTER(stats_get_peak),
     .help = "most bytes allocated at once since creation or the last reset"},
    {.path = "stats.peak_memory.reset",
     .type = UMF_FIELD_NONE,
     .access = UMF_FIELD_RUN,
     .run = stats_reset_peak,
     .help = "sets the peak to the bytes allocated now"},
};
static const umf_fields_t stats_fields = UMF_FIELDS(stats_list);

umf_result_t umf_stats_ctl(umf_stats_t *stats, const char *path, void *arg, size_t size,
                           umf_ctl_query_type_t type, va_list args) {
    return umf_field_ctl(stats, false, &stats_fields, CTL_QUERY_PROGRAMMATIC, path, arg, size, type,
                         args);
}

umf_result_t umf_fields_or_stats_ctl(void *object, const umf_fields_t *fields, umf_stats_t *stats,
                                     umf_ctl_query_source_t source, const char *path, void *arg,
                                     size_t size, umf_ctl_query_type_t type, va_list args) {
    va_list copy;
    va_copy(copy, args);
    umf_result_t result = umf_field_ctl(object, false, fields, source, path, arg, size, type, copy);
    va_end(copy);
    return result == UMF_RESULT_ERROR_INVALID_CTL_PATH
               ? umf_stats_ctl(stats, path, arg, size, type, args)
               : result;
}
