/*
 * One line of text per thread and use, made at its first use.
 *
 * Not a `static __thread char[]`: all thread-local variables of the library share the small block
 * that the loader has to spare when the library is loaded late (local.h), and lines do not fit
 * there.
 */
#ifndef UMF_SRC_BASE_LINE_H
#define UMF_SRC_BASE_LINE_H

#define UMF_LINE_SIZE 1024

typedef enum umf_line_use_t {
    UMF_LINE_NATIVE, /* last native error */
    UMF_LINE_TEXT,   /* last error of a creation from text */
    UMF_LINE_USES
} umf_line_use_t;

/* UMF_LINE_SIZE bytes of the calling thread, at first "". NULL when out of memory. */
char *umf_line(umf_line_use_t use);

#endif
