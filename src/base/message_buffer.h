/*
 * Message buffer: one line of text for each thread and use, created on first use.
 *
 * It is not a `static __thread char[]`: all thread-local variables of the library share the small
 * surplus that the loader has when the library is loaded late (thread_slot.h), and lines do not fit
 * into it.
 */
#ifndef UMF_SRC_BASE_MESSAGE_BUFFER_H
#define UMF_SRC_BASE_MESSAGE_BUFFER_H

#define UMF_MESSAGE_BUFFER_SIZE 1024

typedef enum umf_message_buffer_use_t {
    UMF_MESSAGE_BUFFER_NATIVE, /* last native error */
    UMF_MESSAGE_BUFFER_TEXT,   /* last error of a creation from text */
    UMF_MESSAGE_BUFFER_USES
} umf_message_buffer_use_t;

/* UMF_MESSAGE_BUFFER_SIZE bytes of the calling thread, initially "". NULL: no memory. */
char *umf_message_buffer(umf_message_buffer_use_t use);

#endif
