/*
 * A limit that several pools share: a tenant may use 8 MiB, in whichever of its pools.
 *
 * What one pool holds free is given to another before a request is refused, and the program is
 * called before that, too: here it drops a cache.
 */
#include <stdio.h>

#include <umf.h>
#include <umf/reclaim.h>
#include <umf/text.h>

#define MIB ((size_t)1 << 20)

/* A cache of the program, which it can rebuild. */
static void *cache;

static bool drop_cache(umf_memory_pool_handle_t pool, size_t bytes, unsigned attempt, void *arg) {
    (void)pool, (void)attempt, (void)arg;
    if (!cache) {
        return false;
    }
    printf("%zu bytes are missing: the cache goes\n", bytes);
    umfFree(cache);
    cache = NULL;
    return true;
}

static void print(const char *when, umf_pool_group_handle_t group) {
    umf_pool_group_stats_t stats = UMF_POOL_GROUP_STATS_INIT;
    umfPoolGroupGetStats(group, &stats);
    printf("%-28s %zu of %zu MiB\n", when, stats.held / MIB, stats.limit / MIB);
}

int main(void) {
    umf_memory_pool_handle_t models, scratch;
    umf_pool_group_handle_t group;
    if (umfPoolCreateFromText("coalescing over os", &models) != UMF_RESULT_SUCCESS ||
        umfPoolCreateFromText("coalescing over os", &scratch) != UMF_RESULT_SUCCESS ||
        umfPoolGroupCreate(8 * MIB, &group) != UMF_RESULT_SUCCESS ||
        umfPoolGroupAdd(group, models) != UMF_RESULT_SUCCESS ||
        umfPoolGroupAdd(group, scratch) != UMF_RESULT_SUCCESS ||
        umfAddReclaimCallback(drop_cache, NULL) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    cache = umfPoolMalloc(scratch, 3 * MIB);
    void *model = umfPoolMalloc(models, 4 * MIB);
    print("a cache and a model:", group);
    void *second = umfPoolMalloc(models, 3 * MIB); /* fits when the cache is gone */
    print("a second model:", group);
    void *third = umfPoolMalloc(scratch, 4 * MIB);
    print(third ? "a third model:" : "a third model is refused:", group);
    int failed = !model || !second || cache || third;
    umfFree(model);
    umfFree(second);
    umfRemoveReclaimCallback(drop_cache, NULL);
    umfPoolDestroy(models);
    umfPoolDestroy(scratch);
    umfPoolGroupDestroy(group);
    return failed;
}
