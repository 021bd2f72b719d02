# hwloc lists the NUMA nodes of the machine (src/topology/topology_hwloc.c). It is opened when a program
# first needs them; the build needs its headers only, and the library is never linked with it.
#
# Sets umf_feature_HWLOC, UMF_HWLOC_INCLUDE_DIR and UMF_HWLOC_LIBRARY, the file that is opened.

set(UMF_HWLOC_NAME "hwloc" CACHE STRING
    "hwloc's library: a file name, or <name> for lib<name>.so.15 (the number of hwloc 2)")
if(UMF_HWLOC_NAME MATCHES "\\.so|/")
    set(UMF_HWLOC_LIBRARY "${UMF_HWLOC_NAME}")
else()
    set(UMF_HWLOC_LIBRARY "lib${UMF_HWLOC_NAME}.so.15")
endif()

# Memory attributes came with hwloc 2.3.
find_path(UMF_HWLOC_INCLUDE_DIR hwloc/memattrs.h)
mark_as_advanced(UMF_HWLOC_INCLUDE_DIR)
set(umf_feature_HWLOC 0)
if(EXISTS "${UMF_HWLOC_INCLUDE_DIR}/hwloc.h")
    file(STRINGS "${UMF_HWLOC_INCLUDE_DIR}/hwloc.h" umf_hwloc_version_2
        REGEX "^#define HWLOC_API_VERSION 0x0002")
    # Headers of the build machine may be no use for the target: one part of them depends on it.
    set(CMAKE_REQUIRED_INCLUDES "${UMF_HWLOC_INCLUDE_DIR}")
    include(CheckCSourceCompiles)
    check_c_source_compiles("#include <hwloc.h>
        int main(void) { return 0; }" UMF_HWLOC_COMPILES)
    unset(CMAKE_REQUIRED_INCLUDES)
    if(umf_hwloc_version_2 AND UMF_HWLOC_COMPILES)
        set(umf_feature_HWLOC 1)
    endif()
endif()
if(NOT umf_feature_HWLOC)
    message(STATUS "No usable headers of hwloc 2.3 or a newer 2.x (Debian, Ubuntu: package libhwloc-dev): "
        "the library will know no NUMA nodes by itself")
endif()
