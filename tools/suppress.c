#include "suppress.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"

#define KIND "leak:"

/* As fnmatch() takes it: only a star is special. */
static char *pattern_make(const char *text) {
    size_t length = strlen(text), at = 0;
    bool from_begin = *text == '^', to_end = length > 0 && text[length - 1] == '$';
    char *pattern = malloc(2 * length + 3);
    if (!pattern) {
        return NULL;
    }
    if (!from_begin) {
        pattern[at++] = '*';
    }
    for (size_t i = from_begin; i < length - to_end; i++) {
        if (strchr("?[]\\", text[i])) {
            pattern[at++] = '\\';
        }
        pattern[at++] = text[i];
    }
    if (!to_end) {
        pattern[at++] = '*';
    }
    pattern[at] = '\0';
    return pattern;
}

static bool pattern_add(suppress_t *suppress, const char *text) {
    char **more = realloc(suppress->patterns, (suppress->count + 1) * sizeof(*more));
    suppress->patterns = more ? more : suppress->patterns;
    char *pattern = more ? pattern_make(text) : NULL;
    if (pattern) {
        suppress->patterns[suppress->count++] = pattern;
    }
    return pattern != NULL;
}

static bool line_take(suppress_t *suppress, char *line, const char *path, unsigned number) {
    line[strcspn(line, "\r\n")] = '\0';
    line += strspn(line, " \t");
    if (*line == '\0' || *line == '#') {
        return true;
    } else if (strncmp(line, KIND, strlen(KIND)) != 0 || line[strlen(KIND)] == '\0') {
        print_message("%s, line %u: '%s' is not " KIND "PATTERN", path, number, line);
        return false;
    } else if (!pattern_add(suppress, line + strlen(KIND))) {
        print_message("%s: there is no memory for its patterns", path);
        return false;
    }
    return true;
}

bool suppress_load(suppress_t *suppress, const char *path) {
    *suppress = (suppress_t){0};
    FILE *file = path ? fopen(path, "re") : NULL;
    char *line = NULL;
    size_t room = 0;
    bool is_done = file || !path;
    if (!is_done) {
        print_message("%s: %s", path, strerror(errno));
    }
    for (unsigned number = 1; file && is_done && getline(&line, &room, file) >= 0; number++) {
        is_done = line_take(suppress, line, path, number);
    }
    if (is_done && file && ferror(file)) {
        print_message("%s: %s", path, strerror(errno));
        is_done = false;
    }
    free(line);
    if (file) {
        fclose(file);
    }
    return is_done;
}

bool suppress_has(const suppress_t *suppress, const char *name) {
    bool has = false;
    for (unsigned i = 0; i < suppress->count && !has; i++) {
        has = fnmatch(suppress->patterns[i], name, 0) == 0;
    }
    return has;
}

void suppress_free(suppress_t *suppress) {
    for (unsigned i = 0; i < suppress->count; i++) {
        free(suppress->patterns[i]);
    }
    free(suppress->patterns);
}
