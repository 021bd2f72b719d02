/* Rules of fields: which values are accepted, and how messages describe them. */
#include <limits.h>
#include <string.h>

#include "base/log.h"
#include "ctl/parse.h"
#include "ctl/text.h"

/* The value as a number. false: it is negative, which no limit allows. */
static bool value_number(const umf_field_t *field, const void *value, size_t *number) {
    if (field->type == UMF_FIELD_SIZE) {
        memcpy(number, value, sizeof(*number));
        return true;
    }
    unsigned small;
    memcpy(&small, value, sizeof(small));
    *number = small;
    return field->type != UMF_FIELD_INT || small <= INT_MAX;
}

static bool words_allow(const umf_field_t *field, size_t number) {
    size_t bits = 0;
    if (field->type == UMF_FIELD_ENUM) {
        return umf_enum_is_valid(field->words, (int)number);
    }
    for (const umf_field_word_t *word = field->words; word->word; word++) {
        bits |= (unsigned)word->value;
    }
    return (number & ~bits) == 0;
}

static bool rules_allow(const umf_field_t *field, const void *value) {
    size_t number;
    if (field->rules == 0) {
        return true;
    }
    if (field->type == UMF_FIELD_STRING) {
        return *(const char *)value != '\0';
    }
    if (!value_number(field, value, &number)) {
        return false;
    }
    if (number == 0 && (field->rules & (UMF_RULE_OR_ZERO | UMF_RULE_FILLED))) {
        return field->rules & UMF_RULE_OR_ZERO;
    }
    return (!(field->rules & UMF_RULE_RANGE) ||
            (number >= field->min && (!field->max || number <= field->max))) &&
           (!(field->rules & UMF_RULE_POW2) || umf_is_pow2(number)) &&
           (!(field->rules & UMF_RULE_WORDS) || words_allow(field, number));
}

static void value_show(const umf_field_t *field, const void *value, char *text, size_t size) {
    size_t number = 0;
    if (value_number(field, value, &number)) {
        umf_text_append(text, size, "%zu", number);
    } else {
        umf_text_append(text, size, "%d", (int)number);
    }
}

/* "a power of two from 8 to 64, or 0", "at least 1", "one of: a, b". */
static void rules_show(const umf_field_t *field, char *text, size_t size) {
    if (field->rules & UMF_RULE_POW2) {
        umf_text_append(text, size, "a power of two");
    }
    if (field->rules & UMF_RULE_RANGE) {
        umf_text_append(text, size, "%sat least %zu", *text ? ", " : "", field->min);
    }
    if ((field->rules & UMF_RULE_RANGE) && field->max) {
        umf_text_append(text, size, " and at most %zu", field->max);
    }
    if (field->rules & UMF_RULE_OR_ZERO) {
        umf_text_append(text, size, ", or 0");
    }
    if (!(field->rules & UMF_RULE_WORDS)) {
        return;
    }
    umf_text_append(text, size, field->type == UMF_FIELD_FLAGS ? "made of" : "one of");
    for (const umf_field_word_t *word = field->words; word->word; word++) {
        umf_text_append(text, size, "%s %s (%d)", word == field->words ? ":" : ",", word->word,
                        word->value);
    }
}

umf_result_t umf_field_check(const umf_field_t *field, const void *value, const char *function) {
    if (rules_allow(field, value)) {
        return UMF_RESULT_SUCCESS;
    }
    if (field->type == UMF_FIELD_STRING) {
        umf_log_error(function, "%s must not be empty", umf_field_name(field));
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    char is[32] = "", must[256] = "";
    value_show(field, value, is, sizeof(is));
    rules_show(field, must, sizeof(must));
    umf_log_error(function, "%s must be %s, it is %s", umf_field_name(field), must, is);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}
