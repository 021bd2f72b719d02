/*
 * Functions that free memory leave errno as it was, as free(3) does: programs read errno after they
 * have cleaned up.
 */
#ifndef UMF_SRC_SYSTEM_KEEP_ERRNO_H
#define UMF_SRC_SYSTEM_KEEP_ERRNO_H

#include <errno.h>

static inline void umf_errno_put_back(const int *error) {
    errno = *error;
}

/* A declaration: errno is restored at the end of its block, however the block is left. */
#define UMF_KEEP_ERRNO                                                                             \
    __attribute__((cleanup(umf_errno_put_back), unused)) const int umf_kept_errno = errno

#endif
