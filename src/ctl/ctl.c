#include "ctl/ctl.h"

#include <stdatomic.h>
#include <string.h>

#include <umf/experimental/ctl.h>

#include "base/log.h"
#include "ctl/config.h"
#include "ctl/text.h"

#define CTL_ROOTS 8

/* Immutable after start. */
static struct {
    const char *name;
    umf_ctl_node_t node;
} ctl_roots[CTL_ROOTS];

void umf_ctl_register(const char *name, umf_ctl_node_t node) {
    size_t i = 0;
    while (i < CTL_ROOTS && ctl_roots[i].name && strcmp(ctl_roots[i].name, name) != 0) {
        i++;
    }
    if (i == CTL_ROOTS) {
        UMF_LOG_FATAL("more than %d root nodes; \"%s\" is not reachable", CTL_ROOTS, name);
        return;
    }
    ctl_roots[i].name = name;
    ctl_roots[i].node = node;
}

static umf_ctl_node_t ctl_root(const char *name) {
    for (size_t i = 0; i < CTL_ROOTS && ctl_roots[i].name; i++) {
        if (strcmp(ctl_roots[i].name, name) == 0) {
            return ctl_roots[i].node;
        }
    }
    return NULL;
}

bool umf_ctl_next(umf_ctl_query_t *query, const char **rest, char *name, size_t size) {
    const char *element = *rest;
    size_t length = strcspn(element, ".");
    const char *after = element + length + (element[length] == '.');
    if (length == 2 && memcmp(element, "{}", 2) == 0) {
        element = va_arg(*query->args, const char *);
        if ((uintptr_t)element < UMF_CTL_FIRST_ADDRESS) {
            return false;
        }
        length = strnlen(element, size);
    }
    if (length == 0 || length >= size) {
        return false;
    }
    memcpy(name, element, length);
    name[length] = '\0';
    *rest = after;
    return true;
}

/* A caller who passes a plain int 0 leaves the upper half of the argument undefined. */
size_t umf_ctl_index_argument(va_list *args) {
    size_t index = va_arg(*args, size_t);
    return (uint32_t)index == 0 ? 0 : index;
}

bool umf_ctl_index_parse(const char *text, size_t length, size_t *index) {
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        size_t digit = (size_t)text[i] - '0';
        if (digit > 9) {
            return false;
        }
        if (!umf_mul(n, 10, &n) || !umf_add(n, digit, &n)) {
            n = SIZE_MAX;
        }
    }
    *index = n;
    return length > 0;
}

static _Atomic unsigned ctl_needs_nearest; /* queries that need it */
static _Atomic(const char *) ctl_nearest;

void umf_ctl_nearest_begin(void) {
    if (atomic_fetch_add_explicit(&ctl_needs_nearest, 1, memory_order_relaxed) == 0) {
        atomic_store_explicit(&ctl_nearest, NULL, memory_order_relaxed);
    }
}

const char *umf_ctl_nearest_end(void) {
    const char *nearest = atomic_load_explicit(&ctl_nearest, memory_order_relaxed);
    atomic_fetch_sub_explicit(&ctl_needs_nearest, 1, memory_order_relaxed);
    return nearest;
}

bool umf_ctl_nearest_is_needed(void) {
    return atomic_load_explicit(&ctl_needs_nearest, memory_order_relaxed) != 0;
}

void umf_ctl_nearest_try(const char *known, const char *given) {
    if (umf_text_is_near(known, given)) {
        atomic_store_explicit(&ctl_nearest, known, memory_order_relaxed);
    }
}

static umf_ctl_node_t ctl_root_or_nearest(const char *name) {
    umf_ctl_node_t node = ctl_root(name);
    for (size_t i = 0; !node && i < CTL_ROOTS && ctl_roots[i].name; i++) {
        umf_ctl_nearest_try(ctl_roots[i].name, name);
    }
    return node;
}

static umf_result_t ctl_walk(umf_ctl_query_t *query, const char *path) {
    char name[UMF_CTL_NAME_MAX];
    if (!umf_ctl_next(query, &path, name, sizeof(name)) || strcmp(name, "umf") != 0 ||
        !umf_ctl_next(query, &path, name, sizeof(name))) {
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    umf_ctl_node_t node = ctl_root_or_nearest(name);
    return node ? node(query, path) : UMF_RESULT_ERROR_INVALID_CTL_PATH;
}

/* One walk: a setting of several objects with one name may be unknown to the last of them only. */
static umf_result_t ctl_query(umf_ctl_query_type_t type, const char *path, void *arg, size_t size,
                              va_list *args) {
    umf_ctl_query_t query = {CTL_QUERY_PROGRAMMATIC, type, arg, size, args};
    umf_ctl_nearest_begin();
    umf_result_t result = ctl_walk(&query, path);
    const char *nearest = umf_ctl_nearest_end();
    if (result == UMF_RESULT_ERROR_INVALID_CTL_PATH) {
        UMF_LOG_ERROR("no setting \"%s\"%s%s%s", umf_text_show(path, strlen(path)).text,
                      nearest ? "; the nearest name is \"" : "", nearest ? nearest : "",
                      nearest ? "\"" : "");
    }
    return result;
}

static bool ctl_is_complete(const char *path, const void *arg, size_t size) {
    if (path && arg && size) {
        return true;
    }
    UMF_LOG_ERROR("path %s, buffer %p of %zu bytes: all three are needed", path ? path : "NULL",
                  arg, size);
    return false;
}

UMF_API_1_0 umf_result_t umfCtlGet(const char *path, void *arg, size_t size, ...) {
    if (!ctl_is_complete(path, arg, size)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    va_list args;
    va_start(args, size);
    umf_result_t result = ctl_query(CTL_QUERY_READ, path, arg, size, &args);
    va_end(args);
    return result;
}

UMF_API_1_0 umf_result_t umfCtlSet(const char *path, void *arg, size_t size, ...) {
    if (!ctl_is_complete(path, arg, size)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    va_list args;
    va_start(args, size);
    umf_result_t result = ctl_query(CTL_QUERY_WRITE, path, arg, size, &args);
    va_end(args);
    return result;
}

UMF_API_1_0 umf_result_t umfCtlExec(const char *path, void *arg, size_t size, ...) {
    if (!path || (arg == NULL) != (size == 0)) {
        UMF_LOG_ERROR("path %s, buffer %p of %zu bytes: a path is needed, and both or none of the "
                      "other two",
                      path ? path : "NULL", arg, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    va_list args;
    va_start(args, size);
    umf_result_t result = ctl_query(CTL_QUERY_RUNNABLE, path, arg, size, &args);
    va_end(args);
    return result;
}

/* Variadic only to have an empty argument list. */
static umf_result_t ctl_write_config(const char *path, char *text, size_t size, ...) {
    va_list args;
    va_start(args, size);
    umf_ctl_query_t query = {CTL_QUERY_CONFIG_INPUT, CTL_QUERY_WRITE, text, size, &args};
    umf_result_t result = ctl_walk(&query, path);
    va_end(args);
    return result;
}

umf_result_t umf_ctl_write_config(const char *path, char *text, size_t size) {
    if (strstr(path, "{}")) {
        /* A "{}" needs an argument, and a configuration has none. */
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    return ctl_write_config(path, text, size);
}

void umf_ctl_init(void) {
    umf_ctl_defaults_init(&umf_ctl_pool_defaults);
    umf_ctl_defaults_init(&umf_ctl_provider_defaults);
    umf_ctl_logger_init();
    umf_ctl_register("logger", umf_ctl_logger_query);
    umf_config_load();
}

void umf_ctl_teardown(void) {
    umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
    umf_ctl_defaults_forget(&umf_ctl_provider_defaults);
}
