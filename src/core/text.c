/* Creates providers and pools from text. The grammar is in umf/text.h. */
#include <string.h>

#include <umf/result.h>
#include <umf/text.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "core/registry.h"
#include "ctl/text.h"
#include "object/object.h"

/* One part of the text, `kind[:settings]`. The strings are in a copy of the text. */
typedef struct text_part_t {
    umf_sort_t sort;
    const char *what; /* "provider" or "pool" */
    const char *kind;
    const char *settings; /* NULL: none */
} text_part_t;

static char *skip_space(char *at) {
    while (umf_text_is_space(*at)) {
        at++;
    }
    return at;
}

static bool is_separator(char c) {
    return c == ',' || c == '=';
}

/* The end of the settings: white space without a separator beside it, or the end of the text.
 * Quoted white space does not count. */
static char *skip_settings(char *at) {
    bool quoted = false;
    char before = ',';
    for (; *at; at++) {
        if (quoted && *at == '\\' && at[1]) {
            at++;
        } else if (quoted) {
            quoted = *at != '"';
        } else if (!umf_text_is_space(*at)) {
            quoted = *at == '"';
            before = *at;
        } else if (!is_separator(before) && !is_separator(*skip_space(at))) {
            return at;
        }
    }
    return at;
}

/* Cuts the text at `end`. Returns what follows it and the white space after it. */
static char *cut(char *end) {
    if (*end == '\0') {
        return end;
    }
    *end = '\0';
    return skip_space(end + 1);
}

static umf_result_t fail_word(const char *at, const char *expected) {
    size_t length = strcspn(at, UMF_TEXT_SPACES);
    if (length == 0) {
        return umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, at, "the text ends, expected %s",
                             expected);
    }
    return umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, at,
                         "'%s' is not expected here, expected %s", umf_text_show(at, length).text,
                         expected);
}

/* Reads one part at `*at`, and moves `*at` to what follows it. */
static umf_result_t part_read(char **at, umf_sort_t sort, text_part_t *part) {
    char *kind = *at;
    char *end = kind + strcspn(kind, ":" UMF_TEXT_SPACES);
    if (end == kind) {
        return fail_word(kind, sort == UMF_POOLS ? "a kind of pool" : "a kind of provider");
    }
    *part =
        (text_part_t){.sort = sort, .what = sort == UMF_POOLS ? "pool" : "provider", .kind = kind};
    char *colon = skip_space(end);
    if (*colon != ':') {
        *at = cut(end);
        return UMF_RESULT_SUCCESS;
    }
    *end = '\0';
    char *settings = skip_space(colon + 1);
    if (*settings == '\0') {
        return umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, settings,
                             "nothing behind ':', expected a setting name=value");
    }
    part->settings = settings;
    *at = cut(skip_settings(settings));
    return UMF_RESULT_SUCCESS;
}

static bool is_left_out(const char *kind, const char *const *left_out) {
    while (*left_out && strcmp(*left_out, kind) != 0) {
        left_out++;
    }
    return *left_out != NULL;
}

static umf_result_t fail_kind(const text_part_t *part) {
    char list[512] = "";
    for (int is_near = 1; is_near >= 0; is_near--) { /* the nearest come first */
        const umf_kind_t *each = NULL;
        while ((each = umf_registry_next(part->sort, each))) {
            if (umf_text_is_near(each->name, part->kind) == is_near) {
                umf_text_append(list, sizeof(list), "%s%s", *list ? ", " : "", each->name);
            }
        }
    }
    if (is_left_out(part->kind, umf_registry_left_out[part->sort])) {
        return umf_text_fail(UMF_RESULT_ERROR_NOT_SUPPORTED, part->kind,
                             "this libumf was built without the %s '%s'; it has: %s", part->what,
                             part->kind, list);
    }
    return umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, part->kind,
                         "unknown kind of %s '%s', expected one of: %s", part->what,
                         umf_text_show(part->kind, strlen(part->kind)).text, list);
}

static umf_result_t kind_find(const text_part_t *part, const umf_kind_t **kind) {
    *kind = umf_registry_by_name(part->sort, part->kind);
    return *kind ? UMF_RESULT_SUCCESS : fail_kind(part);
}

/* Fails with the message that the failed step logged as its cause, if there is one. There is no
 * provider yet to read a native error from. */
static umf_result_t fail_step(const char *at, const char *step, umf_result_t result,
                              const umf_log_heard_t *heard) {
    if (*heard->text) {
        umf_reason_t reason = umfLastReason();
        umf_text_fail(result, at, "%s", step);
        umf_text_add_cause(heard->text);
        umf_last_reason_set(reason);
        return result;
    }
    return umf_text_fail(result, at, "%s: %s", step,
                         result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC
                             ? "the provider failed and did not log why"
                             : umfResultText(result));
}

static umf_result_t fail_settings(const text_part_t *part, umf_result_t result,
                                  const umf_log_heard_t *heard) {
    char step[128] = "";
    umf_text_append(step, sizeof(step), "settings of %s '%s' are refused", part->what, part->kind);
    return fail_step(part->settings ? part->settings : part->kind, step, result, heard);
}

static umf_result_t fail_create(const text_part_t *part, umf_result_t result,
                                const umf_log_heard_t *heard) {
    char step[128] = "";
    umf_text_append(step, sizeof(step), "%s '%s' cannot be created", part->what, part->kind);
    return fail_step(part->kind, step, result, heard);
}

/* Makes the parameters. The caller gives `*params` to `destroy` (may be NULL) of the same kind. */
static umf_result_t params_make(const text_part_t *part, const umf_kind_t *kind, void **params) {
    *params = NULL;
    if (!kind->params_from_text) {
        return part->settings
                   ? umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, part->settings,
                                   "%s '%s' has no settings, expected none", part->what, part->kind)
                   : UMF_RESULT_SUCCESS;
    }
    char subject[96] = "";
    umf_text_append(subject, sizeof(subject), " of %s '%s'", part->what, part->kind);
    const char *settings = part->settings ? part->settings : "";
    umf_text_scope_t scope;
    umf_log_heard_t heard;
    umf_text_begin(&scope, part->settings ? settings : part->kind, strlen(settings), subject);
    umf_log_hear(&heard);
    umf_result_t result = kind->params_from_text(settings, params);
    umf_log_hear_end(&heard);
    umf_text_end(&scope);
    if (result != UMF_RESULT_SUCCESS) {
        *params = NULL;
        if (!*umf_text_error()) {
            fail_settings(part, result, &heard);
        }
    }
    return result;
}

/* Makes the object: of a provider, or of a pool over `provider`, with its flags. */
static umf_result_t object_make(const text_part_t *part, const umf_kind_t *kind,
                                umf_memory_provider_handle_t provider,
                                umf_pool_create_flags_t flags, void *object) {
    void *params;
    umf_result_t result = params_make(part, kind, &params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_log_heard_t heard;
    umf_log_hear(&heard);
    result = part->sort == UMF_POOLS ? umfPoolCreate(kind->ops, provider, params, flags, object)
                                     : umfMemoryProviderCreate(kind->ops, params, object);
    umf_log_hear_end(&heard);
    if (kind->params_destroy && params) {
        kind->params_destroy(params);
    }
    return result == UMF_RESULT_SUCCESS ? result : fail_create(part, result, &heard);
}

static umf_result_t provider_read(char *at, void *provider) {
    text_part_t part;
    const umf_kind_t *kind = NULL;
    umf_result_t result = part_read(&at, UMF_PROVIDERS, &part);
    if (result == UMF_RESULT_SUCCESS) {
        result = *at ? fail_word(at, "the end of the text") : kind_find(&part, &kind);
    }
    return result == UMF_RESULT_SUCCESS ? object_make(&part, kind, NULL, 0, provider) : result;
}

static umf_result_t over_read(char **at) {
    static const char over[] = "over";
    size_t length = sizeof(over) - 1;
    if (strncmp(*at, over, length) != 0 || ((*at)[length] && !umf_text_is_space((*at)[length]))) {
        return fail_word(*at, "'over' and a provider");
    }
    *at = skip_space(*at + length);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t pool_read_both(const text_part_t *part, const text_part_t *below, void *pool) {
    const umf_kind_t *kind, *below_kind;
    umf_memory_provider_handle_t provider;
    umf_result_t result = kind_find(part, &kind);
    if (result == UMF_RESULT_SUCCESS) {
        result = kind_find(below, &below_kind);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = object_make(below, below_kind, NULL, 0, &provider);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = object_make(part, kind, provider, UMF_POOL_CREATE_FLAG_OWN_PROVIDER, pool);
    if (result != UMF_RESULT_SUCCESS) {
        umfMemoryProviderDestroy(provider);
    }
    return result;
}

static umf_result_t pool_read(char *at, void *pool) {
    text_part_t part, below;
    umf_result_t result = part_read(&at, UMF_POOLS, &part);
    if (result == UMF_RESULT_SUCCESS) {
        result = over_read(&at);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = part_read(&at, UMF_PROVIDERS, &below);
    }
    if (result == UMF_RESULT_SUCCESS && *at) {
        result = fail_word(at, "the end of the text");
    }
    return result == UMF_RESULT_SUCCESS ? pool_read_both(&part, &below, pool) : result;
}

/* A pool over a provider that the caller has. */
typedef struct over_t {
    umf_memory_provider_handle_t provider;
    umf_memory_pool_handle_t *pool;
} over_t;

static umf_result_t pool_read_over(char *at, void *arg) {
    const over_t *over = arg;
    text_part_t part;
    const umf_kind_t *kind = NULL;
    umf_result_t result = part_read(&at, UMF_POOLS, &part);
    if (result == UMF_RESULT_SUCCESS) {
        result = *at ? fail_word(at, "the end of the text") : kind_find(&part, &kind);
    }
    return result == UMF_RESULT_SUCCESS
               ? object_make(&part, kind, over->provider, UMF_POOL_CREATE_FLAG_NONE, over->pool)
               : result;
}

/* Begins a creation: makes a copy of `text` that can be cut, of `*length` + 1 bytes, and records
 * positions in it. */
static umf_result_t text_open(const char *text, const void *out, char **copy, size_t *length) {
    umf_text_forget();
    if (!umf_is_started()) {
        return umf_text_fail(UMF_RESULT_ERROR_UNKNOWN, NULL,
                             "the library has been torn down; call umfInit first");
    }
    if (!text || !out) {
        return umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, NULL, "%s is NULL",
                             text ? "the handle to be written" : "the text");
    }
    *length = strnlen(text, UMF_TEXT_MAX + 1);
    if (*length > UMF_TEXT_MAX) {
        return umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, NULL,
                             "the text is longer than %zu bytes", UMF_TEXT_MAX);
    }
    *copy = umf_meta_alloc(*length + 1);
    if (!*copy) {
        return umf_text_fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, NULL,
                             "no memory to read %zu bytes of text", *length);
    }
    memcpy(*copy, text, *length);
    return UMF_RESULT_SUCCESS;
}

/* What `read` makes of the text, in a handle of its type. */
static umf_result_t text_create(const char *text, void *handle,
                                umf_result_t (*read)(char *at, void *handle)) {
    char *copy = NULL;
    size_t length = 0;
    umf_result_t result = text_open(text, handle, &copy, &length);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_text_scope_t scope;
    umf_text_begin(&scope, copy, length, "");
    result = read(skip_space(copy), handle);
    umf_text_end(&scope);
    umf_meta_free(copy, length + 1);
    return result;
}

UMF_API_EXT_1 umf_result_t
umfMemoryProviderCreateFromText(const char *text, umf_memory_provider_handle_t *hProvider) {
    return text_create(text, hProvider, provider_read);
}

UMF_API_EXT_1 umf_result_t umfPoolCreateFromText(const char *text,
                                                 umf_memory_pool_handle_t *hPool) {
    return text_create(text, hPool, pool_read);
}

UMF_API_EXT_1_3 umf_result_t umfPoolCreateFromTextOver(const char *text,
                                                       umf_memory_provider_handle_t hProvider,
                                                       umf_memory_pool_handle_t *hPool) {
    over_t over = {hProvider, hPool};
    if (hProvider) {
        return text_create(text, hPool ? &over : NULL, pool_read_over);
    }
    umf_text_forget();
    return umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, NULL, "the provider is NULL");
}

UMF_API_EXT_1 const char *umfTextError(void) {
    return umf_text_error();
}

/* Calls the visitor for one kind. false: the visitor stops the visit. */
static bool kind_visit(const umf_kind_t *kind, umf_kind_visitor_t visitor, void *arg) {
    char why[512] = "";
    bool available = !kind->probe || kind->probe(why, sizeof(why)) == UMF_RESULT_SUCCESS;
    return visitor(kind->name, available, available ? "" : why, arg) == 0;
}

static umf_result_t kinds_visit(umf_sort_t sort, umf_kind_visitor_t visitor, void *arg) {
    if (!visitor) {
        UMF_LOG_ERROR("visitor is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    const umf_kind_t *kind = NULL;
    while ((kind = umf_registry_next(sort, kind))) {
        if (!kind_visit(kind, visitor, arg)) {
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
    }
    for (const char *const *name = umf_registry_left_out[sort]; *name; name++) {
        if (visitor(*name, 0, "this libumf was built without it", arg) != 0) {
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfProviderKinds(umf_kind_visitor_t visitor, void *arg) {
    return kinds_visit(UMF_PROVIDERS, visitor, arg);
}

UMF_API_EXT_1 umf_result_t umfPoolKinds(umf_kind_visitor_t visitor, void *arg) {
    return kinds_visit(UMF_POOLS, visitor, arg);
}
