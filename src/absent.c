/*
 * The public functions of the kinds and parts that this build lacks. The function for the
 * operations table returns NULL. Every other function logs that the kind or part is missing and
 * returns NOT_SUPPORTED, or NULL where it returns a pointer, whatever its arguments are. The build
 * makes the list from their sources (cmake/umf_absent.cmake).
 *
 * No public header is included, because an alias must have the type of its target. The functions
 * ignore the arguments that callers pass, which the C calling conventions of the supported systems
 * allow.
 */
#include <umf/base.h>

#include "base/log.h"
#include "system/common.h"

#define ABSENT_KIND(kind, what)                                                                    \
    static umf_result_t absent_##kind(void) {                                                      \
        UMF_LOG_ERROR("this libumf was built without the %s '%s'", what, #kind);                   \
        return UMF_RESULT_ERROR_NOT_SUPPORTED;                                                     \
    }
#define ABSENT_OPS(api, function)                                                                  \
    api const void *function(void);                                                                \
    const void *function(void) {                                                                   \
        return NULL;                                                                               \
    }
#define ABSENT(api, function, kind)                                                                \
    api umf_result_t function(void) __attribute__((alias("absent_" #kind)));
#define ABSENT_POINTER(api, function, kind)                                                        \
    api const void *function(void);                                                                \
    const void *function(void) {                                                                   \
        absent_##kind();                                                                           \
        return NULL;                                                                               \
    }

#include "umf_absent.def"
