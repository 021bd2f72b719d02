/*
 * The allocator that would serve the program without this library: usually the C library's. It owns
 * memory that was not allocated through this library, and serves requests below the threshold.
 */
#ifndef UMF_LIB_PROXY_LIBC_H
#define UMF_LIB_PROXY_LIBC_H

#include <stddef.h>

typedef struct umf_proxy_libc_t {
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t num, size_t size);
    void *(*realloc)(void *ptr, size_t size);
    /* Of all functions for aligned memory the only one that takes any size everywhere. */
    int (*posix_memalign)(void **ptr, size_t alignment, size_t size);
    void (*free)(void *ptr);
    size_t (*malloc_usable_size)(void *ptr);
} umf_proxy_libc_t;

/* NULL: this thread is looking it up at the moment, or the program has none. */
const umf_proxy_libc_t *umf_proxy_libc(void);

#endif
