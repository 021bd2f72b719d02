/*
 * The OS provider's NUMA modes on a machine with four nodes: where each page really lies. The plans
 * are those of guest.h: check_pages.
 */
#include "guest.h"

#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/providers/provider_os_memory.h>

typedef struct placement_t {
    umf_numa_mode_t mode;
    const char *nodes; /* one digit for each */
    size_t part_size;
    umf_numa_split_partition_t partitions[3]; /* up to the first of weight 0 */
} placement_t;

static umf_memory_provider_handle_t provider_create(const placement_t *placement) {
    unsigned nodes[8], node_count = 0, partition_count = 0;
    for (const char *node = placement->nodes; node && *node; node++) {
        nodes[node_count++] = (unsigned)(*node - '0');
    }
    umf_numa_split_partition_t partitions[3];
    memcpy(partitions, placement->partitions, sizeof(partitions));
    while (partition_count < 3 && partitions[partition_count].weight) {
        partition_count++;
    }
    umf_os_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    need(umfOsMemoryProviderParamsCreate(&params), "parameters");
    need(umfOsMemoryProviderParamsSetNumaMode(params, placement->mode), "mode");
    need(umfOsMemoryProviderParamsSetNumaList(params, nodes, node_count), "nodes");
    need(umfOsMemoryProviderParamsSetPartSize(params, placement->part_size), "part size");
    need(umfOsMemoryProviderParamsSetPartitions(params, partitions, partition_count), "partitions");
    need(umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider), "provider");
    need(umfOsMemoryProviderParamsDestroy(params), "destroying parameters");
    return provider;
}

static void *take(umf_memory_provider_handle_t provider, size_t size) {
    void *base;
    need(umfMemoryProviderAlloc(provider, size, 0, &base), "allocating from the provider");
    return base;
}

static void give_back(umf_memory_provider_handle_t provider, void *base, size_t size) {
    need(umfMemoryProviderFree(provider, base, size), "freeing to the provider");
}

/* --- modes that say for each page where it goes ----------------------------------------------- */

static void test_plans(void) {
    const size_t page = page_size();
    const struct {
        const char *what;
        placement_t placement;
        const char *plan;
    } cases[] = {
        {"bind to node 0", {UMF_NUMA_MODE_BIND, "0", 0, {{0}}}, "0 0 0"},
        {"bind to node 1", {UMF_NUMA_MODE_BIND, "1", 0, {{0}}}, "1 1 1"},
        {"bind to node 2", {UMF_NUMA_MODE_BIND, "2", 0, {{0}}}, "2 2 2"},
        {"bind to node 3", {UMF_NUMA_MODE_BIND, "3", 0, {{0}}}, "3 3 3"},
        {"bind to two nodes", {UMF_NUMA_MODE_BIND, "32", 0, {{0}}}, "23 23 23"},
        {"bind to all nodes", {UMF_NUMA_MODE_BIND, "0123", 0, {{0}}}, "0123 0123"},

        {"parts of a page", {UMF_NUMA_MODE_INTERLEAVE, "31", page, {{0}}}, "3 1 3 1 3"},
        {"parts of two pages, over allocations",
         {UMF_NUMA_MODE_INTERLEAVE, "302", 2 * page, {{0}}},
         "3 3 0 0 2 2 3 | 3 | 0 0 2 | 2 2 3"},
        {"a part size is rounded up",
         {UMF_NUMA_MODE_INTERLEAVE, "12", page + 1, {{0}}},
         "1 1 2 2 1"},

        {"3 partitions over 5 pages",
         {UMF_NUMA_MODE_SPLIT, "012", 0, {{1, 0}, {1, 1}, {1, 2}}},
         "0 01 1 12 2"},
        {"the same without partitions", {UMF_NUMA_MODE_SPLIT, "012", 0, {{0}}}, "0 01 1 12 2"},
        {"a huge weight", {UMF_NUMA_MODE_SPLIT, "01", 0, {{1, 0}, {UINT32_MAX, 1}}}, "01 1"},
        {"as many pages as weights",
         {UMF_NUMA_MODE_SPLIT, "023", 0, {{1, 2}, {2, 0}, {3, 3}}},
         "2 0 0 3 3 3"},
        {"twice as many",
         {UMF_NUMA_MODE_SPLIT, "023", 0, {{1, 2}, {2, 0}, {3, 3}}},
         "2 2 0 0 0 0 3 3 3 3 3 3"},
        {"the order of the list, each allocation anew",
         {UMF_NUMA_MODE_SPLIT, "31", 0, {{0}}},
         "3 3 1 1 | 3 1 | 3 13 1"},
        {"one page for all", {UMF_NUMA_MODE_SPLIT, "012", 0, {{0}}}, "012"},
        {"a node twice", {UMF_NUMA_MODE_SPLIT, "01", 0, {{1, 0}, {1, 1}, {1, 0}}}, "0 1 0"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        umf_memory_provider_handle_t provider = provider_create(&cases[i].placement);
        check_pages(cases[i].what, provider, cases[i].plan);
        need(umfMemoryProviderDestroy(provider), "destroying the provider");
    }
}

/* Page by page it is the kernel's business which node starts. */
static void test_interleave_by_page(void) {
    const placement_t placement = {.mode = UMF_NUMA_MODE_INTERLEAVE, .nodes = "0123"};
    umf_memory_provider_handle_t provider = provider_create(&placement);
    size_t size = 64 * page_size(), counts[NODE_COUNT];
    char *base = take(provider, size);
    bool even = count_nodes(base, size, counts);
    for (int node = 0; node < NODE_COUNT; node++) {
        even = even && counts[node] == 16;
    }
    check(even, "interleave by page: 64 pages, 16 on each node");
    check(node_of(base) != node_of(base + page_size()), "neighbours lie on different nodes");
    give_back(provider, base, size);
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
}

/* --- modes that follow the process ------------------------------------------------------------ */

/* Memory taken on one CPU and touched on `cpu`, while the process is bound to node `bound`. */
static bool lies_on(umf_memory_provider_handle_t provider, unsigned cpu, int bound, int node) {
    size_t size = 8 * page_size();
    run_on_cpu(!cpu);
    process_policy_bind(bound);
    void *base = take(provider, size);
    run_on_cpu(cpu);
    bool fits = all_on(base, size, node);
    process_policy_bind(-1);
    run_on_cpu(0);
    give_back(provider, base, size);
    return fits;
}

static void test_process(void) {
    const placement_t none = {.mode = UMF_NUMA_MODE_DEFAULT};
    const placement_t local = {.mode = UMF_NUMA_MODE_LOCAL};
    const placement_t no_list = {.mode = UMF_NUMA_MODE_PREFERRED};
    umf_memory_provider_handle_t provider = provider_create(&none);
    check(lies_on(provider, 0, NODE_FAR, NODE_FAR), "default: the policy of the process");
    check(lies_on(provider, 1, -1, NODE_OTHER), "default: without one, where the toucher runs");
    need(umfMemoryProviderDestroy(provider), "destroying the provider");

    provider = provider_create(&local);
    check(lies_on(provider, 0, NODE_FAR, NODE_NEAR), "local: touched on node 0");
    check(lies_on(provider, 1, NODE_FAR, NODE_OTHER), "local: touched on node 1");
    need(umfMemoryProviderDestroy(provider), "destroying the provider");

    provider = provider_create(&no_list);
    check(lies_on(provider, 1, NODE_FAR, NODE_OTHER), "preferred without nodes: local");
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
}

/* --- preferred -------------------------------------------------------------------------------- */

static void test_preferred(void) {
    const placement_t one = {.mode = UMF_NUMA_MODE_PREFERRED, .nodes = "2"};
    const placement_t two = {.mode = UMF_NUMA_MODE_PREFERRED, .nodes = "32"};
    umf_memory_provider_handle_t provider = provider_create(&two);
    size_t size = 64 * page_size(), counts[NODE_COUNT];
    void *base = take(provider, size);
    check(count_nodes(base, size, counts) && counts[NODE_HBM] + counts[NODE_FAR] == 64,
          "preferred: two nodes");
    give_back(provider, base, size);
    need(umfMemoryProviderDestroy(provider), "destroying the provider");

    provider = provider_create(&one);
    base = take(provider, size);
    check(all_on(base, size, NODE_HBM), "preferred: one node");
    give_back(provider, base, size);

    size = node_bytes(NODE_HBM) + (32 << 20);
    base = take(provider, size);
    bool touched = count_nodes(base, size, counts);
    check(touched && counts[NODE_HBM] > size / page_size() / 2 &&
              counts[NODE_HBM] < size / page_size(),
          "preferred: a node of %zu MiB takes %zu of %zu pages, the others the rest",
          node_bytes(NODE_HBM) >> 20, counts[NODE_HBM], size / page_size());
    give_back(provider, base, size);
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
}

/* --- nodes that do not exist ------------------------------------------------------------------ */

static size_t address_space(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1) {
        check(false, "reading /proc/self/statm");
    }
    if (file) {
        fclose(file);
    }
    return pages * page_size();
}

static void test_missing(void) {
    const struct {
        const char *what;
        placement_t placement;
    } cases[] = {
        {"bind", {UMF_NUMA_MODE_BIND, "9", 0, {{0}}}},
        {"preferred", {UMF_NUMA_MODE_PREFERRED, "9", 0, {{0}}}},
        {"interleave", {UMF_NUMA_MODE_INTERLEAVE, "9", 0, {{0}}}},
        {"interleave, second part", {UMF_NUMA_MODE_INTERLEAVE, "09", 1 << 20, {{0}}}},
        {"split, second partition", {UMF_NUMA_MODE_SPLIT, "09", 0, {{0}}}},
    };
    const size_t size = 64 << 20;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        umf_memory_provider_handle_t provider = provider_create(&cases[i].placement);
        size_t before = address_space();
        umf_result_t result = UMF_RESULT_SUCCESS;
        int native = 0, untouched;
        void *base = &untouched;
        const char *text = "";
        for (int n = 0; n < 8; n++) {
            result = umfMemoryProviderAlloc(provider, size, 0, &base);
        }
        umfMemoryProviderGetLastNativeError(provider, &text, &native);
        check(result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC &&
                  native == UMF_OS_RESULT_ERROR_BIND_FAILED,
              "%s to a node that is not here: %s, %d", cases[i].what, umfResultText(result),
              native);
        check(!strncmp(text, "binding memory to NUMA node failed", 34), "its message: %s", text);
        check(base == &untouched, "its output is untouched");
        check(address_space() < before + size, "its memory is released");
        need(umfMemoryProviderDestroy(provider), "destroying the provider");
    }
}

/* --- pools ------------------------------------------------------------------------------------ */

static void test_pool(const umf_memory_pool_ops_t *ops, const char *name, int node) {
    const placement_t placement = {.mode = UMF_NUMA_MODE_BIND,
                                   .nodes = (char[]){(char)('0' + node), 0}};
    static const size_t sizes[] = {8, 100, 4096, 20000, 300000, 3 << 20};
    enum { EACH = 20 };
    umf_memory_provider_handle_t provider = provider_create(&placement);
    umf_memory_pool_handle_t pool;
    need(umfPoolCreate(ops, provider, NULL, 0, &pool), "pool");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        void *objects[EACH];
        bool placed = true;
        for (int n = 0; n < EACH; n++) {
            objects[n] = umfPoolMalloc(pool, sizes[i]);
            placed = placed && objects[n] && all_on(objects[n], sizes[i], node);
        }
        check(placed, "%s: %d objects of %zu bytes on node %d", name, EACH, sizes[i], node);
        for (int n = 0; n < EACH; n++) {
            umfPoolFree(pool, objects[n]);
        }
    }
    need(umfPoolDestroy(pool), "destroying the pool");
    need(umfMemoryProviderDestroy(provider), "destroying the provider");
}

int main(void) {
    run_on_cpu(0);
    test_plans();
    test_interleave_by_page();
    test_process();
    test_preferred();
    test_missing();
    test_pool(umfDisjointPoolOps(), "disjoint", NODE_FAR);
    test_pool(umfDisjointPoolOps(), "disjoint", NODE_OTHER);
    if (umfJemallocPoolOps()) {
        test_pool(umfJemallocPoolOps(), "jemalloc", NODE_FAR);
        test_pool(umfJemallocPoolOps(), "jemalloc", NODE_HBM);
    }
    return report_end("placement");
}
