#include "core/registry.h"

#include <string.h>

#include "base/dl.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "core/kind.h"
#include "object/provider/tracked_provider.h"

typedef struct plugin_t {
    umf_list_t link;
    void *library;
    size_t uses; /* number of its kinds, plus 1 while it is listed. Sync: registry.lock */
} plugin_t;

static struct {
    umf_lock_t lock;
    umf_list_t kinds[UMF_SORTS], plugins; /* Sync: lock. Only grow between start and teardown */
    bool started;                         /* Sync: atomic */
} registry;

static bool registry_is_started(void) {
    return __atomic_load_n(&registry.started, __ATOMIC_ACQUIRE);
}

/* --- in-tree kinds --- */

#define KIND_IF(feature) KIND_IF_VALUE(UMF_WITH_##feature)
#define KIND_IF_VALUE(value) KIND_IF_JOIN(value)
#define KIND_IF_JOIN(value) KIND_IF_##value
#define KIND_IF_0(...)
#define KIND_IF_1(...) __VA_ARGS__

#define UMF_PROVIDER(id, default_name, feature)                                                    \
    KIND_IF(feature)(extern const umf_memory_provider_descriptor_t umf_##id##_descriptor;)
#include "providers/providers.def"
#undef UMF_PROVIDER

#define UMF_POOL(id, default_name, feature)                                                        \
    KIND_IF(feature)                                                                               \
    (extern const umf_memory_pool_descriptor_t umf_##id##_pool_descriptor;                         \
     extern const umf_pool_fast_ops_t umf_##id##_pool_fast_ops;)
#include "pools/pools.def"
#undef UMF_POOL

#define UMF_PROVIDER(id, default_name, feature)                                                    \
    KIND_IF(feature)({UMF_PROVIDERS, &umf_##id##_descriptor, NULL}, )
#define UMF_POOL(id, default_name, feature)                                                        \
    KIND_IF(feature)({UMF_POOLS, &umf_##id##_pool_descriptor, &umf_##id##_pool_fast_ops}, )
static const struct {
    umf_sort_t sort;
    const void *descriptor;
    const umf_pool_fast_ops_t *fast;
} tree[] = {
#include "pools/pools.def"
/* Pools are first: they are searched. */
#include "providers/providers.def"
};
#undef UMF_PROVIDER
#undef UMF_POOL

/* The opposite: the kinds that this build lacks. */
#define KIND_UNLESS(feature) KIND_UNLESS_VALUE(UMF_WITH_##feature)
#define KIND_UNLESS_VALUE(value) KIND_UNLESS_JOIN(value)
#define KIND_UNLESS_JOIN(value) KIND_UNLESS_##value
#define KIND_UNLESS_0(...) __VA_ARGS__
#define KIND_UNLESS_1(...)

#define UMF_PROVIDER(id, default_name, feature) KIND_UNLESS(feature)(#id, )
static const char *const left_out_providers[] = {
#include "providers/providers.def"
    NULL};
#undef UMF_PROVIDER

#define UMF_POOL(id, default_name, feature) KIND_UNLESS(feature)(#id, )
static const char *const left_out_pools[] = {
#include "pools/pools.def"
    NULL};
#undef UMF_POOL

const char *const *const umf_registry_left_out[UMF_SORTS] = {left_out_providers, left_out_pools};

static umf_listed_kind_t tree_kinds[UMF_COUNT_OF(tree)];

/* --- lookup --- */

/* Finds a kind by name or by operations; the other one may be NULL. */
static umf_listed_kind_t *kind_find_locked(umf_list_t *kinds, const char *name, const void *ops) {
    umf_assert_locked(&registry.lock);
    for (umf_list_t *at = kinds->next; at != kinds; at = at->next) {
        umf_listed_kind_t *kind = UMF_CONTAINER_OF(at, umf_listed_kind_t, link);
        if ((name && strcmp(kind->head.name, name) == 0) || (ops && kind->head.ops == ops)) {
            return kind;
        }
    }
    return NULL;
}

/* `is_use`: a new object uses the kind from now on. */
static umf_listed_kind_t *kind_find(umf_sort_t sort, const char *name, const void *ops,
                                    bool is_use) {
    if (!registry_is_started()) {
        return NULL;
    }
    umf_lock(&registry.lock);
    umf_listed_kind_t *kind = kind_find_locked(&registry.kinds[sort], name, ops);
    if (kind) {
        kind->uses += is_use;
    }
    umf_unlock(&registry.lock);
    return kind;
}

const umf_kind_t *umf_registry_by_name(umf_sort_t sort, const char *name) {
    const umf_listed_kind_t *kind = kind_find(sort, name, NULL, false);
    return kind ? &kind->view : NULL;
}

const umf_kind_t *umf_registry_next(umf_sort_t sort, const umf_kind_t *after) {
    if (!registry_is_started()) {
        return NULL;
    }
    umf_list_t *kinds = &registry.kinds[sort];
    umf_lock(&registry.lock);
    umf_list_t *next =
        after ? UMF_CONTAINER_OF(after, umf_listed_kind_t, view)->link.next : kinds->next;
    const umf_kind_t *view =
        next == kinds ? NULL : &UMF_CONTAINER_OF(next, umf_listed_kind_t, link)->view;
    umf_unlock(&registry.lock);
    return view;
}

const umf_memory_provider_descriptor_t *
umf_registry_provider_use(const umf_memory_provider_ops_t *ops) {
    const umf_listed_kind_t *kind = kind_find(UMF_PROVIDERS, NULL, ops, true);
    return kind ? &kind->provider : NULL;
}

const umf_memory_pool_descriptor_t *umf_registry_pool_use(const umf_memory_pool_ops_t *ops) {
    const umf_listed_kind_t *kind = kind_find(UMF_POOLS, NULL, ops, true);
    return kind ? &kind->pool : NULL;
}

/* Without the lock, because in-tree kinds never change. */
const umf_pool_fast_ops_t *umf_registry_pool_fast_ops(const umf_memory_pool_ops_t *ops) {
    for (size_t i = 0; i < UMF_COUNT_OF(tree) && tree[i].fast; i++) {
        if (((const umf_memory_pool_descriptor_t *)tree[i].descriptor)->ops == ops) {
            return tree[i].fast;
        }
    }
    return NULL;
}

/* --- uses of kinds --- */

static void kind_free(umf_listed_kind_t *kind) {
    if (!kind->is_in_tree) {
        umf_meta_free(kind, sizeof(*kind));
    }
}

/* The last use of a plugin puts it on the list `unused`, to be closed without the lock. */
static void plugin_unuse_locked(plugin_t *plugin, umf_list_t *unused) {
    umf_assert_locked(&registry.lock);
    if (--plugin->uses == 0) {
        umf_list_add_tail(unused, &plugin->link);
    }
}

static void kind_unuse_locked(umf_listed_kind_t *kind, umf_list_t *unused) {
    umf_assert_locked(&registry.lock);
    if (--kind->uses == 0) {
        if (kind->plugin) { /* the code of the kind is in the plugin: it goes after its last kind */
            plugin_unuse_locked(kind->plugin, unused);
        }
        kind_free(kind);
    }
}

static void plugins_close(umf_list_t *plugins) {
    while (!umf_list_is_empty(plugins)) {
        plugin_t *plugin = UMF_CONTAINER_OF(plugins->next, plugin_t, link);
        umf_list_remove(&plugin->link);
        umf_dl_close(plugin->library);
        umf_meta_free(plugin, sizeof(*plugin));
    }
}

static void kind_unuse(umf_listed_kind_t *kind) {
    umf_list_t unused;
    umf_list_init(&unused);
    umf_lock(&registry.lock);
    kind_unuse_locked(kind, &unused);
    umf_unlock(&registry.lock);
    plugins_close(&unused);
}

void umf_registry_provider_unuse(const umf_memory_provider_descriptor_t *descriptor) {
    if (descriptor) {
        kind_unuse(UMF_CONTAINER_OF(descriptor, umf_listed_kind_t, provider));
    }
}

void umf_registry_pool_unuse(const umf_memory_pool_descriptor_t *descriptor) {
    if (descriptor) {
        kind_unuse(UMF_CONTAINER_OF(descriptor, umf_listed_kind_t, pool));
    }
}

/* --- registration --- */

/* Kinds that are listed together or not at all. */
typedef struct batch_t {
    umf_list_t kinds[UMF_SORTS];
} batch_t;

static void batch_init(batch_t *batch) {
    for (umf_sort_t sort = 0; sort < UMF_SORTS; sort++) {
        umf_list_init(&batch->kinds[sort]);
    }
}

static void kinds_free(umf_list_t *kinds) {
    while (!umf_list_is_empty(kinds)) {
        umf_listed_kind_t *kind = UMF_CONTAINER_OF(kinds->next, umf_listed_kind_t, link);
        umf_list_remove(&kind->link);
        kind_free(kind);
    }
}

static void batch_free(batch_t *batch) {
    for (umf_sort_t sort = 0; sort < UMF_SORTS; sort++) {
        kinds_free(&batch->kinds[sort]);
    }
}

static umf_result_t batch_make(batch_t *batch, umf_sort_t sort, const void *descriptor) {
    umf_result_t result = umf_kind_check(sort, descriptor);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_listed_kind_t *kind = umf_meta_alloc(sizeof(*kind));
    if (!kind) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_kind_fill(kind, sort, descriptor);
    umf_kind_own(kind, sort);
    umf_list_add_tail(&batch->kinds[sort], &kind->link);
    return UMF_RESULT_SUCCESS;
}

static void kinds_list_locked(umf_list_t *listed, umf_list_t *kinds, plugin_t *plugin) {
    umf_assert_locked(&registry.lock);
    while (!umf_list_is_empty(kinds)) {
        umf_listed_kind_t *kind = UMF_CONTAINER_OF(kinds->next, umf_listed_kind_t, link);
        umf_list_remove(&kind->link);
        umf_list_add_tail(listed, &kind->link);
        kind->uses = 1;
        kind->plugin = plugin;
        if (plugin) {
            plugin->uses++;
        }
    }
}

/* The first kind of `added` that clashes with a listed kind, or with an earlier one of `added`. */
static const umf_listed_kind_t *kinds_clash_locked(umf_list_t *listed, umf_list_t *added) {
    for (umf_list_t *at = added->next; at != added; at = at->next) {
        const umf_listed_kind_t *kind = UMF_CONTAINER_OF(at, umf_listed_kind_t, link);
        if (kind_find_locked(listed, kind->head.name, kind->head.ops) ||
            kind_find_locked(added, kind->head.name, kind->head.ops) != kind) {
            return kind;
        }
    }
    return NULL;
}

/* Lists the batch and `plugin` (may be NULL), or frees the batch. */
static umf_result_t batch_add(batch_t *batch, plugin_t *plugin) {
    umf_lock(&registry.lock);
    const umf_listed_kind_t *clash = NULL;
    for (umf_sort_t sort = 0; sort < UMF_SORTS && !clash; sort++) {
        clash = kinds_clash_locked(&registry.kinds[sort], &batch->kinds[sort]);
    }
    for (umf_sort_t sort = 0; sort < UMF_SORTS && !clash; sort++) {
        kinds_list_locked(&registry.kinds[sort], &batch->kinds[sort], plugin);
    }
    if (!clash && plugin) {
        plugin->uses++;
        umf_list_add_tail(&registry.plugins, &plugin->link);
    }
    umf_unlock(&registry.lock);
    if (!clash) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR(
        "the kind \"%s\" cannot be registered: its name is taken, or its operations belong to "
        "a kind already",
        clash->name);
    batch_free(batch);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t registry_check(void) {
    if (registry_is_started()) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("the library is not started; call umfInit first");
    return UMF_RESULT_ERROR_UNKNOWN;
}

static umf_result_t kind_register(umf_sort_t sort, const void *descriptor) {
    batch_t batch;
    batch_init(&batch);
    umf_result_t result = registry_check();
    if (result == UMF_RESULT_SUCCESS) {
        result = batch_make(&batch, sort, descriptor);
    }
    return result == UMF_RESULT_SUCCESS ? batch_add(&batch, NULL) : result;
}

UMF_API_EXT_1 umf_result_t umfRegisterProvider(const umf_memory_provider_descriptor_t *descriptor) {
    return kind_register(UMF_PROVIDERS, descriptor);
}

UMF_API_EXT_1 umf_result_t umfRegisterPool(const umf_memory_pool_descriptor_t *descriptor) {
    return kind_register(UMF_POOLS, descriptor);
}

/* --- plugins --- */

/* Copies the plugin's table. Members that it lacks are 0. */
static umf_result_t plugin_read(const char *path, const umf_plugin_t *from, umf_plugin_t *plugin) {
    if (from->struct_size < offsetof(umf_plugin_t, abi) + sizeof(from->abi)) {
        UMF_LOG_ERROR("%s: umf_plugin has struct_size %zu, its version is missing", path,
                      from->struct_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (from->abi != UMF_PLUGIN_ABI) {
        UMF_LOG_ERROR(
            "%s is made for plugin version %u, this library takes %u: compile it with this "
            "library's headers",
            path, from->abi, UMF_PLUGIN_ABI);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    *plugin = (umf_plugin_t)UMF_PLUGIN_INIT;
    umf_kind_copy_sized(plugin, sizeof(*plugin), from);
    if ((plugin->num_providers && !plugin->providers) || (plugin->num_pools && !plugin->pools)) {
        UMF_LOG_ERROR("%s: umf_plugin counts %zu providers and %zu pools, but a list is NULL", path,
                      plugin->num_providers, plugin->num_pools);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* On failure the batch is empty. */
static umf_result_t plugin_kinds(const umf_plugin_t *plugin, batch_t *batch) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < plugin->num_providers && result == UMF_RESULT_SUCCESS; i++) {
        result = batch_make(batch, UMF_PROVIDERS, plugin->providers[i]);
    }
    for (size_t i = 0; i < plugin->num_pools && result == UMF_RESULT_SUCCESS; i++) {
        result = batch_make(batch, UMF_POOLS, plugin->pools[i]);
    }
    if (result != UMF_RESULT_SUCCESS) {
        batch_free(batch);
    }
    return result;
}

static umf_result_t plugin_register(const char *path, void *library) {
    const umf_plugin_t *symbol = umf_dl_symbol(library, "umf_plugin");
    if (!symbol) {
        UMF_LOG_ERROR("%s has no symbol umf_plugin: it is not a plugin", path);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    umf_plugin_t table;
    batch_t batch;
    batch_init(&batch);
    umf_result_t result = plugin_read(path, symbol, &table);
    if (result == UMF_RESULT_SUCCESS) {
        result = plugin_kinds(&table, &batch);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    plugin_t *plugin = umf_meta_alloc(sizeof(*plugin));
    if (!plugin) {
        batch_free(&batch);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    plugin->library = library;
    result = batch_add(&batch, plugin);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(plugin, sizeof(*plugin));
    }
    return result;
}

UMF_API_EXT_1 umf_result_t umfLoadPlugin(const char *path) {
    if (!path || !*path) {
        UMF_LOG_ERROR("the path of the plugin is %s", path ? "empty" : "NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = registry_check();
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    char why[256] = "";
    void *library = umf_dl_open(path, false, why, sizeof(why));
    if (!library) {
        UMF_LOG_ERROR("plugin %s cannot be loaded: %s", path, why);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    result = plugin_register(path, library);
    if (result != UMF_RESULT_SUCCESS) {
        umf_dl_close(library);
    }
    return result;
}

/* --- start and stop --- */

/* The lock outlives teardown, so that a late call finds empty lists instead of a destroyed lock. */
void umf_registry_init(void) {
    static bool has_lock;
    if (!has_lock) {
        umf_lock_init(&registry.lock, UMF_RANK_REGISTRY);
        has_lock = true;
    }
    umf_lock(&registry.lock);
    umf_list_init(&registry.kinds[UMF_PROVIDERS]);
    umf_list_init(&registry.kinds[UMF_POOLS]);
    umf_list_init(&registry.plugins);
    for (size_t i = 0; i < UMF_COUNT_OF(tree); i++) {
        umf_listed_kind_t *kind = &tree_kinds[i];
        umf_kind_fill(kind, tree[i].sort, tree[i].descriptor);
        kind->is_in_tree = true;
        kind->uses++;
        umf_list_add_tail(&registry.kinds[tree[i].sort], &kind->link);
    }
    umf_unlock(&registry.lock);
    __atomic_store_n(&registry.started, true, __ATOMIC_RELEASE);
}

static void kinds_forget_locked(umf_list_t *listed, umf_list_t *unused) {
    umf_assert_locked(&registry.lock);
    while (!umf_list_is_empty(listed)) {
        umf_listed_kind_t *kind = UMF_CONTAINER_OF(listed->next, umf_listed_kind_t, link);
        umf_list_remove(&kind->link);
        kind_unuse_locked(kind, unused);
    }
}

void umf_registry_teardown(void) {
    umf_list_t unused;
    umf_list_init(&unused);
    __atomic_store_n(&registry.started, false, __ATOMIC_RELEASE);
    umf_lock(&registry.lock);
    kinds_forget_locked(&registry.kinds[UMF_PROVIDERS], &unused);
    kinds_forget_locked(&registry.kinds[UMF_POOLS], &unused);
    while (!umf_list_is_empty(&registry.plugins)) {
        plugin_t *plugin = UMF_CONTAINER_OF(registry.plugins.next, plugin_t, link);
        umf_list_remove(&plugin->link);
        plugin_unuse_locked(plugin, &unused);
    }
    umf_unlock(&registry.lock);
    plugins_close(&unused);
}
