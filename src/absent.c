/*
 * The public functions of the kinds that this build is without: the table is NULL, everything else
 * says so and answers NOT_SUPPORTED, whatever the arguments are. The list of them is made when the
 * library is built, out of the sources of these kinds (cmake/umf_absent.cmake).
 *
 * No public header is included, since an alias has the type of what it stands for. Callers pass
 * arguments that nobody reads, which the C calling conventions of our systems allow.
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

#include "umf_absent.def"
