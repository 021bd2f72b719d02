/*
 * Text that a terminal may get. Names come from other processes, from files and from the
 * environment, and may contain any bytes.
 */
#ifndef UMF_SRC_BASE_PLAIN_TEXT_H
#define UMF_SRC_BASE_PLAIN_TEXT_H

#include <stddef.h>

/* Replaces, each by one '?' a byte: control characters (C0, DEL and C1, so escapes and line ends
 * are gone), characters that change the direction of text, line separators, and bytes that are no
 * UTF-8. All else stays. */
void umf_plain_text(char *text, size_t length);

#endif
