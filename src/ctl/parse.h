/* Values of fields from text, in the forms that umf_field_type_t describes. */
#ifndef UMF_SRC_CTL_PARSE_H
#define UMF_SRC_CTL_PARSE_H

#include "ctl/field.h"

typedef union umf_field_value_t {
    bool b;
    int i;
    unsigned u;
    size_t s;
} umf_field_value_t;

/* A bool: in the configuration the first character decides; in creation text it is a whole word. */
bool umf_parse_bool_letter(const char *text, bool *out);
bool umf_parse_bool_word(const char *text, bool *out);

/* false: the text is no value of this type. Not for STRING and TEXT. */
bool umf_field_parse(const umf_field_t *field, bool (*parse_bool)(const char *, bool *),
                     const char *text, umf_field_value_t *value);

bool umf_enum_is_valid(const umf_field_word_t *words, int value);

/* Appends what values the field accepts, for users. */
void umf_field_expect(const umf_field_t *field, char *why, size_t why_size);

#endif
