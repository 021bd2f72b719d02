#include "ctl/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/text.h"

/* Parses C notation with an optional sign; `*end` is the first character after the number. */
static bool parse_number(const char *text, bool *negative, unsigned long long *magnitude,
                         const char **end) {
    *negative = *text == '-';
    text += *text == '-' || *text == '+';
    if (*text < '0' || *text > '9') {
        return false;
    }
    int saved = errno;
    char *stop;
    errno = 0;
    *magnitude = strtoull(text, &stop, 0);
    bool overflow = errno == ERANGE;
    errno = saved;
    *end = stop;
    return !overflow;
}

static bool parse_int(const char *text, int *out) {
    bool negative;
    unsigned long long n;
    const char *end;
    if (!parse_number(text, &negative, &n, &end) || *end ||
        n > (unsigned long long)INT_MAX + negative) {
        return false;
    }
    *out = negative ? (int)-(long long)n : (int)n;
    return true;
}

static bool parse_unsigned(const char *text, const char *suffixes, size_t max, size_t *out) {
    bool negative;
    unsigned long long n;
    const char *end;
    if (!parse_number(text, &negative, &n, &end) || (negative && n)) {
        return false;
    }
    size_t value = n;
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (suffix) {
        if (!umf_mul(value, (size_t)1 << (10 * (suffix - suffixes + 1)), &value)) {
            return false;
        }
        end++;
    }
    *out = value;
    return *end == '\0' && value <= max;
}

static const umf_field_word_t *word_find(const umf_field_word_t *words, const char *text,
                                         size_t length) {
    for (; words->word; words++) {
        if (strlen(words->word) == length && memcmp(words->word, text, length) == 0) {
            return words;
        }
    }
    return NULL;
}

bool umf_enum_is_valid(const umf_field_word_t *words, int value) {
    while (words->word && words->value != value) {
        words++;
    }
    return words->word != NULL;
}

static bool parse_enum(const umf_field_word_t *words, const char *text, int *out) {
    const umf_field_word_t *word = word_find(words, text, strlen(text));
    if (word) {
        *out = word->value;
        return true;
    }
    return parse_int(text, out) && umf_enum_is_valid(words, *out);
}

static bool parse_flags(const umf_field_word_t *words, const char *text, unsigned *out) {
    size_t number;
    if (parse_unsigned(text, "", UINT_MAX, &number)) {
        *out = (unsigned)number;
        return true;
    }
    *out = 0;
    for (;;) {
        size_t length = strcspn(text, "+");
        const umf_field_word_t *word = word_find(words, text, length);
        if (!word) {
            return false;
        }
        *out |= (unsigned)word->value;
        if (text[length] == '\0') {
            return true;
        }
        text += length + 1;
    }
}

bool umf_parse_bool_letter(const char *text, bool *out) {
    *out = *text && strchr("yY1", *text);
    return *out || (*text && strchr("nN0", *text));
}

bool umf_parse_bool_word(const char *text, bool *out) {
    static const umf_field_word_t words[] = {{"yes", 1},   {"no", 0}, {"true", 1},
                                             {"false", 0}, {"1", 1},  {"0", 0},
                                             {"y", 1},     {"n", 0},  {NULL, 0}};
    const umf_field_word_t *word = word_find(words, text, strlen(text));
    *out = word && word->value;
    return word != NULL;
}

bool umf_field_parse(const umf_field_t *field, bool (*parse_bool)(const char *, bool *),
                     const char *text, umf_field_value_t *value) {
    size_t number = 0;
    bool ok;
    switch (field->type) {
    case UMF_FIELD_BOOL:
        return parse_bool(text, &value->b);
    case UMF_FIELD_INT:
        return parse_int(text, &value->i);
    case UMF_FIELD_UINT:
        ok = parse_unsigned(text, "", UINT_MAX, &number);
        value->u = (unsigned)number;
        return ok;
    case UMF_FIELD_SIZE:
        return parse_unsigned(text, "KMGT", SIZE_MAX, &value->s);
    case UMF_FIELD_ENUM:
        return parse_enum(field->words, text, &value->i);
    case UMF_FIELD_FLAGS:
        return parse_flags(field->words, text, &value->u);
    default:
        return false;
    }
}

void umf_field_expect(const umf_field_t *field, char *why, size_t why_size) {
    static const char *const forms[] = {
        [UMF_FIELD_BOOL] = "yes or no",
        [UMF_FIELD_INT] = "a whole number such as -1, 8 or 0x10",
        [UMF_FIELD_UINT] = "a whole number from 0 to 4294967295",
        [UMF_FIELD_SIZE] = "a number such as 65536, 0x10000 or 64K",
        [UMF_FIELD_ENUM] = "one of: ",
        [UMF_FIELD_FLAGS] = "words joined by '+' out of: ",
    };
    bool has_form = field->type < UMF_COUNT_OF(forms) && forms[field->type];
    if (has_form) {
        umf_text_append(why, why_size, "%s", forms[field->type]);
    }
    if (field->type == UMF_FIELD_ENUM || field->type == UMF_FIELD_FLAGS) {
        for (const umf_field_word_t *word = field->words; word->word; word++) {
            umf_text_append(why, why_size, "%s%s", word == field->words ? "" : ", ", word->word);
        }
    }
    if (field->help) {
        umf_text_append(why, why_size, has_form ? "; %s" : "%s", field->help);
    }
    if (field->preset) {
        umf_text_append(why, why_size, "; default: %s", field->preset);
    }
}
