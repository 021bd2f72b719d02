/* Functions shared by the commands that read recordings. */
#ifndef UMFCTL_RECORD_H
#define UMFCTL_RECORD_H

#include <stdio.h>

#include "reader/reader.h"

/* NULL: stderr says why. With the part that the command line selects. */
umf_reader_t *record_open(const char *path);
/* Likewise with other ends: a number of seconds since the start, or a mark; NULL: that of the file.
 */
umf_reader_t *record_open_part(const char *path, const char *from, const char *to);
/* Selects the part of the command line. NULL, and the reader is closed: stderr says why. */
umf_reader_t *record_select(umf_reader_t *reader);

/* Says why on stderr; returns the exit status. */
int record_failed(const umf_reader_error_t *error);

/* Closes it, and says on stderr, once, if source lines are missing because of a library. */
void record_close(umf_reader_t *reader);
/* Takes the options of source lines; record_open has done so. */
void record_lines_begin(umf_reader_t *reader);

/* Adds names of code to the file. False: stderr says why. */
bool record_names(int fd, const char *path, umf_reader_names_t *names);
bool record_names_of(const char *path, umf_reader_names_t *names);

/* The section that describes the file. */
void record_describe(const umf_reader_t *reader, const char *name, const char *title);

/* Each returns `text`. */
const char *record_number(uint64_t number, char *text, size_t size);
/* "3 allocations" */
const char *record_allocations(uint64_t count, char *text, size_t size);

/* The frames of a stack from the one that called libumf, one in a line; for report_value_t. */
const char *record_stack(umf_reader_t *reader, uint32_t stack, char *text, size_t size);

/* Prints them below a line of a table, for people only. */
void record_print_lines(const char *lines);
void record_print_stack(umf_reader_t *reader, uint32_t stack);

/* The place of a stack: its first line, or "no stack". */
const char *record_place(umf_reader_t *reader, uint32_t stack, char *text, size_t size);

/* Writes a file, which does not stay if it is not whole and is no recording that was read. Returns
 * the exit status. */
typedef bool record_write_t(void *arg, FILE *out, umf_reader_error_t *error);
int record_write(const char *path, record_write_t *write, void *arg);

/* The section of pages, if there are arenas. */
void trace_show_pages(const umf_reader_t *reader, umf_reader_replay_t *replay);

/* Writes the files named in the command line; returns the exit status. */
bool trace_has_exports(void);
int trace_export(umf_reader_t *reader);

#define RECORD_LABEL 64
#define RECORD_STACK 16384

#endif
