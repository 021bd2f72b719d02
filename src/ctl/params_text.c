/* Parameters of a kind from text: name=value,name=value. */
#include <stdlib.h>
#include <string.h>

#include "base/meta.h"
#include "ctl/params.h"
#include "ctl/text.h"

/* One setting, still in the text. */
typedef struct setting_t {
    const char *name;
    size_t name_length;
    const char *value; /* including its quotes */
    size_t value_length;
} setting_t;

typedef struct params_reader_t {
    const umf_fields_t *fields;
    void *params;
    char *room; /* for one setting: name, NUL, value, NUL */
} params_reader_t;

static const char *skip_space(const char *at) {
    while (umf_text_is_space(*at)) {
        at++;
    }
    return at;
}

/* The length of a quoted value with both quotes. 0: the closing quote is missing. */
static size_t quoted_length(const char *text) {
    size_t i = 1;
    while (text[i] && text[i] != '"') {
        i += text[i] == '\\' && text[i + 1] ? 2 : 1;
    }
    return text[i] ? i + 1 : 0;
}

static umf_result_t setting_parse_value(const char *at, setting_t *setting) {
    setting->value = at;
    if (*at != '"') {
        setting->value_length = strcspn(at, "," UMF_TEXT_SPACES);
        return UMF_RESULT_SUCCESS;
    }
    setting->value_length = quoted_length(at);
    return setting->value_length ? UMF_RESULT_SUCCESS
                                 : umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, at,
                                                 "the quote is not closed, expected another '\"'");
}

static umf_result_t setting_parse(const char *at, setting_t *setting) {
    at = skip_space(at);
    setting->name = at;
    setting->name_length = strcspn(at, "=,\"" UMF_TEXT_SPACES);
    const char *equal = skip_space(at + setting->name_length);
    if (setting->name_length == 0 || *equal != '=') {
        return umf_text_fail(
            UMF_RESULT_ERROR_INVALID_ARGUMENT, at, "'%s' is not a setting%s, expected name=value",
            umf_text_show(at, strcspn(at, "," UMF_TEXT_SPACES)).text, umf_text_subject());
    }
    return setting_parse_value(skip_space(equal + 1), setting);
}

static void value_copy(char *out, const char *value, size_t length) {
    if (*value != '"') {
        memcpy(out, value, length);
        out[length] = '\0';
        return;
    }
    for (size_t i = 1; i < length - 1; i++) {
        i += value[i] == '\\';
        *out++ = value[i];
    }
    *out = '\0';
}

static umf_result_t setting_write(params_reader_t *reader, const setting_t *setting) {
    char why[512];
    char *value = reader->room + setting->name_length + 1;
    memcpy(reader->room, setting->name, setting->name_length);
    reader->room[setting->name_length] = '\0';
    value_copy(value, setting->value, setting->value_length);
    umf_result_t result =
        umf_field_set_text(reader->params, reader->fields, reader->room, value, why, sizeof(why));
    umf_text_word_t name = umf_text_show(setting->name, setting->name_length);
    switch (result) {
    case UMF_RESULT_SUCCESS:
        return result;
    case UMF_RESULT_ERROR_INVALID_CTL_PATH:
        return umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, setting->name,
                             "unknown setting '%s'%s, expected %s", name.text, umf_text_subject(),
                             why);
    default:
        return umf_text_fail(
            result, setting->value, "'%s' cannot be the value of '%s', expected %s",
            umf_text_show(setting->value, setting->value_length).text, name.text, why);
    }
}

static umf_result_t settings_read(params_reader_t *reader, const char *text) {
    for (;;) {
        setting_t setting = {0};
        umf_result_t result = setting_parse(text, &setting);
        if (result == UMF_RESULT_SUCCESS) {
            result = setting_write(reader, &setting);
        }
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        text = skip_space(setting.value + setting.value_length);
        if (*text == '\0') {
            return UMF_RESULT_SUCCESS;
        }
        if (*text != ',') {
            return umf_text_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT, text,
                                 "'%s' behind a value, expected ','",
                                 umf_text_show(text, strcspn(text, "," UMF_TEXT_SPACES)).text);
        }
        text++;
    }
}

static umf_result_t params_read(void *params, const umf_fields_t *fields, const char *text) {
    if (*skip_space(text) == '\0') {
        return UMF_RESULT_SUCCESS;
    }
    size_t length = strlen(text);
    params_reader_t reader = {.fields = fields, .params = params};
    reader.room = umf_meta_alloc(length + 2);
    if (!reader.room) {
        return umf_text_fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, NULL,
                             "no memory to read %zu bytes of settings", length);
    }
    umf_text_scope_t scope;
    umf_text_begin(&scope, text, length, umf_text_subject());
    umf_result_t result = settings_read(&reader, text);
    umf_text_end(&scope);
    umf_meta_free(reader.room, length + 2);
    return result;
}

static umf_result_t params_create_for_text(const umf_params_kind_t *kind, void **params) {
    umf_result_t result = umf_params_create(kind, params);
    if (result == UMF_RESULT_SUCCESS && kind->init_text) {
        result = kind->init_text(*params);
    }
    return result;
}

umf_result_t umf_params_read(const umf_params_kind_t *kind, const char *text, void **params) {
    void *made;
    umf_result_t result = params_create_for_text(kind, &made);
    if (result == UMF_RESULT_SUCCESS) {
        result = params_read(made, &kind->fields, text);
    }
    return umf_params_give(kind, made, result, params, __func__);
}

bool umf_params_parse_numbers(const char *text, const char *joints, unsigned *numbers, size_t room,
                              size_t *count) {
    size_t n = 0;
    size_t each = strlen(joints);
    for (bool more = *text != '\0'; more;) {
        char *end;
        if (n == room || *text < '0' || *text > '9') {
            return false;
        }
        unsigned long long value = strtoull(text, &end, 10);
        if (value > UINT32_MAX) {
            return false;
        }
        numbers[n] = (unsigned)value;
        more = *end == joints[n++ % each];
        if (!more && (*end || n % each != 0)) {
            return false;
        }
        text = end + more;
    }
    *count = n;
    return true;
}
