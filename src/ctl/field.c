#include "ctl/field.h"

#include <string.h>

#include "base/log.h"
#include "ctl/ctl.h"
#include "ctl/parse.h"
#include "ctl/text.h"

#define FIELD_DEPTH 8

/* The longest node name or text that is taken from an argument without its own NUL
 * inside `size`. */
#define FIELD_NAME_MAX 256
#define FIELD_TEXT_MAX 4096

/* One element of a path given by a caller. */
typedef struct field_part_t {
    const char *at;
    size_t length;
    enum { PART_WORD, PART_OPEN, PART_INDEX } kind; /* OPEN: "{}" not yet replaced */
    size_t index;
} field_part_t;

typedef struct field_path_t {
    field_part_t parts[FIELD_DEPTH];
    size_t count;
} field_path_t;

static const size_t field_sizes[] = {
    [UMF_FIELD_NONE] = 0,
    [UMF_FIELD_BOOL] = sizeof(bool),
    [UMF_FIELD_INT] = sizeof(int),
    [UMF_FIELD_UINT] = sizeof(unsigned),
    [UMF_FIELD_SIZE] = sizeof(size_t),
    [UMF_FIELD_ENUM] = sizeof(int),
    [UMF_FIELD_FLAGS] = sizeof(unsigned),
    [UMF_FIELD_STRING] = 0,
    [UMF_FIELD_TEXT] = 0,
};

static bool field_is_text(const umf_field_t *field) {
    return field->type == UMF_FIELD_STRING || field->type == UMF_FIELD_TEXT;
}

/* Path matching. */

static bool part_is(const field_part_t *part, const char *word, size_t length) {
    return part->length == length && memcmp(part->at, word, length) == 0;
}

/* false: an empty element, or more than any field has. */
static bool path_split(const char *path, field_path_t *out) {
    out->count = 0;
    for (;;) {
        size_t length = strcspn(path, ".");
        if (length == 0 || out->count == FIELD_DEPTH) {
            return false;
        }
        field_part_t *part = &out->parts[out->count++];
        *part = (field_part_t){.at = path, .length = length, .kind = PART_WORD};
        if (part_is(part, "{}", 2)) {
            part->kind = PART_OPEN;
        }
        if (path[length] == '\0') {
            return true;
        }
        path += length + 1;
    }
}

static bool part_matches(const field_part_t *part, const char *pattern, size_t length) {
    bool index = length == 2 && memcmp(pattern, "{}", 2) == 0;
    size_t number;
    switch (part->kind) {
    case PART_OPEN:
        return true;
    case PART_INDEX:
        return index;
    default:
        return index ? umf_ctl_index_parse(part->at, part->length, &number)
                     : part_is(part, pattern, length);
    }
}

/* Element `at` of a pattern is an index. */
static bool pattern_has_index(const char *pattern, size_t at) {
    while (at-- > 0) {
        pattern += strcspn(pattern, ".") + 1;
    }
    return strncmp(pattern, "{}", 2) == 0;
}

/* Most patterns differ in their first letter. */
static bool path_may_match(const field_path_t *path, const char *pattern) {
    return path->parts[0].kind != PART_WORD || *pattern == '{' || *pattern == *path->parts[0].at;
}

static bool path_matches(const field_path_t *path, const char *pattern) {
    if (!path_may_match(path, pattern)) {
        return false;
    }
    for (size_t i = 0; i < path->count; i++) {
        size_t length = strcspn(pattern, ".");
        if (!part_matches(&path->parts[i], pattern, length)) {
            return false;
        }
        bool last = i + 1 == path->count;
        if (last != (pattern[length] == '\0')) {
            return false;
        }
        pattern += length + 1;
    }
    return true;
}

/* Asked before an argument is taken: whether any field matches, and whether it has
 * an index here. */
static bool path_opens_index(const field_path_t *path, const umf_fields_t *fields, size_t at,
                             bool *index) {
    bool found = false;
    *index = false;
    for (size_t i = 0; i < fields->count && !*index; i++) {
        if (path_matches(path, fields->list[i].path)) {
            found = true;
            *index = pattern_has_index(fields->list[i].path, at);
        }
    }
    return found;
}

static bool part_take_name(field_part_t *part, va_list *args) {
    const char *name = va_arg(*args, const char *);
    if ((uintptr_t)name < UMF_CTL_FIRST_ADDRESS) {
        return false;
    }
    *part = (field_part_t){.at = name, .length = strnlen(name, FIELD_NAME_MAX), .kind = PART_WORD};
    return true;
}

/* Replaces every "{}" by its argument. */
static bool path_close(field_path_t *path, const umf_fields_t *fields, va_list *args) {
    for (size_t i = 0; i < path->count; i++) {
        field_part_t *part = &path->parts[i];
        if (part->kind != PART_OPEN) {
            continue;
        }
        bool index;
        if (!path_opens_index(path, fields, i, &index)) {
            return false;
        }
        if (index) {
            *part = (field_part_t){.kind = PART_INDEX, .index = umf_ctl_index_argument(args)};
        } else if (!part_take_name(part, args)) {
            return false;
        }
    }
    return true;
}

static size_t path_index(const field_path_t *path, const char *pattern) {
    for (size_t i = 0; i < path->count; i++) {
        if (pattern_has_index(pattern, i)) {
            size_t index = path->parts[i].index;
            if (path->parts[i].kind == PART_WORD) {
                umf_ctl_index_parse(path->parts[i].at, path->parts[i].length, &index);
            }
            return index;
        }
    }
    return 0;
}

static const umf_field_t *field_find(const umf_fields_t *fields, const char *text, va_list *args,
                                     size_t *index) {
    field_path_t path;
    if (!path_split(text, &path) || !path_close(&path, fields, args)) {
        return NULL;
    }
    for (size_t i = 0; i < fields->count; i++) {
        if (path_matches(&path, fields->list[i].path)) {
            *index = path_index(&path, fields->list[i].path);
            return &fields->list[i];
        }
    }
    return NULL;
}

/* Reading and writing. */

static umf_result_t field_get(void *object, const umf_field_t *field, size_t index, void *value,
                              size_t size) {
    if (field->get) {
        return field->get(object, index, value, size);
    }
    memcpy(value, (const char *)object + field->offset, field->size);
    return UMF_RESULT_SUCCESS;
}

static void field_store(void *object, const umf_field_t *field, const void *value) {
    char *member = (char *)object + field->offset;
    if (field->type != UMF_FIELD_STRING) {
        memcpy(member, value, field->size);
        return;
    }
    size_t length = strnlen(value, field->size - 1);
    memmove(member, value, length); /* the value may be the member itself */
    member[length] = '\0';
}

umf_result_t umf_field_write(void *object, const umf_field_t *field, const void *value,
                             const char *function) {
    umf_result_t result = umf_field_check(field, value, function);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (field->set) {
        return field->set(object, value);
    }
    field_store(object, field, value);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t field_set(void *object, const umf_field_t *field, const void *value) {
    return umf_field_write(object, field, value, __func__);
}

static umf_result_t field_write_text(void *object, const umf_field_t *field,
                                     bool (*parse_bool)(const char *, bool *), const char *text) {
    if (field_is_text(field)) {
        return field_set(object, field, text);
    }
    umf_field_value_t value = {.s = 0};
    return umf_field_parse(field, parse_bool, text, &value) ? field_set(object, field, &value)
                                                            : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* Access by path. */

static umf_result_t field_check_size(const umf_field_t *field, size_t size) {
    size_t request = field_sizes[field->type];
    if (size == request || ((field->access & UMF_FIELD_OR_INT) && size == sizeof(int))) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("\"%s\" has %zu bytes, the buffer given has %zu", field->path, request, size);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t field_read(void *object, const umf_field_t *field, size_t index, void *arg,
                               size_t size) {
    if (!(field->access & UMF_FIELD_READ)) {
        UMF_LOG_ERROR("\"%s\" cannot be read", field->path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (field_is_text(field)) {
        return field_get(object, field, index, arg, size);
    }
    umf_result_t result = field_check_size(field, size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_field_value_t value = {.s = 0};
    result = field_get(object, field, index, &value, field_sizes[field->type]);
    if (result == UMF_RESULT_SUCCESS) {
        if (size != field_sizes[field->type]) {
            value.i = value.b;
        }
        memcpy(arg, &value, size);
    }
    return result;
}

/* A caller's text may lack a NUL inside its `size` bytes. */
static umf_result_t field_write_string(void *object, const umf_field_t *field, const char *text,
                                       size_t size) {
    char copy[FIELD_TEXT_MAX];
    size_t length = strnlen(text, size);
    if (length < size) {
        return field_set(object, field, text);
    }
    if (length >= sizeof(copy)) {
        UMF_LOG_ERROR("\"%s\": text of %zu bytes without end", field->path, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    return field_set(object, field, copy);
}

static umf_result_t field_write_value(void *object, const umf_field_t *field, const void *arg,
                                      size_t size) {
    if (field_is_text(field)) {
        return field_write_string(object, field, arg, size);
    }
    umf_result_t result = field_check_size(field, size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_field_value_t value = {.s = 0};
    memcpy(&value, arg, size);
    if (field->type == UMF_FIELD_BOOL) {
        value.b = value.s != 0; /* the caller's byte may have any value */
    }
    if (field->type == UMF_FIELD_ENUM && !umf_enum_is_valid(field->words, value.i)) {
        UMF_LOG_ERROR("\"%s\" has no value %d", field->path, value.i);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return field_set(object, field, &value);
}

static umf_result_t field_check_write(const umf_field_t *field, bool creating) {
    if (field->access & UMF_FIELD_WRITE) {
        return UMF_RESULT_SUCCESS;
    }
    if (!(field->access & UMF_FIELD_CREATE)) {
        UMF_LOG_ERROR("\"%s\" cannot be written", field->path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!creating) {
        UMF_LOG_ERROR("\"%s\" is fixed once the object exists; set it as a default before",
                      field->path);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return UMF_RESULT_SUCCESS;
}

/* Text from the configuration. */
static umf_result_t field_write_config(void *object, const umf_field_t *field, const char *text,
                                       size_t size) {
    if (!memchr(text, '\0', size)) {
        UMF_LOG_ERROR("\"%s\": text of %zu bytes without end", field->path, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = field_write_text(object, field, umf_parse_bool_letter, text);
    if (result != UMF_RESULT_SUCCESS) {
        char why[512] = "";
        umf_field_expect(field, why, sizeof(why));
        UMF_LOG_ERROR("\"%s\" cannot be \"%s\"; expected %s", field->path,
                      umf_text_show(text, strlen(text)).text, why);
    }
    return result;
}

static umf_result_t field_write(void *object, bool creating, const umf_field_t *field,
                                umf_ctl_query_source_t source, const void *arg, size_t size) {
    umf_result_t result = field_check_write(field, creating);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    return source == CTL_QUERY_CONFIG_INPUT ? field_write_config(object, field, arg, size)
                                            : field_write_value(object, field, arg, size);
}

static umf_result_t field_run(void *object, const umf_field_t *field) {
    if (!(field->access & UMF_FIELD_RUN)) {
        UMF_LOG_ERROR("\"%s\" cannot be executed", field->path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return field->run(object);
}

/* A field "params.<name>" is near to its name alone, too. */
static UMF_COLD void nearest_field(const umf_fields_t *fields, const char *path) {
    for (size_t i = 0; umf_ctl_nearest_is_needed() && i < fields->count; i++) {
        umf_ctl_nearest_try(fields->list[i].path, path);
        if (strcmp(umf_field_name(&fields->list[i]), path) == 0) {
            umf_ctl_nearest_try(fields->list[i].path, fields->list[i].path);
        }
    }
}

umf_result_t umf_field_ctl(void *object, bool creating, const umf_fields_t *fields,
                           umf_ctl_query_source_t source, const char *path, void *arg, size_t size,
                           umf_ctl_query_type_t type, va_list args) {
    va_list copy;
    va_copy(copy, args);
    size_t index = 0;
    const umf_field_t *field = field_find(fields, path, &copy, &index);
    va_end(copy);
    if (!field) {
        nearest_field(fields, path);
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    if (field->access == 0) {
        UMF_LOG_ERROR("\"%s\" is no setting: an index is missing or there is one too many", path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (type == CTL_QUERY_RUNNABLE) {
        return field_run(object, field);
    }
    if (!arg || size == 0) {
        UMF_LOG_ERROR("\"%s\" needs a buffer", field->path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    switch (type) {
    case CTL_QUERY_READ:
        return field_read(object, field, index, arg, size);
    case CTL_QUERY_WRITE:
        return field_write(object, creating, field, source, arg, size);
    default:
        UMF_LOG_ERROR("query type %d does not exist", (int)type);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
}

/* Access by name, for creation text. */

const char *umf_field_name(const umf_field_t *field) {
    static const char prefix[] = "params.";
    bool has = strncmp(field->path, prefix, sizeof(prefix) - 1) == 0;
    return field->path + (has ? sizeof(prefix) - 1 : 0);
}

static bool field_is_setting(const umf_field_t *field) {
    return (field->access & (UMF_FIELD_WRITE | UMF_FIELD_CREATE)) && (field->set || field->size);
}

const umf_field_t *umf_field_by_name(const umf_fields_t *fields, const char *name) {
    for (size_t i = 0; i < fields->count; i++) {
        const umf_field_t *field = &fields->list[i];
        if (field_is_setting(field) && strcmp(umf_field_name(field), name) == 0) {
            return field;
        }
    }
    return NULL;
}

/* All settings, those nearest to the name first. */
static void fields_expect(const umf_fields_t *fields, const char *name, char *why,
                          size_t why_size) {
    const char *before = "one of: ";
    for (size_t i = 0; i < 2 * fields->count; i++) {
        bool is_first = i < fields->count;
        const umf_field_t *field = &fields->list[is_first ? i : i - fields->count];
        if (field_is_setting(field) && umf_text_is_near(umf_field_name(field), name) == is_first) {
            umf_text_append(why, why_size, "%s%s", before, umf_field_name(field));
            before = ", ";
        }
    }
}

umf_result_t umf_field_set_text(void *object, const umf_fields_t *fields, const char *name,
                                const char *text, char *why, size_t why_size) {
    if (why_size) {
        why[0] = '\0';
    }
    const umf_field_t *field = umf_field_by_name(fields, name);
    if (!field) {
        fields_expect(fields, name, why, why_size);
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    umf_result_t result = field_write_text(object, field, umf_parse_bool_word, text);
    if (result != UMF_RESULT_SUCCESS) {
        umf_field_expect(field, why, why_size);
    }
    return result;
}
