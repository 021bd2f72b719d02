#include "core/registry.h"

#include <string.h>

#include "base/dl.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "core/tracked_provider.h"
#include "ctl/text.h"
#include "ds/list.h"

/* The longest name, without NUL. */
#define KIND_NAME_LENGTH 63

/* --- listed kinds --- */

typedef struct plugin_t {
    umf_list_t link;
    void *library;
    size_t uses; /* number of its kinds, plus 1 while it is listed. Sync: registry.lock */
} plugin_t;

typedef struct kind_t {
    umf_list_t link;
    const char *name;
    const void *ops;
    size_t block_size; /* 0: in-tree, never freed */
    plugin_t *plugin;  /* NULL: an application registered the kind */
    size_t uses;       /* live objects, plus 1 while it is listed. Sync: registry.lock */
} kind_t;

typedef struct provider_kind_t {
    kind_t head;
    umf_memory_provider_descriptor_t descriptor;
    umf_memory_provider_ext_ops_t ext; /* copy of what was registered */
    char name[KIND_NAME_LENGTH + 1];
} provider_kind_t;

typedef struct pool_kind_t {
    kind_t head;
    umf_memory_pool_descriptor_t descriptor;
    const umf_pool_fast_ops_t *fast;
    char name[KIND_NAME_LENGTH + 1];
} pool_kind_t;

static struct {
    umf_lock_t lock;
    umf_list_t providers, pools, plugins; /* Sync: lock. Only grow between start and teardown */
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

#define UMF_PROVIDER(id, default_name, feature) KIND_IF(feature)(&umf_##id##_descriptor, )
static const umf_memory_provider_descriptor_t *const tree_providers[] = {
#include "providers/providers.def"
};
#undef UMF_PROVIDER

#define UMF_POOL(id, default_name, feature)                                                        \
    KIND_IF(feature)({&umf_##id##_pool_descriptor, &umf_##id##_pool_fast_ops}, )
static const struct {
    const umf_memory_pool_descriptor_t *descriptor;
    const umf_pool_fast_ops_t *fast;
} tree_pools[] = {
#include "pools/pools.def"
};
#undef UMF_POOL

/* The opposite: the kinds that this build lacks. */
#define KIND_UNLESS(feature) KIND_UNLESS_VALUE(UMF_WITH_##feature)
#define KIND_UNLESS_VALUE(value) KIND_UNLESS_JOIN(value)
#define KIND_UNLESS_JOIN(value) KIND_UNLESS_##value
#define KIND_UNLESS_0(...) __VA_ARGS__
#define KIND_UNLESS_1(...)

#define UMF_PROVIDER(id, default_name, feature) KIND_UNLESS(feature)(#id, )
const char *const umf_registry_left_out_providers[] = {
#include "providers/providers.def"
    NULL};
#undef UMF_PROVIDER

#define UMF_POOL(id, default_name, feature) KIND_UNLESS(feature)(#id, )
const char *const umf_registry_left_out_pools[] = {
#include "pools/pools.def"
    NULL};
#undef UMF_POOL

static provider_kind_t tree_provider_kinds[UMF_COUNT_OF(tree_providers)];
static pool_kind_t tree_pool_kinds[UMF_COUNT_OF(tree_pools)];

/* --- lookup --- */

/* Finds a kind by name or by operations; the other one may be NULL. */
static kind_t *kind_find_locked(umf_list_t *kinds, const char *name, const void *ops) {
    umf_assert_locked(&registry.lock);
    for (umf_list_t *at = kinds->next; at != kinds; at = at->next) {
        kind_t *kind = UMF_CONTAINER_OF(at, kind_t, link);
        if ((name && strcmp(kind->name, name) == 0) || (ops && kind->ops == ops)) {
            return kind;
        }
    }
    return NULL;
}

/* The kind of a new object, which uses it from now on. NULL: the object has none. */
static kind_t *kind_use(umf_list_t *kinds, const void *ops) {
    if (!registry_is_started()) {
        return NULL;
    }
    umf_lock(&registry.lock);
    kind_t *kind = kind_find_locked(kinds, NULL, ops);
    if (kind) {
        kind->uses++;
    }
    umf_unlock(&registry.lock);
    return kind;
}

static kind_t *kind_find(umf_list_t *kinds, const char *name, const void *ops) {
    if (!registry_is_started()) {
        return NULL;
    }
    umf_lock(&registry.lock);
    kind_t *kind = kind_find_locked(kinds, name, ops);
    umf_unlock(&registry.lock);
    return kind;
}

static kind_t *kind_next(umf_list_t *kinds, kind_t *after) {
    if (!registry_is_started()) {
        return NULL;
    }
    umf_lock(&registry.lock);
    umf_list_t *next = after ? after->link.next : kinds->next;
    kind_t *kind = next == kinds ? NULL : UMF_CONTAINER_OF(next, kind_t, link);
    umf_unlock(&registry.lock);
    return kind;
}

static const umf_memory_provider_descriptor_t *provider_of(kind_t *kind) {
    return kind ? &UMF_CONTAINER_OF(kind, provider_kind_t, head)->descriptor : NULL;
}

static const umf_memory_pool_descriptor_t *pool_of(kind_t *kind) {
    return kind ? &UMF_CONTAINER_OF(kind, pool_kind_t, head)->descriptor : NULL;
}

const umf_memory_provider_descriptor_t *umf_registry_provider_by_name(const char *name) {
    return provider_of(kind_find(&registry.providers, name, NULL));
}

const umf_memory_provider_descriptor_t *
umf_registry_provider_use(const umf_memory_provider_ops_t *ops) {
    return provider_of(kind_use(&registry.providers, ops));
}

const umf_memory_pool_descriptor_t *umf_registry_pool_by_name(const char *name) {
    return pool_of(kind_find(&registry.pools, name, NULL));
}

const umf_memory_pool_descriptor_t *umf_registry_pool_use(const umf_memory_pool_ops_t *ops) {
    return pool_of(kind_use(&registry.pools, ops));
}

/* Without the lock, because in-tree kinds never change. */
const umf_pool_fast_ops_t *umf_registry_pool_fast_ops(const umf_memory_pool_ops_t *ops) {
    for (size_t i = 0; i < UMF_COUNT_OF(tree_pools); i++) {
        if (tree_pools[i].descriptor->ops == ops) {
            return tree_pools[i].fast;
        }
    }
    return NULL;
}

const umf_memory_provider_descriptor_t *
umf_registry_provider_next(const umf_memory_provider_descriptor_t *after) {
    kind_t *head = after ? &UMF_CONTAINER_OF(after, provider_kind_t, descriptor)->head : NULL;
    return provider_of(kind_next(&registry.providers, head));
}

const umf_memory_pool_descriptor_t *
umf_registry_pool_next(const umf_memory_pool_descriptor_t *after) {
    kind_t *head = after ? &UMF_CONTAINER_OF(after, pool_kind_t, descriptor)->head : NULL;
    return pool_of(kind_next(&registry.pools, head));
}

/* --- one kind --- */

static bool kind_name_is_valid(const char *name) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t length = strspn(name, allowed);
    return length > 0 && length <= KIND_NAME_LENGTH && name[length] == '\0';
}

static umf_result_t kind_check(const char *what, const char *name, const void *ops) {
    if (!name || !kind_name_is_valid(name)) {
        UMF_LOG_ERROR(
            "a kind of %s cannot be named \"%s\": 1 to %d characters out of a-z, 0-9, '_' "
            "and '-' are needed",
            what, name ? umf_text_show(name, strlen(name)).text : "NULL", KIND_NAME_LENGTH);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!ops) {
        UMF_LOG_ERROR("the kind of %s \"%s\" has no operations", what, name);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t kind_check_version(const char *what, const char *name, uint32_t version,
                                       bool known) {
    if (known) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("the operations of the kind of %s \"%s\" have the unknown version %u.%u", what,
                  name, UMF_MAJOR_VERSION(version), UMF_MINOR_VERSION(version));
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* A descriptor may be smaller than this library's, but must contain its operations table. */
static umf_result_t kind_check_size(const char *what, const void *descriptor, size_t least) {
    if (!descriptor) {
        UMF_LOG_ERROR("the descriptor of a kind of %s is NULL", what);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t size;
    memcpy(&size, descriptor, sizeof(size));
    if (size < least) {
        UMF_LOG_ERROR("the descriptor of a kind of %s has struct_size %zu, at least %zu is needed",
                      what, size, least);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* Copies a sized structure. `*to` is zeroed and has `room` bytes. Members beyond either size are
 * left out. */
static void sized_copy(void *to, size_t room, const void *from) {
    size_t size;
    memcpy(&size, from, sizeof(size));
    memcpy(to, from, size < room ? size : room);
    memcpy(to, &room, sizeof(room));
}

static void provider_kind_fill(provider_kind_t *kind,
                               const umf_memory_provider_descriptor_t *descriptor) {
    sized_copy(&kind->descriptor, sizeof(kind->descriptor), descriptor);
    kind->head.name = kind->descriptor.name;
    kind->head.ops = kind->descriptor.ops;
}

static void pool_kind_fill(pool_kind_t *kind, const umf_memory_pool_descriptor_t *descriptor) {
    sized_copy(&kind->descriptor, sizeof(kind->descriptor), descriptor);
    kind->head.name = kind->descriptor.name;
    kind->head.ops = kind->descriptor.ops;
}

/* Copies everything that objects of a kind use, because objects may outlive what was registered. */
static void provider_kind_own(provider_kind_t *kind) {
    const umf_memory_provider_ext_ops_t *ext = kind->descriptor.ext;
    if (ext) {
        sized_copy(&kind->ext, sizeof(kind->ext), ext);
        kind->descriptor.ext = &kind->ext;
    }
    memcpy(kind->name, kind->descriptor.name, strlen(kind->descriptor.name));
    kind->head.name = kind->descriptor.name = kind->name;
}

static void pool_kind_own(pool_kind_t *kind) {
    memcpy(kind->name, kind->descriptor.name, strlen(kind->descriptor.name));
    kind->head.name = kind->descriptor.name = kind->name;
}

static void kind_free(kind_t *kind) {
    if (kind->block_size) {
        umf_meta_free(kind, kind->block_size);
    }
}

/* The last use of a plugin puts it on the list `unused`, to be closed without the lock. */
static void plugin_unuse_locked(plugin_t *plugin, umf_list_t *unused) {
    umf_assert_locked(&registry.lock);
    if (--plugin->uses == 0) {
        umf_list_add_tail(unused, &plugin->link);
    }
}

static void kind_unuse_locked(kind_t *kind, umf_list_t *unused) {
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

static void kind_unuse(kind_t *kind) {
    umf_list_t unused;
    umf_list_init(&unused);
    umf_lock(&registry.lock);
    kind_unuse_locked(kind, &unused);
    umf_unlock(&registry.lock);
    plugins_close(&unused);
}

void umf_registry_provider_unuse(const umf_memory_provider_descriptor_t *descriptor) {
    if (descriptor) {
        kind_unuse(&UMF_CONTAINER_OF(descriptor, provider_kind_t, descriptor)->head);
    }
}

void umf_registry_pool_unuse(const umf_memory_pool_descriptor_t *descriptor) {
    if (descriptor) {
        kind_unuse(&UMF_CONTAINER_OF(descriptor, pool_kind_t, descriptor)->head);
    }
}

static umf_result_t provider_kind_make(const umf_memory_provider_descriptor_t *descriptor,
                                       kind_t **out) {
    static const char what[] = "provider";
    umf_result_t result =
        kind_check_size(what, descriptor,
                        offsetof(umf_memory_provider_descriptor_t, ops) + sizeof(descriptor->ops));
    if (result == UMF_RESULT_SUCCESS) {
        result = kind_check(what, descriptor->name, descriptor->ops);
    }
    if (result == UMF_RESULT_SUCCESS) {
        uint32_t version = descriptor->ops->version;
        result = kind_check_version(what, descriptor->name, version,
                                    UMF_MINOR_VERSION(version) <=
                                        UMF_MINOR_VERSION(UMF_PROVIDER_OPS_VERSION_CURRENT));
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    provider_kind_t *kind = umf_meta_alloc(sizeof(*kind));
    if (!kind) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    kind->head.block_size = sizeof(*kind);
    provider_kind_fill(kind, descriptor);
    provider_kind_own(kind);
    *out = &kind->head;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t pool_kind_make(const umf_memory_pool_descriptor_t *descriptor, kind_t **out) {
    static const char what[] = "pool";
    umf_result_t result = kind_check_size(
        what, descriptor, offsetof(umf_memory_pool_descriptor_t, ops) + sizeof(descriptor->ops));
    if (result == UMF_RESULT_SUCCESS) {
        result = kind_check(what, descriptor->name, descriptor->ops);
    }
    if (result == UMF_RESULT_SUCCESS) {
        uint32_t version = descriptor->ops->version;
        result = kind_check_version(what, descriptor->name, version,
                                    version <= UMF_POOL_OPS_VERSION_CURRENT);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    pool_kind_t *kind = umf_meta_alloc(sizeof(*kind));
    if (!kind) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    kind->head.block_size = sizeof(*kind);
    pool_kind_fill(kind, descriptor);
    pool_kind_own(kind);
    *out = &kind->head;
    return UMF_RESULT_SUCCESS;
}

/* --- registration --- */

/* Kinds that are listed together or not at all. */
typedef struct batch_t {
    umf_list_t providers, pools;
} batch_t;

static void batch_init(batch_t *batch) {
    umf_list_init(&batch->providers);
    umf_list_init(&batch->pools);
}

static void kinds_free(umf_list_t *kinds) {
    while (!umf_list_is_empty(kinds)) {
        kind_t *kind = UMF_CONTAINER_OF(kinds->next, kind_t, link);
        umf_list_remove(&kind->link);
        kind_free(kind);
    }
}

static void kinds_list_locked(umf_list_t *listed, umf_list_t *kinds, plugin_t *plugin) {
    umf_assert_locked(&registry.lock);
    while (!umf_list_is_empty(kinds)) {
        kind_t *kind = UMF_CONTAINER_OF(kinds->next, kind_t, link);
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
static const kind_t *kinds_clash_locked(umf_list_t *listed, umf_list_t *added) {
    for (umf_list_t *at = added->next; at != added; at = at->next) {
        const kind_t *kind = UMF_CONTAINER_OF(at, kind_t, link);
        if (kind_find_locked(listed, kind->name, kind->ops) ||
            kind_find_locked(added, kind->name, kind->ops) != kind) {
            return kind;
        }
    }
    return NULL;
}

/* Lists the batch and `plugin` (may be NULL), or frees the batch. */
static umf_result_t batch_add(batch_t *batch, plugin_t *plugin) {
    umf_lock(&registry.lock);
    const kind_t *clash = kinds_clash_locked(&registry.providers, &batch->providers);
    if (!clash) {
        clash = kinds_clash_locked(&registry.pools, &batch->pools);
    }
    if (!clash) {
        kinds_list_locked(&registry.providers, &batch->providers, plugin);
        kinds_list_locked(&registry.pools, &batch->pools, plugin);
        if (plugin) {
            plugin->uses++;
            umf_list_add_tail(&registry.plugins, &plugin->link);
        }
    }
    umf_unlock(&registry.lock);
    if (!clash) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR(
        "the kind \"%s\" cannot be registered: its name is taken, or its operations belong to "
        "a kind already",
        clash->name);
    kinds_free(&batch->providers);
    kinds_free(&batch->pools);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t registry_check(void) {
    if (registry_is_started()) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("the library is not started; call umfInit first");
    return UMF_RESULT_ERROR_UNKNOWN;
}

UMF_API_EXT_1 umf_result_t umfRegisterProvider(const umf_memory_provider_descriptor_t *descriptor) {
    kind_t *kind;
    umf_result_t result = registry_check();
    if (result == UMF_RESULT_SUCCESS) {
        result = provider_kind_make(descriptor, &kind);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    batch_t batch;
    batch_init(&batch);
    umf_list_add(&batch.providers, &kind->link);
    return batch_add(&batch, NULL);
}

UMF_API_EXT_1 umf_result_t umfRegisterPool(const umf_memory_pool_descriptor_t *descriptor) {
    kind_t *kind;
    umf_result_t result = registry_check();
    if (result == UMF_RESULT_SUCCESS) {
        result = pool_kind_make(descriptor, &kind);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    batch_t batch;
    batch_init(&batch);
    umf_list_add(&batch.pools, &kind->link);
    return batch_add(&batch, NULL);
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
    sized_copy(plugin, sizeof(*plugin), from);
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
    kind_t *kind;
    for (size_t i = 0; i < plugin->num_providers && result == UMF_RESULT_SUCCESS; i++) {
        result = provider_kind_make(plugin->providers[i], &kind);
        if (result == UMF_RESULT_SUCCESS) {
            umf_list_add_tail(&batch->providers, &kind->link);
        }
    }
    for (size_t i = 0; i < plugin->num_pools && result == UMF_RESULT_SUCCESS; i++) {
        result = pool_kind_make(plugin->pools[i], &kind);
        if (result == UMF_RESULT_SUCCESS) {
            umf_list_add_tail(&batch->pools, &kind->link);
        }
    }
    if (result != UMF_RESULT_SUCCESS) {
        kinds_free(&batch->providers);
        kinds_free(&batch->pools);
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
        kinds_free(&batch.providers);
        kinds_free(&batch.pools);
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
    umf_list_init(&registry.providers);
    umf_list_init(&registry.pools);
    umf_list_init(&registry.plugins);
    for (size_t i = 0; i < UMF_COUNT_OF(tree_providers); i++) {
        provider_kind_fill(&tree_provider_kinds[i], tree_providers[i]);
        tree_provider_kinds[i].head.uses++;
        umf_list_add_tail(&registry.providers, &tree_provider_kinds[i].head.link);
    }
    for (size_t i = 0; i < UMF_COUNT_OF(tree_pools); i++) {
        pool_kind_fill(&tree_pool_kinds[i], tree_pools[i].descriptor);
        tree_pool_kinds[i].head.uses++;
        umf_list_add_tail(&registry.pools, &tree_pool_kinds[i].head.link);
    }
    umf_unlock(&registry.lock);
    __atomic_store_n(&registry.started, true, __ATOMIC_RELEASE);
}

static void kinds_forget_locked(umf_list_t *listed, umf_list_t *unused) {
    umf_assert_locked(&registry.lock);
    while (!umf_list_is_empty(listed)) {
        kind_t *kind = UMF_CONTAINER_OF(listed->next, kind_t, link);
        umf_list_remove(&kind->link);
        kind_unuse_locked(kind, unused);
    }
}

void umf_registry_teardown(void) {
    umf_list_t unused;
    umf_list_init(&unused);
    __atomic_store_n(&registry.started, false, __ATOMIC_RELEASE);
    umf_lock(&registry.lock);
    kinds_forget_locked(&registry.providers, &unused);
    kinds_forget_locked(&registry.pools, &unused);
    while (!umf_list_is_empty(&registry.plugins)) {
        plugin_t *plugin = UMF_CONTAINER_OF(registry.plugins.next, plugin_t, link);
        umf_list_remove(&plugin->link);
        plugin_unuse_locked(plugin, &unused);
    }
    umf_unlock(&registry.lock);
    plugins_close(&unused);
}
