/*
 * NUMA: a pool on the nodes that fit a purpose, and a pool on one chosen node.
 *
 * A memspace is a set of NUMA nodes. The library makes some of them from facts of the system on
 * its nodes; a program makes others. A machine with one node has the same memspaces, with that one.
 */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/experimental/mempolicy.h>
#include <umf/experimental/memspace.h>
#include <umf/pools/pool_disjoint.h>

static void print(const char *name, umf_const_memspace_handle_t memspace) {
    printf("%-17s", name);
    for (unsigned i = 0; memspace && i < umfMemspaceMemtargetNum(memspace); i++) {
        umf_const_memtarget_handle_t node = umfMemspaceMemtargetGet(memspace, i);
        unsigned id = 0;
        size_t capacity = 0;
        umfMemtargetGetId(node, &id);
        umfMemtargetGetCapacity(node, &capacity);
        printf(" node %u (%zu MiB)", id, capacity >> 20);
    }
    puts(memspace ? "" : " the system does not say");
}

/* Writes to memory of a pool whose provider is bound to the nodes. */
static int use(const char *name, umf_const_memspace_handle_t memspace) {
    umf_mempolicy_handle_t policy;
    umf_memory_provider_handle_t provider;
    umf_memory_pool_handle_t pool;
    umf_result_t result = umfMempolicyCreate(UMF_MEMPOLICY_BIND, &policy);
    if (result != UMF_RESULT_SUCCESS) {
        return 1;
    }
    result = umfMemoryProviderCreateFromMemspace(memspace, policy, &provider);
    umfMempolicyDestroy(policy);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfPoolCreate(umfDisjointPoolOps(), provider, NULL,
                               UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool);
    }
    if (result != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "%s: %s\n", name, umfResultText(result));
        return 1;
    }
    char *block = umfPoolMalloc(pool, 1 << 20);
    if (block) {
        memset(block, 1, 1 << 20); /* binding acts when a page is first touched */
    }
    printf("%-17s 1 MiB at %p\n", name, (void *)block);
    umfFree(block);
    umfPoolDestroy(pool);
    return block ? 0 : 1;
}

int main(void) {
    umf_const_memspace_handle_t all = umfMemspaceHostAllGet();
    if (!all) {
        printf("this system has no list of its NUMA nodes, so there is no memspace\n");
        return 77;
    }
    print("all", all);
    print("highest bandwidth", umfMemspaceHighestBandwidthGet());
    print("lowest latency", umfMemspaceLowestLatencyGet());
    print("most memory", umfMemspaceHighestCapacityGet());

    unsigned first = 0;
    umf_memspace_handle_t one;
    umfMemtargetGetId(umfMemspaceMemtargetGet(all, 0), &first);
    if (umfMemspaceCreateFromNumaArray(&first, 1, &one) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    int failed = use("all", all) + use("the first node", one);
    umfMemspaceDestroy(one);
    return failed;
}
