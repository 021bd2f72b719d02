/*
 * Reading the NUMA nodes through hwloc.
 *
 * hwloc is opened, queried and closed again; only our own table stays. Its environment variables
 * work as everywhere, so HWLOC_XMLFILE replaces this machine by a recorded one.
 *
 * hwloc reads only needed objects. Objects that cannot be the parent of a node are filtered out.
 * Parents must stay, because a node without its parent loses its CPUs. The x86 component is off,
 * because it would move the calling thread from CPU to CPU. Nodes that the process may not use are
 * read, too, for their capacity.
 */
#include <errno.h>
#include <hwloc.h>

#include "base/dl.h"
#include "base/log.h"
#include "base/meta.h"
#include "system/os.h"
#include "topology/topology.h"

/* Each function, and whether an older hwloc may lack it. hwloc.h gives the types. Its inline
 * functions cannot be used, because they call hwloc by name. */
#define HWLOC_SYMBOLS(SYMBOL)                                                                      \
    SYMBOL(get_api_version, false)                                                                 \
    SYMBOL(topology_init, false)                                                                   \
    SYMBOL(topology_set_flags, false)                                                              \
    SYMBOL(topology_set_type_filter, false)                                                        \
    SYMBOL(topology_set_components, true)                                                          \
    SYMBOL(topology_load, false)                                                                   \
    SYMBOL(topology_destroy, false)                                                                \
    SYMBOL(topology_get_allowed_nodeset, false)                                                    \
    SYMBOL(get_nbobjs_by_depth, false)                                                             \
    SYMBOL(get_obj_by_depth, false)                                                                \
    SYMBOL(bitmap_isset, false)                                                                    \
    SYMBOL(bitmap_iszero, false)                                                                   \
    SYMBOL(bitmap_isincluded, false)                                                               \
    SYMBOL(memattr_get_value, true)

typedef struct api_t {
#define HWLOC_MEMBER(name, is_optional) __typeof__(&hwloc_##name) name;
    HWLOC_SYMBOLS(HWLOC_MEMBER)
} api_t;

static const umf_dl_symbol_t api_symbols[] = {
#define HWLOC_ENTRY(name, is_optional) {"hwloc_" #name, offsetof(api_t, name), is_optional},
    HWLOC_SYMBOLS(HWLOC_ENTRY)};

/* The state while a machine is read. */
typedef struct reader_t {
    api_t api;
    hwloc_topology_t topology;
    hwloc_obj_t *objects; /* hwloc's objects of the nodes in the table below, in its order */
    size_t room;          /* places in objects */
    umf_topology_t *table;
} reader_t;

/* --- the library ------------------------------------------------------------------------------ */

static umf_result_t api_check_version(const api_t *api, const char *name) {
    unsigned version = api->get_api_version();
    if (version >> 16 == HWLOC_API_VERSION >> 16) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("library %s has the interface of hwloc %u.%u, %u.x is needed", name,
                  version >> 16, version >> 8 & 0xff, (unsigned)HWLOC_API_VERSION >> 16);
    return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
}

static umf_result_t api_open(const char *name, void **library, api_t *api) {
    char why[256] = "";
    if (umf_os_is_privileged()) {
        UMF_LOG_ERROR("the NUMA nodes are not looked up in a program that runs with other rights "
                      "than those of its starter (set-user-ID): hwloc loads code that the "
                      "environment names");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    *library = umf_dl_open(name, false, why, sizeof(why));
    if (!*library) {
        UMF_LOG_ERROR("the NUMA nodes of this machine are not known, because library %s cannot be "
                      "opened (%s): install hwloc (Debian, Ubuntu: package libhwloc15)",
                      name, why);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    umf_result_t result = umf_dl_load(*library, name, api_symbols, UMF_COUNT_OF(api_symbols), api);
    if (result == UMF_RESULT_SUCCESS) {
        result = api_check_version(api, name);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_dl_close(*library);
    }
    return result;
}

/* --- the topology ----------------------------------------------------------------------------- */

static const hwloc_obj_type_t reader_unwanted[] = {
    HWLOC_OBJ_CORE,     HWLOC_OBJ_L1CACHE,  HWLOC_OBJ_L1ICACHE,
    HWLOC_OBJ_L2ICACHE, HWLOC_OBJ_L3ICACHE, HWLOC_OBJ_MEMCACHE,
};

/* Except for the flag, this only saves time, so what an older hwloc does not have is skipped. */
static void reader_configure(reader_t *reader) {
    const api_t *api = &reader->api;
    api->topology_set_flags(reader->topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    for (size_t i = 0; i < UMF_COUNT_OF(reader_unwanted); i++) {
        api->topology_set_type_filter(reader->topology, reader_unwanted[i],
                                      HWLOC_TYPE_FILTER_KEEP_NONE);
    }
    if (api->topology_set_components) {
        api->topology_set_components(reader->topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                     "x86");
    }
}

static umf_result_t reader_load(reader_t *reader) {
    if (reader->api.topology_init(&reader->topology) != 0) {
        UMF_LOG_PERROR("hwloc cannot start");
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    reader_configure(reader);
    if (reader->api.topology_load(reader->topology) != 0) {
        UMF_LOG_PERROR("hwloc cannot read the topology of this machine (if HWLOC_XMLFILE is set, "
                       "is that file right?)");
        reader->api.topology_destroy(reader->topology);
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    return UMF_RESULT_SUCCESS;
}

/* --- the table -------------------------------------------------------------------------------- */

/* Inserts an object; `objects` stay sorted by the system's number. A number that is unknown or
 * occurs twice cannot name a node. */
static void reader_insert(reader_t *reader, size_t *count, hwloc_obj_t object) {
    size_t at = *count;
    while (at > 0 && reader->objects[at - 1]->os_index > object->os_index) {
        at--;
    }
    if (object->os_index == HWLOC_UNKNOWN_INDEX ||
        (at > 0 && reader->objects[at - 1]->os_index == object->os_index)) {
        return;
    }
    for (size_t i = *count; i > at; i--) {
        reader->objects[i] = reader->objects[i - 1];
    }
    reader->objects[at] = object;
    (*count)++;
}

static umf_result_t reader_collect(reader_t *reader) {
    const api_t *api = &reader->api;
    unsigned total = api->get_nbobjs_by_depth(reader->topology, HWLOC_TYPE_DEPTH_NUMANODE);
    size_t count = 0;
    reader->room = total;
    reader->objects = umf_meta_alloc(total * sizeof(*reader->objects));
    if (!reader->objects) {
        UMF_LOG_ERROR("no memory for a table of %u NUMA nodes", total);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    for (unsigned i = 0; i < total; i++) {
        reader_insert(reader, &count,
                      api->get_obj_by_depth(reader->topology, HWLOC_TYPE_DEPTH_NUMANODE, i));
    }
    reader->table = umf_topology_alloc(count);
    if (!reader->table) {
        UMF_LOG_ERROR("no memory for a table of %zu NUMA nodes", count);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    hwloc_const_nodeset_t allowed = api->topology_get_allowed_nodeset(reader->topology);
    for (size_t i = 0; i < count; i++) {
        reader->table->nodes[i] = (umf_topology_node_t){
            .id = reader->objects[i]->os_index,
            .capacity = reader->objects[i]->attr->numanode.local_memory,
            .is_allowed = api->bitmap_isset(allowed, reader->objects[i]->os_index) == 1,
        };
    }
    return UMF_RESULT_SUCCESS;
}

/* --- bandwidth and latency -------------------------------------------------------------------- */

typedef struct attribute_t {
    hwloc_memattr_id_t id;
    bool higher_is_better;
    unsigned bit;
} attribute_t;

static const attribute_t attributes[] = {
    {.id = HWLOC_MEMATTR_ID_BANDWIDTH, .higher_is_better = true, .bit = UMF_TOPOLOGY_BANDWIDTH},
    {.id = HWLOC_MEMATTR_ID_LATENCY, .higher_is_better = false, .bit = UMF_TOPOLOGY_LATENCY},
};

/* Two nodes are local to each other if one of their sets of CPUs contains the other. */
static bool reader_is_local(const reader_t *reader, hwloc_obj_t from, hwloc_obj_t to) {
    return reader->api.bitmap_isincluded(from->cpuset, to->cpuset) ||
           reader->api.bitmap_isincluded(to->cpuset, from->cpuset);
}

/* The value of the attribute from the CPUs of one node to the memory of another. */
static bool reader_get_value(const reader_t *reader, const attribute_t *attribute, size_t from,
                             size_t to, hwloc_uint64_t *value) {
    hwloc_obj_t initiator = reader->objects[from], target = reader->objects[to];
    struct hwloc_location location = {.type = HWLOC_LOCATION_TYPE_CPUSET,
                                      .location.cpuset = initiator->cpuset};
    return reader->table->nodes[to].is_allowed && reader->table->nodes[to].capacity != 0 &&
           reader_is_local(reader, initiator, target) &&
           reader->api.memattr_get_value(reader->topology, attribute->id, target, &location, 0,
                                         value) == 0;
}

/* Marks the best node. Of equal nodes the one with the lowest number wins. */
static void reader_mark_best(reader_t *reader, const attribute_t *attribute, size_t from) {
    umf_topology_node_t *best = NULL;
    hwloc_uint64_t best_value = 0, value = 0;
    for (size_t to = 0; to < reader->table->count; to++) {
        if (reader_get_value(reader, attribute, from, to, &value) &&
            (!best || (attribute->higher_is_better ? value > best_value : value < best_value))) {
            best = &reader->table->nodes[to];
            best_value = value;
        }
    }
    if (best) {
        best->best |= attribute->bit;
    }
}

static void reader_mark_all(reader_t *reader) {
    for (size_t from = 0; reader->api.memattr_get_value && from < reader->table->count; from++) {
        if (!reader->table->nodes[from].is_allowed ||
            reader->api.bitmap_iszero(reader->objects[from]->cpuset)) {
            continue;
        }
        for (size_t i = 0; i < UMF_COUNT_OF(attributes); i++) {
            reader_mark_best(reader, &attributes[i], from);
        }
    }
}

umf_result_t umf_topology_read(const char *library, umf_topology_t **topology) {
    reader_t reader = {0};
    void *handle;
    umf_result_t result = api_open(library, &handle, &reader.api);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = reader_load(&reader);
    if (result == UMF_RESULT_SUCCESS) {
        result = reader_collect(&reader);
        if (result == UMF_RESULT_SUCCESS) {
            reader_mark_all(&reader);
            *topology = reader.table;
        }
        umf_meta_free(reader.objects, reader.room * sizeof(*reader.objects));
        reader.api.topology_destroy(reader.topology);
    }
    umf_dl_close(handle);
    return result;
}
