#include "core/kind.h"

#include <string.h>

#include "base/log.h"
#include "ctl/text.h"

static const char *const sort_names[UMF_SORTS] = {"provider", "pool"};

static bool kind_name_is_valid(const char *name) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t length = strspn(name, allowed);
    return length > 0 && length <= UMF_KIND_NAME_LENGTH && name[length] == '\0';
}

/* A descriptor may be smaller than this library's, but must contain its operations table. */
static umf_result_t kind_check_head(const char *what, const umf_kind_head_t *head) {
    if (!head) {
        UMF_LOG_ERROR("the descriptor of a kind of %s is NULL", what);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t size; /* a table that is too short may have any alignment */
    memcpy(&size, head, sizeof(size));
    if (size < sizeof(*head)) {
        UMF_LOG_ERROR("the descriptor of a kind of %s has struct_size %zu, at least %zu is needed",
                      what, size, sizeof(*head));
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!head->name || !kind_name_is_valid(head->name)) {
        UMF_LOG_ERROR(
            "a kind of %s cannot be named \"%s\": 1 to %d characters out of a-z, 0-9, '_' "
            "and '-' are needed",
            what, head->name ? umf_text_show(head->name, strlen(head->name)).text : "NULL",
            UMF_KIND_NAME_LENGTH);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!head->ops) {
        UMF_LOG_ERROR("the kind of %s \"%s\" has no operations", what, head->name);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t kind_check_version(umf_sort_t sort, const umf_kind_head_t *head) {
    uint32_t version = *head->ops;
    if (sort == UMF_POOLS
            ? version <= UMF_POOL_OPS_VERSION_CURRENT
            : UMF_MINOR_VERSION(version) <= UMF_MINOR_VERSION(UMF_PROVIDER_OPS_VERSION_CURRENT)) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("the operations of the kind of %s \"%s\" have the unknown version %u.%u",
                  sort_names[sort], head->name, UMF_MAJOR_VERSION(version),
                  UMF_MINOR_VERSION(version));
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

umf_result_t umf_kind_check(umf_sort_t sort, const void *descriptor) {
    umf_result_t result = kind_check_head(sort_names[sort], descriptor);
    return result == UMF_RESULT_SUCCESS ? kind_check_version(sort, descriptor) : result;
}

void umf_kind_copy_sized(void *to, size_t room, const void *from) {
    size_t size;
    memcpy(&size, from, sizeof(size));
    memcpy(to, from, size < room ? size : room);
    memcpy(to, &room, sizeof(room));
}

void umf_kind_fill(umf_listed_kind_t *kind, umf_sort_t sort, const void *descriptor) {
    size_t room = sort == UMF_POOLS ? sizeof(kind->pool) : sizeof(kind->provider);
    umf_kind_copy_sized(&kind->head, room, descriptor);
    kind->view = (umf_kind_t){.name = kind->head.name, .ops = kind->head.ops};
    if (sort == UMF_POOLS) {
        kind->view.params_from_text = kind->pool.params_from_text;
        kind->view.params_destroy = kind->pool.params_destroy;
        kind->view.probe = kind->pool.probe;
    } else {
        kind->view.params_from_text = kind->provider.params_from_text;
        kind->view.params_destroy = kind->provider.params_destroy;
        kind->view.probe = kind->provider.probe;
    }
}

void umf_kind_own(umf_listed_kind_t *kind, umf_sort_t sort) {
    if (sort == UMF_PROVIDERS && kind->provider.ext) {
        umf_kind_copy_sized(&kind->ext, sizeof(kind->ext), kind->provider.ext);
        kind->provider.ext = &kind->ext;
    }
    memcpy(kind->name, kind->head.name, strlen(kind->head.name));
    kind->head.name = kind->view.name = kind->name;
}
