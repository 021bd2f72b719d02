#include "core/ctl_nodes.h"

#include <string.h>

#include "base/log.h"
#include "core/registry.h"
#include "ctl/ctl.h"
#include "ctl/field.h"
#include "ctl/text.h"
#include "object/group.h"
#include "object/names.h"
#include "object/object.h"

/* A child of a node. */
typedef struct node_t {
    const char *name;
    umf_ctl_node_t query;
} node_t;

static umf_result_t node_query(const node_t *nodes, size_t count, umf_ctl_query_t *query,
                               const char *rest) {
    char name[UMF_CTL_NAME_MAX];
    if (umf_ctl_next(query, &rest, name, sizeof(name))) {
        for (size_t i = 0; i < count; i++) {
            if (strcmp(nodes[i].name, name) == 0) {
                return nodes[i].query(query, rest);
            }
        }
        for (size_t i = 0; i < count && umf_ctl_nearest_is_needed(); i++) {
            umf_ctl_nearest_try(nodes[i].name, name);
        }
    }
    return UMF_RESULT_ERROR_INVALID_CTL_PATH;
}

/* Reads the next element, which must be "{}" and not the last one. Its argument is `*handle`. */
static umf_result_t node_handle(umf_ctl_query_t *query, const char **rest, void **handle) {
    if (strncmp(*rest, "{}.", 3) != 0 || (*rest)[3] == '\0') {
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    *handle = va_arg(*query->args, void *);
    *rest += 3;
    return UMF_RESULT_SUCCESS;
}

/* One pool. */

UMF_FIELD_GETTER(get_alloc_count, size_t, umf_pool_alloc_count(object))
UMF_FIELD_GETTER(get_thread_cache, size_t, umf_pool_thread_cache(object))
UMF_FIELD_GETTER(get_group_limit, size_t, umf_group_value(object, UMF_GROUP_LIMIT))
UMF_FIELD_GETTER(get_group_held, size_t, umf_group_value(object, UMF_GROUP_HELD))
UMF_FIELD_GETTER(get_group_peak, size_t, umf_group_value(object, UMF_GROUP_PEAK))

/* The settings that every pool has. */
static const umf_field_t pool_list[] = {
    {.path = "stats.alloc_count", UMF_FIELD_COUNTER(get_alloc_count), .help = "live allocations"},
    {.path = "stats.thread_cache",
     UMF_FIELD_COUNTER(get_thread_cache),
     .help = "bytes of free objects that its threads have room for"},
    {.path = "group.limit",
     UMF_FIELD_COUNTER(get_group_limit),
     .help = "of the pool's group, in bytes; 0: it is in none"},
    {.path = "group.held",
     UMF_FIELD_COUNTER(get_group_held),
     .help = "bytes that the pools of the group hold"},
    {.path = "group.peak", UMF_FIELD_COUNTER(get_group_peak), .help = "the most they held at once"},
};
static const umf_fields_t pool_fields = UMF_FIELDS(pool_list);

/* Consumes no argument of the query, so that several pools can be queried in turn. */
static umf_result_t pool_query(umf_memory_pool_handle_t pool, umf_ctl_query_t *query,
                               const char *path) {
    umf_result_t result = umf_field_ctl(pool, false, &pool_fields, query->source, path, query->arg,
                                        query->size, query->type, *query->args);
    if (result == UMF_RESULT_ERROR_INVALID_CTL_PATH) {
        va_list args;
        va_copy(args, *query->args);
        result =
            umf_pool_ctl(pool, query->source, path, query->arg, query->size, query->type, args);
        va_end(args);
    }
    return result;
}

static umf_result_t pool_by_handle(umf_ctl_query_t *query, const char *rest) {
    void *pool;
    umf_result_t result = node_handle(query, &rest, &pool);
    if (result == UMF_RESULT_SUCCESS && !umf_pool_check(pool, "umf.pool.by_handle.{}")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result == UMF_RESULT_SUCCESS ? pool_query(pool, query, rest) : result;
}

/* Pools by name. */

static umf_result_t by_name_count(umf_ctl_query_t *query, const char *name, bool has_index) {
    size_t count = umf_names_count(name);
    if (query->type != CTL_QUERY_READ || has_index || count == 0 || query->size != sizeof(count)) {
        UMF_LOG_ERROR(
            "by_name.%s.count is only read, of a name that has pools, without index, into a "
            "size_t",
            name);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memcpy(query->arg, &count, sizeof(count));
    return UMF_RESULT_SUCCESS;
}

static umf_result_t by_name_one(umf_ctl_query_t *query, const char *name, size_t index,
                                const char *path) {
    umf_memory_pool_handle_t pool = umf_names_get(name, index);
    if (!pool) {
        UMF_LOG_ERROR("there are %zu pools named \"%s\", number %zu is not among them",
                      umf_names_count(name), name, index);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = pool_query(pool, query, path);
    umf_names_put(pool);
    return result;
}

static umf_result_t by_name_read(umf_ctl_query_t *query, const char *name, const char *path) {
    size_t count = umf_names_count(name);
    if (count > 1) {
        UMF_LOG_ERROR("there are %zu pools named \"%s\"; read one of them by its index", count,
                      name);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return by_name_one(query, name, 0, path);
}

/* Asks every pool of the name. The result is the first error. */
static umf_result_t by_name_all(umf_ctl_query_t *query, const char *name, const char *path) {
    umf_memory_pool_handle_t pool = umf_names_next(name, NULL);
    if (!pool) {
        UMF_LOG_ERROR("there is no pool named \"%s\"", name);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t first = UMF_RESULT_SUCCESS;
    for (; pool; pool = umf_names_next(name, pool)) {
        umf_result_t result = pool_query(pool, query, path);
        first = first == UMF_RESULT_SUCCESS ? result : first;
    }
    return first;
}

/* Reads an index from the path if there is one. A number that is too large is out of every range.
 */
static bool take_index(umf_ctl_query_t *query, const char **rest, size_t *index) {
    size_t length = strcspn(*rest, ".");
    if (length == 2 && memcmp(*rest, "{}", 2) == 0) {
        *index = umf_ctl_index_argument(query->args);
    } else if (!umf_ctl_index_parse(*rest, length, index)) {
        return false;
    }
    *rest += length + ((*rest)[length] == '.');
    return true;
}

static umf_result_t pool_by_name(umf_ctl_query_t *query, const char *rest) {
    char name[UMF_CTL_NAME_MAX];
    size_t index = 0;
    if (!umf_ctl_next(query, &rest, name, sizeof(name)) || *rest == '\0') {
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    bool has_index = take_index(query, &rest, &index);
    if (*rest == '\0') {
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    if (strcmp(rest, "count") == 0) {
        return by_name_count(query, name, has_index);
    }
    if (has_index) {
        return by_name_one(query, name, index, rest);
    }
    return query->type == CTL_QUERY_READ ? by_name_read(query, name, rest)
                                         : by_name_all(query, name, rest);
}

/* The two roots. */

/* Pools have the names of their kinds, unless a program names them. So a configured name that is
 * nearly that of a kind is probably misspelt. */
static void report_near_kind(const char *name) {
    const umf_kind_t *near = NULL;
    if (umf_registry_by_name(UMF_POOLS, name)) {
        return;
    }
    for (const umf_kind_t *kind = NULL; (kind = umf_registry_next(UMF_POOLS, kind)) && !near;) {
        near = umf_text_is_near(kind->name, name) ? kind : NULL;
    }
    if (near) {
        UMF_LOG_IGNORED("a configured default is for pools named \"%s\" only, which is no kind of "
                        "pool; the nearest name is \"%s\"",
                        umf_text_show(name, strlen(name)).text, near->name);
    }
}

static umf_result_t pool_default(umf_ctl_query_t *query, const char *rest) {
    umf_result_t result = umf_ctl_defaults_query(&umf_ctl_pool_defaults, query, rest);
    char name[UMF_CTL_NAME_MAX];
    if (result == UMF_RESULT_SUCCESS && query->source == CTL_QUERY_CONFIG_INPUT &&
        umf_ctl_next(query, &rest, name, sizeof(name))) {
        report_near_kind(name);
    }
    return result;
}

static umf_result_t provider_by_handle(umf_ctl_query_t *query, const char *rest) {
    void *provider;
    umf_result_t result = node_handle(query, &rest, &provider);
    if (result == UMF_RESULT_SUCCESS &&
        !umf_provider_check(provider, "umf.provider.by_handle.{}")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_provider_ctl(provider, query->source, rest, query->arg, query->size,
                                  query->type, *query->args);
    }
    return result;
}

static umf_result_t provider_default(umf_ctl_query_t *query, const char *rest) {
    return umf_ctl_defaults_query(&umf_ctl_provider_defaults, query, rest);
}

static umf_result_t pool_root(umf_ctl_query_t *query, const char *rest) {
    static const node_t nodes[] = {
        {"by_handle", pool_by_handle},
        {"by_name", pool_by_name},
        {"default", pool_default},
    };
    return node_query(nodes, UMF_COUNT_OF(nodes), query, rest);
}

static umf_result_t provider_root(umf_ctl_query_t *query, const char *rest) {
    static const node_t nodes[] = {
        {"by_handle", provider_by_handle},
        {"default", provider_default},
    };
    return node_query(nodes, UMF_COUNT_OF(nodes), query, rest);
}

void umf_ctl_nodes_init(void) {
    umf_names_init();
    umf_ctl_register("pool", pool_root);
    umf_ctl_register("provider", provider_root);
}
