/* Values stored for objects created later. */
#include <string.h>

#include <umf/result.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "ctl/ctl.h"
#include "ctl/text.h"
#include "ds/list.h"

/* One block: this head, the value, the key with its NUL. Immutable once in the list. */
typedef struct default_t {
    umf_list_t link;
    uint64_t order; /* when this key was first set */
    umf_ctl_query_source_t source;
    bool is_refused; /* an object refused it, which was reported. Sync: the list's lock */
    size_t size;
    size_t key_length;
    size_t block_size;
    _Alignas(16) char value[];
} default_t;

struct umf_ctl_defaults_t {
    umf_lock_t lock;
    umf_list_t list;     /* by order. Sync: lock */
    uint64_t next_order; /* Sync: lock */
    bool ready;          /* Immutable after the first start */
};

umf_ctl_defaults_t umf_ctl_pool_defaults, umf_ctl_provider_defaults;

/* The lock outlives teardown: a late query finds an empty list, not a destroyed lock. */
void umf_ctl_defaults_init(umf_ctl_defaults_t *defaults) {
    if (defaults->ready) {
        return;
    }
    umf_lock_init(&defaults->lock, UMF_RANK_CTL);
    umf_list_init(&defaults->list);
    defaults->next_order = 1;
    defaults->ready = true;
}

static const char *default_key(const default_t *entry) {
    return entry->value + entry->size;
}

static default_t *default_of(umf_list_t *link) {
    return UMF_CONTAINER_OF(link, default_t, link);
}

static void default_free(default_t *entry) {
    umf_meta_free(entry, entry->block_size);
}

static default_t *default_make(const char *key, const umf_ctl_query_t *query) {
    size_t key_length = strlen(key);
    size_t block_size;
    if (!umf_add(sizeof(default_t) + key_length + 1, query->size, &block_size)) {
        return NULL;
    }
    default_t *entry = umf_meta_alloc(block_size);
    if (!entry) {
        return NULL;
    }
    entry->source = query->source;
    entry->size = query->size;
    entry->key_length = key_length;
    entry->block_size = block_size;
    memcpy(entry->value, query->arg, query->size);
    memcpy(entry->value + query->size, key, key_length + 1);
    return entry;
}

static default_t *default_find_locked(umf_ctl_defaults_t *defaults, const char *key) {
    umf_assert_locked(&defaults->lock);
    for (umf_list_t *at = defaults->list.next; at != &defaults->list; at = at->next) {
        if (strcmp(default_key(default_of(at)), key) == 0) {
            return default_of(at);
        }
    }
    return NULL;
}

static umf_result_t defaults_set(umf_ctl_defaults_t *defaults, const umf_ctl_query_t *query,
                                 const char *key) {
    default_t *entry = default_make(key, query);
    if (!entry) {
        UMF_LOG_ERROR("no memory for a default of %zu bytes", query->size);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_lock(&defaults->lock);
    default_t *old = default_find_locked(defaults, key);
    if (old) {
        entry->order = old->order;
        umf_list_add(&old->link, &entry->link);
        umf_list_remove(&old->link);
    } else {
        entry->order = defaults->next_order++;
        umf_list_add_tail(&defaults->list, &entry->link);
    }
    umf_unlock(&defaults->lock);
    if (old) {
        default_free(old);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t defaults_get(umf_ctl_defaults_t *defaults, const umf_ctl_query_t *query,
                                 const char *key) {
    umf_result_t result = UMF_RESULT_ERROR_INVALID_CTL_PATH;
    size_t size = 0;
    umf_lock(&defaults->lock);
    const default_t *entry = default_find_locked(defaults, key);
    if (entry) {
        size = entry->size;
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
        if (query->size >= size) {
            memcpy(query->arg, entry->value, size);
            result = UMF_RESULT_SUCCESS;
        }
    }
    umf_unlock(&defaults->lock);
    if (result == UMF_RESULT_ERROR_INVALID_ARGUMENT) {
        UMF_LOG_ERROR("the default \"%s\" has %zu bytes, the buffer given has %zu",
                      umf_text_show(key, strlen(key)).text, size, query->size);
    }
    return result;
}

static bool defaults_has_argument(const char *key) {
    while (*key) {
        size_t length = strcspn(key, ".");
        if (length == 2 && memcmp(key, "{}", 2) == 0) {
            return true;
        }
        key += length + (key[length] == '.');
    }
    return false;
}

umf_result_t umf_ctl_defaults_query(umf_ctl_defaults_t *defaults, umf_ctl_query_t *query,
                                    const char *rest) {
    if (*rest == '\0') {
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    if (defaults_has_argument(rest) || !defaults->ready) {
        UMF_LOG_ERROR("a default is named in full: \"{}\" in \"%s\" cannot be used",
                      umf_text_show(rest, strlen(rest)).text);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    switch (query->type) {
    case CTL_QUERY_WRITE:
        return defaults_set(defaults, query, rest);
    case CTL_QUERY_READ:
        return defaults_get(defaults, query, rest);
    default:
        return UMF_RESULT_SUCCESS;
    }
}

/* The path below `name` in the key. NULL: the entry is for another name. */
static const char *default_path(const default_t *entry, const char *name, size_t length) {
    const char *key = default_key(entry);
    bool match =
        entry->key_length > length + 1 && memcmp(key, name, length) == 0 && key[length] == '.';
    return match ? key + length + 1 : NULL;
}

/* A copy of the first entry for `name` after `order`. NULL: there is none, or no memory. */
static default_t *defaults_copy_next(umf_ctl_defaults_t *defaults, const char *name, size_t length,
                                     uint64_t order) {
    default_t *copy = NULL;
    umf_lock(&defaults->lock);
    for (umf_list_t *at = defaults->list.next; at != &defaults->list && !copy; at = at->next) {
        const default_t *entry = default_of(at);
        if (entry->order > order && default_path(entry, name, length)) {
            copy = umf_meta_alloc(entry->block_size);
            if (!copy) {
                break;
            }
            memcpy(copy, entry, entry->block_size);
        }
    }
    umf_unlock(&defaults->lock);
    return copy;
}

/* The first object that refuses an entry of the configuration reports it. */
static UMF_COLD void default_refused(umf_ctl_defaults_t *defaults, const default_t *copy,
                                     const char *nearest, umf_result_t result) {
    bool is_reported = true;
    umf_lock(&defaults->lock);
    default_t *entry = default_find_locked(defaults, default_key(copy));
    if (entry) {
        is_reported = entry->is_refused;
        entry->is_refused = true;
    }
    umf_unlock(&defaults->lock);
    if (!is_reported) {
        const char *why = result == UMF_RESULT_ERROR_INVALID_CTL_PATH ? "there is no such setting"
                          : result == UMF_RESULT_ERROR_INVALID_ARGUMENT
                              ? "the setting does not take this value"
                              : umfResultText(result);
        UMF_LOG_IGNORED("the configured default \"%s=%s\" is ignored: %s%s%s%s",
                        umf_text_show(default_key(copy), copy->key_length).text,
                        umf_text_show(copy->value, strnlen(copy->value, copy->size)).text, why,
                        nearest ? "; the nearest name is \"" : "", nearest ? nearest : "",
                        nearest ? "\"" : "");
    }
}

void umf_ctl_defaults_apply(umf_ctl_defaults_t *defaults, const char *name,
                            umf_result_t (*write)(void *object, umf_ctl_query_source_t source,
                                                  const char *path, void *arg, size_t size),
                            void *object) {
    if (!defaults->ready) {
        return;
    }
    size_t length = strlen(name);
    uint64_t order = 0;
    for (default_t *entry; (entry = defaults_copy_next(defaults, name, length, order));) {
        const char *path = default_path(entry, name, length);
        umf_ctl_nearest_begin();
        umf_result_t result = write(object, entry->source, path, entry->value, entry->size);
        const char *nearest = umf_ctl_nearest_end();
        if (result != UMF_RESULT_SUCCESS && entry->source == CTL_QUERY_CONFIG_INPUT) {
            default_refused(defaults, entry,
                            result == UMF_RESULT_ERROR_INVALID_CTL_PATH ? nearest : NULL, result);
        }
        order = entry->order;
        default_free(entry);
    }
}

void umf_ctl_defaults_forget(umf_ctl_defaults_t *defaults) {
    if (!defaults->ready) {
        return;
    }
    umf_lock(&defaults->lock);
    while (!umf_list_is_empty(&defaults->list)) {
        default_t *entry = default_of(defaults->list.next);
        umf_list_remove(&entry->link);
        default_free(entry);
    }
    umf_unlock(&defaults->lock);
}
