/* Paths in parameters: copies of fixed room. A path that is too long stays recognisable as such. */
#ifndef UMF_SRC_PROVIDERS_FILE_PATH_H
#define UMF_SRC_PROVIDERS_FILE_PATH_H

#include <limits.h>
#include <string.h>

#include "system/common.h"

/* One more byte than the longest path of the system with its NUL. */
#define UMF_PATH_ROOM (PATH_MAX + 1)

typedef char umf_path_t[UMF_PATH_ROOM];

/* `copy` has UMF_PATH_ROOM bytes. */
static inline void umf_path_copy(char *copy, const char *path) {
    size_t length = strnlen(path, UMF_PATH_ROOM - 1);
    memcpy(copy, path, length);
    copy[length] = '\0';
}

static inline bool umf_path_is_too_long(const char *path) {
    return strlen(path) >= PATH_MAX;
}

#endif
