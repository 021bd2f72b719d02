/*
 * Text for a terminal. Names, paths and messages may come from another process or a file: what
 * would control the terminal, or turn the direction of text, is replaced. All text of umfctl that
 * is not its own passes here, or is escaped as JSON.
 */
#ifndef UMFCTL_PLAIN_H
#define UMFCTL_PLAIN_H

#include <stddef.h>

/* The next character as it may be written: 1 to 4 bytes. `*length`: how many bytes of the text it
 * was. `text` is not at its end. */
size_t plain_next(const char *text, char shown[4], size_t *length);

/* The text as it may be written, cut to the room; returns `to`. */
const char *plain_copy(char *to, size_t size, const char *text);

/* "umfctl: ", the message as it may be written, and a newline, on stderr. Returns 1, the exit
 * status of a failure. */
int print_message(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
