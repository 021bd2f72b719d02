/* A build without hwloc.h has no information on NUMA nodes. */
#include "base/log.h"
#include "topology/topology.h"

umf_result_t umf_topology_read(const char *library, umf_topology_t **topology) {
    (void)topology;
    UMF_LOG_ERROR("the NUMA nodes of this machine are not known: this library was built without "
                  "the headers of hwloc (Debian, Ubuntu: package libhwloc-dev), so it cannot use "
                  "%s",
                  library);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}
