/* Pools of the library's kinds over a provider that exists: what no text can say. */
#include "core.h"

#include <string.h>

#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>

typedef struct setting_t {
    const char *name;
    umf_result_t (*set)(void *params, size_t value);
} setting_t;

typedef struct kind_t {
    const char *name;
    const umf_memory_pool_ops_t *(*ops)(void);
    umf_result_t (*create)(void **params); /* NULL: the kind has no settings */
    void (*destroy)(void *params);
    const setting_t *settings;
} kind_t;

#define PARAMS(Kind, kind)                                                                         \
    static umf_result_t kind##_create(void **params) {                                             \
        return umf##Kind##PoolParamsCreate((umf_##kind##_pool_params_handle_t *)params);           \
    }                                                                                              \
    static void kind##_destroy(void *params) {                                                     \
        umf##Kind##PoolParamsDestroy(params);                                                      \
    }

#define SETTING(Kind, Setting, type)                                                               \
    static umf_result_t set_##Kind##_##Setting(void *params, size_t value) {                       \
        return umf##Kind##PoolParamsSet##Setting(params, (type)value);                             \
    }

PARAMS(Coalescing, coalescing)
SETTING(Coalescing, Granule, size_t)
SETTING(Coalescing, SpanSize, size_t)
SETTING(Coalescing, Retain, size_t)
static const setting_t coalescing_settings[] = {{"granule", set_Coalescing_Granule},
                                                {"span_size", set_Coalescing_SpanSize},
                                                {"retain", set_Coalescing_Retain},
                                                {NULL, NULL}};

PARAMS(Disjoint, disjoint)
SETTING(Disjoint, SlabMinSize, size_t)
SETTING(Disjoint, MaxPoolableSize, size_t)
SETTING(Disjoint, Capacity, size_t)
SETTING(Disjoint, MinBucketSize, size_t)
SETTING(Disjoint, Trace, int)
static const setting_t disjoint_settings[] = {{"slab_min_size", set_Disjoint_SlabMinSize},
                                              {"max_poolable_size", set_Disjoint_MaxPoolableSize},
                                              {"capacity", set_Disjoint_Capacity},
                                              {"min_bucket_size", set_Disjoint_MinBucketSize},
                                              {"pool_trace", set_Disjoint_Trace},
                                              {NULL, NULL}};

PARAMS(Jemalloc, jemalloc)
SETTING(Jemalloc, NumArenas, size_t)
static const setting_t jemalloc_settings[] = {{"num_arenas", set_Jemalloc_NumArenas}, {NULL, NULL}};

PARAMS(Scalable, scalable)
SETTING(Scalable, Granularity, size_t)
SETTING(Scalable, KeepAllMemory, bool)
static const setting_t scalable_settings[] = {{"granularity", set_Scalable_Granularity},
                                              {"keep_all_memory", set_Scalable_KeepAllMemory},
                                              {NULL, NULL}};

static const setting_t no_settings[] = {{NULL, NULL}};

static const kind_t kinds[] = {
    {"proxy", umfProxyPoolOps, NULL, NULL, no_settings},
    {"coalescing", umfCoalescingPoolOps, coalescing_create, coalescing_destroy,
     coalescing_settings},
    {"disjoint", umfDisjointPoolOps, disjoint_create, disjoint_destroy, disjoint_settings},
    {"jemalloc", umfJemallocPoolOps, jemalloc_create, jemalloc_destroy, jemalloc_settings},
    {"scalable", umfScalablePoolOps, scalable_create, scalable_destroy, scalable_settings},
    {NULL, NULL, NULL, NULL, NULL}};

static const kind_t *kind_find(const char *name) {
    const kind_t *kind = kinds;
    while (kind->name && strcmp(kind->name, name) != 0) {
        kind++;
    }
    if (!kind->name) {
        PyErr_Format(PyExc_ValueError,
                     "there is no kind of pool '%s' that can be made on a Provider; write it and "
                     "its provider as one text",
                     name);
        return NULL;
    }
    return kind;
}

/* `pair` is (name, value). */
static bool kind_set(const kind_t *kind, void *params, PyObject *pair) {
    const char *name;
    Py_ssize_t value;
    if (!PyArg_ParseTuple(pair, "sn", &name, &value)) {
        return false;
    }
    const setting_t *setting = kind->settings;
    while (setting->name && strcmp(setting->name, name) != 0) {
        setting++;
    }
    if (!setting->name || value < 0) {
        PyErr_Format(PyExc_ValueError,
                     setting->name ? "setting '%s' of pool '%s' must not be negative"
                                   : "unknown setting '%s' of pool '%s' over a Provider",
                     name, kind->name);
        return false;
    }
    umf_result_t result = setting->set(params, (size_t)value);
    return result == UMF_RESULT_SUCCESS || umf_py_raise(result, name, NULL, 0);
}

static bool kind_set_all(const kind_t *kind, void *params, PyObject *settings) {
    Py_ssize_t count = settings ? PyTuple_Size(settings) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!kind_set(kind, params, PyTuple_GetItem(settings, i))) {
            return false;
        }
    }
    return count >= 0;
}

umf_memory_pool_handle_t umf_py_kind_create(const char *name, umf_memory_provider_handle_t provider,
                                            PyObject *settings) {
    const kind_t *kind = kind_find(name);
    void *params = NULL;
    umf_memory_pool_handle_t pool = NULL;
    if (!kind) {
        return NULL;
    }
    umf_result_t result = kind->create ? kind->create(&params) : UMF_RESULT_SUCCESS;
    if (result == UMF_RESULT_SUCCESS && kind_set_all(kind, params, settings)) {
        Py_BEGIN_ALLOW_THREADS;
        result = umfPoolCreate(kind->ops(), provider, params, UMF_POOL_CREATE_FLAG_NONE, &pool);
        Py_END_ALLOW_THREADS;
    }
    if (params) {
        kind->destroy(params);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_py_raise(result, "a pool cannot be created", NULL, 0);
        return NULL;
    }
    return pool;
}
