/* Names of providers: a copy of fixed room, longer ones are cut. */
#ifndef UMF_SRC_PROVIDERS_NAME_H
#define UMF_SRC_PROVIDERS_NAME_H

#include <string.h>

#include "base/common.h"

static inline void umf_name_copy(char copy[static UMF_NAME_MAX], const char *name) {
    size_t length = strnlen(name, UMF_NAME_MAX - 1);
    memcpy(copy, name, length);
    copy[length] = '\0';
}

#endif
