/* Text from anywhere, as it may stand in a JSON document, also in a script element of HTML. */
#ifndef UMF_READER_JSON_H
#define UMF_READER_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes of the UTF-8 character at `text`, which ends with a zero. 0: there is none, it is broken,
 * overlong or a surrogate. */
size_t umf_reader_character(const char *text, uint32_t *code);

/* The first character of the text, or what stands for it in a string: `size` bytes. The text moves
 * on. Bytes that are no UTF-8 are replaced. */
const char *umf_reader_json_piece(const char **text, char escaped[8], size_t *size);

/* Writes the text up to the character `end`, or to its zero, as a string with quotation marks. */
void umf_reader_json_string(FILE *out, const char *text, char end);

#endif
