/* Text from anywhere, as it may stand in a JSON document. */
#ifndef UMF_READER_JSON_H
#define UMF_READER_JSON_H

#include <stddef.h>
#include <stdio.h>

/* Length of the UTF-8 character at `text`, 0 if there is none: broken, overlong or a surrogate. */
size_t umf_reader_utf8_length(const char *text);

/* Writes the text up to the character `end`, or to its zero, as a string with quotation marks. */
void umf_reader_json_string(FILE *out, const char *text, char end);

#endif
