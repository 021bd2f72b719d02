#include "object/tables.h"

#include <string.h>

#include "base/log.h"
#include "system/common.h"

/* --- missing operations --- */

typedef struct member_t {
    const char *name;
    size_t offset;
} member_t;

#define PROVIDER(member)                                                                           \
    { #member, offsetof(umf_memory_provider_ops_t, member) }
#define POOL(member)                                                                               \
    { #member, offsetof(umf_memory_pool_ops_t, member) }

static const member_t provider_required[] = {
    PROVIDER(initialize),
    PROVIDER(finalize),
    PROVIDER(alloc),
    PROVIDER(free),
    PROVIDER(get_last_native_error),
    PROVIDER(get_recommended_page_size),
    PROVIDER(get_min_page_size),
    PROVIDER(get_name),
    PROVIDER(get_cache_line_size),
};

/* Operations that a provider offers together or not at all. */
static const member_t provider_parts[] = {
    PROVIDER(ext_allocation_split),
    PROVIDER(ext_allocation_merge),
};
static const member_t provider_ipc[] = {
    PROVIDER(ext_get_ipc_handle_size), PROVIDER(ext_get_ipc_handle),   PROVIDER(ext_put_ipc_handle),
    PROVIDER(ext_open_ipc_handle),     PROVIDER(ext_close_ipc_handle),
};
static const member_t provider_properties[] = {
    PROVIDER(ext_get_allocation_properties),
    PROVIDER(ext_get_allocation_properties_size),
};

static const member_t pool_required[] = {
    POOL(initialize),
    POOL(finalize),
    POOL(malloc),
    POOL(calloc),
    POOL(realloc),
    POOL(aligned_malloc),
    POOL(malloc_usable_size),
    POOL(free),
    POOL(get_last_allocation_error),
    POOL(get_name),
};

static bool has_member(const void *table, const member_t *member) {
    void (*operation)(void);
    memcpy(&operation, (const char *)table + member->offset, sizeof(operation));
    return operation != NULL;
}

/* The name of the first member that is present, or that is missing (`is_there` false). NULL: there
 * is none. */
static const char *first_member(const void *table, bool is_there, const member_t *members,
                                size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (has_member(table, &members[i]) == is_there) {
            return members[i].name;
        }
    }
    return NULL;
}

static umf_result_t check_required(const char *what, const void *table, const member_t *members,
                                   size_t count) {
    const char *missing = first_member(table, false, members, count);
    if (!missing) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("%s operations are incomplete: %s is NULL, which every %s needs", what, missing,
                  what);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t check_group(const void *table, const member_t *members, size_t count) {
    const char *missing = first_member(table, false, members, count);
    const char *there = first_member(table, true, members, count);
    if (!missing || !there) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("provider operations are incomplete: %s is there, but %s is NULL; they are "
                  "offered together or not at all",
                  there, missing);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t provider_check(const umf_memory_provider_ops_t *ops) {
    umf_result_t result =
        check_required("provider", ops, provider_required, UMF_COUNT_OF(provider_required));
    if (result == UMF_RESULT_SUCCESS) {
        result = check_group(ops, provider_parts, UMF_COUNT_OF(provider_parts));
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = check_group(ops, provider_ipc, UMF_COUNT_OF(provider_ipc));
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = check_group(ops, provider_properties, UMF_COUNT_OF(provider_properties));
    }
    return result;
}

/* --- versions --- */

static void tell_version(const char *what, uint32_t version, uint32_t current) {
    if (version != current) {
        UMF_LOG_WARN("%s operations have version %u.%u, this library's is %u.%u", what,
                     UMF_MAJOR_VERSION(version), UMF_MINOR_VERSION(version),
                     UMF_MAJOR_VERSION(current), UMF_MINOR_VERSION(current));
    }
}

static umf_result_t default_cache_line_size(void *provider, size_t *size) {
    (void)provider;
    *size = 64;
    return UMF_RESULT_SUCCESS;
}

/* The size that a structure of this version has; 0: the version is unknown. */
static size_t provider_ops_size(uint32_t version) {
    if (version == UMF_PROVIDER_OPS_VERSION_CURRENT) {
        return sizeof(umf_memory_provider_ops_t);
    }
    switch (UMF_MINOR_VERSION(version)) {
    case 0:
        return offsetof(umf_memory_provider_ops_t, ext_get_allocation_properties);
    case 1:
        return offsetof(umf_memory_provider_ops_t, get_cache_line_size);
    default:
        return 0;
    }
}

umf_result_t umf_provider_ops_copy(umf_memory_provider_ops_t *to,
                                   const umf_memory_provider_ops_t *from) {
    size_t size = provider_ops_size(from->version);
    tell_version("provider", from->version, UMF_PROVIDER_OPS_VERSION_CURRENT);
    if (size == 0) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    memcpy(to, from, size);
    if (size < sizeof(*to)) {
        to->get_cache_line_size = default_cache_line_size;
    }
    return provider_check(to);
}

umf_result_t umf_pool_ops_copy(umf_memory_pool_ops_t *to, const umf_memory_pool_ops_t *from) {
    bool is_current = from->version == UMF_POOL_OPS_VERSION_CURRENT;
    tell_version("pool", from->version, UMF_POOL_OPS_VERSION_CURRENT);
    if (from->version > UMF_POOL_OPS_VERSION_CURRENT) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    memcpy(to, from, is_current ? sizeof(*to) : offsetof(umf_memory_pool_ops_t, ext_trim_memory));
    return check_required("pool", to, pool_required, UMF_COUNT_OF(pool_required));
}
