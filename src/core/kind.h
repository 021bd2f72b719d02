/*
 * Listed kinds: a checked copy of the descriptor of a provider or pool. registry.c has the lists.
 */
#ifndef UMF_SRC_CORE_KIND_H
#define UMF_SRC_CORE_KIND_H

#include "core/registry.h"
#include "ds/list.h"

/* The longest name, without NUL. */
#define UMF_KIND_NAME_LENGTH 63

/* Both descriptors begin so, and both tables of operations begin with their version. */
typedef struct umf_kind_head_t {
    size_t struct_size;
    const char *name;
    const uint32_t *ops;
} umf_kind_head_t;
_Static_assert(offsetof(umf_memory_provider_descriptor_t, ops) == offsetof(umf_kind_head_t, ops) &&
                   offsetof(umf_memory_pool_descriptor_t, ops) == offsetof(umf_kind_head_t, ops) &&
                   offsetof(umf_memory_provider_ops_t, version) == 0 &&
                   offsetof(umf_memory_pool_ops_t, version) == 0,
               "how descriptors begin");

typedef struct umf_listed_kind_t {
    umf_list_t link;
    struct plugin_t *plugin; /* NULL: it is in-tree, or an application registered it */
    size_t uses;             /* live objects, plus 1 while it is listed. Sync: registry.lock */
    bool is_in_tree;         /* it is never freed */
    union {
        umf_kind_head_t head;
        umf_memory_provider_descriptor_t provider;
        umf_memory_pool_descriptor_t pool;
    };
    umf_kind_t view;
    /* Copies of the registered tables: */
    umf_memory_provider_ext_ops_t ext;
    char name[UMF_KIND_NAME_LENGTH + 1];
} umf_listed_kind_t;

/* Errors are logged. A descriptor may be smaller than this library's, but must contain its
 * operations table, of a known version. */
umf_result_t umf_kind_check(umf_sort_t sort, const void *descriptor);
/* Copies a sized structure. `*to` is zeroed and has `room` bytes. Members beyond either size are
 * left out. */
void umf_kind_copy_sized(void *to, size_t room, const void *from);
/* Copies the descriptor into a zeroed kind. */
void umf_kind_fill(umf_listed_kind_t *kind, umf_sort_t sort, const void *descriptor);
/* Copies everything that objects of a kind use, because objects may outlive the registered tables.
 */
void umf_kind_own(umf_listed_kind_t *kind, umf_sort_t sort);

#endif
