/*
 * Common parts of the programs for the virtual machine: its nodes, where a page lies, and one
 * printed line for each check.
 */
#ifndef UMF_TEST_VM_GUEST_H
#define UMF_TEST_VM_GUEST_H 1

#include <linux/mempolicy.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <umf.h>
#include <umf/result.h>

/* --- the machine, as run.sh starts it --------------------------------------------------------- */

enum { NODE_NEAR = 0, NODE_OTHER = 1, NODE_HBM = 2, NODE_FAR = 3, NODE_COUNT = 4 };
enum { NODE_NONE = 9 }; /* not in this machine */

/* CPU n is the only one of node n; the nodes above these have none. */
enum { CPU_COUNT = 2 };

/* As seen from `initiator`, the nearest CPU. */
typedef struct guest_node_t {
    unsigned initiator;
    unsigned bandwidth; /* MiB a second */
    unsigned latency;   /* ns */
} guest_node_t;

static const guest_node_t guest_nodes[NODE_COUNT] = {
    [NODE_NEAR] = {.initiator = 0, .bandwidth = 51200, .latency = 100},
    [NODE_OTHER] = {.initiator = 1, .bandwidth = 51200, .latency = 100},
    [NODE_HBM] = {.initiator = 0, .bandwidth = 204800, .latency = 150},
    [NODE_FAR] = {.initiator = 1, .bandwidth = 10240, .latency = 300},
};

/* --- checks ----------------------------------------------------------------------------------- */

static struct { int checks, failures; } report;

__attribute__((format(printf, 2, 3))) static inline bool check(bool passed, const char *what, ...) {
    va_list args;
    va_start(args, what);
    fputs(passed ? "ok - " : "not ok - ", stdout);
    vprintf(what, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
    report.checks++;
    report.failures += !passed;
    return passed;
}

static inline bool check_result(umf_result_t got, umf_result_t wanted, const char *what) {
    return got == wanted ? check(true, "%s: %s", what, umfResultText(got))
                         : check(false, "%s: \"%s\" instead of \"%s\"", what, umfResultText(got),
                                 umfResultText(wanted));
}

/* What later checks stand on: without it there is nothing to go on with. */
static inline void need(umf_result_t result, const char *what) {
    if (result != UMF_RESULT_SUCCESS) {
        check(false, "%s: %s", what, umfResultText(result));
        exit(1);
    }
}

static inline int report_end(const char *program) {
    printf("%s: %d checks, %d failed\n", program, report.checks, report.failures);
    return report.checks && !report.failures ? 0 : 1;
}

/* --- pages and nodes -------------------------------------------------------------------------- */

static inline size_t page_size(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The node that the page at `address` really lies on; below 0 is an error, -ENOENT if untouched. */
static inline int node_of(const void *address) {
    void *page = (void *)((uintptr_t)address & ~(uintptr_t)(page_size() - 1));
    int node = -1;
    return syscall(SYS_move_pages, 0, 1ul, &page, NULL, &node, 0) == 0 ? node : -1;
}

/* The nodes that the policy of a page names, one bit for each. */
static inline unsigned long policy_of(const void *address) {
    unsigned long mask[16] = {0};
    int mode;
    long error = syscall(SYS_get_mempolicy, &mode, mask, 8 * sizeof(mask), address, MPOL_F_ADDR);
    return error ? 0 : mask[0];
}

/* Memory of a node that the kernel manages. */
static inline size_t node_bytes(unsigned node) {
    char path[64];
    unsigned long kib = 0;
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "Node %*d MemTotal: %lu kB", &kib) != 1) {
        check(false, "reading %s", path);
    }
    if (file) {
        fclose(file);
    }
    return kib * 1024;
}

/* For pages without a policy of their own. -1 ends it. */
static inline void process_policy_bind(int node) {
    unsigned long mask = node >= 0 ? 1ul << node : 0;
    if (syscall(SYS_set_mempolicy, node >= 0 ? MPOL_BIND : MPOL_DEFAULT, node >= 0 ? &mask : NULL,
                node >= 0 ? 8 * sizeof(mask) : 0)) {
        check(false, "set_mempolicy for node %d", node);
        exit(1);
    }
}

static inline void run_on_cpu(unsigned cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set)) {
        check(false, "going to CPU %u", cpu);
        exit(1);
    }
}

/* Touches `size` bytes and counts their pages on each node. */
static inline bool count_nodes(void *base, size_t size, size_t counts[NODE_COUNT]) {
    memset(counts, 0, NODE_COUNT * sizeof(*counts));
    for (size_t at = 0; at < size; at += page_size()) {
        char *byte = (char *)base + at;
        *(volatile char *)byte = 1;
        int node = node_of(byte);
        if (node < 0 || node >= NODE_COUNT) {
            return false;
        }
        counts[node]++;
    }
    return true;
}

static inline bool all_on(void *base, size_t size, int node) {
    size_t counts[NODE_COUNT];
    return count_nodes(base, size, counts) &&
           counts[node] == (size + page_size() - 1) / page_size();
}

/* One page against its word of a plan, see check_pages; counts are added to `found`. */
static inline bool page_fits(char *page, const char *word, char *found, size_t found_size) {
    unsigned long wanted = 0;
    for (; *word; word++) {
        wanted |= 1ul << (*word - '0');
    }
    *(volatile char *)page = 1;
    int node = node_of(page);
    unsigned long policy = policy_of(page);
    size_t used = strlen(found);
    snprintf(found + used, found_size - used, " node %d, policy %#lx;", node, policy);
    return node >= 0 && (wanted >> node & 1) && policy == wanted;
}

static inline bool allocation_fits(umf_memory_provider_handle_t provider, char *plan, char *found,
                                   size_t found_size) {
    enum { MOST = 32 };
    char *words[MOST], *end = NULL, *base;
    size_t count = 0;
    for (char *word = strtok_r(plan, " ", &end); word && count < MOST;
         word = strtok_r(NULL, " ", &end)) {
        words[count++] = word;
    }
    size_t size = count * page_size();
    need(umfMemoryProviderAlloc(provider, size, 0, (void **)&base), "allocating for a plan");
    bool fits = true;
    for (size_t i = 0; i < count; i++) {
        fits &= page_fits(base + i * page_size(), words[i], found, found_size);
    }
    need(umfMemoryProviderFree(provider, base, size), "freeing it");
    return fits;
}

/*
 * Allocates, touches and looks at what came. `plan` has one word for each page, the nodes that its
 * policy must name and one of which it must lie on: "0 01 1" are three pages, the second of which
 * is bound to two nodes. "|" starts the next allocation.
 */
static inline bool check_pages(const char *what, umf_memory_provider_handle_t provider,
                               const char *plan) {
    char copy[128], found[1024] = "", *end = NULL;
    snprintf(copy, sizeof(copy), "%s", plan);
    bool fit = true;
    for (char *one = strtok_r(copy, "|", &end); one; one = strtok_r(NULL, "|", &end)) {
        fit &= allocation_fits(provider, one, found, sizeof(found));
    }
    return fit ? check(true, "%s: %s", what, plan)
               : check(false, "%s: %s, but found%s", what, plan, found);
}

#endif /* UMF_TEST_VM_GUEST_H */
