/*
 * One line of text per thread and use, made at its first use.
 *
 * Not a `static __thread char[]`: all thread-local variables of the library share the small block
 * that the loader has to spare when the library is loaded late (local.h), and lines do not fit
 * there.
 */
#ifndef UMF_SRC_BASE_MESSAGE_BUFFER_H
#define UMF_SRC_BASE_MESSAGE_BUFFER_H

#define UMF_MESSAGE_BUFFER_SIZE 1024

typedef enum umf_message_buffer_use_t {
    UMF_MESSAGE_BUFFER_NATIVE, /* last native error */
    UMF_MESSAGE_BUFFER_TEXT,   /* last error of a creation from text */
    UMF_MESSAGE_BUFFER_USES
} umf_message_buffer_use_t;

/* UMF_MESSAGE_BUFFER_SIZE bytes of the calling thread, at first "". NULL when out of memory. */
char *umf_message_buffer(umf_message_buffer_use_t use);

#endif
