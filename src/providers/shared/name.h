/* Names of fixed room: longer ones are cut, and in descriptions the rest is filled with NUL. */
#ifndef UMF_SRC_PROVIDERS_SHARED_NAME_H
#define UMF_SRC_PROVIDERS_SHARED_NAME_H

#include <string.h>

#include "system/common.h"

static inline void umf_name_copy(char copy[UMF_NAME_MAX], const char *name) {
    size_t length = strnlen(name, UMF_NAME_MAX - 1);
    memcpy(copy, name, length);
    copy[length] = '\0';
}

/* Whether the name has that length, and only NUL follows up to the end of its room. */
static inline bool umf_name_fills(const char *name, size_t length, size_t room) {
    return strnlen(name, length + 1) == length &&
           memcmp(name + length, name + length + 1, room - length - 1) == 0;
}

#endif
