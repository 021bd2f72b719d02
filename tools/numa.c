/* The NUMA nodes of this machine, as memspaces show them. */
#include <stdio.h>
#include <string.h>

#include <umf/experimental/memspace.h>

#include "report.h"
#include "umfctl.h"

/* Why there is no list of nodes, by the result of a query for the capacity of one. */
static const char *why_no_nodes(void) {
    unsigned first = 0;
    size_t capacity;
    umf_memspace_handle_t memspace;
    umf_result_t result = umfMemspaceCreateFromNumaArray(&first, 1, &memspace);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfMemtargetGetCapacity(umfMemspaceMemtargetGet(memspace, 0), &capacity);
        umfMemspaceDestroy(memspace);
    }
    if (result == UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE) {
        return "unknown, because hwloc is not here: install libhwloc15";
    }
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return "unknown, because this libumf was built without hwloc";
    }
    return "unknown, because hwloc cannot read the topology; UMF_LOG=output:stderr logs the cause";
}

static void node(umf_const_memtarget_handle_t target) {
    unsigned id;
    size_t capacity;
    char name[32];
    if (umfMemtargetGetId(target, &id) == UMF_RESULT_SUCCESS &&
        umfMemtargetGetCapacity(target, &capacity) == UMF_RESULT_SUCCESS) {
        snprintf(name, sizeof(name), "node %u", id);
        report_bytes(name, capacity);
    }
}

/* Writes the nodes that are best at something. `memspace` is NULL if that is unknown. */
static void best_nodes(const char *name, umf_const_memspace_handle_t memspace) {
    char text[1024] = "";
    size_t length = 0;
    for (unsigned i = 0; i < umfMemspaceMemtargetNum(memspace); i++) {
        unsigned id;
        if (umfMemtargetGetId(umfMemspaceMemtargetGet(memspace, i), &id) == UMF_RESULT_SUCCESS &&
            length < sizeof(text)) {
            length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%u",
                                       i ? ", " : "node ", id);
        }
    }
    if (memspace) {
        report_text(name, text);
    } else {
        report_row(&(report_row_t){
            .name = name, .state = REPORT_ABSENT, .note = "not reported by the firmware"});
    }
}

void machine_nodes(void) {
    umf_const_memspace_handle_t all = umfMemspaceHostAllGet();
    report_section("numa", "NUMA nodes", 17);
    if (!all) {
        report_row(
            &(report_row_t){.name = "nodes", .state = REPORT_ABSENT, .note = why_no_nodes()});
        return;
    }
    for (unsigned i = 0; i < umfMemspaceMemtargetNum(all); i++) {
        node(umfMemspaceMemtargetGet(all, i));
    }
    best_nodes("highest bandwidth", umfMemspaceHighestBandwidthGet());
    best_nodes("lowest latency", umfMemspaceLowestLatencyGet());
}
