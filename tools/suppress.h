/* Suppressions: places that umfctl leaks does not count. */
#ifndef UMFCTL_SUPPRESS_H
#define UMFCTL_SUPPRESS_H

#include <stdbool.h>

typedef struct suppress_t {
    char **patterns;
    unsigned count;
} suppress_t;

/*
 * Reads a file as LeakSanitizer does: lines `leak:PATTERN`, where `*` stands for anything, `^` and
 * `$` at the ends for those of the name, and lines that begin with `#`. NULL: no file. False:
 * stderr says why.
 */
bool suppress_load(suppress_t *suppress, const char *path);
/* Fits one of the patterns the name of a function or a file? */
bool suppress_has(const suppress_t *suppress, const char *name);
void suppress_free(suppress_t *suppress);

#endif
