/* A library with hwloc's functions and the interface of another version. */
unsigned hwloc_get_api_version(void);
unsigned hwloc_get_api_version(void) {
    return 0x00030100;
}

#define FUNCTION(name)                                                                             \
    int name(void);                                                                                \
    int name(void) {                                                                               \
        __builtin_trap();                                                                          \
    }

FUNCTION(hwloc_topology_init)
FUNCTION(hwloc_topology_set_flags)
FUNCTION(hwloc_topology_set_type_filter)
FUNCTION(hwloc_topology_load)
FUNCTION(hwloc_topology_destroy)
FUNCTION(hwloc_topology_get_allowed_nodeset)
FUNCTION(hwloc_get_nbobjs_by_depth)
FUNCTION(hwloc_get_obj_by_depth)
FUNCTION(hwloc_bitmap_isset)
FUNCTION(hwloc_bitmap_iszero)
FUNCTION(hwloc_bitmap_isincluded)
