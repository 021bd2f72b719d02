/* Memory that a shared library allocated in its constructor, before the heap of the proxy library
 * was there. */
#ifndef UMF_TEST_PRELOAD_EARLY_H
#define UMF_TEST_PRELOAD_EARLY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EARLY_TEXT "allocated before the heap was there"
/* Together twice the arena of the proxy library. */
#define EARLY_PIECES 128
#define EARLY_PIECE_SIZE 65536

typedef struct early_t {
    char *text;                          /* EARLY_TEXT */
    char *moved;                         /* EARLY_TEXT, after a realloc */
    unsigned char *zeroes;               /* 1000 */
    void *aligned;                       /* to 4096 */
    void *empty;                         /* of no size */
    char *resolved;                      /* by the C library: "/" */
    unsigned char *pieces[EARLY_PIECES]; /* filled with their number */
} early_t;

extern early_t early;

#ifdef __cplusplus
}
#endif

#endif
