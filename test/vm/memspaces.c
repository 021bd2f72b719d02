/*
 * Memspaces on a machine with four different nodes: which targets they have, and where the memory
 * of their providers and pools really lies. The plans are those of guest.h: check_pages.
 */
#include "guest.h"

#include <umf/experimental/memspace.h>
#include <umf/providers/provider_os_memory.h>

/* The ids of the targets, one digit for each. */
static const char *ids_of(umf_const_memspace_handle_t memspace) {
    static char ids[16];
    size_t count = umfMemspaceMemtargetNum(memspace), used = 0;
    for (unsigned i = 0; i < count && used < sizeof(ids) - 1; i++) {
        unsigned id = 0;
        need(umfMemtargetGetId(umfMemspaceMemtargetGet(memspace, i), &id), "target id");
        ids[used++] = (char)('0' + id);
    }
    ids[used] = 0;
    return ids;
}

static bool check_ids(const char *what, umf_const_memspace_handle_t memspace, const char *wanted) {
    const char *ids = ids_of(memspace);
    return check(!strcmp(ids, wanted), "%s: targets \"%s\", wanted \"%s\"", what, ids, wanted);
}

/* In any order. */
static bool check_id_set(const char *what, umf_const_memspace_handle_t memspace,
                         const char *wanted) {
    const char *ids = ids_of(memspace);
    return check(strlen(ids) == strlen(wanted) && strspn(ids, wanted) == strlen(ids),
                 "%s: targets \"%s\", wanted \"%s\"", what, ids, wanted);
}

/* --- which targets ---------------------------------------------------------------------------- */

static void test_host_all(void) {
    umf_const_memspace_handle_t all = umfMemspaceHostAllGet();
    check_id_set("host all", all, "0123");
    check(all == umfMemspaceHostAllGet(), "host all: the same handle again");
    for (unsigned i = 0; i < umfMemspaceMemtargetNum(all); i++) {
        umf_const_memtarget_handle_t target = umfMemspaceMemtargetGet(all, i);
        umf_memtarget_type_t type = UMF_MEMTARGET_TYPE_UNKNOWN;
        unsigned id = NODE_NONE;
        size_t capacity = 0;
        need(umfMemtargetGetType(target, &type), "target type");
        need(umfMemtargetGetId(target, &id), "target id");
        need(umfMemtargetGetCapacity(target, &capacity), "target capacity");
        check(type == UMF_MEMTARGET_TYPE_NUMA && capacity == node_bytes(id),
              "node %u has %zu bytes", id, capacity);
    }
}

static void test_highest(void) {
    check_ids("highest capacity", umfMemspaceHighestCapacityGet(), "3012");
    /* From CPU 0 node 2 is the fastest and node 0 the nearest; from CPU 1 node 1 is both. */
    check_id_set("highest bandwidth", umfMemspaceHighestBandwidthGet(), "12");
    check_id_set("lowest latency", umfMemspaceLowestLatencyGet(), "01");
}

static int keep_node(umf_const_memspace_handle_t memspace, umf_const_memtarget_handle_t target,
                     void *args) {
    (void)memspace;
    unsigned id;
    return umfMemtargetGetId(target, &id) == UMF_RESULT_SUCCESS ? id == *(unsigned *)args : -1;
}

/* --- providers -------------------------------------------------------------------------------- */

typedef struct policy_t {
    bool given;
    umf_mempolicy_membind_t bind;
    size_t part_size;
    umf_mempolicy_split_partition_t partitions[3]; /* up to the first of weight 0 */
} policy_t;

static umf_mempolicy_handle_t policy_create(const policy_t *policy) {
    umf_mempolicy_handle_t handle = NULL;
    if (!policy->given) {
        return NULL;
    }
    need(umfMempolicyCreate(policy->bind, &handle), "policy");
    if (policy->part_size) {
        need(umfMempolicySetInterleavePartSize(handle, policy->part_size), "part size");
    }
    size_t count = 0;
    while (count < 3 && policy->partitions[count].weight) {
        count++;
    }
    if (count) {
        need(umfMempolicySetCustomSplitPartitions(
                 handle, (umf_mempolicy_split_partition_t *)(uintptr_t)policy->partitions, count),
             "partitions");
    }
    return handle;
}

static umf_memspace_handle_t memspace_create(const char *nodes) {
    unsigned ids[8], count = 0;
    for (; *nodes; nodes++) {
        ids[count++] = (unsigned)(*nodes - '0');
    }
    umf_memspace_handle_t memspace;
    need(umfMemspaceCreateFromNumaArray(ids, count, &memspace), "memspace of an array");
    return memspace;
}

/* Memspace and policy have gone when the provider is used. */
static umf_memory_provider_handle_t provider_create(const char *nodes, const policy_t *policy) {
    umf_memspace_handle_t memspace = memspace_create(nodes);
    umf_mempolicy_handle_t handle = policy_create(policy);
    umf_memory_provider_handle_t provider;
    need(umfMemoryProviderCreateFromMemspace(memspace, handle, &provider), "provider");
    need(umfMempolicyDestroy(handle), "destroying the policy");
    need(umfMemspaceDestroy(memspace), "destroying the memspace");
    return provider;
}

static void test_policies(void) {
    const size_t page = page_size();
    const policy_t none = {.given = false};
    const policy_t bind = {.given = true, .bind = UMF_MEMPOLICY_BIND};
    const policy_t preferred = {.given = true, .bind = UMF_MEMPOLICY_PREFERRED};
    const policy_t split = {.given = true, .bind = UMF_MEMPOLICY_SPLIT};
    const policy_t parts = {.given = true, .bind = UMF_MEMPOLICY_INTERLEAVE, .part_size = page};
    const policy_t weights = {
        .given = true, .bind = UMF_MEMPOLICY_SPLIT, .partitions = {{1, 1}, {3, 3}}};
    const struct {
        const char *what, *nodes;
        const policy_t *policy;
        const char *plan;
    } cases[] = {
        {"no policy binds", "2", &none, "2 2 2"},
        {"no policy, two nodes", "30", &none, "03 03"},
        {"bind", "1", &bind, "1 1 1"},
        {"preferred", "2", &preferred, "2 2"},
        {"split without partitions", "31", &split, "3 3 1 1"},
        {"split by weights", "31", &weights, "1 3 3 3"},
        {"interleave in parts", "31", &parts, "3 1 3 1 | 3"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        umf_memory_provider_handle_t provider = provider_create(cases[i].nodes, cases[i].policy);
        check_pages(cases[i].what, provider, cases[i].plan);
        need(umfMemoryProviderDestroy(provider), "destroying the provider");
    }
}

static void check_predefined(const char *what, umf_const_memspace_handle_t memspace,
                             const char *plan) {
    umf_memory_provider_handle_t provider;
    need(umfMemoryProviderCreateFromMemspace(memspace, NULL, &provider), what);
    check_pages(what, provider, plan);
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
}

/* No policy is set on the memory: that of the process applies. */
static void check_unbound(int node) {
    umf_memory_provider_handle_t provider;
    void *base;
    size_t size = 8 * page_size();
    need(umfMemoryProviderCreateFromMemspace(umfMemspaceHostAllGet(), NULL, &provider), "provider");
    need(umfMemoryProviderAlloc(provider, size, 0, &base), "allocating");
    process_policy_bind(node);
    check(all_on(base, size, node) && policy_of(base) == 0,
          "provider of host all: process bound to %d", node);
    process_policy_bind(-1);
    need(umfMemoryProviderFree(provider, base, size), "freeing");
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
}

static void test_predefined(void) {
    check_predefined("provider of highest capacity", umfMemspaceHighestCapacityGet(), "3 3 3");
    check_predefined("provider of highest bandwidth", umfMemspaceHighestBandwidthGet(), "12 12");
    check_predefined("provider of lowest latency", umfMemspaceLowestLatencyGet(), "01 01");

    check_unbound(NODE_FAR);
    check_unbound(NODE_OTHER);
}

static void test_filters(void) {
    umf_memspace_handle_t memspace;
    need(umfMemspaceClone(umfMemspaceHostAllGet(), &memspace), "clone");
    need(umfMemspaceFilterByCapacity(memspace, (int64_t)node_bytes(NODE_OTHER)), "by capacity");
    check_id_set("filter by capacity", memspace, "013");
    need(umfMemspaceFilterById(memspace, (unsigned[]){1, 3, NODE_NONE}, 3), "by id");
    check_id_set("filter by id", memspace, "13");
    check_predefined("provider of the remaining nodes", memspace, "13 13");
    unsigned wanted = NODE_OTHER;
    need(umfMemspaceUserFilter(memspace, keep_node, &wanted), "by function");
    check_ids("filter by function", memspace, "1");
    check_predefined("provider of the one left", memspace, "1 1");
    need(umfMemspaceDestroy(memspace), "destroying the memspace");
}

static void test_missing(void) {
    umf_memory_provider_handle_t provider = provider_create("9", &(policy_t){.given = false});
    void *base = NULL;
    const char *text = "";
    int native = 0;
    check_result(umfMemoryProviderAlloc(provider, page_size(), 0, &base),
                 UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC, "a node that is not here");
    umfMemoryProviderGetLastNativeError(provider, &text, &native);
    check(native == UMF_OS_RESULT_ERROR_BIND_FAILED, "its native error: %d, %s", native, text);
    need(umfMemoryProviderDestroy(provider), "destroying the provider");

    umf_memspace_handle_t memspace = memspace_create("01");
    umf_mempolicy_handle_t policy = policy_create(
        &(policy_t){.given = true, .bind = UMF_MEMPOLICY_SPLIT, .partitions = {{1, 0}, {1, 2}}});
    check_result(umfMemoryProviderCreateFromMemspace(memspace, policy, &provider),
                 UMF_RESULT_ERROR_INVALID_ARGUMENT, "a partition outside of the memspace");
    need(umfMempolicyDestroy(policy), "destroying the policy");
    need(umfMemspaceDestroy(memspace), "destroying the memspace");
}

/* --- pools ------------------------------------------------------------------------------------ */

static void test_pool(void) {
    umf_memory_pool_handle_t pool;
    need(umfPoolCreateFromMemspace(umfMemspaceHighestCapacityGet(), NULL, &pool), "pool");
    static const size_t sizes[] = {8, 4096, 300000, 3 << 20};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        void *object = umfPoolMalloc(pool, sizes[i]);
        check(object && all_on(object, sizes[i], NODE_FAR), "pool of highest capacity: %zu bytes",
              sizes[i]);
        umfPoolFree(pool, object);
    }
    need(umfPoolDestroy(pool), "destroying the pool");
}

int main(void) {
    run_on_cpu(0);
    test_host_all();
    test_highest();
    test_policies();
    test_predefined();
    test_filters();
    test_missing();
    test_pool();
    return report_end("memspaces");
}
