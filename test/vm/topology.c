/*
 * Is this the machine that run.sh describes? The kernel must show the firmware's HMAT and hwloc
 * must see its values, else no other program here can say the expected result.
 */
#include "guest.h"

#include <hwloc.h>

static unsigned initiator_value(int node, const char *name) {
    char path[128];
    unsigned value = 0;
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/access0/initiators/%s", node,
             name);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%u", &value) != 1) {
        check(false, "reading %s", path);
    }
    if (file) {
        fclose(file);
    }
    return value;
}

static void test_kernel(void) {
    for (int node = 0; node < NODE_COUNT; node++) {
        const guest_node_t *wanted = &guest_nodes[node];
        unsigned bandwidth = initiator_value(node, "read_bandwidth");
        unsigned latency = initiator_value(node, "read_latency");
        check(bandwidth == wanted->bandwidth && latency == wanted->latency,
              "kernel: node %d reads %u MiB/s in %u ns", node, bandwidth, latency);
    }
}

static hwloc_uint64_t attribute(hwloc_topology_t topology, hwloc_memattr_id_t id, hwloc_obj_t node,
                                unsigned cpu) {
    struct hwloc_location initiator = {.type = HWLOC_LOCATION_TYPE_CPUSET};
    initiator.location.cpuset = hwloc_get_pu_obj_by_os_index(topology, cpu)->cpuset;
    hwloc_uint64_t value = 0;
    return hwloc_memattr_get_value(topology, id, node, &initiator, 0, &value) ? 0 : value;
}

static void test_hwloc(void) {
    hwloc_topology_t topology;
    if (!check(hwloc_topology_init(&topology) == 0 && hwloc_topology_load(topology) == 0,
               "hwloc: topology")) {
        return;
    }
    bool renumbered = false;
    for (unsigned n = 0; n < NODE_COUNT; n++) {
        const guest_node_t *wanted = &guest_nodes[n];
        hwloc_obj_t node = hwloc_get_numanode_obj_by_os_index(topology, n);
        if (!check(node, "hwloc: node %u", n)) {
            continue;
        }
        renumbered |= node->logical_index != n;
        check(attribute(topology, HWLOC_MEMATTR_ID_BANDWIDTH, node, wanted->initiator) ==
                      wanted->bandwidth &&
                  attribute(topology, HWLOC_MEMATTR_ID_LATENCY, node, wanted->initiator) ==
                      wanted->latency,
              "hwloc: bandwidth and latency of node %u from CPU %u", n, wanted->initiator);
    }
    check(renumbered, "hwloc: it numbers nodes in another way than the kernel");
    hwloc_topology_destroy(topology);
}

int main(void) {
    check(sysconf(_SC_NPROCESSORS_ONLN) == CPU_COUNT, "%d CPUs", CPU_COUNT);
    test_kernel();
    test_hwloc();
    return report_end("topology");
}
