/*
 * Source lines and inlined functions, by libdw (elfutils), which is looked for at run time. Files
 * of debug information come from this machine, or by libdebuginfod from servers if that is asked.
 */
#ifndef UMF_READER_LINES_H
#define UMF_READER_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lines_t lines_t;           /* the library */
typedef struct lines_file_t lines_file_t; /* the debug information of a program or library */

/* NULL: there is no such library, or no memory. */
lines_t *lines_begin(void);
void lines_end(lines_t *lines);

/* NULL: the file is not there, or has no debug information. */
lines_file_t *lines_open(const lines_t *lines, const char *path);
/* Likewise of a build id, from the servers of DEBUGINFOD_URLS. */
lines_file_t *lines_fetch(const lines_t *lines, const unsigned char *build_id, size_t size);
void lines_close(lines_file_t *file);

/* A function at an address. Texts are those of the file. */
typedef struct line_t {
    const char *function; /* NULL: not known; of C++ the name of the linker */
    const char *source;   /* NULL: not known */
    uint32_t line;        /* 0: not known */
} line_t;

/* The functions that have the code at an address of the file, the innermost inlined one first;
 * returns how many, at most `room`. */
size_t lines_at(lines_file_t *file, uint64_t address, line_t *found, size_t room);

#endif
